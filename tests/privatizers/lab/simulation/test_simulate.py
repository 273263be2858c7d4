"""Simulations agree with theory where there is one, and refuse what does not fit.

People and assignments come from fixed seeds, the noise of privacy from the operating system, as
always. False alarms: means and shares are held within ``ERRORS`` = 5 standard errors of what they
should be, variances within 5 of theirs (√((κ + 2)/N), κ the excess kurtosis as measured): 6e-7
each, some twenty in all. What has to fail is off by many more.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.stats import chi2, kurtosis, norm

from estimators.arm_effects import contrasts
from estimators.theory import Population, no_privacy_variance, uniform_prior_variance
from privatizers.domain.lattice import lattice_of
from privatizers.lab.simulation import simulate as simulation
from privatizers.lab.simulation.simulate import EstimateSample, simulate
from privatizers.lab.simulation.trial import Trial
from privatizers.mechanisms.mechanism import Mechanism
from privatizers.planning.design import Request, StatisticName, design
from schemas.arrays import Floats, Ints
from tests.support.distances import assert_between, assert_near, distance, share_error

ERRORS = 5.0
GRID = np.array([-1.0, 0.0, 1.0, 3.0])
SIZES = np.array([[60, 40], [25, 35]])
RATE = 0.4
N_RELEASES = 6_000


def mechanism(
    statistic: StatisticName = "none", grid: Floats = GRID, rate: float = RATE
) -> Mechanism:
    asked = Request(
        "uniform-prior-dp",
        len(grid),
        statistic,
        resampling_probability=rate,
        noise_scale=None if statistic == "none" else 6.0,
        lattice=lattice_of(grid.tolist()),
    )
    return design(asked).mechanism


def people(sizes: Ints = SIZES) -> Ints:
    """Clusters that differ; treatments lift two in three by one level."""
    cluster = np.repeat(np.arange(len(sizes)), sizes.sum(axis=1))
    position = np.arange(len(cluster))
    control = (position % (3 + cluster) > 1) * (1 + position % 2)
    lifted = control + (position % 3 > 0)
    return np.stack([control, *[lifted] * (sizes.shape[1] - 1)])


def trial(statistic: StatisticName = "none", **changes: object) -> Trial:
    return replace(Trial(GRID, SIZES, people(), mechanism(statistic)), **changes)  # type: ignore[arg-type] # tests' own


@cache
def answers(statistic: StatisticName = "none", name: str = "tau_q") -> EstimateSample:
    found = simulate(trial(statistic), N_RELEASES, np.random.default_rng(1))
    return next(one for one in found.answers if one.estimator == name)


def of_variance(variance: float, found: Floats) -> tuple[float, float, float]:
    """The ratio of what was found to it, what is expected of that and its standard error."""
    error = np.sqrt((kurtosis(found) + 2) / len(found))
    return float(found.var(ddof=1) / variance), 1.0, float(error)


def assert_variance(variance: float, found: Floats) -> None:
    assert_near(*of_variance(variance, found), ERRORS)


def is_off(variance: float, found: Floats) -> float:
    """By how many standard errors the variance of what was found is off."""
    return float(abs(distance(*of_variance(variance, found))))


def closed_form(rate: float = RATE) -> float:
    population = Population.of_units(GRID, people(), trial().cluster)
    return uniform_prior_variance(population, SIZES, rate).total


# agreement with theory


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("statistic", "name"),
    [
        ("none", "tau_q"),
        ("counts", "histogram"),
        ("counts", "combined"),
        ("means", "histogram"),
        ("means", "combined"),
    ],
)
def test_estimates_are_right_on_average(statistic: StatisticName, name: str) -> None:
    found = answers(statistic, name)
    truth = float(np.mean(GRID[people()[1]] - GRID[people()[0]]))
    assert found.truth == pytest.approx(truth, rel=1e-12)
    assert_near(found.mean, truth, found.mean_error, ERRORS)
    assert abs(found.mean - 1.1 * truth) > ERRORS * found.mean_error


def test_the_variance_of_tau_q_is_that_of_theorem_a5() -> None:
    found = answers().estimate
    assert_variance(closed_form(), found)


def test_the_check_of_the_variance_would_see_a_third_more_or_less_noise() -> None:
    found = answers().estimate
    for rate in (0.25, 0.55):
        assert is_off(closed_form(rate), found) > 2 * ERRORS


def test_without_privacy_the_variance_is_neymans() -> None:
    population = Population.of_units(GRID, people(), trial().cluster)
    expected = no_privacy_variance(population, SIZES)
    assert_variance(expected, answers().unprotected)
    assert is_off(closed_form(), answers().unprotected) > 2 * ERRORS


def test_what_privacy_adds_is_what_is_left() -> None:
    found = answers()
    population = Population.of_units(GRID, people(), trial().cluster)
    noise = uniform_prior_variance(population, SIZES, RATE).noise
    assert_variance(noise, found.estimate - found.unprotected)


@pytest.mark.statistical
def test_the_combined_estimate_is_the_sharper_one() -> None:
    assert answers("counts", "combined").std_dev < 0.97 * answers("counts").std_dev
    assert answers("means", "combined").std_dev < 0.97 * answers("means").std_dev


NOISY = 0.7
CONSTANT = Trial(
    GRID[:3],
    SIZES,
    people()[[0, 0]] // 2 + np.array([[0], [1]]),
    mechanism(grid=GRID[:3], rate=NOISY),
)
"""Everybody gains 1: what is stated is neither too much nor too little."""


@cache
def constant(effect: int = 1) -> EstimateSample:
    levels = CONSTANT.levels[[0, effect]]
    return simulate(replace(CONSTANT, levels=levels), N_RELEASES, np.random.default_rng(2)).of(
        "tau_q"
    )


@pytest.mark.statistical
def test_intervals_cover_as_often_as_they_say() -> None:
    found = constant()
    error = share_error(0.95, N_RELEASES)
    assert_near(found.coverage, 0.95, error, ERRORS)
    assert found.variance.mean() == pytest.approx(found.std_dev**2, rel=0.1)
    narrow = replace(found, variance=found.variance * 0.7**2)
    assert narrow.coverage < 0.95 - 3 * ERRORS * error


def test_power_is_that_of_the_normal_approximation() -> None:
    population = Population.of_units(CONSTANT.grid, CONSTANT.levels, CONSTANT.cluster)
    variance = uniform_prior_variance(population, SIZES, NOISY).total
    found = constant()

    def power(error: float) -> float:
        reach = norm.ppf(0.975)
        return float(norm.cdf(1 / error - reach) + norm.cdf(-1 / error - reach))

    expected = power(np.sqrt(variance))
    assert 0.3 < expected < 0.99  # or nothing could be told
    error = np.sqrt(expected * (1 - expected) / N_RELEASES)
    near = ERRORS * error + 0.01  # what t and normal differ by
    assert_between(
        found.power, (expected - near, expected + near), (expected - 0.01, expected + 0.01), error
    )
    for factor in (0.7, 1.3):
        assert abs(found.power - power(factor * np.sqrt(variance))) > near


def test_where_nothing_is_to_be_found_power_is_the_rate_of_false_alarms() -> None:
    found = constant(0)
    assert found.truth == 0
    assert found.power == pytest.approx(1 - found.coverage, abs=1e-12)
    assert_near(found.power, 0.05, share_error(0.05, N_RELEASES), ERRORS)


def test_other_levels_have_other_intervals() -> None:
    found = simulate(CONSTANT, 400, np.random.default_rng(2), level=0.5).of("tau_q")
    assert found.level == 0.5
    assert_near(found.coverage, 0.5, share_error(0.5, 400), ERRORS)


# rounding


def test_outcomes_between_grid_points_are_rounded_anew_in_every_release() -> None:
    """Neither grid point of two holds an outcome of 0 or 1: rounding adds to the noise.

    Without it the variance would be 15 standard errors off, so that 10 are missed once in 10⁶.
    """
    ends = np.array([-1.0, 3.0])
    coarse = Trial(ends, SIZES, people(), mechanism(grid=ends), support=GRID)
    found = simulate(coarse, 2 * N_RELEASES, np.random.default_rng(3)).of("tau_q")
    assert found.truth == answers().truth
    assert_near(found.mean, found.truth, found.mean_error, ERRORS)
    population = Population.of_units(GRID, people(), trial().cluster)
    assert_variance(no_privacy_variance(population, SIZES), found.unprotected)
    # A response on two points is as noisy for each, (4/2)²(2r + r²) a unit; and (3 − y)(y + 1).
    values, r = GRID[people()], RATE / (1 - RATE)
    response = np.full(values.shape, 4 * (2 * r + r**2))
    whole, without = (
        sum(
            float(np.mean(unit[arm, coarse.cluster == cluster]))
            * (SIZES[cluster].sum() / SIZES.sum()) ** 2
            / SIZES[cluster, arm]
            for cluster in range(2)
            for arm in range(2)
        )
        for unit in (response + (3 - values) * (values + 1), response)
    )
    assert_variance(whole, found.estimate - found.unprotected)
    assert is_off(without, found.estimate - found.unprotected) > 2 * ERRORS


# people from a guess


def test_people_follow_the_guess_in_every_cluster() -> None:
    shares = np.array([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]])
    sizes = np.array([[3_000, 2_000], [1_000, 4_000]])
    random = np.random.default_rng(4)
    made = Trial.from_guess(GRID, sizes, mechanism(), shares, np.array([0.0]), random)
    counts = np.zeros((2, 4))
    np.add.at(counts, (made.cluster, made.levels[0]), 1)
    expected = shares * sizes.sum(axis=1, keepdims=True)
    assert chi2.sf(np.sum((counts - expected) ** 2 / expected), 6) > 1e-3  # the seed is fixed
    assert chi2.sf(np.sum((counts - expected[::-1]) ** 2 / expected[::-1]), 6) < 1e-9
    assert made.truth() == 0


def test_effects_are_added_and_clipped_as_a_release_would() -> None:
    sizes = np.array([[500, 500, 500]])
    shares = np.array([0.0, 0.5, 0.0, 0.5])
    random = np.random.default_rng(5)
    made = Trial.from_guess(GRID, sizes, mechanism(), shares, np.array([0.5, -7.0]), random)
    control = GRID[1] * (made.values[made.levels[0]] == 0) + 3.0 * (
        made.values[made.levels[0]] == 3
    )
    assert np.array_equal(made.values[made.levels[1]], np.minimum(control + 0.5, 3.0))
    assert (made.values[made.levels[2]] == -1.0).all()
    lifted = float((control == 0).mean())
    assert made.truth(1) == pytest.approx(0.5 * lifted)
    found = simulate(made, 200, random)
    assert [one.arm for one in found.answers] == [1, 2]
    for one in found.answers:
        assert_near(one.mean, made.truth(one.arm), one.mean_error, ERRORS)


# assignment


def test_arms_have_their_sizes_in_every_cluster_and_nobody_is_favoured() -> None:
    three = Trial(
        GRID, np.array([[3, 2, 1], [1, 1, 4]]), people(np.ones((2, 6), int))[:3], mechanism()
    )
    arms = three.assign(12_000, np.random.default_rng(6))
    for cluster, sizes in enumerate(three.sizes):
        own = arms[:, three.cluster == cluster]
        for arm, size in enumerate(sizes):
            assert ((own == arm).sum(axis=1) == size).all()
            share, often = size / 6, (own == arm).mean(axis=0)
            assert np.all(np.abs(often - share) < 4 * np.sqrt(share * (1 - share) / 12_000))


def test_the_callers_generator_settles_assignments_and_never_the_noise() -> None:
    one, two = (simulate(trial("counts"), 50, np.random.default_rng(7)) for _ in range(2))
    assert np.array_equal(one.of("tau_q").unprotected, two.of("tau_q").unprotected)
    for name in ("tau_q", "histogram", "combined"):
        assert not np.any(one.of(name).estimate == two.of(name).estimate)
    other = simulate(trial("counts"), 50, np.random.default_rng(8))
    assert not np.array_equal(one.of("tau_q").unprotected, other.of("tau_q").unprotected)


# who is spoken of


def test_releases_at_a_time_come_to_the_number_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "UNITS_AT_A_TIME", 7 * int(SIZES.sum()))
    found = simulate(trial(), 31, np.random.default_rng(9))
    assert found.n_releases == 31
    assert len(found.of("tau_q").estimate) == 31


@pytest.mark.parametrize("same_shares", [True, False])
def test_the_histogram_is_that_of_whole_pools(same_shares: bool) -> None:
    """Each release alone, through the estimators' own way, says the same."""
    sizes = np.array([[30, 20], [6, 5], [5, 7]])
    made = Trial(GRID, sizes, people(sizes), mechanism("counts"), min_stratum=10)
    assert made.strata.pool_of.tolist() == [0, 1, 1]
    releases = made.release(made.assign(1, np.random.default_rng(10)))
    evidence = releases.evidence()
    own = releases.of_pools(evidence, same_shares=same_shares)
    wanted = evidence.by_pool(same_shares=same_shares)
    one, other = (
        contrasts(used, "histogram", 1, 0, 1, same_shares=same_shares) for used in (own, wanted)
    )
    assert one.estimate == pytest.approx(other.estimate, rel=1e-12)
    assert one.variance == pytest.approx(other.variance, rel=1e-12)


