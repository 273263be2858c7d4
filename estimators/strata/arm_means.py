"""One arm's mean in the strata of a contrast, with its variance and what that rests on.

Variances, calibration by the pools' statistics and small clusters are ours; see docs/method.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from estimators.strata import assigned
from estimators.strata.collapsed_strata import pair_variance
from estimators.strata.contrast_strata import ArmSlices, ContrastStrata
from estimators.strata.evidence import Debiased, Evidence, Slices, Sums, calibrate, sum_by
from estimators.strata.parties import Parties
from estimators.strata.shares import Between, Shares, StratumMeans, between
from schemas.arrays import Floats, Ints


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

    def with_parties(self, more: assigned.Added) -> "ArmMean":
        """Return the mean with what units that were assigned together add to its variance."""
        scatter = self.scatter * more.stretch + more.scatter
        return replace(self, variance=self.variance + more.variance, scatter=scatter)


_ROUNDING = 1e-9
"""Noise in a square below this share of (y_K − y_1)⁴/16 is an error of rounding."""


@dataclass(frozen=True)
class OutcomeVariance:
    """Ŝ² (n − 1)/n of every stratum, as it is, and the most it can be; shape [S] each."""

    value: Floats
    by_mean: Floats
    """The most that the grid allows, by the mean."""
    by_width: Floats
    """The most that it allows whatever the mean."""
    noise: Floats
    """The variance that noise gives ``value``."""


class Side(ABC):
    """One arm's slices in the strata of a contrast, to be summed up by stratum or group."""

    def __init__(
        self,
        slices: Slices,
        mean: Debiased,
        rows: ArmSlices,
        group: Ints,
        shares: Shares,
        n_groups: int,
        weight: Floats,
    ) -> None:
        """Take an arm's ``slices`` with their means; ``rows`` says where they are and belong.

        ``group`` is that of each stratum, and ``shares`` what it counts for in the arm's mean;
        ``weight`` is that of the pools' statistics, shape [P].
        """
        self.slices, self.mean = slices, mean
        self.rows, self.stratum, self.group = rows.rows, rows.stratum, group
        self.shares, self.n_groups, self.weight = shares, n_groups, weight
        self.n_units = sum_by(rows.stratum, slices.n_units, len(group))
        self.part = slices.n_units / self.n_units[rows.stratum]

    @property
    @abstractmethod
    def estimate(self) -> Sums:
        """The arm's mean in every group, by all that is published of means."""

    @abstractmethod
    def by_group(self, share: Floats) -> Sums:
        """Return the arm's mean in every group, strata counting for ``share``, shape [S].

        That is by units and pools' statistics alone, as are means of strata.
        """

    @property
    @abstractmethod
    def of_strata(self) -> Sums:
        """The mean of every stratum."""

    @abstractmethod
    def sample_variance(self) -> Floats:
        """Return s² of the debiased outcomes in every stratum; the noise is in it already."""

    @abstractmethod
    def outcome_variance(self) -> OutcomeVariance:
        """Return the variance of the outcomes in every stratum, without that of their noise."""

    @abstractmethod
    def square_noise(self, factor: Floats) -> Floats:
        """Return V_A of Σ ``factor`` Â in every group; ``factor`` has the shape [S]."""

    @property
    def share(self) -> Floats:
        """What every stratum counts for in the arm's mean, shape [S]."""
        return self.shares.value

    @property
    def knows_strata(self) -> bool:
        """Whether the squares of outcomes are known stratum by stratum."""
        return True

    def deviations(self) -> Floats:
        """Return how far each slice's debiased mean is from its stratum's; 0 where rounding is."""
        mean = self.mean.mean
        stratum_mean = self.in_stratum(self.part * mean)[self.stratum]
        deviation = mean - stratum_mean
        rounding = np.abs(deviation) < 1e-12 * np.abs(stratum_mean)
        deviation[rounding] = 0.0
        return deviation

    def over_strata(self, values: Floats) -> Floats:
        """Add up values of strata by group."""
        return sum_by(self.group, values, self.n_groups)

    def in_stratum(self, values: Floats) -> Floats:
        """Add up values of slices by stratum."""
        return sum_by(self.stratum, values, len(self.group))


