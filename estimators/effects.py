"""The estimator τ̂_Q: a stratified difference in debiased means, with its variance.

Source: Javanmard, Mirrokni and Pouget-Abadie (2025), §3.2, for the point estimate. The variance,
the degrees of freedom and the treatment of small clusters are ours; see the README, "Method".
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from estimators.intervals import relative_effect, t_interval

Floats = NDArray[np.float64]

MIN_UNITS = 2
"""Units a stratum needs in both arms of a contrast: a sample variance takes two."""


@dataclass(frozen=True)
class StratumMeans:
    """What the estimators need of every stratum; all arrays have the shape [clusters, arms].

    ``n_units`` is 0, and the other three are NaN, where a cluster lacks an arm.
    """

    n_units: Floats
    mean: Floats
    """Mean of the debiased outcomes v(ỹ)."""
    variance: Floats
    """Their sample variance s² (divisor n − 1); NaN or anything where n < 2."""
    noise_variance: Floats
    """V̂_RR, the part of the mean's variance that randomised response adds."""


@dataclass(frozen=True)
class Contrast:
    """τ̂ of one arm against control, and what its interval is made of (one number each)."""

    estimate: float
    variance: float
    noise_variance: float
    degrees_of_freedom: float
    n_units: int
    treated_mean: float
    treated_variance: float
    control_mean: float
    control_variance: float


@dataclass(frozen=True)
class Estimate:
    """An effect as it is published; None where it cannot be had from this release."""

    arm: str
    control: str
    segment: str | None
    estimator: str
    estimate: float | None
    std_error: float | None
    privacy_std_error: float | None
    ci_lower: float | None
    ci_upper: float | None
    p_value: float | None
    confidence_level: float
    relative: float | None
    relative_ci_lower: float | None
    relative_ci_upper: float | None
    n_units: int


def comparable_strata(
    strata: StratumMeans, arm: int, control: int, *, same_shares: bool
) -> tuple[StratumMeans, Floats]:
    """Return the strata in which ``arm`` can be compared with ``control``, and their weights.

    A cluster with at least two units in both arms stands for itself. The others are merged into
    one stratum where ``same_shares`` says that every cluster was randomised with the same arm
    shares (a merged contrast would be confounded otherwise), and are left out where not, or where
    even merged they hold fewer than two units of an arm.

    Returns the strata, shape [S, 2] with the treated arm first, and for each the number of units
    of *all* arms in its clusters, shape [S]: the population it speaks for.
    """
    pair = [arm, control]
    chosen = StratumMeans(*(part[:, pair] for part in _parts(strata)))
    everyone = strata.n_units.sum(axis=1)
    alone = (chosen.n_units >= MIN_UNITS).all(axis=1)
    kept = StratumMeans(*(part[alone] for part in _parts(chosen)))
    weights = everyone[alone]
    rest = ~alone & (chosen.n_units.sum(axis=1) > 0)
    if not same_shares or not rest.any():
        return kept, weights
    merged = _merge(StratumMeans(*(part[rest] for part in _parts(chosen))))
    if (merged.n_units < MIN_UNITS).any():
        return kept, weights
    joined = (
        np.concatenate([own, one]) for own, one in zip(_parts(kept), _parts(merged), strict=True)
    )
    return StratumMeans(*joined), np.append(weights, everyone[rest].sum())


def contrast(strata: StratumMeans, weights: Floats) -> Contrast | None:
    """Return τ̂_Q over comparable strata, or None where there is no such stratum.

    τ̂_Q = Σ_s b_s ( mean_{treated in s} v(ỹ) − mean_{control in s} v(ỹ) ),
    V̂   = Σ_s b_s² Σ_a s²_sa / n_sa   (Neyman: assignment and privacy noise; never too small on
    average),
    degrees of freedom V̂² / Σ b_s⁴ (s²_sa/n_sa)² / (n_sa − 1)   (Satterthwaite),

    where b_s = ``weights`` / Σ ``weights``, shape [S], and ``strata`` has shape [S, 2], treated
    first, at least two units each.
    """
    if weights.size == 0:
        return None
    share = (weights / weights.sum())[:, np.newaxis]
    spread = share**2 * strata.variance / strata.n_units
    means = (share * strata.mean).sum(axis=0)
    by_arm = spread.sum(axis=0)
    variance = float(by_arm.sum())
    parts = spread / variance if variance > 0 else np.zeros_like(spread)  # no power of V̂ to hold
    scatter = float((parts**2 / (strata.n_units - 1.0)).sum())
    return Contrast(
        estimate=float(means[0] - means[1]),
        variance=variance,
        noise_variance=float((share**2 * strata.noise_variance).sum()),
        degrees_of_freedom=1.0 / scatter if scatter > 0 else np.inf,
        n_units=int(weights.sum()),
        treated_mean=float(means[0]),
        treated_variance=float(by_arm[0]),
        control_mean=float(means[1]),
        control_variance=float(by_arm[1]),
    )


