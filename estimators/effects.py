"""Effects of every treatment arm against control: τ̂_Q, the histogram, and both combined.

Source of the point estimate τ̂_Q: Javanmard, Mirrokni and Pouget-Abadie (2025), §3.2. Everything
else here is ours: variances, degrees of freedom, calibration by the pools' statistics, small
clusters and segments; see the README, "Method".
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import isnan
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from estimators.comparable import Rows, Strata, comparable
from estimators.intervals import holm, minimum_detectable_effect, relative_effect, t_interval
from estimators.slices import Debiased, Evidence, Statistic, Sums, Whole, calibrated, sum_by

Floats = NDArray[np.float64]

EstimatorName = Literal["tau_q", "histogram", "combined"]
AdjustedName = Literal["regression", "regression_combined", "cuped"]
"""Those that use covariates as well (:mod:`estimators.regression`)."""
DifferencesName = Literal["horvitz_thompson"]
"""That of a release of noisy differences (:mod:`estimators.differences`)."""


@dataclass(frozen=True)
class Estimate:
    """An effect as it is published; None where it cannot be had from this release."""

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


@dataclass(frozen=True)
class Contrasts:
    """τ̂ of one arm against control in every group, and what its interval is made of; shape [G].

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

    ``groups`` names the groups of ``evidence``: segments, or None for the whole, which alone has
    the histogram estimator. An estimator without its statistic has no rows; where no units are
    published, that leaves the histogram, of counts or means. In the order of
    estimators, then groups, then ``arms``. ``level`` is the confidence level. Where no stratum has
    both arms the numbers are None and ``n_units`` is 0.
    """
    treatments = [position for position, arm in enumerate(arms) if arm != control]
    if not treatments:
        return []
    reference = list(arms).index(control)
    names: list[EstimatorName] = ["tau_q"] if evidence.has_units else []
    if evidence.has_statistic:
        names += ["histogram"] if list(groups) == [None] else []
        names += ["combined"] if evidence.has_units else []
    results: list[Estimate] = []
    for name in names:
        used = evidence.by_pool(same_shares=same_shares) if name == "histogram" else evidence
        found = [
            contrasts(used, name, arm, reference, len(groups), same_shares=same_shares)
            for arm in treatments
        ]
        results += described(found, [arms[arm] for arm in treatments], control, groups, name, level)
    return results


def described(
    found: Sequence[Contrasts],
    arms: Sequence[str],
    control: str,
    groups: Sequence[str | None],
    estimator: EstimatorName | AdjustedName | DifferencesName,
    level: float,
) -> list[Estimate]:
    """Put contrasts, one an arm, into the form in which estimates are published."""
    columns = [_columns(one, level) for one in found]
    adjusted = holm(np.stack([one["p_value"] for one in columns]))
    for one, p_values in zip(columns, adjusted, strict=True):
        one["p_value_holm"] = p_values
    rows = [
        {name: [None if isnan(x) else x for x in column.tolist()] for name, column in one.items()}
        for one in columns
    ]
    return [
        Estimate(
            arm=arm,
            control=control,
            segment=segment,
            estimator=estimator,
            confidence_level=level,
            n_units=int(one.n_units[at]),
            **{name: column[at] for name, column in row.items()},
        )
        for at, segment in enumerate(groups)
        for arm, one, row in zip(arms, found, rows, strict=True)
        if estimator != "histogram" or one.n_units[at] > 0
    ]


def _columns(found: Contrasts, level: float) -> dict[str, Floats]:
    """Every number of :class:`Estimate`, by name, shape [G] each; NaN where there is none."""
    interval = t_interval(found.estimate, found.variance, found.degrees_of_freedom, level)
    relative = relative_effect(
        (found.treated_mean, found.treated_variance),
        (found.control_mean, found.control_variance),
        found.degrees_of_freedom,
        level,
    )
    return {
        "estimate": found.estimate,
        "std_error": interval.std_error,
        "privacy_std_error": np.sqrt(found.noise_variance),
        "ci_lower": interval.lower,
        "ci_upper": interval.upper,
        "p_value": interval.p_value,
        "minimum_detectable_effect": minimum_detectable_effect(
            interval.std_error, found.degrees_of_freedom, level
        ),
        "relative": relative.estimate,
        "relative_ci_lower": relative.lower,
        "relative_ci_upper": relative.upper,
    }


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
    θ̂ the debiased means calibrated by the pools' statistics (:func:`~estimators.slices.calibrated`)
    with weight 0 (``tau_q``), 1 (``histogram``) or the pools' own (``combined``).

    V̂ for τ̂_Q is Σ b² s²/n (Neyman: assignment and noise in one, conservative), else
    Σ b² Ŝ²/n + V̂_noise with Ŝ² = n/(n − 1)·[Â − (μ̂ − ȳ)² + V̂(μ̂)], the bracket clipped to
    [0, min((y_K − μ̂)(μ̂ − y_1) + V̂(μ̂), (y_K − y_1)²/4)]: without V̂(μ̂) the upper clip would bind
    always at K = 2, where Â is known, and make Ŝ² too small. Where nothing tells outcomes' squares
    (means without units) the bracket is that upper bound. Degrees of freedom
    V̂² / Σ b⁴ [Ŝ⁴/(n − 1) + V_A/2]/n² after Satterthwaite, at most 4 + 6/κ,
    κ the excess kurtosis that Laplace noise gives the estimate.
    """
    strata = comparable(evidence.slices, arm, control, same_shares=same_shares)
    total = sum_by(strata.group, strata.weight, n_groups)
    treated, reference = arm_means(evidence, estimator, strata, total)
    return difference(treated, reference, total, evidence.center)


