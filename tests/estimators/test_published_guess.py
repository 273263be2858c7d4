"""A guess learnt from outputs is the likeliest one, whatever tables they came from."""

from dataclasses import replace

import numpy as np
import pytest

from estimators import published_guess
from estimators.published_guess import (
    ARM_COUNTS,
    STRATUM_COUNTS,
    Outputs,
    PublishedGuess,
    even_part,
    latest,
    learnt,
    learnt_within,
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


def within(n: float, truth: Floats = TRUTH) -> Outputs:
    """A night of two clusters, whose arms are the other way round in the second."""
    one, other = (night(VALUES, 0.3, n, p) for p in (truth, truth[::-1]))
    return Outputs(
        VALUES,
        one.chances,
        np.append(one.arm, other.arm),
        np.append(one.table, other.table),
        np.vstack([one.counts, other.counts]),
        ("a", "a", "b", "b"),
    )


def test_strata_are_told_apart_as_far_as_they_have_told_anything() -> None:
    for n, most in ((1e7, 2e-3), (1.0, 0.5)):
        nights = [within(n), within(n)]
        of_arms = learnt(nights, VALUES, 2, nearest=False)
        found = learnt_within(nights, VALUES, of_arms, nearest=False)
        assert [*found] == ["a", "b"]
        assert np.abs(found["a"] - TRUTH).max() < most
        np.testing.assert_allclose(found["b"], found["a"][::-1], atol=1e-9)
    # Of few units it is the arm's: halfway between the two clusters'.
    assert np.abs(found["a"] - of_arms).max() < 0.05 < np.abs(found["a"] - TRUTH).max()


def test_a_stratum_is_found_whatever_others_there_are() -> None:
    """Each with its own table, in nights that others have missed, the same as alone."""
    one, alone = within(300.0), night(np.array([0.0, 2.0, 5.0]), 0.5, 200.0)
    alone = replace(alone, cluster=("b", "b"))
    of_arms = learnt([one, alone], VALUES, 2, nearest=False)
    found = learnt_within([one, alone], VALUES, of_arms, nearest=False)
    own = replace(one, arm=one.arm[:2], table=one.table[:2], counts=one.counts[:2])
    only = learnt_within([replace(own, cluster=("a", "a"))], VALUES, of_arms, nearest=False)
    np.testing.assert_allclose(found["a"], only["a"], rtol=1e-9)
    chances = rounding(VALUES, VALUES, nearest=False) @ one.chances[0]
    beside = STRATUM_COUNTS * of_arms
    expected = likeliest(chances, one.counts[:2].astype(np.float64), beside)
    np.testing.assert_allclose(found["a"], expected, rtol=1e-9)
    assert np.abs(found["b"] - found["a"][::-1]).max() > 1e-3


def test_the_clusters_of_most_units_have_guesses(monkeypatch: pytest.MonkeyPatch) -> None:
    many = replace(within(100.0), cluster=("few", "few", "many", "many"))
    many.counts[:2] //= 2
    of_arms = learnt([many], VALUES, 2, nearest=False)
    monkeypatch.setattr(published_guess, "MOST_CLUSTERS", 1)
    assert [*learnt_within([many], VALUES, of_arms, nearest=False)] == ["many"]
    monkeypatch.setattr(published_guess, "MOST_VALUES", 11)
    assert learnt_within([many], VALUES, of_arms, nearest=False) == {}


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
    apart = replace(guess, of_clusters=(("x", guess.of_arms[::-1]),))
    shares, at = apart.of_strata(["y", "x", None], np.array([0.0, 3.0]))
    np.testing.assert_array_equal(at, [0, 1, 0])
    np.testing.assert_allclose(shares[0], np.array([[1.0, 0.0], [2 / 3, 1 / 3]]))
    np.testing.assert_array_equal(shares[1], shares[0][::-1])
    ((_, mixed),) = apart.mixed.of_clusters
    assert mixed == recorded.of_arms[::-1]
    np.testing.assert_allclose(guess.on(np.array([0.0, 3.0])), [0.5 + 1 / 3, 1 / 6])
