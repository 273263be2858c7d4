"""Ratios of two outcomes' means, clicks per view say: arms' ratios and how they differ.

A ratio ρ = μ_N/μ_D of the means of a numerator and a denominator is estimated by ρ̂ = μ̂_N/μ̂_D. To
first order ρ̂ − ρ is the mean of ℓ = (v_N − ρ v_D)/μ_D, v being debiased outcomes, so its variance
is that of ℓ (the delta method; Deng, Knoblich and Lu 2018; Cochran 1977, §6). What is known of the
outcomes' covariance is the sample covariance of v_N and v_D: noise of different outcomes is drawn
independently, so it adds to variances and not to this. Where the denominator is close to zero,
Fieller's intervals (1954) take the place of the delta method, and those of two arms are put
together by the method of variance estimates recovery (Zou and Donner 2008).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import sqrt

import numpy as np

from estimators.arm_effects import Contrasts, Estimate, added, blank, degrees, to_estimates
from estimators.intervals import Law, excess_kurtosis, interval_of
from estimators.means import EstimatorName, Mean, estimators_of, outcome_side
from estimators.strata.arm_means import ArmMean, OutcomeSide, OutcomeVariance, Side, means_of_sides
from estimators.strata.assigned import residuals
from estimators.strata.contrast_strata import ArmSlices, ContrastStrata, contrast_strata
from estimators.strata.evidence import Debiased, Evidence, Sums, sum_by
from estimators.strata.parties import Parties
from schemas.arrays import Bools, Floats

SURE_ERRORS = 10.0
"""From so many standard errors on a denominator is sure, and the delta method is used.

At 3 to 5 of them its intervals hold the truth in 97 to 99 % of releases, far too often; those put
together from Fieller's in 95 to 97 %.
"""

LEVEL = 0.95
"""The level at which a denominator has to be told from zero for an arm's ratio to be stated."""

_ROUNDING = 1e-12
"""A denominator of no more than this share of its grid's width is zero."""


@dataclass(frozen=True)
class RatioEvidence:
    """What a release tells of a numerator and a denominator, over the same slices."""

    metric: str
    """Name of the ratio."""
    numerator: Evidence
    denominator: Evidence
    covariance: Floats
    """Sample covariance of the two *debiased* outcomes over each slice (divisor n − 1), shape [R].

    0 where n = 1.
    """
    products: Floats | None = None
    """Of units assigned together, Σ D_N D_D/(1 − h) over the parties in one slice, shape [R].

    As in :class:`estimators.strata.parties.Nested`; None where each unit was assigned by itself.
    """

    @property
    def estimators(self) -> list[EstimatorName]:
        """The estimators that both outcomes have: ``tau_q``, and ``combined`` where published."""
        of_both = [estimators_of(part, whole=False) for part in (self.numerator, self.denominator)]
        return [name for name in of_both[0] if name in of_both[1]]


@dataclass(frozen=True)
class ArmRatio:
    """One arm's ratio in every group, shape [G]; NaN where the denominator is 0."""

    ratio: Floats
    variance: Floats
    """By the delta method."""
    lower: Floats
    """Fieller's interval, by the contrast's degrees of freedom and the ratio's own kurtosis."""
    upper: Floats
    is_sure: Bools
    """Whether the denominator is far enough from zero for the delta method."""
    is_told: Bools
    """Whether the denominator is told from zero at all: else Fieller's set is no interval."""
    fourth: Floats
    """Fourth cumulant of the statistics' noise in ℓ."""


