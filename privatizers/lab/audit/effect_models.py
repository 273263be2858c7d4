"""Looks for faults in the sums of an effect model, on made-up rows.

Sums have Gaussian noise, so their price follows from how far neighbours are apart, in whole steps,
and from what their scale and step are chosen by. Both are looked at through the very functions that
a run calls, between neighbours that are made to be as far apart as any.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from privatizers.accounting.accountant import delta_at, epsilon_at
from privatizers.accounting.events import ConcentratedNoise
from privatizers.effects.models.lattice_sums import Query, drawn_sums
from privatizers.effects.models.moments import (
    STAGES,
    KnownMoments,
    batch_sums,
    event,
    released,
)
from privatizers.effects.models.rows import EffectRows
from privatizers.lab.audit.checks import Check, Events, exactly, judge_events, together
from privatizers.noise.randomness import UNIT, random_words
from schemas.arrays import Floats, Ints
from schemas.effects.model import EffectDesign, LevelFeature, NoisySums

Number = TypeVar("Number", np.float64, np.int64)
Draw = Callable[[Query, Ints], NoisySums]
Run = Callable[[KnownMoments, tuple[str, ...], Iterable[EffectRows], Draw], KnownMoments]
"""One stage of a run, as :func:`~privatizers.effects.models.moments.released`."""

_N_ROWS = 200
_N_NEIGHBOURS = 12
_N_DRAWS = 20_000
_N_CALLS = 100
_TOLERANCE = 1.0 + 1e-9


@dataclass(frozen=True)
class EffectsAudit:
    """What was found of an effect model's claim."""

    claimed_epsilon: float
    delta: float
    rho: float
    """What all sums cost together, by their scales."""
    attained_rho: float
    """The same by the farthest neighbours that were found."""
    attained_epsilon: float
    """The price of ``attained_rho`` at ``delta``."""
    n_neighbours: int
    checks: tuple[Check, ...]

    @property
    def holds(self) -> bool:
        """Whether every check holds."""
        return all(check.holds for check in self.checks)


def audit_effects(
    design: EffectDesign,
    *,
    run: Run = released,
    draw: Draw = drawn_sums,
    error: float = 1e-4,
    n_bases: int = 3,
    n_candidates: int = 1500,
) -> EffectsAudit:
    """Audit the sums of a ``design`` as ``run`` makes them and ``draw`` noises them.

    Sound code is accused with a probability of at most ``error``, by the check of the noise's law;
    the others have no false alarms. For each of ``n_bases`` made-up data sets the two rows of
    ``n_candidates`` are found that are farthest apart.
    """
    found = [_audit_base(design, run, draw, n_candidates) for _ in range(n_bases)]
    shares: dict[str, float] = {}
    for base in found:
        for name, share in base.shares.items():
            shares[name] = max(shares.get(name, 0.0), share)
    drawn = {each.name: each for each in found[0].sums}
    rho = event(drawn.values()).rho
    attained = sum(drawn[name].rho * share**2 for name, share in shares.items())
    price = _price(design, list(drawn.values()))
    law = _law([query for query in found[0].queries if query.rho], draw, error)
    checks = (
        price,
        exactly(
            "neighbours are no farther apart than the noise of each sum allows for",
            [problem for base in found for problem in base.too_far],
            f"the farthest of {n_bases * n_candidates:,} made-up rows: "
            + ", ".join(f"{name} {share:.1%}" for name, share in shares.items()),
        ),
        exactly(
            "what a sum is, its noise, and what follows are chosen by noised sums alone",
            [problem for base in found for problem in base.unlike],
            f"{n_bases * _N_NEIGHBOURS} pairs of neighbours, given the same noised sums",
        ),
        law,
    )
    return EffectsAudit(
        design.epsilon,
        design.delta,
        rho,
        attained,
        epsilon_at(ConcentratedNoise(attained), design.delta) if attained else 0.0,
        n_bases * _N_NEIGHBOURS,
        checks,
    )


def _price(design: EffectDesign, sums: Sequence[NoisySums]) -> Check:
    """Whether the scales are those of ρ, and all ρ together cost no more than was declared."""
    problems = [
        f"{each.name}: a scale of {each.scale:g} steps costs more than rho {each.rho:g}"
        for each in sums
        if each.rho and (each.sensitivity / each.step / each.scale) ** 2 / 2.0 > each.rho
    ]
    delta = delta_at(event(sums), design.epsilon)
    if delta > design.delta:
        problems.append(f"delta {delta:g} at epsilon {design.epsilon:g}, over {design.delta:g}")
    return exactly(
        "the noise of all sums together costs at most the epsilon and delta that are declared",
        problems,
        f"delta {delta:.3g} at epsilon {design.epsilon:g}",
    )


@dataclass
class _Base:
    """One made-up data set, and what its neighbours showed."""

    sums: tuple[NoisySums, ...]
    queries: list[Query]
    shares: dict[str, float]
    """By sums: the greatest distance of two rows' parts, in parts of what is allowed for."""
    too_far: list[str]
    unlike: list[str]


