"""What may be read of a log that nobody has described: columns' names, and one column's labels.

Names and types come from the schema of a Parquet file, or from the header of a CSV file, which is
read up to its end. JSON Lines have neither, so nothing of them is read for names.
"""

from collections.abc import Mapping

import polars as pl

from flows.raw.boundary.guard import errors_as
from flows.raw.reading.by_format.csv_files import (
    BrokenRowError,
    fields_of,
    grammar,
    whole_rows,
)
from flows.raw.reading.by_format.parquet_files import schema_of, without_rows
from flows.raw.reading.columns import TEXT_LIKE, label
from flows.raw.reading.log_files import MARK, UNREADABLE, Wanted, check_columns, open_bytes, suffix
from flows.raw.reading.sources import batches_of
from flows.raw.reading.stores import LogFile
from schemas.errors import InputError

MOST_LABELS = 50
"""Of an arm's column: one with more is no arm."""

_LONGEST = 1 << 20  # bytes of a header
_TRUTH = ("true", "false")


def columns_of(path: LogFile, delimiter: str = ",") -> Mapping[str, pl.DataType] | None:
    """The names and types of a file's columns; None where the format has no place that says them.

    No row is read. Raises InputError where the file cannot be read.
    """
    if suffix(path) == ".parquet":
        without_rows(path, Wanted(()))  # raises where the schema cannot be read
        return dict(schema_of(path))
    if suffix(path) != ".csv":
        return None
    broken = InputError(f"{path}: its header cannot be read as CSV")
    text, form = b"", grammar(delimiter)
    with errors_as(lambda _: broken, BrokenRowError, *UNREADABLE), open_bytes(path) as file:
        while len(text) < _LONGEST:  # not a byte of the second row is looked at
            line = file.readline(_LONGEST)
            text = (text + line).removeprefix(MARK)
            rows, _ = whole_rows(text, form, final=not line)
            if rows or not line:
                names = [field.decode(errors="replace") for field in fields_of(rows, 0, form)[0]]
                return dict.fromkeys(names, pl.String())
    raise broken


def labels_of(path: LogFile, name: str, delimiter: str = ",") -> frozenset[str] | None:
    """The labels in column ``name``; None where they may be none of arms, and are left unread.

    Only this column is read. It has to be text with at most MOST_LABELS different labels, not all
    of which are numbers, or true and false: else it may be an outcome.
    """
    columns = columns_of(path, delimiter)
    if columns is not None:
        check_columns(path, Wanted((name,)), columns)
        if not isinstance(columns[name], TEXT_LIKE):
            return None
    found: set[str] = set()
    for frame in batches_of(path, Wanted((name,), delimiter=delimiter)):
        labels = frame.select(label(frame, path, name, "arm").alias(name))[name]
        found.update(labels.drop_nulls().unique().to_list())
        if len(found) > MOST_LABELS:
            return None
    return None if all(map(may_be_outcome, found)) else frozenset(found)


def may_be_outcome(text: str) -> bool:
    """Whether a text is a number, or true or false, and so may be no name or label."""
    try:
        float(text)
    except ValueError:
        return text.strip().lower() in _TRUTH
    return True
