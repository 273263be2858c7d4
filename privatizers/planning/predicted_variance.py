"""The variance of an effect's estimate, predicted from public facts before any outcome is read.

For the calibrated estimate (``combined``) of one treatment arm against control:

V_f = [Σ_s b_s² (V_s + V_round)(1/n_s1 + 1/n_s0) + Σ_c t_c² v_c/n_c] / f
      − Σ_p T_p² [2 w_p v_p/N_p − w_p² (v_p/N_p + V_stat/N_p²)]

where f is the share of units that a segment holds (1 for everybody), s are strata with the weights
b_s, c their clusters' arms with t_c = b_s n_c/n_s, p the pools' arms, N_p units and T_p = Σ t_c;
where clusters count by an arm's own units (:mod:`estimators.strata.shares`) k_s stands for b_s,
(1 − ρ) V_s for V_s there, and (Σ s b)² ρ V_s/n_a of each arm is added: what clusters differ by;
V_s is the variance of outcomes by the declared guess, V_round the variance that rounding onto the
grid adds, v the noise of randomised response for one unit, V_stat the noise variance of the pool's
statistic, summed over the pool, and w_p the weight that the release gives it.

This is Neyman's bound for outcomes that are alike in every stratum: differences between clusters
and effects of the treatment are not known beforehand. Segments are assumed to hold the share f of
every stratum. Where this leaves an arm of a cluster with few units, some clusters cannot be
compared within the segment: then weights are averages over segments that anybody is in with the
probability f, with 1 in place of f in the formula (:mod:`privatizers.planning.thinned_sizes`).
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from estimators.arm_effects import degrees
from estimators.intervals import Law, excess_kurtosis
from estimators.special import ndtr
from estimators.strata.contrast_strata import ContrastStrata, contrast_strata
from estimators.strata.evidence import Slices, sum_by
from estimators.strata.shares import LIKELY_BETWEEN, Shares, Unevenness, unevenness
from privatizers.domain.strata import Strata
from schemas.arrays import Bools, Floats, Ints


@dataclass(frozen=True)
class SquareVariance:
    """Variances of squares about the grid's mean, from which the sampling variance is estimated."""

    response: Floats
    """Noise of randomised response for one unit, shape [J]."""
    declared: Floats
    """The same by the declared guess, from which weights are computed, shape [J]."""
    statistic: Floats
    """Noise of the statistic's sum over a pool or an arm; infinite without statistic. [J]."""
    by_arm: bool
    """Whether the statistic is of whole arms."""
    widest: float
    """(y_K − y_1)²/4, the greatest variance that outcomes can have."""


@dataclass(frozen=True)
class UnitVariance:
    """Variances for one unit under J designs, in the squared unit of the outcomes."""

    sampling: float
    """V_s + V_round."""
    response: Floats
    """v, shape [J, 1], or [J, U] where it depends on the size of the pool."""
    declared: Floats
    """The v from which weights are computed, shape [J]."""
    statistic: Floats
    """V_stat, shape [J]; infinite where nothing is published."""
    fourth: Floats
    """Fourth cumulant of the noise of the statistic, shape [J]; 0 where nothing is published."""
    square: SquareVariance
    spread: float
    """Variance of outcomes on the grid by the declared guess, from which weights are computed."""


