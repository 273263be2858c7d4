"""What ties releases of the same people together, against sums over all pairs of releases."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.arm_effects import contrasts
from estimators.operate.people import Returners, contributions, cross_terms
from estimators.strata.evidence import Evidence, Pools, Slices, Statistic, sum_by
from schemas.arrays import Floats, Words

Row = tuple[int, int, int, float]
"""Effect, unit, period, contribution."""

ROWS = st.dictionaries(
    st.tuples(st.integers(0, 1), st.integers(0, 5), st.integers(0, 4)),
    st.floats(-3, 3),
    min_size=1,
    max_size=40,
).map(lambda found: [(*key, value) for key, value in found.items()])


def crossed(rows: list[Row], shape: tuple[int, int]) -> tuple[Floats, Floats]:
    effect, unit, period, value = zip(*rows, strict=True)
    found = cross_terms(
        np.array(effect), np.array(unit, dtype=np.uint64), np.array(period), np.array(value), shape
    )
    return found.total, found.scatter


def by_pairs(rows: list[Row], shape: tuple[int, int]) -> tuple[Floats, Floats]:
    """The same from the definition: each pair of rows of one unit, one after the other."""
    total, scatter = np.zeros(shape), np.zeros(shape)
    for of_effect in range(shape[1]):
        of_unit: dict[int, float] = {}
        for t in range(shape[0]):
            before = sum(part**2 for part in of_unit.values()) / 2.0
            for one, other in combinations([row for row in rows if row[0] == of_effect], 2):
                if one[1] == other[1] and max(one[2], other[2]) == t:
                    total[t, of_effect] += 2.0 * one[3] * other[3]
                    of_unit[one[1]] = of_unit.get(one[1], 0.0) + 2.0 * one[3] * other[3]
            after = sum(part**2 for part in of_unit.values()) / 2.0
            scatter[t, of_effect] = after - before
    return total, scatter


@pytest.mark.statistical
@given(rows=ROWS)
def test_cross_terms_are_the_sum_over_pairs_of_releases(rows: list[Row]) -> None:
    for found, expected in zip(crossed(rows, (5, 2)), by_pairs(rows, (5, 2)), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_cross_terms_of_three_nights_by_hand() -> None:
    # unit 7 is in all three nights, unit 8 in the last two, unit 9 in one
    rows = [(0, 7, 0, 2.0), (0, 7, 1, 3.0), (0, 7, 2, 5.0), (0, 8, 1, 1.0), (0, 8, 2, 4.0)]
    total, _ = crossed([*rows, (0, 9, 2, 100.0)], (3, 1))
    assert total[:, 0].tolist() == [0.0, 2 * 2 * 3, 2 * (2 + 3) * 5 + 2 * 1 * 4]


def members(random: np.random.Generator, n: int = 60) -> Returners:
    return Returners(
        group=np.arange(n) % 2,
        cluster=random.integers(0, 3, n),
        arm=random.integers(0, 3, n),
        debiased=random.normal(size=n),
    )


def by_definition(of: Returners, arm: int) -> Floats:
    """n ψ of every unit, in clusters that all have two of its arms or are left out."""
    found = np.zeros(len(of.arm))
    for u in range(len(found)):
        here = (of.group == of.group[u]) & (of.cluster == of.cluster[u])
        sizes = [int((here & (of.arm == one)).sum()) for one in (arm, 0)]
        if of.arm[u] not in (0, arm) or min(sizes) < 2:
            continue
        own = here & (of.arm == of.arm[u])
        n = own.sum()
        sign = 1.0 if of.arm[u] == arm else -1.0
        deviation = of.debiased[u] - of.debiased[own].mean()
        found[u] = sign * here.sum() * deviation / n * np.sqrt(n / (n - 1))
    return found


@pytest.mark.parametrize("arm", [1, 2])
def test_contributions_are_those_of_the_definition(arm: int) -> None:
    of = members(np.random.default_rng(3))
    found = contributions(of, arm, 0, same_shares=False)
    np.testing.assert_allclose(found, by_definition(of, arm), atol=1e-12)


def test_units_that_are_not_compared_contribute_nothing() -> None:
    of = Returners(np.zeros(3, np.int64), np.arange(3), np.arange(3) % 2, np.array([1.0, 5.0, 9.0]))
    assert contributions(of, 1, 0, same_shares=False).tolist() == [0.0, 0.0, 0.0]


def evidence(of: Returners, rate: float = 0.0) -> Evidence:
    """The whole of one group as an estimator sees it, released as it is."""
    keys, code = np.unique(of.cluster * 3 + of.arm, return_inverse=True)
    n = np.bincount(code).astype(float)
    mean = np.bincount(code, of.debiased) / n
    squares: Floats = sum_by(code, (of.debiased - mean[code]) ** 2, len(n))
    zero = np.zeros(len(keys), np.int64)
    slices = Slices(
        zero, keys // 3, keys % 3, zero, n, mean, squares / np.maximum(n - 1, 1), squares
    )
    nothing = Statistic(*(np.full(1, np.nan),) * 3, np.zeros(1))
    none = np.zeros(1)
    pools = Pools(none, none, none, none, nothing, nothing, np.zeros(1, np.int64), np.ones(1, int))
    return Evidence.of(slices, slices, pools, rate, np.array([-1.0, 1.0]))


@pytest.mark.parametrize("own", [(0.4, 0.4, 0.4), (0.0, 0.9, 0.9), (1.0, 1.0, 1.0)])
def test_squares_of_those_by_own_sizes_are_the_variance_of_combined(own: tuple[float, ...]) -> None:
    random = np.random.default_rng(8)
    drawn = members(random, 90)
    outcome = 0.3 * drawn.cluster - 0.3 + 0.5 * random.uniform(-1, 1, 90)
    s = np.array(own)
    of = Returners(
        np.zeros(90, np.int64), drawn.cluster, drawn.arm, outcome, own_sizes=s[drawn.cluster]
    )
    seen = evidence(of)
    seen = replace(seen, slices=replace(seen.slices, own_sizes=s[seen.slices.cluster]))
    found = contrasts(seen, "combined", 1, 0, 1, same_shares=True)
    part = contributions(of, 1, 0, same_shares=True)
    np.testing.assert_allclose((part**2).sum(), found.variance * found.n_units**2, rtol=1e-9)


@pytest.mark.parametrize("same_shares", [False, True])
def test_the_same_people_with_the_same_outcomes_twice_are_one_release(same_shares: bool) -> None:
    random = np.random.default_rng(5)
    of = members(random, 80)
    of = Returners(np.zeros(80, np.int64), of.cluster, of.arm, of.debiased)
    neyman = contrasts(evidence(of), "tau_q", 1, 0, 1, same_shares=same_shares)
    part = contributions(of, 1, 0, same_shares=same_shares)
    np.testing.assert_allclose((part**2).sum(), neyman.variance * neyman.n_units**2, rtol=1e-12)
    units: Words = np.tile(np.arange(80, dtype=np.uint64), 2)
    nights = np.repeat(np.arange(2), 80)
    both = cross_terms(np.zeros(160, np.int64), units, nights, np.tile(part, 2), (2, 1))
    together = 2 * (part**2).sum() + both.total.sum()
    np.testing.assert_allclose(together / (2 * neyman.n_units[0]) ** 2, neyman.variance[0])
