"""Over 20,000 releases every estimator is right on average, and its variance is what it says.

One small population is randomised and released anew each time: assignment from a fixed seed,
privacy randomness from the operating system as always, the same functions as a release calls.
The larger clusters of it have a pool each, and two small ones share one.

False alarms, a run of this file:

- 17 means within ``ERRORS`` = 5 standard errors: 6e-7 each;
- 12 ratios of variances of τ̂_Q and 6 of noise variances within ``RATIO`` = 5 % of 1: an empirical
  variance of 20,000 draws that are close to normal has a standard error of √(2/20,000) = 1 %, so
  6e-7 each; 12 of the others, with noise from counts in them, within ``WIDE`` of 1, which is 5
  standard errors or more from what they are: 6e-7 each at most;

together 3e-5. Each check comes with a broken estimator that it catches.
"""

from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest

from estimators.arm_effects import Contrasts, contrasts
from estimators.means import EstimatorName
from estimators.response.debias import prior_moments
from estimators.response.pool_statistics import counts_noise
from estimators.strata.evidence import Evidence
from privatizers.mechanisms.mechanism import Mechanism, StrataRelease
from privatizers.planning.design import MechanismName, Request, design
from schemas.arrays import Floats
from tests.statistical.found import errors_off
from tests.statistical.simulate import Releases, Trial
from tests.support.distances import Expected, assert_between, assert_mean, mean_error

N_RELEASES = 20_000
CHUNK = 2_000  # releases at a time: some 140,000 units
ERRORS = 5.0
RATIO = 0.05
WIDE = (0.92, 1.15)
ABOUT_ONE = (0.98, 1.08)

GRID = np.array([0.0, 1.0, 2.0])
RATE = 0.25
SIZES = np.array([[24, 16], [10, 6], [6, 6]])
"""Units by cluster and arm, control first. The last two share a pool: ``MIN_STRATUM``."""
MIN_STRATUM = 10

NAMES: tuple[MechanismName, ...] = ("cluster-dp", "cluster-free-dp", "uniform-prior-dp")
ESTIMATORS: tuple[EstimatorName, ...] = ("tau_q", "histogram", "combined")


def mechanism_named(name: MechanismName) -> Mechanism:
    own_prior = name != "uniform-prior-dp"
    asked = Request(
        name,
        len(GRID),
        strata_statistic="counts",
        resampling_probability=RATE,
        truncation_threshold=0.1 if own_prior else None,
        noise_scale=2.0,
    )
    return design(asked).mechanism


def trial(name: MechanismName, *, constant: bool) -> Trial:
    """Clusters that differ; an effect of 1 for everybody, or of −2, 0 and 2 from unit to unit."""
    cluster = np.repeat(np.arange(len(SIZES)), SIZES.sum(axis=1))
    position = np.arange(len(cluster))
    if constant:
        control = (position % 4 < cluster + 1).astype(np.int64)
        levels = np.stack([control, control + 1])
    else:
        control = np.where(position % (cluster + 3) < 2, 0, position % 3)
        levels = np.stack([control, 2 - control])
    return Trial(GRID, SIZES, levels, mechanism_named(name), MIN_STRATUM)


def excess(people: Trial) -> float:
    """By how much Neyman's variance is too large: Σ b_c² S²(τ_c)/n_c."""
    effects, cluster = GRID[people.levels[1]] - GRID[people.levels[0]], people.cluster
    own = [effects[cluster == nth] for nth in range(len(SIZES))]
    return float(sum((len(x) / len(effects)) ** 2 * x.var(ddof=1) / len(x) for x in own))


def lone(evidence: Evidence) -> Evidence:
    """Clusters with a pool of their own: what the histogram may speak of here."""
    kept = np.flatnonzero(evidence.pools.n_clusters[evidence.slices.pool] == 1)
    return replace(
        evidence,
        slices=evidence.slices.take(kept),
        mean=evidence.mean.take(kept),
        square=evidence.square.take(kept),
    )


def in_every_release(evidence: Evidence, name: EstimatorName = "tau_q") -> Contrasts:
    used = lone(evidence) if name == "histogram" else evidence
    n_releases = int(evidence.slices.group.max()) + 1
    return contrasts(used, name, 1, 0, n_releases, same_shares=False)


def joined(parts: list[Contrasts]) -> Contrasts:
    names = [one.name for one in fields(Contrasts)]
    return Contrasts(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    )


