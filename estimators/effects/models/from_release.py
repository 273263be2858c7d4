"""Who benefits, from a released file alone: curves of the effect along features of the analyst's.

The outcomes of a release are debiased, so their errors average out, and the variance that privacy
gives each of them is known. The basis, and the solution by empirical Bayes, are those of a moment
effect model; histograms and Gram matrices are exact here, as features are the analyst's own. To
compute all this costs no privacy: it reads what is published.
"""

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from estimators.effects.models.basis import Basis, basis_of, counts_of
from estimators.effects.models.bayes import Posterior, solve, unshrunk
from estimators.effects.models.model import FittedEffect
from estimators.effects.models.moments import Foundation
from estimators.effects.models.table import curves_of
from estimators.strata.contrast_strata import contrast_strata
from estimators.strata.evidence import Evidence, debias_units, sum_by
from schemas.arrays import Bools, Floats, Ints
from schemas.effects.model import Curve, EffectDesign

DEGREE: Final = 2
_LEAST_VARIANCE: Final = 1e-4
"""Of outcomes about their prediction, in halves of their range squared."""
_LEAST_PART: Final = 0.02
"""Of the outcomes' variance that no prediction takes away."""
_RIDGE: Final = 1e-9
"""Part of the noise's mean variance that is added to each: collinear features have none."""


@dataclass(frozen=True)
class Pair:
    """The units of a treatment arm and control that can be compared; arrays have the shape [n]."""

    rows: Ints
    """Their places among the units that were given."""
    treated: Floats
    """T, 0 or 1."""
    propensity: Floats
    """e, the share of treated units among both arms in the unit's stratum: public, and exact."""
    outcome: Floats
    """Debiased, from the middle of the grid, in halves of its range: any number."""
    noise: Floats
    """The variance that privacy gives it, V̂, unbiased; likewise."""


def pair_of(
    evidence: Evidence,
    cluster: Ints,
    arm: Ints,
    outcome: Floats,
    arms: tuple[int, int],
    *,
    same_shares: bool,
    noise: Floats | None = None,
) -> Pair:
    """Return the units of ``arms`` (treatment, control) in strata where these can be compared.

    ``evidence`` is of the whole release; ``cluster``, ``arm`` and ``outcome`` (randomised, measured
    from the grid's mean) are of units, shape [n]. Strata are those of
    :func:`estimators.strata.contrast_strata.contrast_strata`; outcomes are debiased by
    :func:`estimators.strata.evidence.debias_units`, with ``noise`` where response tables drew them.
    """
    slices = replace(evidence.slices, own_sizes=None)
    strata = contrast_strata(slices, *arms, same_shares=same_shares)
    treated, control = (
        sum_by(side.stratum, slices.n_units[side.rows], len(strata.weight))
        for side in (strata.treated, strata.control)
    )
    share = treated / np.maximum(treated + control, 1.0)
    stratum = strata.of_clusters(slices, cluster)
    rows = np.flatnonzero((stratum >= 0) & np.isin(arm, arms))
    known = None if noise is None else noise[rows]
    _, debiased = debias_units(evidence, cluster[rows], arm[rows], outcome[rows], known)
    half = (evidence.highest - evidence.lowest) / 2.0
    middle = (evidence.highest + evidence.lowest) / 2.0
    return Pair(
        rows=rows,
        treated=(arm[rows] == arms[0]).astype(np.float64),
        propensity=share[stratum[rows]],
        outcome=(debiased.mean - middle) / half,
        noise=debiased.noise / half**2,
    )


