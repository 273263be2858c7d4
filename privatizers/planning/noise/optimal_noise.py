"""The noise of the least noisy randomiser at many values of ε, for planning alone.

Tables are solved at a few values of ε, the same for every question, and noise is interpolated
between them: ln of N (2 sinh(ε/2))² linearly in ε. That is nearly straight, and known at ε → 0
without a programme, where the best table rounds to the ends of the grid at random and keeps or
flips the end: N (2 sinh(ε/2))² → R². Where randomised response is less noisy than what is
interpolated, it is taken in its place: its noise is known at every ε. Grids are moved to 0 … 1
first, so that grids of one shape are solved for once in a process. A release never uses these
numbers: its table is solved at its own ε (:mod:`privatizers.optimal_response.whole_numbers`).
"""

from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from math import exp

import numpy as np

from estimators.response.pool_statistics import unit_noise
from estimators.response.response_tables import SingularTableError, output_functions
from privatizers.optimal_response.programme import (
    Randomiser,
    UnsolvedError,
    even_columns,
    solve,
)
from schemas.arrays import Floats

_LOW = 5.0
_LOW_NODES = (1.0, 2.0, 3.0, 4.0, _LOW)
_HIGH_NODES = (2.0, 4.0, 6.5, 8.0, 10.0, 12.0)
"""The same where more is asked for: then little is worth spending on anything but outcomes."""
_MANY_LEVELS = 16
"""Grids of more points are solved at the two values of ε around the greatest that is asked for."""
_GAP = 0.02
"""What an answer may be above the least noise: less precise than a release's, and quicker."""
_DOUBT = 1e-3  # of a guess, where squares are debiased: as in a release
_KNOWN_PART = 0.98
"""The part of outcomes in a guess that counts are taken to tell; the rest is even."""


@dataclass(frozen=True)
class OptimalNoise:
    """What tables add to the variance of a unit, at J values of ε; shape [J] each."""

    of_mean: Floats
    """Of the debiased outcome."""
    of_square: Floats
    """Of the debiased square about the grid's mean."""


def optimal_noise(
    grid: Floats, guess: Floats, outcomes: Floats, epsilons: Floats, *, at_most: bool = False
) -> OptimalNoise:
    """Return the noise of tables for ``guess`` where outcomes are spread like ``outcomes``.

    Args:
        grid: y, increasing, shape [K].
        guess: What tables are solved for, or even response where that is better by it; [K].
        outcomes: How outcomes are spread, shape [K].
        epsilons: What tables keep, shape [J]; greater than 0, at most 12.
        at_most: Whether only what is kept by the greatest of them is to be told well.
    """
    wide = float(grid[-1] - grid[0])
    points, known = np.round((grid - grid[0]) / wide, 12), np.round(guess, 12)
    even = _even(points, outcomes, epsilons)
    noise, worse = even, np.ones(len(epsilons), dtype=np.bool_)
    if len(grid) > 2:  # of two, randomised response is the best table
        few = at_most or len(grid) > _MANY_LEVELS
        greatest = float(epsilons.max())
        nodes = _LOW_NODES if greatest <= _LOW else _HIGH_NODES
        end = bisect_left(nodes, greatest) + 1
        at = nodes[max(end - 2, 0) if few else 0 : end]
        asked = (tuple(points.tolist()), tuple(known.tolist()))
        solved = np.array([_at(*asked, at[: end + 1]) for end in range(len(at))])
        noise = _between(outcomes @ solved, np.array(at), epsilons)
        by_guess = _between(known @ solved, np.array(at), epsilons)
        worse = by_guess[0] >= _even(points, known, epsilons)[0]
    mean, square = np.where(worse, even, noise)
    return OptimalNoise(mean * wide**2, square * wide**4)


def learnt_guess(guess: Floats) -> Floats:
    """Return the guess that counts are taken to tell where outcomes are spread like ``guess``."""
    return _KNOWN_PART * guess + (1.0 - _KNOWN_PART) / len(guess)


def _between(noise: Floats, nodes: Floats, epsilons: Floats) -> Floats:
    """Interpolate N of means and squares, shape [nodes, 2], of outcomes between 0 and 1; [2, J]."""
    unit = [4.0 * np.sinh(one / 2.0) ** 2 for one in (nodes, epsilons)]
    mean, square = np.log(np.maximum(noise.T, 1e-300) * unit[0])
    lines = (
        np.interp(epsilons, np.append(0.0, nodes), np.append(0.0, mean)),
        np.interp(epsilons, nodes, square),
    )
    return np.exp(lines) / unit[1]


def _even(grid: Floats, outcomes: Floats, epsilons: Floats) -> Floats:
    """The noise of randomised response, of means and of squares, shape [2, J]."""
    k = len(grid)
    rate, uniform = k / (np.exp(epsilons) + k - 1.0), np.full(k, 1.0 / k)
    values = (grid, (grid - grid.mean()) ** 2)
    return np.array([unit_noise(one, outcomes, uniform, rate) for one in values])


@lru_cache(maxsize=4096)  # questions at other ε, and of other outcomes, ask the same
def _at(shape: tuple[float, ...], guess: tuple[float, ...], nodes: tuple[float, ...]) -> Floats:
    """The noise of each outcome and of its square, shape [K, 2], at the last ε of ``nodes``."""
    grid, known, epsilon = np.array(shape), np.array(guess), nodes[-1]
    found = _solved(shape, guess, nodes)
    if found is not None:
        with suppress(SingularTableError):
            return _noise(found.probabilities, found.values, grid, known)
    outputs, favoured = even_columns(grid, exp(epsilon))
    weights = np.where(favoured, exp(epsilon), 1.0)
    return _noise(weights, outputs, grid, np.full(len(grid), 1.0 / len(grid)))


@lru_cache(maxsize=4096)
def _solved(
    shape: tuple[float, ...], guess: tuple[float, ...], nodes: tuple[float, ...]
) -> Randomiser | None:
    """The table at the last ε of ``nodes``, looked for from that at the one before."""
    known = np.array(guess)
    start = _solved(shape, guess, nodes[:-1]) if len(nodes) > 1 else None
    try:
        return solve(np.array(shape), known / known.sum(), nodes[-1], _GAP, start)
    except UnsolvedError:
        return None


def _noise(weights: Floats, values: Floats, grid: Floats, guess: Floats) -> Floats:
    """Return the same of a table with these weights, shape [K, J], solved for ``guess``."""
    table = weights / weights.sum(axis=1, keepdims=True)
    likely = ((1.0 - _DOUBT) * guess + _DOUBT / len(guess)) @ table
    functions = output_functions(table[np.newaxis], values[np.newaxis], grid, likely[np.newaxis])
    noises = (functions.noise[0], functions.square_noise[0])
    return np.column_stack([table @ noise for noise in noises])
