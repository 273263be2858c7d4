"""The moment effect model: what its noisy sums say of who benefits."""

from dataclasses import dataclass, field

from estimators.effects.models.moments import EffectFit, Foundation, Nuisance
from estimators.effects.models.table import importance_of
from schemas.arrays import Floats
from schemas.effects.model import Curve, Effect, EffectDesign, NoisySums, SubgroupEffect


@dataclass(frozen=True)
class EffectModel:
    """An effect model: the noisy sums, and everything that follows from them alone."""

    design: EffectDesign
    n_rows: int
    """n, all units, also those whose rows take no part."""
    sums: tuple[NoisySums, ...]
    base: Foundation = field(repr=False)
    """The basis, and how many rows take part."""
    nuisance: Nuisance | None = field(repr=False)
    """Outcomes and propensities by the features; None of learners that have them by stages."""
    clip: float | None
    """C: in halves of the range, what outcomes may differ by from what was expected of them; None
    where nothing was expected."""
    fitted: EffectFit = field(repr=False)
    """The effect by the features, in halves of the outcomes' range."""
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
        return self.fitted.posterior.mean * self.design.half

    @property
    def covariance(self) -> Floats:
        """Of β, by noise and sampling, shape [p, p]; blind to the error of a learnt propensity."""
        return self.fitted.posterior.covariance * self.design.half**2

    @property
    def importance(self) -> tuple[tuple[str, float], ...]:
        """Variance of each feature's part of the effect over its noisy histogram.

        In the outcomes' unit squared; the greatest first.
        """
        return importance_of(self.design, self.base, self.fitted)

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