def test_where_pools_are_shared_the_histogram_speaks_of_the_others() -> None:
    sizes = np.array([[30, 20], [6, 5], [5, 7]])
    made = Trial(GRID, sizes, people(sizes), mechanism("counts"), min_stratum=10)
    found = simulate(made, 3_000, np.random.default_rng(11))
    alone = found.of("histogram")
    assert alone.truth == made.truth(inside=made.cluster == 0) != made.truth()
    for one in found.answers:
        assert_near(one.mean, one.truth, one.mean_error, ERRORS)
    assert np.ptp(alone.unprotected) > 0


def test_a_cluster_without_an_arm_is_left_out_of_the_truth_too() -> None:
    sizes = np.array([[30, 20], [40, 0]])
    levels = people(np.array([[25, 25], [20, 20]]))
    levels[1, 50:] = 3
    made = Trial(GRID, sizes, levels, mechanism())
    found = simulate(made, 500, np.random.default_rng(12)).of("tau_q")
    assert found.truth == made.truth(inside=made.cluster == 0) != made.truth()
    assert_near(found.mean, found.truth, found.mean_error, ERRORS)


def test_a_segment_has_answers_of_its_own() -> None:
    inside = trial().levels[0] >= 1  # one that is related to outcomes
    made = trial("means")
    found = simulate(made, 3_000, np.random.default_rng(13), inside=inside)
    assert [one.estimator for one in found.answers] == ["tau_q", "combined"]
    for one in found.answers:
        assert one.truth == made.truth(inside=inside) != made.truth()
        assert_near(one.mean, one.truth, one.mean_error, ERRORS)