def arm_means(
    evidence: Evidence, estimator: EstimatorName, strata: Strata, total: Floats
) -> tuple["ArmMean", "ArmMean"]:
    """Return the treated arm's mean and the control's in every group (:func:`contrasts`).

    ``total`` has every group's units in ``strata``, shape [G].
    """
    share = strata.weight / total[strata.group]
    weight = pool_weights(evidence, estimator)
    treated, reference = (
        _arm_mean(_Side(evidence, rows, strata, share, len(total)), weight, estimator == "tau_q")
        for rows in (strata.treated, strata.control)
    )
    return treated, reference


def pool_weights(evidence: Evidence, estimator: EstimatorName) -> Floats:
    """What the pools' statistics weigh in an estimator, shape [P]."""
    own = evidence.pools.of_mean.weight
    return {"tau_q": np.zeros_like(own), "histogram": np.ones_like(own), "combined": own}[estimator]


def difference(
    treated: "ArmMean", reference: "ArmMean", n_units: Floats, center: float
) -> Contrasts:
    """Put an arm's mean and the control's together; both are measured from ``center``."""
    variance = treated.variance + reference.variance
    found = Contrasts(
        estimate=treated.mean - reference.mean,
        variance=variance,
        noise_variance=treated.noise + reference.noise,
        degrees_of_freedom=degrees(
            variance, treated.scatter + reference.scatter, treated.fourth + reference.fourth
        ),
        n_units=n_units,
        treated_mean=treated.mean + center,
        treated_variance=treated.variance,
        control_mean=reference.mean + center,
        control_variance=reference.variance,
    )
    return _without(found, n_units == 0)


def _without(found: Contrasts, empty: NDArray[np.bool_]) -> Contrasts:
    """Put NaN where there is nothing to compare."""
    kept = {
        field.name: np.where(empty, np.nan, getattr(found, field.name)) for field in fields(found)
    }
    return Contrasts(**kept | {"n_units": found.n_units})


def degrees(variance: Floats, scatter: Floats, fourth: Floats) -> Floats:
    """V̂² / scatter, no more than a t distribution with the noise's kurtosis has; at least 1.

    ``scatter`` is half the variance of ``variance``, ``fourth`` the fourth cumulant of the noise.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        own = np.where(scatter > 0, variance**2 / scatter, np.inf)
        most = np.where(fourth > 0, 4.0 + 6.0 * variance**2 / fourth, np.inf)
    return np.maximum(np.minimum(own, most), 1.0)


@dataclass(frozen=True)
class ArmMean:
    """One arm's weighted mean in every group, shape [G], measured from the grid's mean."""

    mean: Floats
    variance: Floats
    noise: Floats
    scatter: Floats
    """Half the variance of ``variance``."""
    fourth: Floats
    """Fourth cumulant of the statistics' noise in ``mean``."""
    spread: Floats
    """Ŝ², of what the variance is made, in every stratum, shape [S]."""
    uncertainty: Floats
    """V_A, what noise adds to the variance of ``spread``, likewise."""


