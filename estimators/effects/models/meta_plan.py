"""Which stages a learner of Algorithm 1 has, how many rows each sees, and what it sums.

Niu et al. (2022), §3.1: the DR- and the R-learner have a stage for the propensity and one for
outcomes, on a quarter of the rows each, and one for the effect on a half; where the propensity is
declared, outcomes have both quarters. The S-learner is a single stage on all rows. The T-learner
has one stage an arm, the X-learner (Künzel et al. 2019) two: outcomes, then what they differ by
from the other arm's. Its effect is the average of both arms': its weight function is 1/2 here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from estimators.effects.models.queries import (
    GRAM,
    HISTOGRAMS,
    OUTCOMES,
    SQUARES,
    TREATED_GRAM,
    TREATMENT,
)
from schemas.effects.model import EffectDesign

MetaLearner = Literal["dr", "r", "s", "t", "x"]

PROPENSITY: Final = "propensity"
OUTCOME: Final = "outcome"
EFFECT: Final = "effect"
TREATED: Final = "treated"
CONTROL: Final = "control"
TREATED_EFFECT: Final = "treated_effect"
CONTROL_EFFECT: Final = "control_effect"

SIGNED_GRAM: Final = "signed_gram"
"""Σ v vᵀ and Σ (2T − 1) v vᵀ, one behind the other."""
SIGNED_OUTCOMES: Final = "signed_outcomes"
"""Σ w v y and Σ w v (2T − 1) y."""
SCORES: Final = "scores"
"""Σ w v ψ, of the doubly robust score ψ."""
SQUARED_SCORES: Final = "squared_scores"
"""Σ w² (ψ/Ψ)², Ψ being the greatest |ψ|."""
RESIDUALS: Final = "residuals"
"""Σ w v (T − e) clip(y − η, −C, C)."""

ARM_GRAM: Final = "arm_gram"
"""Σ v vᵀ over the rows of the stage's arm; the others count as zeros."""
ARM_SUMS: Final = "arm_sums"
"""Σ w v z over them: z is y, or half of what y differs by from the other arm's mean."""
ARM_SQUARES: Final = "arm_squares"
"""Σ w² z² over them."""

_OF_FEATURES: Final = (HISTOGRAMS, GRAM, SIGNED_GRAM, TREATMENT, TREATED_GRAM, ARM_GRAM)
"""Sums without outcomes."""

_HISTOGRAMS_WEIGHT: Final = 0.15


@dataclass(frozen=True)
class StagePlan:
    """One stage: a moment regression on a part of the rows."""

    name: str
    share: float
    """Of all rows."""
    passes: tuple[tuple[str, ...], ...]
    """The sums of each pass over the part's rows."""
    weights: dict[str, float]
    """Each sum's part of the stage's ρ, adding up to 1; 0 for what is not protected."""


def stages(learner: MetaLearner, design: EffectDesign) -> tuple[StagePlan, ...]:
    """Return a learner's stages, in their order."""
    return tuple(_stages(learner, design))


def stage_sums(learner: MetaLearner, design: EffectDesign) -> tuple[str, ...]:
    """Return the names of all sums of a learner, ``stage.sum``, in the order of their draws."""
    return tuple(
        named(plan.name, each)
        for plan in stages(learner, design)
        for asked in plan.passes
        for each in asked
    )


def named(stage: str, sums: str) -> str:
    """Return the name under which the sums of a stage are released."""
    return f"{stage}.{sums}"


def _stages(learner: MetaLearner, design: EffectDesign) -> Iterator[StagePlan]:
    if learner == "s":
        joint = {SIGNED_GRAM: 0.35, SIGNED_OUTCOMES: 0.5, SQUARES: 0.15}
        yield _plan(design, OUTCOME, 1.0, joint, first=True)
        return
    if learner in ("t", "x"):
        names = [TREATED, CONTROL, *([TREATED_EFFECT, CONTROL_EFFECT] if learner == "x" else [])]
        arm = {ARM_GRAM: 0.35, ARM_SUMS: 0.5, ARM_SQUARES: 0.15}
        for name in names:
            yield _plan(design, name, 1.0 / len(names), arm, first=name == TREATED)
        return
    is_learnt = design.propensity.kind == "learn"
    if is_learnt:
        yield _plan(design, PROPENSITY, 0.25, {GRAM: 0.4, TREATMENT: 0.6}, first=True)
    outcome = {GRAM: 0.4, OUTCOMES: 0.45, SQUARES: 0.15}
    if learner == "dr":
        outcome = {SIGNED_GRAM: 0.4, SIGNED_OUTCOMES: 0.45, SQUARES: 0.15}
    yield _plan(design, OUTCOME, 0.25 if is_learnt else 0.5, outcome, first=not is_learnt)
    if learner == "dr":
        effect = {GRAM: 0.3, SCORES: 0.6, SQUARED_SCORES: 0.1}
    else:
        effect = {TREATED_GRAM: 0.25, RESIDUALS: 0.75}
    yield _plan(design, EFFECT, 0.5, effect)


def _plan(
    design: EffectDesign, name: str, share: float, weights: dict[str, float], *, first: bool = False
) -> StagePlan:
    passes = [tuple(weights)]
    if first:
        passes, weights = [(HISTOGRAMS,), *passes], {HISTOGRAMS: _HISTOGRAMS_WEIGHT} | weights
    paid = [one for one in weights if design.neighbours == "row" or one not in _OF_FEATURES]
    total = sum(weights[one] for one in paid)
    shares = {one: weights[one] / total if one in paid else 0.0 for one in weights}
    return StagePlan(name, share, tuple(passes), shares)
