"""Effects adjusted for covariates: regression on the debiased outcomes, and CUPED.

Sources: Lin (2013), the fully interacted regression of a randomised experiment; Deng, Xu, Kohavi
and Walker (2013), CUPED. That the outcomes are debiased ones, the calibration by the pools'
statistics, and the variances that account for the noise, are ours.

Adjustment is by *covariates of the units from before the experiment*. A covariate that treatment
can have changed, or that was made from the released outcomes, biases the effect, and nothing here
can notice that. With exactly one covariate ``regression`` is CUPED with a slope for each arm;
``cuped`` is the original, with one slope θ for both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from estimators.arm_effects import AdjustedName, Contrasts, Estimate, difference, to_estimates
from estimators.means import SHARPEST_FIRST, EstimatorName, arm_means, pool_weights
from estimators.strata.arm_means import ArmMean
from estimators.strata.assigned import ArmSide, added, parties_of
from estimators.strata.contrast_strata import ContrastStrata, contrast_strata
from estimators.strata.evidence import Evidence, debias_units, sum_by
from schemas.arrays import Bools, Floats, Ints, Words

UNITS_PER_COLUMN = 10
"""Units, beyond one a stratum, that the smaller arm of a contrast needs for every column."""

_FLAT = 1e-18  # share of a column's overall variance that rounding leaves of a constant
_COLLINEAR = 1e-9  # share of a column's variance that the columns before it do not explain
_LONE = 1e-9  # 1 − leverage of a unit whose outcome a slope always explains


@dataclass(frozen=True)
class Units:
    """The units of a release, one by one; arrays have the shape [n]."""

    cluster: Ints
    arm: Ints
    outcome: Floats
    """Randomised outcomes, measured from the grid's mean; debiased where ``noise`` is given."""
    covariates: Floats
    """Finite numbers on any scale, shape [n, p]."""
    assigned: Words | None = None
    """What each was assigned with; None where each was by itself."""
    noise: Floats | None = None
    """What each adds to the variance of a sum, where units were drawn by response tables."""


@dataclass(frozen=True)
class Adjusted:
    """Adjusted effects, and the columns that they are adjusted for."""

    estimates: list[Estimate]
    used: Bools
    """False for a column that is constant or a combination of earlier ones in every regression."""


def bearable_columns(evidence: Evidence, n_arms: int, control: int, *, same_shares: bool) -> int:
    """Return the number of columns for which every contrast has units (:data:`UNITS_PER_COLUMN`).

    ``control`` is the control's code. Arms that cannot be compared at all do not count.
    """
    slices, free = replace(evidence.slices, own_sizes=None), []
    for arm in (code for code in range(n_arms) if code != control):
        strata = contrast_strata(slices, arm, control, same_shares=same_shares)
        sides = (strata.treated, strata.control) if len(strata.weight) else ()
        free += [slices.n_units[rows.rows].sum() - len(strata.weight) for rows in sides]
    return int(min(free, default=0)) // UNITS_PER_COLUMN