@cache
def chunks(name: MechanismName, *, constant: bool) -> tuple[Releases, ...]:
    people, generator = trial(name, constant=constant), np.random.default_rng(20_000)
    return tuple(
        people.release(people.assign(CHUNK, generator)) for _ in range(N_RELEASES // CHUNK)
    )


@cache
def private(
    name: MechanismName, estimator: EstimatorName = "tau_q", *, constant: bool
) -> Contrasts:
    parts = chunks(name, constant=constant)
    return joined([in_every_release(part.evidence(), estimator) for part in parts])


every_mechanism = pytest.mark.parametrize("name", NAMES, scope="module")
"""One worker has all tests of a case, and simulates it once."""
both_populations = pytest.mark.parametrize("constant", [True, False], ids=["constant", "varied"])
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)


def truth_of(name: MechanismName, estimator: EstimatorName, *, constant: bool) -> float:
    """The effect on everybody, or on the clusters with a pool of their own."""
    people = trial(name, constant=constant)
    if estimator != "histogram":
        return people.truth()
    pool_of = people.strata.pool_of
    return people.truth(inside=np.bincount(pool_of)[pool_of[people.cluster]] == 1)


def apart(own: Contrasts) -> Floats:
    """Squares of which the mean is the variance of the estimates."""
    size = len(own.estimate)
    squares: Floats = (own.estimate - own.estimate.mean()) ** 2 * (size / (size - 1))
    return squares


def assert_ratio(
    variances: Floats,
    squares: Floats,
    bounds: tuple[float, float] = (1 - RATIO, 1 + RATIO),
    expected: Expected = 1.0,
) -> None:
    """Of their means; both vary, and together."""
    ratio = float(variances.mean() / squares.mean())
    error = ratio * mean_error(variances / variances.mean() - squares / squares.mean())
    assert_between(ratio, bounds, expected, error)


def is_near_one(ratio: float) -> bool:
    return abs(ratio - 1) < RATIO


def can_be_had(name: MechanismName, estimator: EstimatorName) -> bool:
    """One pool for all clusters has no histogram where arms have different shares."""
    return estimator != "histogram" or name != "cluster-free-dp"


COMBINATIONS = [(name, one) for name in NAMES for one in ESTIMATORS if can_be_had(name, one)]
every_combination = pytest.mark.parametrize(("name", "estimator"), COMBINATIONS)


@every_combination
def test_releases_at_once_are_estimated_as_each_alone(
    name: MechanismName, estimator: EstimatorName
) -> None:
    evidence = chunks(name, constant=False)[0].evidence()
    together = in_every_release(evidence, estimator)
    for nth in range(20):
        at = np.flatnonzero(evidence.slices.group == nth)
        own = replace(evidence.slices.take(at), group=np.zeros(len(at), dtype=np.int64))
        alone = replace(
            evidence, slices=own, mean=evidence.mean.take(at), square=evidence.square.take(at)
        )
        found = in_every_release(alone, estimator)
        for field in fields(Contrasts):
            expected = getattr(found, field.name)[0]
            assert getattr(together, field.name)[nth] == pytest.approx(expected, rel=1e-12)


@every_combination
@both_populations
def test_estimates_are_right_on_average(
    name: MechanismName, estimator: EstimatorName, constant: bool
) -> None:
    truth = truth_of(name, estimator, constant=constant)
    assert_mean(private(name, estimator, constant=constant).estimate, truth, ERRORS)


@every_mechanism
def test_for_a_constant_effect_neymans_variance_is_right_on_average(name: MechanismName) -> None:
    own = private(name, constant=True)
    assert excess(trial(name, constant=True)) == 0
    assert_ratio(own.variance, apart(own))


@every_mechanism
def test_for_a_varied_effect_the_variance_is_too_large_by_what_neyman_says(
    name: MechanismName,
) -> None:
    own, surplus = private(name, constant=False), excess(trial(name, constant=False))
    assert own.variance.mean() / own.estimate.var(ddof=1) > 1 - RATIO
    assert_ratio(own.variance - surplus, apart(own))


@every_combination
def test_for_a_constant_effect_every_variance_is_about_right_on_average(
    name: MechanismName, estimator: EstimatorName
) -> None:
    own = private(name, estimator, constant=True)
    assert_ratio(own.variance, apart(own), WIDE, ABOUT_ONE)


@every_mechanism
@both_populations
def test_the_noise_variance_is_that_of_the_difference_privacy_makes(
    name: MechanismName, constant: bool
) -> None:
    own = private(name, constant=constant)
    plain = joined(
        [in_every_release(part.unprotected()) for part in chunks(name, constant=constant)]
    )
    assert_ratio(own.noise_variance, (own.estimate - plain.estimate) ** 2)


