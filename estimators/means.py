"""The mean outcome of every arm: as it is published, and as effects are made of it.

Source of the debiased mean: Javanmard, Mirrokni and Pouget-Abadie (2025), §3.2. Variances,
calibration by the pools' statistics and small clusters are ours; see docs/method.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Literal

import numpy as np

from estimators.assigned import Side, added
from estimators.collapsed_strata import PairVariance, pair_variance
from estimators.contrast_strata import ArmSlices, ContrastStrata, contrast_strata
from estimators.evidence import Evidence, Sums, calibrate, sum_by
from schemas.arrays import Floats, Ints

EstimatorName = Literal["tau_q", "histogram", "combined"]


@dataclass(frozen=True)
class Mean:
    """An arm's mean outcome as it is published."""

    metric: str
    arm: str
    estimator: EstimatorName
    mean: float
    std_error: float


def means(evidence: Evidence, arms: Sequence[str], *, same_shares: bool) -> list[Mean]:
    """Estimate the mean outcome of each of ``arms``, by every estimator that effects have.

    θ̂ = Σ_s b_s θ̂_s, where s are the strata of :func:`estimators.contrast_strata.contrast_strata`
    between the arm and itself: every cluster that has two of its units, and with ``same_shares``
    all others merged into one. b_s is the stratum's share of the units in these strata, all arms
    counted. θ̂_s and the standard error are those of :func:`estimators.effects.contrasts`, so the
    difference of two means is the effect where both arms have the same strata. But merged clusters
    are not compared in pairs, as the differences between them are part of a mean's uncertainty. In
    the order of estimators, then ``arms``; an arm without a stratum has no row. ``evidence`` is of
    the whole.
    """
    results: list[Mean] = []
    for name in estimators_of(evidence, whole=True):
        given = evidence.by_pool(same_shares=same_shares) if name == "histogram" else evidence
        for code, arm in enumerate(arms):
            strata = contrast_strata(given.slices, code, code, same_shares=same_shares)
            if not len(strata.weight):
                continue
            total = sum_by(strata.group, strata.weight, 1)
            share = strata.weight / total[strata.group]
            side = _Side(given, strata.treated, strata, share, len(total))
            weight = pool_weights(given, name)
            pairs = _no_pairs(side)
            neyman = name == "tau_q"
            plain = _arm_mean(side, weight, pairs, neyman=neyman)
            (arm_mean,) = _with_parties(given, strata, [side], [pairs], [plain], neyman=neyman)
            mean = float(arm_mean.mean[0]) + evidence.center
            error = sqrt(float(arm_mean.variance[0]))
            results.append(Mean(evidence.metric, arm, name, mean, error))
    return results


def estimators_of(evidence: Evidence, *, whole: bool) -> list[EstimatorName]:
    """Return the estimators whose statistics are published, for the whole or for segments."""
    names: list[EstimatorName] = ["tau_q"] if evidence.has_units else []
    if evidence.has_statistic:
        names += ["histogram"] if whole else []
        names += ["combined"] if evidence.has_units else []
    return names


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
    """Σ b² Ŝ²/n, the part of ``variance`` that is not noise."""
    uncertainty: Floats
    """V_A, which noise adds to the variance of ``sampling``."""
    spread: Floats
    """Ŝ² in every stratum, as used for degrees of freedom, shape [S]."""


def arm_means(
    evidence: Evidence,
    estimator: EstimatorName,
    strata: ContrastStrata,
    total: Floats,
    *,
    by_pairs: bool,
) -> tuple[ArmMean, ArmMean]:
    """Return the treated arm's mean and the control's in every group.

    Formulas are those of :func:`estimators.effects.contrasts`.

    ``total`` has the number of units in the ``strata`` of every group, shape [G]. ``by_pairs`` says
    whether merged clusters are compared in pairs.
    """
    share = strata.weight / total[strata.group]
    weight, neyman = pool_weights(evidence, estimator), estimator == "tau_q"
    treated, control = (
        _Side(evidence, slices, strata, share, len(total))
        for slices in (strata.treated, strata.control)
    )
    parts = (_no_pairs(treated), _no_pairs(control))
    if by_pairs and len(strata.merged.pair):
        parts = _split_pairs(strata, treated, control, weight, neyman=neyman)
    plain = [
        _arm_mean(side, weight, part, neyman=neyman)
        for side, part in zip((treated, control), parts, strict=True)
    ]
    first, second = _with_parties(evidence, strata, (treated, control), parts, plain, neyman=neyman)
    return first, second


