"""Claims are compared in whole numbers, and tables are broken on purpose."""

import math
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from privatizers.noise.randomness import UNIT
from privatizers.optimal_response import whole_numbers
from privatizers.optimal_response.linear_programme import UnsolvedError
from privatizers.optimal_response.programme import solve
from privatizers.optimal_response.whole_numbers import (
    even_table,
    realised,
    table_of,
)
from schemas.arrays import Floats

DESIGNS = 300
RELEASED: Floats = np.arange(-5.0, 7.0)


def made_up(seed: int) -> tuple[Floats, Floats, float]:
    """Values at odd distances, a guess of any skewness, and an ε."""
    random = np.random.default_rng(seed)
    size = int(random.integers(2, 9))
    values = np.cumsum(random.uniform(0.05, 2.0, size)) - 3.0
    guess = random.dirichlet(np.full(size, random.choice([0.05, 0.3, 1.0, 10.0])))
    return values, guess, float(random.uniform(0.1, 9.0))


@pytest.mark.statistical  # long; the seeds are fixed
def test_designs_keep_their_claim_exactly_and_attain_it() -> None:
    """Ratios of whole numbers are compared with e^ε in fractions; none may be above it."""
    fell_back = 0
    for seed in range(DESIGNS):
        values, guess, epsilon = made_up(seed)
        table = table_of(values, guess, epsilon)
        assert (table.units.sum(axis=1) == UNIT).all()
        assert (table.units > 0).all()
        ratio = max(Fraction(int(column.max()), int(column.min())) for column in table.units.T)
        greatest = Decimal(ratio.numerator) / Decimal(ratio.denominator)
        assert greatest <= Decimal(epsilon).exp()
        assert float(greatest.ln()) >= epsilon * (1 - 1e-9)  # nothing of it is left unused
        assert table.bias <= 1e-12 * (values[-1] - values[0])
        even = even_table(values, epsilon)
        assert guess @ table.noise <= guess @ even.noise * (1 + 1e-3)
        fell_back += table.units.shape == even.units.shape
    assert fell_back < DESIGNS / 2  # it is not randomised response throughout


@pytest.mark.parametrize("epsilon", [0.2, 2.0, 6.0])
def test_whole_numbers_cost_next_to_nothing(epsilon: float) -> None:
    guess = np.full(12, 1 / 12)
    found = solve(RELEASED, guess, epsilon)
    table = realised(found, RELEASED, guess)
    assert guess @ table.noise == pytest.approx(found.noise, rel=1e-4)


def test_one_unit_of_probability_too_many_is_noticed() -> None:
    table = table_of(RELEASED, np.full(12, 1 / 12), 1.0)
    assert table.keeps(1.0)
    most = np.unravel_index(np.argmax(table.units / table.units.min(axis=0)), table.units.shape)
    units = table.units.copy()
    units[most] += 1 << 3
    assert not replace(table, units=units).keeps(1.0)
    assert not table.keeps(1.0 - 1e-6)


@pytest.mark.parametrize("epsilon", [20.0, 0.01])
def test_where_nothing_better_can_be_had_it_is_randomised_response(epsilon: float) -> None:
    table = table_of(RELEASED, np.full(12, 1 / 12), epsilon)
    assert table.keeps(epsilon)
    assert table.bias < 1e-11


@pytest.mark.parametrize(("at", "epsilon", "even"), [(1, 8.0, 0.0), (2, 0.25, 0.01)])
def test_a_table_whose_rows_are_dependent_is_not_taken(
    at: int, epsilon: float, even: float
) -> None:
    """The least noise on means may be that of a table which tells nothing of squares."""
    values = np.arange(6.0)
    guess = (1 - even) * np.eye(6)[at] + even / 6
    dependent = realised(solve(values, guess, epsilon), values, guess)
    table = table_of(values, guess, epsilon)
    assert table.tells_apart(epsilon)
    assert table.keeps(epsilon)
    assert guess @ table.noise <= 1.5 * (guess @ dependent.noise)
    assert guess @ table.noise < guess @ even_table(values, epsilon).noise
    np.testing.assert_array_equal(table.guess, guess)


def test_rows_that_are_dependent_tell_inputs_apart_too_little() -> None:
    values = np.arange(3.0)
    table = even_table(values, 1.0)
    assert table.tells_apart(1.0)
    units = table.units.copy()
    units[1] = (units[0] + units[2]) // 2
    assert not replace(table, units=units).tells_apart(1.0)


@pytest.mark.parametrize("epsilon", [0.01, 2.0])
def test_a_grid_far_from_zero_has_the_table_of_the_same_grid_at_zero(epsilon: float) -> None:
    """No last bit of a great number may make a release fail, or noisier."""
    values, guess = np.arange(10.0) / 8.0, np.full(10, 0.1)  # sums with 2²⁰ are exact
    near, far = (table_of(values + start, guess, epsilon) for start in (0.0, 2.0**20))
    assert far.is_unbiased
    assert guess @ far.noise == pytest.approx(guess @ near.noise, rel=1e-6)
    assert even_table(values + 2.0**20, epsilon).is_unbiased
    assert not replace(far, values=far.values + 1e-6).is_unbiased


def test_a_solver_that_fails_means_randomised_response(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise UnsolvedError

    monkeypatch.setattr(whole_numbers, "solve", failing)
    table = table_of(RELEASED, np.full(12, 1 / 12), 2.0)
    np.testing.assert_array_equal(table.units, even_table(RELEASED, 2.0).units)


@pytest.mark.parametrize("epsilon", [1e-7, 60.0])
def test_an_epsilon_that_no_table_keeps_is_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match="epsilon"):
        table_of(RELEASED, np.full(12, 1 / 12), epsilon)


def test_e_to_the_epsilon_is_rounded_down() -> None:
    used = whole_numbers._factor(1.0)
    with localcontext(prec=80):
        assert used < Decimal(1).exp()
    assert math.isclose(used, math.e, rel_tol=1e-15)
