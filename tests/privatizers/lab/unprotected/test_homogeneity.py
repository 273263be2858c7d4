"""Cluster homogeneity of raw counts: its value, its extremes, and that it does not show.

Nothing here is random but for made-up outcomes from fixed seeds: no test has a false alarm.
"""

import copy
import json
import logging
import pickle
from itertools import permutations

import numpy as np
import pytest

from estimators.theory import Population, homogeneity
from privatizers.domain.outcome_grid import stratum_counts
from privatizers.lab.unprotected.homogeneity import ClusterHomogeneity, cluster_homogeneity
from schemas.arrays import Floats, Ints

GRID = np.array([0.0, 1.0, 5.0])


def counted(levels: Ints, cluster: Ints, arm: Ints, n_arms: int = 2) -> Ints:
    """As a privatize step counts them, in the shape that is asked for."""
    n_clusters = int(cluster.max()) + 1
    counts = stratum_counts(levels, cluster * n_arms + arm, n_clusters * n_arms, len(GRID))
    return counts.reshape(n_clusters, n_arms, len(GRID))


def phi(counts: Ints) -> Floats:
    return cluster_homogeneity(counts, GRID).open().phi


def relative(counts: Ints) -> Floats:
    return cluster_homogeneity(counts, GRID).open().relative


def test_by_hand() -> None:
    """Clusters of 4 and 6 in 10; s² = 1/2 of (0, 1), 0 of (5, 5); 25/3 of (0, 0, 5), 16/3 below."""
    counts = np.array([[[1, 1, 0], [0, 0, 2]], [[2, 0, 1], [0, 2, 1]]])
    expected = [0.16 * 0.5 / 2 + 0.36 * (25 / 3) / 3, 0.36 * (16 / 3) / 3]
    assert phi(counts) == pytest.approx(expected)


def test_it_is_zero_where_every_cluster_has_one_outcome_and_only_there() -> None:
    """More alike is less: 0 is the best that clusters can be, and no bound is 1."""
    alike = np.array([[[4, 0, 0], [0, 3, 0]], [[0, 0, 4], [5, 0, 0]]])
    assert phi(alike).tolist() == [0, 0]
    assert relative(alike).tolist() == [0, 0]
    one_apart = alike.copy()
    one_apart[0, 0] = [3, 1, 0]
    assert phi(one_apart)[0] > 0
    assert phi(one_apart)[1] == 0


def test_it_is_as_without_clusters_where_they_tell_nothing() -> None:
    """Every cluster the same, and so large that n − 1 is n."""
    counts = np.tile(np.array([[300, 100, 200], [500, 600, 1000]]), (4, 1, 1)) * 1_000
    assert relative(counts) == pytest.approx([1, 1], rel=1e-5)


def test_better_clusters_make_less_of_it() -> None:
    """The same units, mixed between clusters: not at all, some, by halves, and some again."""
    steps = []
    for mixed in (0, 5, 10, 15):
        own = np.array([20 - mixed, mixed, 0])
        other = np.array([mixed, 20 - mixed, 0])
        steps.append(phi(np.array([[own, own], [other, other]]))[0])
    assert steps[0] == 0
    assert steps == [*sorted(steps[:3]), steps[1]]


def test_it_falls_with_the_number_of_units() -> None:
    """It is no variance of outcomes, whatever the paper's words: ten times the units, a tenth."""
    counts = np.array([[[300, 100, 0], [200, 0, 100]]]) * 100
    assert phi(10 * counts) == pytest.approx(phi(counts) / 10, rel=1e-3)


