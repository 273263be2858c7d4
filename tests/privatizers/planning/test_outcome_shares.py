"""Dividing ε between outcomes: the exact minimum, by questions alone."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privatizers.planning.outcome_shares import STEPS, divide, plan_shares
from privatizers.planning.question import Question


@settings(max_examples=60)
@given(st.integers(1, 4), st.integers(0, 5), st.integers(0, 2**32 - 1))
def test_no_other_division_has_a_lower_sum(number: int, more: int, seed: int) -> None:
    steps = number + more
    scores = np.random.default_rng(seed).normal(size=(number, more + 1))
    found = divide(scores, steps)
    assert sum(found) == steps
    assert min(found) >= 1
    sums = [
        sum(scores[row, part - 1] for row, part in enumerate(parts))
        for parts in itertools.product(range(1, more + 2), repeat=number)
        if sum(parts) == steps
    ]
    of_found = sum(scores[row, part - 1] for row, part in enumerate(found))
    assert of_found == pytest.approx(min(sums), abs=1e-8)


def test_there_has_to_be_a_part_for_each() -> None:
    with pytest.raises(ValueError, match="cannot be divided"):
        divide(np.zeros((3, 1)), 2)


def question(values: list[float], guess: list[float] | None = None) -> Question:
    k = len(values)
    return Question(
        epsilon=2.0,
        delta=0.0,
        values=np.array(values),
        guess=np.full(k, 1.0 / k) if guess is None else np.array(guess),
        grids=(tuple(values),),
        statistics=("none",),
        sizes=np.full((2, 2), 2_000),
    )


def test_alike_outcomes_have_alike_shares() -> None:
    assert plan_shares([question([0.0, 1.0])]) == (1.0,)
    assert plan_shares([question([0.0, 1.0])] * 2) == (0.5, 0.5)


def test_a_unit_of_measurement_decides_nothing() -> None:
    asked = [question([0.0, 1.0]), question([0.0, 1.0, 2.0, 3.0])]
    scaled = [asked[0], question([0.0, 100.0, 200.0, 300.0])]
    found = plan_shares(asked)
    assert found == plan_shares(scaled)
    assert sum(found) == 1.0
    assert all((share * STEPS).is_integer() for share in found)
    assert found[1] > found[0]  # finer outcomes take more
