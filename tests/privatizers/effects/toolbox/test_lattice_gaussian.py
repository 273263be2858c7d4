"""Gaussian noise: the continuous formulas for reference, and the discrete curve that is used.

Exact audits at every distance are in tests/statistical/effects/test_toolbox_audit.py.
"""

import math

import numpy as np
import pytest
from scipy import stats

from privatizers.effects.toolbox.lattice_gaussian import (
    LatticeGaussian,
    continuous_delta,
    continuous_sigma,
    discrete_delta,
    discrete_scale,
)
from privatizers.noise.randomness import discrete_gaussian
from tests.support.as_printed import classical_sigma


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 4.0])
def test_the_continuous_curve_is_an_integral(epsilon: float, sigma: float) -> None:
    z = np.linspace(-12 * sigma, 12 * sigma, 400_001)
    p, q = stats.norm.pdf(z, 0, sigma), stats.norm.pdf(z, 1, sigma)
    integral = float(np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0.0), z))
    assert continuous_delta(sigma, epsilon) == pytest.approx(integral, rel=1e-4, abs=1e-12)


@pytest.mark.parametrize("delta", [0.3, 1e-5, 1e-12])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 13.0, 100.0])
def test_the_continuous_sigma_is_the_least(epsilon: float, delta: float) -> None:
    sigma = continuous_sigma(epsilon, delta)
    assert continuous_delta(sigma, epsilon) <= delta
    assert continuous_delta(sigma * (1 - 1e-6), epsilon) > delta
    assert continuous_sigma(epsilon, delta, 7.0) == 7.0 * sigma


def test_the_classical_sigma_is_too_much_at_1_and_too_little_at_13() -> None:
    assert classical_sigma(1.0, 1e-5) > 1.2 * continuous_sigma(1.0, 1e-5)
    assert classical_sigma(40 / 3, 1e-5) < 0.92 * continuous_sigma(40 / 3, 1e-5)
    assert continuous_delta(classical_sigma(40 / 3, 1e-5), 40 / 3) > 1.0e-4


@pytest.mark.parametrize("scale", [0.2, 0.5, 1.0, 3.0, 50.0])
@pytest.mark.parametrize("steps", [1, 2, 9, 400])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 20.0])
def test_the_discrete_curve_is_that_of_two_half_lines(
    scale: float, steps: int, epsilon: float
) -> None:
    """Theorem 7 of Canonne, Kamath and Steinke: P(K ≤ t) − e^ε P(K ≤ t − Δ), added up apart."""
    reach = int(40 * scale) + 2 * steps
    k = np.arange(-reach, reach + 1)
    p = np.exp(-((k / scale) ** 2) / 2)
    p /= p.sum()
    threshold = steps / 2 - epsilon * scale**2 / steps
    told = math.fsum(p[k < threshold]) - math.exp(epsilon) * math.fsum(p[k < threshold - steps])
    found = discrete_delta(scale, epsilon, steps)
    assert told * (1 - 1e-12) <= found
    assert found == pytest.approx(told, rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("scale", [0.3, 2.0, 30.0])
def test_the_discrete_curve_rises_with_the_distance(scale: float) -> None:
    """So that what is calibrated for the greatest distance holds for all."""
    deltas = [discrete_delta(scale, 1.0, steps) for steps in range(1, 60)]
    assert np.all(np.diff(deltas) >= -1e-12)


def test_many_steps_make_it_the_continuous_curve() -> None:
    assert discrete_delta(3000.0, 1.0, 1000) == pytest.approx(continuous_delta(3.0, 1.0), rel=1e-3)
    assert discrete_scale(1.0, 1e-5, 1000) / 1000 == pytest.approx(
        continuous_sigma(1.0, 1e-5), rel=1e-4
    )


def test_few_steps_need_more_than_the_continuous_sigma() -> None:
    """Where a step is wider than σ the continuous calibration is broken on a lattice."""
    broken = [
        (epsilon, steps)
        for epsilon in (1.0, 8.0, 13.0)
        for steps in (1, 2, 3)
        if discrete_delta(continuous_sigma(epsilon, 1e-5, steps), epsilon, steps) > 1.1e-5
    ]
    assert broken


def test_exact_draws_have_the_law() -> None:
    """χ²: fails with a probability of 1e-6; a scale 10 % off fails."""
    size, scale = 40_000, 3.0
    k = discrete_gaussian(size, scale)
    assert k.dtype == np.int64
    edges = np.concatenate([[-np.inf], np.arange(-8.5, 9), [np.inf]])
    observed = np.histogram(k, edges)[0]

    def p_value(of: float) -> float:
        lattice = np.arange(-200, 201)
        p = np.exp(-((lattice / of) ** 2) / 2)
        expected = np.histogram(lattice, edges, weights=p / p.sum())[0]
        return float(stats.chisquare(observed, expected / expected.sum() * size).pvalue)

    assert p_value(scale) > 1e-6
    assert max(p_value(0.9 * scale), p_value(1.1 * scale)) < 1e-6
    assert discrete_gaussian(0, scale).shape == (0,)


def test_steps_are_fine_by_default_and_counted_with_their_rounding() -> None:
    made = LatticeGaussian(0.01, 1.0, 1e-5)
    assert made.lattice_step <= 0.01 / 256 < 2 * made.lattice_step
    assert (made.steps - 1) * made.lattice_step <= 0.01 < made.steps * made.lattice_step
    sigma = made.scale * made.lattice_step
    assert 0.01 * continuous_sigma(1.0, 1e-5) < sigma < 1.01 * 0.01 * continuous_sigma(1.0, 1e-5)


def test_released_values_are_near_and_clipped() -> None:
    """σ is about 4: 40 away with a probability under 1e-20."""
    made = LatticeGaussian(1.0, 1.0, 1e-5)
    assert abs(made.release(17.0) - 17.0) < 40.0
    assert made.release(1e300) == pytest.approx(2.0**51 * made.lattice_step, rel=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [{"epsilon": 0.0}, {"epsilon": math.inf}, {"delta": 0.0}, {"delta": 1.0}, {"step": 0.3}],
)
def test_impossible_numbers_are_refused(wrong: dict[str, float]) -> None:
    made = LatticeGaussian(**({"sensitivity": 1.0, "epsilon": 1.0, "delta": 1e-5} | wrong))
    with pytest.raises(ValueError, match=r"epsilon|power of two"):
        made.release(0.0)


def test_a_step_that_is_too_fine_to_add_up_is_refused() -> None:
    with pytest.raises(ValueError, match="greater step"):
        LatticeGaussian(1.0, 0.001, 1e-5, step=2.0**-20).release(0.0)
