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

from estimators.effects.models import queries
from schemas.effects.model import EffectDesign

MetaLearner = Literal["dr", "r", "s", "t", "x"]

PROPENSITY: Final = "propensity"
OUTCOME: Final = "outcome"
EFFECT: Final = "effect"
TREATED: Final = "treated"
CONTROL: Final = "control"
TREATED_EFFECT: Final = "treated_effect"
CONTROL_EFFECT: Final = "control_effect"

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
    """Return a learner's stages, in their order; the first begins with histograms."""
    plans: list[StagePlan] = []
    for name, share, own in _stages(learner, is_learnt=design.propensity.kind == "learn"):
        first = {} if plans else {queries.HISTOGRAMS: _HISTOGRAMS_WEIGHT}
        weights, passes = first | own, [tuple(part) for part in (first, own) if part]
        paid = [one for one in weights if queries.is_paid(design, one)]
        total = sum(weights[one] for one in paid)
        shares = {one: weights[one] / total if one in paid else 0.0 for one in weights}
        plans.append(StagePlan(name, share, tuple(passes), shares))
    return tuple(plans)


def stage_sums(learner: MetaLearner, design: EffectDesign) -> tuple[str, ...]:
    """Return the names of all sums of a learner, ``stage.sum``, in the order of their draws."""
    return tuple(
        named(plan.name, each) for plan in stages(learner, design) for each in plan.weights
    )


def named(stage: str, sums: str) -> str:
    """Return the name under which the sums of a stage are released."""
    return f"{stage}.{sums}"


def _stages(
    learner: MetaLearner, *, is_learnt: bool
) -> Iterator[tuple[str, float, dict[str, float]]]:
    """Each stage's name, its share of rows, and its sums' weights but for histograms."""
    signed = (queries.SIGNED_GRAM, queries.SIGNED_OUTCOMES, queries.SQUARES)
    plain = (queries.GRAM, queries.OUTCOMES, queries.SQUARES)
    if learner == "s":
        yield OUTCOME, 1.0, _weights(signed, 0.35, 0.5, 0.15)
    elif learner in ("t", "x"):
        names = [TREATED, CONTROL, *([TREATED_EFFECT, CONTROL_EFFECT] if learner == "x" else [])]
        of_arm = (queries.ARM_GRAM, queries.ARM_SUMS, queries.ARM_SQUARES)
        for name in names:
            yield name, 1.0 / len(names), _weights(of_arm, 0.35, 0.5, 0.15)
    else:
        if is_learnt:
            yield PROPENSITY, 0.25, {queries.GRAM: 0.4, queries.TREATMENT: 0.6}
        outcome = _weights(signed if learner == "dr" else plain, 0.4, 0.45, 0.15)
        yield OUTCOME, 0.25 if is_learnt else 0.5, outcome
        if learner == "dr":
            scored = (queries.GRAM, queries.SCORES, queries.SQUARED_SCORES)
            yield EFFECT, 0.5, _weights(scored, 0.3, 0.6, 0.1)
        else:
            yield EFFECT, 0.5, {queries.TREATED_GRAM: 0.25, queries.RESIDUALS: 0.75}


def _weights(sums: tuple[str, ...], *weights: float) -> dict[str, float]:
    return dict(zip(sums, weights, strict=True))
