"""Sorting rows by their units: the one sort of a release.

Integers are sorted as they are. For text, the bytes that all texts begin with are skipped, and the
next eight are compared as one whole number, which takes a fifth of the time of comparing texts. The
few texts that agree in these are then compared in full. The order is that of the bytes in UTF-8, as
in DuckDB.
"""

from itertools import takewhile

import numpy as np
import polars as pl
from numpy.typing import NDArray

from schemas.raw import UNIT

_WIDTH = 8  # bytes of a key
_PIECE = 1 << 18  # texts whose keys are made at once


def sort_rows(frame: pl.DataFrame, by: str = UNIT) -> pl.DataFrame:
    """Return the rows sorted by a column of integers or text, without nulls."""
    whole = frame.rechunk()  # gathering rows from one piece of memory is ten times as fast
    order = _text_order(whole[by]) if whole.schema[by] == pl.String else whole[by].arg_sort()
    return whole[order]


def rises(units: pl.Series) -> bool:
    """Whether every unit is greater than the one before it, so that none stands twice."""
    if len(units) < 2:
        return True
    return bool((units[1:] > units[:-1]).all())


def text_keys(units: pl.Series) -> NDArray[np.uint64]:
    """The eight bytes of each text behind the common beginning of all, as whole numbers, shape [n].

    Keys have the order of their texts. A shorter text is filled up with zeros, so equal keys do not
    mean equal texts.
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
    # Eight bytes from each position on as a big-endian number, without copying any byte.
    words = np.ndarray((len(padded) - _WIDTH + 1,), ">u8", buffer=padded.data, strides=(1,))
    start = ends[:-1] - ends[0] + skipped
    missing = np.clip(_WIDTH - (ends[1:] - ends[0] - start), 0, _WIDTH).astype(np.uint64)
    word = words[np.minimum(start, len(words) - 1)].astype(np.uint64)
    shift = np.minimum(missing * np.uint64(8), np.uint64(63))
    keys: NDArray[np.uint64] = np.where(missing == _WIDTH, 0, (word >> shift) << shift)
    return keys


def _common_prefix(units: pl.Series) -> int:
    """How many bytes all texts begin with in common: as many as the least and the greatest text."""
    least, greatest = units.min(), units.max()
    if not isinstance(least, str) or not isinstance(greatest, str):
        return 0
    pairs = zip(least.encode(), greatest.encode(), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _text_order(texts: pl.Series) -> pl.Series:
    """The positions that put texts into order, shape [n]."""
    keys = pl.Series(text_keys(texts))
    order = keys.arg_sort()
    ordered = keys.gather(order).to_numpy()
    same = ordered[1:] == ordered[:-1]
    tied = np.flatnonzero(np.concatenate([same, [False]]) | np.concatenate([[False], same]))
    if len(tied) == 0:
        return order
    positions = order.to_numpy().copy()
    ties = pl.DataFrame({"key": ordered[tied], "text": texts.gather(positions[tied])})
    tie_order = ties.with_row_index("at").sort("key", "text")["at"].to_numpy()
    positions[tied] = positions[tied][tie_order]
    return pl.Series(positions)
