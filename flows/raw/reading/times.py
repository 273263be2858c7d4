"""Times of exposures and outcome events, read leniently: no value can make reading fail.

A time is a number of microseconds since 1970-01-01 in UTC. Timestamps with a zone are converted to
UTC, those without one are taken as UTC, and a date is its first microsecond. Columns of numbers are
refused: a whole number may be seconds, milliseconds or microseconds, and a wrong guess would move
every outcome out of the window in silence.
"""

import polars as pl

from flows.raw.reading.columns import TEXT_LIKE, unfit
from flows.raw.reading.stores import LogFile

_DAY = 86_400_000_000
_FIRST = -62_135_596_800_000_000  # 0001-01-01
_LAST = 253_402_300_799_999_999  # the end of 9999
_FORMS = (
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%dT%H:%M:%S%.f",  # a second time, on normalised text
    "%Y-%m-%dT%H:%M:%S%.f%#z",
    "%Y-%m-%d",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%dT%H:%M%#z",
)


def microseconds(name: str, dtype: pl.DataType, path: LogFile, key: str = "time") -> pl.Expr:
    """The column ``name`` of this type as Int64 microseconds in UTC; null where unreadable.

    Takes timestamps of any unit and zone, dates, and text in ISO 8601, extended form
    (``2026-11-20``, ``2026-11-20T18:30:00.25``, a blank for the T, ``Z`` or an offset behind it),
    of the years 1 to 9999. Fractions beyond microseconds are cut off. Raises InputError, which
    names ``path`` and ``key``, where the column is of any other type.
    """
    column = pl.col(name)
    if isinstance(dtype, pl.Datetime):
        time = column.cast(pl.Int64)
        if dtype.time_unit == "ns":
            time = time.floordiv(1000)
        elif dtype.time_unit == "ms":
            time = pl.when(time.is_between(_FIRST // 1000, _LAST // 1000)).then(time * 1000)
        return pl.when(time.is_between(_FIRST, _LAST)).then(time)
    if dtype == pl.Date:
        days = column.cast(pl.Int32).cast(pl.Int64)
        return pl.when(days.is_between(_FIRST // _DAY, _LAST // _DAY)).then(days * _DAY)
    if dtype == pl.Null:
        return column.cast(pl.Int64)
    if isinstance(dtype, TEXT_LIKE):
        text = column.cast(pl.String)
        return text.map_batches(_parse, return_dtype=pl.Int64, is_elementwise=True)
    raise unfit(path, name, key, dtype, "a timestamp, a date or text in ISO 8601")


def _parse(text: pl.Series) -> pl.Series:
    """Try each form on the texts that the forms before it could not read.

    The time of a row does not depend on other rows.
    """
    time = _by_form(text, _FORMS[0])
    for form in _FORMS[1:]:
        left = (time.is_null() & text.is_not_null()).arg_true()
        if left.is_empty():
            break
        # Blanks around the text go; T and Z are written as capitals, the fraction with a point.
        plain = text.gather(left).str.strip_chars().str.to_uppercase().str.replace(r" ?UTC$", "Z")
        plain = plain.str.replace(r"^(\d{4}-\d{2}-\d{2}) ", "${1}T")
        time = time.scatter(left, _by_form(plain.str.replace(",", ".", literal=True), form))
    return time


def _by_form(text: pl.Series, form: str) -> pl.Series:
    time = text.str.to_datetime(form, strict=False, time_unit="us").to_physical()
    return time.set(~time.is_between(_FIRST, _LAST), None)
