"""Guesses come of noisy counts and public facts alone, and every table keeps the same ε."""

import numpy as np
import pytest

from privatizers.optimal_response import learnt_guess
from privatizers.optimal_response.learnt_guess import (
    MOST_GROUPS,
    MOST_OWN,
    MOST_TABLE_NOISE,
    learnt_response,
    mixed,
    on_simplex,
    public_response,
    published_response,
    shrunk,
    solved,
)
from privatizers.optimal_response.response import OptimalResponse
from privatizers.optimal_response.whole_numbers import ResponseTable, even_table
from schemas.arrays import Floats, Ints

GRID = np.array([0.0, 1.0, 2.0])
GUESS = np.array([0.5, 0.3, 0.2])
EPSILON, PRICE = 2.0, 0.1


def learnt(
    noisy: Ints, sizes: Ints, group: Ints | None = None, grid: Floats = GRID, price: float = PRICE
) -> OptimalResponse:
    groups = np.zeros(len(sizes), dtype=np.int64) if group is None else group
    guess = GUESS if len(grid) == 3 else np.full(len(grid), 1 / len(grid))
    return learnt_response(grid, guess, EPSILON, noisy, sizes, price, groups)


def own_tables(found: OptimalResponse) -> list[bytes]:
    return [found.tables_used[at].units.tobytes() for at in found.table_of]


# published by strata

FAR = np.array([[0.98, 0.01, 0.01], [0.01, 0.01, 0.98], GUESS])


def published(guesses: Floats, sizes: Ints, epsilon: float = EPSILON) -> OptimalResponse:
    return published_response(GRID, GUESS, guesses, epsilon, sizes)


def test_strata_that_are_unlike_all_have_tables_for_their_guesses() -> None:
    sizes, guesses = np.array([30, 20, 500, 7]), FAR[[0, 1, 2, 0]]
    found = published(guesses, sizes)
    tables = [found.tables_used[at] for at in found.table_of]
    (of_all,) = public_response(GRID, GUESS, EPSILON, 1).tables_used
    assert tables[2] is of_all
    assert tables[0] is tables[3] is not tables[1] is not tables[2]
    for table, own in zip(tables, guesses, strict=True):
        assert table.keeps(EPSILON)
        assert table.is_unbiased
        assert own @ table.noise <= own @ of_all.noise
    assert own_tables(published(guesses, 10 * sizes)) == own_tables(found)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0, 8.0])
def test_a_table_of_the_worst_guess_is_within_the_guard(epsilon: float) -> None:
    """One point, both ends, all wrong: what it may cost is bounded, value by value."""
    points = np.vstack([np.eye(3), [0.5, 0.0, 0.5]])
    even = solved(GRID, np.full(3, 1 / 3), epsilon).noise.max()
    found = published(points, np.full(4, 100), epsilon)
    noise = max(table.noise.max() for table in found.tables_used)
    assert noise <= MOST_TABLE_NOISE * even
    if epsilon >= 4.0:  # without it, more
        assert solved(GRID, points[0], epsilon).noise.max() > MOST_TABLE_NOISE * even


def test_strata_that_differ_most_have_tables_where_they_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learnt_guess, "MOST_PUBLISHED", 1)
    found = published(FAR[:2], np.array([30, 20]))
    (of_all,) = public_response(GRID, GUESS, EPSILON, 1).tables_used
    assert [one is of_all for one in found.tables_used] == [True, False]
    monkeypatch.setattr(learnt_guess, "SOLVED_IN", 2)
    assert published(FAR[:2], np.array([30, 20])).tables_used == (of_all,)


# guesses


def test_a_guess_is_the_nearest_point_of_the_simplex() -> None:
    """By the conditions that mark it: what is kept is moved by one number, the rest is above it."""
    draw = np.random.default_rng(3)
    shares = draw.normal(0.2, 2.0, (400, 5))
    found = on_simplex(shares)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-14)
    assert (found >= 0).all()
    for row, point in zip(shares, found, strict=True):
        moved = (row - point)[point > 0]
        assert np.ptp(moved) < 1e-12
        assert (row[point == 0] <= moved.mean() + 1e-12).all()
    on_it = draw.dirichlet(np.ones(5), 20)
    np.testing.assert_allclose(on_simplex(on_it), on_it, atol=1e-15)


