"""Effects over several releases of one experiment: pooled, and looked at after every period.

Arrays have the shape [T, E]: T periods, the oldest first, and E effects (an arm, in a segment, by
an estimator). NaN stands for an effect that a period cannot give; it has weight 0.

The pooled estimate and its variances are ours (docs/series.md). Source of the interval for those
who look after every period: Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, *Time-uniform central
limit theory and asymptotic confidence sequences*, Annals of Statistics 2024; of mixtures over
several scales: Robbins, *Statistical methods related to the law of the iterated logarithm*, Annals
of Mathematical Statistics 1970.
"""

from dataclasses import dataclass

import numpy as np

from estimators.arm_effects import degrees
from estimators.intervals import Law
from estimators.operate.people import CrossTerms
from schemas.arrays import Bools, Floats

LOOKS = 14
"""The look at which an always-valid interval is at its narrowest, unless another is asked for."""

N_SCALES = 5
"""φ that an always-valid interval is a mixture of: forecasts may be off, and φ has to be fixed."""

_APART = 4.0
_NEWTON = 10  # 4 are needed


@dataclass(frozen=True)
class PeriodEffects:
    """The effects of every period; shape [T, E] each."""

    estimate: Floats
    variance: Floats
    noise_variance: Floats
    """The part of ``variance`` that privacy adds."""
    degrees_of_freedom: Floats
    n_units: Floats
    """Units, of all arms, that the estimate covers: public, and its weight."""


@dataclass(frozen=True)
class PooledEffects:
    """The effects of all periods up to each one, together; shape [T, E] each.

    NaN as long as no period has given an effect; ``n_units`` is 0 there.
    """

    estimate: Floats
    variance: Floats
    noise_variance: Floats
    degrees_of_freedom: Floats
    n_units: Floats
    """Added up: whoever is in two releases counts twice."""
    n_releases: Floats
    """Periods that gave an effect."""


def pool(
    periods: PeriodEffects, *, are_new: Bools | None = None, cross: CrossTerms | None = None
) -> PooledEffects:
    """Pool the effects of the periods up to each one, by size.

    τ̂ = Σ_r w_r τ̂_r, w_r = n_r / Σ n, where n_r is ``n_units``. Sizes are public, so weights bias
    nothing, and τ̂ is the effect on everybody also where effects differ between periods.

    - Nobody comes back (neither ``are_new`` nor ``cross`` is given): V = Σ w_r² V_r, with the
      degrees of freedom V² / Σ w_r⁴ V_r²/(df_r + 2) − 2 (Welch).
    - People come back, and it is known who (``cross``): V = Σ w_r² V_r + the products of what one
      person contributes to different periods (:func:`estimators.operate.people.cross_terms`); V
      is at least the noise of privacy, Σ w_r² V_noise,r, since noise is drawn anew for every
      release, and at most (Σ w_r √V_r)².
    - It is not known who comes back (``are_new``, shape [T]): where the people of period t may have
      been in earlier ones, √V_t = w √V_{t−1} + w_t √V_t, which no correlation can exceed. Where
      ``are_new`` says that they are new, variances add up. Degrees of freedom are then at least
      V / (Σ w_r √(V_r/(df_r + 2)))² − 2, by the delta method.
    """
    given = periods.n_units > 0
    given &= ~np.isnan(periods.estimate) & ~np.isnan(periods.variance)
    n = np.where(given, periods.n_units, 0.0)
    estimate, variance, noise = (
        np.where(given, values, 0.0)
        for values in (periods.estimate, periods.variance, periods.noise_variance)
    )
    df = np.where(given, periods.degrees_of_freedom, np.inf)
    total = np.cumsum(n, axis=0)
    squares = np.cumsum(n**2 * variance, axis=0)
    noises = np.cumsum(n**2 * noise, axis=0)
    scatter = np.cumsum((n**2 * variance) ** 2 / (df + 2.0), axis=0)
    if cross is not None:
        bound = np.cumsum(n * np.sqrt(variance), axis=0) ** 2
        together = squares + np.cumsum(cross.total, axis=0)
        squares = np.clip(together, np.minimum(noises, bound), bound)
        scatter = scatter + np.cumsum(cross.scatter, axis=0)
    elif are_new is not None:
        squares, scatter = _bounds(n, variance, df, are_new)
    with np.errstate(invalid="ignore", divide="ignore"):
        return PooledEffects(
            estimate=np.cumsum(n * estimate, axis=0) / total,
            variance=squares / total**2,
            noise_variance=noises / total**2,
            degrees_of_freedom=degrees(squares, scatter),
            n_units=total,
            n_releases=np.cumsum(given, axis=0).astype(np.float64),
        )


