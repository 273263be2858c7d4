"""Reading JSON Lines: every line by itself, all by one parser, every field as text.

What a line says is a function of that line, and its public fields of their own text in it:

1. A line ends at a line feed. Bytes that are no UTF-8 become U+FFFD, within their line.
2. DuckDB's parser reads it: NaN, Infinity and a comma before the closing brace are allowed; of a
   repeated key the first counts; a number is spelt as the whole number or double that it stands
   for (``1e2`` is ``100.0``), whole ones of any length as they stand; nested values without blanks.
3. A line that it refuses, or of over a million bytes, is mended
   (:mod:`flows.raw.reading.json_mending`) and read by the same parser: odd private values become
   text or null, the rest stays as it is.
4. Blank lines are no rows. A line that is no object by then is an error, which names it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from flows.raw.reading.json_mending import LONG, mended
from flows.raw.reading.log_files import CHUNK, MARK, UNREADABLE, Wanted, decodable, open_bytes
from flows.raw.reading.parallel import in_parallel
from schemas.errors import InputError

LINE_LIMIT = 1 << 28
"""The most bytes of a line."""

_FOR_JSON = "1GB"  # of memory: it is read in passing
_LINE_FEED = 10

Places = NDArray[np.int64]


def read_json_lines(path: Path, wanted: Wanted, size: int) -> Iterator[pl.DataFrame]:
    """All lines' fields as text, up to ``size`` rows at a time; InputError names a broken line."""
    settings: dict[str, str | bool | int | float | list[str]] = {
        "temp_directory": "",
        "memory_limit": _FOR_JSON,
        "threads": 1,
    }
    try:
        with duckdb.connect(config=settings) as connection, open_bytes(path) as file:
            parser = _Parser(path, wanted, connection)
            for frame in in_parallel(parser.parsed, _chunks(path, file)):
                yield from frame.iter_slices(size)
    except (duckdb.Error, pa.ArrowException, *UNREADABLE):
        pass
    else:
        return
    raise InputError(f"{path}: cannot be read as JSON Lines")


def _chunks(path: Path, file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Whole lines, each ended, some megabytes at a time, with the number of the first of them."""
    pieces: list[bytes] = []
    number, held = 1, 0
    beginning = True
    while piece := file.read(CHUNK):
        if beginning:
            piece = piece.removeprefix(MARK)
        beginning = False
        cut = piece.rfind(b"\n") + 1
        if held + (piece.find(b"\n") if cut else len(piece)) > LINE_LIMIT:
            raise InputError(f"{path}: line {number} is longer than {LINE_LIMIT >> 20} MB")
        if cut:
            chunk = b"".join((*pieces, memoryview(piece)[:cut]))
            yield number, chunk
            number += chunk.count(b"\n")
            pieces, held = [], 0
        pieces.append(piece[cut:])
        held += len(piece) - cut
    if held:
        yield number, b"".join((*pieces, b"\n"))


@dataclass(frozen=True)
class _Parser:
    """The one parser, and what it is asked for."""

    path: Path
    wanted: Wanted
    connection: duckdb.DuckDBPyConnection

    def parsed(self, chunk: tuple[int, bytes]) -> pl.DataFrame:
        """The fields of the lines of a chunk, a row each, but for blank lines."""
        number, text = chunk
        lines, lengths = _lines(text)
        long = np.flatnonzero(lengths > LONG)
        if len(long):
            lines = _replaced(lines, long, self._mended(lines, long))
        frame = self._fields(lines)
        if frame.to_series(0).null_count() == 0:
            return frame
        bare = frame.select(pl.all_horizontal(pl.all().is_null())).to_series().arg_true()
        return frame if bare.is_empty() else self._looked_over(frame, lines, bare, number)

    def _looked_over(
        self, frame: pl.DataFrame, lines: pa.Array, bare: pl.Series, number: int
    ) -> pl.DataFrame:
        """The same rows; lines of which nothing was read are mended and read once more."""
        texts = self._mended(lines, bare.to_numpy())
        again = pa.array(texts, pa.large_string())
        for place, text, is_object in zip(bare, texts, self._objects(again), strict=True):
            if text and not is_object:
                raise InputError(
                    f"{self.path}: cannot be read as JSON Lines: line {number + place} does not "
                    "parse"
                )
        found = self._fields(again)
        columns = [one.scatter(bare, found[one.name]) for one in frame.iter_columns()]
        blank = bare.filter(pl.Series([not text for text in texts], dtype=pl.Boolean))
        kept = pl.repeat(value=True, n=frame.height, dtype=pl.Boolean, eager=True)
        return pl.DataFrame(columns).filter(kept.scatter(blank, values=False))

    def _mended(self, lines: pa.Array, places: Places) -> list[str]:
        """The lines at ``places`` mended, blank ones without anything."""
        return [mended(line.as_py(), self.wanted) for line in lines.take(pa.array(places))]

    def _fields(self, lines: pa.Array) -> pl.DataFrame:
        """The wanted fields of each line; nulls where it is no object."""
        found = []
        for names in _apart(self.wanted.names):
            spelt = json.dumps(dict.fromkeys(names, "VARCHAR")).replace("'", "''")
            fields = self._ask(f"TRY(json_transform(line, '{spelt}'))", lines)
            found += fields.struct.unnest().get_columns()
        return pl.DataFrame(found).select(self.wanted.names)

    def _objects(self, lines: pa.Array) -> pl.Series:
        """Whether each line is a JSON object."""
        return self._ask("coalesce(TRY(json_type(line)) = 'OBJECT', false)", lines)

    def _ask(self, expression: str, lines: pa.Array) -> pl.Series:
        """What an expression of ours is for each ``line``, in their order."""
        with self.connection.cursor() as cursor:
            cursor.register("lines", pa.table({"line": lines}))
            asked = cursor.sql(f"SELECT {expression} AS found FROM lines")  # noqa: S608 - quoted
            return pl.DataFrame(pl.from_arrow(asked.to_arrow_table()))["found"]


def _lines(text: bytes) -> tuple[pa.Array, Places]:
    """Each line of a text, bytes that are no UTF-8 replaced; copied for that alone."""
    text = decodable(text)
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == _LINE_FEED) + 1
    offsets = np.concatenate(([0], ends)).astype(np.int64)
    buffers = (pa.py_buffer(offsets), pa.py_buffer(text))
    return pa.LargeStringArray.from_buffers(len(ends), *buffers), np.diff(offsets)


def _replaced(lines: pa.Array, places: Places, texts: list[str]) -> pa.Array:
    """The lines with other texts at ``places``."""
    pieces, begin = [], 0
    for place, text in zip(places.tolist(), texts, strict=True):
        pieces += [lines[begin:place], pa.array([text], pa.large_string())]
        begin = place + 1
    return pa.concat_arrays([*pieces, lines[begin:]])


def _apart(names: tuple[str, ...]) -> list[list[str]]:
    """The names in groups: DuckDB takes those that differ in their case alone for one."""
    groups: list[dict[str, str]] = [{}]
    for name in names:
        group = next((one for one in groups if name.casefold() not in one), None)
        if group is None:
            groups.append(group := {})
        group[name.casefold()] = name
    return [list(group.values()) for group in groups]
