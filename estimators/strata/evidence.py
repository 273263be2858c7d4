"""The input of every estimator: sums over slices of strata, and the published facts of pools.

A *slice* is the part of a (cluster, arm) stratum that lies in one group: in one of the analyst's
segments, or the whole stratum. Outcomes are always measured from the grid's mean ȳ, d = ỹ − ȳ, so
that squares do not cancel.
"""

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np

from estimators.response.debias import response_noise_variance
from estimators.strata.parties import Parties
from schemas.arrays import Bools, Floats, Ints
from schemas.tables import UNNAMED


def sum_by(target: Ints, values: Floats, size: int) -> Floats:
    """Add up ``values`` by their position in ``target``; the result has the shape [size]."""
    return np.bincount(target, weights=values, minlength=size).astype(np.float64, copy=False)


def distinct(keys: Ints, size: int) -> tuple[Ints, Ints]:
    """Return the different ``keys`` in order, and the position of each key among them.

    Keys are whole numbers from 0 to ``size`` − 1, shape [n]. This is NumPy's ``unique``, but
    nothing is sorted where keys rise already, or where few numbers are none of them.
    """
    if _rises(keys):
        return keys, np.arange(len(keys))
    if size > _DENSE * len(keys):
        found, position = np.unique(keys, return_inverse=True)
        return found, position
    found = np.flatnonzero(np.bincount(keys, minlength=size))
    place = np.zeros(size, dtype=np.int64)
    place[found] = np.arange(len(found))
    return found, place[keys]


def _rises(keys: Ints) -> bool:
    """Whether each of the keys is greater than the one before."""
    return bool(np.all(keys[1:] > keys[:-1]))


_DENSE = 8
"""Up to so many numbers a key a table of them all is faster than sorting."""


@dataclass(frozen=True)
class _Rows:
    """Arrays of one shape, or records of such, of which rows can be taken."""

    def take(self, rows: Ints | Bools) -> Self:
        """Return the chosen rows."""
        columns = {one.name: getattr(self, one.name) for one in fields(self)}
        taken: dict[str, Any] = {
            name: column.take(rows) if isinstance(column, _Rows) else column[rows]
            for name, column in columns.items()
            if column is not None
        }
        return replace(self, **taken)


@dataclass(frozen=True)
class OutputMeans(_Rows):
    """Means over slices of what outputs of response tables add; shape [R] each.

    See :class:`estimators.response.response_tables.OutputFunctions`.
    """

    noise: Floats
    square: Floats
    square_noise: Floats


@dataclass(frozen=True)
class Slices(_Rows):
    """One row a slice; all arrays have the shape [R]."""

    group: Ints
    """Position of the segment; 0 where there is only the whole."""
    cluster: Ints
    arm: Ints
    pool: Ints
    """Position of the (pool, arm) in :class:`Pools`."""
    n_units: Floats
    mean: Floats
    """Mean of d over the slice's randomised outcomes."""
    variance: Floats
    """Their sample variance (divisor n − 1); 0 where n = 1."""
    fourth: Floats
    """Mean of d⁴."""
    outputs: OutputMeans | None = field(default=None, kw_only=True)
    """Where units were drawn by response tables: d is v − ȳ then, debiased already, and λ is 0."""
    n_parties: Floats | None = field(default=None, kw_only=True)
    """Parties with a unit in the slice; None where no units were assigned together."""
    own_sizes: Floats | None = field(default=None, kw_only=True)
    """s of the slice's cluster (:mod:`estimators.strata.shares`); None where it is 0 for all."""

    @property
    def size(self) -> Floats:
        """How many of what was assigned are in the slice."""
        return self.n_units if self.n_parties is None else self.n_parties


@dataclass(frozen=True)
class Statistic:
    """The published statistic of each pool's outcomes, d or d²; all arrays have the shape [P].

    NaN with weight 0 where none is published.
    """

    value: Floats
    variance: Floats
    """Variance of its noise."""
    fourth: Floats
    """Fourth cumulant of its noise."""
    weight: Floats
    """Its weight beside the randomised outcomes, by the declared guess."""


