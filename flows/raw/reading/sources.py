"""Reading the files of a log, batch by batch: Parquet, CSV and JSON Lines.

No outcome takes part in guessing types: text formats are read as text and cast leniently later. The
public fields of a row, and whether a file can be read, depend on the public fields and on where
rows and fields end; they are the same whatever the outcomes are. Errors of libraries quote rows, so
our own replace them, which name the file and the number of a line or row.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise

import polars as pl
import pyarrow as pa

from flows.raw.reading.by_format.csv_files import read_csv
from flows.raw.reading.by_format.json_lines import read_json_lines
from flows.raw.reading.by_format.parquet_files import (
    group_sizes,
    read_parquet,
    stretch,
    without_rows,
)
from flows.raw.reading.log_files import UNREADABLE, Wanted, suffix
from flows.raw.reading.stores import LogFile
from flows.runtime.threads import in_parallel
from schemas.errors import InputError
from schemas.raw import FILE, ROW

Reader = Callable[[LogFile, Wanted, int], Iterator[pl.DataFrame]]

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
class Piece:
    """A file of a log, or one of several shares of the row groups of a Parquet file."""

    file: int
    """Its position among the files."""
    share: int = 0
    of: int = 1


@dataclass(frozen=True)
class LogFiles:
    """The files of one table of the log, and how their rows are read."""

    files: tuple[LogFile, ...]
    columns: tuple[str, ...]
    """The columns to read, by their names in the files."""
    private: frozenset[str]
    """The columns that may hold outcomes."""
    to_expressions: Callable[[pl.DataFrame, LogFile], list[pl.Expr]]
    """Gives the expressions that convert a file's columns into those that the steps use."""
    postprocess: Callable[[pl.DataFrame], pl.DataFrame] | None = None
    """Applied to every batch once it is converted."""
    pieces: tuple[Piece, ...] | None = None
    """Those to read; None for all of all files."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """The key of the configuration that names a column, where an error is to say it."""
    delimiter: str = ","
    """What stands between the fields of CSV files."""

    def batches(self) -> Iterator[pl.DataFrame]:
        """Yield all rows, in the order of the files and of the rows in each, numbered from 1.

        Raises InputError where a file cannot be read or parsed, or lacks a column.
        """
        return in_parallel(self._convert, self._read())

    def _read(self) -> Iterator[tuple[int, int, pl.DataFrame]]:
        """Batches as they are in the files, with the file's number (from 0) and the first row's."""
        wanted = Wanted(tuple(dict.fromkeys(self.columns)), self.private, self.keys, self.delimiter)
        for piece in self.pieces or map(Piece, range(len(self.files))):
            path, row = self.files[piece.file], 1
            if suffix(path) == ".parquet":  # an unfit type is an error whatever the values are
                self.to_expressions(without_rows(path, wanted), path)
            if piece.of > 1:
                begin, end = stretch(path, piece.share, piece.of)
                row += begin
                frames = read_parquet(path, wanted, BATCH, begin, end)
            else:
                frames = batches_of(path, wanted)
            for frame in frames:
                yield piece.file, row, frame
                row += frame.height

    def shares(self, number: int) -> "list[LogFiles]":
        """The same files in about so many shares, in their order, to be read at the same time.

        How many there are depends on the number and formats of the files alone, not on rows. Text
        is read from its beginning, so a file of it is in one share.
        """
        if not self.files:
            return [self]
        of = -(-number // len(self.files))
        pieces = [
            Piece(position, share, shares)
            for position, path in enumerate(self.files)
            for shares in [of if suffix(path) == ".parquet" else 1]
            for share in range(shares)
        ]
        number = min(number, len(pieces))
        ends = [len(pieces) * share // number for share in range(number + 1)]
        return [replace(self, pieces=tuple(pieces[begin:end])) for begin, end in pairwise(ends)]

    def _convert(self, batch: tuple[int, int, pl.DataFrame]) -> pl.DataFrame:
        position, row, frame = batch
        numbered = (
            pl.lit(position, pl.UInt32).alias(FILE),
            pl.int_range(row, row + frame.height, dtype=pl.UInt64).alias(ROW),
        )
        rows = frame.select(*self.to_expressions(frame, self.files[position]), *numbered)
        return rows if self.postprocess is None else self.postprocess(rows)

    def known_rows(self) -> int | None:
        """The number of rows, where the files say it without being read; else None."""
        if any(suffix(path) != ".parquet" for path in self.files):
            return None
        with suppress(InputError, pa.ArrowException, *UNREADABLE):  # told when it is read
            return sum(sum(group_sizes(path)) for path in self.files)
        return None


def batches_of(path: LogFile, wanted: Wanted) -> Iterator[pl.DataFrame]:
    """Yield the wanted columns of one file as they are in it; raises InputError if unreadable."""
    reader = _READERS.get(suffix(path))
    if reader is None:
        endings = ", ".join(sorted(_READERS))
        raise InputError(f"{path}: not a format that can be read ({endings}; text also as .gz)")
    return reader(path, wanted, BATCH)
