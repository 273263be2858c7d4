"""Reading the log's files, batch by batch: Parquet, CSV and JSON Lines.

Type inference never sees an outcome: text formats are read as text and cast leniently afterwards.
A row's public fields, and whether a file can be read, follow from the rows' public fields and from
where rows and fields end; what an outcome is makes no difference to them. Library errors quote
rows, so they are replaced by ours, which name the file and a line number.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from flows.raw.reading.csv_files import read_csv
from flows.raw.reading.json_lines import read_json_lines
from flows.raw.reading.log_files import UNREADABLE, Wanted, suffix
from flows.raw.reading.parallel import in_parallel
from flows.raw.reading.parquet_files import read_parquet, scan, without_rows
from schemas.errors import InputError
from schemas.raw import FILE, ROW

Reader = Callable[[Path, Wanted, int], Iterator[pl.DataFrame]]

BATCH = 1 << 20
"""Rows that are read at once."""

_READERS: dict[str, Reader] = {
    ".parquet": read_parquet,
    ".csv": read_csv,
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".json": read_json_lines,
}


@dataclass(frozen=True)
class Source:
    """Files of one kind, and what is read of each."""

    files: tuple[Path, ...]
    columns: tuple[str, ...]
    """What they are called in the files."""
    private: frozenset[str]
    """Those that may hold an outcome."""
    brought: Callable[[pl.DataFrame, Path], list[pl.Expr]]
    """From rows as they stand in a file to the columns that the steps know."""
    finished: Callable[[pl.DataFrame], pl.DataFrame] | None = None
    """What else is done to every batch."""

    def batches(self) -> Iterator[pl.DataFrame]:
        """All rows, in the order of the files and of the rows in them, numbered from 1 in each.

        Raises InputError where a file cannot be read or parsed, or has not all columns.
        """
        return in_parallel(self._bring, self._read())

    def _read(self) -> Iterator[tuple[int, int, pl.DataFrame]]:
        """Batches as they stand in the files, with the file's number and the first row's."""
        wanted = Wanted(tuple(dict.fromkeys(self.columns)), self.private)
        for position, path in enumerate(self.files):
            row = 1
            if suffix(path) == ".parquet":  # a type that will not do is told whatever values are
                self.brought(without_rows(path, wanted), path)
            for frame in _reader(path)(path, wanted, BATCH):
                yield position, row, frame
                row += frame.height

    def _bring(self, batch: tuple[int, int, pl.DataFrame]) -> pl.DataFrame:
        position, row, frame = batch
        numbered = (
            pl.lit(position, pl.UInt32).alias(FILE),
            pl.int_range(row, row + frame.height, dtype=pl.UInt64).alias(ROW),
        )
        found = frame.select(*self.brought(frame, self.files[position]), *numbered)
        return found if self.finished is None else self.finished(found)

    def known_rows(self) -> int | None:
        """How many rows there are, where the files say so without being read."""
        if any(suffix(path) != ".parquet" for path in self.files):
            return None
        try:
            counts = [int(scan(path).select(pl.len()).collect().item()) for path in self.files]
        except UNREADABLE:
            return None
        return sum(counts)


def identifier_type(files: tuple[Path, ...], name: str) -> pl.DataType:
    """The type of the identifiers in column ``name`` of all ``files``: text, or 64-bit integers.

    Text where the files do not agree: no integer holds them all. A file whose column holds nothing
    but nulls, as many programs write an empty partition, agrees with any.
    """
    kinds = {kind for path in files if (kind := _stated_type(path, name)) is not None}
    return kinds.pop() if len(kinds) == 1 else pl.String()


def _stated_type(path: Path, name: str) -> pl.DataType | None:
    if suffix(path) != ".parquet":
        return pl.String()
    try:
        kind = scan(path).collect_schema().get(name)
    except UNREADABLE:
        return pl.String()  # reading it will say what is wrong
    if kind == pl.Null:
        return None
    if kind is None or not kind.is_integer():
        return pl.String()
    return pl.UInt64() if kind == pl.UInt64 else pl.Int64()


def _reader(path: Path) -> Reader:
    reader = _READERS.get(suffix(path))
    if reader is None:
        known = ", ".join(sorted(_READERS))
        raise InputError(f"{path}: not a format that can be read ({known}; text also as .gz)")
    return reader