class OutcomeSide(Side):
    """One arm's slices of an outcome."""

    def __init__(
        self,
        evidence: Evidence,
        rows: ArmSlices,
        strata: ContrastStrata,
        shares: Shares,
        n_groups: int,
        weight: Floats,
        *,
        by_margins: bool,
    ) -> None:
        """Take the ``rows`` of an arm among the evidence's slices; the rest as in :class:`Side`.

        ``by_margins`` says whether the sums of declared cells are used, where there are any.
        """
        slices, mean = evidence.slices.take(rows.rows), evidence.mean.take(rows.rows)
        super().__init__(slices, mean, rows, strata.group, shares, n_groups, weight)
        self.evidence, self.by_margins = evidence, by_margins
        cell = evidence.pools.square_cells(slices.pool)
        self.by_square = replace(slices, pool=cell)
        self.square = evidence.square.take(rows.rows)

    @property
    def knows_strata(self) -> bool:
        """Whether the squares of outcomes are known stratum by stratum."""
        return self.evidence.has_units or self.evidence.pools.square_cell is None

    @cached_property
    def estimate(self) -> Sums:
        """The arm's mean in every group, by all that is published of means."""
        plain, margins = self.by_group(self.share), self.evidence.margins
        if not self.by_margins or margins is None or not len(self.rows):
            return plain
        target, share = self.group[self.stratum], self.share[self.stratum] * self.part
        return margins.calibrate(plain, self.rows, target, share, self.slices, self.mean)

    def by_group(self, share: Floats) -> Sums:
        """Return the arm's mean in every group, strata counting for ``share``, shape [S]."""
        target, of_slices = self.group[self.stratum], share[self.stratum] * self.part
        return self._means(target, self.n_groups, of_slices)

    @cached_property
    def of_strata(self) -> Sums:
        """The mean of every stratum."""
        return self._means(self.stratum, len(self.group), self.part)

    def _means(self, target: Ints, size: int, share: Floats) -> Sums:
        statistic, whole = self.evidence.pools.of_mean, self.evidence.whole_mean
        return calibrate(target, size, share, self.slices, self.mean, whole, statistic, self.weight)

    def square_noise(self, factor: Floats) -> Floats:
        """Return V_A of Σ ``factor`` Â in every group; ``factor`` has the shape [S]."""
        share = factor[self.stratum] * self.part
        return self._squares(self.group[self.stratum], self.n_groups, share).noise

    def _squares(self, target: Ints, size: int, share: Floats) -> Sums:
        statistic, whole = self.evidence.pools.of_square, self.evidence.whole_square
        weight = statistic.weight
        return calibrate(target, size, share, self.by_square, self.square, whole, statistic, weight)

    def sample_variance(self) -> Floats:
        """Return s² of the debiased outcomes in every stratum; the noise is in it already."""
        n = self.slices.n_units
        within = self.slices.variance / (1.0 - self.evidence.rate) ** 2
        squares = self.in_stratum((n - 1.0) * within + n * self.deviations() ** 2)
        return squares / (self.n_units - 1.0)

    def outcome_variance(self) -> OutcomeVariance:
        """Return the variance of the outcomes in every stratum, without that of their noise."""
        evidence = self.evidence
        mean = self.of_strata
        square = self._squares(self.stratum, len(self.group), self.part)
        inside = np.clip(mean.value, evidence.lowest, evidence.highest)
        width = np.full_like(self.n_units, ((evidence.highest - evidence.lowest) / 2.0) ** 2)
        by_mean = (evidence.highest - inside) * (inside - evidence.lowest) + mean.noise
        known = square.value - mean.value**2 + mean.noise
        return OutcomeVariance(
            value=known if evidence.knows_squares else np.minimum(by_mean, width),
            by_mean=by_mean,
            by_width=width,
            noise=square.noise,
        )


