"""Grids in whole steps: found where there is one, exact, and never where there is none."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privatizers.domain.lattice import Lattice, lattice_of
from privatizers.planning.grids import even_grid


@pytest.mark.parametrize(
    ("grid", "steps", "step"),
    [
        ((0, 1), (0, 1), 1.0),
        ((-3.7, 1e6 / 7), (0, 1), 1e6 / 7 + 3.7),  # two points are always a step apart
        ((0, 1, 2, 3), (0, 1, 2, 3), 1.0),
        (tuple(range(-5, 7)), tuple(range(12)), 1.0),
        ((0, 2, 6), (0, 1, 3), 2.0),  # without a common divisor
        ((0, 0.1, 0.2, 0.3), (0, 1, 2, 3), 0.1),  # 0.3 / 3 is not 0.1
        ((0.1, 0.2, 0.3, 0.7), (0, 1, 2, 6), 0.1),  # 0.3 − 0.1 is not 2 · 0.1
        ((0, 0.1, 0.25, 5.0), (0, 2, 5, 100), 0.05),
        ((-1.5, 0, 0.75), (0, 2, 3), 0.75),
        ((0, 1 / 3, 2 / 3, 1), (0, 1, 2, 3), 1 / 3),  # even, though no decimals
        ((1e15, 1e15 + 1, 1e15 + 3), (0, 1, 3), 1.0),
        ((1e9 + 0.1, 1e9 + 0.2, 1e9 + 0.4), (0, 1, 3), 0.1),  # by what is written
        ((-1e70, 0, 1e70), (0, 1, 2), 1e70),
        ((0, 1e-300, 2e-300), (0, 1, 2), 1e-300),
        ((0, 1, 100_000), (0, 1, 100_000), 1.0),
        ((0, 0.5, 10), (0, 1, 20), 0.5),
        ((0, 0.01, 999.99), (0, 1, 99_999), 0.01),
    ],
)
def test_the_steps_of_a_grid(grid: tuple[float, ...], steps: tuple[int, ...], step: float) -> None:
    found = lattice_of(grid)
    assert found == Lattice(steps)
    assert found.most == steps[-1]
    assert found.step_of(grid) == pytest.approx(step, rel=1e-6)


@pytest.mark.parametrize(
    "grid",
    [
        (0, 1, math.pi),
        (0, 1, 100_001),  # more steps than anybody meant
        (0, 1e-9, 1),
        (0, 1, 1 + 1e-12, 2),
        (0, 1 + 1e-7, 2),  # not even: off by more than rounding
        (0, 1 / 3, 1 / 2, 1),  # a sixth has no decimals, and the points are not even
    ],
)
def test_other_grids_have_none(grid: tuple[float, ...]) -> None:
    assert lattice_of(grid) is None


@pytest.mark.parametrize("grid", [(1e16, 1e16 + 2, 1e16 + 6), (1e9, 1e9 + 1e-6, 1e9 + 1)])
def test_points_far_out_are_not_taken_for_even(grid: tuple[float, ...]) -> None:
    found = lattice_of(grid)
    assert found is None or found.steps != (0, 1, 2)


@pytest.mark.parametrize("steps", [(), (0,), (1, 2), (0, 0, 1), (0, 2, 1), (-1, 0, 1)])
def test_what_does_not_increase_from_0_is_no_lattice(steps: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="does not increase from 0"):
        Lattice(steps)


@settings(max_examples=200, deadline=None)
@given(
    st.floats(-1e6, 1e6, allow_subnormal=False),
    st.floats(1e-3, 1e6),
    st.integers(2, 1001),
)
def test_every_even_grid_has_one_whatever_its_ends(low: float, width: float, levels: int) -> None:
    grid = even_grid(low, low + width, levels)
    assert lattice_of(grid) == Lattice(tuple(range(levels)))


@pytest.mark.parametrize("low", [1e9 + 1 / 3, 1.7e12 / 7])
def test_even_grids_far_out_have_one(low: float) -> None:
    """A double there has few digits left for a step."""
    assert lattice_of(even_grid(low, low + 1000, 11)) == Lattice(tuple(range(11)))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=12),
    st.integers(-10_000, 10_000),
    st.sampled_from([1, 10, 100, 1000]),
)
def test_decimals_lie_where_they_are_written(gaps: list[int], low: int, parts: int) -> None:
    """Points that are decimals are whole steps apart, exactly, and the step is the greatest."""
    whole = np.concatenate([[low], low + np.cumsum(gaps)])
    grid = [int(one) / parts for one in whole]
    found = lattice_of(grid)
    assert found is not None
    apart = (whole - low) // math.gcd(*gaps)
    assert found.steps == tuple(apart.tolist())
    assert grid[0] + found.step_of(grid) * np.array(found.steps) == pytest.approx(grid)