@pytest.mark.parametrize(
    ("known", "part"), [(0.0, 0.1), (20.0, 0.1), (100.0, 0.03), (1e4, 0.003), (1e9, 0.003)]
)
def test_another_guess_is_mixed_in_by_what_is_known(known: float, part: float) -> None:
    other = np.array([[0.2, 0.5, 0.3]])
    found = mixed(np.array([[1.0, 0.0, 0.0]]), np.array([known]), other)[0]
    np.testing.assert_allclose(found, [1 - 0.8 * part, 0.5 * part, 0.3 * part], rtol=1e-12)


@pytest.mark.parametrize("noisy", [[0, 0, 0], [-50, -50, -50], [10**15, 3, -(10**15)]])
def test_any_noisy_counts_make_a_guess(noisy: list[int]) -> None:
    found = shrunk(np.array([noisy]), np.array([7.0]), np.array([0.7]), GUESS[np.newaxis])[0]
    assert found.sum() == pytest.approx(1.0, rel=1e-12)
    assert found.min() >= 0.1 / 3 - 1e-15


def test_where_clusters_are_alike_their_noise_makes_hardly_any_tables() -> None:
    """Nine clusters of outcomes that are 0 as a rule, counts at 2 % of ε = 8; a fixed seed.

    Own guesses that have a part of an even one call rare outcomes less rare, and the arm's table
    bad for them: then all 18 strata have tables of their own, and 9 % more noise than need be.
    """
    random, grid = np.random.default_rng(8), np.arange(8.0)
    shares = np.array([0.99, *np.full(7, 0.01 / 7)])
    sizes, arm = np.full(18, 2_400), np.tile(np.arange(2), 9)
    exact = np.rint(sizes[:, np.newaxis] * shares).astype(np.int64)
    up, down = random.geometric(-np.expm1(-0.16 / 2), (2, *exact.shape))
    found = learnt_response(grid, np.full(8, 1 / 8), 7.84, exact + up - down, sizes, 0.16, arm)
    assert len(found.tables_used) <= 9
    noise = np.mean([shares @ found.tables_used[at].noise for at in found.table_of])
    assert noise < 1.06 * (shares @ solved(grid, shares, 7.84).noise)


# tables


@pytest.mark.parametrize("n", [3, 100, 5_000])
def test_every_table_keeps_the_same_epsilon_for_any_noisy_counts(n: int) -> None:
    draw = np.random.default_rng(n)
    rows = [[n, 0, 0], [-n, 3 * n, -n], [0, 0, 0], *draw.integers(-n, 2 * n, (3, 3)).tolist()]
    for noisy in rows:
        found = learnt(np.array([noisy, [n, n, n]]), np.array([n, 3 * n]))
        for table in found.tables_used:
            assert table.keeps(EPSILON)
            assert table.bias <= 1e-12 * 2


def test_equal_arguments_give_equal_tables_also_when_solved_again() -> None:
    noisy, sizes = np.array([[700, 200, 101], [30, 40, 31]]), np.array([1000, 100])
    first = learnt(noisy, sizes)
    learnt_guess._solved.cache_clear()
    again = learnt(noisy, sizes)
    np.testing.assert_array_equal(first.table_of, again.table_of)
    for one, other in zip(first.tables_used, again.tables_used, strict=True):
        np.testing.assert_array_equal(one.units, other.units)
        np.testing.assert_array_equal(one.values, other.values)


def solved_for(monkeypatch: pytest.MonkeyPatch) -> list[Floats]:
    """The guesses that tables are asked for, from now on; all get that of the public guess."""
    asked: list[Floats] = []
    table = solved(GRID, GUESS, EPSILON)

    def watching(_: Floats, guess: Floats, __: float, *___: Floats) -> ResponseTable:
        asked.append(guess)
        return table

    monkeypatch.setattr(learnt_guess, "solved", watching)
    return asked


def test_public_sizes_alone_decide_how_many_tables_are_solved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The public guess's, one a group, and those of the strata with n ε of 1.5 K at least: 45."""
    sizes = np.array([44, 45, 46, 30, 5_000])
    group = np.array([0, 0, 0, 1, 1])
    asked = solved_for(monkeypatch)
    draw = np.random.default_rng(5)
    for _ in range(6):
        asked.clear()
        learnt(draw.integers(-300, 6_000, (5, 3)), sizes, group)
        assert len(asked) == 1 + 2 + 3
    noisy = np.array([[n, 0, 0] for n in sizes.tolist()])
    noisy[4] = [0, 0, 5_000]
    asked.clear()
    learnt(noisy, sizes, group)
    favourites = [int(np.argmax(guess)) for guess in asked[3:]]
    assert sorted(favourites) == [0, 0, 2]