@dataclass(frozen=True)
class _PairsPart:
    """An arm's part of the variance as pairs of merged clusters show it; shape [S] each."""

    kept: Floats
    """The share of Ŝ²/n that stays as it is: 1 except in merged strata."""
    sampling: Floats
    """The variance of the stratum's mean that takes the place of the rest."""
    scatter: Floats
    """Half the variance of ``sampling``."""


def means_of_sides(
    strata: ContrastStrata,
    sides: Sequence[Side],
    parties: Parties | None,
    *,
    neyman: bool,
    by_pairs: bool,
) -> list[ArmMean]:
    """Return the mean of each side; ``neyman`` for τ̂_Q, whose sample variances hold the noise.

    ``by_pairs`` says whether merged clusters are compared in pairs: for the treated side and the
    control's, in that order. ``parties`` are the units that were assigned together, of the outcomes
    that the sides sum up; None where each was by itself.
    """
    nothing = [np.zeros_like(side.n_units) for side in sides]
    parts = [_PairsPart(none + 1.0, none, none) for none in nothing]
    if by_pairs and len(strata.merged.pair):
        treated, control = sides
        parts = _split_pairs(strata, treated, control, neyman=neyman)
    plain = [_arm_mean(side, part, neyman=neyman) for side, part in zip(sides, parts, strict=True)]
    if parties is None:
        return plain
    return _with_parties(parties, strata, sides, parts, plain, neyman=neyman)


def _with_parties(
    parties: Parties,
    strata: ContrastStrata,
    sides: Sequence[Side],
    parts: Sequence[_PairsPart],
    plain: Sequence[ArmMean],
    *,
    neyman: bool,
) -> list[ArmMean]:
    """Return the arms' means with what parties add to their variances.

    That is tau_q's (:func:`estimators.strata.assigned.added`) for every estimator.
    """
    given = [
        assigned.ArmSide(
            rows=side.rows,
            stratum=side.stratum,
            from_mean=side.deviations(),
            n_units=side.n_units,
            mean=side.in_stratum(side.part * side.mean.mean),
            spread=side.sample_variance(),
            kept=part.kept,
            sampling=None
            if neyman  # else without what pairs of merged clusters show
            else np.maximum(mean.sampling - side.over_strata(side.share**2 * part.sampling), 0.0),
        )
        for side, part, mean in zip(sides, parts, plain, strict=True)
    ]
    more = assigned.added(parties, strata.group, sides[0].share, given, sides[0].n_groups)
    return [mean.with_parties(one) for mean, one in zip(plain, more, strict=True)]


def _split_pairs(
    strata: ContrastStrata, treated: Side, control: Side, *, neyman: bool
) -> list[_PairsPart]:
    """Split the variance of pairs between the arms, in the ratio of their s²/n."""
    sides = (treated, control)
    means = (treated.mean.mean, control.mean.mean)
    pairs = pair_variance(strata, treated.slices, control.slices, means)
    used = np.where(pairs.freedom > 0, 1.0, 0.0)
    noise = np.zeros_like(used)
    if not neyman:
        for side in sides:
            used = used * (1.0 - side.in_stratum(side.part * side.weight[side.slices.pool]))
            noise = noise + side.in_stratum(side.part**2 * side.mean.noise)
    variances = [side.sample_variance() / side.n_units for side in sides]
    both = variances[0] + variances[1]
    share = np.divide(variances[0], both, out=np.full_like(both, 0.5), where=both > 0)
    return [
        _PairsPart(
            kept=1.0 - used,
            sampling=part * used * (pairs.variance - noise),
            scatter=part * (used * pairs.variance) ** 2 / (pairs.freedom + 2.0),
        )
        for part in (share, 1.0 - share)
    ]


