"""Losses are never understated, and calibrated parameters never cost more than was asked for."""

import math
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privatizers.accounting.accountant import calibrate
from privatizers.accounting.budget import written
from privatizers.accounting.rounding import (
    counts_loss,
    realised_rate,
    realised_threshold,
    response_loss,
    round_up,
)
from privatizers.mechanisms.cluster_dp import ClusterDP
from privatizers.mechanisms.cluster_free_dp import ClusterFreeDP
from privatizers.mechanisms.mechanism import Mechanism
from privatizers.mechanisms.parameters import Parameters
from privatizers.mechanisms.uniform_prior_dp import UniformPriorDP
from privatizers.noise.randomness import UNIT
from schemas.errors import ConfigError
from tests.support.guarantee import guarantee

DIGITS = 200  # of the reference; the product works with 60

steps = st.integers(1, UNIT - 1) | st.floats(1e-9, 1 - 1e-9).map(lambda rate: round(rate * UNIT))
rates = steps.map(lambda step: step / UNIT)
scales = st.floats(1e-3, 1e6)
grid_sizes = st.integers(2, 40)


@st.composite
def thresholds(draw: st.DrawFn, n_outcomes: int) -> float:
    """A γ from the least one to 1/K, a multiple of 2⁻⁵³."""
    highest = UNIT // n_outcomes
    return draw(st.sampled_from([1, highest]) | st.integers(1, highest)) / UNIT


@st.composite
def parameters(draw: st.DrawFn) -> Parameters:
    n_outcomes = draw(grid_sizes)
    gamma = draw(thresholds(n_outcomes))
    return Parameters(n_outcomes, draw(rates), gamma, draw(st.none() | scales))


def exact_response_loss(rate: float, gamma: float) -> Decimal:
    with localcontext(prec=DIGITS):
        odds = (1 - Decimal(rate)) / (Decimal(rate) * Decimal(gamma))
        return (1 + odds).ln()


def exact_loss(given_to: Parameters) -> Decimal:
    """The guarantee, written out once more: 2/σ (1/σ for K = 2) + ln(1 + (1 − λ)/(λ γ))."""
    moved = 1 if given_to.n_outcomes == 2 else 2
    with localcontext(prec=DIGITS):
        loss = exact_response_loss(given_to.resampling_probability, given_to.truncation_threshold)
        if given_to.noise_scale is not None:
            loss += moved / Decimal(given_to.noise_scale)
        return loss


@settings(max_examples=200, deadline=None)
@given(parameters())
def test_a_guarantee_is_never_below_the_exact_loss_and_next_to_it(given_to: Parameters) -> None:
    exact = exact_loss(given_to)
    claim = Decimal(guarantee(UniformPriorDP(given_to)))
    # The next double above is at most 2⁻⁵² = 2.2e-16 away, relatively.
    assert exact <= claim <= exact * (1 + Decimal("1e-15"))


@pytest.mark.parametrize("mechanism", [ClusterDP, ClusterFreeDP, UniformPriorDP])
@pytest.mark.parametrize(("n_outcomes", "moved"), [(2, 1), (3, 2), (5, 2), (12, 2)])
def test_the_guarantee_is_the_closed_form(
    mechanism: type[ClusterDP | ClusterFreeDP | UniformPriorDP], n_outcomes: int, moved: int
) -> None:
    rate, gamma, scale = 0.75, 0.0625, 4.0  # exact in doubles, so nothing is rounded on the way
    built: Mechanism = mechanism(Parameters.of(n_outcomes, rate, gamma, scale))
    expected = moved / scale + math.log1p((1 - rate) / (rate * gamma))
    # Three roundings to doubles in the line above.
    assert guarantee(built) == pytest.approx(expected, rel=1e-15, abs=0)


@settings(max_examples=100, deadline=None)
@given(rates, scales, st.integers(1, 2))
def test_losses_add_up_to_the_closed_form(rate: float, scale: float, moved: int) -> None:
    total = response_loss(rate, 0.125) + counts_loss(scale, moved)
    with localcontext(prec=DIGITS):
        exact = exact_response_loss(rate, 0.125) + moved / Decimal(scale)
    # 28 digits: the sum above is taken in Python's default decimal context.
    assert abs(total - exact) <= exact * Decimal("1e-27")


def test_two_noised_cells_cost_one_over_sigma_more_than_a_count_and_its_complement() -> None:
    one_noise = guarantee(ClusterDP(Parameters.of(2, 0.5, 0.1, 1.0)))
    two_noises = response_loss(0.5, 0.1) + counts_loss(1.0, 2)
    assert round(one_noise, 3) == 3.398
    assert round(float(two_noises), 3) == 4.398


