"""Draws have a table's frequencies exactly: words are walked through, or entries added up."""

from dataclasses import replace

import numpy as np
import pytest

from privatizers.noise.randomness import UNIT
from privatizers.optimal_response import response as drawing
from privatizers.optimal_response.response import OptimalResponse
from privatizers.optimal_response.whole_numbers import ResponseTable, even_table, table_of
from schemas.arrays import Ints, Words
from tests.support.distances import assert_near

GRID = np.array([0.0, 1.0, 3.0])
BLOCKS = 1 << 8
"""Words that are walked through: the first of each block of 2⁴⁵, within which an output is one."""


def coarse(parts: list[list[int]]) -> ResponseTable:
    """A table whose probabilities are multiples of 1/256."""
    units = np.array(parts, dtype=np.int64) * (UNIT // BLOCKS)
    return ResponseTable(GRID, units, np.linspace(-1, 4, units.shape[1]), np.full(3, 1 / 3))


FIVE = coarse([[100, 60, 50, 40, 6], [40, 100, 70, 40, 6], [20, 30, 100, 100, 6]])
TWO = coarse([[200, 56], [128, 128], [40, 216]])


def test_of_all_words_each_output_gets_exactly_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a table has fewer outputs than another: those it has not are never drawn."""
    words: Words = np.arange(BLOCKS, dtype=np.uint64) << np.uint64(45)
    monkeypatch.setattr(drawing, "random_words", lambda size: np.resize(words, size))
    response = OptimalResponse((FIVE, TWO), np.array([1, 0, 1]))
    assert response.n_outputs == 5
    for stratum, table in enumerate((TWO, FIVE, TWO)):
        for level in range(3):
            drawn = response.draw(np.full(BLOCKS, level), np.full(BLOCKS, stratum))
            times = np.bincount(drawn, minlength=5) * (UNIT // BLOCKS)
            expected = np.zeros(5, dtype=np.int64)
            expected[: table.units.shape[1]] = table.units[level]
            np.testing.assert_array_equal(times, expected)


def added_up(response: OptimalResponse) -> Ints:
    """How many of the 2⁵³ words give each output, by the entries that draws look up, [rows, J]."""
    rows = response.tables().rows
    bits, (n_rows, n_columns) = rows.column_bits, rows.entries.shape
    found = np.zeros((n_rows, n_columns), dtype=np.int64)
    threshold = (rows.entries >> np.uint64(bits)).astype(np.int64)
    alias = (rows.entries & np.uint64((1 << bits) - 1)).astype(np.int64)
    for column in range(n_columns):
        found[:, column] += threshold[:, column]
        np.add.at(
            found, (np.arange(n_rows), alias[:, column]), UNIT // n_columns - threshold[:, column]
        )
    return found


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
def test_what_draws_look_up_adds_up_to_solved_tables_exactly(epsilon: float) -> None:
    guesses = ([0.6, 0.3, 0.1], [1 / 3] * 3, [0.0, 0.1, 0.9])
    tables = (*(table_of(GRID, np.array(each), epsilon) for each in guesses), even_table(GRID, 1.0))
    response = OptimalResponse(tables, np.arange(4))
    found = added_up(response)
    expected = response.units.reshape(len(found), -1)
    np.testing.assert_array_equal(found[:, : expected.shape[1]], expected)
    assert not found[:, expected.shape[1] :].any()


def test_outputs_that_a_table_has_not_have_no_probability_and_a_value_in_the_middle() -> None:
    response = OptimalResponse((FIVE, TWO), np.array([0, 1]))
    np.testing.assert_array_equal(response.units[1, :, 2:], 0)
    np.testing.assert_array_equal(response.weights[1], [-1.0, 4.0, 1.5, 1.5, 1.5])
    np.testing.assert_array_equal(response.probabilities.sum(axis=2), 1.0)
    told = OptimalResponse((FIVE, even_table(GRID, 1.0)), np.array([0, 1])).functions
    assert told.mean[1, :4].all()
    assert not told.mean[1, 4:].any()


def test_draws_have_the_least_type_that_holds_an_output() -> None:
    tables = OptimalResponse((FIVE,), np.zeros(1, dtype=np.int64)).tables()
    drawn = tables.draw(np.array([0, 1, 2], dtype=np.uint8), np.zeros(3, dtype=np.uint16))
    assert drawn.dtype == np.uint8
    assert tables.draw(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)).size == 0


@pytest.mark.parametrize(
    ("level", "stratum", "rule"),
    [
        (3, 0, "level is not on the grid"),
        (-1, 0, "level is not on the grid"),
        (0, 2, "stratum has no table"),
        (0, -1, "stratum has no table"),
    ],
)
def test_a_position_out_of_range_is_refused_without_saying_whose(
    level: int, stratum: int, rule: str
) -> None:
    response = OptimalResponse((FIVE,), np.zeros(2, dtype=np.int64))
    with pytest.raises(ValueError, match=rule) as error:
        response.draw(np.array([0, level, 0]), np.array([0, stratum, 1]))
    assert not any(character.isdigit() for character in str(error.value))


def test_a_table_that_does_not_add_up_is_not_drawn_from() -> None:
    units = TWO.units.copy()
    units[0, 0] -= 1
    broken = OptimalResponse((replace(TWO, units=units),), np.zeros(1, dtype=np.int64))
    with pytest.raises(ValueError, match="add up to one"):
        broken.draw(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))


@pytest.mark.statistical
def test_draws_are_unbiased_in_value() -> None:
    """A z test of the mean of values for each of 3 outcomes, at 1e-7: three false alarms in 10⁷."""
    response = OptimalResponse(
        (table_of(GRID, np.array([0.6, 0.3, 0.1]), 1.0),), np.zeros(1, dtype=np.int64)
    )
    n = 300_000
    for level in range(3):
        drawn = response.draw(np.full(n, level), np.zeros(n, dtype=np.int64))
        noise = response.tables_used[0].noise[level]
        mean = float(response.values[0, drawn].mean())
        assert_near(mean, GRID[level], np.sqrt(noise / n), 5.33)
        assert abs(mean - GRID[(level + 1) % 3]) > 0.5
