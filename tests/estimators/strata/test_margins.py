"""Calibration by margins is generalised least squares over all units, solved densely."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from estimators.strata.evidence import (
    Debiased,
    PoolMeans,
    Slices,
    Statistic,
    Sums,
    calibrate,
    sum_by,
)
from estimators.strata.margins import (
    CellSizes,
    CellStatistics,
    CrossedMargins,
    Crossing,
    Margins,
    PoolStatistics,
)
from schemas.arrays import Floats, Ints

SIZES = (3, 4)
N_ARMS = 2
N_GROUPS = 3
N_POOLS = 4
"""Pools; the (pool, arm)s are numbered ``2 pool + arm``, and each has two strata."""


@dataclass(frozen=True)
class World:
    """Units one by one, with all that is published of them."""

    arm: Ints
    stratum: Ints
    codes: list[Ints]
    group: Ints
    outcome: Floats
    noise: Floats
    pools: Statistic
    cells: Floats
    cell_noise: Floats
    cell_fourth: Floats
    planned: float

    @property
    def pool(self) -> Ints:
        """The (pool, arm) of every unit."""
        return self.stratum // (2 * N_ARMS) * N_ARMS + self.arm

    @property
    def incidence(self) -> Floats:
        """Units × (pools' arms with a statistic, then arm by arm all cells)."""
        columns = [self.pool == at for at in np.flatnonzero(self.pools.weight > 0)]
        columns += [
            (self.arm == arm) & (code == cell)
            for arm in range(N_ARMS)
            for code, size in zip(self.codes, SIZES, strict=True)
            for cell in range(size)
        ]
        return np.stack(columns, axis=1).astype(np.float64)


def world(*, with_pools: bool = True) -> World:
    """Draw one at random: sizes, cells confounded with pools, noise of each unit's own."""
    rng = np.random.default_rng(11)
    n = 260
    stratum = np.sort(rng.integers(0, 4 * N_POOLS, n))
    arm = stratum % N_ARMS
    pool = stratum // (2 * N_ARMS) * N_ARMS + arm
    codes = [np.minimum(rng.poisson(0.3 + stratum / 8), size - 1) for size in SIZES]
    planned, n_pool = 1.7, np.bincount(pool, minlength=2 * N_POOLS).astype(np.float64)
    of_sum = rng.uniform(2, 20, 2 * N_POOLS)
    is_told = np.arange(2 * N_POOLS) % 5 != 3 if with_pools else np.zeros(2 * N_POOLS, dtype=bool)
    pools = Statistic(
        value=np.where(is_told, rng.normal(size=2 * N_POOLS), np.nan),
        variance=np.where(is_told, of_sum / n_pool**2, np.nan),
        fourth=np.where(is_told, of_sum / n_pool**4, np.nan),
        weight=np.where(is_told, planned * n_pool / (planned * n_pool + of_sum), 0.0),
    )
    shape = (N_ARMS, sum(SIZES))
    return World(
        arm=arm,
        stratum=stratum,
        codes=codes,
        group=rng.integers(0, N_GROUPS, n),
        outcome=rng.normal(size=n),
        noise=rng.uniform(0.5, 3, n),
        pools=pools,
        cells=rng.normal(size=shape) * 9,
        cell_noise=rng.uniform(1, 9, shape),
        cell_fourth=rng.uniform(1, 9, shape),
        planned=planned,
    )


def crossed(given: World, row: Ints, n_rows: int) -> Crossing:
    """Cross rows of units with cells, unit by unit."""
    starts = np.cumsum([0, *SIZES])
    found: dict[tuple[int, int], tuple[float, float]] = {}
    for code, start in zip(given.codes, starts[:-1], strict=True):
        for at, cell, noise in zip(row, code + start, given.noise, strict=True):
            count, total = found.get((at, cell), (0.0, 0.0))
            found[at, cell] = (count + 1.0, total + noise)
    keys = sorted(found)
    rows, cells = (np.array(one, dtype=np.int64) for one in zip(*keys, strict=True))
    n, noise = (np.array([found[key][at] for key in keys]) for at in (0, 1))
    return Crossing(rows, cells, n, noise, n_rows, int(starts[-1]))


def facts(given: World) -> tuple[Margins, PoolMeans]:
    """What the product makes of the world."""
    n = sum_by(given.pool, np.ones(len(given.arm)), 2 * N_POOLS)
    mean, noise = (sum_by(given.pool, one, 2 * N_POOLS) for one in (given.outcome, given.noise))
    whole = PoolMeans(n, mean / n, noise / n**2)
    statistic, arm = given.pools, np.arange(2 * N_POOLS) % N_ARMS
    apart, known = statistic.value - whole.mean, statistic.variance + whole.noise
    weight = statistic.weight
    apart, known, fourth = (
        np.where(weight > 0, one, 0.0) for one in (apart, known, statistic.fourth)
    )
    pools = PoolStatistics(arm, n, weight, known, weight * apart, fourth)
    cells = given.incidence[:, np.count_nonzero(weight) :].reshape(len(n_of(given)), N_ARMS, -1)
    statistics = CellStatistics(
        apart=given.cells - np.einsum("iam,i->am", cells, given.outcome),
        variance=given.cell_noise,
        fourth=given.cell_fourth,
        n_units=np.einsum("iam,iak->amk", cells, cells),
        noise=np.einsum("iam,iak,i->amk", cells, cells, given.noise),
        sizes=SIZES,
    )
    by_pool = crossed(given, given.pool, 2 * N_POOLS)
    return Margins.of(given.planned, statistics, pools, by_pool), whole


def n_of(given: World) -> Floats:
    """A one for each unit."""
    return np.ones(len(given.arm))


def dense(given: World) -> tuple[Floats, Floats, Floats, Floats]:
    """W⁻¹, M − AᵀR, D and κ₄ over all statistics."""
    incidence, told = given.incidence, given.pools.weight > 0
    n = np.bincount(given.pool, minlength=2 * N_POOLS).astype(np.float64)
    variance = np.concatenate([(given.pools.variance * n**2)[told], given.cell_noise.ravel()])
    fourth = np.concatenate([(given.pools.fourth * n**4)[told], given.cell_fourth.ravel()])
    value = np.concatenate([(given.pools.value * n)[told], given.cells.ravel()])
    system = given.planned * incidence.T @ incidence + np.diag(variance)
    inverse = np.linalg.inv(system).astype(np.float64, copy=False)
    return inverse, value - incidence.T @ given.outcome, variance, fourth


def sums(given: World, arm: int, share: Floats) -> Sums:
    """What the product makes of groups in an arm; ``share`` is that of each (group, stratum)."""
    margins, whole = facts(given)
    mine = given.arm == arm
    key = given.group * 4 * N_POOLS + given.stratum
    keys = np.unique(key[mine])
    at = np.searchsorted(keys, key[mine])
    n = np.bincount(at).astype(np.float64)
    mean, noise = (sum_by(at, one[mine], len(keys)) for one in (given.outcome, given.noise))
    stratum = keys % (4 * N_POOLS)
    target, zero = keys // (4 * N_POOLS), np.zeros_like(n)
    pool = stratum // (2 * N_ARMS) * N_ARMS + arm
    slices = Slices(target, stratum, zero.astype(int) + arm, pool, n, mean / n, zero, zero)
    debiased = Debiased(mean / n, noise / n**2)
    weight = given.pools.weight
    plain = calibrate(target, N_GROUPS, share[keys], slices, debiased, whole, given.pools, weight)
    mine_only = replace(
        given,
        **{name: getattr(given, name)[mine] for name in ("arm", "stratum", "outcome", "noise")},
        codes=[code[mine] for code in given.codes],
    )
    of_slices = CrossedMargins(margins, crossed(mine_only, at, len(keys)))
    rows = np.arange(len(keys))
    return of_slices.calibrate(plain, rows, target, share[keys], slices, debiased)


@pytest.mark.parametrize("with_pools", [True, False])
@pytest.mark.parametrize("arm", [0, 1])
@pytest.mark.parametrize("block", [1 << 21, 8])
def test_groups_are_estimated_as_by_the_whole_system(
    arm: int, block: int, monkeypatch: pytest.MonkeyPatch, *, with_pools: bool
) -> None:
    monkeypatch.setattr("estimators.strata.margins._DENSE", block)
    given = world(with_pools=with_pools)
    share = np.random.default_rng(12).uniform(0, 1, N_GROUPS * 4 * N_POOLS)

    found = sums(given, arm, share)

    inverse, apart, variance, fourth = dense(given)
    key = given.group * 4 * N_POOLS + given.stratum
    n = np.bincount(key, minlength=len(share))
    for group in range(N_GROUPS):
        mine = (given.group == group) & (given.arm == arm)
        a = np.where(mine, share[key] / n[key], 0.0)
        factor = inverse @ (given.planned * given.incidence.T @ a)
        left = a - given.incidence @ factor
        value = a @ given.outcome + factor @ apart
        noise = given.noise @ left**2 + variance @ factor**2
        assert found.value[group] == pytest.approx(value, rel=1e-9)
        assert found.noise[group] == pytest.approx(noise, rel=1e-9)
        assert found.fourth[group] == pytest.approx(fourth @ factor**4, rel=1e-9)


@pytest.mark.parametrize("with_pools", [True, False])
def test_shifts_of_units_are_those_of_the_whole_system(*, with_pools: bool) -> None:
    given = world(with_pools=with_pools)
    margins, _ = facts(given)
    starts = np.cumsum([0, *SIZES])

    found = margins.pool_shifts[given.pool]
    for code, start in zip(given.codes, starts[:-1], strict=True):
        found = found + margins.shifts[given.arm, code + start]

    inverse, apart, _, _ = dense(given)
    expected = given.planned * given.incidence @ (inverse @ apart)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_rows_put_together_are_those_of_units() -> None:
    given = world()
    place = np.arange(4 * N_POOLS) // 3 - 1

    found = crossed(given, given.stratum, 4 * N_POOLS).gathered(place, 5)

    kept = place[given.stratum] >= 0
    some = replace(
        given,
        codes=[code[kept] for code in given.codes],
        noise=given.noise[kept],
    )
    expected = crossed(some, place[given.stratum][kept], 5)
    for name in ("row", "cell", "n_units", "noise"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-12)


def test_a_forecast_is_the_noise_of_the_whole_system_where_units_are_as_planned() -> None:
    given = world()
    arm = 1
    mine = given.arm == arm
    codes = [code[mine] for code in given.codes]
    n = np.bincount(given.pool, minlength=2 * N_POOLS).astype(np.float64)
    of_pools = np.where(given.pools.weight > 0, given.pools.variance * n**2, np.inf)
    sizes = CellSizes.of_units(given.pool[mine], codes, SIZES, 2 * N_POOLS)

    found = sizes.forecast(given.planned, of_pools, given.cell_noise[arm])

    inverse, _, _, _ = dense(given)

    def noise(a: Floats) -> float:
        change = given.planned * given.incidence.T @ a
        return float(given.planned * a @ a - change @ inverse @ change)

    starts = np.cumsum([0, *SIZES])
    for code, start in zip(given.codes, starts[:-1], strict=True):
        for cell in range(int(code.max()) + 1):
            chosen = mine & (code == cell)
            expected = noise(chosen / chosen.sum())
            assert found.cells[start + cell] == pytest.approx(expected, rel=1e-9)
    everybody = noise(mine / mine.sum())
    assert found.everybody == pytest.approx(everybody, rel=1e-9)
    rng = np.random.default_rng(5)
    tenths = []
    for _ in range(200):
        chosen = np.flatnonzero(mine)
        chosen = rng.choice(chosen, len(chosen) // 10, replace=False)
        tenths.append(noise(np.bincount(chosen, minlength=len(mine)) / len(chosen)))
    share = (mine.sum() // 10) / mine.sum()
    assert np.mean(tenths) == pytest.approx(found.part(share), rel=0.1)  # leverage is left out


def test_a_conjunction_is_forecast_by_its_own_margins_and_pools() -> None:
    n_each = 6
    pool = np.repeat(np.arange(2), 12 * n_each)
    first = np.tile(np.repeat(np.arange(3), 4 * n_each), 2)
    second = np.tile(np.repeat(np.arange(4), n_each), 6)
    third = np.tile(np.arange(2), 12 * n_each)
    codes, planned, noise = [first, second, third], 2.0, np.full(9, 7.0)
    sizes = CellSizes.of_units(pool, codes, (3, 4, 2), 2)

    found = sizes.forecast(planned, np.array([5.0, 3.0]), noise)

    columns = [pool == 0, pool == 1]
    columns += [code == k for code, size in ((first, 3), (second, 4)) for k in range(size)]
    incidence = np.stack(columns, axis=1).astype(np.float64)
    system = planned * incidence.T @ incidence + np.diag([5.0, 3.0, *noise[:7]])
    chosen = (first == 1) & (second == 2)
    a = chosen / chosen.sum()
    change = planned * incidence.T @ a
    expected = planned * a @ a - change @ np.linalg.inv(system) @ change
    assert found.conjunction(1, 3 + 2) == pytest.approx(expected, rel=1e-9)
