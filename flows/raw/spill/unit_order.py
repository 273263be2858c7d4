"""Sorting rows by their units: the one sort of a release.

The order of integers is their own; that of text is that of its bytes in UTF-8, as in DuckDB. A
unit's key (:func:`unit_keys`) and its position are packed into one whole number of
64 bits, and these are sorted, which takes a tenth of the time of sorting positions by texts. The
few units whose keys agree are then compared in full.

Keys are whole numbers of few bits that have the order of integers or of text.

Of integers, the difference to the least, cut to its leading bits where there are too few.

Of texts, as many bytes from the left as fit, as digits of one number: a byte's digit is its rank
among the bytes that occur at its place in any text, and an ended text has the digit 0. So a decimal
digit takes log₂ 11 bits, a hexadecimal one log₂ 17, and what all texts agree in, such as a common
beginning or the hyphens of a UUID, takes none. Which bytes occur at a place is guessed from a
sample, and a byte that was not guessed is found by the way.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flows.runtime.threads import by_pieces, rising
from schemas.arrays import Words
from schemas.canonical_ids import text_buffers
from schemas.raw import UNIT

if TYPE_CHECKING:
    import pyarrow as pa

_BITS = 64
_WORD = 8  # bytes that are loaded at once
_PIECE = 1 << 15  # texts whose keys are made at once stay in the processor's cache
_GATHERED = 122_880 * 8  # texts that lie in one piece of memory: of eight row groups
_STEPS = 64  # of groups of equal keys, the size up to which their ends are sought step by step
_SAMPLED = 2_048
_FARTHEST = 64  # bytes of a text that are looked at
_UNKNOWN = np.uint64(1 << 63)
_RANGES = (b"0123456789", b"0123456789abcdef", b"0123456789ABCDEF")


@dataclass(frozen=True)
class Order:
    """How rows are put into the order of their units."""

    positions: NDArray[np.uint32]
    """The position of each row, in order, among those that were given, shape [n]."""
    repeats: NDArray[np.bool_]
    """Whether the unit at each place, in order, is that of the place before it, shape [n]."""
    units: pl.Series
    """The units in order, texts one after the other in memory, :data:`_GATHERED` in each chunk.

    Texts that were gathered lie scattered, and each later use of them all would wait for memory.
    """

    def rows(self, frame: pl.DataFrame, by: str = UNIT) -> pl.DataFrame:
        """Return the rows of a frame, whose units are in the column ``by``, in this order."""
        # Gathering rows from one piece of memory is ten times as fast as from several.
        others = frame.drop(by).rechunk()[pl.Series(self.positions)]
        return others.with_columns(self.units.alias(by)).select(frame.columns)


def order_units(units: pl.Series) -> Order:
    """Find the order of integers or text, without nulls; equal ones stay in their order."""
    whole = units.rechunk()
    place_bits = np.uint64(max(len(whole) - 1, 1).bit_length())
    keys = unit_keys(whole, _BITS - int(place_bits))
    words, positions = keys.words, np.empty(len(whole), np.uint32)

    def pack(piece: slice) -> None:
        words[piece] <<= place_bits
        words[piece] |= np.arange(piece.start, piece.stop, dtype=np.uint64)

    def unpack(piece: slice) -> None:
        positions[piece] = ordered[piece] & ((np.uint64(1) << place_bits) - np.uint64(1))
        words[piece] = ordered[piece] >> place_bits

    by_pieces(pack, len(words), _PIECE)
    ordered = rising(words)
    by_pieces(unpack, len(words), _PIECE)
    tied = np.zeros(len(words), np.bool_)
    np.equal(words[1:], words[:-1], out=tied[1:])
    if keys.are_exact or not tied.any():
        return Order(positions, tied, _in_order(whole, positions))
    if whole.dtype == pl.String:
        second = np.flatnonzero(tied)
        before, after = (whole.gather(pl.Series(positions[at])) for at in (second - 1, second))
        _settle(whole, positions, tied, second[(before != after).to_numpy()])
        return Order(positions, tied, _in_order(whole, positions))
    # Where most keys agree with another, as those of events do, integers are compared with their
    # neighbours once they are in order, and not where they lie scattered.
    in_order = whole.gather(pl.Series(positions))
    values = in_order.to_numpy()
    differs = np.flatnonzero(tied[1:] & (values[1:] != values[:-1])) + 1
    del values  # so that what follows need not copy them
    places = _settle(whole, positions, tied, differs)
    if len(places):
        in_order.scatter(places, whole.gather(pl.Series(positions[places])))
    return Order(positions, tied, in_order)


def sort_rows(frame: pl.DataFrame, by: str = UNIT) -> pl.DataFrame:
    """Return the rows sorted by a column of integers or text, without nulls."""
    return order_units(frame[by]).rows(frame, by)


def rises(units: pl.Series) -> bool:
    """Whether every unit is greater than the one before it, so that none stands twice."""
    if len(units) < 2:
        return True
    return bool((units[1:] > units[:-1]).all())


@dataclass(frozen=True)
class _Exported:
    """An array that tells where it is and no more: polars imports Arrow's functions for others."""

    array: "pa.Array"

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self.array.__arrow_c_array__(requested_schema)


