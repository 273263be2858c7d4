"""Looks for faults in an effect model's sums, which a run's own functions make of made-up rows."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.linalg import norm
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

from privatizers.accounting.accountant import delta_at, epsilon_at
from privatizers.accounting.events import ConcentratedNoise
from privatizers.effects.models.lattice_sums import Query, drawn_sums
from privatizers.effects.models.moments import STAGES, KnownMoments, batch_sums, event, released
from privatizers.effects.models.rows import EffectRows
from privatizers.lab.audit.checks import Check, Events, Kinds, Trials, judge
from privatizers.noise.randomness import random_words
from schemas.arrays import Ints
from schemas.documents import fields_of, plain
from schemas.effects.model import EffectDesign, LevelFeature, NoisySums

Draw = Callable[[Query, Ints], NoisySums]
Asked = dict[str, tuple[Query, Ints]]
"""What a run asked for, by name, with the whole steps of the exact sums."""

_N_BASES, _N_ROWS, _N_CANDIDATES, _N_NEIGHBOURS = 3, 200, 1500, 12
_N_DRAWS, _N_CALLS = 20_000, 100
_TOLERANCE = 1.0 + 1e-9

_COST = "the noise of all sums together costs at most the epsilon and delta that are declared"
_APART = "neighbours are no farther apart than the noise of each sum allows for"
_CHOSEN = "what a sum is, its noise, and what follows are chosen by noised sums alone"
_LAW = "the noise of each sum follows its law, and no two entries share it"


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
    n_neighbours: int
    checks: tuple[Check, ...]

    @property
    def holds(self) -> bool:
        """Whether every check holds."""
        return all(check.holds for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp audit --json``, of an effect model."""
        return {**fields_of(self), "holds": self.holds, "mechanism": "moments"}


def audit_effects(design: EffectDesign) -> EffectsAudit:
    """Audit the sums of a ``design`` as a run makes and noises them.

    Sound code is accused with a probability of at most 10⁻⁴, by the check of the noise's law; the
    others have no false alarms.
    """
    look, n_neighbours = _Look(design), _N_BASES * _N_NEIGHBOURS
    for _ in range(_N_BASES):
        known, asked = look.at_neighbours(_rows(design, _N_ROWS), _rows(design, _N_CANDIDATES))
    cost, sums = event(known.sums.values()), known.sums
    attained = sum(sums[name].rho * share**2 for name, share in look.shares.items())
    delta, at = delta_at(cost, design.epsilon), f"at epsilon {design.epsilon:g}"
    too_cheap = [
        f"{each.name}: a scale of {each.scale:g} steps costs more than rho {each.rho:g}"
        for each in sums.values()
        if each.rho and (each.sensitivity / each.step / each.scale) ** 2 / 2.0 > each.rho
    ]
    if delta > design.delta:
        too_cheap.append(f"delta {delta:g} {at}, over {design.delta:g}")
    listed = ", ".join(f"{name} {share:.1%}" for name, share in look.shares.items())
    farthest = f"the farthest of {_N_BASES * _N_CANDIDATES:,} made-up rows: {listed}"
    alike = f"{n_neighbours} pairs of neighbours, given the same noised sums"
    laws = chain(*(_laws(query) for query, _ in asked.values() if query.rho))
    return EffectsAudit(
        claimed_epsilon=design.epsilon,
        delta=design.delta,
        rho=cost.rho,
        attained_rho=attained,
        attained_epsilon=epsilon_at(ConcentratedNoise(attained), design.delta) if attained else 0.0,
        n_neighbours=n_neighbours,
        checks=(
            judge(_COST, too_cheap, seen=f"delta {delta:.3g} {at}"),
            judge(_APART, look.too_far, seen=farthest),
            judge(_CHOSEN, look.unlike, seen=alike),
            judge(_LAW, laws),
        ),
    )


