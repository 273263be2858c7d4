"""Alias tables draw from priors exactly: one 53-bit word, one look-up, one comparison a draw.

Walker's method (1977) with Vose's construction (1991), in whole numbers only. K outcomes are padded
to Kp = 2^b columns, each of C = 2^(53 − b) units of 2⁻⁵³. A column gives its first units to its own
outcome and all others to one other outcome, its alias. Nothing is rounded, because every q̃ is a
whole number of units, and Kp C = 2⁵³.
"""

from dataclasses import dataclass

import numpy as np

from privatizers.noise.randomness import RESOLUTION, UNIT
from schemas.arrays import Bools, Floats, Integers, Ints, Levels, Words

_SLAB = 1 << 17  # cells (strata times columns) built at a time: they stay in the cache


@dataclass(frozen=True)
class AliasTables:
    """One table a stratum. It takes 8 Kp bytes: 128 for K = 9 … 16.

    ``entries`` has the shape [S, Kp]; an entry is ``threshold << b | alias``. A word w of 53 bits
    falls on column c = w >> (53 − b), at position w mod C within it; the outcome is c where the
    position is under the threshold, else the alias. A column with outcome c alone has threshold 0
    and alias c.
    """

    entries: Words
    n_outcomes: int

    @property
    def column_bits(self) -> int:
        """The whole number b, where Kp = 2^b is the number of columns."""
        return _column_bits(self.n_outcomes)

    @property
    def level_type(self) -> np.dtype[np.unsignedinteger]:
        """The least of uint8, uint16 and uint32 that holds K."""
        return np.min_scalar_type(self.n_outcomes)

    def outcomes(self, words: Words, strata: Integers) -> Levels:
        """Return the outcomes of ``words``: of the 2⁵³ words, exactly q̃_j 2⁵³ give outcome j.

        Both have the shape [n]; ``strata`` are rows of the tables, which callers have checked.
        """
        width = RESOLUTION - self.column_bits
        column = words >> np.uint64(width)
        cell = strata.astype(np.int64)
        cell <<= self.column_bits
        cell |= column.view(np.int64)
        entry = self.entries.reshape(-1).take(cell)
        position = words & np.uint64((1 << width) - 1)
        is_column = position < entry >> np.uint64(self.column_bits)
        entry &= np.uint64((1 << self.column_bits) - 1)
        return choose(is_column, column.astype(self.level_type), entry.astype(self.level_type))


def choose(condition: Bools, levels: Levels, otherwise: Levels) -> Levels:
    """Return ``levels`` where ``condition`` holds, else ``otherwise``, both of one unsigned type.

    The same as ``np.where``, but without a branch: on random conditions a processor predicts half
    of the branches wrong, which takes five times as long.
    """
    mask = np.negative(condition.astype(levels.dtype))  # all bits, or none
    mask &= levels ^ otherwise
    mask ^= otherwise
    return mask


def check_positions(indices: Integers, count: int, problem: str) -> None:
    """Raise ValueError with the ``problem``, and not whose it is, for positions out of range."""
    if len(indices) and not (indices.min() >= 0 and indices.max() < count):
        raise ValueError(problem)


