"""Noise that plans reckon with is near that of the tables that releases draw from."""

import numpy as np
import pytest

from privatizers.optimal_response.learnt_guess import public_response
from privatizers.planning.noise.response_noise import (
    DividedEpsilon,
    Informed,
    _solved,
    learnt_guess,
    left_unknown,
    optimal_noise,
    table_noise,
)
from schemas.arrays import Floats

GUESSES: dict[str, tuple[Floats, Floats]] = {
    "binary": (np.array([0.0, 1.0]), np.array([0.9, 0.1])),
    "even": (np.arange(-5.0, 1.0), np.full(6, 1 / 6)),
    "skewed": (np.array([0.0, 1.0, 2.0, 10.0]), np.array([0.6, 0.3, 0.06, 0.04])),
}


def of_table(grid: Floats, guess: Floats, epsilon: float) -> tuple[float, float]:
    """The noise of a release's table for a guess, where that is right."""
    response = public_response(grid, guess, epsilon, 1)
    occurs = guess @ response.probabilities[0]
    functions = response.functions
    return float(occurs @ functions.noise[0]), float(occurs @ functions.square_noise[0])


@pytest.mark.parametrize("name", GUESSES)
def test_interpolated_noise_is_near_that_of_tables(name: str) -> None:
    grid, guess = GUESSES[name]
    epsilons = np.array([0.03, 1.1, 2.6, 4.4, 11.0])
    found = optimal_noise(grid, guess, guess, epsilons)
    told = np.array([of_table(grid, guess, one) for one in epsilons.tolist()])
    np.testing.assert_allclose(found.of_mean, told[:, 0], rtol=0.15)
    assert np.all(np.diff(found.of_mean) < 0)
    # Tables that are as good as each other for means are not so for squares.
    np.testing.assert_allclose(found.of_square[1:], told[1:, 1], rtol=0.5, atol=1e-12)


@pytest.mark.parametrize("name", GUESSES)
def test_what_is_interpolated_is_within_a_few_hundredths(name: str) -> None:
    """Up to 5 tables are solved at every whole ε, above it at fewer; between them it is closest
    where nobody looks at less than the greatest."""
    grid, guess = GUESSES[name]
    for epsilons, at_most, most in (
        ([0.03, 0.5, 1.3, 2.6, 4.5], False, 0.06),
        ([5.6, 7.2, 9.0], False, 0.12),
        ([4.5], True, 0.06),
    ):
        found = optimal_noise(grid, guess, guess, np.array(epsilons), at_most=at_most)
        told = [of_table(grid, guess, one)[0] for one in epsilons]
        np.testing.assert_allclose(found.of_mean, told, rtol=most)


def test_two_outcomes_take_no_programme() -> None:
    grid, guess = GUESSES["binary"]
    before = _solved.cache_info()
    optimal_noise(7.0 * grid, guess, guess, np.array([0.3, 2.0]))
    assert _solved.cache_info() == before


def test_noise_below_the_least_epsilon_falls_as_its_square() -> None:
    grid, guess = GUESSES["even"]
    found = optimal_noise(grid, guess, guess, np.array([0.01, 0.02, 0.04]))
    np.testing.assert_allclose(found.of_mean[:-1] / found.of_mean[1:], 4.0, rtol=0.01)


def test_noise_goes_with_the_unit_of_outcomes() -> None:
    grid, guess = GUESSES["skewed"]
    epsilons = np.array([0.5, 3.0])
    one, other = (optimal_noise(at, guess, guess, epsilons) for at in (grid, 7.0 + 3.0 * grid))
    np.testing.assert_allclose(other.of_mean, 9.0 * one.of_mean, rtol=1e-9)
    np.testing.assert_allclose(other.of_square, 81.0 * one.of_square, rtol=1e-9)


def test_the_more_counts_tell_the_nearer_tables_are_to_those_for_outcomes_as_they_are() -> None:
    """And those that tell little bring nothing, at the same epsilon."""
    grid, guess = GUESSES["even"]
    outcomes = np.array([0.9, 0.1, 0.0, 0.0, 0.0, 0.0])
    shares = np.array([0.001, 0.02, 0.9])
    nothing = np.zeros(3)
    informed = Informed(1_000.0, 9_000.0)
    splits = DividedEpsilon(4.0, 0.0, "counts", shares, nothing, nothing)
    declared, response = table_noise(splits, grid, guess, outcomes, informed)
    left = 4.0 * (1.0 - shares)
    fixed = optimal_noise(grid, guess, outcomes, left).of_mean
    learnt = optimal_noise(grid, learnt_guess(outcomes), outcomes, left, at_most=True).of_mean
    away = left_unknown(1_000.0 * 4.0 * shares / 6, left)
    expected = away * fixed + (1.0 - away) * learnt
    np.testing.assert_allclose(response[0], [fixed[0], *expected[1:]], rtol=1e-12)
    assert 0.01 < away[1] < 0.1
    assert away[2] < 0.001
    assert learnt[1] < 0.6 * fixed[1]
    np.testing.assert_array_equal(declared[0], optimal_noise(grid, guess, guess, left).of_mean)
    of_arms = DividedEpsilon(4.0, 0.0, "none", nothing, nothing, shares)  # as well known
    _, by_arms = table_noise(of_arms, grid, guess, outcomes, Informed(0.0, 1_000.0))
    np.testing.assert_array_equal(by_arms[0], response[0])
    each = Informed(1_000.0, 9_000.0, 1_000.0)  # what strata's own tables are taken to gain
    (_, own) = table_noise(splits, grid, guess, outcomes, each)
    more = 1.0 + 0.3 * (1.0 - away[1])
    gained = fixed[1] - own[0][1]
    assert gained == pytest.approx(more * (fixed[1] - response[0][1]), rel=1e-12)
    without = DividedEpsilon(4.0, 0.0, "none", *np.zeros((3, 1)))
    (never, _) = table_noise(without, grid, guess, outcomes, Informed(1e9, 1e9))[1]
    np.testing.assert_array_equal(
        never, optimal_noise(grid, guess, outcomes, np.full(1, 4.0)).of_mean
    )
