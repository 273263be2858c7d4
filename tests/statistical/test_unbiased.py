"""Over 20,000 releases τ̂_Q is right on average, and its variance estimate is what it says.

One small population is randomised and released anew each time: assignment from a fixed seed,
privacy randomness from the operating system as always, the same functions as a release calls.

False alarms, a run of this file:

- six means within ``ERRORS`` = 4 standard errors: 6e-5 each;
- 12 ratios of variances within ``RATIO`` = 5 % of 1: an empirical variance of 20,000 draws that
  are close to normal has a standard error of √(2/20,000) = 1 %, so 6e-7 each;

together 4e-4. Each check comes with a broken estimator that it catches.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from estimators.effects import StratumMeans, comparable_strata, contrast
from privatizers.design import MechanismName, Request, design
from privatizers.mechanism import Mechanism
from privatizers.outcome_grid import stratum_counts
from privatizers.strata import Strata, lay_out
from tests.statistical.simulate import Moments, debiased, moments, without_privacy

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

N_RELEASES = 20_000
CHUNK = 2_000  # releases at a time: some 140,000 units
ERRORS = 4.0
RATIO = 0.05

GRID = np.array([0.0, 1.0, 2.0])
RATE = 0.25
SIZES = np.array([[24, 16], [10, 6], [6, 6]])
"""Units by cluster and arm, control first. The last two share a pool: ``MIN_STRATUM``."""
MIN_STRATUM = 10

NAMES: tuple[MechanismName, ...] = ("cluster-dp", "cluster-free-dp", "uniform-prior-dp")


@dataclass(frozen=True)
class Population:
    """Levels that every unit would have under control and under treatment, and its cluster."""

    control: Ints
    treated: Ints
    cluster: Ints

    @property
    def effects(self) -> Floats:
        effects: Floats = GRID[self.treated] - GRID[self.control]
        return effects

    @property
    def effect(self) -> float:
        return float(self.effects.mean())

    @property
    def excess(self) -> float:
        """By how much Neyman's variance is too large: Σ b_c² S²(τ_c)/n_c."""
        own = moments(self.effects, self.cluster, (len(SIZES),))
        share = own.n_units / own.n_units.sum()
        return float((share**2 * own.variance / own.n_units).sum())


def population(*, constant: bool) -> Population:
    """Clusters that differ; an effect of 1 for everybody, or of −2, 0 and 2 from unit to unit."""
    cluster = np.repeat(np.arange(len(SIZES)), SIZES.sum(axis=1))
    position = np.arange(len(cluster))
    if constant:
        control = (position % 4 < cluster + 1).astype(np.int64)
        return Population(control, control + 1, cluster)
    control = np.where(position % (cluster + 3) < 2, 0, position % 3)
    return Population(control, 2 - control, cluster)


def mechanism_named(name: MechanismName) -> Mechanism:
    own_prior = name != "uniform-prior-dp"
    asked = Request(
        name,
        len(GRID),
        strata_statistic="counts" if own_prior else "none",  # τ̂_Q does not use them
        resampling_probability=RATE,
        truncation_threshold=0.1 if own_prior else None,
        noise_scale=2.0 if own_prior else None,
    )
    return design(asked).mechanism


@dataclass(frozen=True)
class Releases:
    """What many releases say of each stratum; shapes begin with [releases, clusters, arms]."""

    randomised: Moments
    prior: Floats
    plain: Moments
    """Of the outcomes as they are, without privacy."""


def assign(people: Population, n_releases: int, generator: np.random.Generator) -> Ints:
    """Arms (1 for treated), shape [releases, n]: completely randomised within each cluster."""
    arms = []
    for cluster, (_, n_treated) in enumerate(SIZES):
        n = np.count_nonzero(people.cluster == cluster)
        rank = generator.random((n_releases, n)).argsort(axis=1).argsort(axis=1)
        arms.append(rank < n_treated)
    return np.concatenate(arms, axis=1).astype(np.int64)


def strata_of(mechanism: Mechanism) -> Strata:
    pool_of = mechanism.pool_of(SIZES, MIN_STRATUM)
    return lay_out(["a", "b", "c"], ["control", "treated"], SIZES, pool_of)


def release(mechanism: Mechanism, people: Population, arm: Ints) -> Releases:
    """Release under every assignment at once: each has strata of its own, so no release meets
    another's.
    """
    strata = strata_of(mechanism)
    n_releases, n_cells = len(arm), len(strata.cell_sizes)
    nth = np.arange(n_releases)[:, np.newaxis]
    levels = np.where(arm == 1, people.treated, people.control).ravel()
    cells = (nth * n_cells + strata.cells(people.cluster, arm)).ravel()
    stratum = (nth * SIZES.size + people.cluster * 2 + arm).ravel()

    counts = stratum_counts(levels, cells, n_releases * n_cells, len(GRID))
    response = mechanism.strata(counts).response
    randomised = response.draw(levels, cells)
    shape = (n_releases, *SIZES.shape)
    by_cell = response.prior.reshape(n_releases, n_cells, len(GRID))
    return Releases(
        moments(GRID[randomised], stratum, shape),
        by_cell[:, strata.cell_of[strata.pool_of]],
        moments(GRID[levels], stratum, shape),
    )


@dataclass(frozen=True)
class Found:
    """τ̂ and the variances estimated with it, one number a release."""

    estimate: Floats
    variance: Floats
    noise_variance: Floats


def found(strata: StratumMeans) -> Found:
    """τ̂_Q, V̂ and its noise part for every release at once; ``contrast`` does one at a time."""
    n = strata.n_units
    share = n.sum(axis=2, keepdims=True) / n.sum(axis=(1, 2), keepdims=True)
    means = (share * strata.mean).sum(axis=1)
    return Found(
        means[:, 1] - means[:, 0],
        (share**2 * strata.variance / n).sum(axis=(1, 2)),
        (share**2 * strata.noise_variance).sum(axis=(1, 2)),
    )