def _in_order(units: pl.Series, positions: NDArray[np.uint32]) -> pl.Series:
    if units.dtype != pl.String:
        return units.gather(pl.Series(positions))

    def together(piece: slice) -> pl.Series:
        gathered = units.gather(pl.Series(positions[piece])).rechunk()
        return pl.Series(_Exported(gathered.to_arrow(compat_level=pl.CompatLevel.oldest())))

    return pl.concat(by_pieces(together, len(positions), _GATHERED), rechunk=False)


def _settle(
    units: pl.Series,
    positions: NDArray[np.uint32],
    tied: NDArray[np.bool_],
    differs: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Sort the groups of equal keys in which units differ, in place; returns their places.

    ``differs`` are the places that ``tied`` says are tied with the one before, though their units
    differ.
    """
    if len(differs) == 0:
        return differs
    begins, ends = _groups_around(differs, tied)
    sizes = ends - begins
    group = np.repeat(np.arange(len(begins)), sizes)
    places: NDArray[np.int64] = np.arange(len(group)) + np.repeat(
        begins - (np.cumsum(sizes) - sizes), sizes
    )
    chosen = positions[places]
    ties = pl.DataFrame({"group": group, "unit": units.gather(chosen), "position": chosen})
    ordered = ties.sort("group", "unit", "position")
    positions[places] = ordered["position"].to_numpy()
    same = (ordered["unit"] == ordered["unit"].shift()).fill_null(value=False).to_numpy()
    tied[places] = same & (np.diff(group, prepend=-1) == 0)
    return places


def _groups_around(
    places: NDArray[np.int64], tied: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the groups begin and end that have some of these places, each group once, in order."""
    begins, ends = places - 1, places + 1
    for _ in range(_STEPS):
        goes_on = (ends < len(tied)) & tied[np.minimum(ends, len(tied) - 1)]
        if not tied[begins].any() and not goes_on.any():
            return np.unique(begins), np.unique(ends)
        begins, ends = begins - tied[begins], ends + goes_on
    every = np.append(np.flatnonzero(~tied), len(tied))
    mixed = np.unique(np.searchsorted(every, places, side="right") - 1)
    return every[mixed], every[mixed + 1]


# keys


@dataclass(frozen=True)
class Keys:
    """A key for each unit."""

    words: Words
    """Shape [n]; a unit of a lesser key comes before one of a greater key."""
    are_exact: bool
    """Whether units of equal keys are equal."""


def unit_keys(units: pl.Series, bits: int) -> Keys:
    """Return keys below 2^``bits`` of integers or text, without nulls, in one piece of memory."""
    if len(units) == 0:
        return Keys(np.zeros(0, np.uint64), are_exact=True)
    return _text_keys(units, bits) if units.dtype == pl.String else _integer_keys(units, bits)


def _integer_keys(units: pl.Series, bits: int) -> Keys:
    values = units.to_numpy()
    least, greatest = int(values.min()), int(values.max())
    words = values.astype(np.uint64)  # modulo 2⁶⁴, as is the difference
    words -= np.uint64(least % (1 << 64))
    cut = max((greatest - least).bit_length() - bits, 0)
    words >>= np.uint64(cut)
    return Keys(words, are_exact=cut == 0)


# texts


@dataclass(frozen=True)
class _Texts:
    """Texts in UTF-8, one after the other."""

    content: NDArray[np.uint8]
    """Eight bytes at least."""
    ends: NDArray[np.int64]
    """Where each begins, and the last ends, shape [n + 1]."""

    def words(self, piece: slice, skipped: int) -> Words:
        """Eight bytes of each text from the byte ``skipped`` on, zeros where it has ended."""
        starts = self.ends[piece] + skipped
        left = self.ends[piece.start + 1 : piece.start + 1 + len(starts)] - starts
        # Eight bytes from each position on as a big-endian number, without copying any byte.
        last = len(self.content) - _WORD
        every = np.ndarray((last + 1,), ">u8", self.content.data, 0, (1,))
        found = every[np.minimum(starts, last)].astype(np.uint64)
        if int(left.min()) >= _WORD:
            return found
        if starts[-1] > last:
            found <<= np.clip(8 * (starts - last), 0, 63).astype(np.uint64)
        absent = (_WORD - np.clip(left, 0, _WORD)).astype(np.uint64)
        shift = np.minimum(absent * np.uint64(8), np.uint64(63))
        kept: Words = np.where(absent == _WORD, np.uint64(0), (found >> shift) << shift)
        return kept


@dataclass(frozen=True)
class _Place:
    """A byte of all texts: which values it has, and their digits."""

    digits: Words
    """Of each value of a byte, shape [256]; :data:`_UNKNOWN` where it is not expected."""
    base: int

    @property
    def values(self) -> NDArray[np.int64]:
        """The values that are expected."""
        return np.flatnonzero(self.digits < _UNKNOWN)


def _text_keys(units: pl.Series, bits: int) -> Keys:
    content, ends = text_buffers(units)
    if len(content) < _WORD:
        content = np.append(content, np.zeros(_WORD, np.uint8))
    texts = _Texts(content, ends)
    lengths = np.diff(texts.ends)
    shortest, longest = int(lengths.min()), int(lengths.max())
    expected = _sampled_bytes(texts, min(longest, _FARTHEST))
    while True:
        places = _places(expected, shortest, bits)
        words, unexpected = _coded(texts, places)
        if not unexpected.any():
            break
        expected[: len(places)] |= unexpected  # once or twice: then all are expected
    is_whole = len(places) == longest
    used = content[ends[0] : ends[-1]]
    return Keys(words, are_exact=is_whole and bool(used.all()))  # an end has the digit of NUL


def _sampled_bytes(texts: _Texts, length: int) -> NDArray[np.bool_]:
    """Which bytes occur at each of ``length`` places in some of the texts, shape [length, 256]."""
    expected = np.zeros((length, 256), np.bool_)
    step = max((len(texts.ends) - 1) // _SAMPLED, 1)
    starts, stops = texts.ends[:-1][::step], texts.ends[1:][::step]
    for place in range(length):
        there = starts + place < stops
        expected[place, texts.content[(starts + place)[there]]] = True
    varies = expected.sum(axis=1) > 1
    for values in _RANGES:  # a place with some of these is taken to have all, at some text
        of_range = np.zeros(256, np.bool_)
        of_range[list(values)] = True
        fits = varies & ~expected[:, ~of_range].any(axis=1)
        expected[fits] |= of_range
        varies &= ~fits
    return expected


def _places(expected: NDArray[np.bool_], shortest: int, bits: int) -> list[_Place]:
    """The places from the left whose digits fit into ``bits`` bits together."""
    places: list[_Place] = []
    room = 1 << bits
    for position, occurs in enumerate(expected):
        values = np.flatnonzero(occurs)
        with_end = position >= shortest or bool(occurs[0])
        values = np.union1d(values, [0]) if with_end else values
        room //= max(len(values), 1)
        if room == 0:
            break
        digits = np.full(256, _UNKNOWN)
        digits[values] = np.arange(len(values), dtype=np.uint64)
        places.append(_Place(digits, len(values)))
    return places


@dataclass(frozen=True)
class _Pair:
    """Two bytes that lie side by side, as one digit."""

    table: Words
    """Of each pair of values, the first times 256 plus the second, shape [65536]; of a pair that
    all texts have, which is no digit, its value alone, shape [1]."""
    base: np.uint64


def _pairs(places: list[_Place]) -> list[_Pair]:
    any_byte = _Place(np.zeros(256, np.uint64), 1)
    padded = [*places, any_byte] if len(places) % 2 else places
    pairs = []
    for first, second in zip(padded[::2], padded[1::2], strict=True):
        rows, columns = first.values, second.values
        if len(rows) == len(columns) == 1:
            pairs.append(_Pair((rows * 256 + columns).astype(np.uint64), np.uint64(1)))
            continue
        table = np.full((256, 256), _UNKNOWN)
        leading = first.digits[rows, np.newaxis] * np.uint64(second.base)
        table[np.ix_(rows, columns)] = leading + second.digits[columns]
        pairs.append(_Pair(table.ravel(), np.uint64(first.base * second.base)))
    return pairs


def _coded(texts: _Texts, places: list[_Place]) -> tuple[Words, NDArray[np.bool_]]:
    """The keys of all texts, and which bytes occur that were not expected, shape [places, 256]."""
    n_texts = len(texts.ends) - 1
    keys = np.empty(n_texts, np.uint64)
    pairs = _pairs(places)
    unexpected = np.zeros((len(places), 256), np.bool_)

    def code(piece: slice) -> None:
        key = keys[piece]
        key[:] = 0
        seen = np.zeros_like(key)
        for number, pair in enumerate(pairs):
            if number % (_WORD // 2) == 0:
                words = texts.words(piece, 2 * number)
            shift = np.uint64(48 - 16 * (number % (_WORD // 2)))
            values = (words >> shift) & np.uint64(0xFFFF)
            if len(pair.table) == 1:
                seen[values != pair.table] = _UNKNOWN
                continue
            digits = pair.table[values.view(np.int64)]
            seen |= digits
            key *= pair.base
            key += digits
        if len(seen) and seen.max() >= _UNKNOWN:
            _note_unexpected(texts, piece, places, unexpected)

    by_pieces(code, n_texts, _PIECE)
    return keys, unexpected


def _note_unexpected(
    texts: _Texts, piece: slice, places: list[_Place], unexpected: NDArray[np.bool_]
) -> None:
    for position, place in enumerate(places):
        if position % _WORD == 0:
            words = texts.words(piece, position)
        shift = np.uint64(56 - 8 * (position % _WORD))
        values = ((words >> shift) & np.uint64(0xFF)).astype(np.int64)
        unexpected[position, values[place.digits[values] == _UNKNOWN]] = True
