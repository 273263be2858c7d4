"""A release told unit by unit: as the product's estimators are given it, and made at random."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from statistics import fmean, variance

import numpy as np

from estimators.strata.evidence import Evidence, Pools, Slices, Statistic

Function = Callable[[float], float]


@cache
def laplace_cumulants(scale: float) -> tuple[float, float]:
    """κ₂ and κ₄ of the discrete Laplace distribution, by summing its probabilities."""
    reach = math.ceil(60 * scale) + 10
    weights = [math.exp(-abs(k) / scale) for k in range(-reach, reach + 1)]
    second, fourth = (
        math.fsum(w * k**power for k, w in zip(range(-reach, reach + 1), weights, strict=True))
        / math.fsum(weights)
        for power in (2, 4)
    )
    return second, fourth - 3 * second**2


@dataclass(frozen=True)
class Unit:
    cluster: int
    arm: int
    value: float
    """Randomised outcome."""
    groups: frozenset[int] = frozenset({0})


@dataclass(frozen=True)
class Cell:
    """What is published of a (pool, arm); no ``noisy`` counts where there are none."""

    prior: tuple[float, ...]
    noisy: tuple[int, ...] | None = None
    mean_weight: float = 0.0
    square_weight: float = 0.0


@dataclass(frozen=True)
class Told:
    """All that a release says."""

    grid: tuple[float, ...]
    rate: float
    units: tuple[Unit, ...]
    pool_of: dict[int, int]
    """Pool of each cluster."""
    cells: dict[tuple[int, int], Cell]
    """By pool and arm."""
    noise_scale: float | None = None
    own_sizes: dict[int, float] = field(default_factory=dict)
    """s of the clusters that have one."""

    @cached_property
    def center(self) -> float:
        return fmean(self.grid)

    @cached_property
    def steps(self) -> list[float]:
        """The grid from its mean."""
        return [value - self.center for value in self.grid]

    def key(self, unit: Unit) -> tuple[int, int]:
        return self.pool_of[unit.cluster], unit.arm

    def cell(self, unit: Unit) -> Cell:
        return self.cells[self.key(unit)]

    @cached_property
    def _members(self) -> dict[tuple[int, int], list[int]]:
        keys = [self.key(unit) for unit in self.units]
        return {key: [at for at, own in enumerate(keys) if own == key] for key in self.cells}

    def of(self, key: tuple[int, int]) -> list[int]:
        """The units of a (pool, arm)."""
        return self._members[key]

    @cached_property
    def _known(self) -> dict[tuple[tuple[int, int], Function], tuple[float, float]]:
        return {}

    def prior_moments(self, unit: Unit, f: Function) -> tuple[float, float]:
        """Mean and variance of f under the unit's prior."""
        key = self.key(unit), f
        if key not in self._known:
            pairs = list(zip(self.cell(unit).prior, map(f, self.steps), strict=True))
            mean = math.fsum(p * value for p, value in pairs)
            self._known[key] = mean, math.fsum(p * (value - mean) ** 2 for p, value in pairs)
        return self._known[key]

    def debiased(self, unit: Unit, f: Function) -> float:
        prior, _ = self.prior_moments(unit, f)
        return (f(unit.value - self.center) - self.rate * prior) / (1 - self.rate)

    def unit_noise(self, unit: Unit, f: Function) -> float:
        """V̂_RR of one unit."""
        prior, spread = self.prior_moments(unit, f)
        own = (f(unit.value - self.center) - prior) ** 2
        return self.rate / (1 - self.rate) ** 2 * (own + (1 - self.rate) * spread)

    def statistic(self, key: tuple[int, int], f: Function) -> tuple[float, float, float]:
        """M, its variance and its fourth cumulant."""
        noisy, n = self.cells[key].noisy, len(self.of(key))
        assert noisy is not None
        assert self.noise_scale is not None
        middle = fmean(f(d) for d in self.steps)
        factors = [(f(d) - middle) / n for d in self.steps]
        value = middle + math.fsum(c * count for c, count in zip(factors, noisy, strict=True))
        if len(factors) == 2:  # one draw, added above and taken away below
            factors = [factors[1] - factors[0]]
        second, fourth = laplace_cumulants(self.noise_scale)
        return (
            value,
            second * math.fsum(c**2 for c in factors),
            fourth * math.fsum(c**4 for c in factors),
        )


def identity(d: float) -> float:
    return d


def squared(d: float) -> float:
    return d * d


