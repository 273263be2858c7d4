"""The sums of a moment effect model: what is added up, how sensitive it is, and the draws.

Neighbours are two data sets over the same ids that differ in one unit's whole row (outcome, arm and
features), or in its outcome alone. Each stage is chosen by the noisy answers of those before it;
ρ of zCDP adds up over all of them. Sensitivities are proved in `effect_models.md`.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from estimators.concentrated import concentrated_rho
from estimators.effects.models import queries
from estimators.effects.models.basis import counts_of
from estimators.effects.models.bayes import Posterior
from estimators.effects.models.moments import (
    Foundation,
    Nuisance,
    effect,
    foundation,
    nuisance,
)
from estimators.effects.models.table import Partition, partitions
from privatizers.accounting.events import ConcentratedNoise
from privatizers.effects.models.exact_sums import (
    plain_sum,
    size_and_sensitivity,
    treated_gram,
)
from privatizers.effects.models.lattice_sums import (
    PARTS_OF_RHO,
    Query,
    check_rows,
    drawn_sums,
    noisy_sums,
    summed,
)
from privatizers.effects.models.rows import Batches, EffectRows
from schemas.arrays import Floats, Ints
from schemas.effects.model import EffectDesign, NoisySums


@dataclass(frozen=True)
class KnownMoments:
    """What is known when a stage begins: nothing but declarations and noisy sums."""

    design: EffectDesign
    n_rows: int
    sums: dict[str, NoisySums] = field(default_factory=dict)
    base: Foundation | None = None
    nuisance: Nuisance | None = None
    fitted: Posterior | None = None
    parts: tuple[Partition, ...] = ()


STAGES = (
    (queries.HISTOGRAMS,),
    (queries.GRAM, queries.TREATMENT, queries.OUTCOMES, queries.SQUARES),
    (queries.TREATED_GRAM, queries.EFFECTS),
    (queries.TABLE,),
)
"""What is summed in one pass over the rows."""


def draw_sums(
    design: EffectDesign,
    n_rows: int,
    batches: Batches,
    draw: Callable[[Query, Ints], NoisySums] = drawn_sums,
) -> tuple[NoisySums, ...]:
    """Draw all sums of an effect model over ``n_rows`` units, in three passes or four.

    Guarantee: ρ-zCDP, hence (ε, δ)-DP with the design's ε and δ, for neighbours of the design's
    kind; see :func:`event`. Rows that are not complete count as zeros, and a sum over fewer than n
    rows is one over n rows of which the others are such.
    """
    check_rows(n_rows)
    known = KnownMoments(design, n_rows)
    for stage in STAGES:
        known = released(known, stage, batches(), draw)
    return tuple(known.sums.values())


def released(
    known: KnownMoments,
    stage: tuple[str, ...],
    batches: Iterable[EffectRows],
    draw: Callable[[Query, Ints], NoisySums] = drawn_sums,
) -> KnownMoments:
    """Return what is known after one ``stage``, for which all ``batches`` are read once.

    ``draw`` makes noisy sums of the whole steps of exact ones; an audit hands in its own.
    """
    asked = {name: query_of(known, name) for name in queries.queries(known.design) if name in stage}
    if not asked:
        return known
    steps = summed(asked, (batch_sums(known, stage, batch) for batch in batches))
    return after(known, {name: draw(query, steps[name]) for name, query in asked.items()})


def after(known: KnownMoments, drawn: dict[str, NoisySums]) -> KnownMoments:
    """Return what is known once ``drawn`` are, too."""
    design, sums = known.design, known.sums | drawn
    known = replace(known, sums=sums)
    if queries.HISTOGRAMS in drawn:
        known = replace(known, base=foundation(design, known.n_rows, sums[queries.HISTOGRAMS]))
    if known.base is not None and queries.OUTCOMES in drawn:
        known = replace(known, nuisance=nuisance(design, known.base, sums))
    if known.base is not None and known.nuisance is not None and queries.EFFECTS in drawn:
        fitted = effect(known.base, known.nuisance, sums)
        parts = partitions(design, known.base, fitted) if design.has_table else ()
        known = replace(known, fitted=fitted, parts=parts)
    return known


def stand_in(design: EffectDesign, n_rows: int) -> tuple[NoisySums, ...]:
    """Return sums of the shape of :func:`draw_sums`, of no row and without a draw.

    What can fail for a design fails here, before anything is drawn.
    """
    return draw_sums(design, n_rows, tuple, noisy_sums)


def event(sums: Iterable[NoisySums]) -> ConcentratedNoise:
    """Return what was done to a unit's row, for the accountant."""
    return ConcentratedNoise(math.fsum(each.rho for each in sums))


