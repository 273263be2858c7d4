"""The sums of a moment effect model: what is added up, how sensitive it is, and the draws.

Neighbours are two data sets over the same ids that differ in one unit's whole row (outcome, arm and
features), or in its outcome alone. Each stage is chosen by the noisy answers of those before it;
ρ of zCDP adds up over all of them. Sensitivities are proved in `effect_models.md`.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from estimators.concentrated import concentrated_rho
from estimators.effects.models.bayes import entries_of
from estimators.effects.models.moments import (
    EffectFit,
    Foundation,
    Nuisance,
    effect,
    foundation,
    nuisance,
)
from estimators.effects.models.queries import (
    EFFECTS,
    GRAM,
    HISTOGRAMS,
    OUTCOMES,
    SQUARES,
    TABLE,
    TABLE_WEIGHTS,
    TREATED_GRAM,
    TREATMENT,
    queries,
    rho_shares,
)
from estimators.effects.models.table import Partition, n_entries, partitions
from privatizers.accounting.events import ConcentratedNoise
from privatizers.effects.models.lattice_sums import (
    PARTS_OF_RHO,
    Adder,
    Query,
    check_rows,
    drawn_sums,
    noisy_sums,
)
from privatizers.effects.models.rows import EffectRows
from schemas.arrays import Floats, Ints
from schemas.effects.model import EffectDesign, NoisySums, NumberFeature

Batches = Callable[[], Iterable[EffectRows]]
"""Called once a pass: the same rows in the same batches each time."""


@dataclass(frozen=True)
class KnownMoments:
    """What is known when a stage begins: nothing but declarations and noisy sums."""

    design: EffectDesign
    n_rows: int
    sums: dict[str, NoisySums] = field(default_factory=dict)
    base: Foundation | None = None
    nuisance: Nuisance | None = None
    fitted: EffectFit | None = None
    parts: tuple[Partition, ...] = ()

    @property
    def functions(self) -> int:
        """Return p, the number of functions of the basis."""
        if self.base is None:
            raise AssertionError("the basis follows from the histograms")
        return self.base.basis.size


STAGES = (
    (HISTOGRAMS,),
    (GRAM, TREATMENT, OUTCOMES, SQUARES),
    (TREATED_GRAM, EFFECTS),
    (TABLE,),
)
"""What is summed in one pass over the rows."""


def draw_sums(design: EffectDesign, n_rows: int, batches: Batches) -> tuple[NoisySums, ...]:
    """Draw all sums of an effect model over ``n_rows`` units, in three passes or four.

    Guarantee: ρ-zCDP, hence (ε, δ)-DP with the design's ε and δ, for neighbours of the design's
    kind; see :func:`event`. Rows that are not complete count as zeros, and a sum over fewer than n
    rows is one over n rows of which the others are such.
    """
    check_rows(n_rows)
    known = KnownMoments(design, n_rows)
    for stage in STAGES:
        known = released(known, stage, batches())
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
    asked = [query for query in queries_of(known) if query.name in stage]
    if not asked:
        return known
    adders = {query.name: Adder(query) for query in asked}
    for batch in batches:
        for name, sums in batch_sums(known, stage, batch):
            adders[name].add(sums)
    return after(known, {q.name: draw(q, adders[q.name].steps()) for q in asked})


def after(known: KnownMoments, drawn: dict[str, NoisySums]) -> KnownMoments:
    """Return what is known once ``drawn`` are, too."""
    design, n_rows = known.design, known.n_rows
    sums = known.sums | drawn
    base, nuisances, fitted, parts = known.base, known.nuisance, known.fitted, known.parts
    if HISTOGRAMS in drawn:
        base = foundation(design, n_rows, sums[HISTOGRAMS])
    if base is not None and OUTCOMES in drawn:
        nuisances = nuisance(design, base, sums)
    if base is not None and nuisances is not None and EFFECTS in drawn:
        fitted = effect(base, nuisances, sums)
        parts = partitions(design, base, fitted) if design.has_table else ()
    return KnownMoments(design, n_rows, sums, base, nuisances, fitted, parts)


def stand_in(design: EffectDesign, n_rows: int) -> tuple[NoisySums, ...]:
    """Return sums of the shape of :func:`draw_sums`, of no row and without a draw.

    What can fail for a design fails here, before anything is drawn.
    """
    check_rows(n_rows)
    known = KnownMoments(design, n_rows)
    for stage in STAGES:
        asked = [query for query in queries_of(known) if query.name in stage]
        nothing = {q.name: noisy_sums(q, np.zeros(q.size, dtype=np.int64)) for q in asked}
        known = after(known, nothing) if asked else known
    return tuple(known.sums.values())


def rho_of(design: EffectDesign) -> float:
    """Return ρ of all sums together, the greatest whose price is the design's ε and δ."""
    return concentrated_rho(design.epsilon, design.delta)


def event(sums: Iterable[NoisySums]) -> ConcentratedNoise:
    """Return what was done to a unit's row, for the accountant."""
    return ConcentratedNoise(math.fsum(each.rho for each in sums))