def regressions(
    evidence: Evidence,
    units: Units,
    arms: Sequence[str],
    control: str,
    *,
    same_shares: bool,
    level: float = 0.95,
) -> Adjusted:
    """Estimate the adjusted effect of every treatment arm against ``control``.

    τ̂ = Σ_c b_c [(v̄_c1 − β̂_1ᵀ(x̄_c1 − x̄_c)) − (v̄_c0 − β̂_0ᵀ(x̄_c0 − x̄_c))],

    where

    - strata c and weights b are those of :func:`estimators.arm_effects.effects`,
    - x̄_ca is the mean of the covariates over an arm, x̄_c over *all* arms of the stratum,
    - β̂_a is the slope of the debiased outcomes v within (stratum, arm), by least squares; a column
      that is constant in an arm, or a combination of earlier columns, has the slope 0 there.

    ``evidence`` is of the whole (one group); ``units`` are all of its units, with the same codes.
    The estimators are ``regression``; ``regression_combined``, with the combined means in place of
    v̄, where the pools have statistics; ``cuped``, with one slope for both arms, where there is one
    covariate. Strata count by all arms' units, in ``regression_combined`` too. In the order of
    estimators, then ``arms``. ``level`` is the confidence level.
    """
    by_everyone = replace(evidence.slices, own_sizes=None)
    reference = list(arms).index(control)
    treatments = [code for code in range(len(arms)) if code != reference]
    names: list[AdjustedName] = ["regression"]
    names += ["regression_combined"] if evidence.has_statistic else []
    names += ["cuped"] if units.covariates.shape[1] == 1 else []
    names.sort(key=SHARPEST_FIRST.index)
    by_name: dict[AdjustedName, list[Contrasts]] = {name: [] for name in names}
    deviation = units.covariates - units.covariates.mean(axis=0)
    spread = np.sqrt(np.mean(deviation**2, axis=0))
    scaled = replace(units, covariates=deviation / np.where(spread > 0, spread, 1.0))
    used = np.zeros(units.covariates.shape[1], dtype=np.bool_)
    for arm in treatments:
        strata = contrast_strata(by_everyone, arm, reference, same_shares=same_shares)
        pair = _samples(evidence, scaled, strata, (arm, reference))
        fits = (_solve(pair[0], pair[0].gap), _solve(pair[1], pair[1].gap))
        used |= fits[0].used | fits[1].used
        for name, by_arm in by_name.items():
            slopes = _common_fits(*pair) if name == "cuped" else fits
            by_arm.append(_contrast(evidence, name, strata, pair, slopes))
    compared = [arms[arm] for arm in treatments]
    estimates = [
        estimate
        for name, by_arm in by_name.items()
        for estimate in to_estimates(evidence, by_arm, compared, control, [None], name, level)
    ]
    return Adjusted(estimates, used)


def _sum_rows(target: Ints, columns: Floats, size: int) -> Floats:
    """Add up rows by their position in ``target``; the result has the shape [size, p]."""
    sums = np.empty((size, columns.shape[1]))
    for nth, column in enumerate(columns.T):
        sums[:, nth] = sum_by(target, column, size)
    return sums


@dataclass(frozen=True)
class _Sample:
    """One arm's units in the strata of a contrast; shape [n], or [S] for facts of strata."""

    stratum: Ints
    outcome: Floats
    """Debiased, less the mean of the (stratum, arm)."""
    covariates: Floats
    """Less the mean of the (stratum, arm), shape [n, p]."""
    noise: Floats
    """V̂_RR of the unit's debiased outcome."""
    calibration: Floats
    """w_p T_p / N_p, by which calibration lowers the weight of a unit in its pool's mean."""
    gap: Floats
    """Σ_c b_c (x̄_ca − x̄_c), shape [p]."""
    share: Floats
    """b, shape [S]."""
    n_units: Floats
    """Units of the arm, shape [S]."""
    middle: Floats
    """v̄_ca, shape [S]."""
    apart: Floats
    """x̄_ca − x̄_c, shape [S, p]."""
    assigned: Words | None
    """What each unit was assigned with, shape [n]; None where each was by itself."""

    @property
    def weight(self) -> Floats:
        """b_c/n_ca, the weight of a unit's outcome in the arm's unadjusted mean."""
        return (self.share / self.n_units)[self.stratum]

    def by_stratum(self, values: Floats) -> Floats:
        return sum_by(self.stratum, values, len(self.share))


def _samples(
    evidence: Evidence, units: Units, strata: ContrastStrata, arms: tuple[int, int]
) -> tuple[_Sample, _Sample]:
    """Return both arms' units, covariates measured from the mean of *all* arms in the stratum."""
    slices, size = evidence.slices, len(strata.weight)
    stratum = strata.of_clusters(slices, units.cluster)
    inside = np.flatnonzero(stratum >= 0)
    center = _sum_rows(stratum[inside], units.covariates[inside], size)
    center /= np.maximum(strata.weight, 1.0)[:, np.newaxis]
    first, second = (inside[units.arm[inside] == arm] for arm in arms)
    return (
        _sample(evidence, units, strata, (first, stratum[first]), center),
        _sample(evidence, units, strata, (second, stratum[second]), center),
    )


