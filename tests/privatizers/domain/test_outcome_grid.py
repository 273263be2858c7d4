"""Any raw outcome has a place on the grid, by public rules; rounding at random keeps the mean.

Statistical tests here compare with a normal threshold at ``FALSE_ALARM`` = 1e-6 each, and there
are 4 of them (one a value). Real randomness cannot be seeded; a test fails without cause once in a
million runs.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import norm

from privatizers.domain import outcome_grid
from privatizers.domain.outcome_grid import (
    map_outcomes,
    nearest_levels,
    stochastic_levels,
    stratum_counts,
)
from privatizers.noise.randomness import UNIT
from schemas.arrays import Floats
from tests.support.distances import assert_near

FALSE_ALARM = 1e-6
N_DRAWS = 200_000
GRID = np.array([-3.0, 0.0, 1.0, 10.0])
"""Uneven on purpose."""


@st.composite
def grids(draw: st.DrawFn) -> Floats:
    """Increasing points, uneven, of magnitudes from 1e-3 to 1e6."""
    steps = draw(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=10))
    return np.concatenate([[0.0], np.cumsum(steps)]) + draw(st.floats(-1e6, 1e6))


@st.composite
def grids_with_values(draw: st.DrawFn) -> tuple[Floats, Floats]:
    grid = draw(grids())
    shares = draw(st.lists(st.floats(0, 1), min_size=1, max_size=30))
    inside = grid[0] + np.array(shares) * (grid[-1] - grid[0])
    return grid, np.concatenate([np.clip(inside, grid[0], grid[-1]), grid])


def test_missing_outcomes_count_as_the_declared_value() -> None:
    mapped = map_outcomes(np.array([math.nan, 0.5, math.nan]), GRID, 7.0)
    assert mapped.tolist() == [7.0, 0.5, 7.0]


def test_outcomes_out_of_range_are_clipped_infinite_ones_too() -> None:
    raw = np.array([-math.inf, -1e300, -3.0, 10.0, 1e300, math.inf])
    assert map_outcomes(raw, GRID, 0.0).tolist() == [-3.0, -3.0, -3.0, 10.0, 10.0, 10.0]


@pytest.mark.parametrize("to_levels", [nearest_levels, stochastic_levels])
def test_outcomes_that_are_all_missing_have_levels_too(
    to_levels: Callable[[Floats, Floats], NDArray[np.int64]],
) -> None:
    mapped = map_outcomes(np.full(5, math.nan), GRID, 1.0)
    assert to_levels(mapped, GRID).tolist() == [2] * 5


@settings(max_examples=100, deadline=None)
@given(
    grids(),
    st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=30),
    st.floats(0, 1),
)
def test_every_double_there_is_finds_a_place(grid: Floats, raw: list[float], share: float) -> None:
    missing = float(np.clip(grid[0] + share * (grid[-1] - grid[0]), grid[0], grid[-1]))
    mapped = map_outcomes(np.array(raw), grid, missing)
    assert ((mapped >= grid[0]) & (mapped <= grid[-1])).all()
    for levels in (nearest_levels(mapped, grid), stochastic_levels(mapped, grid)):
        assert ((levels >= 0) & (levels < len(grid))).all()


@settings(max_examples=100, deadline=None)
@given(grids_with_values())
def test_stochastic_rounding_never_leaves_the_two_neighbours(case: tuple[Floats, Floats]) -> None:
    grid, values = case
    for value, level in zip(values, stochastic_levels(values, grid), strict=True):
        at_or_below = int(np.flatnonzero(grid <= value)[-1])
        assert level == at_or_below or (level == at_or_below + 1 and value > grid[at_or_below])


@settings(max_examples=100, deadline=None)
@given(grids())
def test_grid_points_are_their_own_levels(grid: Floats) -> None:
    points = list(range(len(grid)))
    assert stochastic_levels(grid, grid).tolist() == points
    assert nearest_levels(grid, grid).tolist() == points


@pytest.mark.parametrize("value", [-0.003, 0.5, 1.9, 9.99])
def test_stochastic_rounding_keeps_the_mean(value: float) -> None:
    drawn = GRID[stochastic_levels(np.full(N_DRAWS, value), GRID)]
    above = int(np.searchsorted(GRID, value))
    lower, upper = GRID[above - 1], GRID[above]
    spread = math.sqrt((value - lower) * (upper - value) / N_DRAWS)
    assert_near(float(drawn.mean()), value, spread, float(norm.isf(FALSE_ALARM / 2)))


def test_the_check_of_the_mean_catches_rounding_to_the_nearest() -> None:
    value = 0.45
    drawn = GRID[nearest_levels(np.full(N_DRAWS, value), GRID)]
    spread = math.sqrt(value * (1 - value) / N_DRAWS)
    assert abs(drawn.mean() - value) / spread > norm.isf(FALSE_ALARM / 2)


@pytest.mark.parametrize("share", [0.0, 1 / UNIT, 0.25, 1 - 1 / UNIT, 1.0])
def test_stochastic_rounding_goes_up_for_exactly_its_share_of_the_words(
    monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    bound = int(share * UNIT)
    words = [word for word in (0, bound - 1, bound, UNIT - 1) if 0 <= word < UNIT]
    monkeypatch.setattr(outcome_grid, "random_words", lambda _: np.array(words, dtype=np.uint64))
    levels = stochastic_levels(np.full(len(words), share), np.array([0.0, 1.0]))
    assert levels.tolist() == [int(word < bound) for word in words]


def test_nearest_takes_the_nearer_point_and_the_lower_one_of_a_tie() -> None:
    values = np.array([-3.0, -1.6, -1.5, -1.4, 0.5, 0.5000001, 5.4, 5.5, 5.6, 10.0])
    assert nearest_levels(values, GRID).tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]


@settings(max_examples=100, deadline=None)
@given(grids_with_values())
def test_no_grid_point_is_nearer_than_the_nearest(case: tuple[Floats, Floats]) -> None:
    grid, values = case
    distance = np.abs(values[:, np.newaxis] - grid)
    chosen = nearest_levels(values, grid)
    assert (distance[np.arange(len(values)), chosen] == distance.min(axis=1)).all()


def test_raw_counts_are_of_each_level_in_each_cell() -> None:
    levels, cells = np.array([0, 2, 2, 1, 0]), np.array([0, 0, 0, 2, 2])
    counts = stratum_counts(levels, cells, 3, 3)
    assert counts.tolist() == [[1, 0, 2], [0, 0, 0], [1, 1, 0]]