def queries_of(known: KnownMoments) -> Iterator[Query]:
    """Return the sums that can be asked for with what is ``known``, in the order of their draws.

    | sums | Δ, whole row | Δ, outcome |
    |---|---|---|
    | histograms | √(2d) | exact |
    | Σ v vᵀ | √2 B² | exact |
    | Σ w v (T − 1/2) | B | exact |
    | Σ w v y | 2B | 2B |
    | Σ w² y² | 1 | 1 |
    | Σ (T − e)² v vᵀ | √2 t² B² | exact |
    | Σ w v (T − e) clip(y − η, −C, C) | 2 t C B | t B min(2C, 2) |
    | table of P partitions | 2 √P | 2 √P |

    where B² = p, v = w φ, |v| ≤ B, t = max |T − e|.
    """
    design = known.design
    rho, shares = rho_of(design), rho_shares(design)
    for name in queries(design):
        if name != HISTOGRAMS and known.base is None:
            return
        if name in (TREATED_GRAM, EFFECTS) and known.nuisance is None:
            return
        if name == TABLE and not known.parts:
            return
        size, sensitivity = _size_and_sensitivity(known, name)
        spent = rho * shares[name] * PARTS_OF_RHO
        yield Query(name, size, sensitivity, spent, is_count=name == HISTOGRAMS)


def _size_and_sensitivity(known: KnownMoments, name: str) -> tuple[int, float]:
    design = known.design
    if name == HISTOGRAMS:
        return sum(f.n_cells for f in design.features), math.sqrt(2.0 * len(design.features))
    if name == TABLE:
        return n_entries(known.parts), 2.0 * math.sqrt(len(known.parts))
    p = known.functions
    bound = math.sqrt(p)
    of_second_stage = {
        GRAM: (p * (p + 1) // 2, math.sqrt(2.0) * p),
        TREATMENT: (p, bound),
        OUTCOMES: (p, 2.0 * bound),
        SQUARES: (1, 1.0),
    }
    if name in of_second_stage:
        return of_second_stage[name]
    if known.nuisance is None:
        raise AssertionError(f"{name} follows from the sums before it")
    weight, clip = known.nuisance.most_weight, known.nuisance.clip
    if name == TREATED_GRAM:
        return p * (p + 1) // 2, math.sqrt(2.0) * weight**2 * p
    moved = 2.0 * clip if design.neighbours == "row" else min(2.0 * clip, 2.0)
    return p, weight * bound * moved


def batch_sums(
    known: KnownMoments, stage: tuple[str, ...], batch: EffectRows
) -> Iterator[tuple[str, Floats]]:
    """Return the exact sums of a ``stage`` over one batch, by name; shapes [k], in doubles."""
    rows = batch.kept()
    if stage == STAGES[0]:
        yield HISTOGRAMS, histograms(known.design, rows)
        return
    if known.base is None:
        raise AssertionError("the basis follows from the histograms")
    treated = rows.treated.astype(np.float64)
    v, w = known.base.basis.weighted(rows.features)
    wv = v * w[:, None]
    if stage == STAGES[1]:
        yield GRAM, entries_of(v.T @ v)
        yield OUTCOMES, wv.T @ rows.outcome
        yield SQUARES, np.array([float((w * rows.outcome) @ (w * rows.outcome))])
        if known.design.propensity.kind == "learn":
            yield TREATMENT, wv.T @ (treated - 0.5)
        return
    if known.nuisance is None:
        raise AssertionError("effects follow from outcomes and propensities")
    phi = v / w[:, None]
    e = known.nuisance.propensities(phi, rows.propensity)
    if stage == STAGES[2]:
        clip = known.nuisance.clip
        residual = np.clip(rows.outcome - known.nuisance.outcomes(phi), -clip, clip)
        yield EFFECTS, wv.T @ ((treated - e) * residual)
        if known.design.propensity.kind != "value":
            weighted = v * (treated - e)[:, None]
            yield TREATED_GRAM, entries_of(weighted.T @ weighted)
        return
    yield TABLE, _table(known, known.nuisance.psi(phi, treated, rows.outcome, e), rows, phi)


def histograms(design: EffectDesign, rows: EffectRows) -> Floats:
    """Return the counts of each feature's bins or levels, one feature behind the other."""
    counts = []
    for place, feature in enumerate(design.features):
        cells = rows.features[:, place]
        if isinstance(feature, NumberFeature):
            cells = np.minimum(cells * feature.n_cells, feature.n_cells - 1)
        counts.append(np.bincount(cells.astype(np.int64), minlength=feature.n_cells))
    return np.concatenate(counts).astype(np.float64)


def _table(known: KnownMoments, psi: Floats, rows: EffectRows, phi: Floats) -> Floats:
    """Return (0.3 n, Σ ψ/Ψ, 0.4 Σ (ψ/Ψ)²) by partition and cell, one behind the other."""
    if known.fitted is None:
        raise AssertionError("the table follows from the effects")
    predicted = known.fitted.effects(phi)
    count, total, square = TABLE_WEIGHTS
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