@pytest.mark.parametrize(
    ("n_strata", "n_groups", "solved_of_groups"), [(5, 5, 5), (MOST_GROUPS + 1, MOST_GROUPS + 1, 0)]
)
def test_many_groups_have_no_tables_of_their_own(
    monkeypatch: pytest.MonkeyPatch, n_strata: int, n_groups: int, solved_of_groups: int
) -> None:
    asked = solved_for(monkeypatch)
    sizes = np.full(n_strata, 100)
    learnt(np.full((n_strata, 3), 33), sizes, np.arange(n_strata) % n_groups)
    own = min(n_strata, learnt_guess._PATIENCE)  # all are like their groups
    assert len(asked) == 1 + solved_of_groups + own


def test_at_most_so_many_strata_have_tables_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = solved_for(monkeypatch)
    sizes = np.full(MOST_OWN + 9, 1_000)
    learnt(np.full((len(sizes), 3), 333), sizes)
    assert len(asked) == 1 + 1 + learnt_guess._PATIENCE
    monkeypatch.setattr(learnt_guess, "_PATIENCE", 1_000)
    asked.clear()
    learnt(np.full((len(sizes), 3), 333), sizes)
    assert len(asked) == 1 + 1 + MOST_OWN


def test_strata_unlike_their_group_are_looked_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the last of many that are alike has its own table, though few of them are looked at."""
    asked = solved_for(monkeypatch)
    noisy = np.full((30, 3), 3_000)
    noisy[-1] = [8_800, 100, 100]
    learnt(noisy, noisy.sum(axis=1))
    assert int(np.argmax(asked[2])) == 0
    assert asked[2][0] > 0.9
    assert len(asked) < 30


def test_on_fine_grids_no_stratum_has_a_table_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = solved_for(monkeypatch)
    monkeypatch.setattr(learnt_guess, "_evened", lambda *_: solved(GRID, GUESS, EPSILON))
    grid = np.arange(14.0)
    noisy = np.full((2, 14), 10_000)
    with pytest.raises(ValueError, match="matmul"):  # the table handed out is of three outcomes
        learnt(noisy, noisy.sum(axis=1), grid=grid)
    assert len(asked) == 2


def test_strata_of_different_outcomes_get_tables_of_their_own_and_small_ones_their_arms() -> None:
    noisy = np.array([[9_000, 500, 500], [500, 500, 9_000], [9, 1, 0], [0, 1, 9]])
    found = learnt(noisy, noisy.sum(axis=1), np.array([0, 1, 0, 1]))
    tables = own_tables(found)
    assert tables[0] != tables[1]
    assert tables[2] != tables[3]  # of its arm, which is like the large one's


def test_where_nothing_is_known_the_public_guess_or_even_response_is_taken() -> None:
    found = learnt(np.array([[1, 0, 0], [0, 1, 1]]), np.array([1, 2]), np.array([0, 1]))
    public = {
        solved(GRID, GUESS, EPSILON).units.tobytes(),
        even_table(GRID, EPSILON).units.tobytes(),
    }
    assert set(own_tables(found)) <= public


def test_a_group_without_strata_is_no_trouble() -> None:
    noisy = np.array([[40, 30, 30], [10, 10, 80]])
    whole = learnt(noisy, np.array([100, 100]), np.array([0, 1]))
    apart = learnt(noisy, np.array([100, 100]), np.array([0, 3]))
    assert own_tables(whole) == own_tables(apart)


def test_the_names_of_groups_do_not_matter() -> None:
    noisy = np.array([[400, 30, 30], [10, 10, 800], [300, 40, 20]])
    sizes = noisy.sum(axis=1)
    one, other = (learnt(noisy, sizes, np.array(group)) for group in ([0, 1, 0], [1, 0, 1]))
    assert own_tables(one) == own_tables(other)


def test_without_counts_the_better_of_two_public_tables_is_taken() -> None:
    found = public_response(GRID, GUESS, EPSILON, 3)
    (table,) = found.tables_used
    even = even_table(GRID, EPSILON)
    assert GUESS @ table.noise <= GUESS @ even.noise
    np.testing.assert_array_equal(found.table_of, 0)
    assert found.weights.shape == (3, len(table.values))
