"""The ways to divide ε that a plan tries: what pays for the statistic, squares, and learning."""

import numpy as np

from privatizers.domain.lattice import lattice_of
from privatizers.mechanisms.statistics.noisy_squares import is_even, square_steps
from privatizers.planning.design import StatisticName
from privatizers.planning.optimal_design import LearnFrom
from schemas.arrays import Floats

SHARES: Floats = np.round(1.0 / (1.0 + np.exp(-np.linspace(-4.6, 4.6, 93))), 4)
"""Parts of ε that are tried for the statistic of the strata: from 1 % to 99 %."""

SQUARE_SHARES = (0.0, 0.05, 0.075, 0.1)
"""Parts of ε that are tried for arms' sums of squares, where means are published."""

ARMS_SHARES = (0.0, 0.005, 0.01, 0.02, 0.03)
"""Parts of ε that are tried for noisy counts of arms, where tables may learn from them."""


def shares_to_try(
    grid: Floats, statistic: StatisticName, learn_from: LearnFrom = "nothing"
) -> tuple[Floats, Floats, Floats]:
    """Return the parts of ε to try for the statistic, squares, and counts of arms; [J] each.

    Counts of arms are for learning alone, and of two outcomes the best table is known anyhow.
    """
    shares, squares = _of_statistic(grid, statistic)
    tried: tuple[float, ...] = (0.0,)
    if learn_from == "arms" or (learn_from == "auto" and len(grid) > 2):
        tried = ARMS_SHARES[1:] if learn_from == "arms" else ARMS_SHARES
    of_arms = np.repeat(np.array(tried), len(shares))
    of_strata, of_squares = np.tile(shares, len(tried)), np.tile(squares, len(tried))
    left = of_strata + of_squares + of_arms < 1.0 - 1e-3
    return of_strata[left], of_squares[left], of_arms[left]


def _of_statistic(grid: Floats, statistic: StatisticName) -> tuple[Floats, Floats]:
    """Return the parts of ε to try for the statistic and for squares; shape [J] each.

    Only beside means does a part of ε pay for squares: counts tell squares anyway, and τ̂_Q, alone
    where there is no statistic, needs none. Where the grid's mean is not its middle, the published
    squares would not be the ones that estimates need.
    """
    if statistic == "none":
        return np.zeros(1), np.zeros(1)
    lattice = lattice_of(grid.tolist())
    steps = None if lattice is None or statistic != "means" else square_steps(lattice)
    if steps is None or lattice is None or not is_even(lattice):
        return SHARES, np.zeros(len(SHARES))
    shares, squares = (part.ravel() for part in np.meshgrid(SHARES, np.array(SQUARE_SHARES)))
    return shares, squares