def _audit_base(design: EffectDesign, run: Run, draw: Draw, n_candidates: int) -> _Base:
    rows = _rows(design, _N_ROWS)
    candidates = _rows(design, n_candidates)
    base = _Base((), [], {}, [], [])
    known = KnownMoments(design, _N_ROWS)
    pairs = list(_pairs(design, rows, candidates))
    for stage in STAGES:
        before = known
        recorded: dict[str, tuple[Query, Ints]] = {}
        known = run(before, stage, [rows], partial(_recorded, recorded, draw))
        if not recorded:
            continue
        base.queries += [query for query, _ in recorded.values()]
        _farthest(base, before, stage, candidates, recorded)
        for one, other in pairs:
            _compare(base, before, stage, run, known, (one, other))
    base.sums = tuple(known.sums.values())
    return base


def _recorded(
    recorded: dict[str, tuple[Query, Ints]], draw: Draw, query: Query, steps: Ints
) -> NoisySums:
    recorded[query.name] = (query, steps)
    return draw(query, steps)


def _farthest(
    base: _Base,
    known: KnownMoments,
    stage: tuple[str, ...],
    candidates: EffectRows,
    recorded: dict[str, tuple[Query, Ints]],
) -> None:
    """Find the two rows whose parts of a sum are farthest apart, of all pairs of candidates."""
    parts: dict[str, list[Floats]] = {}
    for number in range(len(candidates.treated)):
        for name, sums in batch_sums(known, stage, _some(candidates, np.array([number]))):
            parts.setdefault(name, []).append(sums)
    of_features = known.design.neighbours == "row"
    group = _groups(candidates)
    for name, vectors in parts.items():
        query = recorded[name][0]
        if not query.rho:
            continue
        points = np.array(vectors)
        square = (points**2).sum(axis=1)
        apart = square[:, None] + square[None, :] - 2.0 * points @ points.T
        if not of_features:
            apart = np.where(group[:, None] == group[None, :], apart, 0.0)
        distance = float(np.sqrt(max(apart.max(), 0.0)))
        share = distance / query.sensitivity
        base.shares[name] = max(base.shares.get(name, 0.0), share)
        if share > _TOLERANCE:
            base.too_far.append(f"{name}: {distance:g}, where {query.sensitivity:g} is allowed for")


def _compare(
    base: _Base,
    before: KnownMoments,
    stage: tuple[str, ...],
    run: Run,
    known: KnownMoments,
    pair: tuple[EffectRows, EffectRows],
) -> None:
    """Run one stage on two neighbours, with the same noised sums as answers."""
    seen: list[dict[str, tuple[Query, Ints]]] = [{}, {}]
    after = []
    for rows, record in zip(pair, seen, strict=True):
        answer = partial(_recorded, record, lambda query, _: known.sums[query.name])
        after.append(run(before, stage, [rows], answer))
    for name, (query, steps) in seen[0].items():
        other = seen[1].get(name)
        if other is None or other[0] != query:
            base.unlike.append(f"{name}: another sum, or another noise, for a neighbour")
            continue
        moved = float(np.sqrt(((steps - other[1]).astype(np.float64) ** 2).sum())) * query.step
        if query.rho and moved > query.moved * _TOLERANCE:
            base.too_far.append(f"{name}: {moved:g} in steps, over {query.moved:g}")
        if not query.rho and moved:
            base.too_far.append(f"{name}: has no noise, and neighbours differ in it")
    if _facts(after[0]) != _facts(after[1]):
        base.unlike.append("what is known after " + ", ".join(stage) + " differs for a neighbour")


def _facts(known: KnownMoments) -> bytes:
    """Everything that later stages go by, but the sums themselves."""
    facts: list[bytes] = [str(known.n_rows).encode()]
    if known.base is not None:
        facts += [repr((known.base.degree, known.base.n_complete)).encode()]
        facts += [share.tobytes() for share in known.base.basis.shares]
    if known.nuisance is not None:
        facts += [known.nuisance.outcome_coefficients.tobytes()]
        facts += [repr((known.nuisance.clip, known.nuisance.table_outcomes)).encode()]
    if known.fitted is not None:
        facts += [known.fitted.posterior.mean.tobytes()]
    facts += [b"" if part.edges is None else part.edges.tobytes() for part in known.parts]
    return b"|".join(facts)


def _law(queries: Sequence[Query], draw: Draw, error: float) -> Check:
    """Whether noise is as wide as its scale says, and independent from entry to entry."""
    return together(
        "the noise of each sum follows its law, and no two entries share it",
        [_law_of(query, draw, error / len(queries)) for query in queries],
    )