def _with_parties(
    evidence: Evidence,
    strata: ContrastStrata,
    sides: "Sequence[_Side]",
    parts: "Sequence[_PairsPart]",
    plain: Sequence[ArmMean],
    *,
    neyman: bool,
) -> list[ArmMean]:
    """Return the arms' means with what parties add to their variances.

    That is tau_q's (:func:`estimators.assigned.added`) for every estimator.
    """
    if evidence.parties is None:
        return list(plain)
    given = [
        Side(
            rows=side.rows,
            stratum=side.stratum,
            from_mean=_from_mean(side),
            n_units=side.n_units,
            mean=side.in_stratum(side.part * side.mean.mean),
            spread=_sample_variance(side),
            kept=part.kept,
            sampling=None if neyman else _sampling(side, part, mean),
        )
        for side, part, mean in zip(sides, parts, plain, strict=True)
    ]
    more = added(evidence.parties, strata.group, sides[0].share, given, sides[0].n_groups)
    return [
        replace(
            mean,
            variance=mean.variance + one.variance,
            scatter=mean.scatter * one.stretch + one.scatter,
        )
        for mean, one in zip(plain, more, strict=True)
    ]


def _sampling(side: "_Side", part: "_PairsPart", plain: ArmMean) -> Floats:
    """Return Σ k b² Ŝ²/n in every group: without what pairs of merged clusters show."""
    paired = side.over_strata(side.share**2 * part.sampling)
    return np.maximum(plain.sampling - paired, 0.0)


def pool_weights(evidence: Evidence, estimator: EstimatorName) -> Floats:
    """Return the weights of the pools' statistics in an estimator, shape [P]."""
    weight = evidence.pools.of_mean.weight
    if estimator == "combined":
        return weight
    return np.ones_like(weight) if estimator == "histogram" else np.zeros_like(weight)


_ROUNDING = 1e-9
"""Noise in a square below this share of (y_K − y_1)⁴/16 is an error of rounding."""


class _Side:
    """One arm's slices in the strata of a contrast, to be summed up by stratum or group."""

    def __init__(
        self,
        evidence: Evidence,
        rows: ArmSlices,
        strata: ContrastStrata,
        share: Floats,
        n_groups: int,
    ) -> None:
        self.evidence, self.rows = evidence, rows.rows
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
        """Return the arm's weighted mean in every group."""
        target, share = self.group[self.stratum], self.share[self.stratum] * self.part
        statistic, whole = self.evidence.pools.of_mean, self.evidence.whole_mean
        return calibrate(
            target, self.n_groups, share, self.slices, self.mean, whole, statistic, weight
        )

    def by_stratum(self, weight: Floats) -> Sums:
        """Return the mean of every stratum."""
        statistic, whole = self.evidence.pools.of_mean, self.evidence.whole_mean
        target, size = self.stratum, len(self.group)
        return calibrate(target, size, self.part, self.slices, self.mean, whole, statistic, weight)

    def squares_by_stratum(self) -> Sums:
        """Return the mean square of every stratum."""
        return self._squares(self.stratum, len(self.group), self.part)

    def square_noise(self, factor: Floats) -> Floats:
        """Return V_A of Σ ``factor`` Â in every group; ``factor`` has the shape [S]."""
        share = factor[self.stratum] * self.part
        return self._squares(self.group[self.stratum], self.n_groups, share).noise

    def _squares(self, target: Ints, size: int, share: Floats) -> Sums:
        statistic, whole = self.evidence.pools.of_square, self.evidence.whole_square
        weight = statistic.weight
        return calibrate(target, size, share, self.by_square, self.square, whole, statistic, weight)

    def over_strata(self, values: Floats) -> Floats:
        """Add up values of strata by group."""
        return sum_by(self.group, values, self.n_groups)

    def in_stratum(self, values: Floats) -> Floats:
        """Add up values of slices by stratum."""
        return sum_by(self.stratum, values, len(self.group))


@dataclass(frozen=True)
class _PairsPart:
    """An arm's part of the variance as pairs of merged clusters show it; shape [S] each."""

    kept: Floats
    """The share of Ŝ²/n that stays as it is: 1 except in merged strata."""
    sampling: Floats
    """The variance of the stratum's mean that takes the place of the rest."""
    scatter: Floats
    """Half the variance of ``sampling``."""


def _no_pairs(side: _Side) -> _PairsPart:
    nothing = np.zeros_like(side.n_units)
    return _PairsPart(nothing + 1.0, nothing, nothing)


def _split_pairs(
    strata: ContrastStrata, treated: _Side, control: _Side, weight: Floats, *, neyman: bool
) -> tuple[_PairsPart, _PairsPart]:
    """Split the variance of pairs between the arms, in the ratio of their s²/n."""
    sides = (treated, control)
    means = (treated.mean.mean, control.mean.mean)
    pairs = pair_variance(strata, treated.slices, control.slices, means)
    used = np.where(pairs.freedom > 0, 1.0, 0.0)
    noise = np.zeros_like(used)
    if not neyman:
        for side in sides:
            used = used * (1.0 - side.in_stratum(side.part * weight[side.slices.pool]))
            noise = noise + side.in_stratum(side.part**2 * side.mean.noise)
    variances = [_sample_variance(side) / side.n_units for side in sides]
    both = variances[0] + variances[1]
    share = np.divide(variances[0], both, out=np.full_like(both, 0.5), where=both > 0)
    return _pairs_part(pairs, share, used, noise), _pairs_part(pairs, 1.0 - share, used, noise)