@dataclass(frozen=True)
class Pools:
    """One row a (pool, arm), with its prior and its statistics; all arrays have the shape [P]."""

    prior_mean: Floats
    """m, the mean of d under the prior q̃."""
    prior_variance: Floats
    prior_square: Floats
    """Mean of d² under q̃."""
    prior_square_variance: Floats
    of_mean: Statistic
    of_square: Statistic
    """One row for every ``square_cell``."""
    pool: Ints
    """Number of the pool, the same for all its arms."""
    n_clusters: Ints
    """Clusters that share the pool."""
    of_difference: Statistic | None = None
    """The treated arm's mean less control's, on the treated arm's row; None where not published."""
    square_cell: Ints | None = None
    """The row of ``of_square`` for each pool and arm; None where each has a row of its own.

    Where squares are published of whole arms, all pools of an arm share one row.
    """

    def square_cells(self, pool: Ints) -> Ints:
        """Return the row of ``of_square`` for each of the given rows of pools."""
        return pool if self.square_cell is None else self.square_cell[pool]


@dataclass(frozen=True)
class Debiased(_Rows):
    """A function of the outcomes, debiased and averaged over slices, with its noise; shape [R]."""

    mean: Floats
    noise: Floats
    """V̂_RR, which randomised response adds to the variance of ``mean``."""


def debias_mean(slices: Slices, pools: Pools, rate: float) -> Debiased:
    """Return the mean of the debiased d over each slice, (mean − λ m)/(1 − λ), with its noise.

    V̂_RR = r(1 + r)[mean (d − m)² + (1 − λ) Var_q̃]/n is unbiased given q̃ and never negative. Of
    outputs of response tables it is the mean of u over n: unbiased given the tables.
    """
    if slices.outputs is not None:
        return Debiased(slices.mean, slices.outputs.noise / slices.n_units)
    n, m = slices.n_units, pools.prior_mean[slices.pool]
    square = slices.variance * (n - 1.0) / n + (slices.mean - m) ** 2
    spread = pools.prior_variance[slices.pool]
    return Debiased(
        (slices.mean - rate * m) / (1.0 - rate), response_noise_variance(n, square, spread, rate)
    )


def debias_square(slices: Slices, pools: Pools, rate: float) -> Debiased:
    """Return the mean of the debiased d² over each slice, with its noise, likewise."""
    if slices.outputs is not None:
        return Debiased(slices.outputs.square, slices.outputs.square_noise / slices.n_units)
    n, m = slices.n_units, pools.prior_square[slices.pool]
    mean_square = slices.variance * (n - 1.0) / n + slices.mean**2
    square = np.maximum(slices.fourth - 2.0 * m * mean_square + m * m, 0.0)
    spread = pools.prior_square_variance[slices.pool]
    return Debiased(
        (mean_square - rate * m) / (1.0 - rate), response_noise_variance(n, square, spread, rate)
    )


@dataclass(frozen=True)
class PoolMeans:
    """Debiased means over whole pools, with their noise; shape [P]."""

    n_units: Floats
    mean: Floats
    noise: Floats


def pool_means(slices: Slices, debiased: Debiased, n_pools: int) -> PoolMeans:
    """Average whole strata (no segments) over their pools."""
    n = sum_by(slices.pool, slices.n_units, n_pools)
    total = sum_by(slices.pool, slices.n_units * debiased.mean, n_pools)
    noise = sum_by(slices.pool, slices.n_units**2 * debiased.noise, n_pools)
    with np.errstate(invalid="ignore", divide="ignore"):
        return PoolMeans(n, total / n, noise / n**2)


@dataclass(frozen=True)
class Sums:
    """Weighted sums of slices, calibrated by the pools' statistics; shape [T]."""

    value: Floats
    noise: Floats
    fourth: Floats
    """Fourth cumulant of the statistics' noise in ``value``."""


