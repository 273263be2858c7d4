"""The effect of one treatment arm from noisy differences of pools, where nothing else is published.

The baseline of Javanmard, Mirrokni and Pouget-Abadie (2025), Algorithm 3, with the sensitivity that
holds. What is ours: the interval. The release tells nothing of how much outcomes vary, so the
interval takes the most that the grid allows, which is more than they do: it covers the truth more
often than it says.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from estimators.comparable import comparable
from estimators.effects import Contrasts, Estimate, degrees, described
from estimators.slices import Evidence, Statistic

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def difference_effects(
    evidence: Evidence,
    arms: Sequence[str],
    control: str,
    *,
    same_shares: bool,
    level: float = 0.95,
) -> list[Estimate]:
    """Estimate the effect of the one treatment arm of ``arms`` on everybody; one estimate.

    Its numbers are None where no pool has two units of both arms. ``level`` is the confidence
    level.
    """
    reference = list(arms).index(control)
    (treatment,) = (position for position in range(len(arms)) if position != reference)
    found = difference_contrasts(evidence, treatment, reference, same_shares=same_shares)
    return described([found], [arms[treatment]], control, [None], "horvitz_thompson", level)


def difference_contrasts(
    evidence: Evidence, arm: int, control: int, *, same_shares: bool
) -> Contrasts:
    """Return τ̂ = Σ_p b_p D̃_p over the pools with two units of both arms; shape [1].

    V̂ = Σ_p b_p² [R²/4 (1/(n_p1 − 1) + 1/(n_p0 − 1)) + V_D,p],

    where b_p is the pool's share of the units in those pools, D̃ the published difference with the
    noise variance V_D, and R the width of the grid: R²/4 · n/(n − 1) is the greatest sample
    variance that n outcomes on it can have. Pools of several clusters count only with
    ``same_shares``. Degrees of freedom as in :func:`estimators.effects.contrasts`. The means of
    the arms are not known (NaN), so no effect is given in relation to them.
    """
    statistic = evidence.pools.of_difference
    if statistic is None:
        msg = "no differences are published"
        raise ValueError(msg)
    pools = evidence.by_pool(same_shares=same_shares).slices
    strata = comparable(pools, arm, control, same_shares=False)
    n_units = np.array([strata.weight.sum()])
    share = strata.weight / n_units
    at = strata.treated.rows[np.argsort(strata.treated.stratum)]
    difference = pools.pool[at]
    widest = ((evidence.highest - evidence.lowest) / 2.0) ** 2
    sampling = scatter = np.zeros(len(share))
    for side in (strata.treated, strata.control):
        n = pools.n_units[side.rows[np.argsort(side.stratum)]]
        sampling = sampling + widest / (n - 1.0)
        scatter = scatter + widest**2 / (n - 1.0) ** 3
    noise = np.sum(share**2 * statistic.variance[difference], keepdims=True)
    variance = np.sum(share**2 * sampling, keepdims=True) + noise
    fourth = np.sum(share**4 * statistic.fourth[difference], keepdims=True)
    estimate = np.sum(share * statistic.value[difference], keepdims=True)
    unknown, empty = np.full(1, np.nan), n_units == 0
    return Contrasts(
        estimate=np.where(empty, np.nan, estimate),
        variance=np.where(empty, np.nan, variance),
        noise_variance=np.where(empty, np.nan, noise),
        degrees_of_freedom=degrees(variance, np.sum(share**4 * scatter, keepdims=True), fourth),
        n_units=n_units,
        treated_mean=unknown,
        treated_variance=unknown,
        control_mean=unknown,
        control_variance=unknown,
    )


def difference_statistic(
    value: Floats, treated: Ints, control: Ints, noise_scale: float, grid_step: float
) -> Statistic:
    """Return published differences with the cumulants of their noise; shape [P] each.

    Z h/lcm(n_1, n_0), Z discrete Laplace of scale s = σ max(n_1, n_0)/gcd(n_1, n_0): variance
    2a/(1 − a)², fourth cumulant 2a(1 + 4a + a²)/(1 − a)⁴ of Z, a = e^(−1/s). h is ``grid_step``, σ
    ``noise_scale``, in steps. ``value`` is NaN where no difference is published.
    """
    scale = noise_scale * (np.maximum(treated, control) // np.gcd(treated, control))
    step = grid_step / np.lcm(treated, control)
    a, gap = np.exp(-1.0 / scale), -np.expm1(-1.0 / scale)
    variance = step**2 * (2.0 * a / gap**2)
    fourth = step**4 * (2.0 * a * (1.0 + 4.0 * a + a * a) / gap**4)
    known = ~np.isnan(value)
    return Statistic(
        value,
        np.where(known, variance, np.nan),
        np.where(known, fourth, np.nan),
        np.zeros(len(value)),
    )
