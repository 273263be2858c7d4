"""Theory against releases: variances of τ̂_Q over many releases by the product's own functions.

Assignments come from fixed seeds, privacy randomness from the operating system as always.

False alarms: a variance over N draws has a standard error of √((κ + 2)/N) of itself, κ their excess
kurtosis, which is measured. It has to be within ``ERRORS`` = 5 of these: 6e-7 a check, of which
there are nine. Those that have to fail would pass with a chance that is far smaller: what they are
off by is at least 25 of the standard errors.
"""

from functools import cache

import numpy as np
import pytest

from estimators.arm_effects import contrasts
from estimators.theory import (
    Population,
    Variance,
    cluster_prior_gap_bound,
    no_privacy_variance,
    noisy_histogram_gap,
    noisy_horvitz_thompson_gap,
    uniform_prior_variance,
)
from privatizers.accounting.rounding import counts_loss
from privatizers.mechanisms.statistics.noisy_counts import NoisyCounts, moved_cells
from privatizers.planning.design import MechanismName, Request, design
from schemas.arrays import Floats
from tests.statistical.found import errors_off
from tests.statistical.simulate import Trial
from tests.support.distances import assert_mean

N_RELEASES = 20_000
CHUNK = 4_000
ERRORS = 5.0

GRID = np.array([-1.0, 0.0, 3.0])
SIZES = np.array([[12, 8], [5, 3]])
RATE = 0.4


def trial(
    name: MechanismName, rate: float = RATE, gamma: float = 0.05, scale: float = 2.0
) -> Trial:
    """Two clusters that differ, and effects that differ from unit to unit."""
    uniform = name == "uniform-prior-dp"
    asked = Request(
        name,
        len(GRID),
        strata_statistic="none" if uniform else "counts",
        resampling_probability=rate,
        truncation_threshold=None if uniform else gamma,
        noise_scale=None if uniform else scale,
    )
    cluster = np.repeat(np.arange(2), SIZES.sum(axis=1))
    position = np.arange(len(cluster))
    control = np.where(position % 4 < 3, 2 * cluster, position % 3)
    levels = np.stack([control, np.where(position % 3 == 0, (control + 1) % 3, control)])
    return Trial(GRID, SIZES, levels, design(asked).mechanism)


def population_of(people: Trial) -> Population:
    return Population.of_units(people.grid, people.levels, people.cluster)