@dataclass(frozen=True)
class RatioContrasts(Contrasts):
    """The difference of two arms' ratios, ρ̂_1 − ρ̂_0, in every group; shape [G] each.

    ``variance`` is that of the delta method, also where a denominator is not sure. NaN where a
    denominator is not told from zero.
    """

    treated: ArmRatio
    control: ArmRatio

    def columns(self, level: float) -> dict[str, Floats]:
        """Return the numbers of :class:`~estimators.arm_effects.Estimate` by name, shape [G].

        Where a denominator is not sure, bounds are put together from Fieller's:
        d̂ − √((ρ̂_1 − l_1)² + (u_0 − ρ̂_0)²), d̂ = ρ̂_1 − ρ̂_0, and likewise above. The p-value is then
        that of the standard error which the bound on the side of zero implies, √(…)/x, so it is
        below 1 − ``level`` where the interval leaves out zero. There is no power and no relative
        effect: the delta method, on which they rest, does not hold.
        """
        found = super().columns(level)
        is_sure = self.treated.is_sure & self.control.is_sure
        below = np.hypot(
            self.treated.ratio - self.treated.lower, self.control.upper - self.control.ratio
        )
        above = np.hypot(
            self.treated.upper - self.treated.ratio, self.control.ratio - self.control.lower
        )
        law = self.law
        reach = law.quantile(level)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # at a level of 1e-300
            implied = (np.where(self.estimate > 0, below, above) / reach) ** 2
            at_zero = interval_of(self.estimate, implied, law, level)
        unsure = {
            "ci_lower": self.estimate - below,
            "ci_upper": self.estimate + above,
            "p_value": at_zero.p_value,
        }
        for name in ("minimum_detectable_effect", "relative"):
            unsure[name] = np.full_like(self.estimate, np.nan)
        for end in ("lower", "upper"):
            unsure[f"relative_ci_{end}"] = np.full_like(self.estimate, np.nan)
        return found | {
            name: np.where(is_sure, found[name], instead) for name, instead in unsure.items()
        }


def ratio_effects(
    evidence: RatioEvidence,
    arms: Sequence[str],
    control: str,
    groups: Sequence[str | None],
    *,
    same_shares: bool,
    level: float = 0.95,
) -> list[Estimate]:
    """Estimate how every arm's ratio differs from that of ``control``, in every group.

    Arguments, order and rows are those of :func:`estimators.arm_effects.effects`; there is no
    histogram estimator. ``control_mean`` is the control's ratio, and the relative effect ρ̂_1/ρ̂_0
    − 1. Where a denominator is not told from zero, in either arm, the numbers are None.
    """
    treatments = [position for position, arm in enumerate(arms) if arm != control]
    if not treatments:
        return []
    reference = list(arms).index(control)
    meant = replace(evidence.numerator, metric=evidence.metric)
    compared = [arms[arm] for arm in treatments]
    results: list[Estimate] = []
    for name in evidence.estimators:
        by_arm = [
            ratio_contrasts(
                evidence, name, arm, reference, len(groups), same_shares=same_shares, level=level
            )
            for arm in treatments
        ]
        results += to_estimates(meant, by_arm, compared, control, groups, name, level)
    return results


def ratio_warnings(estimates: Sequence[Estimate]) -> tuple[str, ...]:
    """Sentences about ratios without numbers though people are compared, one for each ratio."""
    hidden: dict[str, list[str]] = {}
    for one in estimates:
        if one.estimate is None and one.n_units > 0:
            where = "" if one.segment is None else f" in {one.segment}"
            hidden.setdefault(one.metric, []).append(f"{one.arm} ({one.estimator}){where}")
    return tuple(
        f"{metric}: no numbers for {found[0]}"
        + (f" and {len(found) - 1:,} more" if len(found) > 1 else "")
        + ": the mean below the line is not told from zero, in this arm or in control, so the "
        "ratio could be anything; look at the two outcomes by themselves"
        for metric, found in hidden.items()
    )


def ratio_means(evidence: RatioEvidence, arms: Sequence[str], *, same_shares: bool) -> list[Mean]:
    """Estimate the ratio of each of ``arms``, with the standard error of the delta method.

    Numerator and denominator are the means that :func:`estimators.means.means` gives. An arm whose
    denominator is not told from zero has no row. ``evidence`` is of the whole.
    """
    results: list[Mean] = []
    for name in evidence.estimators:
        for code, arm in enumerate(arms):
            strata = contrast_strata(evidence.numerator.slices, code, code, same_shares=same_shares)
            if not len(strata.weight):
                continue
            total = sum_by(strata.group, strata.weight, 1)
            both = _BothMeans(evidence, name, strata, total, (strata.treated,), by_pairs=False)
            (linear,) = both.linear
            (found,) = both.ratios(degrees(linear.variance, linear.scatter), LEVEL)
            if found.is_told[0]:
                error = sqrt(float(found.variance[0]))
                results.append(Mean(evidence.metric, arm, name, float(found.ratio[0]), error))
    return results


