"""Which clusters are merged: by sizes alone, never by what each happened to get."""

from dataclasses import replace

import numpy as np
import pytest

from estimators.strata.contrast_strata import are_small, contrast_strata
from estimators.strata.evidence import Slices
from schemas.arrays import Floats, Ints


def slices_of(sizes: Ints, n_parties: Floats | None = None) -> Slices:
    """Slices of one group, from units by cluster and arm."""
    cluster, arm = np.nonzero(sizes)
    n = sizes[cluster, arm].astype(np.float64)
    nowhere, zero = np.zeros_like(cluster), np.zeros_like(n)
    return Slices(nowhere, cluster, arm, nowhere, n, zero, zero, zero, n_parties=n_parties)


def stratum_of(sizes: list[list[int]], *, same_shares: bool = True) -> list[int]:
    """The stratum of each cluster in the contrast of arm 1 with arm 0; −1 for none."""
    slices = slices_of(np.array(sizes))
    strata = contrast_strata(slices, 1, 0, same_shares=same_shares)
    found = np.full(len(sizes), -1)
    for side in (strata.treated, strata.control):
        found[slices.cluster[side.rows]] = side.stratum
    return [int(one) for one in found]


LARGE = [[110, 10], [109, 11]]
"""Two clusters of 120, large whatever the others get; about one unit in eleven is of arm 1."""


def test_a_large_cluster_that_got_little_of_the_rare_arm_is_not_merged() -> None:
    """It is left out: one of the merged would have less of that arm than its size says."""
    got_little = [[59, 1], [28, 2], [25, 5], [27, 3]]
    assert stratum_of([*LARGE, *got_little]) == [0, 1, -1, 2, 2, 2]


def by_own_sizes(sizes: list[list[int]], own: list[float]) -> tuple[list[int], list[float]]:
    """The stratum of each cluster where these count by their arms' own units, and all weights."""
    given = slices_of(np.array(sizes))
    slices = replace(given, own_sizes=np.array(own)[given.cluster])
    strata = contrast_strata(slices, 1, 0, same_shares=True)
    found = strata.of_clusters(slices, np.arange(len(sizes)))
    return found.tolist(), strata.weight.tolist()


def test_what_has_too_few_of_an_arm_goes_with_the_least_that_counts_by_own_sizes() -> None:
    """Nobody else's statistic is published, and the stratum stands for nobody but by own sizes."""
    sizes = [[20, 20], [10, 10], [8, 10], [17, 0], [1, 15]]
    assert by_own_sizes(sizes, [0.5] * 5) == ([0, 1, 2, 2, 2], [40.0, 20.0, 0.0])
    # Not where it does not count so, nor is the least another's; nor where no other would be left.
    assert by_own_sizes(sizes, [0.5, 0.5, 0, 0.5, 0]) == ([0, 2, 1, 2, -1], [40.0, 18.0, 0.0])
    assert by_own_sizes(sizes, [0, 0, 0.5, 0.5, 0.5]) == ([0, 1, 2, -1, -1], [40.0, 20.0, 18.0])
    assert by_own_sizes(sizes, [0.0] * 5) == ([0, 1, 2, -1, -1], [40.0, 20.0, 18.0])


@pytest.mark.parametrize(
    "got", [[[30, 0], [28, 2], [25, 5], [25, 5]], [[27, 3]] * 4, [[24, 6], [30, 0]] * 2]
)
def test_small_clusters_are_merged_whatever_they_got(got: list[list[int]]) -> None:
    assert stratum_of([*LARGE, *got]) == [0, 1, 2, 2, 2, 2]


def test_small_is_less_than_four_expected_of_the_least_arm_of_all() -> None:
    """A tenth of the units are of the third arm, so 39 of a cluster expect 3.9 of it; 40, 4."""
    sizes = np.array([[20, 16, 3], [18, 18, 4], [2, 8, 1], [5, 3, 2], [45, 45, 10]])
    assert (
        are_small(slices_of(sizes)).tolist() == [True] * 3 + [False] * 3 + [True] * 6 + [False] * 3
    )
    assert stratum_of(sizes.tolist()) == [2, 0, 2, 2, 1]


def test_without_the_declaration_every_cluster_with_two_units_of_both_arms_stands_for_itself() -> (
    None
):
    assert stratum_of([[3, 3], [2, 2], [5, 1], [30, 30]], same_shares=False) == [0, 1, -1, 2]


def test_the_only_small_cluster_has_the_variance_of_its_own_units() -> None:
    sizes = np.array([[3, 3], [30, 30]])
    strata = contrast_strata(slices_of(sizes), 1, 0, same_shares=True)
    assert strata.weight.tolist() == [60.0, 6.0]
    assert len(strata.merged.pair) == 0
    assert (strata.treated.member == -1).all()


def test_where_units_were_assigned_together_parties_are_counted() -> None:
    """Two shops of twenty customers an arm: four were assigned, of whom two are expected."""
    sizes = np.array([[40, 40], [40, 40]])
    assert not are_small(slices_of(sizes)).any()
    shops = np.array([2.0, 2.0, 20.0, 20.0])
    assert are_small(slices_of(sizes, shops)).tolist() == [True, True, False, False]


def test_each_group_has_its_own_sizes() -> None:
    """A slice of a large cluster may be small, as that of an analyst's segment often is."""
    whole, slice_ = np.array([[30, 30], [30, 30]]), np.array([[3, 2], [30, 31]])
    one, other = slices_of(whole), slices_of(slice_)
    columns = (
        np.concatenate([getattr(one, name), getattr(other, name)])
        for name in ("group", "cluster", "arm", "pool", "n_units", "mean", "variance", "fourth")
    )
    both = Slices(*columns)
    both.group[4:] = 1
    assert are_small(both).tolist() == [False] * 4 + [True] * 2 + [False] * 2