@dataclass(frozen=True)
class ReleaseFit(FittedEffect):
    """The effect as a function of features, by what a release tells."""

    unshrunk: Posterior = field(repr=False)
    """What the same sums say without a prior."""
    average: Floats = field(repr=False)
    """The mean of φ over the units, shape [p]."""

    def anchored(self, estimate: float, std_error: float) -> "ReleaseFit":
        """Return the fit with an average effect that is known better, in the outcomes' unit.

        A release may tell averages better than its units do (by counts, say). With φ̄ the mean of
        φ, C the covariance of β, v = φ̄ᵀ C φ̄ and k = C φ̄/v, a fit that is all normal becomes

            β + k (τ̂ − φ̄ᵀ β),   C − k kᵀ (v − se²),

        so that its average is τ̂ = ``estimate``, with se = ``std_error``, and what it says of
        differences given the average stays. Where se² ≥ v the fit stays as it is. The fit that is
        not shrunk is changed likewise.
        """
        known = self.average, estimate / self.design.half, std_error / self.design.half
        fitted, unshrunk = (_anchored(each, *known) for each in (self.fitted, self.unshrunk))
        return replace(self, fitted=fitted, unshrunk=unshrunk)

    def std_errors(self, phi: Floats) -> Floats:
        """Return the errors of φ β in the outcomes' unit, shape [m], for φ of shape [m, p].

            √(φᵀ C φ + (φᵀ (β − b))²)

        with b and C unshrunk. The posterior's own covariance takes the prior for the truth: where
        noise is great it is sure of what has been shrunk away. This is the error of a curve that
        is not shrunk, and what shrinking has moved the curve by.
        """
        moved = phi @ (self.fitted.mean - self.unshrunk.mean)
        variance = np.einsum("mp,pq,mq->m", phi, self.unshrunk.covariance, phi)
        found: Floats = self.design.half * np.sqrt(variance + moved**2)
        return found

    @property
    def curves(self) -> tuple[Curve, ...]:
        """The effect along each feature, others at their average, with standard errors."""
        return curves_of(self.design, self.base, self.fitted, self.std_errors)

    def predict(self, features: Floats) -> Floats:
        """Return effects in the outcomes' unit, shape [n], for features as :func:`fit_release`."""
        return self.design.half * self.fitted.effects(_values(self.base.basis, features))


def fit_release(design: EffectDesign, pair: Pair, features: Floats) -> ReleaseFit:
    """Fit the effect along ``features``, shape [n, d], to the debiased outcomes of a ``pair``.

    η = φ γ solves G γ = Σ φ y/n, and the effect τ = φ β solves

        M β = Σ φ (T − e)(y − η)/n,   M = Σ (T − e)² φ φᵀ/n,

    both by :func:`estimators.effects.models.bayes.solve` with the noise Σ x xᵀ (s² + V̂)/n² of their
    right sides, x what the outcome is multiplied by, V̂ the known variance by privacy, and s² what
    is left of the residuals' mean square beside it. φ has degree 2 under exact histograms.

    A number is its position between its bounds, a level its number; NaN is unknown, and counts as
    the feature's average (its φ are 0).
    """
    basis = basis_of(design, counts_of(design, features), 0.0, DEGREE)
    base = Foundation(basis, DEGREE, float(len(features)))
    phi = _values(base.basis, features)
    kinds = base.basis.kinds
    eta = np.zeros(len(phi))
    for _ in range(2):
        sums = _equations(phi, np.ones(len(phi)), pair.outcome, pair.outcome - eta, pair)
        eta = np.clip(phi @ solve(*sums, kinds).mean, -1.0, 1.0)
    weight, left = pair.treated - pair.propensity, pair.outcome - eta
    tau = np.zeros(len(phi))
    for _ in range(2):
        sums = _equations(phi, weight, left, left - weight * tau, pair)
        beta = solve(*sums, kinds)
        tau = phi @ beta.mean
    return ReleaseFit(design, base, beta, unshrunk(*sums), phi.mean(axis=0))


def _anchored(fit: Posterior, average: Floats, estimate: float, std_error: float) -> Posterior:
    spread = fit.covariance @ average
    variance = float(average @ spread)
    known = std_error**2
    if known >= variance:
        return fit
    gain = spread / variance
    mean = fit.mean + gain * (estimate - float(average @ fit.mean))
    return Posterior(mean, fit.covariance - np.outer(gain, gain) * (variance - known))


def _equations(
    phi: Floats, weight: Floats, target: Floats, residual: Floats, pair: Pair
) -> tuple[Floats, Floats, Floats]:
    """The matrix, sums and noise by which ``target`` is regressed on ``weight`` φ.

    ``residual`` is what is left of it by now, shape [n].
    """
    n, size = phi.shape
    rows = phi * weight[:, None]
    square = float(np.mean(target**2))
    own = float(np.mean(residual**2 - pair.noise))
    own = max(own, _LEAST_PART * (square - float(np.mean(pair.noise))), _LEAST_VARIANCE)
    noise = (rows * (own + pair.noise)[:, None]).T @ rows / n**2
    noise += _RIDGE * float(np.trace(noise)) / size * np.eye(size)
    return rows.T @ rows / n, rows.T @ target / n, noise


def _values(basis: Basis, features: Floats) -> Floats:
    """Return φ, shape [n, p], 0 where a feature is not known."""
    missing: Bools = np.isnan(features)
    phi = basis.values(np.where(missing, 0.0, features))
    for place, columns in enumerate(basis.places):
        phi[missing[:, place], columns] = 0.0
    return phi