def ratio_contrasts(
    evidence: RatioEvidence,
    estimator: EstimatorName,
    arm: int,
    control: int,
    n_groups: int,
    *,
    same_shares: bool,
    level: float,
) -> RatioContrasts:
    """Return ρ̂_1 − ρ̂_0 in every group, ρ̂_a = μ̂_N,a/μ̂_D,a.

    V̂ = V̂(ℓ_1) + V̂(ℓ_0), where V̂(ℓ_a) = [V_N + ρ̂²V_D − 2ρ̂ C_ND]/μ̂_D² is what
    :func:`estimators.arm_effects.contrasts` computes, of ℓ_a = (v_N − ρ̂_a v_D)/μ̂_D,a in place of v:

    - ``tau_q``: the sample variance of ℓ in every stratum, of pairs where clusters are merged;
    - ``combined``: Ŝ²(ℓ) = [Ŝ²_N + ρ̂²Ŝ²_D − 2ρ̂ s(v_N, v_D)]/μ̂_D², and the noise of both means. In
      Ŝ² the sample covariance is noisier than the squares: it adds s²_N s²_D/(n − 1), less what
      sampling gives it, to the variance of Ŝ²(ℓ), which degrees of freedom count.

    Strata, their weights and the arms' means are the same as for the outcomes themselves.
    ``level`` is that of Fieller's intervals.
    """
    strata = contrast_strata(evidence.numerator.slices, arm, control, same_shares=same_shares)
    total = sum_by(strata.group, strata.weight, n_groups)
    rows = (strata.treated, strata.control)
    both = _BothMeans(evidence, estimator, strata, total, rows, by_pairs=True)
    treated, reference = both.linear
    variance, noise, freedom = added(treated, reference)
    of_treated, of_control = both.ratios(np.where(np.isnan(freedom), np.inf, freedom), level)
    contrast = Contrasts(
        estimate=of_treated.ratio - of_control.ratio,
        variance=variance,
        noise_variance=noise,
        degrees_of_freedom=freedom,
        n_units=total,
        treated_mean=of_treated.ratio,
        treated_variance=of_treated.variance,
        control_mean=of_control.ratio,
        control_variance=of_control.variance,
        treated_fourth=of_treated.fourth,
        control_fourth=of_control.fourth,
    )
    empty = (total == 0) | ~of_treated.is_told | ~of_control.is_told
    stated = blank(contrast, empty)
    return RatioContrasts(**vars(stated), treated=of_treated, control=of_control)


@dataclass(frozen=True)
class _ArmMeans:
    """The means of numerator and denominator of one arm in the strata of a contrast."""

    sides: tuple[OutcomeSide, OutcomeSide]
    rows: ArmSlices
    covariance: Floats
    """Of the debiased outcomes in each of the arm's slices."""
    above: Floats
    """μ̂_N in every group; shape [G], likewise:"""
    below: Floats
    spread: Floats
    """V_D."""
    is_zero: Bools
    """Whether μ̂_D is zero but for rounding."""


