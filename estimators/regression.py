"""Effects adjusted for covariates: regression on the debiased outcomes, and CUPED.

Sources: Lin (2013), the fully interacted regression of a randomised experiment; Deng, Xu, Kohavi
and Walker (2013), CUPED. That the outcomes are debiased ones, the calibration by the pools'
statistics, and the variances that account for the noise, are ours.

Adjustment is by *covariates of the units from before the experiment*. A covariate that treatment
can have changed, or that was made of the released outcomes, biases the effect, and nothing here
can find that out. With exactly one covariate ``regression`` is CUPED with a slope for each arm;
``cuped`` is the original, with one slope θ for both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from statsmodels.regression.linear_model import OLS

from estimators.contrast_strata import Strata, comparable
from estimators.debias import response_noise_variance
from estimators.effects import (
    AdjustedName,
    ArmMean,
    Contrasts,
    Estimate,
    EstimatorName,
    arm_means,
    described,
    difference,
    pool_weights,
)
from estimators.evidence import Evidence, sum_by
from schemas.arrays import Bools, Floats, Ints

UNITS_PER_COLUMN = 10
"""Units, beyond one a stratum, that the smaller arm of a contrast needs for every column."""

_FLAT = 1e-18  # of a column's overall variance: what rounding leaves of a constant
_COLLINEAR = 1e-9  # of a column's variance that is its own
_LONE = 1e-9  # 1 − leverage of a unit whose outcome a slope explains whatever it is


@dataclass(frozen=True)
class Units:
    """The units of a release, one by one; arrays have the shape [n]."""

    cluster: Ints
    arm: Ints
    outcome: Floats
    """Randomised outcomes, measured from the grid's mean."""
    covariates: Floats
    """Shape [n, p], finite, as numbers; the scale does not matter."""


@dataclass(frozen=True)
class Adjusted:
    """Adjusted effects, and which columns they are adjusted for."""

    estimates: list[Estimate]
    used: Bools
    """False for a column that is constant in, or made up by earlier ones in, every regression."""


def bearable_columns(evidence: Evidence, n_arms: int, control: int, *, same_shares: bool) -> int:
    """Return how many columns every contrast can bear (:data:`UNITS_PER_COLUMN`).

    ``control`` is the control's code. Arms that cannot be compared at all do not count.
    """
    slices, free = evidence.slices, []
    for arm in (code for code in range(n_arms) if code != control):
        strata = comparable(slices, arm, control, same_shares=same_shares)
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

    - strata c and weights b are those of :func:`estimators.effects.effects`,
    - x̄_ca is the mean of the covariates over an arm, x̄_c over *all* arms of the stratum,
    - β̂_a is the slope of the debiased outcomes v within (stratum, arm), by least squares; what is
      constant in an arm, or made up by earlier columns, has the slope 0 there.

    ``evidence`` is of the whole (one group), ``units`` are all of its units with codes as there.
    Gives ``regression``; ``regression_combined``, with the combined means in place of v̄, where the
    pools have statistics; ``cuped``, with one slope for both arms, where there is one covariate. In
    this order, then that of ``arms``. ``level`` is the confidence level.
    """
    reference = list(arms).index(control)
    treatments = [code for code in range(len(arms)) if code != reference]
    names: list[AdjustedName] = ["regression"]
    names += ["regression_combined"] if evidence.has_statistic else []
    names += ["cuped"] if units.covariates.shape[1] == 1 else []
    found: dict[AdjustedName, list[Contrasts]] = {name: [] for name in names}
    scaled = replace(units, covariates=_standardised(units.covariates))
    used = np.zeros(units.covariates.shape[1], dtype=np.bool_)
    for arm in treatments:
        strata = comparable(evidence.slices, arm, reference, same_shares=same_shares)
        pair = _samples(evidence, scaled, strata, (arm, reference))
        fits = (_fit(pair[0]), _fit(pair[1]))
        used |= fits[0].used | fits[1].used
        for name, rows in found.items():
            own = _common_fits(*pair) if name == "cuped" else fits
            rows.append(_contrast(evidence, name, strata, pair, own))
    compared = [arms[arm] for arm in treatments]
    estimates = [
        one
        for name, rows in found.items()
        for one in described(evidence, rows, compared, control, [None], name, level)
    ]
    return Adjusted(estimates, used)


def _standardised(columns: Floats) -> Floats:
    apart = columns - columns.mean(axis=0)
    spread = np.sqrt(np.mean(apart**2, axis=0))
    scaled: Floats = apart / np.where(spread > 0, spread, 1.0)
    return scaled


def _sum_rows(target: Ints, columns: Floats, size: int) -> Floats:
    """Add up rows by their position in ``target``; the result has the shape [size, p]."""
    sums = np.empty((size, columns.shape[1]))
    for place, column in enumerate(columns.T):
        sums[:, place] = sum_by(target, column, size)
    return sums


@dataclass(frozen=True)
class _Sample:
    """One arm's units in the strata of a contrast; arrays are [n], of strata [S]."""

    stratum: Ints
    outcome: Floats
    """Debiased, within the (stratum, arm)."""
    covariates: Floats
    """Within the (stratum, arm), shape [n, p]."""
    noise: Floats
    """V̂_RR of the unit's debiased outcome."""
    taken: Floats
    """w_p T_p / N_p: what calibration takes from the weight of a unit in its pool's mean."""
    gap: Floats
    """Σ_c b_c (x̄_ca − x̄_c), shape [p]."""
    share: Floats
    """b, [S]."""
    n_units: Floats
    """Of the arm, [S]."""

    @property
    def weight(self) -> Floats:
        """b_c/n_ca: what a unit's outcome weighs in the arm's unadjusted mean."""
        found: Floats = (self.share / self.n_units)[self.stratum]
        return found

    def by_stratum(self, values: Floats) -> Floats:
        return sum_by(self.stratum, values, len(self.share))


