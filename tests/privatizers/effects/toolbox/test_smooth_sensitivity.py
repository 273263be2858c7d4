"""Smooth sensitivity: private bounds of bounds, and how far noise at once may go.

Exact audits are in tests/statistical/effects/test_toolbox_audit.py. Statistical tests here state
the probability with which they fail although everything is right.
"""

import math

import numpy as np
import pytest
from scipy import stats

from privatizers.effects.toolbox.local_sensitivity import LEAST, Tabulated, smooth_bound
from privatizers.effects.toolbox.smooth_sensitivity import (
    BoundThenNoise,
    LogNoise,
    SmoothLaplace,
    beta_of,
    direct_delta,
    largest_direct_epsilon,
    private_upper_bound,
)
from tests.support.distances import assert_near, assert_p_value


def test_beta_is_the_papers() -> None:
    assert beta_of(1.0, 1e-5) == 1.0 / (2.0 * math.log(2e5))


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [*((wrong, 0.1) for wrong in (0.0, -1.0, math.inf, math.nan)), (1.0, 0.0), (1.0, 0.5)],
)
def test_impossible_numbers_are_refused(epsilon: float, delta: float) -> None:
    for make in (
        lambda: beta_of(epsilon, delta),
        lambda: BoundThenNoise(epsilon, delta),
        lambda: SmoothLaplace(epsilon, delta, 0.5),
    ):
        with pytest.raises(ValueError, match="epsilon"):
            make()


@pytest.mark.statistical
def test_the_upper_bound_fails_as_often_as_is_allowed() -> None:
    """Binomial: fails with 1e-6 on either side; a δ a third greater or less is noticed."""
    delta, size = 0.2, 4_000
    low = sum(
        private_upper_bound(0.017, beta=0.3, epsilon=1.0, delta=delta) < 0.017 for _ in range(size)
    )
    assert_p_value(float(stats.binom.cdf(low, size, delta)), 1e-6, most=1 - 1e-6)
    assert stats.binom.cdf(size * 0.2 * 2 / 3, size, delta) < 1e-6
    assert stats.binom.sf(size * 0.2 * 4 / 3, size, delta) < 1e-6


def test_the_margin_is_what_the_tail_asks_and_rounding_to_steps_costs_little() -> None:
    beta = beta_of(0.5, 1e-6)
    noise = LogNoise.of(beta=beta, epsilon=0.5, delta=1e-6)
    assert noise.step <= beta / 1024 < 2 * noise.step
    assert noise.scale * noise.step == pytest.approx(beta / 0.5, rel=2e-3)
    typical = math.exp(noise.step * noise.margin)
    assert typical == pytest.approx(math.exp(0.5 * math.log(0.5e6) / math.log(2e6)), rel=5e-3)


@pytest.mark.parametrize("bound", [0.0, -1.0, 5e-324, LEAST, 1e-20, 1e20, 1 / LEAST, math.inf])
def test_any_bound_is_answered(bound: float) -> None:
    """Whether a release succeeds may not depend on the data: ends are public."""
    told = private_upper_bound(bound, beta=0.01, epsilon=1.0, delta=1e-9)
    assert 0.0 < told < math.inf
    assert told >= min(max(bound, LEAST), 1 / LEAST)  # but for 1e-9


def test_no_number_is_refused_as_a_bound() -> None:
    with pytest.raises(ValueError, match="number"):
        private_upper_bound(math.nan, beta=0.01, epsilon=1.0, delta=1e-9)


@pytest.mark.parametrize(
    "wrong", [{"beta": 0.0}, {"epsilon": -1.0}, {"delta": 1.0}, {"delta": 0.0}]
)
def test_impossible_bounds_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="need beta"):
        private_upper_bound(1.0, **({"beta": 0.1, "epsilon": 1.0, "delta": 0.1} | wrong))


