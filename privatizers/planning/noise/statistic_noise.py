"""The noise of what may be published of strata, where parts of ε pay for it; for planning."""

import numpy as np

from estimators.response.pool_statistics import (
    Cumulants,
    MeansStatisticNoise,
    PoolCountsNoise,
    discrete_laplace_cumulants,
    square_noise,
)
from privatizers.domain.lattice import Lattice
from privatizers.mechanisms.statistics.noisy_counts import NoisyCounts, moved_cells
from privatizers.planning.design import StatisticName
from schemas.arrays import Floats


def statistic_noise(
    grid: Floats,
    values: Floats,
    lattice: Lattice | None,
    statistic: StatisticName,
    epsilons: Floats,
) -> tuple[Floats, Floats]:
    """Return variance and fourth cumulant of the noise of a pool's sum of ``values``, shape [J].

    ``values`` are those of the points of ``grid``: these themselves for means. ``epsilons`` pay
    for the statistic.
    """
    if statistic == "none":
        return np.full(len(epsilons), np.inf), np.zeros(len(epsilons))
    one, k = Cumulants(1.0, 1.0), len(grid)
    if lattice is not None:
        of_one = MeansStatisticNoise(one, lattice.step_of(grid.tolist())).of_outcomes
        second, fourth = discrete_laplace_cumulants(lattice.most / epsilons)
    else:
        complement = NoisyCounts(k, 1.0).statistic == "count-and-complement"
        of_one = PoolCountsNoise(one, complement).of_sum(values)
        second, fourth = discrete_laplace_cumulants(moved_cells(k) / epsilons)
    return second * of_one.second, fourth * of_one.fourth


def squares_noise(
    grid: Floats, statistic: StatisticName, epsilons: Floats, square_epsilons: Floats
) -> Floats:
    """Return the noise variance of sums of squares: of pools by counts, or of arms.

    ``epsilons`` pay for the statistic, ``square_epsilons`` for arms' sums. Infinite where nothing
    tells squares; shape [J].
    """
    variance = np.full(len(epsilons), np.inf)
    if statistic == "counts":
        squares = (grid - grid.mean()) ** 2
        variance, _ = statistic_noise(grid, squares, None, statistic, epsilons)
    paid = square_epsilons > 0
    if paid.any():
        centred = (grid - (grid[0] + grid[-1]) / 2.0) ** 2
        width = centred.max() - centred.min()
        variance[paid] = square_noise(width / square_epsilons[paid])
    return variance