def _bounds(n: Floats, variance: Floats, df: Floats, are_new: Bools) -> tuple[Floats, Floats]:
    """Return the greatest N² V after each period, and half the variance of its estimate."""
    squares, scatter = np.zeros_like(n), np.zeros_like(n)
    error = np.zeros(n.shape[1])  # the standard error of the sum so far
    doubt = np.zeros(n.shape[1])  # √2 times the standard error of that, at the most
    for t, is_new in enumerate(are_new):
        own, own_doubt = n[t] * np.sqrt(variance[t]), n[t] * np.sqrt(variance[t] / (df[t] + 2.0))
        if is_new:
            both = np.hypot(error, own)
            known = both > 0
            weighted = np.hypot(error * doubt, own * own_doubt)
            doubt = np.divide(weighted, both, out=np.zeros_like(both), where=known)
            error = both
        else:
            error, doubt = error + own, doubt + own_doubt
        squares[t], scatter[t] = error**2, (error * doubt) ** 2
    return squares, scatter


def always_valid(
    pooled: PooledEffects,
    planned: Floats,
    n_first: Floats,
    level: float,
    *,
    n_arms: int = 1,
    looks: int = LOOKS,
    n_scales: int = N_SCALES,
) -> tuple[Floats, Floats]:
    """Return the ends of intervals that hold at all periods at once, shape [T, E] each.

    Half-width √x_t/N_t, where Σ_k √(φ_k/(v_t + φ_k)) e^{x_t/(2(v_t + φ_k))} = K/α and

    - N_t is ``pooled.n_units`` and v_t = N_t² V_t (x_α/z_α)², V_t being the variance of ``pooled``
      and x_α Student's quantile at 1 − α for its degrees of freedom: the factor makes up for
      variances that are estimated from few,
    - α = (1 − ``level``)/``n_arms``: with several treatment arms, all hold at once,
    - φ_k are K = ``n_scales`` numbers, 4 apart, about φ = v*/(−2 ln α + ln(−2 ln α) + 1). With one
      the interval is at its narrowest where v_t = v*, and twice as wide at first where that is
      forecast three times too great; with several it is a little wider there, and little wider
      where the forecast is wrong,
    - v* = ``looks`` · n₁² · planned₁² is the sum that is expected at that look; n₁ is ``n_first``
      and planned₁ is ``planned``, the standard error that the *plan* predicted for the first
      period, shape [E]. Were it an estimate, φ would not be fixed in advance.

    The left side is the likelihood ratio of a sum S with S² = x against 0, averaged over normal
    effects of variances 1/φ_k: a martingale with the mean K, which is seldom K/α (Ville). Its
    logarithm is convex in x, so Newton's steps from above, the least x of a single term, fall to
    the solution. Asymptotic in the number of units, for periods that are independent of each other;
    where people come back it is approximate. NaN where ``planned`` is NaN or 0, and where V is.
    """
    alpha = (1.0 - level) / n_arms
    log = -2.0 * np.log(alpha)
    normal = Law(np.array(np.inf)).quantile(1.0 - alpha)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        middle = looks * (n_first * planned) ** 2 / (log + np.log(log) + 1.0)
        middle = np.where(middle > 0, middle, np.nan)
        factor = Law(pooled.degrees_of_freedom).quantile(1.0 - alpha) / normal
        sums = np.where(pooled.variance > 0, pooled.variance, np.nan) * pooled.n_units**2
        phi = middle * _APART ** (np.arange(n_scales) - (n_scales - 1) / 2.0)[:, None, None]
        slope = 0.5 / (sums * factor**2 + phi)
        least = np.log(n_scales / alpha / np.sqrt(2.0 * slope * phi))
        square = np.min(least / slope, axis=0)
        for _ in range(_NEWTON):
            terms = np.exp(square * slope - least)  # each at most 1 at the solution
            total = terms.sum(axis=0)
            square = square - np.log(total) * total / (terms * slope).sum(axis=0)
        half = np.sqrt(square) / pooled.n_units
    return pooled.estimate - half, pooled.estimate + half
