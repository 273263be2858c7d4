"""Effects over several releases of one experiment: pooled, and looked at after every period.

Arrays have the shape [T, E]: T periods, the oldest first, and E effects (an arm, in a segment, by
an estimator). NaN stands for an effect that a period cannot give; it has weight 0.

The pooled estimate and its variances are ours (docs/series.md). Source of the interval for those
who look after every period: Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, *Time-uniform central
limit theory and asymptotic confidence sequences*, Annals of Statistics 2024.
"""

from dataclasses import dataclass

import numpy as np

from estimators.arm_effects import degrees
from estimators.intervals import Law
from estimators.operate.people import CrossTerms
from schemas.arrays import Bools, Floats

LOOKS = 14
"""The look at which an always-valid interval is at its narrowest, unless another is asked for."""


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
) -> tuple[Floats, Floats]:
    """Return the ends of intervals that hold at all periods at once, shape [T, E] each.

    Half-width √(2 (v_t + φ) ln(√((v_t + φ)/φ)/α)) / N_t, φ = v*/(−2 ln α + ln(−2 ln α) + 1), where

    - N_t is ``pooled.n_units`` and v_t = N_t² V_t (t_{df, 1−α/2}/z_{1−α/2})², V_t and df being the
      variance and degrees of freedom of ``pooled``: the factor makes up for variances that are
      estimated from few,
    - α = (1 − ``level``)/``n_arms``: with several treatment arms, all hold at once,
    - v* = ``looks`` · n₁² · planned₁² is the sum that is expected at that look, where the interval
      is at its narrowest; n₁ is ``n_first`` and planned₁ is ``planned``, the standard error that
      the *plan* predicted for the first period, shape [E]. Were it an estimate, φ would not be
      fixed in advance.

    Asymptotic in the number of units, for periods that are independent of each other; where people
    come back it is approximate. NaN where ``planned`` is NaN or 0, and where V is 0 or NaN.
    """
    from scipy.special import ndtri  # noqa: PLC0415 - takes a quarter of a second

    alpha = (1.0 - level) / n_arms
    log = -2.0 * np.log(alpha)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        phi = looks * (n_first * planned) ** 2 / (log + np.log(log) + 1.0)
        phi = np.where(phi > 0, phi, np.nan)
        factor = Law(pooled.degrees_of_freedom).quantile(1.0 - alpha)
        factor /= ndtri(1.0 - alpha / 2.0)
        sums = np.where(pooled.variance > 0, pooled.variance, np.nan) * pooled.n_units**2
        sums = sums * factor**2 + phi
        half = np.sqrt(2.0 * sums * np.log(np.sqrt(sums / phi) / alpha)) / pooled.n_units
    return pooled.estimate - half, pooled.estimate + half
