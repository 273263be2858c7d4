"""What statistical tests share: slices of units, Pearson's test, and where real data lie."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from estimators.combining import CountsNoise, Weights, counts_noise, declared_weights
from estimators.debias import prior_moments
from estimators.slices import Evidence, Pools, Slices, Statistic
from privatizers.mechanism import Mechanism, StrataRelease
from privatizers.outcome_grid import stratum_counts
from privatizers.strata import Strata, lay_out

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LEAST_EXPECTED = 10.0
"""Draws a cell of Pearson's test has to expect for χ² to be its distribution far out."""


def pearson(observed: NDArray[np.integer], probabilities: Floats) -> float:
    """p-value of Pearson's test that every row of ``observed`` was drawn from its probabilities.

    Both have the shape [rows, cells]; rows are independent, and their statistics add up.
    """
    expected = observed.sum(axis=1, keepdims=True) * probabilities
    if expected.min() < LEAST_EXPECTED:
        msg = f"a cell expects {expected.min():.1f} draws: too few for this test"
        raise ValueError(msg)
    statistic = ((observed - expected) ** 2 / expected).sum()
    degrees = observed.shape[0] * (observed.shape[1] - 1)
    return float(chi2.sf(statistic, degrees))


@dataclass(frozen=True)
class Places:
    """Where units are; all arrays have the shape [n]."""

    group: Ints
    cluster: Ints
    arm: Ints
    pool: Ints
    """Position of the unit's (pool, arm)."""


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


def pools_of(
    mechanism: Mechanism, drawn: StrataRelease, grid: Floats, cells: Cells, weights: Weights
) -> Pools:
    """What a release tells of its pools; ``weights`` are put on their statistics."""
    steps, prior, parameters = grid - grid.mean(), drawn.response.prior, mechanism.parameters
    mean, variance = prior_moments(steps, prior)
    square, square_variance = prior_moments(steps**2, prior)
    nothing = np.full(len(prior), np.nan)
    of_mean = of_square = Statistic(nothing, nothing, nothing, np.zeros(len(prior)))
    if drawn.noisy_counts is not None:
        assert parameters.counts is not None
        noise = counts_noise(parameters.counts.noise_scale, parameters.counts.statistic)
        shares = drawn.noisy_counts / cells.n_units[:, np.newaxis]
        of_mean = _statistic(steps, shares, noise, cells.n_units, weights.of_mean)
        of_square = _statistic(steps**2, shares, noise, cells.n_units, weights.of_square)
    return Pools(
        mean,
        variance,
        square,
        square_variance,
        of_mean,
        of_square,
        cells.pool,
        cells.n_clusters,
    )


def _statistic(
    of: Floats, shares: Floats, noise: CountsNoise, n: Floats, weight: Floats
) -> Statistic:
    cumulants = noise.of_sum(of)
    value = of.mean() + shares @ (of - of.mean())
    return Statistic(value, cumulants.second / n**2, cumulants.fourth / n**4, weight)


def without_privacy(own: Slices, grid: Floats) -> Evidence:
    """Slices of outcomes as they are, for τ̂_Q: nothing is resampled and no noise is added."""
    size = int(own.pool.max()) + 1
    zero, nothing = np.zeros(size), np.full(size, np.nan)
    none = Statistic(nothing, nothing, nothing, zero)
    code = np.arange(size)
    ones = np.ones(size, dtype=np.int64)
    return Evidence.of(own, own, Pools(zero, zero, zero, zero, none, none, code, ones), 0.0, grid)


