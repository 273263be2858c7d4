"""What strata count for: exactly unbiased over all assignments, and s of the least variance."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from estimators.strata.contrast_strata import ContrastStrata, contrast_strata
from estimators.strata.evidence import Slices
from estimators.strata.shares import LIKELY_BETWEEN, Shares, own_sizes, unevenness
from schemas.arrays import Floats, Ints

CLUSTER = np.repeat([0, 1, 2], [2, 3, 5])
MEANS = np.array([-3.0, 1.0, 7.0])


def strata_of(arm: Ints, s: Floats) -> tuple[Slices, ContrastStrata]:
    """Each cluster a stratum, whatever it has of an arm."""
    rows = [(c, a) for c in range(3) for a in (0, 1) if np.any((c == CLUSTER) & (arm == a))]
    cluster, arms = np.array(rows).T
    n = np.array([np.sum((c == CLUSTER) & (arm == a)) for c, a in rows], dtype=np.float64)
    zero, nowhere = np.zeros(len(n)), np.zeros(len(n), dtype=np.int64)
    slices = Slices(nowhere, cluster, arms, nowhere, n, zero, zero, zero, own_sizes=s[cluster])
    alike = contrast_strata(slices, 1, 0, same_shares=False)
    sides = [
        replace(side, rows=np.flatnonzero(arms == a), stratum=cluster[arms == a])
        for a, side in ((1, alike.treated), (0, alike.control))
    ]
    weight = np.bincount(CLUSTER).astype(np.float64)
    strata = replace(
        alike,
        group=np.zeros(3, dtype=np.int64),
        weight=weight,
        treated=sides[0],
        control=sides[1],
        own_sizes=s,
    )
    return slices, strata


@pytest.mark.parametrize("s", [(0.6, 0.6, 0.6), (0.0, 0.9, 0.9), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)])
def test_clusters_count_by_all_arms_on_average_over_all_assignments(
    s: tuple[float, float, float],
) -> None:
    """Of ten units four are treated; of those that share weights as many as fall to them."""
    b, total = np.bincount(CLUSTER) / len(CLUSTER), np.array([float(len(CLUSTER))])
    found, effects, alike = [], [], []
    together = np.array(s) > 0
    for treated in combinations(range(len(CLUSTER)), 4):
        arm = np.zeros(len(CLUSTER), dtype=np.int64)
        arm[list(treated)] = 1
        n = [np.bincount(CLUSTER, weights=arm == a, minlength=3)[together].sum() for a in (0, 1)]
        if together.any() and min(n) == 0:
            continue  # nobody of an arm is in them: there are no own sizes
        slices, strata = strata_of(arm, np.array(s))
        sides = [
            Shares.of(strata, side, slices.n_units, total)
            for side in (strata.treated, strata.control)
        ]
        for one in sides:
            assert one.value.sum() == pytest.approx(1.0)
            assert one.moved[0] == pytest.approx(float(np.array(s) @ b))
        found.append(sides[0].value)
        effects.append(float((sides[0].value - sides[1].value) @ MEANS))
        alike.append(float(one.own.max()))
    assert np.mean(found, axis=0) == pytest.approx(b)
    assert np.mean(effects) == pytest.approx(0.0, abs=1e-12)
    assert (np.std(effects) > 0) == together.any()


def test_kappa_is_what_it_is_on_average_over_all_assignments() -> None:
    """Of two clusters, where 1/g needs no approximation but for its own spread."""
    sizes = np.array([[30, 10], [60, 20], [45, 15]])
    random, n = np.random.default_rng(1), sizes.sum()
    cluster, b = np.repeat(np.arange(3), sizes.sum(axis=1)), sizes.sum(axis=1) / n
    n_arm = sizes.sum(axis=0)
    drawn = []
    for _ in range(4000):
        inside = np.bincount(cluster[random.permutation(n)[: n_arm[1]]], minlength=3)
        other = sizes.sum(axis=1) - inside
        shares = np.stack([other / n_arm[0], inside / n_arm[1]])
        drawn.append(np.sum(np.sum((b - shares) ** 2 / b, axis=1) / n_arm))
    found = unevenness(sizes, 0, np.ones(3, dtype=np.bool_))
    assert found.uneven == pytest.approx(np.mean(drawn), rel=0.05)
    assert found.apart == pytest.approx(np.sum(1.0 / n_arm))


def test_s_makes_the_variance_least() -> None:
    sizes = np.array([[8, 4], [12, 6], [10, 5], [9, 9]])
    together = np.array([True, True, True, False])
    uneven = unevenness(sizes, 0, together)
    for noise in (0.0, 0.5, 20.0):
        at = np.linspace(0, 1, 10001)
        within = (1 - at) ** 2 * (noise + 1 - LIKELY_BETWEEN) * uneven.uneven
        least = at[np.argmin(within + at**2 * LIKELY_BETWEEN * uneven.apart)]
        found = own_sizes(sizes, 0, together, np.array([noise]))
        assert found == pytest.approx([least, least, least, 0.0], abs=1e-4)
    both = own_sizes(sizes, 0, together, np.array([0.0, 20.0]))
    alone = [own_sizes(sizes, 0, together, np.array([one]))[0] for one in (0.0, 20.0)]
    assert both[0] == pytest.approx(np.mean(alone))
    assert own_sizes(sizes, 0, together, np.array([np.inf]))[0] == 1.0


@pytest.mark.parametrize(
    ("sizes", "together"),
    [
        ([[8, 4], [12, 6]], [True, False]),  # one alone
        ([[8, 4], [12, 6]], [False, False]),
        ([[8, 0], [12, 0]], [True, True]),  # one arm
        ([[3, 1], [2, 2]], [True, True]),  # both small: one stratum
    ],
)
def test_there_is_no_s_where_there_is_nothing_to_share_out(
    sizes: list[list[int]], together: list[bool]
) -> None:
    noise = np.array([1.0, np.inf])
    assert (own_sizes(np.array(sizes), 0, np.array(together), noise) == 0).all()
