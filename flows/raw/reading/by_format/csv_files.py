"""Reading CSV files: where rows and fields end is decided by our own rules; every field is text.

1. A field whose first character is a double quote goes on to the quote that closes it; it may hold
   delimiters and line feeds, and a quote in it is doubled. After it comes a delimiter, the end of
   the row or the end of the file.
2. Any other field goes on to the next delimiter or line feed. A quote in it is an ordinary
   character.
3. In a row with fewer fields than the header, the last ones are missing. A row with more is an
   error, and so is a quoted field that is not closed as in 1. The error names the row's number.
4. Bytes that are not UTF-8 become U+FFFD. Some megabytes of rows are parsed at a time, by a library
   that is given only rows quoted as in 1, so that no row can change how another is read.

In well quoted rows the quotes open and close fields in turn. One that opens stands at the beginning
of the text or behind a delimiter, a line feed or (as the second half of a doubled quote) a quote.
One that closes stands before a delimiter, a line feed, a quote, a carriage return or the end of the
text. All quotes of a text are compared with these rules at once. The row of the first misplaced
quote is then read by itself, and the comparison goes on behind that row.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain
from typing import IO

import numpy as np
import polars as pl

from flows.raw.boundary.guard import errors_as
from flows.raw.reading.log_files import (
    CHUNK,
    MARK,
    UNREADABLE,
    Wanted,
    check_columns,
    decodable,
    open_bytes,
)
from flows.raw.reading.stores import LogFile
from flows.runtime.threads import in_parallel
from schemas.arrays import Bools, Ints
from schemas.errors import InputError

ROW_LIMIT = 1 << 28
"""The most bytes of a row."""

_QUOTE = ord('"')
_OPEN = re.compile(rb'"[^"]*+(?:""[^"]*+)*+"?\r?\Z')


@dataclass(frozen=True)
class Grammar:
    """What follows from the delimiter."""

    delimiter: bytes
    may_open: Bools
    """Of every byte, whether a quote behind it may open a field."""
    may_close: Bools
    """Of every byte, whether a quote before it may close a field."""
    quoted: re.Pattern[bytes]
    """A field in quotes, and what ends it."""
    plain: re.Pattern[bytes]
    """Any other field, and what ends it."""


@cache
def grammar(delimiter: str) -> Grammar:
    """The grammar of files with this delimiter, a character of ASCII."""
    mark = delimiter.encode()
    end = rb"(" + re.escape(mark) + rb"|\r?\n|\r?\Z)"
    other = rb"[^" + re.escape(mark) + rb"\r\n]*+"
    return Grammar(
        mark,
        may_open=np.isin(np.arange(256), list(b'"\n' + mark)),
        may_close=np.isin(np.arange(256), list(b'"\r\n' + mark)),
        quoted=re.compile(rb'"([^"]*+(?:""[^"]*+)*+)"' + end),
        plain=re.compile(rb"(" + other + rb"(?:\r(?!\n|\Z)" + other + rb")*)" + end),
    )


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
    form = grammar(wanted.delimiter)
    chunks = _chunks(file, form)
    text = next(chunks, b"")
    fields, end = fields_of(text, 0, form)
    names = [field.decode(errors="replace") for field in fields]
    check_columns(path, wanted, names)
    places = {name: names.index(name) for name in wanted.names}
    return in_parallel(partial(_parsed, places, len(names), form), chain([text[end:]], chunks))


def _chunks(file: IO[bytes], form: Grammar) -> Iterator[bytes]:
    """Whole rows, quoted as in rule 1, some megabytes at a time."""
    held = file.read(len(MARK)).removeprefix(MARK)
    while True:
        piece = file.read(CHUNK)
        text = held + piece
        try:
            rows, held = whole_rows(text, form, final=not piece)
        except BrokenRowError as error:
            yield whole_rows(text[: error.begin], form, final=True)[0]
            raise _FaultError from None
        if len(text) > ROW_LIMIT and (fields_of(rows, 0, form)[1] or len(held)) > ROW_LIMIT:
            raise _FaultError(problem=f"is longer than {ROW_LIMIT >> 20} MB")
        if rows:
            yield rows
        if not piece:
            return


def _parsed(places: dict[str, int], width: int, form: Grammar, text: bytes) -> pl.DataFrame:
    """The wanted fields, at these ``places`` from 0, of whole rows; those a row lacks are null.

    ``width`` is the number of fields in the header.
    """
    mark = form.delimiter.decode()
    header = mark.join(map(str, range(width + 1))).encode()  # one field more than allowed
    columns = [*places.values(), width]
    rows = b"\n".join((header, decodable(text)))
    frame = pl.read_csv(rows, columns=columns, infer_schema=False, separator=mark)
    beyond = frame[str(width)]
    if beyond.null_count() < frame.height:
        raise _FaultError(int(beyond.is_not_null().arg_max() or 0))
    return frame.select(pl.col(str(place)).alias(name) for name, place in places.items())


# where rows end


class BrokenRowError(Exception):
    """A quoted field that is not closed, or goes on behind the quote that closes it."""

    def __init__(self, begin: int) -> None:
        """Note where the row begins, in bytes."""
        super().__init__()
        self.begin = begin


def whole_rows(text: bytes, form: Grammar, *, final: bool) -> tuple[bytes, bytes]:
    """Split a text into the rows that end in it, well quoted, and the rest.

    With ``final`` all of the text is rows. A field that holds a quote without beginning with one is
    put into quotes. Raises BrokenRowError where the quotes of a row follow no rule.
    """
    if b'"' not in text:
        end = len(text) if final else text.rfind(b"\n") + 1
        return text[:end], text[end:]
    quotes = _Quotes(form, text, np.flatnonzero(np.frombuffer(text, np.uint8) == _QUOTE))
    pieces: list[bytes] = []
    begin = 0
    while (misplaced := quotes.first_misplaced(begin)) is not None:
        row = quotes.row_begin(begin, misplaced)
        requoted = _requote(text, row, form, final=final)
        if requoted is None:  # the row ends beyond this text
            return b"".join((*pieces, text[begin:row])), text[row:]
        fields, end = requoted
        pieces += [text[begin:row], fields]
        begin = end
    end = quotes.row_begin(begin, len(text))
    if final:
        if quotes.is_within(begin, len(text)):
            raise BrokenRowError(quotes.row_begin(begin, int(quotes.places[-1])))
        end = len(text)
    return b"".join((*pieces, text[begin:end])), text[end:]


def fields_of(text: bytes, begin: int, form: Grammar) -> tuple[list[bytes], int]:
    """The fields of the well quoted row that begins at ``begin``, and where the next row begins."""
    fields = []
    while begin < len(text):
        match = _field(text, begin, form)
        if match is None:
            break
        begin = match.end()
        fields.append(match[1].replace(b'""', b'"') if match.re is form.quoted else match[1])
        if match[2] != form.delimiter:
            break
    return fields, begin


@dataclass(frozen=True)
class _Quotes:
    """The positions of all quotes of a text, in bytes."""

    form: Grammar
    text: bytes
    places: Ints
    known: dict[int, Ints] = field(default_factory=dict)
    """Results of :meth:`_misplaced` by its argument, so that each is worked out once."""

    def _misplaced(self, opening: int) -> Ints:
        """The numbers of misplaced quotes, if quote ``opening`` (0 or 1) and every second one open.

        The quotes of the text are numbered from 0.
        """
        if opening in self.known:
            return self.known[opening]
        content = np.frombuffer(self.text, np.uint8)
        before, after = self.places[opening::2] - 1, self.places[1 - opening :: 2] + 1
        opens = self.form.may_open[content[before]]
        closes = self.form.may_close[content[np.minimum(after, len(content) - 1)]]
        opens[before < 0] = True
        closes[after == len(content)] = True
        numbers = (
            np.flatnonzero(~opens) * 2 + opening,
            np.flatnonzero(~closes) * 2 + 1 - opening,
        )
        self.known[opening] = np.sort(np.concatenate(numbers))
        return self.known[opening]

    def _number(self, place: int) -> int:
        """The number of quotes before a position."""
        return int(np.searchsorted(self.places, place))

    def is_within(self, begin: int, place: int) -> bool:
        """Whether a position is in a quoted field, if a row begins at ``begin``."""
        return (self._number(place) - self._number(begin)) % 2 == 1

    def first_misplaced(self, begin: int) -> int | None:
        """The position of the first misplaced quote, if a row begins at ``begin``."""
        number = self._number(begin)
        misplaced = self._misplaced(number % 2)
        first = int(np.searchsorted(misplaced, number))
        return int(self.places[misplaced[first]]) if first < len(misplaced) else None

    def row_begin(self, begin: int, place: int) -> int:
        """Where the row begins that holds a position, if a row begins at ``begin``, too."""
        if self.is_within(begin, place):  # look before the quoted field
            place = int(self.places[self._number(place) - 1])
        line_feed = self.text.rfind(b"\n", begin, place)
        while line_feed >= 0 and self.is_within(begin, line_feed):
            quote = int(self.places[self._number(line_feed) - 1])
            line_feed = self.text.rfind(b"\n", begin, quote)
        return begin if line_feed < 0 else line_feed + 1


def _field(text: bytes, begin: int, form: Grammar) -> re.Match[bytes] | None:
    quoted = text[begin : begin + 1] == b'"'
    return (form.quoted if quoted else form.plain).match(text, begin)


def _requote(text: bytes, begin: int, form: Grammar, *, final: bool) -> tuple[bytes, int] | None:
    """Put the fields of a row that hold quotes into quotes; returns the row and where it ends.

    None where the row does not end in this text.
    """
    pieces, place = [], begin
    while True:
        match = _field(text, place, form)
        if match is None:
            if final or not _OPEN.match(text, place):
                raise BrokenRowError(begin)
            return None
        value, end = match[1], match[2]
        quoted = match.re is form.quoted
        if not quoted and b'"' in value:
            value, quoted = value.replace(b'"', b'""'), True
        pieces += [b'"', value, b'"', end] if quoted else [value, end]
        place = match.end()
        if end != form.delimiter:
            break
    if not end.endswith(b"\n") and not final:
        return None
    return b"".join(pieces), place