def test_the_defaults_of_the_paper_cost_2_80_and_not_2_70() -> None:
    """Javanmard, Mirrokni and Pouget-Abadie (2025) print 1/σ where counts of K > 2 cost 2/σ."""
    built = ClusterDP(Parameters.of(12, 0.8, 0.02, 10.0))
    printed = 1 / 10 + math.log1p(0.2 / (0.8 * 0.02))
    assert round(guarantee(built), 2) == 2.80
    assert round(printed, 2) == 2.70


def test_without_counts_only_the_response_costs() -> None:
    built = UniformPriorDP(Parameters.of(4, 0.5, 0.25, None))
    assert guarantee(built) == pytest.approx(
        math.log(5), rel=1e-15, abs=0
    )  # rounded up, by one digit


@pytest.mark.statistical
@settings(max_examples=200, deadline=None)
@given(grid_sizes.flatmap(thresholds), st.floats(1e-3, 60))
def test_a_calibrated_rate_is_the_least_that_stays_within_epsilon(
    gamma: float, epsilon: float
) -> None:
    budget = min(Decimal(epsilon), written(epsilon))
    try:
        rate = calibrate(epsilon, 0.0, gamma)
    except ConfigError:
        # Right only if even the greatest λ there is costs too much.
        assert exact_response_loss((UNIT - 1) / UNIT, gamma) > budget
        return
    assert (rate * UNIT).is_integer()
    assert exact_response_loss(rate, gamma) <= budget
    if rate > 1 / UNIT:
        assert exact_response_loss(rate - 1 / UNIT, gamma) > budget


def test_an_epsilon_that_would_resample_everybody_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        calibrate(1e-17, 0.0, 0.5)
    assert caught.value.key == "privacy.epsilon"


@settings(max_examples=200, deadline=None)
@given(st.floats(0, 1, exclude_min=True, exclude_max=True, allow_subnormal=True))
def test_a_rate_is_rounded_toward_privacy_by_less_than_a_step(rate: float) -> None:
    realised = Fraction(realised_rate(rate))
    assert (realised * UNIT).denominator == 1
    assert 0 <= realised - Fraction(rate) < Fraction(1, UNIT)


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, 1.5])
def test_a_rate_outside_zero_and_one_is_refused(rate: float) -> None:
    with pytest.raises(ConfigError) as caught:
        realised_rate(rate)
    assert caught.value.key == "privacy.resampling_probability"


@settings(max_examples=200, deadline=None)
@given(grid_sizes, st.floats(0, 1, exclude_min=True))
def test_a_threshold_is_rounded_toward_privacy_unless_k_of_it_exceed_one(
    n_outcomes: int, share: float
) -> None:
    gamma = share / n_outcomes
    realised = Fraction(realised_threshold(gamma, n_outcomes)) if gamma > 0 else Fraction(1, UNIT)
    assert (realised * UNIT).denominator == 1
    assert realised * n_outcomes <= 1
    if realised < Fraction(gamma):
        assert (realised + Fraction(1, UNIT)) * n_outcomes > 1


@pytest.mark.parametrize("n_outcomes", range(2, 60))
def test_one_over_k_is_realised_by_the_greatest_multiple_below_it(n_outcomes: int) -> None:
    assert realised_threshold(1 / n_outcomes, n_outcomes) == (UNIT // n_outcomes) / UNIT


@pytest.mark.parametrize("gamma", [0.0, -0.1])
def test_a_threshold_of_zero_is_refused(gamma: float) -> None:
    with pytest.raises(ConfigError) as caught:
        realised_threshold(gamma, 3)
    assert caught.value.key == "privacy.truncation_threshold"


@pytest.mark.statistical
@settings(max_examples=200, deadline=None)
@given(st.fractions(Fraction(1, 10**6), 10**6, max_denominator=10**9))
def test_rounding_up_gives_the_least_double_that_is_not_below(value: Fraction) -> None:
    with localcontext(prec=60):
        up = round_up(Decimal(value.numerator) / Decimal(value.denominator))
    assert Fraction(up) >= value
    if Fraction(up) != value:
        below = Fraction(math.nextafter(up, 0.0))
        # Equal only where the value is a double itself: the margin for decimal error lifts it.
        assert below <= value


@pytest.mark.parametrize("field", ["resampling_probability", "truncation_threshold"])
@pytest.mark.parametrize("value", [0.0, 1.0, 2.0**-54])
def test_parameters_that_are_no_multiple_of_a_step_are_refused(field: str, value: float) -> None:
    sound = Parameters(3, 0.5, 0.125, 1.0)
    changed: dict[str, Any] = {field: value}
    with pytest.raises(ValueError, match="multiple"):
        replace(sound, **changed)


def test_a_threshold_above_one_over_k_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 1/3"):
        Parameters(3, 0.5, 0.5, 1.0)