class _BothMeans:
    """The means of numerator and denominator in the strata of a contrast, arm by arm."""

    def __init__(
        self,
        evidence: RatioEvidence,
        estimator: EstimatorName,
        strata: ContrastStrata,
        total: Floats,
        rows: Sequence[ArmSlices],
        *,
        by_pairs: bool,
    ) -> None:
        self._evidence, self._strata = evidence, strata
        self._sum = partial(means_of_sides, strata, neyman=estimator == "tau_q", by_pairs=by_pairs)
        outcomes = (evidence.numerator, evidence.denominator)
        self._widths = [part.highest - part.lowest for part in outcomes]
        of_outcomes = [
            [outcome_side(part, estimator, strata, of_arm, total) for of_arm in rows]
            for part in outcomes
        ]
        spreads = self._sum(of_outcomes[1], evidence.denominator.parties)
        self._arms = []
        for of_arm, above, below, found in zip(rows, *of_outcomes, spreads, strict=True):
            mean = below.estimate.value + evidence.denominator.center
            least = np.maximum(np.sqrt(found.variance), _ROUNDING * self._widths[1])
            self._arms.append(
                _ArmMeans(
                    sides=(above, below),
                    rows=of_arm,
                    covariance=evidence.covariance[of_arm.rows],
                    above=above.estimate.value + evidence.numerator.center,
                    below=mean,
                    spread=found.variance,
                    is_zero=np.abs(mean) <= least,
                )
            )

    @cached_property
    def linear(self) -> list[ArmMean]:
        """The mean of ℓ in every arm, which is 0, and its variance."""
        factors = []
        for arm in self._arms:
            scale = 1.0 / np.where(arm.is_zero, 1.0, arm.below)
            factors.append((scale, -arm.above * scale * scale))
        return self._combine(factors)

    def ratios(self, freedom: Floats, level: float) -> list[ArmRatio]:
        """Return every arm's ratio; ``freedom`` are the degrees of freedom of its interval."""
        is_sure = [np.abs(arm.below) >= SURE_ERRORS * np.sqrt(arm.spread) for arm in self._arms]
        covariances = self._covariances() if not np.all(is_sure) else None
        ratios = []
        for at, (arm, linear) in enumerate(zip(self._arms, self.linear, strict=True)):
            below = np.where(arm.is_zero, 1.0, arm.below)
            ratio = arm.above / below
            law = Law(freedom, excess_kurtosis(linear.variance, linear.fourth))
            square = law.quantile(level) ** 2
            lower = upper = np.full_like(ratio, np.nan)
            is_told = ~arm.is_zero & (below**2 > square * arm.spread)
            if covariances is not None:
                of_arm = (*covariances[at], arm.spread)
                lower, upper = fieller((arm.above, below), of_arm, square)
            ratios.append(
                ArmRatio(
                    ratio=np.where(arm.is_zero, np.nan, ratio),
                    variance=linear.variance,
                    lower=lower,
                    upper=upper,
                    is_sure=is_sure[at] & is_told,
                    is_told=is_told,
                    fourth=linear.fourth,
                )
            )
        return ratios

    def _covariances(self) -> list[tuple[Floats, Floats]]:
        """Return V_N and C_ND of every arm, from the variances of N, D and N/w_N + D/w_D.

        w are the widths of the grids, so that none of the two drowns in the other.
        """
        numerators = self._sum(
            [arm.sides[0] for arm in self._arms], self._evidence.numerator.parties
        )
        above, below = self._widths
        ones = np.ones_like(numerators[0].variance)
        of_sum = self._combine([(ones / above, ones / below)] * len(self._arms))
        found = []
        for arm, numerator, both in zip(self._arms, numerators, of_sum, strict=True):
            product = both.variance - numerator.variance / above**2 - arm.spread / below**2
            most = np.sqrt(numerator.variance * arm.spread)
            covariance = np.clip(0.5 * above * below * product, -most, most)
            found.append((numerator.variance, covariance))
        return found

    def _combine(self, factors: Sequence[tuple[Floats, Floats]]) -> list[ArmMean]:
        """Return the means of f_N v_N + f_D v_D, less a constant; a pair of f for every arm."""
        sides = [
            _CombinedSide(*arm.sides, arm.rows, arm.covariance, of_arm)
            for arm, of_arm in zip(self._arms, factors, strict=True)
        ]
        return self._sum(sides, self._parties(factors))

    def _parties(self, factors: Sequence[tuple[Floats, Floats]]) -> Parties | None:
        """Return the parties of f_N v_N + f_D v_D; slices of other arms have f = 0."""
        above, below = self._evidence.numerator.parties, self._evidence.denominator.parties
        if above is None or below is None or self._evidence.products is None:
            return None
        scale, ratio = np.zeros((2, len(self._evidence.covariance)))
        for arm, (of_numerator, of_denominator) in zip(self._arms, factors, strict=True):
            group = self._strata.group[arm.rows.stratum]
            scale[arm.rows.rows] = of_numerator[group]
            ratio[arm.rows.rows] = -of_denominator[group] / of_numerator[group]
        found = residuals(above, below, self._evidence.products, ratio)
        nested = replace(found.nested, products=scale**2 * found.nested.products)
        return replace(found, deviation=scale[found.slice] * found.deviation, nested=nested)


def fieller(
    means: tuple[Floats, Floats], covariance: tuple[Floats, Floats, Floats], square: Floats
) -> tuple[Floats, Floats]:
    """Return the ends of Fieller's interval: all r with (μ̂_N − r μ̂_D)² ≤ x² V̂(μ̂_N − r μ̂_D).

    ``means`` are μ̂_N and μ̂_D, ``covariance`` V_N, C_ND and V_D, and ``square`` x². NaN where μ̂_D is
    not told from zero, so that the set is no interval.
    """
    above, below = means
    of_above, product, of_below = covariance
    a = below**2 - square * of_below
    b = above * below - square * product
    c = above**2 - square * of_above
    root = np.sqrt(np.maximum(b * b - a * c, 0.0))
    divisor = np.where(a > 0, a, np.nan)
    return (b - root) / divisor, (b + root) / divisor


