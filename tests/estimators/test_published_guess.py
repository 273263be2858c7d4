"""A guess learnt from outputs is the likeliest one, whatever tables they came from."""

import numpy as np
import pytest

from estimators import published_guess
from estimators.published_guess import (
    ARM_COUNTS,
    Outputs,
    PublishedGuess,
    even_part,
    latest,
    learnt,
    likeliest,
    rounding,
)
from schemas.arrays import Floats

VALUES = np.arange(6.0)
TRUTH = np.array([[0.7, 0.1, 0.05, 0.05, 0.05, 0.05], [0.1, 0.2, 0.3, 0.2, 0.1, 0.1]])


def response(k: int, rate: float) -> Floats:
    return rate / k + (1.0 - rate) * np.eye(k)


def night(grid: Floats, rate: float, n: float, truth: Floats = TRUTH) -> Outputs:
    """A night of two arms whose outputs are as often as is expected, n units an arm."""
    chances = response(len(grid), rate)
    counts = n * truth @ rounding(VALUES, grid, nearest=False) @ chances
    arms = np.arange(len(truth))
    whole = np.round(counts).astype(np.int64)
    return Outputs(grid, chances[np.newaxis], arms, np.zeros_like(arms), whole)


def test_nights_of_different_grids_and_tables_tell_of_one_distribution() -> None:
    nights = [night(VALUES, 0.3, 1e7), night(np.array([0.0, 2.0, 5.0]), 0.5, 1e7)]
    found = learnt(nights, VALUES, 2, nearest=False)
    np.testing.assert_allclose(found, TRUTH, atol=2e-3)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-12)
    of_last = learnt(nights[1:], VALUES, 2, nearest=False)  # three levels cannot tell six values
    coarse = rounding(VALUES, nights[1].grid, nearest=False)
    np.testing.assert_allclose(of_last @ coarse, TRUTH @ coarse, atol=2e-3)


def test_every_step_is_likelier_than_the_one_before() -> None:
    one = night(VALUES, 0.6, 400.0)
    beside = np.full((2, 6), ARM_COUNTS / 6)

    def likelihood(shares: Floats) -> float:
        told = (one.counts * np.log(shares @ one.chances[0])).sum()
        return float(told + (beside * np.log(shares)).sum())

    steps = [likeliest(one.chances[0], one.counts.astype(float), beside, n) for n in range(30)]
    grown = np.diff([likelihood(shares) for shares in steps])
    assert (grown > 0).all()
    np.testing.assert_array_equal(steps[0], 1 / 6)


def test_nothing_but_counts_of_outputs_matters() -> None:
    one = night(VALUES, 0.6, 400.0)
    shuffled = Outputs(one.grid, one.chances, one.arm[::-1], one.table[::-1], one.counts[::-1])
    halves = [
        Outputs(one.grid, one.chances, one.arm, one.table, part)
        for part in (one.counts // 3, one.counts - one.counts // 3)
    ]
    found = learnt([one], VALUES, 2, nearest=False)
    np.testing.assert_array_equal(found, learnt([shuffled], VALUES, 2, nearest=False))
    np.testing.assert_allclose(found, learnt(halves, VALUES, 2, nearest=False), rtol=1e-9)


def test_an_arm_without_units_is_thought_even() -> None:
    one = night(VALUES, 0.6, 400.0, TRUTH[:1])
    found = learnt([one], VALUES, 2, nearest=False)
    np.testing.assert_allclose(found[1], 1 / 6)


@pytest.mark.parametrize("nearest", [False, True])
def test_rounding_goes_to_the_points_around(nearest: bool) -> None:
    grid = np.array([0.0, 1.0, 4.0])
    found = rounding(np.array([-1.0, 0.0, 1.75, 2.5, 4.0, 9.0]), grid, nearest=nearest)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    means = [0.0, 0.0, 1.0, 4.0, 4.0, 4.0] if nearest else [0.0, 0.0, 1.75, 2.5, 4.0, 4.0]
    np.testing.assert_allclose(found @ grid, means)


@pytest.mark.parametrize(
    ("known", "part"), [(0.0, 0.1), (100.0, 0.1), (22_500.0, 0.01), (1e9, 0.003)]
)
def test_the_even_part_falls_with_what_is_known(known: float, part: float) -> None:
    assert even_part(known) == pytest.approx(part)


def test_the_last_nights_are_looked_at_as_far_as_there_is_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nights = [night(VALUES, 0.6, 400.0)] * 5  # 36 cells each
    assert latest(nights, 6) == 5
    monkeypatch.setattr(published_guess, "MOST_CELLS", 108)
    assert latest(nights, 6) == 3
    monkeypatch.setattr(published_guess, "MOST_CELLS", 1)
    assert latest(nights, 6) == 1


def test_what_a_release_records_has_its_even_part_in_it() -> None:
    guess = PublishedGuess((0.0, 1.0, 3.0), ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0)), ("a", "b"), 0.3, "")
    recorded = guess.mixed
    np.testing.assert_allclose(recorded.of_arms, [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]])
    assert recorded.mixed == recorded
    np.testing.assert_allclose(guess.on(np.array([0.0, 3.0])), [0.5 + 1 / 3, 1 / 6])
