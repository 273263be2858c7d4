"""Effects of every treatment arm against control: τ̂_Q, the histogram, and both combined.

Source of the point estimate τ̂_Q: Javanmard, Mirrokni and Pouget-Abadie (2025), §3.2. Everything
else here is ours: variances, degrees of freedom, calibration by the pools' statistics, small
clusters and segments; see docs/method.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from typing import Literal

import numpy as np

from estimators.intervals import (
    Law,
    excess_kurtosis,
    holm,
    interval_of,
    minimum_detectable_effect,
    relative_effect,
)
from estimators.means import EstimatorName, arm_means, estimators_of, of_whole
from estimators.strata.arm_means import ArmMean
from estimators.strata.contrast_strata import ContrastStrata, contrast_strata
from estimators.strata.evidence import Evidence, sum_by
from schemas.arrays import Bools, Floats

AdjustedName = Literal["regression", "regression_combined", "cuped"]
"""The estimators that use covariates as well (:mod:`estimators.regression`)."""
DifferencesName = Literal["horvitz_thompson"]
"""The estimator for a release of noisy differences (:mod:`estimators.horvitz_thompson`)."""


_ROUNDING = 1e-12
"""A variance below this share of the noise in it is an error of rounding."""


@dataclass(frozen=True)
class Estimate:
    """An effect as it is published; a number is None where this release cannot give it."""

    metric: str
    arm: str
    control: str
    segment: str | None
    estimator: EstimatorName | AdjustedName | DifferencesName
    estimate: float | None
    std_error: float | None
    privacy_std_error: float | None
    ci_lower: float | None
    ci_upper: float | None
    p_value: float | None
    p_value_holm: float | None
    """Adjusted for the number of treatment arms that this estimator compares with control."""
    minimum_detectable_effect: float | None
    """The effect that such a release finds with probability 0.8, at the confidence level."""
    confidence_level: float
    relative: float | None
    relative_ci_lower: float | None
    relative_ci_upper: float | None
    n_units: int
    """Units, of all arms, in the strata where the arms are compared."""
    n_segment: int
    """Units, of all arms, that the estimate is meant for."""
    coverage: float | None
    """``n_units / n_segment``; None where nobody in the release belongs to the segment."""
    planned_std_error: float | None = None
    """The forecast from before any outcome was read; None without a forecast."""
    control_mean: float | None = None
    """The mean outcome under control, as the effect has it; None where it is not known."""
    control_std_error: float | None = None
    skewness: float | None = None
    """g of :class:`Contrasts`; where it is far from 0, the interval may not hold."""
    degrees_of_freedom: float | None = None
    """Of the law of its error; None where they are infinite, or there is no interval."""
    kurtosis: float | None = None
    """That which noise gives the law of its error (:class:`estimators.intervals.Law`)."""

    @property
    def law(self) -> Law:
        """The law of its error."""
        degrees = np.inf if self.degrees_of_freedom is None else self.degrees_of_freedom
        return Law(np.array(degrees), np.array(self.kurtosis or 0.0))


@dataclass(frozen=True)
class Contrasts:
    """τ̂ of one arm against control in every group, with all that its interval needs; shape [G].

    NaN where the group has no stratum in which the arms can be compared; ``n_units`` is 0 there.
    """

    estimate: Floats
    variance: Floats
    noise_variance: Floats
    """The part of ``variance`` that privacy adds."""
    degrees_of_freedom: Floats
    n_units: Floats
    treated_mean: Floats
    treated_variance: Floats
    control_mean: Floats
    control_variance: Floats
    treated_fourth: Floats
    """Fourth cumulant of the statistics' noise in the arm's mean; where means are not known apart,
    in the estimate."""
    control_fourth: Floats
    lopsided: Floats = field(default_factory=lambda: np.full(1, np.nan), kw_only=True)
    """g of outcomes of skewness 1, [Σ_s b³ (1/n_s1² − 1/n_s0²)]/[Σ_s b² (1/n_s1 + 1/n_s0)]^{3/2}.

    The skewness g of τ̂_Q is that times the skewness of the debiased outcomes, which are taken
    together over strata and arms: a small arm by itself may show none of the rare ones. Equal arms
    cancel it. No degrees of freedom mend an interval of a skew law.
    """

    @property
    def kurtosis(self) -> Floats:
        """κ of the noise in the estimate."""
        return excess_kurtosis(self.variance, self.treated_fourth + self.control_fourth)

    @property
    def law(self) -> Law:
        """The law of the estimate's error."""
        return Law(self.degrees_of_freedom, self.kurtosis)

    def columns(self, level: float) -> dict[str, Floats]:
        """Return the numbers of :class:`Estimate` by name, shape [G]; NaN where there is none."""
        law = self.law
        interval = interval_of(self.estimate, self.variance, law, level)
        relative = relative_effect(
            (self.treated_mean, self.treated_variance, self.treated_fourth),
            (self.control_mean, self.control_variance, self.control_fourth),
            self.degrees_of_freedom,
            level,
        )
        return {
            "estimate": self.estimate,
            "std_error": interval.std_error,
            "privacy_std_error": np.sqrt(self.noise_variance),
            "ci_lower": interval.lower,
            "ci_upper": interval.upper,
            "p_value": interval.p_value,
            "minimum_detectable_effect": minimum_detectable_effect(interval.std_error, law, level),
            "relative": relative.estimate,
            "relative_ci_lower": relative.lower,
            "relative_ci_upper": relative.upper,
            "control_mean": self.control_mean,
            "control_std_error": np.sqrt(self.control_variance),
            "degrees_of_freedom": law.degrees_of_freedom,
            "kurtosis": law.kurtosis,
        }