def _law_of(query: Query, draw: Draw, error: float) -> Check:
    nothing = np.zeros(_N_DRAWS, dtype=np.int64)
    several = [draw(query, nothing[:2]).steps for _ in range(_N_CALLS)]
    noise = np.concatenate([draw(query, nothing).steps, *several])
    reach = int(np.ceil(12.0 * query.scale))
    k = np.arange(-reach, reach + 1)
    law = np.exp(-((k / query.scale) ** 2) / 2.0)
    law /= law.sum()
    events = []
    for sigmas in (0.5, 1.0, 2.0, 3.0):
        limit = sigmas * query.scale
        expected = float(law[np.abs(k) > limit].sum())
        events.append(
            Events.one(
                f"{query.name}: noise beyond {sigmas:g} standard deviations",
                float((np.abs(noise) > limit).sum()),
                expected * len(noise),
                len(noise),
            )
        )
    positive = float(law[k > 0].sum())
    events.append(
        Events.one(
            f"{query.name}: noise above 0",
            float((noise > 0).sum()),
            positive * len(noise),
            len(noise),
        )
    )
    pairs = (noise[:-1] > 0) & (noise[1:] > 0)
    for start in (0, 1):  # so that these are independent
        some = pairs[start::2]
        what = f"{query.name}: noise above 0 in two entries that follow each other"
        events.append(Events.one(what, float(some.sum()), positive**2 * len(some), len(some)))
    same = float((law**2).sum())
    equal = (noise[:-1] == noise[1:])[::2]
    what = f"{query.name}: the same noise in two entries that follow each other"
    events.append(Events.one(what, float(equal.sum()), same * len(equal), len(equal)))
    return judge_events(query.name, events, error)


# Made-up rows


def _uniform(n: int) -> Floats:
    """Return ``n`` numbers between 0 and 1, made up."""
    return random_words(n).astype(np.float64) / UNIT


def _choice(values: NDArray[Number], n: int) -> NDArray[Number]:
    """Return ``n`` of the values, any of them as often as another."""
    return values[(random_words(n) % np.uint64(len(values))).astype(np.int64)]


def _rows(design: EffectDesign, n: int) -> EffectRows:
    """Make up rows of which many lie at the ends of all that is declared; some are faulty."""
    columns = []
    for feature in design.features:
        if isinstance(feature, LevelFeature):
            columns.append(_choice(np.arange(float(len(feature.levels))), n))
            continue
        ends = _choice(np.array([0.0, 1.0, 0.5]), n)
        columns.append(np.where(_uniform(n) < 0.5, ends, _uniform(n)))
    features = np.stack(columns, axis=1)
    features[n // 2 :] = features[: n - n // 2]  # the same people with other arms and outcomes
    treated = _uniform(n) < 0.5
    outcome = _choice(np.array([-1.0, 1.0, 0.0, 0.3]), n)
    propensity = None
    if design.propensity.kind == "column":
        bound = design.propensity.bound
        propensity = _choice(np.array([bound, 1.0 - bound, 0.5]), n)
    complete = _uniform(n) < 0.95
    if design.neighbours == "outcome":
        half = n - n // 2
        for column in (treated, propensity, complete):
            if column is not None:
                column[n // 2 :] = column[:half]
    return EffectRows(features, treated, outcome, propensity, complete)


def _groups(rows: EffectRows) -> Ints:
    """Number rows by everything but their outcome, shape [n]."""
    columns = [rows.features, rows.treated[:, None], rows.complete[:, None]]
    if rows.propensity is not None:
        columns.append(rows.propensity[:, None])
    _, numbers = np.unique(np.concatenate(columns, axis=1), axis=0, return_inverse=True)
    return numbers.reshape(-1).astype(np.int64)


def _pairs(
    design: EffectDesign, rows: EffectRows, candidates: EffectRows
) -> Iterator[tuple[EffectRows, EffectRows]]:
    """Return neighbours: the rows with one of them replaced, in two ways."""
    faulty, sound = np.flatnonzero(~candidates.complete), np.flatnonzero(candidates.complete)
    for number in range(_N_NEIGHBOURS):
        place = int(_choice(np.arange(len(rows.treated)), 1)[0])
        one = int(_choice(sound, 1)[0])
        other = int(_choice(faulty if number % 3 == 0 and len(faulty) else sound, 1)[0])
        first = _with(rows, place, candidates, one)
        if design.neighbours == "row":
            yield first, _with(rows, place, candidates, other)
            continue
        outcome = first.outcome.copy()
        outcome[place] = candidates.outcome[other]
        yield first, replace(first, outcome=outcome)


def _with(rows: EffectRows, place: int, others: EffectRows, number: int) -> EffectRows:
    """Return the rows with that at ``place`` replaced by one of the ``others``."""
    changed = {}
    for name in ("features", "treated", "outcome", "propensity", "complete"):
        column = getattr(rows, name)
        if column is not None:
            column = column.copy()
            column[place] = getattr(others, name)[number]
        changed[name] = column
    return EffectRows(**changed)


def _some(rows: EffectRows, places: Ints) -> EffectRows:
    propensity = None if rows.propensity is None else rows.propensity[places]
    return EffectRows(
        rows.features[places],
        rows.treated[places],
        rows.outcome[places],
        propensity,
        rows.complete[places],
    )