@dataclass(frozen=True)
class Trial:
    """A small population that can be randomised and released many times over."""

    grid: Floats
    sizes: Ints
    """Units by cluster and arm, control first; shape [C, A]."""
    levels: Ints
    """The level that every unit would have in each arm; shape [A, n], cluster by cluster."""
    mechanism: Mechanism
    min_stratum: int = 0

    @property
    def cluster(self) -> Ints:
        return np.repeat(np.arange(len(self.sizes)), self.sizes.sum(axis=1))

    def truth(self, arm: int = 1, inside: NDArray[np.bool_] | None = None) -> float:
        """The effect of ``arm`` on the units ``inside``, or on all."""
        effects = self.grid[self.levels[arm]] - self.grid[self.levels[0]]
        return float(effects[inside].mean() if inside is not None else effects.mean())

    @property
    def strata(self) -> Strata:
        clusters = [f"c{nth:03}" for nth in range(len(self.sizes))]
        arms = [f"a{nth}" for nth in range(self.sizes.shape[1])]
        pool_of = self.mechanism.pool_of(self.sizes, self.min_stratum)
        return lay_out(clusters, arms, self.sizes, pool_of)

    @property
    def weights(self) -> Weights:
        """By a uniform guess, as a release declares them; of no use without counts."""
        parameters, n = self.mechanism.parameters, self.strata.cell_sizes.astype(np.float64)
        if parameters.counts is None:
            return Weights(np.zeros(len(n)), np.zeros(len(n)))
        guess = np.full(len(self.grid), 1 / len(self.grid))
        return declared_weights(
            self.grid,
            guess,
            self.mechanism.expected_prior(guess),
            parameters.resampling_probability,
            counts_noise(parameters.counts.noise_scale, parameters.counts.statistic),
            n,
        )

    def assign(self, n_releases: int, generator: np.random.Generator) -> Ints:
        """Arms, shape [releases, n]: completely randomised within each cluster."""
        arms = []
        for sizes in self.sizes:
            rank = generator.random((n_releases, sizes.sum())).argsort(axis=1).argsort(axis=1)
            arms.append(np.searchsorted(np.cumsum(sizes), rank, side="right"))
        return np.concatenate(arms, axis=1).astype(np.int64)

    def release(self, arm: Ints) -> "Releases":
        """Release under every assignment at once, by the product's functions.

        Each has pools of its own, so no release meets another's; each is a group of the evidence.
        """
        strata, n_releases = self.strata, len(arm)
        n_cells, nth = len(strata.cell_sizes), np.arange(n_releases)[:, np.newaxis]
        levels = self.levels[arm, np.arange(arm.shape[1])].ravel()
        cell = strata.cells(np.broadcast_to(self.cluster, arm.shape), arm)
        cells = (nth * n_cells + cell).ravel()
        counts = stratum_counts(levels, cells, n_releases * n_cells, len(self.grid))
        drawn = self.mechanism.strata(counts)
        randomised = drawn.response.draw(levels, cells)
        shared = np.bincount(strata.pool_of, minlength=len(strata.pools))
        pool, _ = np.nonzero(strata.cell_of >= 0)
        every = Cells(
            np.tile(strata.cell_sizes.astype(np.float64), n_releases),
            (nth * len(strata.pools) + pool).ravel(),
            np.tile(shared[pool], n_releases),
        )
        own = self.weights
        weights = Weights(np.tile(own.of_mean, n_releases), np.tile(own.of_square, n_releases))
        places = Places(
            np.broadcast_to(nth, arm.shape).ravel(),
            np.broadcast_to(self.cluster, arm.shape).ravel(),
            arm.ravel(),
            cells,
        )
        pools = pools_of(self.mechanism, drawn, self.grid, every, weights)
        return Releases(self, places, levels, randomised, pools, drawn)


@dataclass(frozen=True)
class Releases:
    """Many releases of a trial, drawn; units of all of them in one row."""

    trial: Trial
    places: Places
    levels: Ints
    randomised: Ints
    pools: Pools
    drawn: StrataRelease

    def slices(self, levels: Ints, inside: NDArray[np.bool_] | None = None) -> Slices:
        """Of units with these ``levels``: of all, or of those ``inside`` in every release."""
        steps = (self.trial.grid - self.trial.grid.mean())[levels]
        if inside is None:
            return slices_of(steps, self.places)
        at = np.flatnonzero(np.tile(inside, len(steps) // len(inside)))
        own = (getattr(self.places, name)[at] for name in self.places.__dataclass_fields__)
        return slices_of(steps[at], Places(*own))

    def evidence(
        self, inside: NDArray[np.bool_] | None = None, rate: float | None = None
    ) -> Evidence:
        """What an analyst has of them; another ``rate`` is an error made on purpose."""
        everyone = self.slices(self.randomised)
        own = everyone if inside is None else self.slices(self.randomised, inside)
        true_rate = self.trial.mechanism.parameters.resampling_probability
        return Evidence.of(own, everyone, self.pools, rate or true_rate, self.trial.grid)

    @property
    def plain(self) -> Evidence:
        """Without privacy."""
        return without_privacy(self.slices(self.levels), self.trial.grid)


def real_data(name: str) -> Path:
    """A file of the real experiments; the test that asks for one that is not there is skipped."""
    root = Path(__file__).resolve().parents[2]
    folder = Path(os.environ.get("CLUSTERDP_TEST_DATA", root.parent / "shared" / "data"))
    path = folder / name
    if not path.is_file():
        pytest.skip(f"no {name} in {folder}: set CLUSTERDP_TEST_DATA to the folder of the data")
    return path
