"""The prior keeps its floor and adds up to one, exactly; and it is Algorithm 2's."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from privatizers.accounting.rounding import realised_threshold
from privatizers.mechanisms.prior import realised_prior, truncated_prior, uniform_prior
from privatizers.noise.randomness import UNIT


@dataclass(frozen=True)
class Case:
    """Noisy counts of some strata, their sizes, and γ."""

    noisy: NDArray[np.int64]
    sizes: NDArray[np.int64]
    gamma: float

    @property
    def prior(self) -> NDArray[np.float64]:
        return truncated_prior(self.noisy, self.sizes, self.gamma)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    n_outcomes, n_strata = draw(st.integers(2, 12)), draw(st.integers(1, 4))
    row = st.lists(st.integers(-60, 240), min_size=n_outcomes, max_size=n_outcomes)
    noisy = draw(st.lists(row, min_size=n_strata, max_size=n_strata))
    sizes = draw(st.lists(st.integers(1, 120), min_size=n_strata, max_size=n_strata))
    share = draw(st.just(1.0) | st.floats(1e-9, 1))  # 1: the greatest γ there is, 1/K
    gamma = realised_threshold(share / n_outcomes, n_outcomes)
    return Case(np.array(noisy), np.array(sizes), gamma)


def algorithm_2(noisy: list[int], n_units: int, gamma: Fraction) -> list[Fraction]:
    """Steps 2 and 3 of Algorithm 2 in Javanmard, Mirrokni and Pouget-Abadie (2025), exactly."""
    shares = [min(max(Fraction(count, n_units), gamma), Fraction(1)) for count in noisy]
    excess = sum(shares) - 1
    room = [share - gamma if excess > 0 else 1 - share for share in shares]
    whole = sum(room)
    return [share - own / whole * excess for share, own in zip(shares, room, strict=True)]


def in_steps(prior: NDArray[np.float64]) -> list[list[int]]:
    """Probabilities as whole multiples of 2⁻⁵³; fails where one is not."""
    exact = [[Fraction(float(cell)) * UNIT for cell in row] for row in prior]
    assert all(cell.denominator == 1 for row in exact for cell in row)
    return [[cell.numerator for cell in row] for row in exact]


def assert_sound(prior: NDArray[np.float64], gamma: float) -> None:
    rows = in_steps(prior)
    assert all(sum(row) == UNIT for row in rows)
    assert min(min(row) for row in rows) >= Fraction(gamma) * UNIT


@settings(max_examples=200, deadline=None)
@given(cases())
def test_the_truncated_prior_is_that_of_algorithm_2(case: Case) -> None:
    for row, noisy, size in zip(case.prior, case.noisy.tolist(), case.sizes.tolist(), strict=True):
        exact = algorithm_2(noisy, size, Fraction(case.gamma))
        assert sum(exact) == 1
        assert min(exact) >= Fraction(case.gamma)
        # A dozen additions and one division of numbers up to 12, in doubles of 1.1e-16.
        np.testing.assert_allclose(row, [float(cell) for cell in exact], rtol=0, atol=1e-13)


@settings(max_examples=200, deadline=None)
@given(cases())
def test_a_realised_prior_keeps_its_floor_and_adds_up_to_one_exactly(case: Case) -> None:
    assert_sound(realised_prior(case.prior, case.gamma), case.gamma)


@settings(max_examples=100, deadline=None)
@given(cases())
def test_realising_a_prior_hardly_moves_it(case: Case) -> None:
    moved = np.abs(realised_prior(case.prior, case.gamma) - case.prior)
    # A step for rounding each cell, given to the largest, and the error of the sum itself.
    assert moved.max() <= 4 * case.noisy.shape[1] / UNIT


@settings(max_examples=200, deadline=None)
@given(cases(), st.integers(0, 2**32 - 1))
def test_a_prior_that_misses_its_floor_and_its_sum_by_a_hair_is_mended(
    case: Case, seed: int
) -> None:
    """Whatever the platform's arithmetic does in the last bits, the realised prior is sound."""
    wobble = np.random.default_rng(seed).uniform(-1e-14, 1e-14, case.noisy.shape)
    assert_sound(realised_prior(case.prior * (1 + wobble), case.gamma), case.gamma)


def test_what_exceeds_one_is_taken_from_cells_above_the_floor() -> None:
    gamma = 0.25
    prior = np.array([[gamma, gamma + 2 / UNIT, 1 - 2 * gamma + 5 / UNIT]])
    assert in_steps(realised_prior(prior, gamma)) == [[UNIT // 4, UNIT // 4, UNIT // 2]]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 5), st.integers(2, 100))
def test_the_uniform_prior_is_realised_within_k_steps_of_one_over_k(
    n_strata: int, n_outcomes: int
) -> None:
    gamma = realised_threshold(1 / n_outcomes, n_outcomes)
    prior = realised_prior(uniform_prior(n_strata, n_outcomes), gamma)
    assert prior.shape == (n_strata, n_outcomes)
    assert_sound(prior, gamma)
    assert np.abs(prior - 1 / n_outcomes).max() <= n_outcomes / UNIT


def test_counts_within_the_threshold_become_their_shares() -> None:
    prior = truncated_prior(np.array([[2, 3, 5]]), np.array([10]), 0.125)
    np.testing.assert_allclose(prior, [[0.2, 0.3, 0.5]], rtol=1e-15)  # one division each


def test_counts_that_are_all_negative_become_the_uniform_prior() -> None:
    prior = truncated_prior(np.array([[-4, -9, -1, -2]]), np.array([10]), 0.125)
    np.testing.assert_allclose(prior, [[0.25] * 4], rtol=1e-15)  # one division each


def test_at_gamma_of_one_over_k_every_prior_is_uniform() -> None:
    prior = truncated_prior(np.array([[90, 8, 1, 1]]), np.array([100]), 0.25)
    np.testing.assert_allclose(prior, [[0.25] * 4], rtol=1e-15)  # as above