def effects(
    evidence: Evidence,
    arms: Sequence[str],
    control: str,
    groups: Sequence[str | None],
    *,
    same_shares: bool,
    level: float = 0.95,
) -> list[Estimate]:
    """Estimate the effect of every treatment arm against ``control`` in every group.

    ``groups`` names the groups of ``evidence``: segments, or None for the whole. Only the whole has
    the histogram estimator. An estimator whose statistic is not published has no rows; where no
    units are published, only the histogram (of counts or means) is left. In the order of
    estimators, then groups, then ``arms``. ``level`` is the confidence level. Where no stratum has
    both arms the numbers are None and ``n_units`` is 0.
    """
    treatments = [position for position, arm in enumerate(arms) if arm != control]
    if not treatments:
        return []
    reference = list(arms).index(control)
    results: list[Estimate] = []
    for name in estimators_of(evidence, whole=list(groups) == [None]):
        given = evidence.by_pool(same_shares=same_shares) if name == "histogram" else evidence
        by_arm = [
            contrasts(given, name, arm, reference, len(groups), same_shares=same_shares)
            for arm in treatments
        ]
        compared = [arms[arm] for arm in treatments]
        results += to_estimates(evidence, by_arm, compared, control, groups, name, level)
    return results


def to_estimates(
    evidence: Evidence,
    by_arm: Sequence[Contrasts],
    arms: Sequence[str],
    control: str,
    groups: Sequence[str | None],
    estimator: EstimatorName | AdjustedName | DifferencesName,
    level: float,
) -> list[Estimate]:
    """Return the contrasts of ``arms``, in that order, as the estimates that are published.

    ``evidence`` is all that the contrasts were computed from: an estimate is meant for everybody in
    its group.
    """
    n_segment = sum_by(evidence.slices.group, evidence.slices.n_units, len(groups))
    columns = [of_arm.columns(level) for of_arm in by_arm]
    asked = np.stack([of_arm.n_units > 0 for of_arm in by_arm])
    adjusted = holm(np.stack([of_arm["p_value"] for of_arm in columns]), asked)
    for of_arm, one, p_values in zip(columns, by_arm, adjusted, strict=True):
        of_arm["p_value_holm"] = p_values
        of_arm["skewness"] = np.broadcast_to(evidence.skewness * one.lopsided, p_values.shape)
    rows = [
        {
            name: [x if isfinite(x) else None for x in values.tolist()]
            for name, values in of_arm.items()
        }
        for of_arm in columns
    ]
    return [
        Estimate(
            metric=evidence.metric,
            arm=arm,
            control=control,
            segment=segment,
            estimator=estimator,
            confidence_level=level,
            n_units=int(contrast.n_units[at]),
            n_segment=int(n_segment[at]),
            coverage=(
                contrast.n_units[at].item() / n_segment[at].item() if n_segment[at] > 0 else None
            ),
            **{name: column[at] for name, column in row.items()},
        )
        for at, segment in enumerate(groups)
        for arm, contrast, row in zip(arms, by_arm, rows, strict=True)
        if estimator != "histogram" or contrast.n_units[at] > 0
    ]