def test_where_nothing_can_be_compared_there_are_no_answers() -> None:
    lonely = Trial(GRID, np.array([[5, 1]]), np.zeros((2, 6), int), mechanism("counts"))
    found = simulate(lonely, 3, np.random.default_rng(14))
    assert found.answers == ()
    with pytest.raises(ValueError, match="no tau_q of arm 1"):
        found.of("tau_q")


def test_a_guess_changes_the_weights_and_nothing_else() -> None:
    """A guess that all are alike at the middle of the grid makes outcomes look more certain."""
    skewed = trial("counts", guess=np.array([0.0, 0.0, 1.0, 0.0]))
    own, other = skewed.weights, trial("counts").weights
    assert (own.of_mean < other.of_mean).all()
    assert (own.of_mean > 0).all()
    found = simulate(skewed, 2_000, np.random.default_rng(15)).of("combined")
    assert_near(found.mean, found.truth, found.mean_error, ERRORS)


# what does not fit


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grid": GRID[:3]}, "grid has the shape"),
        ({"sizes": SIZES[0]}, "sizes have the shape"),
        ({"sizes": SIZES[:, :1]}, "sizes have the shape"),
        ({"sizes": SIZES + 1}, "levels have the shape"),
        ({"levels": people()[:1]}, "levels have the shape"),
        ({"levels": people()[:, 1:]}, "levels have the shape"),
        ({"levels": people() + 2}, "levels are positions from 0 to 3"),
        ({"levels": people() - 1}, "levels are positions from 0 to 3"),
        ({"guess": np.full(3, 1 / 3)}, "guess"),
        ({"support": np.linspace(-2, 3, 4)}, "outside the grid"),
        ({"support": GRID[:2]}, "levels are positions from 0 to 1"),
    ],
)
def test_what_does_not_fit_together_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trial(**change)  # type: ignore[arg-type] # which is the point


@pytest.mark.parametrize(
    ("shares", "effects", "message"),
    [
        (np.full(3, 1 / 3), np.array([1.0]), "shares have the shape"),
        (np.full((3, 4), 0.25), np.array([1.0]), "shares have the shape"),
        (np.full(4, 0.3), np.array([1.0]), "add up to one"),
        (np.array([-0.5, 0.5, 0.5, 0.5]), np.array([1.0]), "at least 0"),
        (np.full(4, 0.25), np.array([1.0, 2.0]), "effects have the shape"),
    ],
)
def test_a_guess_that_does_not_fit_is_refused(
    shares: Floats, effects: Floats, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Trial.from_guess(GRID, SIZES, mechanism(), shares, effects, np.random.default_rng(1))


def test_one_release_has_no_spread_and_segments_have_the_shape_of_units() -> None:
    with pytest.raises(ValueError, match="takes two"):
        simulate(trial(), 1, np.random.default_rng(1))
    with pytest.raises(ValueError, match="inside has the shape"):
        simulate(trial(), 2, np.random.default_rng(1), inside=np.ones(3, bool))
