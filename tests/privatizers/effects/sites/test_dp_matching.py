"""A site's matching: its claims, exactly and sampled; its noise; that nothing secret decides.

Statistical tests draw from the operating system's entropy. Each states the probability with which
it fails although everything is right; all are 1e-6 or less.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privatizers.effects.sites.dp_matching import (
    EpsilonSplit,
    GlobalMatching,
    SmoothMatching,
)
from privatizers.effects.sites.matching import SitePeople, evaluate
from privatizers.effects.sites.matching_sensitivity import (
    effect_range,
    smooth_effect_bound,
    variance_range,
)
from privatizers.effects.toolbox.smooth_sensitivity import LogNoise, beta_of
from privatizers.lab.unprotected.as_printed import (
    StandardDraws,
    equation_one,
    paired_variance,
    smooth_matching_as_printed,
    smooth_paired_variance_bound,
)
from privatizers.noise.lattice_laplace import lattice_laplace_variance, power_of_two_step
from schemas.arrays import Floats
from schemas.errors import ConfigError
from tests.support.distances import assert_between, assert_near

SMOOTH = SmoothMatching(2.0, 1e-5, 1.0)


def some_people(n_units: int = 4_000, n_strata: int = 8, high: float = 1.0) -> SitePeople:
    generator = np.random.default_rng(2)
    treated = generator.random(n_units) < 0.4
    stratum = generator.integers(0, n_strata, n_units)
    outcome = high * (generator.random(n_units) < 0.3 + 0.2 * treated + 0.03 * stratum)
    return SitePeople(stratum, treated, outcome.astype(np.float64), n_strata)


# the accounting


@pytest.mark.parametrize(
    "shares", [EpsilonSplit(), EpsilonSplit(3.0, 1.0, 0.2), EpsilonSplit(0.1, 0.7, 0.3)]
)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.7, 100.0])
def test_what_is_spent_adds_up_to_no_more_than_the_claim(
    shares: EpsilonSplit, epsilon: float
) -> None:
    spent = shares.epsilons(epsilon)
    assert math.fsum(spent) <= epsilon
    assert math.fsum(spent) == pytest.approx(epsilon, rel=1e-13)
    assert spent[0] / spent[1] == pytest.approx(shares.effect / shares.variance)
    mechanism = GlobalMatching(epsilon, 1.0, 0.3)
    assert math.fsum(mechanism.epsilons) <= epsilon


def test_thirds_are_the_default() -> None:
    assert SMOOTH.shares.epsilons(3.0) == pytest.approx((1.0, 1.0, 1.0))


def exact_bound_loss(
    mechanism: SmoothMatching, one: SitePeople, other: SitePeople
) -> tuple[float, float]:
    """The loss of Ŝ between two data sets, and the chance that it is under the first's S."""
    epsilon = mechanism.shares.epsilons(mechanism.epsilon)[2]
    noise = LogNoise.of(beta=mechanism.beta, epsilon=epsilon, delta=mechanism.delta)
    bounds = [
        smooth_effect_bound(*each.sizes(), high=mechanism.high, beta=mechanism.beta)
        for each in (one, other)
    ]
    positions = [noise.position(bound) for bound in bounds]
    a = math.exp(-1 / noise.scale)
    return abs(positions[0] - positions[1]) / noise.scale, a ** (noise.margin + 1) / (1 + a)


def neighbours(people: SitePeople, position: int, record: tuple[int, bool, float]) -> SitePeople:
    stratum, treated = people.stratum.copy(), people.treated.copy()
    outcome = people.outcome.copy()
    stratum[position], treated[position], outcome[position] = record
    return SitePeople(stratum, treated, outcome, people.n_strata)


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
@pytest.mark.parametrize("epsilon", [0.3, 2.0, 30.0])
def test_the_three_charges_hold_exactly(epsilon: float, delta: float) -> None:
    """Over 150 neighbours of a small, unbalanced site: of the bound, the effect and the variance.

    The loss of the bound is within ε₃ and it fails with at most δ; wherever it does not fail, the
    effect moves by at most Ŝ and the variance by at most Ŝ².
    """
    mechanism = SmoothMatching(epsilon, delta, 1.0)
    generator = np.random.default_rng(7)
    people = some_people(40, 3)
    of_bound = mechanism.shares.epsilons(epsilon)[2]
    smooth = smooth_effect_bound(*people.sizes(), high=1.0, beta=mechanism.beta)
    here, losses = evaluate(people, 1.0), []
    for _ in range(150):
        record = (int(generator.integers(3)), bool(generator.integers(2)), generator.random())
        other = neighbours(people, int(generator.integers(40)), record)
        loss, fails = exact_bound_loss(mechanism, people, other)
        there = evaluate(other, 1.0)
        losses.append(loss)
        assert fails <= delta
        assert abs(here.effect - there.effect) <= smooth
        apart = abs(here.variance_sum - there.variance_sum) / people.n_units**2
        assert apart <= smooth**2
    assert max(losses) <= of_bound
    if epsilon > 1:
        assert max(losses) > 0.05 * of_bound  # the neighbours are not all alike