class _Side:
    """One arm's slices in the strata of a contrast, ready to be summed up by stratum or group."""

    def __init__(
        self, evidence: Evidence, rows: Rows, strata: Strata, share: Floats, n_groups: int
    ) -> None:
        self.evidence = evidence
        self.slices = evidence.slices.take(rows.rows)
        self.mean = evidence.mean.take(rows.rows)
        self.square = evidence.square.take(rows.rows)
        self.stratum, self.group = rows.stratum, strata.group
        self.share, self.n_groups = share, n_groups
        self.n_units = sum_by(rows.stratum, self.slices.n_units, len(strata.group))
        self.part = self.slices.n_units / self.n_units[rows.stratum]

    def by_group(self, weight: Floats) -> Sums:
        """The arm's weighted mean in every group."""
        target, share = self.group[self.stratum], self.share[self.stratum] * self.part
        statistic, whole = self.evidence.pools.of_mean, self.evidence.whole_mean
        return calibrated(
            target, self.n_groups, share, self.slices, self.mean, whole, statistic, weight
        )

    def by_stratum(self, own: Debiased, whole: Whole, statistic: Statistic, weight: Floats) -> Sums:
        """The mean of every stratum."""
        return calibrated(
            self.stratum, len(self.group), self.part, self.slices, own, whole, statistic, weight
        )

    def over_strata(self, values: Floats) -> Floats:
        """Add up by group."""
        return sum_by(self.group, values, self.n_groups)


def _arm_mean(side: _Side, weight: Floats, neyman: bool) -> ArmMean:
    found = side.by_group(weight)
    n = side.n_units
    spread, uncertainty = _sample_variance(side) if neyman else _outcome_variance(side, weight)
    sampling = side.over_strata(side.share**2 * spread / n)
    scatter = side.share**4 * (spread**2 / (n - 1.0) + uncertainty / 2.0) / n**2
    return ArmMean(
        mean=found.value,
        variance=sampling if neyman else sampling + found.noise,
        noise=found.noise,
        scatter=side.over_strata(scatter),
        fourth=found.fourth,
        spread=spread,
        uncertainty=uncertainty,
    )


def _sample_variance(side: _Side) -> tuple[Floats, Floats]:
    """s² of the debiased outcomes in every stratum, which has the noise in it already."""
    n, mean = side.slices.n_units, side.mean.mean
    middle = sum_by(side.stratum, side.part * mean, len(side.group))[side.stratum]
    apart = mean - middle
    apart[np.abs(apart) < 1e-12 * np.abs(middle)] = 0.0  # equal means, but for rounding
    within = side.slices.variance / (1.0 - side.evidence.rate) ** 2
    squares = sum_by(side.stratum, (n - 1.0) * within + n * apart**2, len(side.group))
    return squares / (side.n_units - 1.0), np.zeros_like(side.n_units)


def _outcome_variance(side: _Side, weight: Floats) -> tuple[Floats, Floats]:
    """Ŝ² of the outcomes in every stratum, and V_A, what noise adds to its variance."""
    known, n = side.evidence, side.n_units
    mean = side.by_stratum(side.mean, known.whole_mean, known.pools.of_mean, weight)
    square = side.by_stratum(
        side.square, known.whole_square, known.pools.of_square, known.pools.of_square.weight
    )
    inside = np.clip(mean.value, known.lowest, known.highest)
    widest = ((known.highest - known.lowest) / 2.0) ** 2
    most = np.minimum((known.highest - inside) * (inside - known.lowest) + mean.noise, widest)
    if not known.knows_squares:
        return most * n / (n - 1.0), np.zeros_like(n)
    spread = np.clip(square.value - mean.value**2 + mean.noise, 0.0, most)
    return spread * n / (n - 1.0), square.noise