@dataclass(frozen=True)
class ContrastWeights:
    """The weights of variances in the contrast of one arm with control, from sizes of strata.

    Those at the s of J designs (:meth:`at`) have one axis more, the first, shape [J, …].
    """

    sampling: float | Floats
    """Σ_s b_s² (1/n_s1 + 1/n_s0)."""
    pool_units: Floats
    """The different sizes N of the pools' arms; shape [U]."""
    noise: Floats
    """Σ t_c²/n_c over the clusters of pools' arms of that size, shape [U]."""
    pool_shares: Floats
    """Σ T_p² over the pools' arms of that size; shape [U]."""
    pool_fourths: Floats
    """Σ T_p⁴ likewise."""
    scatter: float | Floats
    """Σ_s b_s⁴/(n_s² (n_s − 1)) over both arms."""
    square_noise: float | Floats
    """Σ_s k_s²/n_s over both arms, k_s = b_s²/(n_s − 1)."""
    square_pools: Floats
    """Σ (Σ_s k_s)² over the pools' arms of a size, each k_s times its part in the pool; [U]."""
    arm_units: Floats
    """Units of the arm and of control, shape [2]."""
    square_arms: Floats
    """(Σ_s k_s)² of the arm and of control, shape [2]."""
    square_sum: float | Floats
    """Σ_s k_s over both arms."""
    coverage: float = 1.0
    """The share of units, all arms counted, that are in the strata."""
    by_own_sizes: "WeightsByOwnSizes | None" = None
    """Where clusters count by an arm's own units: how far, and the weights."""

    def at(self, unit: UnitVariance) -> "ContrastWeights":
        """Return the weights at the s of every design of ``unit``."""
        if self.by_own_sizes is None:
            return self
        own = self.by_own_sizes
        noise = np.full_like(unit.declared, np.inf)
        np.divide(unit.declared, unit.spread, out=noise, where=unit.spread > 0)
        basis = _lagrange(own.sizes.own_sizes(noise))
        found: dict[str, Any] = {
            name: np.tensordot(basis, np.array([getattr(one, name) for one in own.nodes]), 1)
            for name in _POLYNOMIALS
        }
        return replace(self, by_own_sizes=None, **found)

    def variance(self, unit: UnitVariance, share: float = 1.0) -> Floats:
        """Return V_f for every design of ``unit``, shape [J]; f is ``share``, in (0, 1]."""
        found: Floats = self.sampling * unit.sampling / share + self._noise(unit, share)
        return found

    def _noise(self, unit: UnitVariance, share: float) -> Floats:
        """Return the variance that privacy adds, shape [J]."""
        gain = _gain(unit.declared, unit.response, unit.statistic, self.pool_units)
        response: Floats = np.sum(self.noise * unit.response, axis=1) / share
        found: Floats = response - np.sum(gain * self.pool_shares, axis=1)
        return found

    def half_widths(self, unit: UnitVariance, share: float = 1.0) -> "HalfWidths":
        """Return halves of the 95 % intervals of every design.

        E V̂ = E min(max(X, 0), W) + the variance that privacy adds. X is normal about Σ b² V_s/n
        with the variance V_A, the noise of squares; W = R²/4 Σ b²/(n − 1). Where squares are hardly
        known, X ends up at 0 or at W. The law has the degrees of freedom that a release has on
        average, (E V̂)²/scatter, and the kurtosis of its noise.
        """
        sampling, unknown = self.sampling * unit.sampling / share, self.uncertainty(unit, share)
        most = unit.square.widest * self.square_sum / share
        variance = _clipped_mean(sampling, np.sqrt(unknown), most) + self._noise(unit, share)
        scatter = self.scatter * unit.sampling**2 / share**3 + unknown / 2.0
        weight = _weights(unit.declared, unit.statistic, self.pool_units)
        fourths = np.sum((weight / self.pool_units) ** 4 * self.pool_fourths, axis=1)
        fourth = fourths * unit.fourth
        known = scatter / (1.0 + 2.0 * scatter / variance**2)  # nothing is estimated here
        return HalfWidths(variance, degrees(variance, known), excess_kurtosis(variance, fourth))

    def uncertainty(self, unit: UnitVariance, share: float) -> Floats:
        """Return V_A of Σ_s k_s Â_s, [J]: Σ k² v/n − Σ_p T_p² [2 w v/N − w² (v/N + V_stat/N²)]."""
        square, n, shares = unit.square, self.pool_units, self.square_pools
        if square.by_arm:
            n, shares = self.arm_units, self.square_arms
        gain = _gain(square.declared, square.response[:, np.newaxis], square.statistic, n)
        taken = np.sum(gain * shares, axis=1)
        noise = self.square_noise * square.response / share**3 - taken / share**2
        found: Floats = np.maximum(noise, 0.0)
        return found


LEAST_QUANTILE = 1.9599
"""No law of an error has a lower quantile: a normal one has 1.95996."""


