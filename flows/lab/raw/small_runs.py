"""What an audit asks of many small runs: the law of all noise, draws and roundings, and a bound.

The rows of made-up people are read and judged once, by the steps of the run, and drawn again and
again by :func:`~flows.raw.privatize.privatize`, which is called as the run calls it.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from flows.config.resolve import ResolvedRelease
from flows.lab.raw.draws import Drawn, FileTables, Noise, draws_of, of_tables
from flows.lab.raw.made_up import MIXED, OTHER_WAY, MadeUpPeople, laid_out, made_up, people
from flows.raw.charge import Designed
from flows.raw.drawing.strata_counts import LEVEL, cell_table, cells_of, count_strata
from flows.raw.ingest import ingest
from flows.raw.privatize import privatize
from flows.raw.spill.workspace import open_workspace
from flows.raw.validate import validate
from privatizers.lab.audit import checks
from privatizers.lab.audit.checks import Events, Trials
from privatizers.lab.audit.lower_bounds import Bound, lower_bound
from schemas.arrays import Bools, Floats
from schemas.names import ReleaseName
from schemas.raw import OUTCOME, several

_NUMBERS, _OF_ALL = 240, 800
"""Noises of a (pool, arm) that show one of half the scale: e^(−.193 n) at most by chance. And of
all together that show one of seven tenths of it: e^(−.0567 n)."""
_FEWEST, _MOST, _MOST_OF_ALL = 60, 150, 400  # small runs
_DRAWS = 1_600_000
"""Draws of units that show one in a hundred that is another: 12 standard errors."""

Runs = Sequence[Drawn]


@contextmanager
def small_run(
    who: MadeUpPeople, values: Sequence[Floats], period: str
) -> Iterator[tuple[Designed, Callable[[], FileTables]]]:
    """Read and judge people with these values of outcomes, shape [n] each, as a run does."""
    config = who.config
    who.write(period, values)
    with open_workspace(config.spill) as workspace:
        rows, _, roster = validate(config.log_facts, ingest(config.log_source, period), workspace)
        designed, name = Designed(config, rows), ReleaseName(config.experiment, period, 1)
        chosen = designed.chosen
        given = chosen.config, rows, chosen.designs, name, workspace, roster
        yield designed, lambda: of_tables(privatize(*given))


def draw_all(release: ResolvedRelease, folder: Path) -> Iterator[list[Drawn]]:
    """Draw from two runs, of outcomes one way and the other, in turn and as often as is needed."""
    who = people(made_up(release, folder))
    with ExitStack() as stack:
        runs = []
        for way in (MIXED, OTHER_WAY):
            one = who.having(way)
            runs.append((one, stack.enter_context(small_run(one, one.outcomes, way))[1]))
        first = draws_of(runs[0][0], runs[0][1]())
        yield first
        enough = [float(_FEWEST)]
        for cells, n in (noise.values.shape for one in first for noise in one.noise):
            enough += [min(_NUMBERS / n, _MOST), min(_OF_ALL / (cells * n), _MOST_OF_ALL)]
        if any(one.responses is not None for one in first):
            enough += [min(_DRAWS / len(first[0].place), _MOST)]
        for number in range(1, math.ceil(max(enough))):
            one, draw = runs[number % len(runs)]
            yield draws_of(one, draw())


def noise_of(runs: Runs) -> Iterator[Events]:
    """Noise of all runs together that are of one shape and scale, as private clusters need not."""
    whose, alike = f"noise of {runs[0].name}", dict[object, list[tuple[Drawn, Noise]]]()
    for one in runs:
        for number, noise in enumerate(one.noise):
            alike.setdefault((number, noise.values.shape, noise.scale), []).append((one, noise))
    for same in alike.values():
        one, noise = same[0]
        cells = [f"{whose} in {one.cells[cell]}" for cell in noise.cells]
        values = np.stack([each.values for _, each in same])
        yield from checks.noise_events(values, noise.scale, whose, cells)


def responses_of(runs: Runs) -> Iterator[Events]:
    """Draws of all units together, of those of each (pool, arm), and in several runs of each."""
    parts = [one.responses for one in runs if one.responses is not None]
    if not parts:
        return
    whose, cells, groups = f"a unit's {runs[0].name}", runs[0].cells, []
    if len(runs) > 1:
        place = np.concatenate([one.place for one in runs])
        n = int(place.max()) + 1
        groups = [(place, [f"{whose}, place {number + 1} of {n}," for number in range(n)])]
    if cells and all(one.cells == cells for one in runs):
        cell = np.concatenate([part.cells for part in parts])
        groups.append((cell, [f"{whose} in {name}" for name in cells]))
    yield from checks.response_events(parts, whose, groups)


def shared(pairs: Iterable[tuple[Runs, Runs]]) -> Iterator[Events]:
    """Whether noise, or draws of units in the same place, go together, which are independent."""
    for runs, others in pairs:
        together: dict[str, list[Trials]] = {}
        for here, there in zip(runs, others, strict=True):
            for number, (mine, theirs) in enumerate(zip(here.noise, there.noise, strict=False), 1):
                n = min(mine.values.shape[1], theirs.values.shape[1])
                if len(mine.values) == len(theirs.values):
                    one, other = (
                        checks.laplace(z.values[:, :n].ravel(), z.scale) for z in (mine, theirs)
                    )
                    together.setdefault(f"noise {number}", []).append(one.both(other))
            if here.responses is not None and there.responses is not None:
                _, at, theirs_at = np.intersect1d(here.place, there.place, return_indices=True)
                one, other = here.responses.trials.at(at), there.responses.trials.at(theirs_at)
                together.setdefault("draw of a unit", []).append(one.both(other))
        for what, parts in together.items():
            whose = f"each {what} of {runs[0].name} and {others[0].name}"
            yield Trials.joined(parts).counted(whose)


def rounding(release: ResolvedRelease, folder: Path) -> Iterator[str | Events]:
    """Problems and laws of how outcomes between points of grids get onto these.

    In the order of units, and of strata.
    """
    who = people(made_up(release, folder))
    values = who.between_points()
    with small_run(who, values, "off-grid") as (designed, _):
        chosen, rows = designed.chosen, designed.rows.open()
        for number, column in enumerate(several(OUTCOME, len(values))):
            view, mechanism = chosen.config.views[number], chosen.designs[number].mechanism
            (outcome,), few, given = view.outcomes, view.privacy.min_stratum, values[number]
            made = count_strata(outcome, rows, mechanism, None, few, keep=True, column=column)
            parts, table = [part.load()[LEVEL] for part in made.levels], cell_table(made.strata)
            levels = np.concatenate([part.to_numpy() for part in parts]).astype(np.int64)
            cells = np.concatenate([cells_of(frame, table) for frame in rows.frames()])
            grid, whose = np.array(outcome.grid), f"{outcome.name} of a unit"
            place = cells.astype(np.int64) * len(grid) + levels
            counted = np.bincount(place, minlength=made.counts.size)
            if not np.array_equal(counted, made.counts.ravel()):
                yield "counts are of other outcomes than those that are drawn"
            nearest, by_stratum = outcome.rounding == "nearest", np.argsort(cells, kind="stable")
            for name, at in ((whose, slice(None)), (f"{whose}, by stratum,", by_stratum)):
                own = levels[at], given[at], grid, name
                yield from checks.rounding_events(*own, nearest=nearest)


_UNITS, _MOST_CELLS = 200_000, 1 << 22


def sampled_bound(release: ResolvedRelease, folder: Path, error: float) -> Bound:
    """Return a bound from below on ε, above the true one with a probability of at most ``error``.

    Every (cluster, arm) of a large made-up log is a replicate (`privatizers/lab/audit/audit.md`);
    where clusters have no pool and statistic of their own, every unit, by its output alone.
    """
    config = made_up(release, folder)
    privacy, n_arms = config.privacy, len(config.arms.names)
    own_pools = config.private_clusters is None and bool(config.columns.clusters)
    own_pools &= privacy.mechanism != "cluster-free-dp" and privacy.strata_statistic != "none"
    learns = privacy.mechanism == "cluster-optimal-dp" and privacy.learn_from != "nothing"
    of_units = privacy.mechanism in ("uniform-prior-dp", "cluster-optimal-dp")
    if (learns and privacy.joint != "yes") or not (own_pools or of_units):
        return Bound(0.0, "draws depend on what is shared: there is no bound")
    each, most = max(privacy.min_stratum, 2), max(len(one.grid) for one in config.outcomes)
    number = max(2, min(_UNITS // (each * n_arms), _MOST_CELLS // (most * n_arms)))
    who = laid_out(config, np.full((number, n_arms), each))
    changed = np.ones(who.n_units, dtype=np.bool_)  # each drawn by itself, whatever the others are
    if own_pools:
        cell = who.cluster * n_arms + who.arm
        changed[:] = False
        changed[np.unique(cell, return_index=True)[1]] = True
    here, there = (_sample(who, changed, moved=moved) for moved in (False, True))
    ways = [way for both in ((here, there), (there, here)) for way in zip(*both, strict=True)]
    found = max(lower_bound(*way, privacy.delta, error / len(ways)) for way in ways)
    return Bound(found, "by draws, or all that is drawn", 2 * int(changed.sum()))


def _sample(who: MadeUpPeople, changed: Bools, *, moved: bool) -> Floats:
    """What is published around the unit that changes, in each replicate of one release.

    Its output, and each number of its cell, tells of the lowest outcome (1), the highest (−1) or
    neither (0): added up over all outcomes, of outputs alone and beside numbers; shape [2, R].
    """
    high = [np.full(who.n_units, len(one.grid) - 1) for one in who.config.outcomes]
    low = [np.where(changed, 0, level) for level in high]
    ways = [replace(who, levels=levels) for levels in (low, high)]
    with small_run(who, ways[moved].outcomes, f"moved-{moved}") as (_, draw):
        release = draw()
        if_low, if_high = (draws_of(way, release) for way in ways)
    n = int(changed.sum())  # one in each cell, or everybody, who are more
    draws, others = np.zeros((2, n))
    for one, other in zip(if_low, if_high, strict=True):
        if one.responses is not None and other.responses is not None:
            rows = np.flatnonzero(changed[one.place])
            order = one.responses.cells[rows] if n == len(one.cells) else np.arange(n)
            for own, sign in ((one.responses, 1.0), (other.responses, -1.0)):
                draws[order] += sign * own.trials.happened[0, rows]
        for here, there in zip(one.noise, other.noise, strict=True):
            if np.array_equal(here.cells, np.arange(n)):  # each of its own stratum, and all of them
                weights = np.linspace(1.0, 2.0, here.values.shape[1])  # those of both ends move
                others += np.sign(np.abs(there.values) - np.abs(here.values)) @ weights
    return np.stack([draws, 1_000.0 * draws + others])  # whatever is told of each, in one number