def alias_tables(prior: Floats) -> AliasTables:
    """Build the tables of q̃, ``prior``: shape [S, K], whole multiples of 2⁻⁵³.

    Raises:
        ValueError: An entry is no such multiple, or a row does not add up to one exactly: a table
            would draw from another prior.
    """
    n_strata, n_outcomes = prior.shape
    n_columns = 1 << _column_bits(n_outcomes)
    # Whether all strata have one prior is known from two of them where they have not.
    if n_strata > 1 and np.array_equal(prior[0], prior[-1]) and bool(np.all(prior == prior[0])):
        one = _entries(_units(prior[:1]), n_columns).T
        return AliasTables(np.repeat(one, n_strata, axis=0), n_outcomes)
    entries = np.empty((n_strata, n_columns), dtype=np.uint64)
    step = max(1, _SLAB // n_columns)
    for start in range(0, n_strata, step):
        part = slice(start, start + step)
        entries[part] = _entries(_units(prior[part]), n_columns).T
    return AliasTables(entries, n_outcomes)


def _column_bits(n_outcomes: int) -> int:
    return (n_outcomes - 1).bit_length()


def _units(prior: Floats) -> Ints:
    """Return the prior in units of 2⁻⁵³, checked."""
    scaled = prior * UNIT
    if not bool(np.all((scaled >= 0) & (scaled <= UNIT) & (scaled == np.floor(scaled)))):
        raise ValueError(
            "an entry of a prior is not a multiple of 2⁻⁵³ between 0 and 1; use realised_prior"
        )
    units: Ints = scaled.astype(np.int64)
    if not bool(np.all(units.sum(axis=1) == UNIT)):
        raise ValueError("a row of a prior does not add up to one exactly; use realised_prior")
    return units


def _entries(units: Ints, n_columns: int) -> Words:
    """Pack the tables of strata with ``units`` of shape [s, K]; returns shape [Kp, s].

    One sweep over the columns, all strata at once. A column is *light* if it has C units or fewer,
    else *heavy*. In every step a stratum completes one column. This is the next light one, filled
    up from the current heavy one; or the current heavy one itself, once it has at most C units
    left, filled up from the next heavy one. When the last heavy column comes down to C, so have all
    that are left: every completed column has C units, and all columns together have Kp C.
    """
    n_strata, n_outcomes = units.shape
    bits = np.uint64(_column_bits(n_outcomes))
    capacity = UNIT // n_columns
    rows = np.arange(n_strata)
    mass = np.zeros((n_columns, n_strata), dtype=np.int64)
    mass[:n_outcomes] = units.T
    order, heavy = _light_first(mass > capacity, rows)
    light = rows.copy()  # positions in ``order``, raveled: column times strata, plus stratum
    last = rows + (n_columns - 1) * n_strata
    mass_of, order_of = mass.reshape(-1), order.reshape(-1)
    left = mass_of[order_of[heavy] * n_strata + rows]  # units left in the current heavy column
    packed = np.empty((n_columns, n_strata), dtype=np.uint64)
    packed[:] = np.arange(n_columns, dtype=np.uint64)[:, np.newaxis]  # full, each its own alias
    packed_of = packed.reshape(-1)
    for _ in range(n_columns - 1):
        gives = left > capacity
        following = np.minimum(heavy + n_strata, last)
        advances = ~gives & (heavy < last)
        column = order_of[np.where(gives, light, heavy)] * n_strata + rows
        alias = order_of[np.where(gives, heavy, following)]
        threshold = np.where(gives, mass_of[column], left)
        entry = threshold.astype(np.uint64) << bits | alias.astype(np.uint64)
        completed = (gives | advances) & (threshold < capacity)
        packed_of[column] = np.where(completed, entry, packed_of[column])
        left = np.where(gives, left, mass_of[alias * n_strata + rows]) + threshold - capacity
        light += gives * n_strata
        heavy += advances * n_strata
    return packed


def _light_first(is_heavy: Bools, rows: Ints) -> tuple[Ints, Ints]:
    """Order the columns, light ones first; also return the position of the first heavy one.

    ``is_heavy`` has the shape [Kp, s], and so has the order. The position, one for each stratum, is
    that in the order, raveled; where no column is heavy it is the last.
    """
    n_columns, n_strata = is_heavy.shape
    lights = np.cumsum(~is_heavy, axis=0)
    columns = np.arange(n_columns)[:, np.newaxis]
    n_light = lights[-1]
    position = np.where(is_heavy, n_light + columns - lights, lights - 1)
    order = np.empty((n_columns, n_strata), dtype=np.int64)
    order.reshape(-1)[position * n_strata + rows] = columns
    return order, np.minimum(n_light, n_columns - 1) * n_strata + rows