def _sample(
    evidence: Evidence,
    units: Units,
    strata: ContrastStrata,
    rows: tuple[Ints, Ints],
    center: Floats,
) -> _Sample:
    at, stratum = rows
    size = len(strata.weight)
    noise = None if units.noise is None else units.noise[at]
    pool, outcomes = debias_units(
        evidence, units.cluster[at], units.arm[at], units.outcome[at], noise
    )
    debiased = outcomes.mean
    n = sum_by(stratum, np.ones(len(at)), size)
    share = strata.weight / strata.weight.sum()
    per_pool = sum_by(pool, (share / n)[stratum], len(evidence.pools.prior_mean))
    pool_size = np.maximum(evidence.whole_mean.n_units, 1.0)
    calibration = pool_weights(evidence, "combined") * per_pool / pool_size
    covariates = units.covariates[at] - center[stratum]
    means = _sum_rows(stratum, covariates, size) / n[:, np.newaxis]
    middle = sum_by(stratum, debiased, size) / n
    return _Sample(
        stratum=stratum,
        outcome=debiased - middle[stratum],
        covariates=covariates - means[stratum],
        noise=outcomes.noise,
        calibration=calibration[pool],
        gap=share @ means,
        share=share,
        n_units=n,
        middle=middle,
        apart=means,
        assigned=None if units.assigned is None else units.assigned[at],
    )


@dataclass(frozen=True)
class _Fit:
    """A regression of an arm's outcomes on its covariates, both within (stratum, arm)."""

    slope: Floats
    """β̂, shape [p]; 0 for a column that is not used."""
    used: Bools
    pull: Floats
    """∂β̂/∂v for every unit, shape [n, k], of the columns used: x̃ᵀ(X̃ᵀX̃)⁻¹."""
    adjustment: Floats
    """∂(β̂ᵀ gap)/∂v, the weight of a unit's outcome in the adjustment, shape [n]."""
    leverage: Floats
    """x̃ᵀ(X̃ᵀX̃)⁻¹x̃, besides the 1/n of the mean, shape [n]."""
    square: Floats
    """e²/(1 − h), h = 1/n + leverage: the variance of every unit's outcome (HC2), shape [n]."""
    freedom: Floats
    """Σ (1 − h) over the stratum: n − 1 less its share of the columns, shape [S]."""


def _common_fits(treated: _Sample, control: _Sample) -> tuple[_Fit, _Fit]:
    """Fit one slope for both, θ = Cov(v, x)/Var(x) within strata and arms (Deng et al. 2013)."""
    n, size = len(treated.stratum), len(treated.share)
    both = replace(
        treated,
        stratum=np.concatenate([treated.stratum, control.stratum + size]),
        share=np.concatenate([treated.share, control.share]),
        n_units=np.concatenate([treated.n_units, control.n_units]),
        covariates=np.concatenate([treated.covariates, control.covariates]),
        outcome=np.concatenate([treated.outcome, control.outcome]),
    )
    common = _solve(both, treated.gap - control.gap)
    first, second = (
        replace(
            common,
            pull=common.pull[units],
            adjustment=sign * common.adjustment[units],
            leverage=common.leverage[units],
            square=common.square[units],
            freedom=common.freedom[strata],
        )
        for units, strata, sign in (
            (slice(None, n), slice(None, size), 1.0),
            (slice(n, None), slice(size, None), -1.0),
        )
    )
    return first, second


def _solve(sample: _Sample, gap: Floats) -> _Fit:
    """Regress, by statsmodels, on the columns that are neither constant nor collinear here."""
    from statsmodels.regression.linear_model import OLS  # noqa: PLC0415 - takes seconds

    columns, outcome = sample.covariates, sample.outcome
    used = _independent(columns)
    kept, slope = columns[:, used], np.zeros(columns.shape[1])
    residual, pull = outcome, np.zeros_like(kept)
    if used.any():
        model = OLS(outcome, kept)  # not rank-deficient, so its pseudo-inverse is (X̃ᵀX̃)⁻¹X̃ᵀ
        slope[used] = model.fit().params
        pull = np.asarray(model.pinv_wexog, dtype=np.float64).T
        residual = outcome - kept @ slope[used]
    leverage = np.sum(pull * kept, axis=1)
    left = 1.0 - 1.0 / sample.n_units[sample.stratum] - leverage
    lone = left < _LONE
    mean_square = float(np.sum(residual**2)) / max(float(left.sum()), 1.0)
    square = np.where(lone, mean_square, residual**2 / np.where(lone, 1.0, left))
    freedom = sample.by_stratum(np.where(lone, 0.0, left))
    return _Fit(slope, used, pull, pull @ gap[used], leverage, square, freedom)