@dataclass
class _Look:
    """What made-up data sets and their neighbours showed."""

    design: EffectDesign
    shares: dict[str, float] = field(default_factory=dict)
    """By sums: the greatest distance of two rows' parts, in parts of what is allowed for."""
    too_far: list[str] = field(default_factory=list)
    unlike: list[str] = field(default_factory=list)

    def at_neighbours(self, rows: EffectRows, candidates: EffectRows) -> tuple[KnownMoments, Asked]:
        """Run a data set and its neighbours; what is known of it in the end, and was asked for.

        Neighbours have one row more, any two of the candidates that may differ.
        """
        n = len(candidates.treated)
        one = _choice(np.arange(n // 2), _N_NEIGHBOURS)
        other = one + n // 2  # the same person with another outcome
        if self.design.neighbours == "row":
            other[::2] = _choice(np.arange(n), len(other[::2]))
            other[::3] = _choice(np.flatnonzero(~candidates.complete), len(other[::3]))
        known, asked = self._ran([rows, candidates.at(one[:1])], drawn_sums)
        self._farthest(known, candidates, asked)

        def again(query: Query, _: Ints) -> NoisySums:
            return known.sums[query.name]

        for pair in np.stack([one, other], axis=1)[..., np.newaxis]:
            self._compare(*(self._ran([rows, candidates.at(row)], again) for row in pair))
        return known, asked

    def _ran(self, batches: list[EffectRows], draw: Draw) -> tuple[KnownMoments, Asked]:
        known, asked = KnownMoments(self.design, _N_ROWS + 1), Asked()

        def recording(query: Query, steps: Ints) -> NoisySums:
            asked[query.name] = query, steps
            return draw(query, steps)

        for stage in STAGES:
            known = released(known, stage, batches, recording)
        return known, asked

    def _farthest(self, known: KnownMoments, candidates: EffectRows, asked: Asked) -> None:
        n = len(candidates.treated)
        stages = [stage for stage in STAGES if not asked.keys().isdisjoint(stage)]
        rows = (candidates.at(np.array([place])) for place in range(n))
        parts = [dict(chain(*(batch_sums(known, one, row) for one in stages))) for row in rows]
        for name, (query, _) in asked.items():
            if query.rho:
                points, allowed = np.array([part[name] for part in parts]), query.sensitivity
                by_row = self.design.neighbours == "row"
                apart = points[: n // 2] - points[n // 2 :]
                distance = float((pdist(points) if by_row else norm(apart, axis=1)).max())
                self.shares[name] = max(self.shares.get(name, 0.0), distance / allowed)
                if distance > allowed * _TOLERANCE:
                    self.too_far.append(f"{name}: {distance:g}, where {allowed:g} is allowed for")

    def _compare(self, *ways: tuple[KnownMoments, Asked]) -> None:
        (known, asked), (other_known, other_asked) = ways
        for name, (query, steps) in asked.items():
            other_query, other = other_asked.get(name, (None, steps))
            moved = float(norm((steps - other).astype(np.float64))) * query.step
            if other_query != query:
                self.unlike.append(f"{name}: another sum, or another noise, for a neighbour")
            elif moved > (query.moved * _TOLERANCE if query.rho else 0.0):
                far = f"{name}: {moved:g} in steps, noised for {query.moved:g} at most"
                self.too_far.append(far)
        if repr(plain(known)) != repr(plain(other_known)):
            self.unlike.append("what is known after the same noised sums differs for a neighbour")


def _laws(query: Query) -> list[Events]:
    """Whether noise is as wide as its scale says, and independent from entry to entry."""
    nothing, scale = np.zeros(_N_DRAWS, dtype=np.int64), query.scale
    several = [drawn_sums(query, nothing[:2]).steps for _ in range(_N_CALLS)]
    noise = np.concatenate([drawn_sums(query, nothing).steps, *several])
    k = np.arange(-np.ceil(12.0 * scale), np.ceil(12.0 * scale) + 1.0)
    law = np.exp(-((k / scale) ** 2) / 2.0)
    law /= law.sum()
    kinds: Kinds = {"above 0": (noise > 0, float(law[k > 0].sum()))}
    for far in (0.5, 1.0, 2.0, 3.0):
        chance = float(law[np.abs(k) > far * scale].sum())
        kinds[f"beyond {far:g} standard deviations"] = np.abs(noise) > far * scale, chance
    trials, whose = Trials.of(kinds, noise, float((law**2).sum())), f"{query.name}: noise"
    return [trials.counted(whose), *trials.near(whose)]


def _choice(values: NDArray[Any], n: int) -> NDArray[Any]:
    return values[(random_words(n) % np.uint64(len(values))).astype(np.int64)]


def _rows(design: EffectDesign, n: int) -> EffectRows:
    """Make up rows of which many lie at the ends of all that is declared; some are faulty.

    The second half are the same people as the first: with other arms and outcomes, or, where
    neighbours differ in outcomes alone, with the opposite outcome.
    """
    first = np.arange(n) % (n // 2)
    between = np.append([0.0, 1.0, 0.5] * n, np.linspace(0.0, 1.0, 3 * n))
    columns = [
        _choice(np.arange(len(one.levels) * 1.0) if isinstance(one, LevelFeature) else between, n)
        for one in design.features
    ]
    outcome, propensity = _choice(np.array([-1.0, 1.0, 0.0, 0.3]), n), None
    if design.propensity.kind == "column":
        bound = design.propensity.bound
        propensity = _choice(np.array([bound, 1.0 - bound, 0.5]), n)
    features, treated = np.stack(columns, axis=1)[first], _choice(np.array([False, True]), n)
    rows = EffectRows(features, treated, outcome, propensity, np.arange(n) % 20 > 0)
    if design.neighbours == "row":
        return rows
    return replace(rows.at(first), outcome=outcome[first] * np.repeat([1.0, -1.0], n // 2))
