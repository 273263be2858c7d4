"""Effects of every treatment arm against control: τ̂_Q, the histogram, and both combined.

Source of the point estimate τ̂_Q: Javanmard, Mirrokni and Pouget-Abadie (2025), §3.2. Everything
else here is ours: variances, degrees of freedom, calibration by the pools' statistics, small
clusters and segments; see docs/method.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import isnan
from typing import Literal

import numpy as np

from estimators.collapsed_strata import Collapsed, collapsed
from estimators.contrast_strata import Rows, Strata, comparable
from estimators.evidence import Evidence, Sums, calibrated, sum_by
from estimators.intervals import holm, minimum_detectable_effect, relative_effect, t_interval
from schemas.arrays import Bools, Floats, Ints

EstimatorName = Literal["tau_q", "histogram", "combined"]
AdjustedName = Literal["regression", "regression_combined", "cuped"]
"""Those that use covariates as well (:mod:`estimators.regression`)."""
DifferencesName = Literal["horvitz_thompson"]
"""That of a release of noisy differences (:mod:`estimators.horvitz_thompson`)."""


@dataclass(frozen=True)
class Estimate:
    """An effect as it is published; None where it cannot be had from this release."""

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
    """Units, of all arms, whom the estimate is meant for."""
    coverage: float | None
    """``n_units / n_segment``; None where it is meant for nobody in the release."""
    planned_std_error: float | None = None
    """What was forecast before any outcome was read; None where nothing was."""


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
    results: list[Estimate] = []
    for name in estimators_of(evidence, whole=list(groups) == [None]):
        used = evidence.by_pool(same_shares=same_shares) if name == "histogram" else evidence
        found = [
            contrasts(used, name, arm, reference, len(groups), same_shares=same_shares)
            for arm in treatments
        ]
        compared = [arms[arm] for arm in treatments]
        results += described(evidence, found, compared, control, groups, name, level)
    return results


def estimators_of(evidence: Evidence, *, whole: bool) -> list[EstimatorName]:
    """Return the estimators whose statistics are published, for the whole or for segments."""
    names: list[EstimatorName] = ["tau_q"] if evidence.has_units else []
    if evidence.has_statistic:
        names += ["histogram"] if whole else []
        names += ["combined"] if evidence.has_units else []
    return names


def described(
    evidence: Evidence,
    found: Sequence[Contrasts],
    arms: Sequence[str],
    control: str,
    groups: Sequence[str | None],
    estimator: EstimatorName | AdjustedName | DifferencesName,
    level: float,
) -> list[Estimate]:
    """Put contrasts, one an arm, into the form in which estimates are published.

    ``evidence`` is what they were found from, all of it: its groups are whom they are meant for.
    """
    meant = sum_by(evidence.slices.group, evidence.slices.n_units, len(groups))
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
            metric=evidence.metric,
            arm=arm,
            control=control,
            segment=segment,
            estimator=estimator,
            confidence_level=level,
            n_units=int(one.n_units[at]),
            n_segment=int(meant[at]),
            coverage=one.n_units[at].item() / meant[at].item() if meant[at] > 0 else None,
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
    θ̂ the debiased means calibrated by the pools' statistics
    (:func:`~estimators.evidence.calibrated`) with weight 0 (``tau_q``), 1 (``histogram``) or the
    pools' own (``combined``).

    V̂ for τ̂_Q is Σ b² s²/n (Neyman: assignment and noise in one, conservative), else, arm by arm,
    Σ b² Ŝ²/n + V̂_noise with Ŝ² = n/(n − 1)·[Â − (μ̂ − ȳ)² + V̂(μ̂)]. A single Ŝ² may be negative, or
    more than the grid allows; they are added up as they are and the *sum* is brought between 0 and
    the lesser of Σ b² [(y_K − μ̂)(μ̂ − y_1) + V̂(μ̂)]/(n − 1) and Σ b² (y_K − y_1)²/(4(n − 1)), or many
    small strata would be pushed up one by one. (Without V̂(μ̂) the upper end would bind always at
    K = 2, where Â is known.) Where nothing tells outcomes' squares (means without units) Ŝ² is the
    most that the grid allows. Degrees of freedom V̂² / {Σ b⁴ Ŝ⁴/[(n − 1) n²] + V_A/2} after
    Satterthwaite, each Ŝ² brought between its own bounds there and V_A the noise of Σ b² Â/(n − 1);
    at most 4 + 6/κ, κ the excess kurtosis that Laplace noise gives the estimate.

    In the stratum of merged clusters the variance of pairs (:mod:`estimators.collapsed_strata`)
    takes the place of s²/n, and for the others that of the share Π_a (1 − w̄_a) of Ŝ²/n, less what
    randomised response adds to it; w̄_a is what statistics weigh in the arm's mean. The rest holds
    how clusters differ, which is too much, as statistics are of all clusters together. The arms'
    parts of it are in the ratio of their s²/n.
    """
    strata = comparable(evidence.slices, arm, control, same_shares=same_shares)
    total = sum_by(strata.group, strata.weight, n_groups)
    treated, reference = arm_means(evidence, estimator, strata, total, by_pairs=True)
    return difference(treated, reference, total, evidence.center)


