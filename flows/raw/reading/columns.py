"""Converting the columns of a file into those that the steps use.

No private value can make this fail; a column's type can, and is public. Messages name only the base
of a type, as the names of a struct's fields or of an enumeration's categories may be values.
"""

from collections.abc import Mapping

import polars as pl

from flows.raw.reading.stores import LogFile
from schemas.errors import InputError
from schemas.released import ALL

TEXT_LIKE = (pl.String, pl.Categorical, pl.Enum)

CLUSTER_OF = " / "
"""Joins the values of several columns that name a cluster together."""

_REPLACEMENT = "\ufffd"  # replaces an undecodable byte; an identifier that holds it is unreadable


def kind_name(kind: pl.DataType) -> str:
    """The name of a type in messages: without fields, categories or inner types."""
    return str(kind.base_type())


def unfit(
    path: LogFile, name: str, key: str, kind: pl.DataType, wanted: str, of: str | None = None
) -> InputError:
    """The error of a column whose type is none of those that are ``wanted``."""
    stated = f"{path}: column {name!r} ({key}) is {kind_name(kind)}"
    return InputError(f"{stated}; it has to be {wanted}", key=of)


def identifier(frame: pl.DataFrame, path: LogFile, name: str, key: str) -> pl.Expr:
    """An id as text or integer, as in the file; empty or undecodable text is null.

    Raises InputError where the column is of any other type.
    """
    kind = frame.schema[name]
    if kind.is_integer():
        return pl.col(name).cast(pl.UInt64 if kind == pl.UInt64 else pl.Int64, strict=False)
    if kind == pl.Null:
        return pl.col(name).cast(pl.String)
    if isinstance(kind, TEXT_LIKE):
        text = pl.col(name).cast(pl.String)
        readable = (text != "") & ~text.str.contains(_REPLACEMENT, literal=True)
        return pl.when(readable).then(text)
    raise unfit(path, name, key, kind, "text or integer")


def label(frame: pl.DataFrame, path: LogFile, name: str, key: str) -> pl.Expr:
    """An arm or a cluster as text; empty or undecodable text is null."""
    if frame.schema[name] == pl.Boolean:
        return pl.col(name).cast(pl.String)
    return identifier(frame, path, name, key).cast(pl.String)


def arm_labels(frame: pl.DataFrame, path: LogFile, name: str, arms: tuple[str, ...]) -> pl.Expr:
    """Arms as an Enum of the declared ones, where all rows have one of these; else as text."""
    if frame.schema[name] == pl.String:
        declared = frame[name].cast(pl.Enum(arms), strict=False)
        if declared.null_count() == 0:
            return pl.lit(declared)
    return label(frame, path, name, "arm")


def cluster(frame: pl.DataFrame, path: LogFile, names: tuple[str, ...]) -> pl.Expr:
    """The cluster as a Categorical: the values of its columns, joined by :data:`CLUSTER_OF`.

    A slash in a value is doubled, so that different combinations stay different.
    """
    if not names:
        return pl.lit(ALL).cast(pl.Categorical)
    if len(names) == 1:
        if frame.schema[names[0]] == pl.String:  # unreadable text is looked for once a label
            column = frame[names[0]].cast(pl.Categorical)
            if all(text and _REPLACEMENT not in text for text in column.unique().to_list()):
                return pl.lit(column)
        return label(frame, path, names[0], "cluster").cast(pl.Categorical)
    labels = [label(frame, path, name, "cluster") for name in names]
    escaped = [part.str.replace_all("/", "//", literal=True) for part in labels]
    return pl.concat_str(escaped, separator=CLUSTER_OF).cast(pl.Categorical)


