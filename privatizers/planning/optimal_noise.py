"""The noise of the least noisy randomiser at many values of ε, for planning alone.

Tables are solved at a few values of ε, the same for every question, and ln(noise) is interpolated
in ln ε between them; below the least of them noise falls as ε⁻². Grids are moved to 0 … 1 first, so
that grids of one shape are solved for once. A release never uses these numbers: its table is solved
at its own ε (:mod:`privatizers.optimal_response.whole_numbers`).
"""

from dataclasses import dataclass
from functools import lru_cache
from math import exp

import numpy as np

from estimators.response_tables import SingularTableError, output_functions
from privatizers.optimal_response.programme import UnsolvedError, even_columns, solve
from schemas.arrays import Floats

_NODES = (0.1, 0.4, 0.9, 1.5, 2.25, 3.0, 4.0, 5.0, 6.0, 7.0, 8.5, 10.0, 12.0)
_FEW_NODES = (0.1, 1.5, 4.0, 8.0, 12.0)
MANY_LEVELS = 13
"""Grids of more points are solved at few values of ε: with 25 points one takes two seconds."""
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


def optimal_noise(grid: Floats, guess: Floats, outcomes: Floats, epsilons: Floats) -> OptimalNoise:
    """Return the noise of tables for ``guess`` where outcomes are spread like ``outcomes``.

    Args:
        grid: y, increasing, shape [K].
        guess: What tables are solved for, or even response where that is better by it; [K].
        outcomes: How outcomes are spread, shape [K].
        epsilons: What tables keep, shape [J]; greater than 0, at most 12.
    """
    wide = float(grid[-1] - grid[0])
    shape = tuple(np.round((grid - grid[0]) / wide, 12).tolist())
    nodes = np.array(_FEW_NODES if len(grid) > MANY_LEVELS else _NODES)
    last = int(np.searchsorted(nodes, float(epsilons.max()))) + 1
    used = nodes[: max(last, 2)]
    solved = [_at(shape, tuple(np.round(guess, 12).tolist()), one) for one in used.tolist()]
    found = np.log(np.maximum(outcomes @ np.array(solved), 1e-300))  # [2, nodes]
    at = np.log(epsilons)
    below = 2.0 * np.maximum(np.log(used[0]) - at, 0.0)
    mean, square = (np.exp(np.interp(at, np.log(used), one) + below) for one in found.T)
    return OptimalNoise(mean * wide**2, square * wide**4)


def learnt_guess(guess: Floats) -> Floats:
    """Return the guess that counts are taken to tell where outcomes are spread like ``guess``."""
    learnt: Floats = _KNOWN_PART * guess + (1.0 - _KNOWN_PART) / len(guess)
    return learnt


@lru_cache(maxsize=4096)  # questions at other ε, and of other outcomes, ask the same
def _at(shape: tuple[float, ...], guess: tuple[float, ...], epsilon: float) -> Floats:
    """The noise of each outcome and of its square, shape [K, 2], at one ε."""
    grid, known = np.array(shape), np.array(guess)
    outputs, favoured = even_columns(grid, exp(epsilon))
    weights = np.where(favoured, exp(epsilon), 1.0)
    even = _noise(weights, outputs, grid, np.full(len(grid), 1.0 / len(grid)))
    try:
        found = solve(grid, known / known.sum(), epsilon, _GAP)
        best = _noise(found.probabilities, found.values, grid, known)
    except (UnsolvedError, SingularTableError):
        return even
    return best if known @ best[:, 0] < known @ even[:, 0] else even


def _noise(weights: Floats, values: Floats, grid: Floats, guess: Floats) -> Floats:
    """Return the same of a table with these weights, shape [K, J], solved for ``guess``."""
    table = weights / weights.sum(axis=1, keepdims=True)
    likely = ((1.0 - _DOUBT) * guess + _DOUBT / len(guess)) @ table
    functions = output_functions(table[np.newaxis], values[np.newaxis], grid, likely[np.newaxis])
    noises = (functions.noise[0], functions.square_noise[0])
    return np.column_stack([table @ noise for noise in noises])
