"""Reading CSV files: where rows and fields end is decided by our own rules; every field is text.

1. A field whose first character is a double quote goes on to the quote that closes it; it may hold
   commas and line feeds, and a quote in it is doubled. After it comes a comma, the end of the row
   or the end of the file.
2. Any other field goes on to the next comma or line feed. A quote in it is an ordinary character.
3. In a row with fewer fields than the header, the last ones are missing. A row with more is an
   error, and so is a quoted field that is not closed as in 1. The error names the row's number.
4. Bytes that are not UTF-8 become U+FFFD. Some megabytes of rows are parsed at a time, by a library
   that is given only rows quoted as in 1, so that no row can change how another is read.
"""

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import IO

import polars as pl

from flows.raw.boundary.guard import errors_as
from flows.raw.reading.by_format.csv_rows import BrokenRowError, fields_of, whole_rows
from flows.raw.reading.log_files import (
    CHUNK,
    MARK,
    UNREADABLE,
    Wanted,
    check_columns,
    decodable,
    open_bytes,
)
from flows.raw.reading.parallel import in_parallel
from flows.raw.reading.stores import LogFile
from schemas.errors import InputError

ROW_LIMIT = 1 << 28
"""The most bytes of a row."""


class _FaultError(Exception):
    """A row that cannot be read; says where it is and nothing of what it holds."""

    def __init__(self, row: int = 0, problem: str = "does not parse") -> None:
        """Note the number of the row among those of its chunk, from 0."""
        super().__init__()
        self.row = row
        self.problem = problem


def read_csv(path: LogFile, wanted: Wanted, size: int) -> Iterator[pl.DataFrame]:
    """Yield the wanted fields as text, up to ``size`` rows at a time.

    InputError names a broken row by its number, the header being row 1. Lines are not counted, as
    their number depends on values.
    """
    row = 1

    def broken(error: BaseException) -> InputError:
        where = ""
        if isinstance(error, _FaultError):
            where = f": row {row + error.row + 1} {error.problem} (the header is row 1)"
        return InputError(f"{path}: cannot be read as CSV{where}")

    with errors_as(broken, _FaultError, *UNREADABLE), open_bytes(path) as file:
        for frame in _frames(path, file, wanted):
            yield from frame.iter_slices(size)
            row += frame.height


def _frames(path: LogFile, file: IO[bytes], wanted: Wanted) -> Iterator[pl.DataFrame]:
    chunks = _chunks(file)
    text = next(chunks, b"")
    fields, end = fields_of(text, 0)
    names = [field.decode(errors="replace") for field in fields]
    check_columns(path, wanted, names)
    places = {name: names.index(name) for name in wanted.names}
    return in_parallel(partial(_parsed, places, len(names)), chain([text[end:]], chunks))


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    """Whole rows, quoted as in rule 1, some megabytes at a time."""
    held = file.read(len(MARK)).removeprefix(MARK)
    while True:
        piece = file.read(CHUNK)
        text = held + piece
        try:
            rows, held = whole_rows(text, final=not piece)
        except BrokenRowError as error:
            yield whole_rows(text[: error.begin], final=True)[0]
            raise _FaultError from None
        if len(text) > ROW_LIMIT and (fields_of(rows, 0)[1] or len(held)) > ROW_LIMIT:
            raise _FaultError(problem=f"is longer than {ROW_LIMIT >> 20} MB")
        if rows:
            yield rows
        if not piece:
            return


def _parsed(places: dict[str, int], width: int, text: bytes) -> pl.DataFrame:
    """The wanted fields, at these ``places`` from 0, of whole rows; those a row lacks are null.

    ``width`` is the number of fields in the header.
    """
    header = ",".join(map(str, range(width + 1))).encode()  # one field more than allowed
    columns = [*places.values(), width]
    frame = pl.read_csv(b"\n".join((header, decodable(text))), columns=columns, infer_schema=False)
    beyond = frame[str(width)]
    if beyond.null_count() < frame.height:
        raise _FaultError(int(beyond.is_not_null().arg_max() or 0))
    return frame.select(pl.col(str(place)).alias(name) for name, place in places.items())
