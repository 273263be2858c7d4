"""Turns simulated units and releases into the slices and pools that estimators are given."""

from dataclasses import dataclass, fields, replace

import numpy as np

from estimators.response.debias import prior_moments
from estimators.response.pool_statistics import (
    Cumulants,
    MeansStatisticNoise,
    StatisticWeights,
    square_noise,
)
from estimators.strata.evidence import Evidence, Pools, Slices, Statistic, sum_by
from estimators.strata.moments import moments_of_outputs
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP, OptimalRelease
from privatizers.mechanisms.mechanism import Mechanism, StrataRelease
from privatizers.mechanisms.statistics.noisy_squares import ReleasedSquares
from privatizers.optimal_response.response import OptimalResponse
from schemas.arrays import Bools, Floats, Ints

_MOST_COUNTS = 2
"""Counts of levels beside the units that they are counts of, above which units are taken."""


@dataclass(frozen=True)
class UnitPositions:
    """Where units are; all arrays have the shape [n]."""

    group: Ints
    cluster: Ints
    arm: Ints
    pool: Ints
    """Position of the unit's (pool, arm)."""

    def inside(self, chosen: Bools) -> "UnitPositions":
        """The positions of the units that are ``chosen``, as :func:`of_chosen`."""
        every = (getattr(self, field.name) for field in fields(self))
        return UnitPositions(*(of_chosen(values, chosen) for values in every))


def of_chosen(values: Ints, chosen: Bools) -> Ints:
    """Those of the units of one release that are ``chosen``, shape [n], in all releases."""
    return np.compress(chosen, values.reshape(-1, len(chosen)), axis=1).ravel()


def slices_of(steps: Floats, positions: UnitPositions) -> Slices:
    """Return the slices of units whose outcomes, less the grid's mean, are ``steps``, shape [n]."""
    keys, key = _Keys.of(positions)
    size = len(keys.n_units)
    n, squares = np.maximum(keys.n_units, 1), steps**2
    mean = sum_by(key, steps, size) / n
    square = sum_by(key, (steps - mean[key]) ** 2, size)
    return keys.slices(mean, square, sum_by(key, squares**2, size) / n)


def slices_of_outputs(response: OptimalResponse, outputs: Ints, positions: UnitPositions) -> Slices:
    """Return the slices of units that were released as ``outputs``, shape [n], by their tables."""
    keys, key = _Keys.of(positions)
    at = np.flatnonzero(keys.n_units)
    place = np.full(len(keys.n_units), -1)
    place[at] = np.arange(len(at))
    found = moments_of_outputs(
        response.functions,
        response.table_of[positions.pool],
        outputs,
        place[key],
        np.ones(len(key), dtype=np.int64),
        len(at),
    )
    of_all = np.zeros((2, len(keys.n_units)))
    of_all[0, at], of_all[1, at] = found.of_values.mean, found.of_values.variance
    squares = of_all[1] * np.maximum(keys.n_units - 1, 1)
    return replace(keys.slices(of_all[0], squares, np.zeros(len(squares))), outputs=found.outputs)


def slices_of_levels(levels: Ints, steps: Floats, positions: UnitPositions) -> Slices:
    """Return the slices of units with these ``levels``, shape [n], which are few.

    ``steps`` are the outcomes of all levels, less the grid's mean, shape [V]. The same as
    ``slices_of(steps[levels], positions)`` up to rounding, from counts of levels where these take
    less than the units do.
    """
    keys, key = _Keys.of(positions)
    size, n_levels = len(keys.n_units), len(steps)
    if size * n_levels > _MOST_COUNTS * len(levels):
        return slices_of(steps[levels], positions)
    key *= n_levels
    key += levels
    counts = np.bincount(key, minlength=size * n_levels).reshape(size, n_levels)
    shares = counts / np.maximum(keys.n_units, 1)[:, np.newaxis]
    mean = shares @ steps
    square = np.einsum("sv,sv->s", counts, (steps - mean[:, np.newaxis]) ** 2)
    return keys.slices(mean, square, shares @ steps**4)


