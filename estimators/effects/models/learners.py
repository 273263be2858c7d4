"""One way from noisy sums to a model, whichever learner they were drawn for."""

from collections.abc import Sequence

import numpy as np

from estimators.effects.models.bayes import Posterior
from estimators.effects.models.fit import fit
from estimators.effects.models.meta_plan import MetaLearner, named, stage_sums, stages
from estimators.effects.models.meta_stages import KnownSums, after
from estimators.effects.models.model import EffectModel
from estimators.effects.models.moments import EffectFit, Foundation
from estimators.effects.models.table import curves_of
from schemas.effects.model import EffectDesign, Learner, NoisySums

NO_TABLE = (
    "no interval: learners of Algorithm 1 spend everything on their stages, and have no table of "
    'average effects; learner = "moments" has one'
)


def fit_learner(
    learner: Learner | MetaLearner, design: EffectDesign, n_rows: int, sums: Sequence[NoisySums]
) -> EffectModel:
    """Return the effect model that ``sums`` of a ``learner`` give, without any row.

    Of learners of Algorithm 1 no standard errors are known.

    Raises:
        ValueError: The sums are not those of such a model.
    """
    if learner == "moments":
        return fit(design, n_rows, sums)
    known = known_by(learner, design, n_rows, sums)
    if known.effect is None:
        raise AssertionError("the last stage gives the effect")
    base = Foundation(known.functions, known.degree, known.complete * n_rows)
    p = known.functions.size
    fitted = EffectFit(Posterior(known.effect, np.zeros((p, p))))
    return EffectModel(
        design=design,
        n_rows=n_rows,
        sums=tuple(sums),
        base=base,
        nuisance=None,
        clip=None if known.outcome is None else known.outcome.clip,
        fitted=fitted,
        ate=None,
        subgroups=(),
        no_intervals=NO_TABLE,
        curves=curves_of(design, base, fitted, None),
        warnings=(),
    )


def known_by(
    learner: MetaLearner, design: EffectDesign, n_rows: int, sums: Sequence[NoisySums]
) -> KnownSums:
    """Return what is known once all stages of a learner of Algorithm 1 are done.

    Raises ValueError unless ``sums`` are those of the learner's stages, in their order.
    """
    expected = stage_sums(learner, design)
    if tuple(each.name for each in sums) != expected:
        raise ValueError(f"the sums of learner {learner!r} are {', '.join(expected)}")
    by_name = {each.name: each for each in sums}
    known = KnownSums(learner, design, n_rows)
    for plan in stages(learner, design):
        for asked in plan.passes:
            names = [named(plan.name, each) for each in asked]
            known = after(known, {name: by_name[name] for name in names})
    return known
