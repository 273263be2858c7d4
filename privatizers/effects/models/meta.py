"""Algorithm 1 of Niu et al. (2022) with sound stages: the DR-, R- and S-learner.

    rows → parts, at random → a stage on each part, told what earlier stages released

Guarantee: (ε, δ)-DP for one row replaced (or its outcome), the design's ε and δ. Each stage is
ρ-zCDP in the rows of its part, ρ being the greatest for (ε, δ); a row is in one part
by construction (:class:`RowPart`), so all stages together cost what one costs
(:func:`event`). Everything else is post-processing:
:func:`estimators.effects.models.fit.fit_learner` recomputes the effect from the sums.

The moment effect model, which asks all rows everything, has less error: k queries on all rows cost
noise of √k, k parts cost noise of k and k times the sampling variance. These are for comparison.

**Substitution.** Which part a row is in hangs on its position and on nothing that the row holds.
One unit's row replaced is therefore one row replaced in one part, and the sizes stay. (With people
who come or go both would change.) The price holds for every partition, so nothing rests on how well
it is drawn; a uniform one is for the estimate.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from estimators.concentrated import concentrated_rho
from estimators.effects.models import queries
from estimators.effects.models.basis import counts_of
from estimators.effects.models.meta_stages import KnownSums, after
from estimators.effects.models.queries import MetaLearner, StagePlan, named, stages
from privatizers.accounting.events import ConcentratedNoise, Disjoint
from privatizers.effects.models import moments
from privatizers.effects.models.exact_sums import plain_sum, size_and_sensitivity, treated_gram
from privatizers.effects.models.lattice_sums import (
    PARTS_OF_RHO,
    Query,
    check_rows,
    drawn_sums,
    noisy_sums,
    summed,
)
from privatizers.effects.models.rows import Batches, EffectRows
from privatizers.noise.randomness import random_words
from schemas.arrays import Floats, Ints, Levels
from schemas.effects.model import EffectDesign, Learner, NoisySums


class PartUsedError(Exception):
    """A second stage asked for rows that another has seen: their price would add up."""


@dataclass(frozen=True)
class PartRows:
    """The rows of one part, for the one stage that took it; it may read them several times."""

    n_rows: int
    batches: Batches = field(repr=False)


class RowPart:
    """Rows that no stage has seen; :meth:`take` gives them to the first that asks."""

    def __init__(self, name: str, rows: PartRows) -> None:
        """Hold ``rows``; `Partition` makes parts."""
        self.name = name
        self.n_rows = rows.n_rows
        self.__rows: PartRows | None = rows

    def take(self) -> PartRows:
        """Return the rows. Raises PartUsedError after the first time."""
        rows, self.__rows = self.__rows, None
        if rows is None:
            raise PartUsedError(f"part {self.name!r}: its rows were given to a stage already")
        return rows

    def __repr__(self) -> str:
        """Its name and size, which are public."""
        return f"<part {self.name}, {self.n_rows} rows>"


def partition(n_rows: int, batches: Batches, shares: dict[str, float]) -> dict[str, RowPart]:
    """Deal ``n_rows`` rows out at random into parts of :func:`part_sizes`, by name.

    ``batches`` must give exactly ``n_rows`` rows; ValueError while reading if it gives others.
    """
    sizes = part_sizes(n_rows, shares)
    part_of = np.empty(n_rows, dtype=np.uint8)
    shuffled = np.argsort(random_words(n_rows), kind="stable")  # uniform, but for ties: n²/2⁵⁴
    part_of[shuffled] = np.repeat(np.arange(len(sizes)), list(sizes.values()))
    part_of.flags.writeable = False
    return {
        name: RowPart(name, PartRows(size, _reader(batches, part_of, place)))
        for place, (name, size) in enumerate(sizes.items())
    }


def part_sizes(n_rows: int, shares: dict[str, float]) -> dict[str, int]:
    """Return how many rows each part has: its share, rounded down; the last has what is left.

    Raises ValueError unless shares are positive and sum to 1.
    """
    if min(shares.values(), default=0.0) <= 0.0 or abs(sum(shares.values()) - 1.0) > 1e-9:
        raise ValueError(f"shares of parts are positive and sum to 1, unlike {shares}")
    sizes = {name: int(n_rows * share) for name, share in shares.items()}
    last = next(reversed(sizes))
    sizes[last] += n_rows - sum(sizes.values())
    return sizes


def _reader(batches: Batches, part_of: Levels, place: int) -> Batches:
    def read() -> Iterable[EffectRows]:
        start = 0
        for rows in batches():
            stop = start + len(rows.outcome)
            if stop > len(part_of):
                raise ValueError(f"batches have more than the {len(part_of)} rows dealt out")
            yield rows.at(part_of[start:stop] == place)
            start = stop
        if start != len(part_of):
            raise ValueError(f"batches have fewer than the {len(part_of)} rows dealt out")

    return read


@dataclass(frozen=True)
class MomentStage:
    """A moment regression on one part, as planned: ρ-zCDP in the rows of the part."""

    plan: StagePlan = field(repr=False)
    rho: float
    """Of all its sums together."""

    def release(
        self,
        rows: PartRows,
        known: KnownSums,
        draw: Callable[[Query, Ints], NoisySums] = drawn_sums,
    ) -> KnownSums:
        """Return what is known once its sums are drawn; of its rows nothing else leaves it.

        ``draw`` makes noisy sums of the whole steps of exact ones.
        """
        for asked in self.plan.passes:
            of_batches = (exact_sums(asked, known, batch.kept()) for batch in rows.batches())
            wanted = {each: self.query(each, known) for each in asked}
            steps = summed(wanted, of_batches)
            drawn = [draw(query, steps[each]) for each, query in wanted.items()]
            known = after(known, {each.name: each for each in drawn})
        return known

    def query(self, asked: str, known: KnownSums) -> Query:
        """Return one of its sums as a query, with what may be paid for it."""
        size, moved = distance(asked, known)
        spent = self.rho * self.plan.weights[asked] * PARTS_OF_RHO
        return Query(
            named(self.plan.name, asked), size, moved, spent, is_count=asked == queries.HISTOGRAMS
        )


def run(
    stages: tuple[MomentStage, ...], n_rows: int, batches: Batches, known: KnownSums
) -> KnownSums:
    """Run Algorithm 1: deal the rows out, then every stage on its part, in their order."""
    parts = partition(n_rows, batches, {stage.plan.name: stage.plan.share for stage in stages})
    for stage in stages:
        known = stage.release(parts[stage.plan.name].take(), known)
    return known


def moment_stages(learner: MetaLearner, design: EffectDesign) -> tuple[MomentStage, ...]:
    """Return the stages of a learner, each of the price of the whole."""
    rho = concentrated_rho(design.epsilon, design.delta) * PARTS_OF_RHO
    return tuple(MomentStage(plan, rho) for plan in stages(learner, design))


def draw_sums(
    learner: Learner, design: EffectDesign, n_rows: int, batches: Batches
) -> tuple[NoisySums, ...]:
    """Draw all sums of any ``learner`` over ``n_rows`` units, in the order of its stages.

    ``batches`` is called once a pass, at most two a stage, and gives the same rows each time, in
    batches of :data:`~privatizers.effects.models.lattice_sums.BATCH` rows at most. Rows that are
    not complete count as zeros.
    """
    if learner == "moments":
        return moments.draw_sums(design, n_rows, batches)
    check_rows(n_rows)
    made = moment_stages(learner, design)
    known = KnownSums(learner, design, n_rows)
    return tuple(run(made, n_rows, batches, known).sums.values())


def stand_in(learner: Learner, design: EffectDesign, n_rows: int) -> tuple[NoisySums, ...]:
    """Return sums of the shape of :func:`draw_sums`, of no row and without a draw.

    What can fail for a design fails here, before anything is drawn.
    """
    if learner == "moments":
        return moments.stand_in(design, n_rows)
    check_rows(n_rows)
    known = KnownSums(learner, design, n_rows)
    for stage in moment_stages(learner, design):
        known = stage.release(PartRows(0, tuple), known, noisy_sums)
    return tuple(known.sums.values())


def event(sums: Iterable[NoisySums]) -> Disjoint:
    """Return what was done to a unit's row (or its outcome), for the accountant, stage by stage.

    Parallel composition, Theorem 6 of Niu et al. (2022): a row is in the part of one stage, so the
    price is the greatest of the stages', the minimum of their trade-off functions. It holds for one
    row replaced: the parts hang on positions alone, and their sizes on n, which is public. ρ of a
    stage's sums, chosen in turn, adds up. A stage whose sums are all exact did nothing to what is
    protected, and is not there.
    """
    by_stage: dict[str, list[float]] = {}
    for each in sums:
        by_stage.setdefault(each.name.partition(".")[0], []).append(each.rho)
    rhos = [math.fsum(parts) for parts in by_stage.values()]
    return Disjoint(tuple(ConcentratedNoise(rho) for rho in rhos if rho))


def distance(asked: str, known: KnownSums) -> tuple[int, float]:
    """Return how many entries sums have, and Δ, how far neighbours' sums are apart.

    As :func:`privatizers.effects.models.exact_sums.size_and_sensitivity`; and of Σ w v ψ it is 2BΨ
    for a row, and for an outcome B min(2C, 2)/min(e, 1 − e), as y stands in
    (T − e)/(e(1 − e)) clip(y − μ, −C, C) alone. Σ w² (ψ/Ψ)²: 1.
    """
    design = known.design
    if asked == queries.HISTOGRAMS:
        return size_and_sensitivity(asked, design, 0)
    p = known.functions.size
    if asked == queries.SCORES:
        moved = 2.0 * known.greatest_score
        if design.neighbours == "outcome":
            moved = min(2.0 * known.outcomes.clip, 2.0) / known.least_share
        return p, math.sqrt(p) * moved
    if asked in (queries.TREATED_GRAM, queries.RESIDUALS):
        return size_and_sensitivity(asked, design, p, known.most_weight, known.outcomes.clip)
    return size_and_sensitivity(asked, design, p)


def exact_sums(
    asked: tuple[str, ...], known: KnownSums, rows: EffectRows
) -> Iterator[tuple[str, Floats]]:
    """Return the exact sums of one pass over one batch of complete rows, by name, shapes [k]."""
    if queries.HISTOGRAMS in asked:
        yield queries.HISTOGRAMS, np.concatenate(counts_of(known.design, rows.features))
        return
    v, w = known.functions.weighted(rows.features)
    for each in asked:
        if each in (queries.TREATED_GRAM, queries.RESIDUALS):
            yield each, _of_residuals(each, known, rows, v, w)
        elif each in (queries.SCORES, queries.SQUARED_SCORES):
            yield each, _of_scores(each, known, rows, v, w)
        else:
            yield each, plain_sum(each, rows, v, w)


def _of_residuals(asked: str, known: KnownSums, rows: EffectRows, v: Floats, w: Floats) -> Floats:
    phi, fit = v / w[:, None], known.outcomes
    apart = rows.treated - known.propensities(phi, rows.propensity)
    if asked == queries.TREATED_GRAM:
        return treated_gram(v, apart)
    residual = np.clip(rows.outcome - fit.means(phi, 0.0), -fit.clip, fit.clip)
    return v.T @ (w * apart * residual)


def _of_scores(asked: str, known: KnownSums, rows: EffectRows, v: Floats, w: Floats) -> Floats:
    phi = v / w[:, None]
    e = known.propensities(phi, rows.propensity)
    psi = known.scores(phi, rows.treated.astype(np.float64), rows.outcome, e)
    if asked == queries.SCORES:
        return v.T @ (w * psi)
    return np.array([np.sum((w * psi / known.greatest_score) ** 2)])