def _samples(
    evidence: Evidence, units: Units, strata: Strata, arms: tuple[int, int]
) -> tuple[_Sample, _Sample]:
    """The units of both arms, covariates measured from the mean of *all* arms in the stratum."""
    slices, size = evidence.slices, len(strata.weight)
    stratum_of = np.full(int(units.cluster.max(initial=0)) + 1, -1)
    for rows in (strata.treated, strata.control):
        stratum_of[slices.cluster[rows.rows]] = rows.stratum
    stratum = stratum_of[units.cluster]
    inside = np.flatnonzero(stratum >= 0)
    middle = _sum_rows(stratum[inside], units.covariates[inside], size)
    middle /= np.maximum(strata.weight, 1.0)[:, np.newaxis]
    first, second = (
        _sample(evidence, units, strata, (inside[units.arm[inside] == arm], stratum), middle)
        for arm in arms
    )
    return first, second


def _sample(
    evidence: Evidence, units: Units, strata: Strata, where: tuple[Ints, Ints], middle: Floats
) -> _Sample:
    at, stratum = where[0], where[1][where[0]]
    size, rate, pools = len(strata.weight), evidence.rate, evidence.pools
    pool = _pool_of(evidence, units, at)
    step, prior = units.outcome[at], pools.prior_mean[pool]
    own = (step - rate * prior) / (1.0 - rate)
    noise = response_noise_variance(
        np.ones(len(at)), (step - prior) ** 2, pools.prior_variance[pool], rate
    )
    n = sum_by(stratum, np.ones(len(at)), size)
    share = strata.weight / strata.weight.sum()
    per_pool = sum_by(pool, (share / n)[stratum], len(pools.prior_mean))
    held = evidence.whole_mean.n_units
    taken = pool_weights(evidence, "combined") * per_pool / np.maximum(held, 1.0)
    apart = units.covariates[at] - middle[stratum]
    means = _sum_rows(stratum, apart, size) / n[:, np.newaxis]
    return _Sample(
        stratum=stratum,
        outcome=own - (sum_by(stratum, own, size) / n)[stratum],
        covariates=apart - means[stratum],
        noise=noise,
        taken=taken[pool],
        gap=share @ means,
        share=share,
        n_units=n,
    )


def _pool_of(evidence: Evidence, units: Units, at: Ints) -> Ints:
    slices = evidence.slices
    shape = (int(units.cluster.max()) + 1, int(units.arm.max()) + 1)
    table = np.zeros(shape, dtype=np.int64)
    table[slices.cluster, slices.arm] = slices.pool
    return table[units.cluster[at], units.arm[at]]


@dataclass(frozen=True)
class _Fit:
    """A regression of an arm's outcomes on its covariates, both within (stratum, arm)."""

    slope: Floats
    """β̂, shape [p]; 0 for a column that is not used."""
    used: Bools
    pull: Floats
    """∂β̂/∂v for every unit, shape [n, k], of the columns used: x̃ᵀ(X̃ᵀX̃)⁻¹."""
    moved: Floats
    """∂(β̂ᵀ gap)/∂v: what a unit's outcome weighs in the adjustment, shape [n]."""
    own: Floats
    """x̃ᵀ(X̃ᵀX̃)⁻¹x̃: leverage beside the 1/n of the mean, shape [n]."""
    square: Floats
    """e²/(1 − leverage), the variance of every unit's debiased outcome (HC2), shape [n]."""
    freedom: Floats
    """Σ (1 − leverage) over the stratum: n − 1 less its share of the columns, shape [S]."""


