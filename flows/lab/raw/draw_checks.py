"""What an audit asks of very many small runs: the law of every noise, draw and rounding."""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from flows.config.model.experiment import Config
from flows.lab.raw.draws import DrawnOutcome, draws_of, labels_of
from flows.lab.raw.made_up_log import MadeUpPeople, off_grid
from flows.lab.raw.small_runs import SmallRun, read_values
from flows.raw.drawing.strata_counts import LEVEL, StrataCounts, cell_table, cells_of, count_strata
from privatizers.lab.audit.checks import Check, Events, Magnitudes, exactly, judge_events
from privatizers.lab.audit.noise_laws import noise_events, noise_laws, noise_pairs, pair_events
from privatizers.lab.audit.response_laws import (
    AnyResponses,
    Responses,
    TableResponses,
    joined,
    not_around,
    not_nearest,
    response_events,
    response_pairs,
    rounding_events,
)
from schemas.arrays import Floats, Ints
from schemas.raw import OUTCOME, several

_NUMBERS, _OF_ALL = 240, 800
"""Noises of a (pool, arm) that show one of half the scale: e^(−.193 n) at most by chance. And of
all together that show one of seven tenths of it: e^(−.0567 n)."""
_FEWEST, _MOST, _MOST_OF_ALL = 60, 150, 400  # small runs
_DRAWS = 1_600_000
"""Draws of units that show one in a hundred that is another: 12 standard errors."""
_MOST_DRAWS = 400_000  # that are looked at in pairs, of all runs together


def n_runs(first: list[DrawnOutcome]) -> int:
    """How many small runs are to be drawn, by what one published."""
    shapes = [noise.values.shape for one in first for noise in one.noise]
    of_one = max((_NUMBERS / numbers for _, numbers in shapes), default=0.0)
    of_all = max((_OF_ALL / (cells * numbers) for cells, numbers in shapes), default=0.0)
    if any(one.responses is not None for one in first):
        of_one = max(of_one, _DRAWS / len(first[0].place))
    return math.ceil(max(_FEWEST, min(of_one, _MOST), min(of_all, _MOST_OF_ALL)))


def draw_all(runs: Sequence[SmallRun]) -> Iterator[tuple[list[DrawnOutcome], Responses | None]]:
    """Draw from each of the ``runs`` in turn, as often as is needed; labels where private."""
    most = _FEWEST
    for number in itertools.count():
        if number == most:
            return
        run = runs[number % len(runs)]
        release = run.release()
        drawn = draws_of(run.truth, release)
        most = n_runs(drawn) if number == 0 else most
        yield drawn, labels_of(run.truth, release)


def noise_of_all(drawn: Sequence[list[DrawnOutcome]]) -> list[Events]:
    """Noise of each (pool, arm), of neighbouring ones, and of pairs of runs."""
    events: list[Events] = []
    for of_outcome in zip(*drawn, strict=True):
        for parts in zip(*(one.noise for one in of_outcome), strict=True):
            scale, name = parts[0].scale, of_outcome[0].name
            events += noise_laws([part.values for part in parts[:2]], scale)
            if len({part.values.shape for part in parts}) > 1 or len({p.scale for p in parts}) > 1:
                continue  # of private clusters, which differ from run to run
            noise = np.stack([part.values for part in parts])  # [runs, cells, numbers]
            cells = of_outcome[0].cells[parts[0].cells.tolist()]
            where = [f"noise of {name} in {pool}, {arm}" for _, pool, arm in cells.rows()]
            events.append(Magnitudes.of(where, noise.swapaxes(0, 1).reshape(len(where), -1), scale))
            for place in range(len(where)):
                events += noise_events(noise[:, place].ravel(), scale, where[place])
            for place in range(len(where) - 1):
                pairs = noise[:, place].ravel(), noise[:, place + 1].ravel()
                events += pair_events(*pairs, scale, f"noises of strata {place} and {place + 1}")
            every = noise.reshape(1, -1)
            events.append(Magnitudes.of([f"noise of {name} in all runs"], every, scale))
            half = len(noise) // 2
            two = noise[:half].ravel(), noise[half : 2 * half].ravel()
            events += pair_events(*two, scale, f"noises of {name} in two runs")
    return events