def arm_means(
    evidence: Evidence, estimator: EstimatorName, strata: Strata, total: Floats, *, by_pairs: bool
) -> tuple["ArmMean", "ArmMean"]:
    """Return the treated arm's mean and the control's in every group (:func:`contrasts`).

    ``total`` has every group's units in ``strata``, shape [G]. ``by_pairs`` says whether merged
    clusters are compared by twos.
    """
    share = strata.weight / total[strata.group]
    weight, neyman = pool_weights(evidence, estimator), estimator == "tau_q"
    treated, control = (
        _Side(evidence, rows, strata, share, len(total))
        for rows in (strata.treated, strata.control)
    )
    parts = (_no_pairs(treated), _no_pairs(control))
    if by_pairs and len(strata.merged.pair):
        parts = _pairs(strata, treated, control, weight, neyman=neyman)
    return (
        _arm_mean(treated, weight, parts[0], neyman=neyman),
        _arm_mean(control, weight, parts[1], neyman=neyman),
    )


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


def _without(found: Contrasts, empty: Bools) -> Contrasts:
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
    sampling: Floats
    """Σ b² Ŝ²/n, of which the variance is made."""
    uncertainty: Floats
    """V_A, what noise adds to the variance of ``sampling``."""
    spread: Floats
    """Ŝ² in every stratum, as degrees of freedom have it, shape [S]."""


_ROUNDING = 1e-9
"""Of (y_K − y_1)⁴/16: less noise than this in a square is none, but for rounding."""


class _Side:
    """One arm's slices in the strata of a contrast, ready to be summed up by stratum or group."""

    def __init__(
        self, evidence: Evidence, rows: Rows, strata: Strata, share: Floats, n_groups: int
    ) -> None:
        self.evidence = evidence
        self.slices = evidence.slices.take(rows.rows)
        cell = evidence.pools.square_cells(self.slices.pool)
        self.by_square = replace(self.slices, pool=cell)
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

    def by_stratum(self, weight: Floats) -> Sums:
        """The mean of every stratum."""
        statistic, whole = self.evidence.pools.of_mean, self.evidence.whole_mean
        target, size = self.stratum, len(self.group)
        return calibrated(target, size, self.part, self.slices, self.mean, whole, statistic, weight)

    def squares_by_stratum(self) -> Sums:
        """The mean of squares of every stratum."""
        return self._squares(self.stratum, len(self.group), self.part)

    def square_noise(self, factor: Floats) -> Floats:
        """V_A of Σ ``factor`` Â in every group; ``factor`` has the shape [S]."""
        share = factor[self.stratum] * self.part
        return self._squares(self.group[self.stratum], self.n_groups, share).noise

    def _squares(self, target: Ints, size: int, share: Floats) -> Sums:
        statistic, whole = self.evidence.pools.of_square, self.evidence.whole_square
        weight = statistic.weight
        return calibrated(
            target, size, share, self.by_square, self.square, whole, statistic, weight
        )

    def over_strata(self, values: Floats) -> Floats:
        """Add up by group."""
        return sum_by(self.group, values, self.n_groups)

    def in_stratum(self, values: Floats) -> Floats:
        """Add up slices by stratum."""
        return sum_by(self.stratum, values, len(self.group))


@dataclass(frozen=True)
class _PairsPart:
    """What pairs of merged clusters make of an arm's part of the variance; shape [S] each."""

    kept: Floats
    """The share of Ŝ²/n that stays as it is: 1 but in merged strata."""
    sampling: Floats
    """What is put in the place of the rest, of the variance of the stratum's mean."""
    doubt: Floats
    """Half the variance of ``sampling``."""


def _no_pairs(side: _Side) -> _PairsPart:
    nothing = np.zeros_like(side.n_units)
    return _PairsPart(nothing + 1.0, nothing, nothing)


def _pairs(
    strata: Strata, treated: _Side, control: _Side, weight: Floats, *, neyman: bool
) -> tuple[_PairsPart, _PairsPart]:
    """Split the variance of pairs between the arms, in the ratio of their s²/n."""
    sides = (treated, control)
    means = (treated.mean.mean, control.mean.mean)
    found = collapsed(strata, treated.slices, control.slices, means)
    used = np.where(found.freedom > 0, 1.0, 0.0)
    noise = np.zeros_like(used)
    if not neyman:
        for side in sides:
            used = used * (1.0 - side.in_stratum(side.part * weight[side.slices.pool]))
            noise = noise + side.in_stratum(side.part**2 * side.mean.noise)
    own = [_sample_variance(side) / side.n_units for side in sides]
    both = own[0] + own[1]
    first = np.divide(own[0], both, out=np.full_like(both, 0.5), where=both > 0)
    treated_part, control_part = (_split(found, part, used, noise) for part in (first, 1.0 - first))
    return treated_part, control_part


