"""The effect of a learner of Algorithm 1, from its noisy sums alone.

What a stage's sums give is in :mod:`estimators.effects.models.meta_stages`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from estimators.effects.models.meta_known import KnownSums
from estimators.effects.models.meta_plan import MetaLearner, named, stage_sums, stages
from estimators.effects.models.meta_stages import after
from estimators.effects.models.moments import GREATEST_EFFECT
from schemas.arrays import Floats
from schemas.effects.model import EffectDesign, NoisySums


@dataclass(frozen=True)
class MetaModel:
    """The effect of a learner of Algorithm 1, recomputed from its noisy sums."""

    known: KnownSums = field(repr=False)
    sums: tuple[NoisySums, ...]
    coefficients: Floats = field(repr=False)
    """β, shape [p], in the unit of the outcomes; the first is the average effect."""
    importance: tuple[tuple[str, float], ...]
    """Variance of each feature's part of the effect over its noisy histogram, in the outcomes'
    unit squared; the greatest first."""

    @property
    def degree(self) -> int:
        """1 or 2: of the polynomials of numbers."""
        return self.known.degree

    def predict(self, features: Floats) -> tuple[Floats, None]:
        """Return effects, shape [n], in the outcomes' unit; no standard errors: none are known.

        ``features`` are as effect models take them, shape [n, d]: of a number its position in
        [0, 1], of levels the number of its level.
        """
        half = self.known.design.half
        effects = self.known.functions.values(features) @ (self.coefficients / half)
        return np.clip(effects, -GREATEST_EFFECT, GREATEST_EFFECT) * half, None


def fit(
    learner: MetaLearner, design: EffectDesign, n_rows: int, sums: Iterable[NoisySums]
) -> MetaModel:
    """Return the model that the noisy sums of ``learner`` give, without any row.

    Raises ValueError unless ``sums`` are those of the learner's stages, in their order.
    """
    drawn = tuple(sums)
    expected = stage_sums(learner, design)
    if tuple(each.name for each in drawn) != expected:
        raise ValueError(f"the sums of learner {learner!r} are {', '.join(expected)}")
    by_name = {each.name: each for each in drawn}
    known = KnownSums(learner, design, n_rows)
    for plan in stages(learner, design):
        for asked in plan.passes:
            names = [named(plan.name, each) for each in asked]
            known = after(known, {name: by_name[name] for name in names})
    if known.effect is None:
        raise AssertionError("the last stage gives the effect")
    beta = known.effect * design.half
    parts = [float(beta[place] @ beta[place]) for place in known.functions.places]
    pairs = zip((each.name for each in design.features), parts, strict=True)
    importance = tuple(sorted(pairs, key=lambda pair: -pair[1]))
    return MetaModel(known, drawn, beta, importance)
