"""The debias vector is yᵀQ⁻¹, and the noise it leaves is estimated without bias.

Nothing is drawn here: expectations are sums over every outcome that randomised response can give.
"""

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators.response.debias import (
    debias_vector,
    noise_of_outcomes,
    prior_moments,
    response_noise_variance,
)
from schemas.arrays import Floats


@dataclass(frozen=True)
class Case:
    """A grid, a prior and λ."""

    outcomes: Floats
    prior: Floats
    rate: float

    @property
    def response(self) -> Floats:
        """Q[y′, y] = (1 − λ)·1{y′ = y} + λ q̃_{y′}, as a matrix."""
        k = len(self.prior)
        return (1 - self.rate) * np.eye(k) + self.rate * np.outer(self.prior, np.ones(k))

    @property
    def vector(self) -> Floats:
        return debias_vector(self.outcomes, self.prior, self.rate)


@st.composite
def cases(draw: st.DrawFn, max_outcomes: int = 12, max_rate: float = 0.95) -> Case:
    k = draw(st.integers(2, max_outcomes))
    weights = np.array(draw(st.lists(st.floats(0.01, 1), min_size=k, max_size=k)))
    outcomes = draw(st.lists(st.floats(-100, 100), min_size=k, max_size=k))
    return Case(np.array(outcomes), weights / weights.sum(), draw(st.floats(0.001, max_rate)))


@settings(max_examples=200, deadline=None)
@given(cases())
def test_the_debias_vector_is_y_times_the_inverse_of_q(case: Case) -> None:
    expected = case.outcomes @ np.linalg.inv(case.response)
    # The inverse of a matrix with condition number κ is off by about κ · 1e-16, relatively: at
    # λ ≤ 0.95 and K ≤ 12, where κ stays under about 100, that is 1e-12 or better.
    condition = float(np.linalg.cond(case.response))
    tolerance = 1e-14 * condition * np.abs(expected).max()
    np.testing.assert_allclose(case.vector, expected, rtol=0, atol=tolerance)


@settings(max_examples=100, deadline=None)
@given(cases())
def test_the_debiased_outcome_of_every_unit_is_right_on_average(case: Case) -> None:
    expected = case.vector @ case.response
    tolerance = 1e-13 * np.abs(case.vector).max()  # a sum of a dozen products in doubles
    np.testing.assert_allclose(expected, case.outcomes, rtol=0, atol=tolerance)


def test_strata_are_debiased_each_with_its_own_prior() -> None:
    outcomes = np.array([0.0, 1.0, 5.0])
    priors = np.array([[[0.2, 0.3, 0.5], [0.6, 0.2, 0.2]], [[0.1, 0.1, 0.8], [0.3, 0.4, 0.3]]])
    together = debias_vector(outcomes, priors, 0.4)
    assert together.shape == (2, 2, 3)
    for place in np.ndindex(2, 2):
        alone = debias_vector(outcomes, priors[place], 0.4)
        np.testing.assert_allclose(together[place], alone, rtol=1e-14)


def test_a_wrong_rate_would_be_noticed() -> None:
    case = Case(np.array([0.0, 1.0, 2.0]), np.full(3, 1 / 3), 0.5)
    broken = debias_vector(case.outcomes, case.prior, 0.525)
    assert np.abs(broken @ case.response - case.outcomes).max() > 0.05


@settings(max_examples=100, deadline=None)
@given(cases())
def test_the_moments_of_a_prior_are_those_of_its_draws(case: Case) -> None:
    mean, variance = prior_moments(case.outcomes, case.prior)
    pairs = list(zip(case.prior.tolist(), case.outcomes.tolist(), strict=True))
    expected = math.fsum(share * value for share, value in pairs)
    spread = math.fsum(share * (value - expected) ** 2 for share, value in pairs)
    # Sums of at most 12 terms up to 100 and 200², in doubles.
    assert mean == pytest.approx(expected, abs=1e-12)
    assert variance == pytest.approx(spread, rel=1e-12, abs=1e-20)


