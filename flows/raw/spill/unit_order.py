"""Putting rows into the order of their units: the one sort of a release.

Integers are sorted as they are. Text is sorted by eight of its bytes at a time, as whole numbers,
which takes a fifth of the time of comparing texts; those that agree in these are few, and are
compared in full. The order is that of the bytes of UTF-8, which is DuckDB's, too.
"""

from itertools import takewhile

import numpy as np
import polars as pl
from numpy.typing import NDArray

from schemas.raw import UNIT

_WIDTH = 8  # bytes of a key
_PIECE = 1 << 18  # texts whose bytes are looked at at once


def in_order(frame: pl.DataFrame, by: str = UNIT) -> pl.DataFrame:
    """Return the rows in the order of a column without nulls, of integers or text."""
    whole = frame.rechunk()  # rows are fetched from one piece of memory ten times as fast
    order = _text_order(whole[by]) if whole.schema[by] == pl.String else whole[by].arg_sort()
    return whole[order]


def rises(units: pl.Series) -> bool:
    """Whether every unit is greater than the one before, so that none stands twice."""
    if len(units) < 2:
        return True
    return bool((units[1:] > units[:-1]).all())


def text_keys(units: pl.Series) -> NDArray[np.uint64]:
    """The first eight bytes behind what all texts begin with, as whole numbers in their order.

    A shorter text is filled up with zeros, so equal keys do not mean equal texts.
    """
    skipped = _common_prefix(units)
    keys = np.empty(len(units), dtype=np.uint64)
    for start in range(0, len(units), _PIECE):
        piece = slice(start, start + _PIECE)
        keys[piece] = _keys_of(units[piece], skipped)
    return keys


def _keys_of(units: pl.Series, skipped: int) -> NDArray[np.uint64]:
    array = units.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    _, offsets, content = array.buffers()
    ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    used = np.frombuffer(content or b"", np.uint8)[ends[0] : ends[-1]]
    padded = np.concatenate([used, np.zeros(_WIDTH, np.uint8)])
    # A big-endian number at every byte, without copying any.
    words = np.ndarray((len(padded) - _WIDTH + 1,), ">u8", buffer=padded.data, strides=(1,))
    start = ends[:-1] - ends[0] + skipped
    missing = np.clip(_WIDTH - (ends[1:] - ends[0] - start), 0, _WIDTH).astype(np.uint64)
    found = words[np.minimum(start, len(words) - 1)].astype(np.uint64)
    shift = np.minimum(missing * np.uint64(8), np.uint64(63))
    keys: NDArray[np.uint64] = np.where(missing == _WIDTH, 0, (found >> shift) << shift)
    return keys


def _common_prefix(units: pl.Series) -> int:
    """Bytes that all texts begin with: as many as the least and the greatest share."""
    least, greatest = units.min(), units.max()
    if not isinstance(least, str) or not isinstance(greatest, str):
        return 0
    pairs = zip(least.encode(), greatest.encode(), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _text_order(texts: pl.Series) -> pl.Series:
    """The positions of texts in their order."""
    keys = pl.Series(text_keys(texts))
    order = keys.arg_sort()
    ordered = keys.gather(order).to_numpy()
    same = ordered[1:] == ordered[:-1]
    tied = np.flatnonzero(np.concatenate([same, [False]]) | np.concatenate([[False], same]))
    if len(tied) == 0:
        return order
    places = order.to_numpy().copy()
    among = pl.DataFrame({"key": ordered[tied], "text": texts.gather(places[tied])})
    settled = among.with_row_index("at").sort("key", "text")["at"].to_numpy()
    places[tied] = places[tied][settled]
    return pl.Series(places)
