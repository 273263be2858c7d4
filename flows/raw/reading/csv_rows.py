"""Where the rows of a CSV file end, and what is amiss with their quotes.

Of the quotes in order, where each is as it should be, every other one opens a field and follows a
comma, a line feed or (where it is the second half of a doubled one) a quote; those between close
one, and precede the same, a carriage return or the text's end. All of that is compared at once. The
first that is not so tells its row; that row is looked at by itself, and the next begin anew.
"""

import re
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

_QUOTE = ord('"')
_MAY_OPEN = np.isin(np.arange(256), list(b'",\n'))
_MAY_CLOSE = np.isin(np.arange(256), list(b'",\r\n'))
_QUOTED = re.compile(rb'"([^"]*+(?:""[^"]*+)*+)"(,|\r?\n|\r?\Z)')
_OPEN = re.compile(rb'"[^"]*+(?:""[^"]*+)*+"?\r?\Z')
_PLAIN = re.compile(rb"((?:[^,\r\n]|\r(?!\n|\Z))*+)(,|\r?\n|\r?\Z)")

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class BrokenRowError(Exception):
    """A quoted field that is not closed, or goes on behind the quote that closes it."""

    def __init__(self, begin: int) -> None:
        """Note where the row begins, in bytes."""
        super().__init__()
        self.begin = begin


def whole_rows(text: bytes, *, final: bool) -> tuple[bytes, bytes]:
    """The rows that end in this text, well quoted, and what is left; all of it if ``final``.

    A quote within a field that does not begin with one is a sign as any other: such fields are
    quoted. BrokenRowError where a row's quotes cannot be understood.
    """
    if b'"' not in text:
        end = len(text) if final else text.rfind(b"\n") + 1
        return text[:end], text[end:]
    quotes = _Quotes.of(text)
    pieces: list[bytes] = []
    begin = 0
    while (amiss := quotes.first_amiss(begin)) is not None:
        row = quotes.row_begin(begin, amiss)
        mended = _mended(text, row, final=final)
        if mended is None:  # it ends beyond this text
            return b"".join((*pieces, text[begin:row])), text[row:]
        fields, end = mended
        pieces += [text[begin:row], fields]
        begin = end
    end = quotes.row_begin(begin, len(text))
    if final:
        if quotes.is_within(begin, len(text)):
            raise BrokenRowError(quotes.row_begin(begin, int(quotes.places[-1])))
        end = len(text)
    return b"".join((*pieces, text[begin:end])), text[end:]


def fields_of(text: bytes, begin: int) -> tuple[list[bytes], int]:
    """The fields of the well-quoted row that begins here, and where the next one does."""
    fields = []
    while begin < len(text):
        found = _field(text, begin)
        if found is None:
            break
        begin = found.end()
        fields.append(found[1].replace(b'""', b'"') if found.re is _QUOTED else found[1])
        if found[2] != b",":
            break
    return fields, begin


@dataclass(frozen=True)
class _Quotes:
    """All quotes of a text."""

    text: bytes
    places: Ints
    known: dict[int, Ints] = field(default_factory=dict)
    """What is not as it should be, as far as it was asked for."""

    @classmethod
    def of(cls, text: bytes) -> "_Quotes":
        return cls(text, np.flatnonzero(np.frombuffer(text, np.uint8) == _QUOTE))

    def _amiss(self, opening: int) -> Ints:
        if opening not in self.known:
            self.known[opening] = self._unlike(opening)
        return self.known[opening]

    def _unlike(self, opening: int) -> Ints:
        """Numbers of quotes that are not as they should be, if every other from here opens."""
        signs = np.frombuffer(self.text, np.uint8)
        before, after = self.places[opening::2] - 1, self.places[1 - opening :: 2] + 1
        opens = _MAY_OPEN[signs[before]]
        closes = _MAY_CLOSE[signs[np.minimum(after, len(signs) - 1)]]
        opens[before < 0] = True
        closes[after == len(signs)] = True
        numbers = (
            np.flatnonzero(~opens) * 2 + opening,
            np.flatnonzero(~closes) * 2 + 1 - opening,
        )
        return np.sort(np.concatenate(numbers))

    def _number(self, place: int) -> int:
        """How many quotes there are before a place."""
        return int(np.searchsorted(self.places, place))

    def is_within(self, begin: int, place: int) -> bool:
        """Whether a place is in a quoted field, if a row begins at ``begin``."""
        return (self._number(place) - self._number(begin)) % 2 == 1

    def first_amiss(self, begin: int) -> int | None:
        """Place of the first quote that is not as it should be, if a row begins here."""
        number = self._number(begin)
        amiss = self._amiss(number % 2)
        which = int(np.searchsorted(amiss, number))
        return int(self.places[amiss[which]]) if which < len(amiss) else None

    def row_begin(self, begin: int, place: int) -> int:
        """Where the row begins that a place is in, if a row begins at ``begin``, too."""
        if self.is_within(begin, place):  # that is not in the quoted field
            place = int(self.places[self._number(place) - 1])
        found = self.text.rfind(b"\n", begin, place)
        while found >= 0 and self.is_within(begin, found):
            found = self.text.rfind(b"\n", begin, int(self.places[self._number(found) - 1]))
        return begin if found < 0 else found + 1


def _field(text: bytes, begin: int) -> re.Match[bytes] | None:
    quoted = text[begin : begin + 1] == b'"'
    return (_QUOTED if quoted else _PLAIN).match(text, begin)


def _mended(text: bytes, begin: int, *, final: bool) -> tuple[bytes, int] | None:
    """A row with fields quoted that hold quotes, and its end; None where that is not reached."""
    pieces, place = [], begin
    while True:
        found = _field(text, place)
        if found is None:
            if final or not _OPEN.match(text, place):
                raise BrokenRowError(begin)
            return None
        value, end = found[1], found[2]
        quoted = found.re is _QUOTED
        if not quoted and b'"' in value:
            value, quoted = value.replace(b'"', b'""'), True
        pieces += [b'"', value, b'"', end] if quoted else [value, end]
        place = found.end()
        if end != b",":
            break
    if not end.endswith(b"\n") and not final:
        return None
    return b"".join(pieces), place
