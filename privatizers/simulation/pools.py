"""From simulated units to what estimators are given."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from estimators.debias import prior_moments
from estimators.evidence import Evidence, Pools, Slices, Statistic
from estimators.pool_statistics import (
    Cumulants,
    MeansNoise,
    StatisticNoise,
    Weights,
    square_noise,
    statistic_noise,
)
from privatizers.mechanisms.mechanism import Mechanism, StrataRelease
from privatizers.mechanisms.noisy_squares import ReleasedSquares

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Places:
    """Where units are; all arrays have the shape [n]."""

    group: Ints
    cluster: Ints
    arm: Ints
    pool: Ints
    """Position of the unit's (pool, arm)."""

    def take(self, rows: Ints) -> "Places":
        """Of the chosen units."""
        return Places(*(getattr(self, one.name)[rows] for one in fields(self)))


def slices_of(steps: Floats, places: Places) -> Slices:
    """Sums over slices of outcomes measured from the grid's mean, ``steps``, shape [n]."""
    wide, arms = int(places.cluster.max()) + 1, int(places.arm.max()) + 1
    key = (places.group * wide + places.cluster) * arms + places.arm
    size = int(key.max()) + 1
    n = np.bincount(key, minlength=size).astype(np.float64)
    at = np.flatnonzero(n)
    of_key = np.zeros(size, dtype=np.int64)
    of_key[key] = places.pool
    mean = np.bincount(key, steps, size) / np.maximum(n, 1)
    square = np.bincount(key, (steps - mean[key]) ** 2, size) / np.maximum(n - 1, 1)
    fourth = np.bincount(key, steps**4, size) / np.maximum(n, 1)
    group, rest = np.divmod(at, wide * arms)
    cluster, arm = np.divmod(rest, arms)
    return Slices(group, cluster, arm, of_key[at], n[at], mean[at], square[at], fourth[at])


@dataclass(frozen=True)
class Cells:
    """Public facts of every (pool, arm); shape [P] each."""

    n_units: Floats
    pool: Ints
    n_clusters: Ints
    arm: Ints
    """Position of the arm among those of all releases."""


def noise_of(mechanism: Mechanism, grid: Floats) -> StatisticNoise | None:
    """Return the noise on what ``mechanism`` publishes of its pools; None if it is nothing."""
    parameters = mechanism.parameters
    lattice = parameters.lattice
    step = None if lattice is None else lattice.step_of(grid.tolist())
    return statistic_noise(parameters.noise_scale, parameters.strata_statistic, step)


def pools_of(
    mechanism: Mechanism,
    drawn: StrataRelease,
    grid: Floats,
    cells: Cells,
    weights: Weights,
    squares: ReleasedSquares | None = None,
) -> Pools:
    """What a release tells of its pools; ``weights`` are put on their statistics.

    ``squares`` are those of the arms, where any are published: an arm's has the weight of any of
    its cells.

    The statistic of d = y − ȳ is (y_1 − ȳ) + h S̃/n where sums are published, and says nothing of
    d² then; else it is that of the noisy counts, for both.
    """
    steps, prior = grid - grid.mean(), drawn.response.prior
    mean, variance = prior_moments(steps, prior)
    square, square_variance = prior_moments(steps**2, prior)
    nothing, n = np.full(len(prior), np.nan), cells.n_units
    of_mean = of_square = Statistic(nothing, nothing, nothing, np.zeros(len(prior)))
    noise = noise_of(mechanism, grid)
    if isinstance(noise, MeansNoise) and drawn.noisy_sums is not None:
        value = steps[0] + noise.grid_step * drawn.noisy_sums / n
        of_mean = _statistic(value, noise.of_outcomes, n, weights.of_mean)
    elif noise is not None and drawn.noisy_counts is not None:
        assert not isinstance(noise, MeansNoise)  # noqa: S101 - counts go with the noise of counts
        shares = drawn.noisy_counts / n[:, np.newaxis]
        of_mean = _statistic(_by_counts(steps, shares), noise.of_sum(steps), n, weights.of_mean)
        far, weight = steps**2, weights.of_square
        of_square = _statistic(_by_counts(far, shares), noise.of_sum(far), n, weight)
    square_cell = None
    if squares is not None:
        square_cell = cells.arm
        of_square = _of_arms(squares, cells, weights.of_square)
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


def _of_arms(squares: ReleasedSquares, cells: Cells, weight: Floats) -> Statistic:
    """Of the mean square of every arm; 0 where an arm has no units."""
    size = len(squares.noisy_square)
    n = np.maximum(np.bincount(cells.arm, cells.n_units, size), 1.0)
    of_arm = np.zeros(size)
    of_arm[cells.arm] = weight
    variance = square_noise(squares.noise_scale) / n**2
    return Statistic(squares.noisy_square / n, variance, np.zeros(size), of_arm)


def _by_counts(of: Floats, shares: Floats) -> Floats:
    """f̄ + Σ_y (f(y) − f̄) Ñ_y/n for f = ``of``; shape [P]."""
    value: Floats = of.mean() + shares @ (of - of.mean())
    return value


def _statistic(value: Floats, of_sum: Cumulants, n: Floats, weight: Floats) -> Statistic:
    return Statistic(value, of_sum.second / n**2, of_sum.fourth / n**4, weight)


def without_privacy(own: Slices, grid: Floats) -> Evidence:
    """Slices of outcomes as they are, for τ̂_Q: nothing is resampled and no noise is added."""
    size = int(own.pool.max()) + 1
    zero, nothing = np.zeros(size), np.full(size, np.nan)
    none = Statistic(nothing, nothing, nothing, zero)
    code = np.arange(size)
    ones = np.ones(size, dtype=np.int64)
    return Evidence.of(own, own, Pools(zero, zero, zero, zero, none, none, code, ones), 0.0, grid)
