"""Tables of two outcomes together: what they keep, that they bias nothing, how noisy they are."""

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

from privatizers.noise.randomness import UNIT
from privatizers.optimal_response.pair_table import PairTable, pair_table
from privatizers.optimal_response.pairs import (
    MOST_PAIRS,
    PairedGrid,
    pair_guess,
    pairs_of,
    separate,
    solve_pair,
)
from privatizers.optimal_response.programme import solve
from privatizers.optimal_response.response import OptimalResponse
from schemas.arrays import Floats

SIDES = {
    "two by two": (((0.0, 1.0), (0.9, 0.1)), ((0.0, 1.0), (0.5, 0.5))),
    "uneven": (((0.0, 1.0, 5.0), (0.7, 0.2, 0.1)), ((-3.0, 4.0), (0.2, 0.8))),
    "never": (((0.0, 2.0), (1.0, 0.0)), ((0.0, 1.0, 2.0), (0.0, 0.5, 0.5))),
}


def sides(name: str, first: float, second: float) -> tuple[PairedGrid, PairedGrid]:
    one, other = SIDES[name]
    return PairedGrid(*one, first), PairedGrid(*other, second)


def noise(table: PairTable) -> Floats:
    guess = pair_guess(*table.grids)
    return np.array([guess @ side.noise for side in table.sides])


def alone(pair: tuple[PairedGrid, PairedGrid]) -> Floats:
    found = [solve(np.array(one.values), np.array(one.guess), one.epsilon).noise for one in pair]
    return np.array(found)


@pytest.mark.parametrize("name", SIDES)
@pytest.mark.parametrize(("first", "second"), [(0.001, 0.002), (1.0, 1.0), (5.0, 2.5)])
def test_a_table_keeps_epsilon_and_reaches_it(name: str, first: float, second: float) -> None:
    table = pair_table(*sides(name, first, second))
    assert (table.units.sum(axis=1) == UNIT).all()
    assert table.units.min() > 0
    highs, lows = table.units.max(axis=0).tolist(), table.units.min(axis=0).tolist()
    greatest = max(Fraction(high, low) for high, low in zip(highs, lows, strict=True))
    loss = (Decimal(greatest.numerator) / Decimal(greatest.denominator)).ln()
    whole = Decimal(first) + Decimal(second)
    assert whole - Decimal("1e-9") < loss <= whole


@pytest.mark.parametrize("name", SIDES)
@pytest.mark.parametrize("epsilon", [0.1, 2.0])
def test_both_outcomes_are_unbiased_and_their_noise_is_uncorrelated(
    name: str, epsilon: float
) -> None:
    table = pair_table(*sides(name, epsilon, epsilon))
    chances = table.units / UNIT
    y, z = pairs_of(np.array(table.first.values), np.array(table.second.values))
    v, w = table.values
    size = np.abs(v).max() * np.abs(w).max()
    np.testing.assert_allclose(chances @ v, y, atol=1e-13 * np.abs(v).max())
    np.testing.assert_allclose(chances @ w, z, atol=1e-13 * np.abs(w).max())
    np.testing.assert_allclose(chances @ (v * w), y * z, atol=1e-13 * size)


@pytest.mark.parametrize("name", SIDES)
def test_what_outputs_add_to_noise_and_squares_is_exact_for_every_pair(name: str) -> None:
    table = pair_table(*sides(name, 1.0, 1.5))
    for side in table.sides:
        response = OptimalResponse((side,), np.zeros(1, dtype=np.int64))
        functions, chances = response.functions, side.probabilities
        squares = (side.inputs - side.inputs.mean()) ** 2
        np.testing.assert_allclose(chances @ functions.noise[0], side.noise, rtol=1e-9)
        np.testing.assert_allclose(
            chances @ functions.square[0], squares, atol=1e-9 * squares.max()
        )
        spread = chances @ functions.square[0] ** 2 - (chances @ functions.square[0]) ** 2
        np.testing.assert_allclose(
            chances @ functions.square_noise[0], spread, atol=1e-9 * max(spread.max(), 1.0)
        )


@pytest.mark.parametrize("name", SIDES)
@pytest.mark.parametrize(("epsilon", "most"), [(0.1, 0.53), (1.0, 0.56), (2.0, 0.40)])
def test_it_is_far_less_noisy_than_two_tables(name: str, epsilon: float, most: float) -> None:
    """The bounds are of the mean of both noises, as parts of those of tables at half of ε each."""
    pair = sides(name, epsilon, epsilon)
    parts = noise(pair_table(*pair)) / alone(pair)
    found = solve_pair(*pair)
    assert float(parts.mean()) < most
    assert float(parts.mean()) == pytest.approx(found.cost, rel=1e-3)
    assert 0 <= found.cost - found.bound <= 0.01 * found.cost


def test_two_tables_as_one_are_those_two_tables() -> None:
    pair = sides("uneven", 0.7, 1.6)
    whole = separate(*pair)
    chances = whole.masses * np.where(whole.favoured, math.exp(whole.epsilon), 1.0)
    v, w = whole.values
    y, z = pairs_of(pair[0].scaled, pair[1].scaled)
    for power in (0, 1):
        np.testing.assert_allclose(chances @ v**power, y**power, atol=1e-12)
    np.testing.assert_allclose(chances @ (v * w), y * z, atol=1e-12)
    halves = np.array([one.half for one in pair])
    spread = np.stack([chances @ v**2 - y**2, chances @ w**2 - z**2])
    np.testing.assert_allclose((spread @ pair_guess(*pair)) * halves**2, alone(pair), rtol=1e-6)


def test_the_least_noise_is_that_of_a_fine_grid_of_outputs() -> None:
    """An independent programme of all 16 sets, and outputs on a lattice, for two by two values."""
    one = PairedGrid((-1.0, 1.0), (0.5, 0.5), 1.0)
    found, line = solve_pair(one, one), np.linspace(-2.5, 2.5, 21)
    lattice = np.array(list(itertools.product(line, line)))
    y, z = pairs_of(one.scaled, one.scaled)
    rows, costs = [], []
    for chosen in itertools.product((False, True), repeat=4):
        column = np.where(chosen, math.exp(2.0), 1.0)
        v, w = lattice.T
        parts = [np.outer(column, part) for part in (np.ones(len(v)), v, w, v * w)]
        rows.append(np.concatenate(parts))
        costs.append(column.sum() / 4.0 * (v**2 + w**2))
    wanted = np.concatenate([np.ones(4), y, z, y * z])
    solved = linprog(np.concatenate(costs), A_eq=np.concatenate(rows, axis=1), b_eq=wanted)
    assert solved.fun is not None
    least = (solved.fun - 2.0) / 2.0 / alone((one, one))[0]
    assert 0.99 * least < found.cost < 1.01 * least


def test_what_no_table_can_be_made_of_is_refused() -> None:
    grid = tuple(float(value) for value in range(5))
    five = PairedGrid(grid, (0.2,) * 5, 1.0)
    assert MOST_PAIRS < 25
    with pytest.raises(ValueError, match="pairs of values"):
        pair_table(five, five)
    with pytest.raises(ValueError, match="so small an epsilon"):
        pair_table(*sides("two by two", 1e-9, 1e-9))


def test_great_epsilon_has_a_table_without_a_programme() -> None:
    table = pair_table(*sides("uneven", 8.0, 8.0))
    assert table.is_exact
    assert table.epsilon == pytest.approx(16.0)
