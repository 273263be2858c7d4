"""What a release would tell of effects, predicted from public facts before any outcome is read.

For the calibrated estimate (``combined``) of one treatment arm against control:

V_f = [Σ_s b_s² (V_s + V_round)(1/n_s1 + 1/n_s0) + Σ_c t_c² v_c/n_c] / f
      − Σ_p T_p² [2 w_p v_p/N_p − w_p² (v_p/N_p + V_stat/N_p²)]

where f is the share of units that a segment holds (1 for everybody), s are strata with the weights
b_s, c their clusters' arms with t_c = b_s n_c/n_s, p the pools' arms, N_p units and T_p = Σ t_c;
V_s is the variance of outcomes by the declared guess, V_round what rounding onto the grid adds, v
the noise of randomised response a unit, V_stat the noise variance of the pool's statistic, summed
over the pool, and w_p the weight that the release gives it.

Neyman's bound for outcomes alike in every stratum: what differs between clusters or follows from
the treatment is not known beforehand. Segments are taken to hold the share f of every stratum.
"""

from dataclasses import dataclass

import numpy as np

from estimators.contrast_strata import contrast_strata
from estimators.effects import degrees
from estimators.evidence import Slices, sum_by
from estimators.intervals import quantile
from privatizers.domain.strata import Strata
from schemas.arrays import Floats, Ints


@dataclass(frozen=True)
class SquareVariance:
    """The same of squares about the grid's mean, which the sampling variance is known from."""

    response: Floats
    """Noise of randomised response a unit, shape [J]."""
    declared: Floats
    """That by the declared guess, which weights are made from, shape [J]."""
    statistic: Floats
    """Of the statistic's sum over a pool, or over an arm; infinite where there is none. [J]."""
    by_arm: bool
    """Whether the statistic is of whole arms."""
    widest: float
    """(y_K − y_1)²/4: no outcomes vary by more."""


@dataclass(frozen=True)
class UnitVariance:
    """Variances a unit under J designs, in the squared unit of the outcomes."""

    sampling: float
    """V_s + V_round."""
    response: Floats
    """v, shape [J, 1], or [J, U] where it depends on the size of the pool."""
    declared: Floats
    """The v that weights are made from, shape [J]."""
    statistic: Floats
    """V_stat, shape [J]; infinite where nothing is published."""
    fourth: Floats
    """Fourth cumulant of the noise of the statistic, shape [J]; 0 where nothing is published."""
    square: SquareVariance


@dataclass(frozen=True)
class Reach:
    """What the sizes of strata make of variances a unit, for one arm against control."""

    sampling: float
    """Σ_s b_s² (1/n_s1 + 1/n_s0)."""
    pool_units: Floats
    """N of the pools' arms, each size once; shape [U]."""
    noise: Floats
    """Σ t_c²/n_c over the clusters of pools' arms of that size, shape [U]."""
    pool_shares: Floats
    """Σ T_p² over the pools' arms of that size; shape [U]."""
    pool_fourths: Floats
    """Σ T_p⁴ likewise."""
    doubt: float
    """Σ_s b_s⁴ (1/n_s1³ + 1/n_s0³)."""
    square_noise: float
    """Σ_s k_s²/n_s over both arms, k_s = b_s²/(n_s − 1)."""
    square_pools: Floats
    """Σ (Σ_s k_s)² over the pools' arms of a size, each k_s by its part in the pool; shape [U]."""
    arm_units: Floats
    """Units of the arm and of control, shape [2]."""
    square_arms: Floats
    """(Σ_s k_s)² of the arm and of control, shape [2]."""
    square_sum: float
    """Σ_s k_s over both arms."""

    def variance(self, unit: UnitVariance, share: float = 1.0) -> Floats:
        """Return V_f for every design of ``unit``, shape [J]; f is ``share``, in (0, 1]."""
        return self.sampling * unit.sampling / share + self._noise(unit, share)

    def _noise(self, unit: UnitVariance, share: float) -> Floats:
        """What privacy adds, shape [J]."""
        n, weight = self.pool_units, self._weight(unit)
        of_pool = unit.response / n
        statistic = np.where(weight > 0.0, unit.statistic[:, np.newaxis], 0.0) / n**2
        gain = 2.0 * weight * of_pool - weight**2 * (of_pool + statistic)
        found: Floats = np.sum(self.noise * unit.response, axis=1) / share - gain @ self.pool_shares
        return found

    def _weight(self, unit: UnitVariance) -> Floats:
        """The w of the pools' statistics, shape [J, U]."""
        return _weights(unit.declared, unit.statistic, self.pool_units)

    def half_width(self, unit: UnitVariance, share: float = 1.0) -> Floats:
        """Return t_{0.975}(df) √E V̂ for every design, shape [J]: half of a 95 % interval.

        E V̂ = E min(max(X, 0), W) + what privacy adds, X normal about Σ b² V_s/n with the variance
        V_A that the noise of squares has, W = R²/4 Σ b²/(n − 1): where squares are hardly known, X
        is brought to one end or the other. df as a release has them, with E V̂ in place of V̂.
        """
        own, unknown = self.sampling * unit.sampling / share, self.uncertainty(unit, share)
        most = unit.square.widest * self.square_sum / share
        found = _between(own, np.sqrt(unknown), most) + self._noise(unit, share)
        scatter = self.doubt * unit.sampling**2 / share**3 + unknown / 2.0
        fourth = (self._weight(unit) / self.pool_units) ** 4 @ self.pool_fourths * unit.fourth
        half: Floats = quantile(degrees(found, scatter, fourth), 0.95) * np.sqrt(found)
        return half

    def uncertainty(self, unit: UnitVariance, share: float) -> Floats:
        """V_A of Σ_s k_s Â_s, shape [J]: Σ k² v/n − Σ_p T_p² [2 w v/N − w² (v/N + V_stat/N²)]."""
        square, n, shares = unit.square, self.pool_units, self.square_pools
        if square.by_arm:
            n, shares = self.arm_units, self.square_arms
        weight = _weights(square.declared, square.statistic, n)
        of_pool = square.response[:, np.newaxis] / n
        statistic = np.where(weight > 0.0, square.statistic[:, np.newaxis], 0.0) / n**2
        gain = 2.0 * weight * of_pool - weight**2 * (of_pool + statistic)
        whole = self.square_noise * square.response / share**3 - gain @ shares / share**2
        found: Floats = np.maximum(whole, 0.0)
        return found


