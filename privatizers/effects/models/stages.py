"""Stages of Algorithm 1 that are sound: moment regressions, and what each may see.

A stage gets a part of the rows that no other stage sees, and what was released before it. Its sums
carry discrete Gaussian noise, ρ in all of them together, for one row of the part replaced (or its
outcome); see :func:`sensitivity` for each.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np

from estimators.effects.models.bayes import entries_of
from estimators.effects.models.meta_known import KnownSums, arm_target
from estimators.effects.models.meta_plan import (
    ARM_GRAM,
    ARM_SQUARES,
    ARM_SUMS,
    RESIDUALS,
    SCORES,
    SIGNED_GRAM,
    SIGNED_OUTCOMES,
    SQUARED_SCORES,
    TREATED,
    TREATED_EFFECT,
    StagePlan,
    named,
)
from estimators.effects.models.meta_stages import after
from estimators.effects.models.queries import (
    GRAM,
    HISTOGRAMS,
    OUTCOMES,
    SQUARES,
    TREATED_GRAM,
    TREATMENT,
)
from privatizers.accounting.events import ConcentratedNoise, Disjoint, Event
from privatizers.effects.models.lattice_sums import (
    PARTS_OF_RHO,
    Adder,
    Query,
    drawn_sums,
    noisy_sums,
)
from privatizers.effects.models.moments import histograms
from privatizers.effects.models.partition import Batches, PartRows, RowPart, partition
from privatizers.effects.models.rows import EffectRows
from schemas.arrays import Floats

State = TypeVar("State")


class Stage(Protocol[State]):
    """One stage: it sees the rows of one part, and what earlier stages released."""

    @property
    def name(self) -> str:
        """Its name, and that of its part."""
        ...

    @property
    def share(self) -> float:
        """Its part of all rows."""
        ...

    @property
    def event(self) -> Event:
        """What is done to a row of its part."""
        ...

    def release(self, rows: PartRows, known: State) -> State:
        """Return what is known once it is done; of its rows nothing else leaves it."""
        ...


def price(stages: tuple[Stage[State], ...]) -> Disjoint:
    """Return what all stages together do to a row, which is in the part of one of them.

    Parallel composition, Theorem 6 of Niu et al. (2022): the price is the greatest of the stages',
    the minimum of their trade-off functions. It holds for one row replaced: the parts hang on
    positions alone, and their sizes on n, which is public.
    """
    return Disjoint(tuple(stage.event for stage in stages))


def run(stages: tuple[Stage[State], ...], n_rows: int, batches: Batches, known: State) -> State:
    """Run Algorithm 1: deal the rows out, then every stage on its part, in their order."""
    parts: Mapping[str, RowPart] = partition(
        n_rows, batches, {stage.name: stage.share for stage in stages}
    )
    for stage in stages:
        known = stage.release(parts[stage.name].take(), known)
    return known


@dataclass(frozen=True)
class MomentStage:
    """A moment regression on one part, as planned: ρ-zCDP in the rows of the part."""

    plan: StagePlan = field(repr=False)
    rho: float
    """Of all its sums together."""

    @property
    def name(self) -> str:
        """Its name, and that of its part."""
        return self.plan.name

    @property
    def share(self) -> float:
        """Its part of all rows."""
        return self.plan.share

    @property
    def event(self) -> ConcentratedNoise:
        """ρ; its sums are chosen in turn, which zCDP allows."""
        return ConcentratedNoise(self.rho)

    def release(self, rows: PartRows, known: KnownSums) -> KnownSums:
        """Return what is known once its sums are drawn, in one pass or two."""
        for asked in self.plan.passes:
            queries = {each: self.query(each, known) for each in asked}
            adders = {each: Adder(query) for each, query in queries.items()}
            for batch in rows.batches():
                for each, sums in exact_sums(self.plan.name, asked, known, batch.kept()):
                    adders[each].add(sums)
            drawn = [drawn_sums(query, adders[each].steps()) for each, query in queries.items()]
            known = after(known, {each.name: each for each in drawn})
        return known

    def stand_in(self, known: KnownSums) -> KnownSums:
        """Return what would be known had its part no row, without a draw."""
        for asked in self.plan.passes:
            queries = [self.query(each, known) for each in asked]
            nothing = {q.name: noisy_sums(q, np.zeros(q.size, dtype=np.int64)) for q in queries}
            known = after(known, nothing)
        return known

    def query(self, asked: str, known: KnownSums) -> Query:
        """Return one of its sums as a query, with what may be paid for it."""
        size, moved = size_and_sensitivity(asked, known)
        spent = self.rho * self.plan.weights[asked] * PARTS_OF_RHO
        return Query(named(self.name, asked), size, moved, spent, is_count=asked == HISTOGRAMS)


def size_and_sensitivity(asked: str, known: KnownSums) -> tuple[int, float]:
    """Return how many entries sums have, and Δ, how far neighbours' sums are apart.

    With B² = p, v = w φ, |v| ≤ B, w ≤ 1, |y| ≤ 1, t = max |T − e|, s = 2T − 1:

    - histograms: √(2d). Σ v vᵀ: |vvᵀ − v′v′ᵀ|² = |v|⁴ + |v′|⁴ − 2(v·v′)² ≤ 2B⁴.
    - Σ v vᵀ and Σ s v vᵀ together: 2B². Where s = s′ both differ by the same, in all 2 · 2B⁴ in the
      square; where not, |vvᵀ − v′v′ᵀ|² + |vvᵀ + v′v′ᵀ|² = 2|v|⁴ + 2|v′|⁴ ≤ 4B⁴.
    - Σ w v (T − 1/2): B. Σ w v y: 2B. Both halves of Σ w v (1, s) y: 2√2 B. Σ w² y²: 1.
    - Σ w v ψ: 2BΨ for a row, and for an outcome B min(2C, 2)/min(e, 1 − e), as y stands in
      (T − e)/(e(1 − e)) clip(y − μ, −C, C) alone. Σ w² (ψ/Ψ)²: 1.
    - Σ (T − e)² v vᵀ: √2 t² B². Σ w v (T − e) clip(…): 2tCB, and tB min(2C, 2).

    - Over the rows of one arm, |z| ≤ 1: as those over all rows; a row may leave the arm.

    Sums that ``outcome`` neighbours share are exact; their weight, and so their ρ, is 0.
    """
    design = known.design
    if asked == HISTOGRAMS:
        return sum(each.n_cells for each in design.features), math.sqrt(2.0 * len(design.features))
    p = known.functions.size
    pairs, bound = p * (p + 1) // 2, math.sqrt(p)
    plain = {
        GRAM: (pairs, math.sqrt(2.0) * p),
        SIGNED_GRAM: (2 * pairs, 2.0 * p),
        TREATMENT: (p, bound),
        OUTCOMES: (p, 2.0 * bound),
        SIGNED_OUTCOMES: (2 * p, 2.0 * math.sqrt(2.0) * bound),
        SQUARES: (1, 1.0),
        SQUARED_SCORES: (1, 1.0),
        ARM_GRAM: (pairs, math.sqrt(2.0) * p),
        ARM_SUMS: (p, 2.0 * bound),
        ARM_SQUARES: (1, 1.0),
    }
    if asked in plain:
        return plain[asked]
    weight, clip = known.most_weight, known.outcomes.clip
    if asked == TREATED_GRAM:
        return pairs, math.sqrt(2.0) * weight**2 * p
    if design.neighbours == "row":
        return p, 2.0 * bound * (known.greatest_score if asked == SCORES else weight * clip)
    moved = min(2.0 * clip, 2.0)
    return p, bound * moved * (1.0 / known.least_share if asked == SCORES else weight)


def exact_sums(
    stage: str, asked: tuple[str, ...], known: KnownSums, rows: EffectRows
) -> Iterator[tuple[str, Floats]]:
    """Return the exact sums of one pass over one batch of complete rows, by name, shapes [k]."""
    if HISTOGRAMS in asked:
        yield HISTOGRAMS, histograms(known.design, rows)
        return
    v, w = known.functions.weighted(rows.features)
    phi = v / w[:, None]
    if ARM_GRAM in asked:
        arm = rows.treated == (stage in (TREATED, TREATED_EFFECT))
        target = arm_target(stage, known, phi, rows.outcome)
        yield from _of_arm((v[arm], w[arm]), target[arm])
        return
    treated = rows.treated.astype(np.float64)
    sign, wv = 2.0 * treated - 1.0, v * w[:, None]
    for each in asked:
        if each == GRAM:
            yield each, entries_of(v.T @ v)
        elif each == SIGNED_GRAM:
            both = [entries_of(v.T @ v), entries_of((v * sign[:, None]).T @ v)]
            yield each, np.concatenate(both)
        elif each == TREATMENT:
            yield each, wv.T @ (treated - 0.5)
        elif each == OUTCOMES:
            yield each, wv.T @ rows.outcome
        elif each == SIGNED_OUTCOMES:
            yield each, np.concatenate([wv.T @ rows.outcome, wv.T @ (sign * rows.outcome)])
        elif each == SQUARES:
            yield each, np.array([np.sum((w * rows.outcome) ** 2)])
        else:
            yield each, _of_effects(each, known, rows, (v, w, phi))


def _of_arm(functions: tuple[Floats, Floats], target: Floats) -> Iterator[tuple[str, Floats]]:
    v, w = functions
    yield ARM_GRAM, entries_of(v.T @ v)
    yield ARM_SUMS, v.T @ (w * target)
    yield ARM_SQUARES, np.array([np.sum((w * target) ** 2)])


def _of_effects(
    asked: str, known: KnownSums, rows: EffectRows, functions: tuple[Floats, Floats, Floats]
) -> Floats:
    """Return sums of the last stage, which know e and the outcomes of the stages before it."""
    v, w, phi = functions
    treated = rows.treated.astype(np.float64)
    e = known.propensities(phi, rows.propensity)
    if asked == TREATED_GRAM:
        weighted = v * (treated - e)[:, None]
        return entries_of(weighted.T @ weighted)
    if asked == RESIDUALS:
        fit = known.outcomes
        residual = np.clip(rows.outcome - fit.means(phi, 0.0), -fit.clip, fit.clip)
        found: Floats = (v * w[:, None]).T @ ((treated - e) * residual)
        return found
    psi = known.scores(phi, treated, rows.outcome, e)
    if asked == SCORES:
        scored: Floats = (v * w[:, None]).T @ psi
        return scored
    if asked == SQUARED_SCORES:
        return np.array([np.sum((w * psi / known.greatest_score) ** 2)])
    raise ValueError(f"no stage sums {asked!r}")
