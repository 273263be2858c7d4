"""Local sensitivity at a distance: brute force over tiny data sets, and the smooth bound of it."""

import itertools
import math
from functools import cache

import numpy as np
import pytest

from privatizers.effects.toolbox.bounded_mean import AddRemoveMean, Bounds
from privatizers.effects.toolbox.local_sensitivity import (
    LEAST,
    Tabulated,
    distance_to,
    smooth_bound,
)

Data = tuple[float, ...]

UNIT = Bounds(-1.0, 2.0)
VALUES = (-1.0, 0.5, 2.0)
MOST = 5
EVERY = [x for n in range(MOST + 1) for x in itertools.combinations_with_replacement(VALUES, n)]


def mean(x: Data) -> AddRemoveMean:
    return AddRemoveMean.of(np.array(x), UNIT)


@cache
def neighbours(x: Data) -> frozenset[Data]:
    """One person more or one less."""
    fewer = {x[:i] + x[i + 1 :] for i in range(len(x))}
    more = {tuple(sorted((*x, y))) for y in VALUES}
    return frozenset(fewer | more)


@cache
def local(x: Data) -> float:
    return max(abs(mean(x).value - mean(y).value) for y in neighbours(x))


def at_distance(x: Data, k: int) -> float:
    near = {x}
    for _ in range(k):
        near |= {z for y in near for z in neighbours(y)}
    return max(local(y) for y in near)


@pytest.mark.parametrize("x", EVERY, ids=str)
def test_the_means_local_sensitivity_covers_brute_force(x: Data) -> None:
    levels = mean(x).upto(3)
    brute = [at_distance(x, k) for k in range(4)]
    assert np.all(levels >= brute)
    assert np.all(np.diff(levels) >= 0)
    assert levels[-1] <= mean(x).global_bound


def test_it_is_attained_where_the_worst_value_goes() -> None:
    x = (-1.0, -1.0, -1.0, 2.0)
    assert mean(x).upto(0)[0] == pytest.approx(local(x), rel=1e-6)
    assert local(x) == pytest.approx(3.0 / 4)


def test_the_chapters_local_sensitivity_is_caught_by_brute_force() -> None:
    """u/(n + 1): too small for removals, and for values under 0."""
    wrong = [x for x in EVERY if local(x) > 2.0 / (len(x) + 1) + 1e-9]
    assert (-1.0, -1.0, -1.0, 2.0) in wrong
    assert len(wrong) > len(EVERY) / 2


def test_neighbours_are_a_step_apart_in_everything() -> None:
    """A(k) of x is at most A(k + 1) of x′: S is smooth, and D moves by one at most."""
    for x in EVERY:
        for y in neighbours(x):
            one, other = mean(x), mean(y)
            assert np.all(one.upto(8) <= other.upto(9)[1:])
            for beta in (0.05, 0.3, 1.0):
                assert smooth_bound(one, beta) <= math.exp(beta) * smooth_bound(other, beta) * (
                    1 + 1e-12
                )
            for bound in (0.4, 0.8, 1.1, 5.0):
                apart = distance_to(one, bound, 20) - distance_to(other, bound, 20)
                assert abs(apart) <= 1


@pytest.mark.parametrize("beta", [1e-4, 0.04, 0.3, 2.0])
@pytest.mark.parametrize("n", [1, 2, 50, 3000, 40_000])
def test_the_means_smooth_bound_is_its_closed_form(beta: float, n: int) -> None:
    query = AddRemoveMean(UNIT, 0, n)
    closed = 3.0 * max(1.0 / n, math.exp(-beta * (n - 1)))
    assert smooth_bound(query, beta) == pytest.approx(closed, rel=1e-5)


def test_the_search_stops_where_nothing_greater_can_follow() -> None:
    """A late, high step counts although everything before it is flat."""
    for late in (0, 5, 1024, 1025, 5000):
        query = Tabulated(0.0, (1e-6,) * late, 1.0)
        expected = max(1e-6 if late else 0.0, math.exp(-1e-3 * late))
        assert smooth_bound(query, 1e-3) == pytest.approx(expected, rel=1e-12)


def test_random_tables_have_the_bound_of_brute_force() -> None:
    random = np.random.default_rng(9)
    for _ in range(200):
        levels = np.sort(random.exponential(size=random.integers(1, 40)) ** 4)
        beta = float(random.exponential() / 5 + 1e-3)
        query = Tabulated(0.0, tuple(levels.tolist()), float(levels[-1] * 2))
        padded = np.append(levels, levels[-1] * 2)
        brute = np.max(padded * np.exp(-beta * np.arange(len(padded))))
        assert smooth_bound(query, beta) == pytest.approx(float(brute), rel=1e-12)


def test_starting_at_k_1_is_not_a_bound_of_the_local_sensitivity() -> None:
    """The chapter's maximum is under A(0) where A is flat; ours never is."""
    query, beta = Tabulated(0.0, (1.0,), 1.0), 0.1
    chapters = float(np.max(np.exp(-beta * np.arange(1, 200)) * query.upto(199)[1:]))
    assert chapters < 1.0
    assert smooth_bound(query, beta) == 1.0


def test_nothing_that_moves_has_the_least_bound() -> None:
    assert smooth_bound(Tabulated(0.0, (), 0.0), 0.1) == LEAST


def test_the_distance_is_the_first_level_above_and_is_capped() -> None:
    query = Tabulated(0.0, (0.1, 0.2, 0.2, 0.7), 1.0)
    assert [distance_to(query, b, 10) for b in (0.05, 0.1, 0.2, 0.5, 0.7, 0.9)] == [
        0,
        1,
        3,
        3,
        4,
        4,
    ]
    assert distance_to(query, 1.0, 10) == 10
    assert distance_to(query, 0.2, 2) == 2


@pytest.mark.parametrize("beta", [0.0, -1.0, math.inf, math.nan])
def test_an_impossible_beta_is_refused(beta: float) -> None:
    with pytest.raises(ValueError, match="beta"):
        smooth_bound(Tabulated(0.0, (), 1.0), beta)


@pytest.mark.parametrize(
    ("levels", "most"),
    [((-0.1,), 1.0), ((0.3, 0.2), 1.0), ((0.3,), 0.2), ((), math.inf), ((math.nan,), 1.0)],
)
def test_what_is_no_local_sensitivity_is_refused(levels: Data, most: float) -> None:
    with pytest.raises(ValueError, match="local sensitivities"):
        Tabulated(0.0, levels, most)


def test_a_global_bound_beyond_the_ends_is_refused() -> None:
    with pytest.raises(ValueError, match="global bound"):
        smooth_bound(Tabulated(0.0, (), 2.0**401), 0.1)
