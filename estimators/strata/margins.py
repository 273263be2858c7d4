"""Margins: noisy sums of declared cells, reconciled with pools' statistics and with the units.

A *margin* is an attribute, or several together, and its *cells* are their values: every unit is in
one cell of each margin. What is published of a cell and an arm is the noisy sum M_m of its units'
outcomes. The best linear estimate of Σ a_i y_i for public a is then that of generalised least
squares, with one planned noise v of a unit: with R_i the debiased outcomes, A the incidence of
units and cells, pools' statistics among these, and D the variances of the statistics' noise,

    W = v AᵀA + D,  λ = W⁻¹ v Aᵀa,  Σ a_i y_i ≈ aᵀR + λᵀ(M − AᵀR),

arm by arm. Pools have no unit in common, so a Schur complement leaves a system of the size of the
margins' cells. Ours; see docs/method.md.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from estimators.strata.evidence import Debiased, PoolMeans, Pools, Slices, Sums, distinct, sum_by
from schemas.arrays import Floats, Integers, Ints

_DENSE = 1 << 21
"""Numbers in a block of rows that is made dense."""


@dataclass(frozen=True)
class Crossing:
    """Sums over the units that are in a row and in a cell, where there are any; shape [N] each.

    Rows are slices, strata or (pool, arm)s, from the first to the last; cells are numbered through
    all margins.
    """

    row: Ints
    cell: Ints
    n_units: Floats
    noise: Floats
    """Σ û, what the units' responses add to the variance of a sum."""
    n_rows: int
    n_cells: int

    @classmethod
    def of_units(
        cls, row: Integers, codes: Sequence[Integers], sizes: Sequence[int], n_rows: int
    ) -> Self:
        """Cross the rows of units with their cells, noise being 0.

        ``codes`` has for each margin the cell of every unit, from 0 to the margin's size − 1.
        """
        starts = np.cumsum([0, *sizes])
        rows, cells, counts = [], [], []
        for code, size, start in zip(codes, sizes, starts.tolist(), strict=False):
            keys, at = distinct(row.astype(np.int64) * size + code, n_rows * size)
            rows.append(keys // size)
            cells.append(start + keys % size)
            counts.append(np.bincount(at, minlength=len(keys)).astype(np.float64))
        of_row = np.concatenate(rows)
        order = np.argsort(of_row, kind="stable")
        n = np.concatenate(counts)[order]
        cell = np.concatenate(cells)[order]
        return cls(of_row[order], cell, n, np.zeros_like(n), n_rows, int(starts[-1]))

    @classmethod
    def of_matrix(cls, n_units: Floats, noise: Floats) -> Self:
        """Take both from matrices with a row and a column for each; shape [R, M]."""
        row, cell = np.nonzero(n_units)
        return cls(row, cell, n_units[row, cell], noise[row, cell], *n_units.shape)

    def gathered(self, place: Ints, n_rows: int) -> "Crossing":
        """Put rows together: ``place`` is where each goes, −1 for one that is left out."""
        kept = place[self.row] >= 0
        key = place[self.row[kept]] * self.n_cells + self.cell[kept]
        keys, at = distinct(key, n_rows * self.n_cells)
        n, noise = (sum_by(at, one[kept], len(keys)) for one in (self.n_units, self.noise))
        rows, cells = keys // self.n_cells, keys % self.n_cells
        return Crossing(rows, cells, n, noise, n_rows, self.n_cells)

    def blocks(self, width: int = 1) -> Iterator[tuple[slice, Floats, Floats]]:
        """Yield blocks of rows with their numbers of units and noise as matrices, [B, M] each.

        There are fewer rows in a block where ``width``, of what they are multiplied with, is great.
        """
        size = max(_DENSE // max(self.n_cells, width), 1)
        for start in range(0, self.n_rows, size):
            stop = min(start + size, self.n_rows)
            part = slice(*np.searchsorted(self.row, (start, stop)))
            at = (self.row[part] - start) * self.n_cells + self.cell[part]
            n, noise = (
                sum_by(at, one[part], (stop - start) * self.n_cells).reshape(-1, self.n_cells)
                for one in (self.n_units, self.noise)
            )
            yield slice(start, stop), n, noise


@dataclass(frozen=True)
class CellStatistics:
    """What is known of A arms' M cells, one matrix an arm: statistics, and pairs of cells."""

    apart: Floats
    """The statistics less the sums of debiased outcomes, M − AᵀR, shape [A, M]."""
    variance: Floats
    """Of the noise in each sum, shape [A, M]."""
    fourth: Floats
    """Fourth cumulant of that noise, shape [A, M]."""
    n_units: Floats
    """Units in two cells together, in one on the diagonal; shape [A, M, M]."""
    noise: Floats
    """Σ û over them, shape [A, M, M]."""
    sizes: tuple[int, ...]
    """How many cells each margin has."""


@dataclass(frozen=True)
class PoolStatistics:
    """What margins need of the (pool, arm)s' own statistics; shape [P] each."""

    arm: Ints
    n_units: Floats
    weight: Floats
    """w = v n/(v n + D), 0 where nothing is published; see :mod:`..response.pool_statistics`."""
    known: Floats
    """Noise variance of the statistic less the mean of debiased outcomes, V̂_RR + V_stat."""
    shift: Floats
    """w (M − μ̂)."""
    fourth: Floats
    """Fourth cumulant of the statistic's noise."""

    @classmethod
    def of(cls, pools: Pools, whole: PoolMeans, arm: Ints) -> Self:
        """Return those of an outcome's pools."""
        statistic, weight = pools.of_mean, pools.of_mean.weight
        apart, known = statistic.value - whole.mean, statistic.variance + whole.noise
        apart, known, fourth = (
            np.where(weight > 0, one, 0.0) for one in (apart, known, statistic.fourth)
        )
        return cls(arm, np.maximum(whole.n_units, 1.0), weight, known, weight * apart, fourth)


@dataclass(frozen=True)
class Margins:
    """What calibration by the margins' sums of an outcome takes; A arms, M cells, P (pool, arm)s.

    With r = w/N of each pool, n_p and U_p the units and the noise of its cells, N_MM and U_MM those
    of pairs of cells:

    S = v N_MM + D − v Σ_p r n_p n_pᵀ,
    B = U_MM + D + Σ_p [w² (V_p + V_stat) n_p n_pᵀ − r (n_p U_pᵀ + U_p n_pᵀ)].
    """

    unit_noise: float
    """v, planned by the declared guess."""
    inverse: Floats
    """S⁻¹, shape [A, M, M]."""
    spread: Floats
    """B, the covariance of the noise in ``gap``, shape [A, M, M]."""
    gap: Floats
    """The statistics less the sums of the units as pools' statistics calibrate them; [A, M]."""
    fourth: Floats
    """Fourth cumulant of the statistics' noise, shape [A, M]."""
    pools: PoolStatistics
    by_pool: Crossing
    """The rows of pools, as far as their statistics have a weight."""
    sizes: tuple[int, ...]
    """How many cells each margin has."""

    @classmethod
    def of(
        cls, unit_noise: float, cells: CellStatistics, pools: PoolStatistics, by_pool: Crossing
    ) -> "Margins":
        """Reconcile the cells' statistics with the pools'."""
        diagonal = np.arange(cells.apart.shape[1])
        system, spread, gap = unit_noise * cells.n_units, cells.noise.copy(), cells.apart.copy()
        for matrix in (system, spread):
            matrix[:, diagonal, diagonal] += cells.variance
        ratio, square = pools.weight / pools.n_units, pools.weight**2 * pools.known
        for rows, n, noise in by_pool.blocks():
            for arm in np.unique(pools.arm[rows]):
                chosen = np.flatnonzero((pools.arm[rows] == arm) & (ratio[rows] > 0))
                units, at = n[chosen], rows.start + chosen
                cross = (units * ratio[at, np.newaxis]).T
                system[arm] -= unit_noise * cross @ units
                both = cross @ noise[chosen]
                spread[arm] += (units * square[at, np.newaxis]).T @ units - both - both.T
                gap[arm] -= pools.shift[at] @ units
        inverse = np.linalg.inv(system).astype(np.float64, copy=False)
        return cls(unit_noise, inverse, spread, gap, cells.fourth, pools, by_pool, cells.sizes)

    @property
    def shifts(self) -> Floats:
        """What calibrated outcomes of a cell's units have added for it, v u_m; shape [A, M]."""
        shifts: Floats = self.unit_noise * np.einsum("amk,ak->am", self.inverse, self.gap)
        return shifts

    @property
    def pool_shifts(self) -> Floats:
        """What they have added for their (pool, arm): w (M − μ̂) − r Σ_m n_pm v u_m; shape [P]."""
        pools, of_cells = self.pools, self.shifts
        shift = pools.shift.copy()
        for rows, n, _ in self.by_pool.blocks():
            ratio = pools.weight[rows] / pools.n_units[rows]
            shift[rows] -= ratio * np.einsum("pm,pm->p", n, of_cells[pools.arm[rows]])
        return shift


@dataclass(frozen=True)
class CrossedMargins:
    """Margins, and how slices cross with their cells."""

    margins: Margins
    crossed: Crossing

    @property
    def pool_shifts(self) -> Floats:
        """What calibrated outcomes have added for their (pool, arm)."""
        return self.margins.pool_shifts

    def calibrate(
        self,
        plain: Sums,
        rows: Ints,
        target: Ints,
        share: Floats,
        slices: Slices,
        debiased: Debiased,
    ) -> Sums:
        """Calibrate sums by the margins that pools' statistics have calibrated already.

        With a = t/n of a slice's units, h = Σ_c a n_cm, H = Σ_c a U_cm, and of each pool
        T_p = Σ t_c and g_p = Σ t_c n_c V_c over the target's slices,

            c = v (h − Σ_p r T_p n_p),  λ = S⁻¹ c,  value + λᵀ gap,
            b = H − Σ_p r g_p n_p + Σ_p w² (V_p + V_stat) T_p n_p − Σ_p r T_p U_p,
            V̂ − 2 λᵀb + λᵀBλ,  κ₄ = Σ_p [w (T_p − n_pᵀλ)]⁴ κ₄(M_p) + Σ_m λ⁴ κ₄(z_m).

        ``plain`` is what :func:`~estimators.strata.evidence.calibrate` gives of the same ``target``
        and ``share``, shape [R] each, of an arm's ``slices``; ``rows`` are those of the crossing.
        """
        margins, arm = self.margins, int(slices.arm[0])
        n_targets, n_cells = len(plain.value), margins.gap.shape[1]
        place = np.full(self.crossed.n_rows, -1)
        place[rows] = np.arange(len(rows))
        crossed = self.crossed.gathered(place, len(rows))
        of_row = (share / slices.n_units)[crossed.row]
        key = target[crossed.row] * n_cells + crossed.cell
        change, common = (
            sum_by(key, of_row * one, n_targets * n_cells).reshape(n_targets, n_cells)
            for one in (margins.unit_noise * crossed.n_units, crossed.noise)
        )
        pools = margins.pools
        weight = np.where(pools.arm == arm, pools.weight, 0.0)
        ratio, square = weight / pools.n_units, weight**2 * pools.known

        def in_block(block: slice, of_slices: Floats) -> Floats:
            here = np.flatnonzero((slices.pool >= block.start) & (slices.pool < block.stop))
            size = block.stop - block.start
            at = target[here] * size + slices.pool[here] - block.start
            return sum_by(at, of_slices[here], n_targets * size).reshape(n_targets, size)

        for block, n, noise in margins.by_pool.blocks(n_targets):
            if weight[block].any():
                whole = in_block(block, share)
                shared = in_block(block, share * slices.n_units * debiased.noise)
                part = whole * ratio[block]
                change -= margins.unit_noise * part @ n
                common += (whole * square[block] - shared * ratio[block]) @ n - part @ noise
        factor = change @ margins.inverse[arm]
        fourth = factor**4 @ margins.fourth[arm]
        for block, n, _ in margins.by_pool.blocks(n_targets):
            if weight[block].any():
                of_pools = weight[block] * (in_block(block, share) - factor @ n.T)
                fourth += of_pools**4 @ pools.fourth[block]
        quadratic = np.sum(factor * (factor @ margins.spread[arm] - 2.0 * common), axis=1)
        value = plain.value + factor @ margins.gap[arm]
        return Sums(value, np.maximum(plain.noise + quadratic, 0.0), fourth)


@dataclass(frozen=True)
class CellSizes:
    """Public sizes of one arm, from which it is forecast what margins bring; P pools, M cells."""

    by_pool: Crossing
    pairs: Floats
    """Units in two cells together, shape [M, M]."""
    margin: Ints
    """The margin of each cell, shape [M]."""

    @classmethod
    def of_units(
        cls, pool: Integers, codes: Sequence[Integers], sizes: Sequence[int], n_pools: int
    ) -> Self:
        """Count the units of an arm, given by their pools and the cells of every margin."""
        starts = np.cumsum([0, *sizes])
        pairs = np.zeros((starts[-1], starts[-1]))
        places = [
            (code, size, start) for code, size, start in zip(codes, sizes, starts, strict=False)
        ]
        for code, size, start in places:
            for other, n_others, first in places:
                keys = code.astype(np.int64) * n_others + other
                found = np.bincount(keys, minlength=size * n_others).reshape(size, n_others)
                pairs[start : start + size, first : first + n_others] = found
        by_pool = Crossing.of_units(pool, codes, sizes, n_pools)
        return cls(by_pool, pairs, np.repeat(np.arange(len(sizes)), sizes))

    def forecast(self, unit_noise: float, pool_noise: Floats, cell_noise: Floats) -> "Forecast":
        """Forecast noise variances of means where every unit's noise is as planned.

        ``pool_noise`` and ``cell_noise`` are those of the statistics' sums, shapes [P] and [M],
        infinite for a pool without a statistic.
        """
        n = sum_by(self.by_pool.row, self.by_pool.n_units, len(pool_noise))
        n /= max(int(self.margin.max(initial=0)) + 1, 1)
        ratio = unit_noise / (unit_noise * n + pool_noise)
        system = unit_noise * self.pairs
        for rows, units, _ in self.by_pool.blocks():
            system -= unit_noise * (units * ratio[rows, np.newaxis]).T @ units
        system[np.diag_indices_from(system)] += cell_noise
        return Forecast(self, unit_noise, cell_noise, system, n, ratio)


@dataclass(frozen=True)
class Forecast:
    """Noise variances of an arm's means, from public sizes.

    Of sums of cells they are D − D S⁻¹ D. An effect's is the sum of both arms'.
    """

    sizes: CellSizes
    unit_noise: float
    cell_noise: Floats
    system: Floats
    """S of :class:`Margins`, shape [M, M]."""
    pool_units: Floats
    ratio: Floats
    """r, shape [P]."""

    @cached_property
    def _of_sums(self) -> Floats:
        noise = self.cell_noise
        covariance: Floats = (
            np.diag(noise) - noise[:, np.newaxis] * np.linalg.inv(self.system) * noise
        )
        return covariance

    @property
    def cells(self) -> Floats:
        """Of every declared cell, shape [M]."""
        found: Floats = np.diag(self._of_sums) / np.diag(self.sizes.pairs) ** 2
        return found

    @property
    def everybody(self) -> float:
        """Of the whole arm: all cells of any one margin together."""
        of_one = self.sizes.margin == 0
        n = self.sizes.pairs[of_one, of_one].sum()
        return float(self._of_sums[np.ix_(of_one, of_one)].sum() / n**2)

    def part(self, share: float) -> float:
        """Of a random part of everybody, ``share`` of them, that nobody has declared."""
        n = self.pool_units.sum()
        return self.everybody + self.unit_noise * (1.0 / share - 1.0) / float(n)

    def conjunction(self, cell: int, other: int) -> float:
        """Of the units in two cells of different margins, by these margins and the pools alone.

        So it is at most as forecast, but that they are taken to lie in pools as both cells do.
        Infinite where there are none.
        """
        sizes, n = self.sizes, self.sizes.pairs[cell, other]
        if n == 0:
            return float("inf")
        both = np.isin(sizes.margin, sizes.margin[[cell, other]])
        part = np.isin(np.arange(len(both)), (cell, other)).astype(np.float64)
        crossing, in_pools = sizes.by_pool, np.ones((2, len(self.pool_units)))
        for at, one in enumerate((cell, other)):
            of_cell = crossing.cell == one
            rows, found = crossing.row[of_cell], crossing.n_units[of_cell]
            in_pools[at] = sum_by(rows, found, len(self.pool_units))
        likely = in_pools[0] * in_pools[1] / np.maximum(self.pool_units, 1.0)
        of_pool = likely / max(likely.sum(), 1e-300)
        known = (self.ratio * of_pool)[crossing.row] * crossing.n_units
        change = self.unit_noise * (part - sum_by(crossing.cell, known, len(part)))
        plain = self.unit_noise * (1.0 / n - float(self.ratio @ of_pool**2))
        system = self.system[np.ix_(both, both)]
        return float(plain - change[both] @ np.linalg.solve(system, change[both]))
