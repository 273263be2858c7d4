"""Reading the tables that analysts give beside a release (segments, covariates, ids).

They are CSV or Parquet files.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from flows.runtime.reading.regular_files import check_regular
from schemas.errors import InputError, shown

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = (".csv", ".parquet")
_TEXT_LIKE = (pl.String, pl.Categorical, pl.Enum)


def check_format(path: Path) -> None:
    """Raise InputError where the name ends with neither ``.csv`` nor ``.parquet``."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path}: not a format for this command ({', '.join(FORMATS)})")


def read_table(path: Path) -> pl.DataFrame:
    """Read a whole table, a CSV file with all columns as text.

    Raises InputError where that fails, and where two columns have one name.
    """
    check_format(path)
    check_regular(path)
    try:
        if path.suffix.lower() == ".csv":
            header = pl.read_csv(path, has_header=False, n_rows=1, infer_schema=False, glob=False)
            check_names(path, header.row(0))
            return pl.read_csv(path, infer_schema=False, glob=False)
        return _parquet(path)
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError):
        pass
    what = "Parquet" if path.suffix.lower() == ".parquet" else "CSV in UTF-8"
    raise InputError(f"{path}: cannot be read as {what}; is it whole, and is there a header?")


def check_names(table: Path | str, names: Sequence[object]) -> None:
    """Raise InputError where a name stands twice: it would not be clear which column is meant."""
    twice = next((name for at, name in enumerate(names) if name and name in names[:at]), None)
    if twice is not None:
        raise InputError(
            f"{table}: column {shown(twice)} stands there twice; leave one of them out"
        )


def check_metadata(part: "pa.Schema | pa.Field") -> None:
    """Raise UnicodeDecodeError where what a Parquet file notes beside its columns is no text.

    Polars panics over that.
    """
    for noted in (part.metadata or {}).items():
        for one in noted:
            one.decode()
    kind = getattr(part, "type", None)  # None of a schema
    for field in part if kind is None else map(kind.field, range(kind.num_fields)):
        check_metadata(field)


def _parquet(path: Path) -> pl.DataFrame:
    """Read a Parquet file by Arrow: polars' own reader may abort the process over a broken one."""
    import pyarrow as pa  # noqa: PLC0415 - takes a tenth of a second; other files do without
    import pyarrow.parquet as pq  # noqa: PLC0415 - likewise

    try:
        with pq.ParquetFile(path) as file:
            check_metadata(file.schema_arrow)
            check_names(path, file.schema_arrow.names)
            table = file.read()
        table.validate(full=True)  # what it reads of a damaged file may contradict itself
    except pa.ArrowException:
        raise OSError(path) from None
    frame = pl.from_arrow(table)
    if not isinstance(frame, pl.DataFrame):  # pragma: no cover - a table is a frame
        raise TypeError(type(frame))
    return frame


def id_column(frame: pl.DataFrame, path: Path, column: str) -> pl.Series:
    """Return a column of ids: text or integers; empty or undecodable text is null, as in a log.

    Raises InputError as :func:`text_or_integer` does.
    """
    ids = text_or_integer(frame, path, column)
    if ids.dtype.is_integer() or ids.dtype == pl.Null:
        return ids
    text = pl.col(column).cast(pl.String)
    readable = (text != "") & ~text.str.contains("\ufffd", literal=True)
    return frame.select(pl.when(readable).then(text))[column]


def text_or_integer(frame: pl.DataFrame, path: Path, column: str) -> pl.Series:
    """Return a column of text, integers or booleans.

    Raises InputError where it is missing or of another type.
    """
    if column not in frame.columns:
        raise InputError(f"{path}: there is no column {column!r}")
    values = frame[column]
    kind = values.dtype
    if not (kind.is_integer() or kind in (pl.Null, pl.Boolean) or isinstance(kind, _TEXT_LIKE)):
        name = kind.base_type()  # without the names of a struct's fields, which may be values
        raise InputError(f"{path}: column {column!r} is {name}; it has to be text or integer")
    return values