def _fit(sample: _Sample) -> _Fit:
    return _solved(sample, sample.covariates, sample.outcome, sample.gap)


def _common_fits(treated: _Sample, control: _Sample) -> tuple[_Fit, _Fit]:
    """One slope for both arms, θ = Cov(v, x)/Var(x) within strata and arms (Deng et al. 2013)."""
    n, size = len(treated.stratum), len(treated.share)
    both = replace(
        treated,
        stratum=np.concatenate([treated.stratum, control.stratum + size]),
        share=np.concatenate([treated.share, control.share]),
        n_units=np.concatenate([treated.n_units, control.n_units]),
    )
    columns = np.concatenate([treated.covariates, control.covariates])
    outcome = np.concatenate([treated.outcome, control.outcome])
    found = _solved(both, columns, outcome, treated.gap - control.gap)
    first, second = (
        replace(
            found,
            pull=found.pull[units],
            moved=sign * found.moved[units],
            own=found.own[units],
            square=found.square[units],
            freedom=found.freedom[strata],
        )
        for units, strata, sign in (
            (slice(None, n), slice(None, size), 1.0),
            (slice(n, None), slice(size, None), -1.0),
        )
    )
    return first, second


def _solved(sample: _Sample, columns: Floats, outcome: Floats, gap: Floats) -> _Fit:
    """Regress, by statsmodels, on the columns that are neither constant nor collinear here."""
    used = _independent(columns)
    kept, slope = columns[:, used], np.zeros(columns.shape[1])
    residual, pull = outcome, np.zeros_like(kept)
    if used.any():
        model = OLS(outcome, kept)  # not rank-deficient, so its pseudo-inverse is (X̃ᵀX̃)⁻¹X̃ᵀ
        slope[used] = model.fit().params
        pull = np.asarray(model.pinv_wexog, dtype=np.float64).T
        residual = outcome - kept @ slope[used]
    own = np.sum(pull * kept, axis=1)
    left = 1.0 - 1.0 / sample.n_units[sample.stratum] - own
    lone = left < _LONE
    mean_square = float(np.sum(residual**2)) / max(float(left.sum()), 1.0)
    square = np.where(lone, mean_square, residual**2 / np.where(lone, 1.0, left))
    freedom = sample.by_stratum(np.where(lone, 0.0, left))
    return _Fit(slope, used, pull, pull @ gap[used], own, square, freedom)


def _independent(columns: Floats) -> Bools:
    """The columns that vary and are not made up of those before them."""
    gram = columns.T @ columns
    size = np.diag(gram)
    kept: list[int] = []
    for one in np.flatnonzero(size > _FLAT * len(columns)).tolist():
        scale = np.sqrt(size[kept] * size[one])
        along = gram[kept, one] / scale
        others = gram[np.ix_(kept, kept)] / np.sqrt(np.outer(size[kept], size[kept]))
        if 1.0 - along @ np.linalg.solve(others, along) > _COLLINEAR:
            kept.append(one)
    used = np.zeros(columns.shape[1], dtype=np.bool_)
    used[kept] = True
    return used


def _contrast(
    evidence: Evidence,
    name: AdjustedName,
    strata: Strata,
    pair: tuple[_Sample, _Sample],
    fits: tuple[_Fit, _Fit],
) -> Contrasts:
    total = sum_by(strata.group, strata.weight, 1)
    combined = name == "regression_combined"
    own_name: EstimatorName = "combined" if combined else "tau_q"
    # Without pairs: the columns explain some of what merged clusters differ by.
    plain = arm_means(evidence, own_name, strata, total, by_pairs=False)
    adjust = _calibrated if combined else _sandwich
    first, second = (
        adjust(own, sample, fit) for own, sample, fit in zip(plain, pair, fits, strict=True)
    )
    return difference(first, second, total, evidence.center)


