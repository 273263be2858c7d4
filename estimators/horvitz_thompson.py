"""The effect of one treatment arm from noisy differences of pools, where nothing else is published.

The baseline of Javanmard, Mirrokni and Pouget-Abadie (2025), Algorithm 3, with the sensitivity that
holds. The interval is ours. About the variance of outcomes the release tells each arm's sum of
squares about the middle of the grid, with noise, or nothing. The interval takes the greatest
variance that this, or the grid, allows, which is more than the true one. So it covers the truth
more often than it says, the more so the further outcomes lie from the middle, or the more clusters
differ.
"""

from collections.abc import Sequence

import numpy as np

from estimators.arm_effects import Contrasts, Estimate, blank, degrees, to_estimates
from estimators.response.pool_statistics import discrete_laplace_cumulants
from estimators.strata.contrast_strata import contrast_strata
from estimators.strata.evidence import Evidence, Slices, Statistic
from schemas.arrays import Floats, Ints


def difference_effects(
    evidence: Evidence, arms: Sequence[str], control: str, *, same_shares: bool, level: float = 0.95
) -> list[Estimate]:
    """Estimate the effect of the one treatment arm of ``arms`` on everybody; one estimate.

    Its numbers are None where no pool has two units of both arms. ``level`` is the confidence
    level.
    """
    reference = list(arms).index(control)
    (treatment,) = (position for position in range(len(arms)) if position != reference)
    contrast = difference_contrasts(evidence, treatment, reference, same_shares=same_shares)
    compared = [arms[treatment]]
    return to_estimates(evidence, [contrast], compared, control, [None], "horvitz_thompson", level)


def difference_contrasts(
    evidence: Evidence, arm: int, control: int, *, same_shares: bool
) -> Contrasts:
    """Return τ̂ = Σ_p b_p D̃_p over the pools with two units of both arms; shape [1].

    V̂ = Σ_a V̂_a + Σ_p b_p² V_D,p,   V̂_a = min(Σ_p k_pa n_pa R²/4, max_p k_pa B̃_a),

    where b_p is the pool's share of the units in those pools, k_pa = b_p²/(n_pa (n_pa − 1)), D̃ the
    published difference with the noise variance V_D, R the width of the grid and B̃_a the published
    sum of (y − centre)² over the arm, if there is one. Neyman's variance, Σ_p k_pa Σ_i (y_i −
    ȳ_pa)², is at most max k_pa Σ_i (y_i − centre)² whatever the means are; and R²/4 is the greatest
    mean square about a mean that outcomes on the grid can have. Noise may bring B̃_a below 0; then
    it counts as 0. Pools of several clusters count only with ``same_shares``. Degrees of freedom
    are as in :func:`estimators.arm_effects.contrasts`. The means of the arms are not known (NaN),
    so no relative effect is given. Raises ValueError where no differences are published.
    """
    statistic = evidence.pools.of_difference
    if statistic is None:
        raise ValueError("no differences are published")
    pools = evidence.by_pool(same_shares=same_shares).slices
    strata = contrast_strata(pools, arm, control, same_shares=False)
    n_units = np.array([strata.weight.sum()])
    share = strata.weight / n_units
    at = strata.treated.rows[np.argsort(strata.treated.stratum)]
    difference = pools.pool[at]
    sampling = scatter = 0.0
    for side in (strata.treated, strata.control):
        rows = side.rows[np.argsort(side.stratum)]
        arm_sampling, arm_scatter = _sampling(evidence, rows, pools, share)
        sampling, scatter = sampling + arm_sampling, scatter + arm_scatter
    noise = np.sum(share**2 * statistic.variance[difference], keepdims=True)
    variance = sampling + noise
    fourth = np.sum(share**4 * statistic.fourth[difference], keepdims=True)
    estimate = np.sum(share * statistic.value[difference], keepdims=True)
    unknown = np.full(1, np.nan)
    contrast = Contrasts(
        estimate=estimate,
        variance=variance,
        noise_variance=noise,
        degrees_of_freedom=degrees(variance, np.full(1, scatter)),
        n_units=n_units,
        treated_mean=unknown,
        treated_variance=unknown,
        control_mean=unknown,
        control_variance=unknown,
        treated_fourth=fourth,
        control_fourth=np.zeros(1),
    )
    return blank(contrast, n_units == 0)


def _sampling(evidence: Evidence, rows: Ints, pools: Slices, share: Floats) -> tuple[float, float]:
    """Return V̂_a of one arm and half its variance; ``rows`` are its ``pools``, ``share`` is b."""
    n = pools.n_units[rows]
    greatest = ((evidence.highest - evidence.lowest) / 2.0) ** 2
    factor = share**2 / (n - 1.0)
    most = greatest * float(factor.sum())
    if evidence.pools.square_cell is None or len(rows) == 0:
        return most, float(np.sum((factor * greatest) ** 2 / (n + 1.0)))
    cell = evidence.pools.square_cell[pools.pool[rows]]
    whole, square = evidence.whole_square.n_units[cell[0]], evidence.pools.of_square
    scale = float((factor / n).max()) * whole
    sampling = min(max(scale * float(square.value[cell[0]]), 0.0), most)
    average = sampling / float(factor.sum())
    scatter = float(np.sum((factor * average) ** 2 / (n + 1.0)))
    return sampling, scatter + scale**2 * float(square.variance[cell[0]]) / 2.0


def difference_statistic(
    value: Floats, treated: Ints, control: Ints, noise_scale: float, grid_step: float
) -> Statistic:
    """Return published differences with the cumulants of their noise; shape [P] each.

    Z h/lcm(n_1, n_0), Z discrete Laplace of scale s = σ max(n_1, n_0)/gcd(n_1, n_0). h is
    ``grid_step``, σ ``noise_scale``, in steps. ``value`` is NaN where none is published.
    """
    scale = noise_scale * (np.maximum(treated, control) // np.gcd(treated, control))
    step = grid_step / np.lcm(treated, control)
    second, fourth = discrete_laplace_cumulants(scale)
    known = ~np.isnan(value)
    return Statistic(
        value,
        np.where(known, step**2 * second, np.nan),
        np.where(known, step**4 * fourth, np.nan),
        np.zeros(len(value)),
    )
