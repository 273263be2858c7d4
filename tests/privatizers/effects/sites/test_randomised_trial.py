"""A site's randomised trial: its claim, exactly; its noise, its estimate and its variance, sampled.

Statistical tests draw from the operating system's entropy. Each states the probability with which
it fails although everything is right; all are 1e-6 or less.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom, chi2, norm

from privatizers.effects.sites.randomised_trial import (
    RandomisedTrial,
    SiteEffect,
    noise_variance,
    trial_epsilon,
)
from privatizers.effects.toolbox.bounded_mean import Bounds
from privatizers.noise.lattice_laplace import lattice_scale
from schemas.arrays import Bools, Floats
from schemas.errors import ConfigError, InputError
from tests.support.distances import (
    assert_between,
    assert_mean,
    assert_near,
    assert_p_value,
    mean_error,
)

RATIOS = (0.01, 0.25, 0.3, 0.7, 1.0, 4.0)
HIGHS = (1.0, 0.3, 37.0)


# the claim


def loss(trial: RandomisedTrial, outcome: Floats, other: Floats) -> Floats:
    """What an outcome that becomes another can lose at most, in whole steps, as it is drawn."""
    high = trial.high
    values, squares = Bounds(0.0, high), Bounds(0.0, high**2 / 4)
    total = np.zeros(np.broadcast_shapes(outcome.shape, other.shape))
    y, z = values.whole(outcome), values.whole(other)
    square = [squares.whole(np.square(one * values.step - high / 2)) for one in (y, z)]
    for moved, lattice, epsilon in (
        (y - z, values, trial.epsilons[0]),
        (square[0] - square[1], squares, trial.epsilons[1]),
    ):
        scale = lattice_scale(sensitivity=lattice.upper, epsilon=epsilon, step=lattice.step)
        total += np.abs(moved) / scale
    return total


@pytest.mark.parametrize("high", HIGHS)
@pytest.mark.parametrize("ratio", RATIOS)
def test_no_change_of_an_outcome_loses_more_than_the_claim_and_one_attains_it(
    ratio: float, high: float
) -> None:
    """Every pair of 401 outcomes, and the worst by the formula, in steps as they are drawn."""
    trial = RandomisedTrial(2.0, high, ratio)
    grid = np.linspace(0, high, 401)
    found = loss(trial, grid[:, None], grid[None, :])
    worst = high * (1 - min(1.0, 1.0 / (4 * ratio))) / 2
    attained = float(loss(trial, np.array([high]), np.array([worst]))[0])
    assert max(float(found.max()), attained) <= 2.0
    assert attained > 2.0 * (1 - 2**-16)


def test_the_squares_are_free_up_to_a_quarter_and_cost_less_than_their_sum_beyond() -> None:
    assert trial_epsilon(1.0, 0.25) == trial_epsilon(1.0, 0.1) == 1.0
    for one, two in ((1.0, 0.3), (1.0, 1.0), (0.2, 3.0)):
        assert max(one, two) < trial_epsilon(one, two) < one + two
    assert trial_epsilon(1.0, 0.2500001) == pytest.approx(1.0, abs=1e-6)
    assert RandomisedTrial(1.0, 1.0).epsilons[0] == pytest.approx(1.0, abs=1e-5)


def test_squares_that_are_taken_for_free_without_being_so_are_caught() -> None:
    """A control: ε₁ = ε with ε₂ = ε/2 loses more than ε."""
    trial = RandomisedTrial(2.0, 1.0, 0.5)
    assert trial.epsilons[0] < 1.9

    class Free(RandomisedTrial):
        @property
        def epsilons(self) -> tuple[float, float]:
            return 2.0, 1.0

    free = Free(2.0, 1.0, 0.5)
    assert float(loss(free, np.array([1.0]), np.array([0.25]))[0]) > 2.2


def frequencies(trial: RandomisedTrial, outcome: float, draws: int) -> int:
    """How often the mean of two treated comes out above 1/2, for ``outcome`` and a 0."""
    treated = np.arange(300) < 2
    given = np.where(np.arange(300) == 0, outcome, 0.0)
    return sum(trial.report(treated, given).estimate > 0.5 for _ in range(draws))


class TooQuiet(RandomisedTrial):
    """Draws with a fifth of the noise."""

    @property
    def epsilons(self) -> tuple[float, float]:
        one, two = super().epsilons
        return 5 * one, 5 * two


def sampled_bound(trial: RandomisedTrial) -> float:
    """A lower bound of ln P(A)/P(A′) that is too great once in 10⁷ (Wilson, both sides)."""
    draws, z = 400, float(norm.isf(5e-8))
    shares = [frequencies(trial, outcome, draws) / draws for outcome in (1.0, 0.0)]
    ends = []
    for share, sign in zip(shares, (-1, 1), strict=True):
        middle = share + z**2 / (2 * draws)
        width = z * math.sqrt(share * (1 - share) / draws + z**2 / (4 * draws**2))
        ends.append((middle + sign * width) / (1 + z**2 / draws))
    return math.log(ends[0] / ends[1])


@pytest.mark.statistical
def test_samples_do_not_contradict_the_claim() -> None:
    """One false alarm in 10⁷ runs."""
    assert sampled_bound(RandomisedTrial(0.6, 1.0)) <= 0.6


@pytest.mark.statistical
def test_samples_contradict_a_mechanism_with_too_little_noise() -> None:
    assert sampled_bound(TooQuiet(0.6, 1.0)) > 0.6


# the noise and the estimate


def a_trial(n_treated: int, n_control: int) -> tuple[Bools, Floats]:
    generator = np.random.default_rng(3)
    treated = np.arange(n_treated + n_control) < n_treated
    return treated, generator.beta(2, 3 - treated, size=len(treated))


def reports(trial: RandomisedTrial, draws: int) -> tuple[Floats, Floats, float]:
    """Estimates and sampling variances of one data set, and its noise variance."""
    treated, outcome = a_trial(60, 90)
    found = [trial.report(treated, outcome) for _ in range(draws)]
    noise = {one.noise_variance for one in found}
    assert len(noise) == 1
    return (
        np.array([one.estimate for one in found]),
        np.array([one.sampling_variance for one in found]),
        noise.pop(),
    )


@pytest.mark.statistical
def test_the_noise_has_the_variance_that_is_stated() -> None:
    """280 draws at ε = 3; fails once in 10⁶ (kurtosis allowed for), and at a scale 30 % off."""
    trial, draws = RandomisedTrial(3.0, 1.0), 280
    estimates, _, noise = reports(trial, draws)
    treated, outcome = a_trial(60, 90)
    truth = outcome[treated].mean() - outcome[~treated].mean()
    ratio = float(((estimates - truth) ** 2).mean()) / noise
    # Laplace: the square's relative variance is at most 5
    tolerance = 4.9 * math.sqrt(5 / draws) + 0.02
    assert_between(ratio, (1 / (1 + tolerance), 1 + tolerance), 1.0, math.sqrt(5 / draws))
    assert tolerance < 1.3**2 - 1
    assert_near(float(estimates.mean()), float(truth), math.sqrt(noise / draws), 5.3)
    assert noise == pytest.approx(2 * (1 / 60**2 + 1 / 90**2) / 9, rel=1e-3)


@pytest.mark.statistical
def test_the_variance_is_unbiased_where_nothing_is_clipped() -> None:
    """Mean of 200 sampling variances at ε = 60 against the exact; 5.3 standard errors, 10⁻⁷."""
    _, sampling, _ = reports(RandomisedTrial(60.0, 1.0), 200)
    treated, outcome = a_trial(60, 90)
    exact = outcome[treated].var(ddof=1) / 60 + outcome[~treated].var(ddof=1) / 90
    assert sampling.min() > 0
    assert_mean(sampling, float(exact), 5.3)
    assert sampling.std() / math.sqrt(len(sampling)) < 0.02 * exact


@pytest.mark.statistical
def test_what_the_noise_on_a_mean_adds_to_its_square_is_taken_off() -> None:
    """Variances of 0.1 in arms of 40, noise of variance 0.005 on their means and little on squares.

    Fails once in 10⁷ (5.3 standard errors); without the term the mean would be twice as far off.
    """
    trial = RandomisedTrial(10.56, 1.0, 20.0)
    treated = np.arange(80) < 40
    outcome = 0.5 + math.sqrt(0.0975) * np.tile([-1.0, 1.0], 40)
    found = 20 * np.array([trial.report(treated, outcome).sampling_variance for _ in range(800)])
    added = noise_variance(1.0, trial.epsilons[0], 40)
    assert 0.004 < added < 0.006
    assert_mean(found, 0.1, 5.3)
    assert added > 2 * 5.3 * mean_error(found)


@pytest.mark.statistical
def test_intervals_of_it_cover() -> None:
    """300 trials of 400 people: 1.96 standard errors cover 95 %, and 83 % were they 30 % too small.

    Fewer than 87 % cover once in 10⁷ (binomial).
    """
    generator = np.random.default_rng(4)
    trial, hits = RandomisedTrial(1.0, 1.0), 0
    for _ in range(300):
        treated = generator.permutation(np.arange(400) < 160)
        outcome = (generator.random(400) < 0.3 + 0.2 * treated).astype(np.float64)
        found = trial.report(treated, outcome)
        hits += abs(found.estimate - 0.2) < 1.96 * math.sqrt(found.variance)
    alarm = float(binom.cdf(260, 300, 0.95))
    assert_p_value(float(binom.cdf(hits, 300, 0.95)), alarm, is_bound=True)


@pytest.mark.statistical
def test_the_noise_on_an_estimate_is_that_of_two_laplace_variables() -> None:
    """χ² of 400 draws in 4 cells of a quarter each; fails once in 10⁶, and at a scale 60 % off."""
    draws, trial = 400, RandomisedTrial(2.0, 1.0)
    outcome = np.array([1.0, 1.0, 0.0, 0.0])
    found = np.array([trial.report(np.arange(4) < 2, outcome).estimate - 1.0 for _ in range(draws)])
    b = 1 / trial.epsilons[0] / 2  # of the noise on a mean
    cut = [quantile(edge, b) for edge in (0.25, 0.5, 0.75)]
    for times, caught in ((1.0, False), (1.8, True), (0.55, True)):
        counts = np.histogram(times * found, bins=[-np.inf, *cut, np.inf])[0]
        statistic = float(((counts - draws / 4) ** 2 / (draws / 4)).sum())
        if caught:
            assert statistic > chi2.isf(1e-6, 3)
        else:
            assert_p_value(float(chi2.sf(statistic, 3)), 1e-6)


def quantile(probability: float, b: float) -> float:
    """Of the sum of two Laplace variables of scale b: P(> t) = (2 + t/b)/4 e^(−t/b)."""
    low, high = -60 * b, 60 * b
    for _ in range(100):
        middle = (low + high) / 2
        tail = (2 + abs(middle) / b) / 4 * math.exp(-abs(middle) / b)
        below = tail if middle < 0 else 1 - tail
        low, high = (middle, high) if below < probability else (low, middle)
    return low


# what goes wrong


def test_what_is_reported_is_above_0_and_adds_up() -> None:
    treated = np.arange(4) < 2
    for outcome in (np.zeros(4), np.ones(4), np.full(4, np.nan), np.array([9.0, -9, np.inf, 1])):
        found = RandomisedTrial(1.0, 1.0).report(treated, outcome)
        assert isinstance(found, SiteEffect)
        assert found.variance == found.sampling_variance + found.noise_variance
        assert found.noise_variance > 0
        assert 0 <= found.sampling_variance <= 2 * (2 / 4) / 2
        assert math.isfinite(found.estimate)
        assert (found.n_units, found.epsilon, found.delta) == (4, 1.0, 0.0)


@pytest.mark.parametrize("n_treated", [0, 1, 9, 10])
def test_an_arm_without_two_units_is_refused(n_treated: int) -> None:
    treated = np.arange(10) < n_treated
    with pytest.raises(InputError, match=r"(treatment|control) arm of this site has [01] units"):
        RandomisedTrial(1.0, 1.0).report(treated, np.zeros(10))


@pytest.mark.parametrize(
    ("key", "given"),
    [
        ("epsilon", {"epsilon": 0.0}),
        ("epsilon", {"epsilon": math.inf}),
        ("epsilon", {"epsilon": math.nan}),
        ("high", {"high": 0.0}),
        ("high", {"high": math.inf}),
        ("variance_ratio", {"variance_ratio": 0.0}),
    ],
)
def test_settings_that_promise_nothing_are_refused(key: str, given: dict[str, float]) -> None:
    with pytest.raises(ConfigError) as caught:
        replace(RandomisedTrial(1.0, 1.0), **given)
    assert caught.value.key == key
