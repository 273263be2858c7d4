"""Whether the type that a Parquet file declares of an outcome's column can be read as declared.

It is told before a release and never stops one: where a program infers the types that it writes,
one unit's outcome decides the type of the whole column.
"""

from collections.abc import Iterable, Iterator

import polars as pl

from flows.config.model.sections import NamedOutcome
from flows.raw.reading.by_format.parquet_files import stated_types
from flows.raw.reading.columns import TEXT_LIKE, can_be_numbers, can_be_texts, kind_name
from flows.raw.reading.log_files import suffix
from flows.raw.reading.stores import LogFile


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