def _arm_mean(side: Side, pairs: _PairsPart, *, neyman: bool) -> ArmMean:
    total, n = side.estimate, side.n_units
    factor = _variance_factor(side, pairs)
    uncertainty = more = np.zeros(side.n_groups)
    if neyman:
        spread = side.sample_variance()
        sampling = side.over_strata(factor * spread + side.share**2 * pairs.sampling)
    else:
        spread, sampling, more = _bounded(side, factor, pairs)
        uncertainty = side.square_noise(factor * n / (n - 1.0))
    scatter = side.share**4 * pairs.scatter + (factor * spread) ** 2 / (n + 1.0)
    return ArmMean(
        mean=total.value,
        variance=sampling if neyman else sampling + total.noise,
        noise=total.noise,
        scatter=side.over_strata(scatter) + more + uncertainty / 2.0,
        fourth=total.fourth,
        sampling=sampling,
        uncertainty=uncertainty,
        spread=spread,
    )


def _variance_factor(side: Side, pairs: _PairsPart) -> Floats:
    """Return the factor of Ŝ² in the variance, for every stratum: b²/n times ``pairs.kept``.

    Where squares are known of whole arms alone, and of no units, nothing tells the mean squares of
    strata apart. Σ k_s n_s σ_s², k = b²/(n (n − 1)), is then taken with the greatest k of all
    strata. This is never less than the sum itself. Where an arm has the same share of every
    stratum the two are equal, except for n − 1 in place of n.
    """
    n = side.n_units
    factor = side.share**2 * pairs.kept / n
    if side.knows_strata:
        return factor
    greatest = np.zeros(side.n_groups)
    np.maximum.at(greatest, side.group, factor / (n - 1.0))
    return greatest[side.group] * (n - 1.0)


def _bounded(side: Side, factor: Floats, pairs: _PairsPart) -> tuple[Floats, Floats, Floats]:
    """Return Ŝ² of every stratum for degrees of freedom, and Σ ``factor`` Ŝ² + what pairs show.

    The sum, one for every group, adds up the Ŝ² as they are, and what strata differ by
    (:func:`~estimators.strata.shares.between`); then the sum is brought between its bounds. What
    pairs show is not: it is as often too great as too small, and is right on average. Last comes
    half the variance of what strata differ by.
    """
    n, found = side.n_units, side.outcome_variance()
    correction = n / (n - 1.0)
    full_factor = side.share**2 * pairs.kept * correction / n
    limit = np.minimum(
        side.over_strata(full_factor * found.by_mean),
        side.over_strata(full_factor * found.by_width),
    )
    within = side.over_strata(factor * correction * found.value)
    total_factor = side.over_strata(factor)
    average = np.clip(within, 0.0, limit) / np.where(total_factor > 0, total_factor, 1.0)
    noise = np.maximum(found.noise - _ROUNDING * found.by_width**2, 0.0) * correction**2
    spread = _shrink(found.value * correction, average[side.group], noise)
    most = np.minimum(found.by_mean, found.by_width) * correction
    inside = np.clip(spread, 0.0, most)
    apart = _between(side, found.value * correction, inside, found.by_width * correction)
    limit = limit + np.clip(apart.variance, 0.0, apart.most)
    total = np.clip(within + apart.variance, 0.0, limit)
    paired = side.over_strata(side.share**2 * pairs.sampling)
    return inside, np.maximum(total + paired, 0.0), apart.scatter


def _between(side: Side, spread: Floats, inside: Floats, widest: Floats) -> Between:
    """Return what strata differ by; Ŝ² are ``spread``, brought between bounds ``inside``."""
    if not side.shares.own.any():
        return Between(*np.zeros((3, side.n_groups)))
    mean = side.of_strata
    means = StratumMeans(
        mean=mean.value,
        noise=mean.noise,
        sampling=spread / side.n_units,
        inside=inside / side.n_units,
        widest=widest,
        center_noise=side.by_group(side.shares.own).noise,
    )
    return between(side.shares, side.group, means)


def _shrink(variance: Floats, average: Floats, noise: Floats) -> Floats:
    """Shrink Ŝ² of strata to their average: S̄² + (Ŝ² − S̄²) S̄⁴/(S̄⁴ + V_A), V_A being ``noise``.

    For degrees of freedom alone. Ŝ² that are mostly noise, squared, would leave none.
    """
    total = average**2 + noise
    share = np.divide(average**2, total, out=np.ones_like(total), where=total > 0)
    return average + (variance - average) * share