def _independent(columns: Floats) -> Bools:
    """Return which columns vary and are no combination of those before them."""
    gram = columns.T @ columns
    size = np.diag(gram)
    kept: list[int] = []
    for column in np.flatnonzero(size > _FLAT * len(columns)).tolist():
        scale = np.sqrt(size[kept] * size[column])
        along = gram[kept, column] / scale
        others = gram[np.ix_(kept, kept)] / np.sqrt(np.outer(size[kept], size[kept]))
        if 1.0 - along @ np.linalg.solve(others, along) > _COLLINEAR:
            kept.append(column)
    used = np.zeros(columns.shape[1], dtype=np.bool_)
    used[kept] = True
    return used


def _contrast(
    evidence: Evidence,
    name: AdjustedName,
    strata: ContrastStrata,
    pair: tuple[_Sample, _Sample],
    fits: tuple[_Fit, _Fit],
) -> Contrasts:
    total = sum_by(strata.group, strata.weight, 1)
    combined = name == "regression_combined"
    estimator: EstimatorName = "combined" if combined else "tau_q"
    # Without pairs: the columns explain some of the differences between merged clusters.
    alone = replace(evidence, parties=None)
    plain = arm_means(alone, estimator, strata, total, by_pairs=False)
    adjust = _adjust_combined if combined else _adjust_debiased
    adjusted = [
        adjust(mean, sample, fit) for mean, sample, fit in zip(plain, pair, fits, strict=True)
    ]
    first, second = _with_parties(adjusted, pair, fits, strata, combined=combined)
    return difference(first, second, total, evidence.center)


def _with_parties(
    adjusted: Sequence[ArmMean],
    pair: tuple[_Sample, _Sample],
    fits: tuple[_Fit, _Fit],
    strata: ContrastStrata,
    *,
    combined: bool,
) -> Sequence[ArmMean]:
    """Return the means with what units that were assigned together add to their variances.

    That is :func:`estimators.strata.assigned.added` of the adjusted outcomes v − β̂ᵀ(x − x̄_c), as
    if the slopes were known: those are of all units together, and hold little of any one party.
    """
    first, second = pair
    if first.assigned is None or second.assigned is None:
        return adjusted
    size = len(strata.weight)
    residuals = [
        sample.outcome - sample.covariates @ fit.slope
        for sample, fit in zip(pair, fits, strict=True)
    ]
    side = np.repeat(np.arange(2), [len(part) for part in residuals])
    parties = parties_of(
        np.concatenate([first.stratum, second.stratum]) + side * size,
        np.concatenate([first.assigned, second.assigned]),
        side,
        np.concatenate(residuals),
        2 * size,
    )
    sides = [
        ArmSide(
            rows=np.arange(size) + at * size,
            stratum=np.arange(size),
            from_mean=np.zeros(size),
            n_units=sample.n_units,
            mean=sample.middle - sample.apart @ fit.slope,
            spread=sample.by_stratum(residual**2) / (sample.n_units - 1.0),
            kept=np.ones(size),
            sampling=np.maximum(mean.variance - mean.noise, 0.0) if combined else None,
        )
        for at, (sample, fit, residual, mean) in enumerate(
            zip(pair, fits, residuals, adjusted, strict=True)
        )
    ]
    more = added(parties, strata.group, first.share, sides, 1)
    return [mean.with_parties(one) for mean, one in zip(adjusted, more, strict=True)]


def _adjust_debiased(plain: ArmMean, sample: _Sample, fit: _Fit) -> ArmMean:
    """Return the adjusted mean v̄ − β̂ᵀ(x̄_a − x̄), weighted over strata.

    It is Σ_i ω_i v_i, ω_i = b_c/n_ca − gapᵀ(X̃ᵀX̃)⁻¹x̃_i, so V̂ = Σ ω_i² e_i²/(1 − h_i), the HC2 of
    the fully interacted regression, h_i = 1/n_ca + x̃_iᵀ(X̃ᵀX̃)⁻¹x̃_i. The noise of privacy is in the
    residuals; its part is Σ ω_i² V̂_i. Without covariates V̂ is Neyman's Σ b² s²/n. Degrees of
    freedom are as there, with Σ (1 − h_i) + 2 in place of n + 1 in every stratum.
    """
    weight = sample.weight - fit.adjustment
    parts = sample.by_stratum(weight**2 * fit.square)
    return replace(
        plain,
        mean=plain.mean - fit.slope @ sample.gap,
        variance=_array(parts.sum()),
        noise=_array(max(float((weight**2 * sample.noise).sum()), 0.0)),
        scatter=_array((parts**2 / (fit.freedom + 2.0)).sum()),
    )