@dataclass(frozen=True)
class _Keys:
    """All (group, cluster, arm) that could have units, those without units included; shape [S]."""

    n_clusters: int
    n_arms: int
    n_units: Floats
    pool: Ints

    @classmethod
    def of(cls, positions: UnitPositions) -> tuple["_Keys", Ints]:
        n_clusters, n_arms = int(positions.cluster.max()) + 1, int(positions.arm.max()) + 1
        key = positions.group * n_clusters
        key += positions.cluster
        key *= n_arms
        key += positions.arm
        n = np.bincount(key).astype(np.float64)
        pool = np.zeros(len(n), dtype=np.int64)
        pool[key] = positions.pool
        return cls(n_clusters, n_arms, n, pool), key

    def slices(self, mean: Floats, square: Floats, fourth: Floats) -> Slices:
        at = np.flatnonzero(self.n_units)
        group, rest = np.divmod(at, self.n_clusters * self.n_arms)
        cluster, arm = np.divmod(rest, self.n_arms)
        variance = square / np.maximum(self.n_units - 1, 1)
        return Slices(
            group, cluster, arm, self.pool[at], self.n_units[at], mean[at], variance[at], fourth[at]
        )


@dataclass(frozen=True)
class PoolArms:
    """Public facts of every (pool, arm); shape [P] each."""

    n_units: Floats
    pool: Ints
    n_clusters: Ints
    arm: Ints
    """Position of the arm among those of all releases."""


def pools_of(
    mechanism: Mechanism | ClusterOptimalDP,
    drawn: StrataRelease | OptimalRelease,
    grid: Floats,
    cells: PoolArms,
    weights: StatisticWeights,
    squares: ReleasedSquares | None = None,
) -> Pools:
    """Return the pools of a release, their statistics with these ``weights``.

    ``squares`` are the arms' noisy sums of squares, where any are published. The weight of an arm's
    is that of any of its cells.

    The statistic of d = y − ȳ is (y_1 − ȳ) + h S̃/n where sums are published, and says nothing of
    d² then; else it is that of the noisy counts, for both.
    """
    steps, prior = grid - grid.mean(), np.zeros((len(cells.n_units), len(grid)))
    if not isinstance(drawn, OptimalRelease):  # which has no priors
        prior = drawn.response.prior
    mean, variance = prior_moments(steps, prior)
    square, square_variance = prior_moments(steps**2, prior)
    nothing, n = np.full(len(prior), np.nan), cells.n_units
    of_mean = of_square = Statistic(nothing, nothing, nothing, np.zeros(len(prior)))
    noise = mechanism.parameters.noise_on(grid)
    if isinstance(noise, MeansStatisticNoise) and drawn.noisy_sums is not None:
        value = steps[0] + noise.grid_step * drawn.noisy_sums / n
        of_mean = _statistic(value, noise.of_outcomes, n, weights.of_mean)
    elif noise is not None and drawn.noisy_counts is not None:
        assert not isinstance(noise, MeansStatisticNoise)  # noqa: S101 - counts go with the noise of counts
        shares = drawn.noisy_counts / n[:, np.newaxis]
        of_mean = _statistic(_by_counts(steps, shares), noise.of_sum(steps), n, weights.of_mean)
        squared, weight = steps**2, weights.of_square
        of_square = _statistic(_by_counts(squared, shares), noise.of_sum(squared), n, weight)
    square_cell = None
    if squares is not None:
        square_cell, size = cells.arm, len(squares.noisy_square)
        of_arm = np.maximum(np.bincount(cells.arm, n, size), 1.0)  # some may have no units
        arm_weight = np.zeros(size)
        arm_weight[cells.arm] = weights.of_square
        noise_of_mean = square_noise(squares.noise_scale) / of_arm**2
        value = squares.noisy_square / of_arm
        of_square = Statistic(value, noise_of_mean, np.zeros(size), arm_weight)
    return Pools(
        mean,
        variance,
        square,
        square_variance,
        of_mean,
        of_square,
        cells.pool,
        cells.n_clusters,
        square_cell=square_cell,
    )


def _by_counts(function: Floats, shares: Floats) -> Floats:
    """Return f̄ + Σ_y (f(y) − f̄) Ñ_y/n, shape [P]; f is ``function``, Ñ/n are ``shares``."""
    value: Floats = function.mean() + shares @ (function - function.mean())
    return value


def _statistic(value: Floats, of_sum: Cumulants, n: Floats, weight: Floats) -> Statistic:
    return Statistic(value, of_sum.second / n**2, of_sum.fourth / n**4, weight)


def without_privacy(slices: Slices, grid: Floats) -> Evidence:
    """Return evidence for τ̂_Q of true outcomes: nothing is resampled, no noise is added."""
    size = int(slices.pool.max()) + 1
    zero, nothing = np.zeros(size), np.full(size, np.nan)
    none = Statistic(nothing, nothing, nothing, zero)
    pool, one = np.arange(size), np.ones(size, dtype=np.int64)
    pools = Pools(zero, zero, zero, zero, none, none, pool, one)
    return Evidence.of(slices, slices, pools, 0.0, grid)