def evidence_of(told: Told) -> Evidence:
    """What the product's estimators are given of a release."""
    keys = sorted(told.cells)
    groups = sorted({group for unit in told.units for group in unit.groups})
    whole = [(0, unit) for unit in told.units]
    parts = [(group, unit) for group in groups for unit in told.units if group in unit.groups]
    cells = [told.cells[key] for key in keys]
    prior = np.array([cell.prior for cell in cells])
    steps = np.array(told.steps)
    mean, square = prior @ steps, prior @ steps**2
    n_clusters = [list(told.pool_of.values()).count(pool) for pool, _ in keys]
    pools = Pools(
        prior_mean=mean,
        prior_variance=prior @ steps**2 - mean**2,
        prior_square=square,
        prior_square_variance=np.maximum(prior @ steps**4 - square**2, 0.0),
        of_mean=_statistic(told, keys, identity, [cell.mean_weight for cell in cells]),
        of_square=_statistic(told, keys, squared, [cell.square_weight for cell in cells]),
        pool=np.array([pool for pool, _ in keys]),
        n_clusters=np.array(n_clusters),
    )
    slices, everyone = _slices(told, parts, keys), _slices(told, whole, keys)
    return Evidence.of(slices, everyone, pools, told.rate, np.array(told.grid))


def _statistic(
    told: Told, keys: list[tuple[int, int]], f: Function, weight: list[float]
) -> Statistic:
    nothing = (math.nan, math.nan, math.nan)
    found = [
        nothing if told.cells[key].noisy is None or not told.of(key) else told.statistic(key, f)
        for key in keys
    ]
    value, spread, fourth = np.array(found).T
    return Statistic(value, spread, fourth, np.array(weight))


def _slices(told: Told, units: list[tuple[int, Unit]], keys: list[tuple[int, int]]) -> Slices:
    rows = sorted({(group, unit.cluster, unit.arm) for group, unit in units})
    n, means, variances, fourths = [], [], [], []
    for row in rows:
        values = [
            unit.value - told.center
            for group, unit in units
            if (group, unit.cluster, unit.arm) == row
        ]
        n.append(float(len(values)))
        means.append(fmean(values))
        variances.append(variance(values) if len(values) > 1 else 0.0)
        fourths.append(fmean(value**4 for value in values))
    group, cluster, arm = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    pool = np.array([keys.index((told.pool_of[c], a)) for _, c, a in rows], dtype=np.int64)
    moments = [np.array(column) for column in (n, means, variances, fourths)]
    own = np.array([told.own_sizes.get(int(c), 0.0) for c in cluster])
    return Slices(group, cluster, arm, pool, *moments, own_sizes=own)


def random_release(stream: int) -> Told:
    """Any release: K from 2 to 5, clusters alone or sharing pools, strata of 0 to 6 units.

    Groups overlap, and some units are in none.
    """
    random = np.random.default_rng(stream)
    k, n_clusters, n_arms = (
        int(random.integers(low, high)) for low, high in ((2, 6), (1, 6), (2, 5))
    )
    grid = tuple(
        np.sort(random.choice(np.arange(-20, 21), k, replace=False)).astype(float).tolist()
    )
    pool_of = {c: int(random.integers(0, n_clusters)) for c in range(n_clusters)}
    units = tuple(
        Unit(cluster, arm, grid[random.integers(k)], _groups(random))
        for cluster in range(n_clusters)
        for arm in range(n_arms)
        for _ in range(random.integers(0, 7))
    ) or (Unit(0, 0, grid[0]),)
    cells = {
        key: Cell(
            tuple(random.dirichlet(np.ones(k)).tolist()),
            tuple(random.integers(-3, 12, k).tolist()),
            *(float(random.choice([0.0, round(random.random(), 3), 1.0])) for _ in range(2)),
        )
        for key in sorted({(pool_of[unit.cluster], unit.arm) for unit in units})
    }
    rate, scale = float(random.uniform(0.05, 0.95)), float(random.uniform(0.3, 5))
    s = float(random.choice([0.0, round(random.random(), 3), 1.0]))
    own_sizes = dict.fromkeys(np.flatnonzero(random.random(n_clusters) < 0.7).tolist(), s)
    return Told(grid, rate, units, pool_of, cells, scale, own_sizes)


def _groups(random: np.random.Generator) -> frozenset[int]:
    return frozenset(np.flatnonzero(random.random(3) < 0.6).tolist())