def tau_q(
    strata: StratumMeans,
    arms: list[str],
    control: str,
    *,
    same_shares: bool,
    level: float = 0.95,
) -> list[Estimate]:
    """Estimate the effect of every treatment arm against ``control`` by τ̂_Q.

    ``strata`` has the shape [clusters, arms], its second axis in the order of ``arms``; ``level``
    is the confidence level of the intervals. One estimate an arm, in that order. Where no stratum
    has both arms the numbers are None and ``n_units`` is 0.
    """
    reference = arms.index(control)
    results = []
    for position, arm in enumerate(arms):
        if position == reference:
            continue
        pair, weights = comparable_strata(strata, position, reference, same_shares=same_shares)
        results.append(describe(contrast(pair, weights), arm, control, "tau_q", level))
    return results


def describe(
    found: Contrast | None, arm: str, control: str, estimator: str, level: float
) -> Estimate:
    """Put a contrast into the form in which estimates are published."""
    empty = Estimate(
        arm=arm,
        control=control,
        segment=None,
        estimator=estimator,
        estimate=None,
        std_error=None,
        privacy_std_error=None,
        ci_lower=None,
        ci_upper=None,
        p_value=None,
        confidence_level=level,
        relative=None,
        relative_ci_lower=None,
        relative_ci_upper=None,
        n_units=0,
    )
    if found is None:
        return empty
    interval = t_interval(found.estimate, found.variance, found.degrees_of_freedom, level)
    relative = relative_effect(
        (found.treated_mean, found.treated_variance),
        (found.control_mean, found.control_variance),
        found.degrees_of_freedom,
        level,
    )
    return replace(
        empty,
        estimate=found.estimate,
        std_error=interval.std_error,
        privacy_std_error=float(np.sqrt(found.noise_variance)),
        ci_lower=interval.lower,
        ci_upper=interval.upper,
        p_value=interval.p_value,
        relative=relative.estimate,
        relative_ci_lower=relative.lower,
        relative_ci_upper=relative.upper,
        n_units=found.n_units,
    )


def _parts(strata: StratumMeans) -> tuple[Floats, Floats, Floats, Floats]:
    return strata.n_units, strata.mean, strata.variance, strata.noise_variance


def _merge(strata: StratumMeans) -> StratumMeans:
    """Make one stratum of several: shape [S, 2] to [1, 2]."""
    n = strata.n_units
    total = n.sum(axis=0)
    present = n > 0
    share = np.divide(n, total, out=np.zeros_like(n), where=total > 0)
    mean = np.where(present, share * strata.mean, 0.0).sum(axis=0)
    within = np.where(n >= MIN_UNITS, (n - 1.0) * strata.variance, 0.0).sum(axis=0)
    apart = np.where(present, strata.mean - mean, 0.0)
    apart[np.abs(apart) < 1e-12 * np.abs(mean)] = 0.0  # equal means, but for rounding
    between = (n * apart**2).sum(axis=0)
    variance = np.divide(
        within + between, total - 1.0, out=np.full_like(total, np.nan), where=total >= MIN_UNITS
    )
    noise = np.where(present, share**2 * strata.noise_variance, 0.0).sum(axis=0)
    return StratumMeans(
        n_units=total[np.newaxis],
        mean=mean[np.newaxis],
        variance=variance[np.newaxis],
        noise_variance=noise[np.newaxis],
    )
