"""From noisy sums to the effect model, whichever learner they were drawn for: post-processing."""

from collections.abc import Sequence

import numpy as np

from estimators.effects.models.bayes import Posterior
from estimators.effects.models.meta_stages import KnownSums, after
from estimators.effects.models.model import EffectModel
from estimators.effects.models.moments import (
    Foundation,
    Nuisance,
    counts_by_feature,
    effect,
    foundation,
    nuisance,
)
from estimators.effects.models.queries import (
    HISTOGRAMS,
    TABLE,
    MetaLearner,
    named,
    queries,
    stage_sums,
    stages,
)
from estimators.effects.models.table import curves_of, partitions, table_of
from schemas.arrays import Floats
from schemas.effects.model import EffectDesign, Learner, NoisySums, NumberFeature, SubgroupEffect

NO_TABLE = (
    "no interval: learners of Algorithm 1 spend everything on their stages, and have no table of "
    'average effects; learner = "moments" has one'
)


def fit_learner(
    learner: Learner, design: EffectDesign, n_rows: int, sums: Sequence[NoisySums]
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
    fitted = Posterior(known.effect, np.zeros((p, p)))
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


LEARNT = (
    "no interval: the propensity was learnt from the rows, and an error of it is in no standard "
    "error"
)
_CLEAR = 4.0
"""Standard deviations of its noise that a bin must hold to count as not empty."""
_CLOSE = 0.16
"""Part of all bins."""
_LITTLE = 0.1
"""Of half the outcomes' range."""


def fit(design: EffectDesign, n_rows: int, sums: Sequence[NoisySums]) -> EffectModel:
    """Return the effect model of a design by its noisy ``sums`` over ``n_rows`` units.

    Whoever has the sums gets the same: nothing is drawn, and nothing else of the data is used.

    Raises:
        ValueError: The sums are not those of such a model.
    """
    by_name = {each.name: each for each in sums}
    if tuple(by_name) != queries(design) or len(by_name) != len(sums):
        raise ValueError(f"a model of this design has the sums {', '.join(queries(design))}")
    base = foundation(design, n_rows, by_name[HISTOGRAMS])
    known = nuisance(design, base, by_name)
    found = effect(base, known, by_name)
    of_cells = [SubgroupEffect("all", "all", None, LEARNT)]
    if design.has_table:
        parts = partitions(design, base, found)
        of_cells = table_of(design, parts, known, by_name[TABLE])
    whole, *subgroups = of_cells

    def errors(phi: Floats) -> Floats:
        return design.half * found.std_errors(phi)

    return EffectModel(
        design=design,
        n_rows=n_rows,
        sums=tuple(sums),
        base=base,
        nuisance=known,
        clip=known.clip,
        fitted=found,
        ate=whole.effect,
        subgroups=tuple(subgroups),
        no_intervals=whole.refused,
        curves=curves_of(design, base, found, errors if design.has_table else None),
        warnings=_warnings(design, n_rows, base, known, by_name[HISTOGRAMS]),
    )


def _warnings(
    design: EffectDesign, n_rows: int, base: Foundation, known: Nuisance, histograms: NoisySums
) -> tuple[str, ...]:
    found = []
    if base.n_complete < n_rows:
        found.append(
            f"about {base.n_complete:,.0f} of {n_rows:,} units take part, by noisy counts; rows of "
            "the others are faulty, and count as zeros"
        )
    counts = counts_by_feature(design, histograms)
    for feature, terms, count in zip(design.features, base.basis.terms, counts, strict=True):
        if isinstance(feature, NumberFeature) and _is_narrow(count, histograms.noise_std, base):
            found.append(
                f"feature {feature.name!r}: most units lie in a small part of its declared "
                'bounds; narrower bounds, or scale = "log", would tell more'
            )
        elif not terms.n_terms:
            found.append(
                f"feature {feature.name!r} shows no variation beside the noise, so the effect "
                "does not depend on it here"
            )
    if known.outcome_std < _LITTLE:
        found.append(
            f"outcomes vary by {known.outcome_std / 2.0:.1%} of their declared range; if none "
            "comes near the bounds, narrower ones would tell more: noise is in parts of the range"
        )
    return tuple(found)


def _is_narrow(count: Floats, noise_std: float, base: Foundation) -> bool:
    clear = np.flatnonzero(count > max(_CLEAR * noise_std, 0.5))
    if not len(clear):
        return False
    close = bool(clear[-1] - clear[0] < _CLOSE * len(count))
    return close and float(count[clear].sum()) > base.n_complete / 2.0
