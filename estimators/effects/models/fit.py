"""From noisy sums to the effect model, whichever learner they were drawn for: post-processing."""

import functools
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from estimators.effects.models.bayes import Posterior
from estimators.effects.models.meta_stages import KnownSums, after
from estimators.effects.models.model import EffectModel
from estimators.effects.models.moments import (
    Foundation,
    Nuisance,
    added,
    counts_by_feature,
    degree_for,
    effect,
    foundation,
    nuisance,
    rho_by,
)
from estimators.effects.models.queries import (
    HISTOGRAMS,
    OUTCOMES,
    TABLE,
    MetaLearner,
    named,
    queries,
    stage_sums,
    stages,
)
from estimators.effects.models.table import cells_of, curves_of, partitions, table_of
from schemas.arrays import Floats
from schemas.effects.design import SITE
from schemas.effects.model import (
    EffectDesign,
    Learner,
    NoisySums,
    NumberFeature,
    SiteSums,
    SubgroupEffect,
)

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
        site_clips={},
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

    Sites that agreed on a design have the same functions of features, so sums over their people
    add up, and so do the variances of their noise. What a site's outcomes are compared with, and
    where they are clipped, follows from its own sums: given the features, neither tells the arm.

    Raises:
        ValueError: The sums are not those of such a model.
    """
    places = () if design.agreed is None else design.agreed.sites
    asked = queries(design)
    expected = tuple(named(one.site, each) for one in places for each in asked) or asked
    if tuple(each.name for each in sums) != expected:
        raise ValueError(f"a model of this design has the sums {', '.join(expected)}")
    sizes = [one.n_rows for one in places] or [n_rows]
    if sum(sizes) != n_rows:
        raise ValueError("the units of a model are those of its sites")
    starts = range(0, len(sums), len(asked))
    own = [dict(zip(asked, sums[one : one + len(asked)], strict=True)) for one in starts]
    bases = [foundation(design, n, one[HISTOGRAMS]) for n, one in zip(sizes, own, strict=True)]
    knowns = [nuisance(design, base, one) for base, one in zip(bases, own, strict=True)]
    by_name, base, known = own[0], bases[0], knowns[0]
    if places:
        by_name = {name: added([one[name] for one in own]) for name in asked}
        base = replace(base, n_complete=math.fsum(each.n_complete for each in bases))
        known = nuisance(design, base, by_name)
    found = effect(base, known, by_name)
    of_cells = [SubgroupEffect("all", "all", None, LEARNT)]
    if design.has_table:
        parts = partitions(design, base, found)
        tables = [cells_of(design, each, one[TABLE]) for each, one in zip(knowns, own, strict=True)]
        of_cells = table_of(design, parts, functools.reduce(operator.add, tables))
        of_cells[1:1] = [
            replace(table_of(design, parts, table)[0], name=SITE, level=place.site)
            for place, table in zip(places, tables, strict=bool(places))
        ]
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
        site_clips={
            place.site: each.clip for place, each in zip(places, knowns, strict=bool(places))
        },
        fitted=found,
        ate=whole.effect,
        subgroups=tuple(subgroups),
        no_intervals=whole.refused,
        curves=curves_of(design, base, found, errors if design.has_table else None),
        warnings=(
            *_warnings(design, n_rows, base, known, by_name[HISTOGRAMS]),
            # Of outcomes, which nothing clips: a site that is all noise may clip its effects away.
            *_too_noisy(places, [one[OUTCOMES].noise_std for one in own]),
            *(_another_degree(design, base, own) if places else ()),
        ),
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


def _too_noisy(places: Sequence[SiteSums], noise_std: Sequence[float]) -> Iterator[str]:
    """Warn of sites without which the others' sums have less than half the noise, in variance."""
    n_rows, noise = sum(one.n_rows for one in places), math.fsum(each**2 for each in noise_std)
    for place, each in zip(places, noise_std, strict=bool(places)):
        others = n_rows - place.n_rows
        if others and 2.0 * (noise - each**2) / others**2 < noise / n_rows**2:
            yield (
                f"site {place.site!r} has so much noise for its {place.n_rows:,} units that the "
                "others alone would have less than half as much; leave it out"
            )


def _another_degree(
    design: EffectDesign, base: Foundation, own: Sequence[Mapping[str, NoisySums]]
) -> Iterator[str]:
    """Say so where sites agreed on another degree than one place would choose, by all noise."""
    degree = 2
    if design.neighbours == "row":
        parts = math.fsum(1.0 / rho_by(design, OUTCOMES, one[OUTCOMES]) for one in own)
        degree = degree_for(base.n_complete, 1.0 / parts, design)
    if degree != base.degree:
        yield (
            f"for so many units and so much noise degree {degree} would do better than "
            f"{base.degree}; agree on degree = {degree} next time"
        )


def _is_narrow(count: Floats, noise_std: float, base: Foundation) -> bool:
    clear = np.flatnonzero(count > max(_CLEAR * noise_std, 0.5))
    if not len(clear):
        return False
    close = bool(clear[-1] - clear[0] < _CLOSE * len(count))
    return close and float(count[clear].sum()) > base.n_complete / 2.0