def test_equation_one_as_printed_breaks_the_charge_of_the_bound() -> None:
    """A control, at a β of 0.041: with its bound in place of ours Ŝ loses more than ε₃."""
    mechanism = SmoothMatching(1.33, 1e-5, 1.0)
    of_bound = mechanism.shares.epsilons(1.33)[2]
    assert mechanism.beta == pytest.approx(0.041, rel=0.01)
    noise = LogNoise.of(beta=mechanism.beta, epsilon=of_bound, delta=1e-5)
    sizes = (([1, 0], [19, 0]), ([1, 1], [18, 0]))
    for bound, broken in ((equation_one, True), (smooth_effect_bound, False)):
        at = [
            noise.position(bound(np.array(t), np.array(c), high=1.0, beta=mechanism.beta))
            for t, c in sizes
        ]
        assert (abs(at[0] - at[1]) / noise.scale > of_bound) == broken


# sampled


def estimates(mechanism: SmoothMatching | GlobalMatching, people: SitePeople, draws: int) -> Floats:
    return np.array([mechanism.report(people).estimate for _ in range(draws)])


def sampled_bound(mechanism: SmoothMatching | GlobalMatching, draws: int) -> float:
    """A lower bound of ln P(A)/P(A′) for the worst neighbours, too great once in 10⁷.

    Of three units the treated becomes a control and the effect goes from B to 0.
    """
    stratum = np.zeros(3, dtype=np.int64)
    one = SitePeople(stratum, np.array([True, False, False]), np.array([1.0, 0.0, 0.0]), 1)
    other = neighbours(one, 0, (0, True, 0.0))
    shares = [float((estimates(mechanism, each, draws) > 0.6).mean()) for each in (one, other)]
    z, ends = 5.33, []
    for share, sign in zip(shares, (-1, 1), strict=True):
        middle = share + z**2 / (2 * draws)
        width = z * math.sqrt(share * (1 - share) / draws + z**2 / (4 * draws**2))
        ends.append((middle + sign * width) / (1 + z**2 / draws))
    return math.log(max(ends[0], 1e-9) / ends[1])


class QuietSmooth(SmoothMatching):
    """Takes a twentieth of the bound."""

    def bound(self, people: SitePeople) -> float:
        return super().bound(people) / 20.0


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", [GlobalMatching(1.2, 1.0), SmoothMatching(1.2, 1e-5, 1.0)])
def test_samples_do_not_contradict_the_claim(mechanism: SmoothMatching | GlobalMatching) -> None:
    """One false alarm in 10⁷ runs."""
    assert sampled_bound(mechanism, 250) <= 1.2


@pytest.mark.statistical
def test_samples_contradict_too_small_a_bound() -> None:
    assert sampled_bound(QuietSmooth(1.2, 1e-5, 1.0), 250) > 1.2


@pytest.mark.statistical
def test_the_noise_is_unbiased_and_as_wide_as_stated() -> None:
    """260 draws, each over its own stated deviation, which depends on its bound.

    Mean within 5.3 standard errors, mean square within 4.9 of a Laplace's (variance of the square
    5): fails once in 10⁶, and at a scale 30 % off.
    """
    high = 7.0
    people = some_people(high=high)
    truth = evaluate(people, high).effect
    mechanism = SmoothMatching(2.0, 1e-5, high)
    found = [mechanism.report(people) for _ in range(260)]
    scaled = np.array([(one.estimate - truth) / math.sqrt(one.noise_variance) for one in found])
    assert_near(float(scaled.mean()), 0.0, 1 / math.sqrt(260), 5.3)
    tolerance = 4.9 * math.sqrt(5 / 260)
    bounds = (1 / (1 + tolerance), 1 + tolerance)
    assert_between(float((scaled**2).mean()), bounds, 1.0, math.sqrt(5 / 260))
    assert tolerance < 1.3**2 - 1
    smooth = smooth_effect_bound(*people.sizes(), high=high, beta=mechanism.beta)
    upper = np.array([math.sqrt(one.noise_variance / 2) for one in found]) * (2 / 3)
    assert upper.min() > 0.99 * smooth  # an upper bound
    assert 2.0 < np.median(upper) / smooth < 3.5  # about e times S


def test_the_variance_is_unbiased_and_close_where_there_are_enough_people() -> None:
    """100 reports of 4,000 people at ε = 8: mean within 5.3 standard errors and within 2 %."""
    people = some_people()
    found = [SmoothMatching(8.0, 1e-5, 1.0).report(people) for _ in range(100)]
    sampling = np.array([one.sampling_variance for one in found])
    truth = evaluate(people, 1.0).variance_sum / people.n_units**2
    error = sampling.std() / math.sqrt(len(found))
    assert sampling.min() > 0
    assert_near(float(sampling.mean()), truth, error, 5.3)
    assert error < 0.02 * truth


