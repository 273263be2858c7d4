"""The moment effect model: what its noisy sums say of who benefits."""

from dataclasses import dataclass, field

import numpy as np

from estimators.effects.models.moments import EffectFit, Foundation, Nuisance
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
    coefficients: Floats = field(repr=False)
    """β, shape [p], in the unit of the outcomes."""
    covariance: Floats = field(repr=False)
    """Of β, by noise and sampling, shape [p, p]; blind to the error of a learnt propensity."""
    ate: Effect | None
    """The average effect; None where the propensity was learnt."""
    subgroups: tuple[SubgroupEffect, ...]
    no_intervals: str | None
    """Why there are no intervals, in words; None where there are."""
    importance: tuple[tuple[str, float], ...]
    """Variance of each feature's part of the effect over its noisy histogram, in the outcomes'
    unit squared; the greatest first."""
    curves: tuple[Curve, ...]
    warnings: tuple[str, ...]

    @property
    def degree(self) -> int:
        """1 or 2: of the polynomials of numbers."""
        return self.base.degree

    @property
    def has_errors(self) -> bool:
        """Whether errors of predictions are known: not where the propensity was learnt."""
        return self.design.has_table and self.nuisance is not None

    def predict(self, features: Floats) -> tuple[Floats, Floats | None]:
        """Return effects and their noise standard errors, shapes [n], in the outcomes' unit.

        ``features`` are as an effect model takes them, shape [n, d]: of a number its position in
        [0, 1], of levels the number of its level. The errors are of noise and sampling, not of
        what an additive curve cannot follow; None where the propensity was learnt.
        """
        phi = self.base.basis.values(features)
        effects = self.fitted.effects(phi) * self.design.half
        if not self.has_errors:
            return effects, None
        return effects, np.sqrt(np.einsum("np,pq,nq->n", phi, self.covariance, phi))