def _adjust_combined(plain: ArmMean, sample: _Sample, fit: _Fit) -> ArmMean:
    """Return the combined mean − β̂ᵀ(x̄_a − x̄), weighted over strata.

    V̂ = (1 − ρ) Σ b² Ŝ²/n + max(Σ u_i² e_i²/(1 − h_i) − Σ u_i² V̂_i, 0) + V̂_noise,
    V̂_noise = Σ a_i² V̂_i + Σ_p w_p² T_p² V_M,p,  a_i = b_c/n_ca − w_p T_p/N_p − u_i,

    where u_i = gapᵀ(X̃ᵀX̃)⁻¹x̃_i is the weight of a unit's outcome in β̂ᵀ gap, and the rest is that of
    :func:`estimators.arm_effects.contrasts`. ρ is the share of the outcomes' variance that the
    covariates explain: Σ (b²/n)(2β̂ᵀŜ_xv − β̂ᵀS_xx β̂) / Σ b² Ŝ²/n, the sum below brought between its
    bounds. β̂ is fitted to the same noise, so it seems to explain more than it does: that excess is
    taken off. ρ is clipped to [0, 1].
    """
    weight = fit.adjustment
    removed, uncertainty = _explained(sample, fit)
    total = float(plain.sampling[0])
    left = 1.0 - min(max(removed / total, 0.0), 1.0) if total > 0 else 1.0
    slope_noise = weight**2 * sample.noise
    cross = (sample.weight - sample.calibration) * weight * sample.noise
    noise = max(float(plain.noise[0] + slope_noise.sum() - 2.0 * cross.sum()), 0.0)
    slopes = max(float((weight**2 * fit.square - slope_noise).sum()), 0.0)
    by_stratum = (left * plain.spread) ** 2 / (fit.freedom + 2.0)
    scatter = float((sample.share**4 * by_stratum / sample.n_units**2).sum())
    scatter += (float(plain.uncertainty[0]) + uncertainty) / 2.0
    return replace(
        plain,
        mean=plain.mean - fit.slope @ sample.gap,
        variance=_array(left * total + slopes + noise),
        noise=_array(noise),
        scatter=_array(scatter),
    )


def _explained(sample: _Sample, fit: _Fit) -> tuple[float, float]:
    """Return the part of Σ b² Ŝ²/n that covariates explain, and the variance of its noise.

    With k = b²/(n(n − 1)), S = Σ k x̃x̃ᵀ and G = (X̃ᵀX̃)⁻¹ it is Σ k β̂ᵀx̃(2v − β̂ᵀx̃), less its bias:
    on average that sum is Σ σ_i²(2k x̃ᵀGx̃ − x̃ᵀGSGx̃) too large, σ_i² = e_i²/(1 − h_i).
    """
    columns = sample.covariates[:, fit.used]
    k = (sample.share**2 / (sample.n_units * (sample.n_units - 1.0)))[sample.stratum]
    fitted = columns @ fit.slope[fit.used]
    seeming = float((k * fitted * (2.0 * sample.outcome - fitted)).sum())
    within = columns.T @ (k[:, np.newaxis] * columns)
    spread = np.sum((fit.pull @ within) * fit.pull, axis=1)
    bias = float((fit.square * (2.0 * k * fit.leverage - spread)).sum())
    noisy = within @ (fit.pull.T @ (sample.noise[:, np.newaxis] * fit.pull))
    first = 4.0 * float((sample.noise * (k * fitted) ** 2).sum())
    return seeming - bias, first + 2.0 * float(np.sum(noisy * noisy.T))


def _array(value: float) -> Floats:
    return np.array([value], dtype=np.float64)