class _CombinedSide(Side):
    """One arm's slices of ℓ = f_N v_N + f_D v_D, f being one number a group.

    Means, variances and noise are those of :class:`Side`, of ℓ.
    """

    def __init__(
        self,
        numerator: OutcomeSide,
        denominator: OutcomeSide,
        rows: ArmSlices,
        covariance: Floats,
        factors: tuple[Floats, Floats],
    ) -> None:
        """Combine two outcomes; ``factors`` are f_N and f_D, shape [G] each."""
        self._parts = (numerator, denominator)
        self._covariance, self._factors = covariance, factors
        self._in_strata = tuple(factor[numerator.group] for factor in factors)
        above, below = (factor[numerator.stratum] for factor in self._in_strata)
        mean = Debiased(
            above * numerator.mean.mean + below * denominator.mean.mean,
            above**2 * numerator.mean.noise + below**2 * denominator.mean.noise,
        )
        super().__init__(
            slices=numerator.slices,
            mean=mean,
            rows=rows,
            group=numerator.group,
            shares=numerator.shares,
            n_groups=numerator.n_groups,
            weight=np.maximum(numerator.weight, denominator.weight),
        )

    @property
    def estimate(self) -> Sums:
        return self._joined(self._factors, (part.estimate for part in self._parts))

    def by_group(self, share: Floats) -> Sums:
        return self._joined(self._factors, (part.by_group(share) for part in self._parts))

    @property
    def of_strata(self) -> Sums:
        return self._joined(self._in_strata, (part.of_strata for part in self._parts))

    @staticmethod
    def _joined(factors: tuple[Floats, ...], parts: Iterable[Sums]) -> Sums:
        (above, below), (first, second) = factors, parts
        return Sums(
            value=above * first.value + below * second.value,
            noise=above**2 * first.noise + below**2 * second.noise,
            fourth=above**4 * first.fourth + below**4 * second.fourth,
        )

    def sample_variance(self) -> Floats:
        (above, below), (first, second) = self._in_strata, self._sample_variances
        both = above**2 * first + below**2 * second + 2.0 * above * below * self._product
        return np.maximum(both, 0.0)

    def outcome_variance(self) -> OutcomeVariance:
        (above, below), (first, second) = self._in_strata, self._outcome_variances
        fewer = (self.n_units - 1.0) / self.n_units
        by_mean, by_width = (
            (np.abs(above) * np.sqrt(one) + np.abs(below) * np.sqrt(two)) ** 2
            for one, two in ((first.by_mean, second.by_mean), (first.by_width, second.by_width))
        )
        product = above * below
        return OutcomeVariance(
            value=above**2 * first.value
            + below**2 * second.value
            + 2.0 * fewer * product * self._product,
            by_mean=by_mean,
            by_width=by_width,
            noise=above**4 * first.noise
            + below**4 * second.noise
            + 4.0 * product**2 * self._product_noise,
        )

    def square_noise(self, factor: Floats) -> Floats:
        (above, below), (first, second) = (
            self._factors,
            (part.square_noise(factor) for part in self._parts),
        )
        products = self.over_strata(factor**2 * self._product_noise)
        return above**4 * first + below**4 * second + 4.0 * (above * below) ** 2 * products

    @cached_property
    def _sample_variances(self) -> tuple[Floats, Floats]:
        first, second = self._parts
        return first.sample_variance(), second.sample_variance()

    @cached_property
    def _outcome_variances(self) -> tuple[OutcomeVariance, OutcomeVariance]:
        first, second = self._parts
        return first.outcome_variance(), second.outcome_variance()

    @cached_property
    def _product(self) -> Floats:
        """The sample covariance of v_N and v_D in every stratum, shape [S]."""
        first, second = self._parts
        n = self.slices.n_units
        between = n * first.deviations() * second.deviations()
        return self.in_stratum((n - 1.0) * self._covariance + between) / (self.n_units - 1.0)

    @cached_property
    def _product_noise(self) -> Floats:
        """What noise adds to the variance of (n − 1)/n times the sample covariance, shape [S].

        (n − 1)/n² (s²_N s²_D − S²_N S²_D), S² = s² less the variance of one unit's noise.
        """
        n = self.n_units
        all_of_it, of_outcomes = np.ones_like(n), np.ones_like(n)
        for part, spread in zip(self._parts, self._sample_variances, strict=True):
            noise = n * part.in_stratum(part.part**2 * part.mean.noise)
            all_of_it *= spread
            of_outcomes *= np.maximum(spread - noise, 0.0)
        return (all_of_it - of_outcomes) * (n - 1.0) / n**2
