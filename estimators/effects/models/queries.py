"""The sums that effect models are made from, in which order, and how ρ is shared between them.

Niu et al. (2022), §3.1: the DR- and the R-learner have a stage for the propensity and one for
outcomes, on a quarter of the rows each, and one for the effect on a half; where the propensity is
declared, outcomes have both quarters. The S-learner is a single stage on all rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from schemas.effects.model import EffectDesign

HISTOGRAMS: Final = "histograms"
"""Counts of each feature's bins or levels."""
GRAM: Final = "gram"
"""Σ v vᵀ, each entry once, those off the diagonal times √2."""
TREATMENT: Final = "treatment"
"""Σ w v (T − 1/2): only where the propensity is learnt."""
OUTCOMES: Final = "outcomes"
"""Σ w v y."""
SQUARES: Final = "squares"
"""Σ w² y²."""
TREATED_GRAM: Final = "treated_gram"
"""Σ (T − e)² v vᵀ, as the Gram matrix; unless the propensity is one constant."""
EFFECTS: Final = "effects"
"""Σ w v (T − e) clip(y − η, −C, C)."""
TABLE: Final = "table"
"""By partition and subgroup: 0.3 n, Σ ψ/Ψ, 0.4 Σ (ψ/Ψ)²; only where intervals are given."""

# of the learners of Algorithm 1 alone

SIGNED_GRAM: Final = "signed_gram"
"""Σ v vᵀ and Σ (2T − 1) v vᵀ, one behind the other."""
SIGNED_OUTCOMES: Final = "signed_outcomes"
"""Σ w v y and Σ w v (2T − 1) y."""
SCORES: Final = "scores"
"""Σ w v ψ, of the doubly robust score ψ."""
SQUARED_SCORES: Final = "squared_scores"
"""Σ w² (ψ/Ψ)², Ψ being the greatest |ψ|."""
RESIDUALS: Final = "residuals"
"""Σ w v (T − e) clip(y − η, −C, C), as :data:`EFFECTS`."""

_SHARES: Final = {
    HISTOGRAMS: 0.05,
    GRAM: 0.13,
    TREATMENT: 0.10,
    OUTCOMES: 0.13,
    SQUARES: 0.04,
    TREATED_GRAM: 0.12,
    EFFECTS: 0.43,
}
"""Of the ρ that the table leaves, brought to 1 over those in use."""

_TABLE_SHARE: Final = 0.05
"""For each partition of the table, so that more of them do not make each noisier …"""
_MOST_FOR_TABLE: Final = 0.25
"""… up to five."""

_OF_FEATURES: Final = (HISTOGRAMS, GRAM, SIGNED_GRAM, TREATMENT, TREATED_GRAM)
"""Sums without outcomes."""

TABLE_WEIGHTS: Final = (0.3, 1.0, 0.4)
"""Of a count, a sum and a sum of squares, which share one noise."""


def queries(design: EffectDesign) -> tuple[str, ...]:
    """Return the names of the sums that a model of this design has, in the order of their draws."""
    without = {"learn": (), "column": (TREATMENT,), "value": (TREATMENT, TREATED_GRAM)}
    names = tuple(name for name in _SHARES if name not in without[design.propensity.kind])
    return (*names, TABLE) if design.has_table else names


def is_paid(design: EffectDesign, name: str) -> bool:
    """Whether a sum is of what is protected: neighbours in an outcome share those of features."""
    return design.neighbours == "row" or name not in _OF_FEATURES


def n_partitions(design: EffectDesign) -> int:
    """Return P: all units, the declared subgroups, and the predicted effect if it is asked for."""
    return 1 + len(design.subgroups) + design.targeting


def rho_shares(design: EffectDesign) -> dict[str, float]:
    """Return each query's part of ρ, in the order of their draws; 0 for what is not protected.

    The table has a twentieth for each of its partitions, a quarter at most; the others share the
    rest.
    """
    names = queries(design)
    paid = [name for name in names if is_paid(design, name)]
    weights = {name: _SHARES[name] for name in paid if name != TABLE}
    table = min(_TABLE_SHARE * n_partitions(design), _MOST_FOR_TABLE) if design.has_table else 0.0
    left = (1.0 - table) / sum(weights.values())
    shares = {name: left * weight for name, weight in weights.items()} | {TABLE: table}
    return {name: shares[name] if name in paid else 0.0 for name in names}


# the stages of Algorithm 1

MetaLearner = Literal["dr", "r", "s"]

PROPENSITY: Final = "propensity"
OUTCOME: Final = "outcome"
EFFECT: Final = "effect"

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
        first = {} if plans else {HISTOGRAMS: _HISTOGRAMS_WEIGHT}
        weights, passes = first | own, [tuple(part) for part in (first, own) if part]
        paid = [one for one in weights if is_paid(design, one)]
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
    if learner == "s":
        yield OUTCOME, 1.0, {SIGNED_GRAM: 0.35, SIGNED_OUTCOMES: 0.5, SQUARES: 0.15}
        return
    if is_learnt:
        yield PROPENSITY, 0.25, {GRAM: 0.4, TREATMENT: 0.6}
    before = 0.25 if is_learnt else 0.5
    if learner == "dr":
        yield OUTCOME, before, {SIGNED_GRAM: 0.4, SIGNED_OUTCOMES: 0.45, SQUARES: 0.15}
        yield EFFECT, 0.5, {GRAM: 0.3, SCORES: 0.6, SQUARED_SCORES: 0.1}
    else:
        yield OUTCOME, before, {GRAM: 0.4, OUTCOMES: 0.45, SQUARES: 0.15}
        yield EFFECT, 0.5, {TREATED_GRAM: 0.25, RESIDUALS: 0.75}
