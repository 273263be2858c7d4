"""Noise on a lattice: exact but for its noise, of the law that is claimed, rounded toward privacy.

Statistical tests draw from the operating system's entropy; each states the probability with which
it fails although everything is right.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from privatizers.noise.lattice_laplace import (
    discrete_laplace_variance,
    lattice_laplace,
    lattice_laplace_variance,
    lattice_scale,
    power_of_two_step,
)


def test_values_are_rounded_to_the_nearest_step_and_nothing_else_without_noise() -> None:
    """At a scale of (Δ/h + 5)/ε = 1/200 a draw is not zero with probability 2 e⁻²⁰⁰."""
    x = np.array([0.3, -0.3, 0.375, 1e6 + 0.1, 0.0])
    noisy = lattice_laplace(x, sensitivity=0.0, epsilon=1000.0, step=0.25)
    assert noisy.tolist() == [0.25, -0.25, 0.5, 1e6, 0.0]


def test_what_comes_out_is_on_the_lattice() -> None:
    noisy = lattice_laplace(np.full(2000, math.pi), sensitivity=1.0, epsilon=0.1, step=2.0**-30)
    steps = noisy * 2.0**30
    assert np.array_equal(steps, np.rint(steps))
    assert len(np.unique(steps % 2)) == 2


def test_no_values_are_no_values() -> None:
    assert lattice_laplace(np.empty(0), sensitivity=1.0, epsilon=1.0, step=1.0).shape == (0,)


@pytest.mark.parametrize("epsilon", [0.1, 1 / 3, 7.0])
@pytest.mark.parametrize("sensitivity", [0.1, 1 / 3, 100.0])
@pytest.mark.parametrize("d", [1, 3, 1000])
def test_the_scale_is_not_below_the_exact_one_and_hardly_above(
    sensitivity: float, epsilon: float, d: int
) -> None:
    step = 2.0**-18
    scale = lattice_scale(sensitivity=sensitivity, epsilon=epsilon, step=step, n_values=d)
    exact = (Fraction(sensitivity) / Fraction(step) + d) / Fraction(epsilon)
    assert exact <= Fraction(scale) <= exact * (1 + Fraction(1, 2**50))


@pytest.mark.parametrize(
    "wrong",
    [
        {"step": 0.3}, {"step": 0.0}, {"step": -0.5}, {"step": math.nan}, {"step": math.inf},
        {"step": 2.0**-501}, {"sensitivity": -1.0}, {"sensitivity": math.inf},
        {"sensitivity": math.nan}, {"epsilon": 0.0}, {"epsilon": math.inf}, {"epsilon": math.nan},
        {"n_values": 0}, {"sensitivity": 2.0**53}, {"epsilon": 1e-300},
    ],
)  # fmt: skip
def test_numbers_that_make_no_noise_are_refused(wrong: dict[str, float]) -> None:
    asked: dict[str, float] = {"sensitivity": 1.0, "epsilon": 1.0, "step": 0.5} | wrong
    with pytest.raises(ValueError, match=r"step|sensitivity|epsilon|value"):
        lattice_scale(**asked)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [math.nan, math.inf, 2.0**52, -(2.0**53)])
def test_values_that_no_lattice_holds_are_refused_and_not_told(value: float) -> None:
    with pytest.raises(ValueError, match="finite") as refusal:
        lattice_laplace(np.array([1.0, value]), sensitivity=1.0, epsilon=1.0, step=1.0)
    assert repr(value) not in str(refusal.value)


def test_a_table_of_values_is_refused() -> None:
    with pytest.raises(ValueError, match="list"):
        lattice_laplace(np.zeros((2, 2)), sensitivity=1.0, epsilon=1.0, step=1.0)


@pytest.mark.parametrize("scale", [0.05, 0.3, 1.0, 40.0, 1e3])
def test_the_variance_is_the_laws(scale: float) -> None:
    k = np.arange(-100_000, 100_001)
    p = np.exp(-np.abs(k) / scale) * math.tanh(0.5 / scale)
    assert discrete_laplace_variance(scale) == pytest.approx(float(k**2 @ p), rel=1e-9)


def test_the_variance_of_wide_noise_is_the_continuous_one() -> None:
    """1 − e^(−1/s) would have no digits left; 2 s² − 1/6 is the expansion."""
    assert discrete_laplace_variance(1e12) == pytest.approx(2e24, rel=1e-12)
    assert discrete_laplace_variance(1e3) == pytest.approx(2e6 - 1 / 6, rel=1e-12)
    given = lattice_laplace_variance(sensitivity=1.0, epsilon=0.5, step=2.0**-20)
    assert given == pytest.approx(8.0 * (1 + 2**-20) ** 2, rel=1e-9)


def test_the_noise_has_the_law_that_is_claimed() -> None:
    """χ² over 31 steps and the tails: fails with a probability of 1e-6; a scale 15 % off fails."""
    size, step, d = 30_000, 0.5, 30_000
    noisy = lattice_laplace(np.full(size, 2.0), sensitivity=1.0, epsilon=d / 5 + 0.4, step=step)
    scale = lattice_scale(sensitivity=1.0, epsilon=d / 5 + 0.4, step=step, n_values=d)
    assert scale == pytest.approx(5.0, rel=1e-3)
    edges = np.concatenate([[-np.inf], np.arange(-15.5, 16), [np.inf]])
    observed = np.histogram(noisy / step - 4, edges)[0]

    def p_value(of: float) -> float:
        k = np.arange(-2000, 2001)
        p = np.exp(-np.abs(k) / of) * math.tanh(0.5 / of)
        expected = np.histogram(k, edges, weights=p)[0]
        return float(stats.chisquare(observed, expected / expected.sum() * size).pvalue)

    assert p_value(scale) > 1e-6
    assert p_value(0.85 * scale) < 1e-6
    assert p_value(1.15 * scale) < 1e-6


@pytest.mark.parametrize("sensitivity", [1.0, 0.999, 1.001, 3e-9, 7e20, 2.0**100])
def test_a_step_for_a_sensitivity_is_the_greatest_power_of_two(sensitivity: float) -> None:
    step = power_of_two_step(sensitivity)
    assert math.frexp(step)[0] == 0.5
    assert step <= sensitivity * 2**-20 < 2 * step
    assert (
        power_of_two_step(sensitivity, 1.0) <= sensitivity < 2 * power_of_two_step(sensitivity, 1.0)
    )


@pytest.mark.parametrize("sensitivity", [0.0, -1.0, math.inf, math.nan, 5e-324])
def test_there_is_no_step_for_what_is_no_sensitivity(sensitivity: float) -> None:
    with pytest.raises(ValueError, match="step"):
        power_of_two_step(sensitivity)