def _split(found: Collapsed, part: Floats, used: Floats, noise: Floats) -> _PairsPart:
    freedom = np.where(found.freedom > 0, found.freedom, np.inf)
    return _PairsPart(
        kept=1.0 - used,
        sampling=part * used * (found.variance - noise),
        doubt=part * (used * found.variance) ** 2 / freedom,
    )


def _arm_mean(side: _Side, weight: Floats, pairs: _PairsPart, *, neyman: bool) -> ArmMean:
    found, n = side.by_group(weight), side.n_units
    paired = side.over_strata(side.share**2 * pairs.sampling)
    factor = _factor(side, pairs)
    if neyman:
        spread, uncertainty = _sample_variance(side), np.zeros(side.n_groups)
        sampling = side.over_strata(factor * spread) + paired
    else:
        spread, sampling = _outcome_variance(side, weight, factor, paired)
        uncertainty = side.square_noise(factor * n / (n - 1.0))
    doubt = side.share**4 * pairs.doubt + (factor * spread) ** 2 / (n - 1.0)
    return ArmMean(
        mean=found.value,
        variance=sampling if neyman else sampling + found.noise,
        noise=found.noise,
        scatter=side.over_strata(doubt) + uncertainty / 2.0,
        fourth=found.fourth,
        sampling=sampling,
        uncertainty=uncertainty,
        spread=spread,
    )


def _factor(side: _Side, pairs: _PairsPart) -> Floats:
    """What Ŝ² counts for in every stratum: b²/n, of which pairs leave ``kept``.

    Where squares are known of whole arms alone, and of no units, strata have the same mean square
    for all that is known. Σ k_s n_s σ_s², k = b²/(n (n − 1)), is then taken with the greatest k of
    all: no less than it is, and the same where arms have the same share of every stratum, but for
    n − 1 in place of n.
    """
    n, known = side.n_units, side.evidence
    own = side.share**2 * pairs.kept / n
    if known.has_units or known.pools.square_cell is None:
        return own
    greatest = np.zeros(side.n_groups)
    np.maximum.at(greatest, side.group, own / (n - 1.0))
    return greatest[side.group] * (n - 1.0)


def _sample_variance(side: _Side) -> Floats:
    """s² of the debiased outcomes in every stratum, which has the noise in it already."""
    n, mean = side.slices.n_units, side.mean.mean
    middle = side.in_stratum(side.part * mean)[side.stratum]
    apart = mean - middle
    apart[np.abs(apart) < 1e-12 * np.abs(middle)] = 0.0  # equal means, but for rounding
    within = side.slices.variance / (1.0 - side.evidence.rate) ** 2
    squares = side.in_stratum((n - 1.0) * within + n * apart**2)
    return squares / (side.n_units - 1.0)


def _outcome_variance(
    side: _Side, weight: Floats, factor: Floats, paired: Floats
) -> tuple[Floats, Floats]:
    """Ŝ² of every stratum for degrees of freedom, and Σ ``factor`` Ŝ² + ``paired``.

    The sum, of every group, is of Ŝ² as they are, and is itself brought between its bounds.
    """
    known, n = side.evidence, side.n_units
    mean, square = side.by_stratum(weight), side.squares_by_stratum()
    inside = np.clip(mean.value, known.lowest, known.highest)
    widest = np.full_like(n, ((known.highest - known.lowest) / 2.0) ** 2)
    most = (known.highest - inside) * (inside - known.lowest) + mean.noise
    least = np.minimum(most, widest)
    own = square.value - mean.value**2 + mean.noise if known.knows_squares else least
    more = n / (n - 1.0)
    whole = side.share**2 * more / n
    limit = np.minimum(side.over_strata(whole * most), side.over_strata(whole * widest))
    kept, total = side.over_strata(factor * more * own), side.over_strata(factor)
    usual = np.clip(kept, 0.0, limit) / np.where(total > 0, total, 1.0)
    noise = np.maximum(square.noise - _ROUNDING * widest**2, 0.0) * more**2
    spread = _nearer(own * more, usual[side.group], noise)
    return np.clip(spread, 0.0, least * more), np.clip(kept + paired, 0.0, limit)


def _nearer(own: Floats, usual: Floats, noise: Floats) -> Floats:
    """Draw Ŝ² of strata to the usual one: S̄² + (Ŝ² − S̄²) S̄⁴/(S̄⁴ + V_A), V_A being ``noise``.

    For degrees of freedom alone. Squares of what is mostly noise would leave none.
    """
    total = usual**2 + noise
    return usual + (own - usual) * np.divide(
        usual**2, total, out=np.ones_like(total), where=total > 0
    )
