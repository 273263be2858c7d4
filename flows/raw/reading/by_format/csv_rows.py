"""Where the rows of a CSV text end, and which of them have misplaced quotes.

In well quoted rows the quotes open and close fields in turn. One that opens stands at the beginning
of the text or behind a comma, a line feed or (as the second half of a doubled quote) a quote. One
that closes stands before a comma, a line feed, a quote, a carriage return or the end of the text.
All quotes of a text are compared with these rules at once. The row of the first misplaced quote is
then read by itself, and the comparison goes on behind that row.
"""

import re
from dataclasses import dataclass, field

import numpy as np

from schemas.arrays import Ints

_QUOTE = ord('"')
_MAY_OPEN = np.isin(np.arange(256), list(b'",\n'))
_MAY_CLOSE = np.isin(np.arange(256), list(b'",\r\n'))
_QUOTED = re.compile(rb'"([^"]*+(?:""[^"]*+)*+)"(,|\r?\n|\r?\Z)')
_OPEN = re.compile(rb'"[^"]*+(?:""[^"]*+)*+"?\r?\Z')
_PLAIN = re.compile(rb"((?:[^,\r\n]|\r(?!\n|\Z))*+)(,|\r?\n|\r?\Z)")


class BrokenRowError(Exception):
    """A quoted field that is not closed, or goes on behind the quote that closes it."""

    def __init__(self, begin: int) -> None:
        """Note where the row begins, in bytes."""
        super().__init__()
        self.begin = begin


def whole_rows(text: bytes, *, final: bool) -> tuple[bytes, bytes]:
    """Split a text into the rows that end in it, well quoted, and the rest.

    With ``final`` all of the text is rows. A field that holds a quote without beginning with one is
    put into quotes. Raises BrokenRowError where the quotes of a row follow no rule.
    """
    if b'"' not in text:
        end = len(text) if final else text.rfind(b"\n") + 1
        return text[:end], text[end:]
    quotes = _Quotes.of(text)
    pieces: list[bytes] = []
    begin = 0
    while (misplaced := quotes.first_misplaced(begin)) is not None:
        row = quotes.row_begin(begin, misplaced)
        requoted = _requote(text, row, final=final)
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


def fields_of(text: bytes, begin: int) -> tuple[list[bytes], int]:
    """The fields of the well quoted row that begins at ``begin``, and where the next row begins."""
    fields = []
    while begin < len(text):
        match = _field(text, begin)
        if match is None:
            break
        begin = match.end()
        fields.append(match[1].replace(b'""', b'"') if match.re is _QUOTED else match[1])
        if match[2] != b",":
            break
    return fields, begin


@dataclass(frozen=True)
class _Quotes:
    """The positions of all quotes of a text, in bytes."""

    text: bytes
    places: Ints
    known: dict[int, Ints] = field(default_factory=dict)
    """Results of :meth:`_misplaced` by its argument, so that each is worked out once."""

    @classmethod
    def of(cls, text: bytes) -> "_Quotes":
        return cls(text, np.flatnonzero(np.frombuffer(text, np.uint8) == _QUOTE))

    def _misplaced(self, opening: int) -> Ints:
        """The numbers of misplaced quotes, if quote ``opening`` (0 or 1) and every second one open.

        The quotes of the text are numbered from 0.
        """
        if opening in self.known:
            return self.known[opening]
        content = np.frombuffer(self.text, np.uint8)
        before, after = self.places[opening::2] - 1, self.places[1 - opening :: 2] + 1
        opens = _MAY_OPEN[content[before]]
        closes = _MAY_CLOSE[content[np.minimum(after, len(content) - 1)]]
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


def _field(text: bytes, begin: int) -> re.Match[bytes] | None:
    quoted = text[begin : begin + 1] == b'"'
    return (_QUOTED if quoted else _PLAIN).match(text, begin)


def _requote(text: bytes, begin: int, *, final: bool) -> tuple[bytes, int] | None:
    """Put the fields of a row that hold quotes into quotes; returns the row and where it ends.

    None where the row does not end in this text.
    """
    pieces, place = [], begin
    while True:
        match = _field(text, place)
        if match is None:
            if final or not _OPEN.match(text, place):
                raise BrokenRowError(begin)
            return None
        value, end = match[1], match[2]
        quoted = match.re is _QUOTED
        if not quoted and b'"' in value:
            value, quoted = value.replace(b'"', b'""'), True
        pieces += [b'"', value, b'"', end] if quoted else [value, end]
        place = match.end()
        if end != b",":
            break
    if not end.endswith(b"\n") and not final:
        return None
    return b"".join(pieces), place