def _pairs_part(pairs: PairVariance, share: Floats, used: Floats, noise: Floats) -> _PairsPart:
    freedom = np.where(pairs.freedom > 0, pairs.freedom, np.inf)
    return _PairsPart(
        kept=1.0 - used,
        sampling=share * used * (pairs.variance - noise),
        scatter=share * (used * pairs.variance) ** 2 / freedom,
    )


def _arm_mean(side: _Side, weight: Floats, pairs: _PairsPart, *, neyman: bool) -> ArmMean:
    total, n = side.by_group(weight), side.n_units
    paired = side.over_strata(side.share**2 * pairs.sampling)
    factor = _variance_factor(side, pairs)
    if neyman:
        spread, uncertainty = _sample_variance(side), np.zeros(side.n_groups)
        sampling = side.over_strata(factor * spread) + paired
    else:
        spread, sampling = _outcome_variance(side, weight, factor, paired)
        uncertainty = side.square_noise(factor * n / (n - 1.0))
    scatter = side.share**4 * pairs.scatter + (factor * spread) ** 2 / (n - 1.0)
    return ArmMean(
        mean=total.value,
        variance=sampling if neyman else sampling + total.noise,
        noise=total.noise,
        scatter=side.over_strata(scatter) + uncertainty / 2.0,
        fourth=total.fourth,
        sampling=sampling,
        uncertainty=uncertainty,
        spread=spread,
    )


def _variance_factor(side: _Side, pairs: _PairsPart) -> Floats:
    """Return the factor of Ŝ² in the variance, for every stratum: b²/n times ``pairs.kept``.

    Where squares are known of whole arms alone, and of no units, nothing tells the mean squares of
    strata apart. Σ k_s n_s σ_s², k = b²/(n (n − 1)), is then taken with the greatest k of all
    strata. This is never less than the sum itself. Where an arm has the same share of every
    stratum the two are equal, except for n − 1 in place of n.
    """
    n, evidence = side.n_units, side.evidence
    factor = side.share**2 * pairs.kept / n
    if evidence.has_units or evidence.pools.square_cell is None:
        return factor
    greatest = np.zeros(side.n_groups)
    np.maximum.at(greatest, side.group, factor / (n - 1.0))
    return greatest[side.group] * (n - 1.0)


def _from_mean(side: _Side) -> Floats:
    """Return each slice's debiased mean less its stratum's; 0 where they differ by rounding."""
    mean = side.mean.mean
    stratum_mean = side.in_stratum(side.part * mean)[side.stratum]
    deviation: Floats = mean - stratum_mean
    rounding = np.abs(deviation) < 1e-12 * np.abs(stratum_mean)
    deviation[rounding] = 0.0
    return deviation


def _sample_variance(side: _Side) -> Floats:
    """Return s² of the debiased outcomes in every stratum; the noise is in it already."""
    n = side.slices.n_units
    within = side.slices.variance / (1.0 - side.evidence.rate) ** 2
    squares = side.in_stratum((n - 1.0) * within + n * _from_mean(side) ** 2)
    return squares / (side.n_units - 1.0)


def _outcome_variance(
    side: _Side, weight: Floats, factor: Floats, paired: Floats
) -> tuple[Floats, Floats]:
    """Return Ŝ² of every stratum for degrees of freedom, and Σ ``factor`` Ŝ² + ``paired``.

    The sum, one for every group, adds up the Ŝ² as they are; then the sum is brought between its
    bounds.
    """
    evidence, n = side.evidence, side.n_units
    mean, square = side.by_stratum(weight), side.squares_by_stratum()
    inside = np.clip(mean.value, evidence.lowest, evidence.highest)
    by_width = np.full_like(n, ((evidence.highest - evidence.lowest) / 2.0) ** 2)
    by_mean = (evidence.highest - inside) * (inside - evidence.lowest) + mean.noise
    most = np.minimum(by_mean, by_width)
    variance = square.value - mean.value**2 + mean.noise if evidence.knows_squares else most
    correction = n / (n - 1.0)
    full_factor = side.share**2 * correction / n
    limit = np.minimum(
        side.over_strata(full_factor * by_mean), side.over_strata(full_factor * by_width)
    )
    total = side.over_strata(factor * correction * variance)
    total_factor = side.over_strata(factor)
    average = np.clip(total, 0.0, limit) / np.where(total_factor > 0, total_factor, 1.0)
    noise = np.maximum(square.noise - _ROUNDING * by_width**2, 0.0) * correction**2
    spread = _shrink(variance * correction, average[side.group], noise)
    return np.clip(spread, 0.0, most * correction), np.clip(total + paired, 0.0, limit)


def _shrink(variance: Floats, average: Floats, noise: Floats) -> Floats:
    """Shrink Ŝ² of strata to their average: S̄² + (Ŝ² − S̄²) S̄⁴/(S̄⁴ + V_A), V_A being ``noise``.

    For degrees of freedom alone. Ŝ² that are mostly noise, squared, would leave none.
    """
    total = average**2 + noise
    share = np.divide(average**2, total, out=np.ones_like(total), where=total > 0)
    return average + (variance - average) * share