def calibrate(
    target: Ints,
    n_targets: int,
    share: Floats,
    slices: Slices,
    debiased: Debiased,
    whole: PoolMeans,
    statistic: Statistic,
    weight: Floats,
) -> Sums:
    """Return θ̂ = Σ_c t_c v̂_c + Σ_p w_p T_p (M_p − μ̂_p) for every target, with its noise variance.

    V̂ = Σ t_c² V_c − 2 Σ_p w_p T_p Σ_{c in p} t_c n_c V_c / N_p + Σ_p w_p² T_p² (V_p + V_M,p),

    where, over the slices c of a target,

    - t is ``share`` and ``target`` the target of each slice, shape [R]; slices of no target are
      left out beforehand,
    - v̂_c, V_c are ``debiased``; μ̂_p, V_p, N_p are ``whole``, of all units in the pool. The slice's
      units are among them: hence the covariance n_c V_c / N_p,
    - M_p and V_M,p are ``statistic``, and w is ``weight``, shape [P],
    - T_p = Σ t_c over the target's slices in pool p.

    With one pool a target, and all of its units in the slice, this is (1 − w) μ̂ + w M.
    """
    value = sum_by(target, share * debiased.mean, n_targets)
    noise = sum_by(target, share**2 * debiased.noise, n_targets)
    fourth = np.zeros(n_targets)
    used = weight[slices.pool] > 0
    if not used.any():
        return Sums(value, np.maximum(noise, 0.0), fourth)
    pool, n, spread = slices.pool, slices.n_units, debiased.noise
    if not used.all():
        target, share, pool = target[used], share[used], pool[used]
        n, spread = n[used], spread[used]
    at, at_pool, total, common = target, pool, share, share * n * spread
    keys = target * len(weight) + pool
    if not _rises(keys):  # else each is a pair of its own, and its sum
        pairs, pair = distinct(keys, n_targets * len(weight))
        at, at_pool = pairs // len(weight), pairs % len(weight)
        total, common = (sum_by(pair, part, len(pairs)) for part in (total, common))
    factor = weight[at_pool] * total
    common = common / whole.n_units[at_pool]
    shift = factor * (statistic.value[at_pool] - whole.mean[at_pool])
    pool_noise = whole.noise[at_pool] + statistic.variance[at_pool]
    change = factor**2 * pool_noise - 2.0 * factor * common
    return Sums(
        value + sum_by(at, shift, n_targets),
        np.maximum(noise + sum_by(at, change, n_targets), 0.0),
        sum_by(at, factor**4 * statistic.fourth[at_pool], n_targets),
    )


class Calibration(Protocol):
    """Statistics that calibrate sums of slices further, see :mod:`estimators.strata.margins`."""

    @property
    def pool_shifts(self) -> Floats:
        """What calibrated outcomes have added for their (pool, arm), shape [P]."""

    def calibrate(
        self,
        plain: Sums,
        rows: Ints,
        target: Ints,
        share: Floats,
        slices: Slices,
        debiased: Debiased,
    ) -> Sums:
        """Calibrate what :func:`calibrate` gives of one arm's slices, ``rows`` among all."""


