"""The moment effect model: what its noisy sums say of who benefits, and would at another ε."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import sqrt

from estimators.concentrated import concentrated_rho
from estimators.effects.models.bayes import Posterior
from estimators.effects.models.moments import Foundation, Nuisance
from schemas.arrays import Floats
from schemas.effects.model import Curve, Effect, EffectDesign, NoisySums, SubgroupEffect


@dataclass(frozen=True)
class FittedEffect:
    """The effect as a function of features."""

    design: EffectDesign
    base: Foundation = field(repr=False)
    """The basis, and how many rows take part."""
    fitted: Posterior = field(repr=False)
    """The effect by the features, in halves of the outcomes' range."""

    @property
    def importance(self) -> tuple[tuple[str, float], ...]:
        """Variance of each feature's curve in the outcomes' unit squared, the greatest first.

        Σ β² over its terms, which are orthonormal under the histograms.
        """
        beta = self.fitted.mean * self.design.half
        parts = [
            (feature.name, float((beta[place] ** 2).sum()))
            for feature, place in zip(self.design.features, self.base.basis.places, strict=True)
        ]
        return tuple(sorted(parts, key=lambda part: -part[1]))


@dataclass(frozen=True)
class EffectModel(FittedEffect):
    """An effect model: the noisy sums, and everything that follows from them alone."""

    n_rows: int
    """n, all units, also those whose rows take no part."""
    sums: tuple[NoisySums, ...]
    nuisance: Nuisance | None = field(repr=False)
    """Outcomes and propensities by the features; None of learners that have them by stages."""
    clip: float | None
    """C: in halves of the range, what outcomes may differ by from what was expected of them; None
    where nothing was expected."""
    site_clips: Mapping[str, float]
    """Those of the sites that a model adds up, by their names, each by its own sums; the clip of
    all together clips nothing then."""
    ate: Effect | None
    """The average effect; None where the propensity was learnt."""
    subgroups: tuple[SubgroupEffect, ...]
    no_intervals: str | None
    """Why there are no intervals, in words; None where there are."""
    curves: tuple[Curve, ...]
    warnings: tuple[str, ...]

    @property
    def coefficients(self) -> Floats:
        """β, shape [p], in the unit of the outcomes; the first is the average effect."""
        return self.fitted.mean * self.design.half

    @property
    def covariance(self) -> Floats:
        """Of β, by noise and sampling, shape [p, p]; blind to the error of a learnt propensity."""
        return self.fitted.covariance * self.design.half**2

    @property
    def degree(self) -> int:
        """1 or 2: of the polynomials of numbers."""
        return self.base.degree

    def predict(self, features: Floats) -> tuple[Floats, Floats | None]:
        """Return effects and their noise standard errors, shapes [n], in the outcomes' unit.

        ``features`` are as an effect model takes them, shape [n, d]: of a number its position in
        [0, 1], of levels the number of its level. The errors are of noise and sampling, not of
        what an additive curve cannot follow; None where the propensity was learnt.
        """
        phi = self.base.basis.values(features)
        effects = self.fitted.effects(phi) * self.design.half
        if not self.design.has_table or self.nuisance is None:
            return effects, None
        return effects, self.fitted.std_errors(phi) * self.design.half


@dataclass(frozen=True)
class Further:
    """An effect model as it would be at another ε, all else equal."""

    epsilon: float
    noise: float
    """The noise of every sum, as a multiple of what it is."""
    std_error: float | None
    """Of the average effect, in the outcomes' unit; None where there is none."""


def at_epsilon(design: EffectDesign, ate: Effect | None, epsilon: float) -> Further:
    """Return what a model would be at ``epsilon``: its own noise times √(ρ/ρ′).

    ``ate`` is its average effect; None where there is none. All of it follows from ε and δ, which
    are public (Canonne, Kamath and Steinke 2020, Corollary 13).

    The standard error of the average effect is √(se² − p² + p² ρ/ρ′), p the part that privacy has
    in se.
    """
    ratio = concentrated_rho(design.epsilon, design.delta) / concentrated_rho(epsilon, design.delta)
    error = None
    if ate is not None:
        noise = min(ate.privacy_std_error, ate.std_error) ** 2
        error = sqrt(max(ate.std_error**2 - noise + noise * ratio, 0.0))
    return Further(epsilon, sqrt(ratio), error)