def contrasts(
    evidence: Evidence,
    estimator: EstimatorName,
    arm: int,
    control: int,
    n_groups: int,
    *,
    same_shares: bool,
) -> Contrasts:
    """Return the effect of ``arm`` against ``control`` in every group.

    τ̂ = Σ_s b_s (θ̂_s,arm − θ̂_s,control), b_s the stratum's share of the group's units (all arms),
    θ̂ the debiased means calibrated by the pools' statistics
    (:func:`~estimators.strata.evidence.calibrated`) with weight 0 (``tau_q``), 1 (``histogram``) or
    the pools' own (``combined``).

    V̂ for τ̂_Q is Σ b² s²/n (Neyman: assignment and noise in one, conservative), and at least the
    noise of both arms (:func:`added`); else, arm by arm, Σ b² Ŝ²/n + V̂_noise with
    Ŝ² = n/(n − 1)·[Â − (μ̂ − ȳ)² + V̂(μ̂)]. A single Ŝ² may be negative, or more than the grid allows.
    The Ŝ² are added up as they are, and the *sum* is brought between 0 and the lesser of
    Σ b² [(y_K − μ̂)(μ̂ − y_1) + V̂(μ̂)]/(n − 1) and Σ b² (y_K − y_1)²/(4(n − 1)); otherwise many small
    strata would be pushed up one by one. (Without V̂(μ̂) the upper end would always bind at K = 2,
    where Â is known.) Where nothing published tells the squares of outcomes (means without units),
    Ŝ² is the most that the grid allows. Degrees of freedom are Welch's (1947),
    V̂² / {Σ b⁴ Ŝ⁴/[(n + 1) n²] + V_A/2} − 2, where each Ŝ² is brought between its own bounds and V_A
    is the noise of Σ b² Â/(n − 1). The excess kurtosis that Laplace noise gives the estimate is
    κ = Σ w_j⁴ κ₄(Z_j)/V̂², w_j being what the published number with the noise Z_j counts for.

    In a stratum of merged clusters the variance of pairs
    (:mod:`estimators.strata.collapsed_strata`) takes the place of s²/n for τ̂_Q. For the other
    estimators it takes the place of the share Π_a (1 − w̄_a) of Ŝ²/n, less what randomised response
    adds to it; w̄_a is the weight of the statistics in the arm's mean. The rest of Ŝ²/n holds the
    differences between clusters, which is too much, as statistics are of all clusters together.
    What pairs show is added as it is, and not brought between bounds: where units vary about as
    much as the grid allows, cutting off what is too great by chance would be right too seldom. The
    arms' parts of the variance of pairs are in the ratio of their s²/n.
    """
    strata = contrast_strata(evidence.slices, arm, control, same_shares=same_shares)
    total = sum_by(strata.group, strata.weight, n_groups)
    treated, reference = arm_means(evidence, estimator, strata, total, by_pairs=True)
    rows = {len(strata.treated.rows), len(strata.control.rows)}
    lone = not len(strata.merged.pair) and rows == {len(strata.weight)} - {0}
    if lone and evidence.parties is None and total.tolist() == [evidence.slices.n_units.sum()]:
        # All clusters, each by itself: the strata of each arm's own mean.
        for code, mean in ((arm, treated), (control, reference)):
            evidence.known_means[estimator, code, same_shares] = of_whole(mean)
    found = difference(treated, reference, total, evidence.center)
    return replace(found, lopsided=_lopsided(evidence, strata, total))


def _lopsided(evidence: Evidence, strata: ContrastStrata, total: Floats) -> Floats:
    third, second = np.zeros((2, len(total)))
    for sign, side in ((1.0, strata.treated), (-1.0, strata.control)):
        n = sum_by(side.stratum, evidence.slices.n_units[side.rows], len(strata.weight))
        share = strata.weight / total[strata.group]
        third += sign * sum_by(strata.group, share**3 / n**2, len(total))
        second += sum_by(strata.group, share**2 / n, len(total))
    return np.divide(third, second**1.5, out=np.full_like(third, np.nan), where=second > 0)


def difference(treated: ArmMean, reference: ArmMean, n_units: Floats, center: float) -> Contrasts:
    """Return the contrast of an arm's mean and the control's, both measured from ``center``."""
    variance, noise, freedom = added(treated, reference)
    contrast = Contrasts(
        estimate=treated.mean - reference.mean,
        variance=variance,
        noise_variance=noise,
        degrees_of_freedom=freedom,
        n_units=n_units,
        treated_mean=treated.mean + center,
        treated_variance=np.maximum(treated.variance, treated.noise),
        control_mean=reference.mean + center,
        control_variance=np.maximum(reference.variance, reference.noise),
        treated_fourth=treated.fourth,
        control_fourth=reference.fourth,
    )
    return blank(contrast, n_units == 0)


def added(treated: ArmMean, reference: ArmMean) -> tuple[Floats, Floats, Floats]:
    """Return V̂ of a contrast, the noise in it and the degrees of freedom; shape [G] each.

    V̂ is at least the noise, which is known: s² of few units may show less. Where s² are 0, but for
    rounding beside the noise, nothing shows how outcomes vary: there are no degrees of freedom
    (NaN), and no interval.
    """
    variance, noise = treated.variance + reference.variance, treated.noise + reference.noise
    at_least = np.maximum(variance, noise)
    freedom = degrees(at_least, treated.scatter + reference.scatter)
    return at_least, noise, np.where(variance > _ROUNDING * noise, freedom, np.nan)


def blank(contrast: Contrasts, empty: Bools) -> Contrasts:
    """Return the contrast with NaN in the ``empty`` groups, but for the number of units."""
    blanked = {
        one.name: np.where(empty, np.nan, getattr(contrast, one.name)) for one in fields(contrast)
    }
    return Contrasts(**blanked | {"n_units": contrast.n_units})


def degrees(variance: Floats, scatter: Floats) -> Floats:
    """Return V̂² / scatter − 2, from 1 up.

    ``scatter`` is an unbiased estimate of half the variance of V̂, ``variance``. V̂² is 2 scatter too
    large on average: hence the 2 (Welch 1947). So a part V̂_p with ν degrees of freedom adds
    V̂_p²/(ν + 2) to the scatter of a sum: of s² of n units Ŝ⁴/(n + 1).
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        return np.maximum(np.where(scatter > 0, variance**2 / scatter - 2.0, np.inf), 1.0)
