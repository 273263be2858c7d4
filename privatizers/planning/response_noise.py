"""What randomising outcomes adds to a unit's variance under many splits of ε; for planning."""

from dataclasses import dataclass

import numpy as np

from estimators.pool_statistics import unit_noise
from privatizers.domain.lattice import lattice_of
from privatizers.planning.approximate_rate import StatisticShift, approximate_odds
from privatizers.planning.design import StatisticName
from privatizers.planning.optimal_noise import learnt_guess, optimal_noise
from schemas.arrays import Floats

_KNOWN = 5.0
"""Units of an arm times ε of its counts, for each outcome, from which these tell its outcomes."""

Noises = tuple[Floats, Floats]
"""Of a unit's debiased outcome, and of its debiased square about the grid's mean; [J] each."""


@dataclass(frozen=True)
class Splits:
    """J ways to divide ε: what pays for the statistic and for squares, shape [J] each."""

    epsilon: float
    delta: float
    statistic: StatisticName
    shares: Floats
    square_shares: Floats


def prior_noise(
    splits: Splits, grid: Floats, guess: Floats, outcomes: Floats
) -> tuple[Noises, Noises]:
    """Return the noise of the uniform prior where outcomes follow ``guess``, and ``outcomes``."""
    k = len(grid)
    lattice = lattice_of(grid.tolist()) if splits.statistic == "means" else None
    shift = None if splits.statistic == "none" else StatisticShift.of(k, lattice)
    odds = approximate_odds(
        splits.epsilon, splits.delta, splits.shares, 1.0 / k, shift, splits.square_shares
    )
    uniform, rate = np.full(k, 1.0 / k), odds / (1.0 + odds)
    squares = (grid - grid.mean()) ** 2
    by_guess, by_outcomes = (
        (unit_noise(grid, one, uniform, rate), unit_noise(squares, one, uniform, rate))
        for one in (guess, outcomes)
    )
    return by_guess, by_outcomes


def table_noise(
    splits: Splits, grid: Floats, guess: Floats, outcomes: Floats, informed: float
) -> tuple[Noises, Noises]:
    """Return the same of tables of the optimal randomiser.

    Counts of arms tell how outcomes are spread where ``informed``, the units of an arm over the
    root of the number of its strata, times the ε of counts is great: then tables are those learnt
    from them, else that for the guess. What a δ allows beyond a pure ε is left out: it is little.
    """
    left = splits.epsilon * (1.0 - splits.shares - splits.square_shares)
    declared = optimal_noise(grid, guess, guess, left)
    by_guess = (declared.of_mean, declared.of_square)
    if np.array_equal(outcomes, guess):
        return by_guess, by_guess
    found = optimal_noise(grid, guess, outcomes, left)
    by_outcomes = (found.of_mean, found.of_square)
    enough = informed * splits.epsilon * splits.shares >= _KNOWN * len(grid)
    if splits.statistic != "counts" or not enough.any():
        return by_guess, by_outcomes
    learnt = optimal_noise(grid, learnt_guess(outcomes), outcomes, left, at_most=True)
    better = enough & (learnt.of_mean < found.of_mean)
    return by_guess, (
        np.where(better, learnt.of_mean, found.of_mean),
        np.where(better, learnt.of_square, found.of_square),
    )