def _weights(declared: Floats, statistic: Floats, n_units: Floats) -> Floats:
    """Return w = v N/(v N + V_stat), shape [J, U]; 0 where nothing is published or noisy."""
    known = declared[:, np.newaxis] * n_units
    total = known + statistic[:, np.newaxis]
    used = np.isfinite(total) & (total > 0)
    return np.divide(known, total, out=np.zeros_like(known), where=used)


def _between(mean: float, spread: Floats, most: float) -> Floats:
    """E min(max(X, 0), ``most``) of a normal X; shape [J]."""
    from scipy.special import ndtr  # noqa: PLC0415 - takes a quarter of a second

    sharp = np.maximum(spread, 1e-12 * most)

    def above(least: float) -> Floats:
        z = (mean - least) / sharp
        found: Floats = (mean - least) * ndtr(z) + sharp * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
        return found

    return above(0.0) - above(most)


def reaches(strata: Strata, *, same_shares: bool) -> list[Reach | None]:
    """Return the reach of every treatment arm against control, the first arm of ``strata``.

    None for an arm that no stratum lets compare with control.
    """
    cluster, arm = np.nonzero(strata.sizes)
    pool = strata.cells(cluster, arm)
    n = strata.sizes[cluster, arm].astype(np.float64)
    zero = np.zeros_like(n)
    slices = Slices(np.zeros_like(cluster), cluster, arm, pool, n, zero, zero, zero)
    return [
        _reach(slices, treatment, strata.cell_sizes, same_shares=same_shares)
        for treatment in range(1, len(strata.arms))
    ]


def _reach(slices: Slices, arm: int, cell_sizes: Ints, *, same_shares: bool) -> Reach | None:
    found = contrast_strata(slices, arm, 0, same_shares=same_shares)
    if len(found.weight) == 0:
        return None
    share = found.weight / found.weight.sum()
    n_cells, sampling, doubt, square_noise = len(cell_sizes), 0.0, 0.0, 0.0
    of_pool, noise, of_square = np.zeros(n_cells), np.zeros(n_cells), np.zeros(n_cells)
    arm_units, arm_sums = [], []
    for side in (found.treated, found.control):
        n = slices.n_units[side.rows]
        of_stratum = sum_by(side.stratum, n, len(share))
        within = n / of_stratum[side.stratum]
        part = share[side.stratum] * within
        factor = share**2 / (of_stratum - 1.0)
        sampling += float(np.sum(share**2 / of_stratum))
        doubt += float(np.sum(share**4 / of_stratum**3))
        square_noise += float(np.sum(factor**2 / of_stratum))
        of_pool += sum_by(slices.pool[side.rows], part, n_cells)
        noise += sum_by(slices.pool[side.rows], part**2 / n, n_cells)
        of_square += sum_by(slices.pool[side.rows], factor[side.stratum] * within, n_cells)
        arm_units.append(float(n.sum()))
        arm_sums.append(float(factor.sum()))
    units, which = np.unique(cell_sizes.astype(np.float64), return_inverse=True)
    return Reach(
        sampling=sampling,
        pool_units=units,
        noise=sum_by(which, noise, len(units)),
        pool_shares=sum_by(which, of_pool**2, len(units)),
        pool_fourths=sum_by(which, of_pool**4, len(units)),
        doubt=doubt,
        square_noise=square_noise,
        square_pools=sum_by(which, of_square**2, len(units)),
        arm_units=np.array(arm_units),
        square_arms=np.array(arm_sums) ** 2,
        square_sum=sum(arm_sums),
    )
