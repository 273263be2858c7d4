"""Looks for faults in the sums of an effect model, on made-up rows.

Sums have Gaussian noise, so their price follows from how far neighbours are apart, in whole steps,
and from what their scale and step are chosen by. Both are looked at through the very functions that
a run calls, between neighbours that are made to be as far apart as any.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

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
from privatizers.lab.audit.checks import Check, Events, exactly, judge_events
from privatizers.lab.audit.laws import Trials, near
from privatizers.noise.randomness import UNIT, random_words
from schemas.arrays import Floats, Ints
from schemas.documents import fields_of, plain
from schemas.effects.model import EffectDesign, LevelFeature, NoisySums

Number = TypeVar("Number", np.float64, np.int64)
Draw = Callable[[Query, Ints], NoisySums]
Run = Callable[[KnownMoments, tuple[str, ...], Iterable[EffectRows], Draw], KnownMoments]
"""One stage of a run, as :func:`~privatizers.effects.models.moments.released`."""
Asked = dict[str, tuple[Query, Ints]]
"""What a run asked for, by name, with the whole steps of the exact sums."""

_N_ROWS = 200
_N_NEIGHBOURS = 12
_N_DRAWS = 20_000
_N_CALLS = 100
_TOLERANCE = 1.0 + 1e-9


@dataclass(frozen=True)
class EffectsAudit:
    """What was found of an effect model's claim, and of the code that draws its sums."""

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

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp audit --json``, of an effect model."""
        return {**fields_of(self), "holds": self.holds, "mechanism": "moments"}


@dataclass
class _Found:
    """What made-up data sets and their neighbours showed."""

    shares: dict[str, float] = field(default_factory=dict)
    """By sums: the greatest distance of two rows' parts, in parts of what is allowed for."""
    too_far: list[str] = field(default_factory=list)
    unlike: list[str] = field(default_factory=list)


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
    found = _Found()
    for _ in range(n_bases):
        asked, sums = _look_at(found, design, run, draw, n_candidates)
    drawn = {each.name: each for each in sums}
    attained = sum(drawn[name].rho * share**2 for name, share in found.shares.items())
    listed = ", ".join(f"{name} {share:.1%}" for name, share in found.shares.items())
    checks = (
        _price(design, sums),
        exactly(
            "neighbours are no farther apart than the noise of each sum allows for",
            found.too_far,
            f"the farthest of {n_bases * n_candidates:,} made-up rows: {listed}",
        ),
        exactly(
            "what a sum is, its noise, and what follows are chosen by noised sums alone",
            found.unlike,
            f"{n_bases * _N_NEIGHBOURS} pairs of neighbours, given the same noised sums",
        ),
        judge_events(
            "the noise of each sum follows its law, and no two entries share it",
            [law for query, _ in asked.values() if query.rho for law in _laws(query, draw)],
            error,
        ),
    )
    return EffectsAudit(
        design.epsilon,
        design.delta,
        event(sums).rho,
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


def _look_at(
    found: _Found, design: EffectDesign, run: Run, draw: Draw, n_candidates: int
) -> tuple[Asked, tuple[NoisySums, ...]]:
    """Run a made-up data set and its neighbours, stage by stage; what was asked for, and drawn.

    Neighbours have one row more, any two of the candidates that may differ.
    """
    rows, candidates = _rows(design, _N_ROWS), _rows(design, n_candidates)
    one = _choice(np.arange(n_candidates // 2), _N_NEIGHBOURS)
    other = one + (n_candidates + 1) // 2  # the same person with another outcome
    if design.neighbours == "row":
        other[::2] = _choice(np.arange(n_candidates), len(other[::2]))
        other[::3] = _choice(np.flatnonzero(~candidates.complete), len(other[::3]))
    known, every = KnownMoments(design, _N_ROWS + 1), Asked()
    for stage in STAGES:
        before, asked = known, Asked()
        known = run(before, stage, [rows, _some(candidates, one[:1])], _recorded(asked, draw))
        every |= asked
        if not asked:
            continue
        _farthest(found, before, stage, candidates, asked)
        for pair in np.stack([one, other], axis=1):
            seen: list[Asked] = [{}, {}]
            after = []
            for place, own in zip(pair[:, np.newaxis], seen, strict=True):
                answer = _recorded(own, _again(known))
                ended = run(before, stage, [rows, _some(candidates, place)], answer)
                after.append(repr(plain(ended)))
            _compare(found, stage, seen, after)
    return every, tuple(known.sums.values())


def _recorded(asked: Asked, draw: Draw) -> Draw:
    """Draw, and keep what was asked for."""

    def recording(query: Query, steps: Ints) -> NoisySums:
        asked[query.name] = query, steps
        return draw(query, steps)

    return recording


def _again(known: KnownMoments) -> Draw:
    """Draw nothing, and answer as before."""
    return lambda query, _: known.sums[query.name]


def _farthest(
    found: _Found,
    known: KnownMoments,
    stage: tuple[str, ...],
    candidates: EffectRows,
    asked: Asked,
) -> None:
    """Find the two rows whose parts of a sum are farthest apart, of all pairs that may differ."""
    parts: dict[str, list[Floats]] = {}
    for number in range(len(candidates.treated)):
        for name, sums in batch_sums(known, stage, _some(candidates, np.array([number]))):
            parts.setdefault(name, []).append(sums)
    for name, query in ((name, asked[name][0]) for name in parts):
        if not query.rho:
            continue
        points = np.array(parts[name])
        if known.design.neighbours == "outcome":
            half = len(points) // 2
            distance = float(np.linalg.norm(points[:half] - points[half : 2 * half], axis=1).max())
        else:
            square = (points**2).sum(axis=1)
            apart = square[:, None] + square[None, :] - 2.0 * points @ points.T
            distance = float(np.sqrt(max(apart.max(), 0.0)))
        share = distance / query.sensitivity
        found.shares[name] = max(found.shares.get(name, 0.0), share)
        if share > _TOLERANCE:
            far = f"{name}: {distance:g}, where {query.sensitivity:g} is allowed for"
            found.too_far.append(far)


def _compare(
    found: _Found, stage: tuple[str, ...], seen: Sequence[Asked], after: Sequence[str]
) -> None:
    """Compare what two neighbours were asked for, and what is known after the same answers."""
    for name, (query, steps) in seen[0].items():
        other = seen[1].get(name)
        if other is None or other[0] != query:
            found.unlike.append(f"{name}: another sum, or another noise, for a neighbour")
            continue
        moved = float(np.linalg.norm((steps - other[1]).astype(np.float64))) * query.step
        if moved > (query.moved * _TOLERANCE if query.rho else 0.0):
            found.too_far.append(f"{name}: {moved:g} in steps, noised for {query.moved:g} at most")
    if after[0] != after[1]:
        found.unlike.append("what is known after " + ", ".join(stage) + " differs for a neighbour")


def _laws(query: Query, draw: Draw) -> list[Events]:
    """Whether noise is as wide as its scale says, and independent from entry to entry."""
    nothing, scale = np.zeros(_N_DRAWS, dtype=np.int64), query.scale
    several = [draw(query, nothing[:2]).steps for _ in range(_N_CALLS)]
    noise = np.concatenate([draw(query, nothing).steps, *several])
    reach = int(np.ceil(12.0 * scale))
    k = np.arange(-reach, reach + 1)
    law = np.exp(-((k / scale) ** 2) / 2.0)
    law /= law.sum()

    trials = Trials.of(
        {
            "above 0": (noise > 0, float(law[k > 0].sum())),
            **{
                f"beyond {far:g} standard deviations": (
                    np.abs(noise) > far * scale,
                    float(law[np.abs(k) > far * scale].sum()),
                )
                for far in (0.5, 1.0, 2.0, 3.0)
            },
        }
    )

    def pair(one: Ints, other: Ints) -> Trials:
        equal = {"the other": (noise[one] == noise[other], float((law**2).sum()))}
        return trials.at(one).both(trials.at(other)).beside(Trials.of(equal))

    whose = f"{query.name}: noise"
    return [trials.counted(whose), *near(len(noise), pair, whose, (1, 2))]


# Made-up rows


def _uniform(n: int) -> Floats:
    """Return ``n`` numbers between 0 and 1, made up."""
    return random_words(n).astype(np.float64) / UNIT


def _choice(values: NDArray[Number], n: int) -> NDArray[Number]:
    """Return ``n`` of the values, any of them as often as another."""
    return values[(random_words(n) % np.uint64(len(values))).astype(np.int64)]


def _rows(design: EffectDesign, n: int) -> EffectRows:
    """Make up rows of which many lie at the ends of all that is declared; some are faulty.

    The second half are the same people as the first: with other arms and outcomes, or, where
    neighbours differ in outcomes alone, with the opposite outcome.
    """
    half, first = n - n // 2, np.arange(n) % (n - n // 2)
    columns = []
    for feature in design.features:
        if isinstance(feature, LevelFeature):
            columns.append(_choice(np.arange(float(len(feature.levels))), half))
            continue
        ends = _choice(np.array([0.0, 1.0, 0.5]), half)
        columns.append(np.where(_uniform(half) < 0.5, ends, _uniform(half)))
    outcome = _choice(np.array([-1.0, 1.0, 0.0, 0.3]), n)
    propensity = None
    if design.propensity.kind == "column":
        bound = design.propensity.bound
        propensity = _choice(np.array([bound, 1.0 - bound, 0.5]), n)
    rows = EffectRows(
        np.stack(columns, axis=1)[first],
        _uniform(n) < 0.5,
        outcome,
        propensity,
        np.arange(n) % 20 > 0,
    )
    if design.neighbours == "row":
        return rows
    opposite = np.where(np.arange(n) < half, outcome[first], -outcome[first])
    return replace(_some(rows, first), outcome=opposite)


def _some(rows: EffectRows, places: Ints) -> EffectRows:
    """Return those at these places."""
    taken: dict[str, Any] = {
        name: None if column is None else column[places] for name, column in vars(rows).items()
    }
    return EffectRows(**taken)