@pytest.mark.parametrize("epsilon", [0.1, 1 / 3, 1.0, 13.0])
def test_parts_of_epsilon_are_not_above_it(epsilon: float) -> None:
    for share in (0.1, 0.25, 1 / 3, 0.9):
        for_value, for_bound = BoundThenNoise(epsilon, 1e-6, share).epsilons
        assert for_value + for_bound <= epsilon
        assert for_value + for_bound == pytest.approx(epsilon, rel=1e-12)
    with pytest.raises(ValueError, match="share"):
        BoundThenNoise(epsilon, 1e-6, 1.0)


@pytest.mark.parametrize("bound", [0.0, 1e-100, 1.0, 1e100])
@pytest.mark.parametrize("value", [0.0, 1e3, -1e300, 5e-324])
def test_any_query_is_answered(bound: float, value: float) -> None:
    """Values beyond the lattice are clipped, not refused."""
    query = Tabulated(value, (), bound)
    found = BoundThenNoise(1.0, 1e-6).release(query)
    assert math.isfinite(found.value)
    assert found.step <= found.bound * 2**-20
    assert math.isfinite(SmoothLaplace(1.0, 1e-6, 2.0**-20).release(query))


def test_with_much_to_spend_the_value_comes_back() -> None:
    """At ε = 1e6 the noise has a scale of about 1e-6: off by 1e-4 with e⁻⁷⁵ or so."""
    query = Tabulated(3.25, (1.0,), 1.0)
    assert BoundThenNoise(1e6, 1e-6).release(query).value == pytest.approx(3.25, abs=1e-4)


def test_noise_at_once_has_the_scale_of_the_paper() -> None:
    """Laplace's E|Z| = s; 6 standard errors of 1500 draws are 16 %; fails with 1e-8."""
    query = Tabulated(10.0, (0.5,), 1.0)
    made = SmoothLaplace(1.0, 1e-5, 2.0**-16)
    bound = smooth_bound(query, made.beta)
    off = np.array([abs(made.release(query) - 10.0) for _ in range(1_500)])
    assert_near(float(off.mean() / (2 * bound)), 1.0, 1 / math.sqrt(1_500), 6.0)


def test_a_coarse_step_widens_the_noise() -> None:
    made = SmoothLaplace(1.0, 1e-5, 0.5)
    assert made.scale(1.0) == 1024.0
    assert made.scale(1e6) == pytest.approx(2 * (2e6 + 1))


@pytest.mark.parametrize(
    ("delta", "limit"), [(1e-2, 11.43), (1e-5, 13.23), (1e-6, 13.66), (1e-9, 14.68)]
)
def test_the_range_of_noise_at_once(delta: float, limit: float) -> None:
    """By the closed form of continuous noise, within what whole steps add."""
    found = largest_direct_epsilon(delta)
    assert found == pytest.approx(limit, abs=0.01)
    SmoothLaplace(found, delta, 2.0**-20)
    with pytest.raises(ValueError, match="BoundThenNoise"):
        SmoothLaplace(found + 1e-6, delta, 2.0**-20)


def test_the_proven_delta_falls_with_epsilon_and_rises_with_beta() -> None:
    by_beta = [direct_delta(4.0, beta) for beta in (0.01, 0.1, 0.3, 0.5, 1.0, 1.9)]
    assert by_beta == sorted(by_beta)
    by_epsilon = [direct_delta(epsilon, 0.3) for epsilon in (0.7, 1.0, 4.0, 13.0)]
    assert by_epsilon == sorted(by_epsilon, reverse=True)
    assert direct_delta(1.0, 0.6) == 1.0
    assert direct_delta(1e-9, 1e-10) == 1.0


@pytest.mark.parametrize("step", [0.3, 0.0, math.nan])
def test_a_step_that_is_no_power_of_two_is_refused(step: float) -> None:
    with pytest.raises(ValueError, match="power of two"):
        SmoothLaplace(1.0, 1e-5, step)
