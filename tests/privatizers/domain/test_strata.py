"""Pools and strata follow from public sizes alone, and lose nobody."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from privatizers.domain.strata import (
    SHARED_POOL,
    Strata,
    everyone_shares,
    lay_out,
    pool_names,
    small_clusters_share,
)
from schemas.released import ALL

Counts = NDArray[np.int64]


@st.composite
def tables(draw: st.DrawFn) -> Counts:
    """Sizes of up to 8 clusters with up to 4 arms; every cluster has somebody."""
    n_clusters, n_arms = draw(st.integers(1, 8)), draw(st.integers(2, 4))
    row = st.lists(st.integers(0, 20), min_size=n_arms, max_size=n_arms).filter(any)
    return np.array(draw(st.lists(row, min_size=n_clusters, max_size=n_clusters)))


def laid_out(sizes: Counts, min_stratum: int) -> Strata:
    clusters = [f"cluster {position}" for position in range(len(sizes))]
    arms = [f"arm {position}" for position in range(sizes.shape[1])]
    return lay_out(clusters, arms, sizes, small_clusters_share(sizes, min_stratum))


def test_a_cluster_with_one_small_arm_joins_the_shared_pool() -> None:
    sizes = np.array([[10, 10], [9, 30], [12, 11], [30, 0]])
    assert small_clusters_share(sizes, 10).tolist() == [0, 2, 1, 2]


def test_clusters_that_are_all_small_share_the_only_pool() -> None:
    assert small_clusters_share(np.array([[1, 2], [3, 4]]), 10).tolist() == [0, 0]


def test_clusters_that_are_all_large_have_a_pool_each() -> None:
    assert small_clusters_share(np.array([[5, 6], [7, 8]]), 5).tolist() == [0, 1]


def test_everyone_shares_one_pool_where_the_prior_knows_no_clusters() -> None:
    assert everyone_shares(np.array([[1, 2], [3, 4], [5, 6]])).tolist() == [0, 0, 0]


@settings(max_examples=100, deadline=None)
@given(tables(), st.integers(1, 12))
def test_large_clusters_are_alone_and_small_ones_together(sizes: Counts, min_stratum: int) -> None:
    pool_of = small_clusters_share(sizes, min_stratum)
    small = (sizes < min_stratum).any(axis=1)
    alone, together = pool_of[~small].tolist(), set(pool_of[small].tolist())
    assert len(set(alone)) == len(alone)
    assert len(together) <= 1
    assert sorted([*alone, *together]) == list(range(pool_of.max() + 1))


def test_pools_bear_the_names_of_their_clusters() -> None:
    assert pool_names(["a", "b", "c", "d"], np.array([0, 2, 1, 2])) == ["a", "c", SHARED_POOL]


def test_a_lone_small_cluster_keeps_its_name() -> None:
    assert pool_names(["a", "b"], np.array([1, 0])) == ["b", "a"]


def test_a_single_pool_is_called_all() -> None:
    assert pool_names(["a", "b"], np.array([0, 0])) == [ALL]
    assert pool_names(["a"], np.array([0])) == [ALL]


@pytest.mark.parametrize(
    ("taken", "name"),
    [
        ([SHARED_POOL], f"({SHARED_POOL})"),
        ([SHARED_POOL, f"({SHARED_POOL})"], f"(({SHARED_POOL}))"),
    ],
)
def test_no_cluster_can_take_the_name_of_the_shared_pool(taken: list[str], name: str) -> None:
    clusters = [*taken, "a", "b"]
    pool_of = np.array([*range(len(taken)), len(taken), len(taken)])
    assert pool_names(clusters, pool_of) == [*taken, name]


@settings(max_examples=100, deadline=None)
@given(tables(), st.integers(1, 12))
def test_every_unit_has_a_cell_and_every_cell_its_units(sizes: Counts, min_stratum: int) -> None:
    strata = laid_out(sizes, min_stratum)
    cluster, arm = np.nonzero(sizes)
    units = np.repeat(np.arange(len(cluster)), sizes[cluster, arm])
    cells = strata.cells(cluster[units], arm[units])
    held = np.bincount(cells, minlength=len(strata.cell_sizes))
    assert held.tolist() == strata.cell_sizes.tolist()
    assert strata.cell_sizes.min() >= 1
    assert strata.cell_sizes.sum() == sizes.sum()


@settings(max_examples=100, deadline=None)
@given(tables(), st.integers(1, 12))
def test_two_units_share_a_cell_where_they_share_pool_and_arm(
    sizes: Counts, min_stratum: int
) -> None:
    strata = laid_out(sizes, min_stratum)
    cluster, arm = np.nonzero(sizes)
    place = list(zip(strata.pool_of[cluster].tolist(), arm.tolist(), strict=True))
    cells = strata.cells(cluster, arm).tolist()
    assert len(set(place)) == len(set(cells)) == len(set(zip(place, cells, strict=True)))


def test_cells_count_pool_by_pool_and_skip_those_without_units() -> None:
    strata = laid_out(np.array([[4, 0, 3], [7, 8, 9]]), 1)
    assert strata.pool_of.tolist() == [1, 0]
    assert strata.cell_of.tolist() == [[0, 1, 2], [3, -1, 4]]
    assert strata.cell_sizes.tolist() == [7, 8, 9, 4, 3]