def responses_of_all(drawn: Sequence[list[DrawnOutcome]]) -> list[Events]:
    """Draws of all units together, of those of each (pool, arm), and of each unit."""
    if not drawn:
        raise AssertionError("no run came to its draws")
    events: list[Events] = []
    for of_outcome in zip(*drawn, strict=True):
        found = [(one.responses, one.place) for one in of_outcome if one.responses is not None]
        if found:
            events += events_of_units(found, f"a unit's {of_outcome[0].name}", of_outcome[0])
    return events


def events_of_units(
    found: Sequence[tuple[AnyResponses, Ints]], whose: str, of: DrawnOutcome | None = None
) -> list[Events]:
    """The same of draws with the places of their units."""
    n = len(found[0][1])
    few = [responses for responses, _ in found[: max(2, _MOST_DRAWS // n)]]
    every = joined(few)
    events = [] if every is None else response_events(every, whose)
    events += _of_all([responses for responses, _ in found], whose)
    totals = np.zeros((3, n))
    by_cell = np.zeros((3, 0 if of is None else of.cells.height))
    for responses, place in found:
        one = np.stack([responses.kept, responses.keeping, np.ones(n)])
        totals[:, place] += one
        if of is not None and responses.n_strata == by_cell.shape[1]:
            for row, values in enumerate(one):
                by_cell[row] += np.bincount(responses.strata, values, minlength=by_cell.shape[1])
    words = tuple(f"{whose}, place {place + 1} of {n}, is kept" for place in range(n))
    events.append(Events(words, *totals))
    if of is not None:
        names = tuple(f"{whose} in {pool}, {arm} is kept" for _, pool, arm in of.cells.rows())
        events.append(Events(names, *by_cell))
    return events


def _pairs_of_outcomes(drawn: Sequence[list[DrawnOutcome]]) -> list[Events]:
    """Any two outcomes share neither draws nor noise; two that are drawn together have one output.

    All runs of one (pool, arm) after the other.
    """
    events: list[Events] = []
    for outcomes in drawn[: max(2, _MOST_DRAWS // max(len(drawn[0][0].place), 1))]:
        for first, second in itertools.combinations(outcomes, 2):
            names = f"{first.name} and {second.name}"
            if first.responses is not None and second.responses is not None:
                events += response_pairs(first.responses, second.responses, f"{names} of a unit")
    for here, there in itertools.combinations(range(len(drawn[0])), 2):
        names = f"{drawn[0][here].name} and {drawn[0][there].name}"
        for one, other in zip(*(_noises(drawn, place) for place in (here, there)), strict=False):
            columns = min(one[0].shape[1], other[0].shape[1])
            pair = [(values[:, :columns].ravel(), scale) for values, scale in (one, other)]
            events += noise_pairs(pair[0], pair[1], f"noises of {names} of a stratum")
    return events


def _noises(drawn: Sequence[list[DrawnOutcome]], outcome: int) -> list[tuple[Ints, float]]:
    """Each noise of an outcome in all runs, shape [runs × cells, numbers], with its scale."""
    parts = zip(*(one[outcome].noise for one in drawn), strict=True)
    return [(np.concatenate([each.values for each in same]), same[0].scale) for same in parts]


def _of_all(found: Sequence[AnyResponses], whose: str) -> list[Events]:
    """How often units of all runs are kept and, by tables, have their likeliest output."""
    kinds = [
        [Events.one(f"{whose} is kept", one.kept.sum(), float(one.keeping.sum()), len(one.kept))]
        + ([one.likeliest(whose)] if isinstance(one, TableResponses) else [])
        for one in found
    ]
    return [
        Events(
            (f"{same[0].what[0]} in all runs",),
            np.sum([one.happened for one in same], axis=0),
            np.sum([one.expected for one in same], axis=0),
            np.sum([one.trials for one in same], axis=0),
        )
        for same in zip(*kinds, strict=True)
    ]


def pairs(name: str, drawn: Sequence[list[DrawnOutcome]], error: float) -> Check:
    """Check any two outcomes; two that are drawn together have one output, exactly."""
    if not all(one.alike for outcomes in drawn for one in outcomes):
        return Check(
            name, holds=False, evidence="a unit has two outputs, and one draw is published"
        )
    return judge_events(name, _pairs_of_outcomes(drawn), error)


def of_labels(drawn: Sequence[list[DrawnOutcome]], labels: Sequence[Responses]) -> list[Events]:
    """Private clusters of units, which are drawn independently of their outcomes."""
    places = [outcomes[0].place for outcomes in drawn]
    events: list[Events] = []
    if labels:
        events += events_of_units(list(zip(labels, places, strict=True)), "a unit's cluster")
    for outcomes, own in zip(drawn, labels, strict=False):
        for one in outcomes:
            if one.responses is not None:
                events += response_pairs(one.responses, own, f"a unit's {one.name} and cluster")
    return events


# rounding


def rounding(config: Config, who: MadeUpPeople, name: str, error: float) -> Check:
    """Check how values between grid points are rounded, in the order of units and of strata."""
    grids = [np.array(one.grid) for one in config.outcomes]
    values = [
        grid[on_it(grid, who.n_units)] if one.texts else off_grid(grid, who.n_units)
        for one, grid in zip(config.outcomes, grids, strict=True)
    ]
    problems: list[str] = []
    events: list[Events] = []
    with read_values(config, who, values, "off-grid") as (read, _):
        rows, chosen = read.rows.open(), read.designed.chosen
        columns = several(OUTCOME, len(grids))
        for view, one, column, given in zip(
            chosen.config.views, chosen.outcomes, columns, values, strict=True
        ):
            stated = count_strata(view, rows, one.design.mechanism, None, keep=True, outcome=column)
            cells = np.concatenate(
                [cells_of(frame, cell_table(stated.strata)) for frame in rows.frames()]
            ).astype(np.int64)
            nearest = view.outcome.rounding == "nearest"
            grid = np.array(view.outcome.grid)
            problems += _misplaced(stated, cells, given, grid, nearest=nearest)
            if not nearest:
                events += _rounded(stated, cells, given, grid, f"{view.outcomes[0].name} of a unit")
    if problems:
        return exactly(name, problems, "")
    return judge_events(name, events, error)


def on_it(grid: Floats, n_units: int) -> Ints:
    """Positions on a grid, one after the other, shape [n]."""
    return np.arange(n_units) % len(grid)


def _levels(stated: StrataCounts) -> Ints:
    parts = [part.load()[LEVEL].to_numpy() for part in stated.levels]
    return np.concatenate(parts).astype(np.int64)


def _misplaced(
    stated: StrataCounts, cells: Ints, values: Floats, grid: Floats, *, nearest: bool
) -> Iterator[str]:
    levels = _levels(stated)
    counts = np.bincount(cells * len(grid) + levels, minlength=stated.counts.size)
    if not np.array_equal(counts, stated.counts.ravel()):
        yield "counts are of other outcomes than those that are drawn"
    wrong = (not_nearest if nearest else not_around)(levels, values, grid)
    if wrong:
        yield f"{wrong:,} outcomes are at another point of the grid than they may be"


def _rounded(
    stated: StrataCounts, cells: Ints, values: Floats, grid: Floats, whose: str
) -> list[Events]:
    levels, by_stratum = _levels(stated), np.argsort(cells, kind="stable")
    return [
        *rounding_events(levels, values, grid, whose),
        *rounding_events(levels[by_stratum], values[by_stratum], grid, f"{whose}, by stratum,"),
    ]
