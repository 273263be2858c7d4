"""What is known between the stages of Algorithm 1, and the scores that a row has by it.

Nothing here but declarations, noisy sums and what follows from them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from estimators.effects.models.basis import Basis
from estimators.effects.models.meta_plan import (
    CONTROL,
    TREATED,
    TREATED_EFFECT,
    MetaLearner,
)
from estimators.effects.models.moments import RESIDUALS
from schemas.arrays import Floats
from schemas.effects.model import EffectDesign, NoisySums


@dataclass(frozen=True)
class OutcomeFit:
    """Outcomes as functions of the features and, but for the R-learner, of the arm."""

    level: Floats = field(repr=False)
    """a (DR, S) or γ (R), shape [p]."""
    arm: Floats | None = field(repr=False)
    """b, shape [p]; None for the R-learner."""
    residual_std: float

    @property
    def clip(self) -> float:
        """C."""
        return min(RESIDUALS * self.residual_std, 2.0)

    def means(self, phi: Floats, sign: Floats | float) -> Floats:
        """Return μ, shape [n]; ``sign`` is 2t − 1 and does not matter to the R-learner."""
        mean = phi @ self.level
        if self.arm is not None:
            mean = mean + sign * (phi @ self.arm)
        found: Floats = np.clip(mean, -1.0, 1.0)
        return found


@dataclass(frozen=True)
class KnownSums:
    """What is known between two passes: declarations, noisy sums, and what follows from them."""

    learner: MetaLearner
    design: EffectDesign
    n_rows: int
    sums: Mapping[str, NoisySums] = field(default_factory=dict)
    basis: Basis | None = None
    degree: int = 1
    complete: float = 1.0
    """The share of rows that take part, by noisy counts."""
    propensity: Floats | None = None
    """π, shape [p]."""
    outcome: OutcomeFit | None = None
    arms: Mapping[str, Floats] = field(default_factory=dict)
    """b_1, b_0, β_1, β_0 of the T- and X-learner by stage, shape [p] each."""
    effect: Floats | None = None
    """β, shape [p], in halves of the outcomes' range."""

    @property
    def functions(self) -> Basis:
        """The basis; every stage but the first begins with it."""
        if self.basis is None:
            raise AssertionError("the basis follows from the histograms")
        return self.basis

    @property
    def outcomes(self) -> OutcomeFit:
        """Outcomes, which the last stage begins with."""
        if self.outcome is None:
            raise AssertionError("outcomes follow from the sums of their stage")
        return self.outcome

    @property
    def least_share(self) -> float:
        """The least that e or 1 − e can be: 1/e(1 − e)·|T − e| is at most one over it."""
        value = self.design.propensity.value
        if self.design.propensity.kind == "value" and value is not None:
            return min(value, 1.0 - value)
        return self.design.propensity.bound

    @property
    def most_weight(self) -> float:
        """Return max |T − e|."""
        return 1.0 - self.least_share

    @property
    def greatest_score(self) -> float:
        """Ψ = 2 + C/min(e, 1 − e) ≥ |ψ|."""
        return 2.0 + self.outcomes.clip / self.least_share

    def propensities(self, phi: Floats, declared: Floats | None) -> Floats:
        """Return e, shape [n]: the constant, the declared column, or clip(1/2 + φ π, c, 1 − c)."""
        how = self.design.propensity
        if how.kind == "value" and how.value is not None:
            return np.full(len(phi), how.value)
        e = declared if self.propensity is None else 0.5 + phi @ self.propensity
        if e is None:
            raise ValueError("the propensities of rows are declared, and not there")
        clipped: Floats = np.clip(e, how.bound, 1.0 - how.bound)
        return clipped

    def scores(self, phi: Floats, treated: Floats, outcome: Floats, e: Floats) -> Floats:
        """Return ψ of the DR-learner, shape [n], within ±Ψ."""
        fit = self.outcomes
        residual = np.clip(outcome - fit.means(phi, 2.0 * treated - 1.0), -fit.clip, fit.clip)
        psi = fit.means(phi, 1.0) - fit.means(phi, -1.0)
        psi = psi + (treated - e) * residual / (e * (1.0 - e))
        found: Floats = np.clip(psi, -self.greatest_score, self.greatest_score)
        return found


def arm_target(stage: str, known: KnownSums, phi: Floats, outcome: Floats) -> Floats:
    """Return z of a stage of the T- or X-learner, shape [n], in [−1, 1]."""
    if stage in (TREATED, CONTROL):
        return outcome
    other = CONTROL if stage == TREATED_EFFECT else TREATED
    apart = (outcome - np.clip(phi @ known.arms[other], -1.0, 1.0)) / 2.0
    found: Floats = apart if stage == TREATED_EFFECT else -apart
    return found