def _sandwich(plain: ArmMean, sample: _Sample, fit: _Fit) -> ArmMean:
    """Return the adjusted mean v̄ − β̂ᵀ(x̄_a − x̄), weighted over strata.

    It is Σ_i ω_i v_i, ω_i = b_c/n_ca − gapᵀ(X̃ᵀX̃)⁻¹x̃_i, so that V̂ = Σ ω_i² e_i²/(1 − h_i): HC2 of
    the fully interacted regression, h_i = 1/n_ca + x̃_iᵀ(X̃ᵀX̃)⁻¹x̃_i. The noise of privacy is in the
    residuals; by itself it is Σ ω_i² V̂_i. Without covariates this is Neyman's Σ b² s²/n. Degrees
    of freedom as there, n − 1 being Σ (1 − h_i) in every stratum.
    """
    weight = sample.weight - fit.moved
    parts = sample.by_stratum(weight**2 * fit.square)
    return replace(
        plain,
        mean=plain.mean - fit.slope @ sample.gap,
        variance=_one(parts.sum()),
        noise=_one((weight**2 * sample.noise).sum()),
        scatter=_one((parts**2 / np.maximum(fit.freedom, 0.5)).sum()),
    )


def _calibrated(plain: ArmMean, sample: _Sample, fit: _Fit) -> ArmMean:
    """Return the combined mean − β̂ᵀ(x̄_a − x̄), weighted over strata.

    V̂ = (1 − ρ) Σ b² Ŝ²/n + max(Σ u_i² e_i²/(1 − h_i) − Σ u_i² V̂_i, 0) + V̂_noise,
    V̂_noise = Σ a_i² V̂_i + Σ_p w_p² T_p² V_M,p,  a_i = b_c/n_ca − w_p T_p/N_p − u_i,

    where u_i = gapᵀ(X̃ᵀX̃)⁻¹x̃_i is what a unit's outcome weighs in β̂ᵀ gap, and the rest is that of
    :func:`estimators.effects.contrasts`. ρ, the share of the outcomes' variance that the covariates
    explain, is Σ (b²/n)(2β̂ᵀŜ_xv − β̂ᵀS_xx β̂) / Σ b² Ŝ²/n, the sum brought between its bounds, less
    what β̂, fitted to the same noise, seems to explain beyond the truth; clipped to [0, 1].
    """
    moved = fit.moved
    removed, doubt = _explained(sample, fit)
    total = float(plain.sampling[0])
    left = 1.0 - min(max(removed / total, 0.0), 1.0) if total > 0 else 1.0
    own = moved**2 * sample.noise
    cross = (sample.weight - sample.taken) * moved * sample.noise
    noise = max(float(plain.noise[0] + own.sum() - 2.0 * cross.sum()), 0.0)
    slopes = max(float((moved**2 * fit.square - own).sum()), 0.0)
    freedom = np.maximum(fit.freedom, 0.5)
    doubts = (left * plain.spread) ** 2 / freedom
    scatter = float((sample.share**4 * doubts / sample.n_units**2).sum())
    scatter += (float(plain.uncertainty[0]) + doubt) / 2.0
    return replace(
        plain,
        mean=plain.mean - fit.slope @ sample.gap,
        variance=_one(left * total + slopes + noise),
        noise=_one(noise),
        scatter=_one(scatter),
    )


def _explained(sample: _Sample, fit: _Fit) -> tuple[float, float]:
    """What the covariates take from Σ b² Ŝ²/n, and the variance that privacy's noise gives this.

    With k = b²/(n(n − 1)), S = Σ k x̃x̃ᵀ and G = (X̃ᵀX̃)⁻¹ it is Σ k β̂ᵀx̃(2v − β̂ᵀx̃), which exceeds what
    it estimates by Σ σ_i²(2k x̃ᵀGx̃ − x̃ᵀGSGx̃) on average, σ_i² = e_i²/(1 − h_i).
    """
    columns = sample.covariates[:, fit.used]
    own = (sample.share**2 / (sample.n_units * (sample.n_units - 1.0)))[sample.stratum]
    fitted = columns @ fit.slope[fit.used]
    seeming = float((own * fitted * (2.0 * sample.outcome - fitted)).sum())
    within = columns.T @ (own[:, np.newaxis] * columns)
    spread = np.sum((fit.pull @ within) * fit.pull, axis=1)
    beyond = float((fit.square * (2.0 * own * fit.own - spread)).sum())
    noisy = within @ (fit.pull.T @ (sample.noise[:, np.newaxis] * fit.pull))
    first = 4.0 * float((sample.noise * (own * fitted) ** 2).sum())
    return seeming - beyond, first + 2.0 * float(np.sum(noisy * noisy.T))


def _one(value: float) -> Floats:
    return np.array([value], dtype=np.float64)