def test_the_private_bound_is_worth_it() -> None:
    """For balanced strata the noise is a small part of the worst case's at the same ε."""
    people = some_people()
    smooth = np.median([SMOOTH.report(people).noise_variance for _ in range(31)])
    assert smooth < GlobalMatching(2.0, 1.0).report(people).noise_variance / 400


def test_the_worst_case_s_noise_is_known_beforehand() -> None:
    people = some_people(50, 2)
    mechanism = GlobalMatching(2.0, 1.0)
    found = mechanism.report(people)
    assert found.noise_variance == pytest.approx(2 * (1.02 / 1.0) ** 2, rel=1e-3)
    assert (found.epsilon, found.delta, found.n_units) == (2.0, 0.0, 50)
    step = power_of_two_step(50 * effect_range(1.0, 50))
    spread = lattice_laplace_variance(
        sensitivity=50 * effect_range(1.0, 50), epsilon=mechanism.epsilons[0], step=step
    )
    assert found.noise_variance == pytest.approx(spread / 50**2, rel=1e-6)


# nothing secret decides whether there is a report


def odd_people(kind: str) -> SitePeople:
    stratum, treated, outcome = np.zeros(6, dtype=np.int64), np.arange(6) < 3, np.ones(6)
    if kind == "all treated":
        treated = np.ones(6, dtype=np.bool_)
    elif kind == "nobody treated":
        treated = np.zeros(6, dtype=np.bool_)
    elif kind == "no overlap":
        stratum = np.where(treated, 0, 1)
    elif kind == "wild outcomes":
        outcome = np.array([np.nan, np.inf, -np.inf, 1e300, -5.0, 0.5])
    elif kind == "alone":
        stratum, treated, outcome = stratum[:1], treated[:1], outcome[:1]
    return SitePeople(stratum, treated, outcome, 4)


KINDS = ["all treated", "nobody treated", "no overlap", "wild outcomes", "alone"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("high", [1e-60, 1.0, 1e60])
@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1000.0])
def test_every_site_gets_a_report(kind: str, high: float, epsilon: float) -> None:
    people = odd_people(kind)
    for mechanism in (SmoothMatching(epsilon, 1e-9, high), GlobalMatching(epsilon, high)):
        found = mechanism.report(people)
        assert math.isfinite(found.estimate)
        assert found.noise_variance > 0
        most = variance_range(high, people.n_units)
        assert 0 <= found.sampling_variance <= most
        assert found.variance == found.sampling_variance + found.noise_variance
        assert found.estimator == mechanism.name


def test_without_a_match_the_noise_is_around_0() -> None:
    """100 draws; fails once in 10⁷ (5.3 standard errors)."""
    mechanism = GlobalMatching(1.0, 1.0)
    found = estimates(mechanism, odd_people("no overlap"), 100)
    spread = mechanism.report(odd_people("no overlap")).noise_variance
    assert_near(float(found.mean()), 0.0, math.sqrt(spread / 100), 5.3)


@pytest.mark.parametrize(
    ("key", "given"),
    [
        ("epsilon", {"epsilon": 0.0}),
        ("epsilon", {"epsilon": 1e5}),
        ("delta", {"delta": 0.0}),
        ("delta", {"delta": 0.5}),
        ("delta", {"delta": math.nan}),
        ("high", {"high": -1.0}),
    ],
)
def test_settings_that_promise_nothing_are_refused(key: str, given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        replace(SMOOTH, **given)
    assert caught.value.key == key


@pytest.mark.parametrize("share", [0.0, -1.0, math.inf, math.nan])
def test_what_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match="shares: bound"):
        EpsilonSplit(bound=share)
    with pytest.raises(ConfigError, match="effect_share: the effect's share"):
        GlobalMatching(1.0, 1.0, share)


# as printed


@pytest.mark.parametrize("drawn", [0.2, -0.2])
def test_the_printed_form_is_the_paper_s(drawn: float) -> None:
    """Algorithm 2 and Lemma 1 with given standard draws, by hand; sampling has 0 at least."""
    people = some_people(400, 3)
    treated, control = people.sizes()
    epsilon, delta, third = 3.0, 3e-5, 1e-5
    beta = beta_of(1.0, third)
    bound = equation_one(treated, control, high=1.0, beta=beta)
    draws = StandardDraws(effect=0.5, variance=drawn, bound=1.3)
    estimate, variance = smooth_matching_as_printed(draws, people, epsilon, high=1.0, delta=delta)
    assert estimate == pytest.approx(evaluate(people, 1.0).effect + 2 * bound * 0.5)
    sigma = math.sqrt(2 * math.log(1.25 / third)) * beta
    seen = bound * math.exp(1.3 * sigma - sigma**2 / 2)
    of_variance = smooth_paired_variance_bound(treated, control, high=1.0, beta=beta)
    sampling = paired_variance(people, 1.0) + 2 * of_variance * drawn
    assert (sampling > 0) == (drawn > 0)
    assert variance == pytest.approx(max(sampling, 0.0) + 8 * seen**2)
