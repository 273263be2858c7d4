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
from numpy.typing import NDArray

from estimators.comparable import comparable
from estimators.slices import Slices, sum_by
from privatizers.strata import Strata

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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
    doubt: float
    """Σ_s b_s⁴ (1/n_s1³ + 1/n_s0³)."""

    def variance(self, unit: UnitVariance, share: float = 1.0) -> Floats:
        """Return V_f for every design of ``unit``, shape [J]; f is ``share``, in (0, 1]."""
        n, statistic = self.pool_units, unit.statistic[:, np.newaxis]
        known = unit.declared[:, np.newaxis] * n
        weight = np.where(np.isinf(statistic), 0.0, known / (known + statistic))
        of_pool = unit.response / n
        of_statistic = np.where(weight > 0.0, statistic, 0.0) / n**2
        gain = 2.0 * weight * of_pool - weight**2 * (of_pool + of_statistic)
        own = self.sampling * unit.sampling + np.sum(self.noise * unit.response, axis=1)
        variance: Floats = own / share - gain @ self.pool_shares
        return variance


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
    found = comparable(slices, arm, 0, same_shares=same_shares)
    if len(found.weight) == 0:
        return None
    share = found.weight / found.weight.sum()
    n_cells, sampling, doubt = len(cell_sizes), 0.0, 0.0
    of_pool, noise = np.zeros(n_cells), np.zeros(n_cells)
    for side in (found.treated, found.control):
        n = slices.n_units[side.rows]
        of_stratum = sum_by(side.stratum, n, len(share))
        part = share[side.stratum] * n / of_stratum[side.stratum]
        sampling += float(np.sum(share**2 / of_stratum))
        doubt += float(np.sum(share**4 / of_stratum**3))
        of_pool += sum_by(slices.pool[side.rows], part, n_cells)
        noise += sum_by(slices.pool[side.rows], part**2 / n, n_cells)
    units, which = np.unique(cell_sizes.astype(np.float64), return_inverse=True)
    shares = sum_by(which, of_pool**2, len(units))
    return Reach(sampling, units, sum_by(which, noise, len(units)), shares, doubt)
