"""Noisy sums of squares: what they are, what they cost, and what they refuse."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from estimators.response.pool_statistics import Cumulants
from privatizers.accounting.accountant import delta_at, epsilon_at, pure_epsilon
from privatizers.accounting.events import SquareNoise, SumNoise, Together
from privatizers.domain.lattice import Lattice, lattice_of
from privatizers.domain.strata import lay_out
from privatizers.mechanisms.parameters import event_of
from privatizers.mechanisms.statistics.noisy_squares import (
    NoisySquares,
    SquareSteps,
    counts_of_arms,
    is_even,
    square_steps,
)
from privatizers.planning.design import Request, design
from schemas.errors import ConfigError
from tests.composition import composed_delta
from tests.support.distances import assert_near

GRIDS: tuple[tuple[float, ...], ...] = (
    (0.0, 1.0, 2.0),
    tuple(float(one) for one in range(-5, 7)),
    (-2.0, 0.0, 1.0, 6.0),
    (0.1, 0.3, 0.5, 0.7),
    (0.0, 2.5, 10.0),
    (-3.0, -1.0, 0.0, 1.0, 3.0),
)
every_grid = pytest.mark.parametrize("grid", GRIDS, ids=str)


def lattice(grid: tuple[float, ...]) -> Lattice:
    found = lattice_of(grid)
    assert found is not None
    return found


def steps_of(grid: tuple[float, ...]) -> SquareSteps:
    found = square_steps(lattice(grid))
    assert found is not None
    return found


@every_grid
def test_steps_are_the_squares_about_the_middle_in_whole_numbers(grid: tuple[float, ...]) -> None:
    found, middle = steps_of(grid), (grid[0] + grid[-1]) / 2
    told = [found.step_of(grid) * one + found.least_of(grid) for one in found.steps]
    assert told == pytest.approx([(value - middle) ** 2 for value in grid], rel=1e-12, abs=1e-12)
    assert min(found.steps) == 0
    assert math.gcd(*found.steps) == 1
    assert found.most * found.step_of(grid) <= (grid[-1] - grid[0]) ** 2 / 4 * (1 + 1e-12)


def test_squares_of_two_outcomes_are_the_same_and_are_not_published() -> None:
    assert square_steps(Lattice((0, 1))) is None
    asked = Request(
        "uniform-prior-dp", 2, "means", epsilon=1.0, lattice=Lattice((0, 1)), square_share=0.1
    )
    assert design(asked).mechanism.parameters.squares is None


@every_grid
def test_what_is_released_is_the_sum_of_squares_and_noise(grid: tuple[float, ...]) -> None:
    counts = np.arange(2 * len(grid), dtype=np.int64).reshape(2, -1) + 1
    n, middle = counts.sum(axis=1), (grid[0] + grid[-1]) / 2
    quiet = NoisySquares(steps_of(grid), 1e-3)
    found = quiet.released(quiet.noised(counts), n, grid)
    exact = counts @ (np.array(grid) - middle) ** 2
    assert found.noisy_square == pytest.approx(exact, rel=1e-12)
    assert found.centre == middle
    loud = NoisySquares(steps_of(grid), 50.0)
    draws = loud.noised(np.tile(counts[:1], (40_000, 1))) - counts[0] @ np.array(loud.steps.steps)
    expected = Cumulants.of_discrete_laplace(50.0)
    # The variance of 40,000 draws: five standard errors, √(κ₄ + 2κ₂²)/200; 6e-7 a case.
    error = math.sqrt(expected.fourth + 2 * expected.second**2) / 200
    assert_near(float(draws.var()), expected.second, error, 5.0)
    assert loud.variance(grid) == pytest.approx(
        expected.second * loud.steps.step_of(grid) ** 2, rel=1e-3
    )
    assert loud.variance(grid) >= expected.second * loud.steps.step_of(grid) ** 2


def log_law(scale: float, reach: int) -> NDArray[np.float64]:
    at = np.abs(np.arange(-reach, reach + 1))
    found: NDArray[np.float64] = math.log(math.tanh(1 / (2 * scale))) - at / scale
    return found


@every_grid
def test_the_loss_listed_over_all_substitutions_is_the_price(grid: tuple[float, ...]) -> None:
    """Of the sum of squares alone: the greatest ratio of two laws, over every pair of outcomes."""
    own = NoisySquares(steps_of(grid), 3.0)
    reach = 40 * own.steps.most + 400
    law, worst = log_law(own.noise_scale, reach), 0.0
    for one in own.steps.steps:
        for other in own.steps.steps:
            shift = abs(one - other)
            worst = max(worst, float(np.max(law[shift:] - law[: len(law) - shift])))
    event = SquareNoise(own.noise_scale, own.steps.most)
    assert worst == pytest.approx(pure_epsilon(event), rel=1e-9)
    assert pure_epsilon(event) >= Fraction(own.steps.most) / Fraction(own.noise_scale)
    # What a reader of the file computes from its numbers.
    squares = [(value - (grid[0] + grid[-1]) / 2) ** 2 for value in grid]
    published = own.released(np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64), grid)
    told = (max(squares) - min(squares)) / published.noise_scale
    assert told == pytest.approx(pure_epsilon(event), rel=1e-9)


def test_sums_means_and_outcomes_listed_together_cost_no_more_than_is_claimed() -> None:
    """Joint losses of a sum, a sum of squares and a response, over all pairs of four outcomes."""
    grid = (0.0, 1.0, 2.0, 3.0)
    asked = Request(
        "uniform-prior-dp", 4, "means", epsilon=1.0, lattice=lattice(grid), statistic_share=0.6,
        square_share=0.1,
    )  # fmt: skip
    found = design(asked)
    parameters = found.mechanism.parameters
    squares, scale = parameters.squares, parameters.noise_scale
    assert squares is not None
    assert scale is not None
    rate = parameters.resampling_probability
    response = math.log((1 - rate + rate / 4) / (rate / 4))
    losses = [
        abs(one - other) / scale
        + abs(squares.steps.steps[one] - squares.steps.steps[other]) / squares.noise_scale
        + response
        for one in range(4)
        for other in range(4)
        if one != other
    ]
    assert max(losses) <= 1.0 * (1 + 1e-12)
    assert pure_epsilon(event_of(parameters)) <= 1.0
    # The parts add up to the claim, of which squares have theirs.
    assert squares.steps.most / squares.noise_scale == pytest.approx(0.1, rel=1e-12)
    without = replace(parameters, squares=None)
    assert pure_epsilon(event_of(without)) == pytest.approx(0.9, rel=1e-9)


def exact_delta(event: SquareNoise, epsilon: float) -> float:
    reach = 40 * event.most_steps + 60 * math.ceil(event.noise_scale)
    law = np.exp(log_law(event.noise_scale, reach))
    above, below = law[event.most_steps :], law[: len(law) - event.most_steps]
    found = np.maximum(below - math.exp(epsilon) * above, 0.0).sum()
    return float(found + law[-event.most_steps :].sum())


@pytest.mark.parametrize("spent", [0.0, 0.02, 0.05, 0.09])
def test_a_delta_is_never_below_the_exact_one(spent: float) -> None:
    event = SquareNoise(150.0, 15)
    assert pure_epsilon(event) == pytest.approx(0.1)
    exact = exact_delta(event, spent)
    assert exact * (1 - 1e-9) <= delta_at(event, spent)
    assert delta_at(event, spent) <= exact + 0.026  # at this ε binary response is not far off
    together = Together((SumNoise(20.0, 11), event))
    assert epsilon_at(together, 1e-3) <= pure_epsilon(together)
    assert composed_delta((together,), 0.3) >= delta_at(together, 0.3) - 1e-6


def test_a_calibrated_release_at_a_delta_is_within_it() -> None:
    grid = tuple(float(one) for one in range(-5, 7))
    asked = Request(
        "uniform-prior-dp", 12, "means", epsilon=1.0, delta=1e-4, lattice=lattice(grid),
        statistic_share=0.8, square_share=0.07,
    )  # fmt: skip
    found = design(asked)
    assert delta_at(event_of(found.mechanism.parameters), 1.0) <= 1e-4
    pure = design(replace(asked, delta=0.0))
    rates = [one.mechanism.parameters.resampling_probability for one in (found, pure)]
    assert rates[0] < rates[1]


def test_sums_that_64_bits_cannot_hold_are_refused_by_public_sizes() -> None:
    wide = NoisySquares(SquareSteps((0, 10**9), 1, 8, 10**5), 5.0)
    wide.check_room(10**9)
    with pytest.raises(ConfigError, match="does not fit"):
        wide.check_room(10**10)


def test_arms_are_added_up_over_pools() -> None:
    sizes = np.array([[2, 0], [3, 4], [1, 5]])
    strata = lay_out(["a", "b", "c"], ["x", "y"], sizes, np.arange(3))
    counts = np.arange(5 * 3, dtype=np.int64).reshape(5, 3)  # ax, bx, by, cx, cy
    found = counts_of_arms(counts, strata)
    assert found.tolist() == [
        (counts[0] + counts[1] + counts[3]).tolist(),
        (counts[2] + counts[4]).tolist(),
    ]


def test_squares_go_with_means_on_even_grids_alone() -> None:
    uneven, even = lattice((-2.0, 0.0, 1.0, 6.0)), lattice((-3.0, -1.0, 0.0, 1.0, 3.0))
    assert is_even(even)
    assert not is_even(uneven)
    asked = Request("uniform-prior-dp", 4, "means", epsilon=1.0, lattice=uneven, square_share=0.1)
    plain = design(asked).mechanism.parameters
    assert plain.squares is None
    with pytest.raises(ValueError, match="whose mean is its middle"):
        replace(plain, squares=NoisySquares(steps_of((-2.0, 0.0, 1.0, 6.0)), 1.0))
    with pytest.raises(ValueError, match="lattice that they are of"):
        replace(plain, squares=NoisySquares(steps_of((0.0, 1.0, 2.0)), 1.0))
