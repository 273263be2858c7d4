"""Grids to choose from, and a guess at outcomes brought onto a grid, by its public range alone."""

from collections.abc import Sequence

import numpy as np

from privatizers.optimal_response.programme import MOST_INPUTS
from schemas.arrays import Floats, Ints

PESSIMISM = 10.0
"""The variance of outcomes by the declared guess, over that by the pessimistic one."""

_LOWEST = 0.9
"""The part of outcomes that are the least one, by the skewed guess."""

MORE_LEVELS = (*range(2, 17), 20, 24, 32, 48, 64)
"""Numbers of grid points that are tried where outcomes are continuous."""

OPTIMAL_LEVELS = (2, 3, 4, 6, 8, 12, 16, 20)
"""The same, for tables of the optimal randomiser."""


def grids_of(
    values: Sequence[float], *, continuous: bool, tried: Sequence[int] = MORE_LEVELS
) -> tuple[tuple[float, ...], ...]:
    """Return grids to choose from for outcomes on ``values``: evenly spaced, with the same ends.

    Where outcomes are not continuous: coarser grids, and the values themselves. ``tried`` are the
    numbers of points.
    """
    low, high = values[0], values[-1]
    even = tuple(even_grid(low, high, n) for n in tried if continuous or n < len(values))
    return even if continuous else (*even, tuple(values))


def optimal_grids_of(values: Sequence[float], *, continuous: bool) -> tuple[tuple[float, ...], ...]:
    """Return grids to choose from for tables of the optimal randomiser, likewise.

    They are fewer, since every one takes linear programmes to be judged, and up to what is solved
    for at all.
    """
    grids = grids_of(values, continuous=continuous, tried=OPTIMAL_LEVELS)
    return grids if continuous or len(values) <= MOST_INPUTS else grids[:-1]


def even_grid(low: float, high: float, levels: int) -> tuple[float, ...]:
    """Return ``levels`` points from ``low`` to ``high``, evenly spaced."""
    inner = (low + (high - low) * (step / (levels - 1)) for step in range(1, levels - 1))
    return (low, *inner, high)


def project_guess(values: Floats, guess: Floats, grid: Floats) -> Floats:
    """Bring a distribution over ``values`` onto ``grid`` by stochastic rounding; the mean stays.

    p_g = Σ_y p_y P(y goes to g), P linear between the two points around y; shape [K].
    """
    lower, share = _between(values, grid)
    rounded: Floats = np.bincount(lower, guess * (1.0 - share), len(grid)).astype(np.float64)
    rounded += np.bincount(lower + 1, guess * share, len(grid))
    return rounded


def rounding_variance(values: Floats, guess: Floats, grid: Floats) -> float:
    """Return V_round = E (g₊ − y)(y − g₋), which stochastic rounding adds to a unit's variance."""
    lower, _ = _between(values, grid)
    return float(guess @ ((grid[lower + 1] - values) * (values - grid[lower])))


def drawn_share(values: Floats, guess: Floats, grid: Floats) -> float:
    """Return V_s/(V_s + V_round), the part of a unit's variance that rounding has none of."""
    deviation = values - float(guess @ values)
    drawn = float(guess @ deviation**2)
    whole = drawn + rounding_variance(values, guess, grid)
    return drawn / whole if whole > 0 else 0.0


def pessimistic(values: Floats, guess: Floats) -> Floats:
    """Return a guess with the mean of ``guess`` and a tenth of its variance, or near; shape [V].

    Distances to the mean are divided by √10 and outcomes put on ``values`` by stochastic rounding,
    which adds a little variance; with two values it restores the whole variance.
    """
    mean = float(guess @ values)
    nearer = mean + (values - mean) / np.sqrt(PESSIMISM)
    return project_guess(np.clip(nearer, values[0], values[-1]), guess, values)


def other_guesses(values: Floats, guess: Floats) -> list[Floats]:
    """Return what else may be true where a guess is declared, and nobody knows it to be right.

    The pessimistic one; and where it is even, so that nothing is known, and of more than two
    values, a skewed one: nine tenths of outcomes are the least, the others even.
    """
    found = [pessimistic(values, guess)]
    if len(guess) > 2 and np.ptp(guess) < 1e-12:
        lowest = np.eye(1, len(guess))[0]
        found.append(_LOWEST * lowest + (1.0 - _LOWEST) / len(guess))
    return found


def _between(values: Floats, grid: Floats) -> tuple[Ints, Floats]:
    """Return the position of the grid point below each value, and the value's way to the next."""
    lower = np.clip(np.searchsorted(grid, values, side="right") - 1, 0, len(grid) - 2)
    share = np.clip((values - grid[lower]) / (grid[lower + 1] - grid[lower]), 0.0, 1.0)
    return lower.astype(np.int64), share
