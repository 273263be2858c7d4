"""One way from noisy sums to a model, whichever learner they were drawn for."""

from collections.abc import Sequence

import numpy as np

from estimators.effects.models import meta_fit
from estimators.effects.models.bayes import Posterior
from estimators.effects.models.fit import curves_of, fit
from estimators.effects.models.model import EffectModel
from estimators.effects.models.moments import EffectFit, Foundation
from schemas.effects.model import EffectDesign, Learner, NoisySums

NO_TABLE = (
    "no interval: learners of Algorithm 1 spend everything on their stages, and have no table of "
    'average effects; learner = "moments" has one'
)


def fit_learner(
    learner: Learner, design: EffectDesign, n_rows: int, sums: Sequence[NoisySums]
) -> EffectModel:
    """Return the effect model that ``sums`` of a ``learner`` give, without any row.

    Raises:
        ValueError: The sums are not those of such a model.
    """
    if learner == "moments":
        return fit(design, n_rows, sums)
    found = meta_fit.fit(learner, design, n_rows, sums)
    known = found.known
    base = Foundation(known.functions, known.degree, known.complete * n_rows)
    p = known.functions.size
    fitted = EffectFit(Posterior(found.coefficients / design.half, np.zeros((p, p))))
    return EffectModel(
        design=design,
        n_rows=n_rows,
        sums=tuple(sums),
        base=base,
        nuisance=None,
        clip=None if known.outcome is None else known.outcome.clip,
        fitted=fitted,
        coefficients=found.coefficients,
        covariance=np.zeros((p, p)),
        ate=None,
        subgroups=(),
        no_intervals=NO_TABLE,
        importance=found.importance,
        curves=curves_of(design, base, fitted, with_errors=False),
        warnings=(),
    )