@dataclass(frozen=True)
class HalfWidths:
    """x_{0.95} √E V̂ of J designs, half of a 95 % interval, worked out for those asked for alone.

    Each quantile takes a microsecond or two, and a planner that tries 300 designs wants few.
    """

    variance: Floats
    """E V̂, shape [J]."""
    degrees: Floats
    kurtosis: Floats
    """Of the law of the error, whose quantile x is."""

    @property
    def least(self) -> Floats:
        """What no half width is below, shape [J]."""
        found: Floats = LEAST_QUANTILE * np.sqrt(self.variance)
        return found

    def at(self, designs: Ints) -> Floats:
        """Return those of some designs, by their positions."""
        law = Law(self.degrees[designs], self.kurtosis[designs])
        found: Floats = law.quantile(0.95) * np.sqrt(self.variance[designs])
        return found


@dataclass(frozen=True)
class WeightsByOwnSizes:
    """The weights at a few s; what they are made of are polynomials in s, of degree 4 at most."""

    sizes: Unevenness
    nodes: tuple[ContrastWeights, ...]
    """At each of :data:`_NODES`."""


_NODES = (0.2, 0.4, 0.6, 0.8, 1.0)
_POLYNOMIALS = (
    *("sampling", "noise", "pool_shares", "pool_fourths", "scatter"),
    *("square_noise", "square_pools", "square_arms", "square_sum"),
)


def _lagrange(at: Floats) -> Floats:
    """Return what the value at each of the nodes counts for at each s, shape [J, nodes]."""
    nodes = np.array(_NODES)
    basis = np.ones((len(at), len(nodes)))
    for nth, node in enumerate(nodes):
        others = np.delete(nodes, nth)
        basis[:, nth] = np.prod((at[:, np.newaxis] - others) / (node - others), axis=1)
    return basis


def _weights(declared: Floats, statistic: Floats, n_units: Floats) -> Floats:
    """Return w = v N/(v N + V_stat), shape [J, U]; 0 without a statistic or noise."""
    response = declared[:, np.newaxis] * n_units
    total = response + statistic[:, np.newaxis]
    used = np.isfinite(total) & (total > 0)
    return np.divide(response, total, out=np.zeros_like(response), where=used)


def _gain(declared: Floats, response: Floats, statistic: Floats, n_units: Floats) -> Floats:
    """Return 2 w v/N − w² (v/N + V_stat/N²), v being ``response``; shape [J, U]."""
    weight = _weights(declared, statistic, n_units)
    pool_noise = response / n_units
    of_statistic = np.where(weight > 0.0, statistic[:, np.newaxis], 0.0) / n_units**2
    return 2.0 * weight * pool_noise - weight**2 * (pool_noise + of_statistic)


def _clipped_mean(mean: float | Floats, spread: Floats, most: float | Floats) -> Floats:
    """Return E min(max(X, 0), ``most``) of a normal X; shape [J]."""
    sharp = np.maximum(spread, 1e-12 * most)

    def above(least: float | Floats) -> Floats:
        z = (mean - least) / sharp
        density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
        excess: Floats = (mean - least) * ndtr(z) + sharp * density
        return excess

    return above(0.0) - above(most)


def contrast_weights(
    strata: Strata,
    sizes: Ints | None = None,
    together: Bools | None = None,
    *,
    same_shares: bool,
) -> list[ContrastWeights | None]:
    """Return the weights for every treatment arm against control, the first arm of ``strata``.

    None for an arm that cannot be compared with control in any stratum. With ``sizes`` of possible
    segments, shape [D, clusters, arms], the weights are averages over these, and hold the share
    already: it counts as 1 in the methods of :class:`ContrastWeights`. None then for an arm that
    can be compared with control in fewer than half of the segments. ``together`` are the clusters
    that count by an arm's own units, shape [clusters]; None for none.
    """
    uneven = Unevenness(0.0, 0.0)
    if together is not None:
        uneven = unevenness(strata.sizes, 0, together)
    sizes = strata.sizes[np.newaxis] if sizes is None else sizes
    draw, cluster, arm = np.nonzero(sizes)
    n_cells = len(strata.cell_sizes)
    pool = strata.cells(cluster, arm) + draw * n_cells
    n = sizes[draw, cluster, arm].astype(np.float64)
    zero = np.zeros_like(n)
    own = None if together is None or not uneven.apart else together[cluster].astype(np.float64)
    slices = Slices(draw, cluster, arm, pool, n, zero, zero, zero, own_sizes=own)
    everyone = sizes.sum(axis=(1, 2)).astype(np.float64)
    return [
        _weights_of_arm(
            slices, treatment, strata.cell_sizes, everyone, uneven, same_shares=same_shares
        )
        for treatment in range(1, strata.sizes.shape[1])
    ]