@cache
def estimates(people_of: tuple[MechanismName, float, float, float]) -> tuple[Floats, Floats]:
    """τ̂_Q of many releases, and what it would have been without privacy."""
    people, generator = trial(*people_of), np.random.default_rng(35)
    private: list[Floats] = []
    plain: list[Floats] = []
    for _ in range(N_RELEASES // CHUNK):
        releases = people.release(people.assign(CHUNK, generator))
        for evidence, found in ((releases.evidence(), private), (releases.unprotected(), plain)):
            own = contrasts(evidence, "tau_q", 1, 0, CHUNK, same_shares=False)
            found.append(own.estimate)
    return np.concatenate(private), np.concatenate(plain)


def squares(draws: Floats, mean: float | None) -> Floats:
    apart: Floats = (draws - (draws.mean() if mean is None else mean)) ** 2
    return apart


def assert_variance(draws: Floats, expected: float, mean: float | None = None) -> None:
    """``expected`` is the variance of the ``draws``, as far as they tell."""
    assert_mean(squares(draws, mean), expected, ERRORS)


def is_variance_of(draws: Floats, expected: float, mean: float | None = None) -> bool:
    """The same, for what is wrong on purpose."""
    return errors_off(squares(draws, mean), expected) < ERRORS


UNIFORM: tuple[MechanismName, float, float, float] = ("uniform-prior-dp", RATE, 0.05, 2.0)


def exact() -> Variance:
    return uniform_prior_variance(population_of(trial(*UNIFORM)), SIZES, RATE)


def test_theorem_a5_is_the_variance_of_releases_with_the_uniform_prior() -> None:
    private, plain = estimates(UNIFORM)
    assert_variance(private, exact().total)
    assert_variance(plain, exact().assignment)
    assert_variance(private - plain, exact().noise, mean=0.0)


def test_that_check_can_fail() -> None:
    """Without the effects' variance, with clusters forgotten, and 30 per cent off."""
    people = trial(*UNIFORM)
    population, (private, plain) = population_of(people), estimates(UNIFORM)
    assert population.effect_variance.min() > 0
    careless = Population(population.grid, population.n_units, population.shares, np.zeros(2))
    one = Population.of_units(GRID, people.levels, np.zeros(len(people.cluster), dtype=np.int64))
    whole = uniform_prior_variance(one, SIZES.sum(axis=0, keepdims=True), RATE)
    assert not is_variance_of(plain, no_privacy_variance(careless, SIZES))
    assert not is_variance_of(plain, whole.assignment)
    for off in (0.7, 1.3):
        assert not is_variance_of(private, off * exact().total)
        assert not is_variance_of(private - plain, off * exact().noise, mean=0.0)


CLUSTER: tuple[tuple[MechanismName, float, float, float], ...] = (
    ("cluster-dp", 0.4, 0.05, 2.0),
    ("cluster-dp", 0.8, 0.3, 10.0),
)


@pytest.mark.parametrize("people_of", CLUSTER, ids=str)
def test_the_bounds_hold_for_cluster_dp(
    people_of: tuple[MechanismName, float, float, float],
) -> None:
    """By far, so it is the sizes of the two parts that other tests have to see to."""
    private, plain = estimates(people_of)
    people = trial(*people_of)
    found = cluster_prior_gap_bound(population_of(people), SIZES, *people_of[1:])
    square = (private - plain) ** 2
    most = square.mean() + ERRORS * square.std() / np.sqrt(N_RELEASES)
    assert 0 < square.mean() < most < found.tight <= found.printed


ALMOST_NO_NOISE: tuple[MechanismName, float, float, float] = ("cluster-dp", 0.4, 1e-4, 0.01)


def test_its_first_part_is_met_but_for_a_unit_where_the_prior_is_the_truth() -> None:
    """The gap is (1/(1 − λ)² − 1) Σ b_c² S²/n_ac · (n_ac − 1)/n_ac then."""
    private, plain = estimates(ALMOST_NO_NOISE)
    population = population_of(trial(*ALMOST_NO_NOISE))
    weight = (population.n_units / population.n_units.sum()) ** 2
    ours = cluster_prior_gap_bound(population, SIZES, *ALMOST_NO_NOISE[1:])
    terms = weight[:, np.newaxis] * population.variances / SIZES
    expected = ours.within * float(np.sum(terms * (SIZES - 1) / SIZES) / terms.sum())
    assert_variance(private - plain, expected, mean=0.0)
    assert not is_variance_of(private - plain, 0.7 * expected, mean=0.0)
    assert not is_variance_of(private - plain, 1.3 * expected, mean=0.0)
    assert 0.7 * ours.within < expected < ours.within


# Propositions A.2 and A.3

N_DRAWS = 40_000


def histogram_noise(grid: Floats, epsilon: float) -> Floats:
    """What the product's noise on counts does to the difference of means, for two clusters."""
    k = len(grid)
    scale = moved_cells(k) / epsilon
    assert float(counts_loss(scale, moved_cells(k))) == pytest.approx(epsilon)
    counts = np.zeros((N_DRAWS * SIZES.size, k), dtype=np.int64)
    noise = NoisyCounts(k, scale).noised(counts).reshape(N_DRAWS, *SIZES.shape, k)
    mean = noise @ (grid - grid.mean()) / SIZES
    share = SIZES.sum(axis=1) / SIZES.sum()
    off: Floats = (mean[:, :, 1] - mean[:, :, 0]) @ share
    return off


@pytest.mark.parametrize("grid", [GRID, GRID[:2]], ids=["three", "two"])
def test_the_gap_of_the_histogram_is_the_variance_of_its_noise(grid: Floats) -> None:
    drawn = histogram_noise(grid, 1.0)
    expected = noisy_histogram_gap(grid, SIZES, SIZES.sum(axis=1), 1.0)
    assert_variance(drawn, expected, mean=0.0)
    for wrong in (0.25, 0.7, 1.3):
        assert not is_variance_of(drawn, wrong * expected, mean=0.0)


def test_the_gap_of_noisy_horvitz_thompson_is_the_variance_of_its_noise() -> None:
    """Algorithm 3 with the corrected scale; from a fixed seed."""
    random, share = np.random.default_rng(3), SIZES.sum(axis=1) / SIZES.sum()
    scale = 4.0 / SIZES.min(axis=1) / 0.5
    drawn = random.laplace(scale=scale, size=(N_DRAWS, 2)) @ share
    expected = noisy_horvitz_thompson_gap(GRID, SIZES, SIZES.sum(axis=1), 0.5)
    assert_variance(drawn, expected, mean=0.0)
    for wrong in ((3 / 4) ** 2, 0.7, 1.3):  # the first is max |y| for the range
        assert not is_variance_of(drawn, wrong * expected, mean=0.0)