def test_it_is_that_of_the_population_on_average_over_assignments() -> None:
    """Every assignment of two clusters: unbiased, and not so with n below the sample variance."""
    levels = np.array([[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]])
    cluster = np.array([0] * 5 + [1] * 4)
    levels = np.concatenate([levels, np.array([[2, 0, 0, 1], [0, 2, 2, 2]])], axis=1)
    first = sorted(set(permutations([0, 0, 0, 1, 1])))
    second = sorted(set(permutations([0, 0, 1, 1])))
    found, biased = [], []
    for one in first:
        for other in second:
            arm = np.array(one + other)
            counts = counted(levels[arm, np.arange(9)], cluster, arm)
            found.append(phi(counts))
            biased.append(phi(2 * counts) * 2)  # as if everybody were two
    population = Population.of_units(GRID, levels, cluster)
    sizes = np.array([[3, 2], [2, 2]])
    expected = homogeneity(population.variances, sizes, population.n_units)
    assert np.mean(found, axis=0) == pytest.approx(expected, rel=1e-12)
    assert np.mean(biased, axis=0) != pytest.approx(expected, rel=0.1)


def test_small_clusters_are_left_out_by_their_sizes() -> None:
    whole = np.array([[[2, 1, 0], [0, 2, 1]], [[1, 0, 0], [4, 0, 3]], [[3, 0, 3], [2, 2, 0]]])
    found = cluster_homogeneity(whole, GRID)
    assert found.open().phi == pytest.approx(phi(whole[[0, 2]]))
    assert found.n_clusters == 2
    assert found.coverage == pytest.approx(16 / 24)


def test_three_arms_weigh_clusters_by_all_their_units() -> None:
    counts = np.array([[[1, 1, 0], [2, 0, 0], [6, 0, 0]], [[2, 0, 0], [2, 0, 0], [2, 0, 0]]])
    assert phi(counts) == pytest.approx([(10 / 16) ** 2 * 0.5 / 2, 0, 0])


def test_an_arm_of_one_outcome_has_no_relative_number() -> None:
    counts = np.array([[[3, 0, 0], [1, 2, 0]]])
    assert np.isnan(relative(counts)[0])
    assert relative(counts)[1] == pytest.approx(1)


@pytest.mark.parametrize("shape", [(2, 3), (2, 2, 4)])
def test_counts_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="shape"):
        cluster_homogeneity(np.ones(shape, dtype=np.int64), GRID)


def test_nothing_to_tell_is_refused_by_sizes_and_without_an_outcome() -> None:
    with pytest.raises(ValueError, match="two units in every arm") as caught:
        cluster_homogeneity(np.array([[[0, 0, 77], [0, 1, 0]]]), GRID)
    assert "77" not in str(caught.value)


# it does not show


@pytest.fixture
def sealed() -> ClusterHomogeneity:
    """Its φ is 25/3/3 = 2.777… in control."""
    return cluster_homogeneity(np.array([[[2, 0, 1], [0, 2, 1]]]), GRID)


def test_it_does_not_print(sealed: ClusterHomogeneity, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        logging.getLogger("x").info("found %s %r in %s", sealed, sealed, [sealed])
    inside = sealed.open()
    assert inside.phi[0] == pytest.approx(25 / 9)
    shown = [caplog.text, str(sealed), f"{sealed}", repr({"a": sealed}), repr(np.array([sealed]))]
    shown += [str(inside), repr(inside), repr([inside])]
    for text in shown:
        assert "2.7" not in text
        assert "." not in text.replace("test_homogeneity.py", "")


def test_no_walk_finds_it(sealed: ClusterHomogeneity) -> None:
    assert not hasattr(sealed, "__dict__")
    assert not hasattr(sealed, "__dataclass_fields__")
    with pytest.raises(TypeError):
        json.dumps(sealed)
    with pytest.raises(TypeError):
        float(sealed)  # type: ignore[arg-type]


@pytest.mark.parametrize("leave", [pickle.dumps, copy.copy, copy.deepcopy])
def test_it_does_not_leave_the_process(sealed: ClusterHomogeneity, leave: object) -> None:
    assert callable(leave)
    with pytest.raises(TypeError, match="private"):
        leave(sealed)
