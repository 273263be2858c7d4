"""From raw outcomes to positions on the public grid, by rules that are public.

Nothing is dropped and nothing fails here, whatever the outcomes are. A missing or unreadable
outcome counts as the declared value, one out of range is clipped, and one between two grid points
goes to one of them. All of it happens before the mechanism and is the same for every unit, so the
guarantee stays as it is: replacing one unit's raw outcome replaces one position.
"""

import numpy as np

from privatizers.noise.randomness import UNIT, random_words
from schemas.arrays import Floats, Integers, Ints


def map_outcomes(values: Floats, grid: Floats, missing: float) -> Floats:
    """Clip raw ``values`` (NaN for missing or unreadable), shape [n], to the grid's range.

    ``grid`` is increasing, shape [K]; ``missing`` is the declared value of a missing outcome.
    """
    mapped: Floats = np.clip(values, grid[0], grid[-1])
    unknown = np.isnan(mapped)
    if unknown.any():
        mapped[unknown] = np.clip(missing, grid[0], grid[-1])
    return mapped


def nearest_levels(values: Floats, grid: Floats) -> Ints:
    """Return the position of the grid point nearest to each mapped value; the lower one of two."""
    lower = _lower(values, grid)
    to_lower = values - grid[lower]
    to_upper = grid[lower + 1] - values
    return lower + (to_upper < to_lower)


def stochastic_levels(values: Floats, grid: Floats) -> Ints:
    """Draw one of the two grid points around each mapped value; its mean is the value.

    P(upper) = (y − g₋) / (g₊ − g₋), to 2⁻⁵³. Every estimator that is unbiased for the level is
    therefore unbiased for the mapped outcome. Call it once a release: the same levels must feed
    counts and randomised response. It draws from the operating system.
    """
    lower = _lower(values, grid)
    share = (values - grid[lower]) / (grid[lower + 1] - grid[lower])
    threshold = np.rint(share * UNIT).astype(np.uint64)
    return lower + (random_words(len(values)) < threshold)


def stratum_counts(levels: Integers, cells: Integers, n_cells: int, n_outcomes: int) -> Ints:
    """Return the counts N of each level in each cell, shape [S, K]. Raw: never publish them."""
    flat = cells.astype(np.int64)
    flat *= n_outcomes
    flat += levels
    return np.bincount(flat, minlength=n_cells * n_outcomes).reshape(n_cells, n_outcomes)


def _lower(values: Floats, grid: Floats) -> Ints:
    """Return the position of the grid point at or below each value, at most the last but one."""
    return np.clip(np.searchsorted(grid, values, side="right") - 1, 0, len(grid) - 2)