def _weights_of_arm(
    slices: Slices,
    arm: int,
    cell_sizes: Ints,
    everyone: Floats,
    uneven: Unevenness,
    *,
    same_shares: bool,
) -> ContrastWeights | None:
    """Return the average weights over the groups of ``slices``, which hold ``everyone``, [D]."""
    strata = contrast_strata(slices, arm, 0, same_shares=same_shares)
    n_used = len(np.unique(strata.group))
    if n_used == 0 or n_used < len(everyone) / 2:
        return None
    if not strata.own_sizes.any():
        return _weights_at(slices, strata, cell_sizes, everyone)
    nodes = tuple(
        _weights_at(slices, replace(strata, own_sizes=s * strata.own_sizes), cell_sizes, everyone)
        for s in _NODES
    )
    return replace(nodes[0], by_own_sizes=WeightsByOwnSizes(uneven, nodes))


def _weights_at(
    slices: Slices, strata: ContrastStrata, cell_sizes: Ints, everyone: Floats
) -> ContrastWeights:
    """Return those at the s that the strata have."""
    total = sum_by(strata.group, strata.weight, len(everyone))
    n_used = int((total > 0).sum())
    within_clusters = np.where(strata.own_sizes > 0, 1.0 - LIKELY_BETWEEN, 1.0)
    n_cells, sampling, scatter, square_noise = len(cell_sizes), 0.0, 0.0, 0.0
    size = n_cells * len(everyone)
    pool_share, noise, square_share = np.zeros(size), np.zeros(size), np.zeros(size)
    arm_units, arm_sums = [], []
    for side in (strata.treated, strata.control):
        n = slices.n_units[side.rows]
        shares = Shares.of(strata, side, slices.n_units, np.where(total > 0, total, 1.0))
        share = shares.value
        stratum_units = sum_by(side.stratum, n, len(share))
        within = n / stratum_units[side.stratum]
        part = share[side.stratum] * within
        factor = share**2 / (stratum_units - 1.0)
        sampling += float(np.sum(within_clusters * share**2 / stratum_units))
        sampling += LIKELY_BETWEEN * float(np.sum(shares.moved**2 / shares.n_units))
        scatter += float(np.sum(share**4 / stratum_units**2 / (stratum_units - 1.0)))
        square_noise += float(np.sum(factor**2 / stratum_units))
        pool_share += sum_by(slices.pool[side.rows], part, size)
        noise += sum_by(slices.pool[side.rows], part**2 / n, size)
        square_share += sum_by(slices.pool[side.rows], factor[side.stratum] * within, size)
        arm_units.append(float(n.sum()) / n_used)
        arm_sums.append(sum_by(strata.group, factor, len(everyone)))
    units, size_of = np.unique(cell_sizes.astype(np.float64), return_inverse=True)
    known = everyone > 0

    def by_size(values: Floats) -> Floats:
        """Average values of the groups' cells over groups, and add them up by size of the cell."""
        of_cells = values.reshape(len(everyone), n_cells).sum(axis=0) / n_used
        return sum_by(size_of, of_cells, len(units))

    return ContrastWeights(
        sampling=sampling / n_used,
        pool_units=units,
        noise=by_size(noise),
        pool_shares=by_size(pool_share**2),
        pool_fourths=by_size(pool_share**4),
        scatter=scatter / n_used,
        square_noise=square_noise / n_used,
        square_pools=by_size(square_share**2),
        arm_units=np.array(arm_units),
        square_arms=np.array([float(np.sum(one**2)) / n_used for one in arm_sums]),
        square_sum=sum(float(np.sum(one)) for one in arm_sums) / n_used,
        coverage=float(np.mean(total[known] / everyone[known])),
    )
