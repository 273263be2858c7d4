"""What types columns have in all files of a log: of attributes, of ids and of outcomes.

Attributes, public facts of units, are read as they are. Text formats give text. In Parquet whole
numbers become 64-bit integers, other numbers doubles (NaN is null), and text, booleans and dates
stay what they are. Where files differ, whole numbers beside other numbers become doubles, as many
programs write integers so where one is missing, and anything else becomes text. A file whose column
has only nulls agrees with any type.

Whether an outcome's type can be read as declared is told before a release and never stops one:
where a program infers the types that it writes, one unit's outcome decides the type of the column.
"""

from collections.abc import Iterable, Iterator

import polars as pl

from flows.config.model.sections import NamedOutcome
from flows.raw.reading.by_format.parquet_files import stated_types
from flows.raw.reading.columns import TEXT_LIKE, can_be_numbers, can_be_texts, kind_name, unfit
from flows.raw.reading.log_files import suffix
from flows.raw.reading.stores import LogFile

ATTRIBUTES = "columns.attributes"


def attribute_type(files: tuple[LogFile, ...], name: str) -> pl.DataType:
    """The type of the attribute ``name`` in all ``files``: text, integer, double, boolean or date.

    Raises InputError where it has a type in some file that no attribute has.
    """
    kinds: set[pl.DataType] = set()
    for path in files:
        kind = stated_types(path).get(name) if suffix(path) == ".parquet" else pl.String()
        usual = None if kind is None else _usual(kind, path, name)  # no column: an error later
        kinds |= set() if usual is None else {usual}
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
    raise unfit(path, name, ATTRIBUTES, kind, "text, numbers, booleans or dates", ATTRIBUTES)


# identifiers


def identifier_type(files: tuple[LogFile, ...], name: str) -> pl.DataType:
    """The type of the ids in column ``name`` of all ``files``: text, or 64-bit integers.

    Text where the files differ, as no integer type holds all ids. A file whose column holds only
    nulls, as many programs write for an empty partition, agrees with any type.
    """
    kinds: set[pl.DataType] = set()
    for path in files:
        kind = stated_types(path).get(name) if suffix(path) == ".parquet" else None
        if kind is None or not (kind.is_integer() or kind == pl.Null):
            kinds.add(pl.String())
        elif kind != pl.Null:
            kinds.add(pl.UInt64() if kind == pl.UInt64 else pl.Int64())
    return kinds.pop() if len(kinds) == 1 else pl.String()


# outcomes


def type_warnings(outcomes: Iterable[NamedOutcome], files: Iterable[LogFile]) -> Iterator[str]:
    """Name each outcome's column in the first of ``files`` in which its type does not fit."""
    schemas = [(path, stated_types(path)) for path in files if suffix(path) == ".parquet"]
    for one in outcomes:
        found = ((path, _problem(one, schema.get(one.column))) for path, schema in schemas)
        for path, problem in found:
            if problem is not None:
                yield f"{path}: column {one.column!r} (outcome) {problem}"
                break


def _problem(one: NamedOutcome, kind: pl.DataType | None) -> str | None:
    """What is wrong with a column of this type, and what helps; None of one that is not there."""
    if kind is None:
        return None
    if one.texts:
        if can_be_texts(kind):
            return None
        return (
            f"is {kind_name(kind)}, and values are texts: none of its outcomes can be read. "
            "Name numbers in values, or write the column as text"
        )
    if not can_be_numbers(kind):
        return (
            f"is {kind_name(kind)}, and the grid is of numbers: none of its outcomes can be read. "
            "Name another column, or write numbers into it"
        )
    if isinstance(kind, TEXT_LIKE) and one.decimal is None:
        return (
            "is text, and the grid is of numbers: what is no number counts as missing. Write "
            'numbers into it; or say what it holds: texts by values = ["no", "yes"], numbers with '
            'a decimal comma by decimal = ",", with a point by decimal = "."'
        )
    return None