def query_of(known: KnownMoments, name: str) -> Query:
    """Return one of the sums of a stage that begins with what is ``known``.

    Δ is that of :func:`privatizers.effects.models.exact_sums.size_and_sensitivity`; of a table of P
    partitions it is 2 √P. All together have the greatest ρ whose price is the design's ε and δ.
    """
    design = known.design
    rho, share = concentrated_rho(design.epsilon, design.delta), queries.rho_shares(design)[name]
    size, sensitivity = _size_and_sensitivity(known, name)
    spent = rho * share * PARTS_OF_RHO
    return Query(name, size, sensitivity, spent, is_count=name == queries.HISTOGRAMS)


def _size_and_sensitivity(known: KnownMoments, name: str) -> tuple[int, float]:
    if name == queries.TABLE:
        n_cells = sum(len(part.levels) for part in known.parts)
        return len(queries.TABLE_WEIGHTS) * n_cells, 2.0 * math.sqrt(len(known.parts))
    p, nuisance = 0 if known.base is None else known.base.basis.size, known.nuisance
    of_effects = () if nuisance is None else (nuisance.most_weight, nuisance.clip)
    return size_and_sensitivity(name, known.design, p, *of_effects)


def batch_sums(
    known: KnownMoments, stage: tuple[str, ...], batch: EffectRows
) -> Iterator[tuple[str, Floats]]:
    """Return the exact sums of a ``stage`` over one batch, by name; shapes [k], in doubles."""
    rows = batch.kept()
    if stage == STAGES[0]:
        yield queries.HISTOGRAMS, np.concatenate(counts_of(known.design, rows.features))
        return
    if known.base is None:
        raise AssertionError("the basis follows from the histograms")
    v, w = known.base.basis.weighted(rows.features)
    if stage == STAGES[1]:
        is_learnt = known.design.propensity.kind == "learn"
        for name in stage:
            if name != queries.TREATMENT or is_learnt:
                yield name, plain_sum(name, rows, v, w)
        return
    if known.nuisance is None:
        raise AssertionError("effects follow from outcomes and propensities")
    phi, treated = v / w[:, None], rows.treated.astype(np.float64)
    e = known.nuisance.propensities(phi, rows.propensity)
    if stage == STAGES[2]:
        clip = known.nuisance.clip
        residual = np.clip(rows.outcome - known.nuisance.outcomes(phi), -clip, clip)
        yield queries.EFFECTS, v.T @ (w * (treated - e) * residual)
        if known.design.propensity.kind != "value":
            yield queries.TREATED_GRAM, treated_gram(v, treated - e)
        return
    psi = known.nuisance.psi(phi, treated, rows.outcome, e)
    yield queries.TABLE, _table(known, psi, rows, phi)


def _table(known: KnownMoments, psi: Floats, rows: EffectRows, phi: Floats) -> Floats:
    """Return (0.3 n, Σ ψ/Ψ, 0.4 Σ (ψ/Ψ)²) by partition and cell, one behind the other."""
    if known.fitted is None:
        raise AssertionError("the table follows from the effects")
    predicted = known.fitted.effects(phi)
    count, total, square = queries.TABLE_WEIGHTS
    found = []
    for part in known.parts:
        cells, n_cells = part.cells(rows.features, predicted), len(part.levels)
        found.append(
            np.stack(
                [
                    count * np.bincount(cells, minlength=n_cells),
                    total * np.bincount(cells, psi, n_cells),
                    square * np.bincount(cells, psi * psi, n_cells),
                ],
                axis=1,
            ).ravel()
        )
    return np.concatenate(found)
