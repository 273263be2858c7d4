"""Weights of statistics and the noise of sums, against sums over every draw."""

import math
from itertools import product

import numpy as np
import pytest

from estimators.response.debias import debias_vector
from estimators.response.pool_statistics import (
    Cumulants,
    ResponseNoise,
    counts_noise,
    declared_weights,
    statistic_weight,
    unit_noise,
)
from schemas.arrays import Floats

GRID = np.array([-2.0, 0.0, 1.0, 5.0])


def laplace(scale: float) -> tuple[Floats, Floats]:
    """The discrete Laplace distribution, up to what doubles hold."""
    k = np.arange(-math.ceil(60 * scale) - 5, math.ceil(60 * scale) + 6.0)
    weights = np.exp(-np.abs(k) / scale)
    return k, weights / weights.sum()


def cumulants(values: Floats, shares: Floats) -> tuple[float, float]:
    second, fourth = (float(shares @ (values - shares @ values) ** power) for power in (2, 4))
    return second, fourth - 3 * second**2


@pytest.mark.parametrize("scale", [0.1, 0.5, 1.0, 3.0, 40.0])
def test_the_cumulants_are_those_of_the_discrete_laplace_distribution(scale: float) -> None:
    found = Cumulants.of_discrete_laplace(scale)
    second, fourth = cumulants(*laplace(scale))
    assert found.second == pytest.approx(second, rel=1e-9)
    assert found.fourth == pytest.approx(fourth, rel=1e-8)


def test_the_cumulants_of_huge_noise_are_laplaces() -> None:
    found = Cumulants.of_discrete_laplace(1e6)
    assert found.second == pytest.approx(2e12, rel=1e-9)
    assert found.fourth == pytest.approx(12e24, rel=1e-9)


@pytest.mark.parametrize("of", [GRID, GRID**2], ids=["outcomes", "squares"])
def test_unit_noise_is_the_variance_of_a_debiased_value(of: Floats) -> None:
    """Given the true outcome, summed over the draws and averaged over the outcomes."""
    prior, outcomes, rate = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.4, 0.1, 0.2, 0.3]), 0.6
    vector = debias_vector(of, prior, rate)
    expected = 0.0
    for true, share in enumerate(outcomes):
        chance = rate * prior + (1 - rate) * (np.arange(4) == true)
        expected += share * float(chance @ (vector - of[true]) ** 2)
    assert unit_noise(of, outcomes, prior, rate) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("n", [1.0, 10.0, 1e4])
@pytest.mark.parametrize("noise", [0.5, 30.0, 1e5])
def test_the_weight_has_the_least_noise(n: float, noise: float) -> None:
    unit = 3.7
    (weight,) = statistic_weight(np.array([n]), unit, noise)

    def variance(w: Floats) -> Floats:
        return (1 - w) ** 2 * unit / n + w**2 * noise / n**2

    others = np.linspace(0, 1, 2001)
    assert 0 < weight < 1
    assert variance(np.array([weight]))[0] <= variance(others).min() * (1 + 1e-12)
    assert variance(np.array([weight]))[0] == pytest.approx(
        1 / (n / unit + n**2 / noise), rel=1e-12
    )


def test_weights_are_zero_without_noise_to_take_away_and_one_without_noise_to_add() -> None:
    n = np.array([3.0, 5.0])
    assert statistic_weight(n, 0.0, 4.0).tolist() == [0.0, 0.0]
    assert statistic_weight(n, 0.0, 0.0).tolist() == [0.0, 0.0]
    assert statistic_weight(n, 2.0, 0.0).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("values", [GRID[:3], GRID[:3] ** 2, GRID[1:]], ids=str)
def test_the_noise_of_a_sum_of_counts_is_that_of_every_draw(values: Floats) -> None:
    k, chance = laplace(0.4)
    kept = chance > 1e-12
    k, chance = k[kept], chance[kept]
    draws = np.array(list(product(k, repeat=3)))
    shares = np.prod(np.array(list(product(chance, repeat=3))), axis=1)
    second, fourth = cumulants(draws @ (values - values.mean()), shares / shares.sum())
    found = counts_noise(0.4, "counts").of_sum(values)
    assert found.second == pytest.approx(second, rel=1e-7)
    assert found.fourth == pytest.approx(fourth, rel=1e-6)


@pytest.mark.parametrize("values", [np.array([0.0, 1.0]), np.array([3.0, -4.0])], ids=str)
def test_a_count_and_its_complement_have_one_draw(values: Floats) -> None:
    k, chance = laplace(1.5)
    sums = np.stack([-k, k], axis=1) @ (values - values.mean())
    second, fourth = cumulants(sums, chance)
    found = counts_noise(1.5, "count-and-complement").of_sum(values)
    assert found.second == pytest.approx(second, rel=1e-9)
    assert found.fourth == pytest.approx(fourth, rel=1e-8)
    two = counts_noise(1.5, "counts").of_sum(values)
    assert two.second == pytest.approx(found.second / 2, rel=1e-9)


def test_declared_weights_are_those_of_the_guess_for_every_pool() -> None:
    guess, prior = np.array([0.7, 0.1, 0.1, 0.1]), np.full(4, 0.25)
    n, noise = np.array([4.0, 400.0]), counts_noise(2.0, "counts")
    response = ResponseNoise.of_prior(GRID, guess, prior, 0.5)
    found = declared_weights(GRID, response, noise, n)
    steps = GRID - 1.0
    for of, weights in ((steps, found.of_mean), (steps**2, found.of_square)):
        own = unit_noise(of, guess, prior, 0.5)
        second, _ = cumulants(*laplace(2.0))
        total = second * float(np.sum((of - of.mean()) ** 2))
        np.testing.assert_allclose(weights, own / n / (own / n + total / n**2), rtol=1e-9)
        assert weights[0] < weights[1]


def test_squares_of_two_outcomes_need_no_statistic() -> None:
    """They are the same for both outcomes about the middle."""
    noise = counts_noise(2.0, "count-and-complement")
    half = np.array([0.5, 0.5])
    grid = np.array([0.0, 1.0])
    response = ResponseNoise.of_prior(grid, half, half, 0.5)
    found = declared_weights(grid, response, noise, np.array([9.0]))
    assert found.of_square.tolist() == [0.0]
    assert 0 < found.of_mean[0] < 1
