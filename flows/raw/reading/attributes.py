"""Attributes, public facts of units: read as they are, each with one type in all files of a log.

Text formats give text. In Parquet whole numbers become 64-bit integers, other numbers doubles (NaN
is null), and text, booleans and dates stay what they are. Where files differ, whole numbers beside
other numbers become doubles, as many programs write integers so where one is missing, and anything
else becomes text. A file whose column has only nulls agrees with any type.
"""

import polars as pl

from flows.raw.reading.by_format.parquet_files import stated_types
from flows.raw.reading.columns import TEXT_LIKE, unfit
from flows.raw.reading.log_files import suffix
from flows.raw.reading.stores import LogFile

KEY = "columns.attributes"


def attribute_type(files: tuple[LogFile, ...], name: str) -> pl.DataType:
    """The type of the attribute ``name`` in all ``files``: text, integer, double, boolean or date.

    Raises InputError where it has a type in some file that no attribute has.
    """
    kinds = {kind for path in files if (kind := _stated_type(path, name)) is not None}
    if len(kinds) == 1:
        return kinds.pop()
    if kinds and all(kind.is_numeric() for kind in kinds) and pl.Float64() in kinds:
        return pl.Float64()
    return pl.String()


def attribute(frame: pl.DataFrame, path: LogFile, name: str, kind: pl.DataType) -> pl.Expr:
    """The attribute ``name`` of a file in the type ``kind`` that it has in all of them.

    Raises InputError where it has a type in this file that no attribute has.
    """
    found = _usual(frame.schema[name], path, name)
    values = pl.col(name).cast(found or kind)
    if found == pl.Float64:
        values = values.fill_nan(None)
    return values if found == kind else values.cast(kind)


def _stated_type(path: LogFile, name: str) -> pl.DataType | None:
    """The type in one file; None where it has only nulls, or no such column, an error later."""
    if suffix(path) != ".parquet":
        return pl.String()
    kind = stated_types(path).get(name)
    return None if kind is None else _usual(kind, path, name)


def _usual(kind: pl.DataType, path: LogFile, name: str) -> pl.DataType | None:
    """The type that stands for ``kind``; None for a column of nulls."""
    if isinstance(kind, TEXT_LIKE):
        return pl.String()
    if kind.is_integer():
        return pl.UInt64() if kind == pl.UInt64 else pl.Int64()
    if kind.is_float() or kind.is_decimal():
        return pl.Float64()
    if kind == pl.Boolean:
        return pl.Boolean()
    if kind == pl.Date:
        return pl.Date()
    if kind == pl.Null:
        return None
    raise unfit(path, name, KEY, kind, "text, numbers, booleans or dates", KEY)