def private_label(frame: pl.DataFrame, path: LogFile, name: str, key: str = "cluster") -> pl.Expr:
    """A private label as text, null where it is missing; no value can make this fail.

    Whole numbers (2.0) count as integers (2): many programs write integers so where one is missing.
    ``key`` says in the message what the column is.
    """
    kind = frame.schema[name]
    if kind.is_float() or kind.is_decimal():
        value = pl.col(name).cast(pl.Float64, strict=False)
        whole = (value == value.floor()) & (value.abs() < 2.0**53)
        return pl.when(whole).then(value).cast(pl.Int64, strict=False).cast(pl.String)
    if isinstance(kind, TEXT_LIKE) or kind.is_integer() or kind in (pl.Boolean, pl.Null):
        return pl.col(name).cast(pl.String)
    raise unfit(path, name, key, kind, "text or number")


def can_be_numbers(kind: pl.DataType) -> bool:
    """Whether values of a column of this type may be read as numbers."""
    return kind.is_numeric() or isinstance(kind, TEXT_LIKE) or kind in (pl.Boolean, pl.Null)


def can_be_texts(kind: pl.DataType) -> bool:
    """Whether values of a column of this type may be declared texts; true and false are such."""
    return isinstance(kind, TEXT_LIKE) or kind in (pl.Boolean, pl.Null)


def outcome(frame: pl.DataFrame, path: LogFile, name: str, decimal: str = ".") -> pl.Expr:
    """The outcome as a number, NaN where it is missing or unreadable (:func:`number`).

    So are all in a column of dates or times: a program that infers types may have made it so for
    one unit's outcome, and no unit's outcome stops a release.
    """
    if frame.schema[name].is_temporal():
        return pl.lit(float("nan"))
    return number(frame, path, name, "outcome", decimal)


def text_outcome(
    frame: pl.DataFrame, path: LogFile, name: str, numbers: Mapping[str, float]
) -> pl.Expr:
    """The number that each text of an outcome stands for, NaN where it is none of these texts.

    A text is matched letter for letter, blanks around it left out; true and false match as such. In
    a column of numbers, dates or times all are NaN, as in :func:`outcome`. No value can make this
    fail; InputError where the column is of any other type.
    """
    kind = frame.schema[name]
    if kind.is_numeric() or kind.is_temporal():
        return pl.lit(float("nan"))
    if not can_be_texts(kind):
        raise InputError(
            f"{path}: column {name!r} (outcome) is {kind_name(kind)}, and outcome.values are "
            "texts; name numbers there"
        )
    text = pl.col(name).cast(pl.String).str.strip_chars()
    stands_for = text.replace_strict(
        list(numbers), list(numbers.values()), default=None, return_dtype=pl.Float64
    )
    return stands_for.fill_null(float("nan"))


def number(frame: pl.DataFrame, path: LogFile, name: str, key: str, decimal: str = ".") -> pl.Expr:
    """A private number as Float64, NaN where it is missing or unreadable.

    In text numbers have the mark ``decimal`` and no other. No value can make this fail; InputError
    where the type of the column is none of numbers, text and booleans. ``key`` says in the message
    what the column is.
    """
    kind = frame.schema[name]
    column = pl.col(name)
    if not can_be_numbers(kind):
        raise unfit(path, name, key, kind, "number or text")
    if isinstance(kind, TEXT_LIKE):
        text = column.cast(pl.String).str.strip_chars()
        truth = text.str.to_lowercase().replace_strict({"true": 1.0, "false": 0.0}, default=None)
        if decimal != ".":
            whole = text.str.replace_all(".", "?", literal=True)  # no number: a mark of thousands
            text = whole.str.replace_all(decimal, ".", literal=True)
        values = pl.coalesce(text.cast(pl.Float64, strict=False), truth.cast(pl.Float64))
    else:
        values = column.cast(pl.Float64, strict=False)
    return values.fill_null(float("nan"))


# times: microseconds since 1970-01-01 in UTC, read leniently

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

    Timestamps with a zone are converted to UTC, those without one are taken as UTC, and a date is
    its first microsecond. Columns of numbers are refused: a whole number may be seconds,
    milliseconds or microseconds, and a wrong guess would move every outcome out of the window in
    silence.

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