@dataclass(frozen=True)
class Simulation:
    """20,000 releases of a population, in the chunks they were drawn in."""

    people: Population
    chunks: tuple[Releases, ...]

    @property
    def plain(self) -> Found:
        """Estimates without privacy."""
        return _joined([found(without_privacy(part.plain)) for part in self.chunks])

    def private(self, rate: float = RATE, *, prior_of_the_other_arm: bool = False) -> Found:
        """Estimates from the releases; another ``rate`` or prior is an error made on purpose."""
        step = -1 if prior_of_the_other_arm else 1
        return _joined(
            [
                found(debiased(part.randomised, GRID, part.prior[:, :, ::step], rate))
                for part in self.chunks
            ]
        )


def _joined(parts: list[Found]) -> Found:
    return Found(
        np.concatenate([part.estimate for part in parts]),
        np.concatenate([part.variance for part in parts]),
        np.concatenate([part.noise_variance for part in parts]),
    )


@cache
def simulation(name: MechanismName, *, constant: bool) -> Simulation:
    people, mechanism = population(constant=constant), mechanism_named(name)
    generator = np.random.default_rng(20_000)
    chunks = (
        release(mechanism, people, assign(people, CHUNK, generator))
        for _ in range(N_RELEASES // CHUNK)
    )
    return Simulation(people, tuple(chunks))


@cache
def private(name: MechanismName, *, constant: bool) -> Found:
    return simulation(name, constant=constant).private()


every_mechanism = pytest.mark.parametrize("name", NAMES)
both_populations = pytest.mark.parametrize("constant", [True, False], ids=["constant", "varied"])


def errors_off(estimates: Floats, truth: float) -> float:
    """How many standard errors the mean of the estimates is away from the truth."""
    error = estimates.std(ddof=1) / np.sqrt(len(estimates))
    return float(abs(estimates.mean() - truth) / error)


def is_near_one(ratio: float) -> bool:
    return abs(ratio - 1) < RATIO


@every_mechanism
def test_the_formulas_for_all_releases_at_once_are_the_products(name: MechanismName) -> None:
    first = simulation(name, constant=False).chunks[0]
    strata = debiased(first.randomised, GRID, first.prior, RATE)
    together = found(strata)
    parts = strata.n_units, strata.mean, strata.variance, strata.noise_variance
    for nth in range(50):
        one = StratumMeans(*(part[nth] for part in parts))
        own = contrast(*comparable_strata(one, 1, 0, same_shares=False))
        assert own is not None
        expected = own.estimate, own.variance, own.noise_variance
        here = together.estimate[nth], together.variance[nth], together.noise_variance[nth]
        assert here == pytest.approx(expected, rel=1e-12)  # sums of six numbers, in doubles


@every_mechanism
@both_populations
def test_tau_q_is_right_on_average(name: MechanismName, constant: bool) -> None:
    truth = population(constant=constant).effect
    assert errors_off(private(name, constant=constant).estimate, truth) < ERRORS


@every_mechanism
def test_for_a_constant_effect_the_variance_is_right_on_average(name: MechanismName) -> None:
    own = private(name, constant=True)
    assert population(constant=True).excess == 0
    assert is_near_one(own.variance.mean() / own.estimate.var(ddof=1))


@every_mechanism
def test_for_a_varied_effect_the_variance_is_too_large_by_what_neyman_says(
    name: MechanismName,
) -> None:
    own, people = private(name, constant=False), population(constant=False)
    assert own.variance.mean() / own.estimate.var(ddof=1) > 1 - RATIO
    assert is_near_one((own.variance.mean() - people.excess) / own.estimate.var(ddof=1))


@every_mechanism
@both_populations
def test_the_noise_variance_is_that_of_the_difference_privacy_makes(
    name: MechanismName, constant: bool
) -> None:
    own, plain = private(name, constant=constant), simulation(name, constant=constant).plain
    assert is_near_one(own.noise_variance.mean() / ((own.estimate - plain.estimate) ** 2).mean())


@every_mechanism
def test_the_noise_of_privacy_is_seen_by_the_check_of_the_variance(name: MechanismName) -> None:
    """Left out, it would be missed: these releases are not ones where it hardly matters."""
    own = private(name, constant=True)
    without = (own.variance - own.noise_variance).mean()
    assert not is_near_one(without / own.estimate.var(ddof=1))


def test_the_check_of_the_mean_catches_a_rate_five_per_cent_off() -> None:
    for factor in (0.95, 1.05):
        broken = simulation("uniform-prior-dp", constant=True).private(RATE * factor)
        # Off by 1.6 % of the effect, 11 standard errors: a miss is rarer than 1e-11.
        assert errors_off(broken.estimate, population(constant=True).effect) > ERRORS


@pytest.mark.parametrize("name", NAMES[:2])
def test_the_check_of_the_mean_catches_priors_of_the_wrong_arm(name: MechanismName) -> None:
    broken = simulation(name, constant=True).private(prior_of_the_other_arm=True)
    assert errors_off(broken.estimate, population(constant=True).effect) > 2 * ERRORS


def test_the_population_is_one_in_which_neyman_is_conservative() -> None:
    own, people = private("uniform-prior-dp", constant=False), population(constant=False)
    assert people.excess > 2 * RATIO * own.variance.mean()
    assert people.effect != 0


def test_small_clusters_share_a_pool_in_these_releases() -> None:
    assert strata_of(mechanism_named("cluster-dp")).pool_of.tolist() == [0, 1, 1]