@every_mechanism
@both_populations
def test_so_is_that_of_the_combined_estimate(name: MechanismName, constant: bool) -> None:
    own = private(name, "combined", constant=constant)
    plain = joined(
        [in_every_release(part.unprotected()) for part in chunks(name, constant=constant)]
    )
    assert_ratio(own.noise_variance, (own.estimate - plain.estimate) ** 2, WIDE, ABOUT_ONE)


@every_mechanism
def test_the_combined_estimate_is_the_sharper_one(name: MechanismName) -> None:
    combined = private(name, "combined", constant=True).estimate.var()
    assert combined < 0.97 * private(name, constant=True).estimate.var()


@every_mechanism
def test_the_noise_of_privacy_is_seen_by_the_check_of_the_variance(name: MechanismName) -> None:
    """Left out, it would be missed: these releases are not ones where it hardly matters."""
    own = private(name, constant=True)
    without = (own.variance - own.noise_variance).mean()
    assert not is_near_one(without / own.estimate.var(ddof=1))
    combined = private(name, "combined", constant=True)
    low, _ = WIDE
    without = (combined.variance - combined.noise_variance).mean()
    assert without / combined.estimate.var(ddof=1) < low


def test_the_check_of_the_mean_catches_a_rate_five_per_cent_off() -> None:
    for factor in (0.95, 1.05):
        for estimator in ("tau_q", "combined"):
            broken = joined(
                [
                    in_every_release(part.evidence(rate=RATE * factor), estimator)
                    for part in chunks("uniform-prior-dp", constant=True)
                ]
            )
            truth = truth_of("uniform-prior-dp", estimator, constant=True)
            # τ̂_Q is off by 1.6 % of the effect, 11 standard errors: a miss is rarer than 1e-11.
            assert errors_off(broken.estimate, truth) > ERRORS


@pytest.mark.parametrize("name", NAMES[:2])
def test_the_check_of_the_mean_catches_priors_of_the_wrong_arm(name: MechanismName) -> None:
    parts = []
    for releases in chunks(name, constant=True):
        right = releases.pools
        other = np.arange(len(right.prior_mean)) ^ 1  # arms take turns
        wrong = replace(releases, pools=replace(right, prior_mean=right.prior_mean[other]))
        parts.append(in_every_release(wrong.evidence()))
    truth = truth_of(name, "tau_q", constant=True)
    assert errors_off(joined(parts).estimate, truth) > 2 * ERRORS


def test_the_check_of_the_mean_catches_weights_taken_from_the_released_priors() -> None:
    """Weights should come from the declared guess; from what is released they bias.

    Most at outcomes that are rare and far off: nine in ten at one end, the tenth at the other.
    """
    asked = Request(
        "cluster-dp",
        3,
        resampling_probability=0.7,
        truncation_threshold=0.02,
        noise_scale=4.0,
    )
    grid, far = np.array([0.0, 1.0, 10.0]), np.arange(100) % 10 == 0
    levels = np.stack([2 * far.astype(np.int64), 2 * (~far).astype(np.int64)])
    people = Trial(grid, np.array([[50, 50]]), levels, design(asked).mechanism)
    steps = grid - grid.mean()
    # They bias it by about 20 standard errors of 20,000 releases: a miss is rarer than 1e-15.
    releases = people.release(people.assign(20_000, np.random.default_rng(1)))
    assert isinstance(releases.drawn, StrataRelease)
    response = releases.drawn.response
    _, spread = prior_moments(steps, response.prior)
    odds = response.resampling_probability / (1 - response.resampling_probability)
    own = 50 * (odds + odds * (1 + odds)) * spread  # unit_noise at the prior, times units
    weight = own / (own + counts_noise(4.0, "counts").of_sum(steps).second)
    of_mean = replace(releases.pools.of_mean, weight=weight)
    wrong = replace(releases, pools=replace(releases.pools, of_mean=of_mean))
    found, right = (in_every_release(one.evidence(), "combined") for one in (wrong, releases))
    assert errors_off(found.estimate, people.truth()) > 2 * ERRORS
    assert_mean(right.estimate, people.truth(), ERRORS)


def test_the_population_is_one_in_which_neyman_is_conservative() -> None:
    own, people = private("uniform-prior-dp", constant=False), trial(NAMES[2], constant=False)
    assert excess(people) > 2 * RATIO * own.variance.mean()
    assert people.truth() != 0


def test_small_clusters_share_a_pool_in_these_releases() -> None:
    assert trial("cluster-dp", constant=True).strata.pool_of.tolist() == [0, 1, 1]