@settings(max_examples=100, deadline=None)
@given(cases())
def test_the_noise_of_every_outcome_is_right_on_average(case: Case) -> None:
    """E[û(ỹ) | y] = Var(v(ỹ) | y), for every y."""
    expected = (case.vector - case.outcomes[:, np.newaxis]) ** 2 * case.response.T
    noise = noise_of_outcomes(case.outcomes, case.prior, case.rate)
    # Sums of a dozen products in doubles; of equal outcomes the squares of what rounding leaves;
    # and products below the least normal double, which have fewer digits.
    tolerance = 1e-12 * float(np.abs(noise).max()) + 1e-27 * float(np.abs(case.outcomes).max()) ** 2
    tolerance += float(np.finfo(np.float64).tiny)
    np.testing.assert_allclose(noise @ case.response, expected.sum(axis=1), rtol=0, atol=tolerance)


def test_a_priors_variance_survives_a_large_offset() -> None:
    _, variance = prior_moments(np.array([1e8, 1e8 + 1]), np.array([0.5, 0.5]))
    assert variance == 0.25


def noise_variance(case: Case, values: Floats) -> float:
    """V̂_RR of the mean of these randomised outcomes."""
    prior_mean, prior_variance = prior_moments(case.outcomes, case.prior)
    square = np.asarray(np.mean((values - prior_mean) ** 2))
    n = np.array(float(len(values)))
    return float(response_noise_variance(n, square, prior_variance, case.rate))


def expected_noise(case: Case, levels: tuple[int, ...]) -> tuple[float, float]:
    """E V̂_RR and Var of the mean of v(ỹ), over every way in which these units can be drawn."""
    estimated = mean = square = 0.0
    for drawn in product(range(len(case.prior)), repeat=len(levels)):
        chance = math.prod(case.response[to, old] for to, old in zip(drawn, levels, strict=True))
        values = case.outcomes[list(drawn)]
        estimated += chance * noise_variance(case, values)
        debiased = float(case.vector[list(drawn)].mean())
        mean += chance * debiased
        square += chance * debiased**2
    assert mean == pytest.approx(case.outcomes[list(levels)].mean(), abs=1e-9)  # as below
    return estimated, square - mean**2


@settings(max_examples=40, deadline=None)
@given(cases(max_outcomes=3, max_rate=0.9), st.data())
def test_the_noise_variance_is_right_on_average(case: Case, data: st.DataObject) -> None:
    level = st.integers(0, len(case.prior) - 1)
    levels = tuple(data.draw(st.lists(level, min_size=1, max_size=4)))
    estimated, exact = expected_noise(case, levels)
    # E v² − (E v)² with v up to 200/(1 − λ) = 2000 in doubles: off by some 4e6 · 1e-16.
    assert estimated == pytest.approx(exact, rel=1e-9, abs=1e-7)


@settings(max_examples=100, deadline=None)
@given(st.floats(1, 1e6), st.floats(0, 1e4), st.floats(0, 1e4), st.floats(0.001, 0.95))
def test_the_noise_variance_is_never_negative_and_halves_with_twice_the_units(
    n: float, square: float, spread: float, rate: float
) -> None:
    parts = np.array(square), np.array(spread), rate
    found = response_noise_variance(np.array(n), *parts)
    assert found >= 0
    half = response_noise_variance(np.array(2 * n), *parts)
    assert abs(half - found / 2) <= 5e-324  # the least double, by which subnormal ones are rounded


def test_one_unit_by_hand() -> None:
    """λ = ½, so r = 1: 2·[(ỹ − m)² + ½ Var]."""
    found = response_noise_variance(np.array(1.0), np.array(9.0), np.array(4.0), 0.5)
    assert found == 2 * (9 + 0.5 * 4)