@dataclass(frozen=True)
class Evidence:
    """All that a release tells about slices and the pools they lie in, debiased."""

    slices: Slices
    pools: Pools
    mean: Debiased
    square: Debiased
    whole_mean: PoolMeans
    whole_square: PoolMeans
    rate: float
    """λ."""
    center: float
    """ȳ, from which outcomes are measured."""
    lowest: float
    highest: float
    """The ends of the grid, measured likewise."""
    has_units: bool = True
    """Whether outcomes of units are published.

    Without them, only the pools' statistics tell anything: slices have numbers of units, but 0 in
    place of every mean and square, and λ is 0.
    """
    metric: str = UNNAMED
    """Name of the metric whose outcomes these are."""
    parties: Parties | None = None
    """The units of ``slices`` that were assigned together; None where each was by itself."""
    pool_parties: Parties | None = None
    """The same with whole pools in place of strata, a row of :class:`Pools` a slice."""
    skewness: float = 0.0
    """Of the debiased outcomes of all units of the release; 0 where there are none."""
    margins: "Calibration | None" = None
    """What is known of declared cells, as the slices cross with them; None without."""

    @property
    def knows_squares(self) -> bool:
        """Whether the squares of outcomes are known: from units, counts or sums of squares."""
        return self.has_units or not bool(np.isnan(self.pools.of_square.value).all())

    @property
    def has_statistic(self) -> bool:
        """Whether a statistic of the pools is published besides their priors."""
        return not bool(np.isnan(self.pools.of_mean.value).all())

    @property
    def has_combined(self) -> bool:
        """Whether there is more than τ̂_Q: units with statistics, or that count by own sizes."""
        own = self.slices.own_sizes
        has_own = own is not None and bool(own.any())
        return self.has_units and (self.has_statistic or has_own or self.margins is not None)

    @classmethod
    def of(
        cls,
        slices: Slices,
        everyone: Slices,
        pools: Pools,
        rate: float,
        grid: Floats,
        *,
        has_units: bool = True,
        metric: str = UNNAMED,
        parties: Parties | None = None,
    ) -> "Evidence":
        """Debias ``slices``, and ``everyone``, the whole strata that the slices are parts of."""
        size = len(pools.prior_mean)
        by_square = replace(everyone, pool=pools.square_cells(everyone.pool))
        all_means, all_squares = (
            debias(everyone, pools, rate) for debias in (debias_mean, debias_square)
        )
        is_all = slices is everyone
        return cls(
            slices=slices if parties is None else replace(slices, n_parties=parties.per_slice),
            pools=pools,
            mean=all_means if is_all else debias_mean(slices, pools, rate),
            square=all_squares if is_all else debias_square(slices, pools, rate),
            whole_mean=pool_means(everyone, all_means, size),
            whole_square=pool_means(by_square, all_squares, len(pools.of_square.value)),
            rate=rate,
            center=float(grid.mean()),
            lowest=float(grid[0] - grid.mean()),
            highest=float(grid[-1] - grid.mean()),
            has_units=has_units,
            metric=metric,
            parties=parties,
        )

    def by_pool(self, *, same_shares: bool) -> "Evidence":
        """Return the evidence with whole pools in place of strata, which is made once.

        Pools of several clusters are left out unless every cluster was randomised with the same
        arm shares; otherwise their arms could differ because their clusters do.
        """
        if same_shares not in self._by_pool:
            self._by_pool[same_shares] = self._pooled(same_shares=same_shares)
        return self._by_pool[same_shares]

    @cached_property
    def _by_pool(self) -> dict[bool, "Evidence"]:
        return {}

    @cached_property
    def known_means(self) -> dict[tuple[str, int, bool], tuple[float, float]]:
        """Arms' own means, with variances, where contrasts have found them.

        By estimator, arm, and whether all clusters have the same shares.
        """
        return {}

    def _pooled(self, *, same_shares: bool) -> "Evidence":
        strata, size = self.slices, len(self.pools.prior_mean)
        n = sum_by(strata.pool, strata.n_units, size)
        share = strata.n_units / n[strata.pool]
        mean = sum_by(strata.pool, share * strata.mean, size)
        between = strata.n_units * (strata.mean - mean[strata.pool]) ** 2
        within = (strata.n_units - 1.0) * strata.variance
        squares = sum_by(strata.pool, within + between, size)
        outputs = None
        if strata.outputs is not None:
            columns = vars(strata.outputs).values()
            outputs = OutputMeans(*(sum_by(strata.pool, share * one, size) for one in columns))
        kept = np.flatnonzero((n > 0) & ((self.pools.n_clusters == 1) | same_shares))
        arm = np.zeros(size, dtype=np.int64)
        arm[strata.pool] = strata.arm
        place = np.full(size, -1)
        place[kept] = np.arange(len(kept))
        of_pools = self.pool_parties
        parties = None if of_pools is None else of_pools.moved(place, len(kept))
        slices = Slices(
            group=np.zeros(len(kept), dtype=np.int64),
            cluster=self.pools.pool[kept],
            arm=arm[kept],
            pool=kept,
            n_units=n[kept],
            mean=mean[kept],
            variance=squares[kept] / np.maximum(n[kept] - 1.0, 1.0),
            fourth=sum_by(strata.pool, share * strata.fourth, size)[kept],
            outputs=None if outputs is None else outputs.take(kept),
            n_parties=None if parties is None else parties.per_slice,
        )
        return replace(
            self,
            slices=slices,
            parties=parties,
            pool_parties=None,
            margins=None,
            mean=debias_mean(slices, self.pools, self.rate),
            square=debias_square(slices, self.pools, self.rate),
        )


def debias_units(
    evidence: Evidence, cluster: Ints, arm: Ints, outcome: Floats, noise: Floats | None
) -> tuple[Ints, Debiased]:
    """Return the (pool, arm) of units that ``evidence`` is of, and their debiased outcomes; [n].

    ``outcome`` is randomised, measured from the grid's mean: (d − λ m)/(1 − λ), m the mean under
    the pool's prior. Of units drawn by response tables it is debiased already, and ``noise`` has
    what each adds to the variance of a sum.
    """
    slices, pools, rate = evidence.slices, evidence.pools, evidence.rate
    shape = (int(slices.cluster.max(initial=0)) + 1, int(slices.arm.max(initial=0)) + 1)
    pool_of = np.zeros(shape, dtype=np.int64)
    pool_of[slices.cluster, slices.arm] = slices.pool
    pool = pool_of[cluster, arm]
    prior = pools.prior_mean[pool]
    if noise is None:
        square, spread = (outcome - prior) ** 2, pools.prior_variance[pool]
        noise = response_noise_variance(np.ones(len(pool)), square, spread, rate)
    return pool, Debiased((outcome - rate * prior) / (1.0 - rate), noise)
