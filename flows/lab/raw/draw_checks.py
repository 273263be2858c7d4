"""What an audit asks of very many small runs: the law of every noise, draw and rounding.

A whole run takes a second, and what sampling is to see takes many draws. So the rows of made-up
people are read and judged once, by the steps of the run, and drawn again and again by
:func:`~flows.raw.privatize.privatize`, which is called as the run calls it.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from flows.config.model.experiment import Config
from flows.lab.raw.draws import Drawn, FileTables, Noise, Truth, draws_of, of_tables
from flows.lab.raw.made_up_log import MadeUpPeople
from flows.raw.charge import Designed
from flows.raw.drawing.strata_counts import LEVEL, cell_table, cells_of, count_strata
from flows.raw.ingest import ingest
from flows.raw.privatize import privatize
from flows.raw.spill.workspace import open_workspace
from flows.raw.validate import validate
from privatizers.lab.audit.checks import Events
from privatizers.lab.audit.laws import (
    Trials,
    laplace,
    noise_events,
    response_events,
    rounding_events,
)
from schemas.arrays import Floats
from schemas.names import ReleaseName
from schemas.raw import OUTCOME, several

_NUMBERS, _OF_ALL = 240, 800
"""Noises of a (pool, arm) that show one of half the scale: e^(−.193 n) at most by chance. And of
all together that show one of seven tenths of it: e^(−.0567 n)."""
_FEWEST, _MOST, _MOST_OF_ALL = 60, 150, 400  # small runs
_DRAWS = 1_600_000
"""Draws of units that show one in a hundred that is another: 12 standard errors."""

Draw = Callable[[], FileTables]
"""Draws the same rows once more."""
Runs = Sequence[Drawn]
"""What was drawn of one outcome, by every run."""


@contextmanager
def small_run(
    config: Config, who: MadeUpPeople, values: Sequence[Floats], period: str
) -> Iterator[tuple[Designed, Draw]]:
    """Read and judge people with these values of outcomes, shape [n] each, as a run does."""
    who.write(period, who.numbers(0), values)
    with open_workspace(config.spill) as workspace:
        rows, _, roster = validate(config.log_facts, ingest(config, period), workspace)
        designed, name = Designed(config, rows), ReleaseName(config.experiment, period, 1)
        chosen = designed.chosen
        given = chosen.config, rows, chosen.designs, name, workspace, roster
        yield designed, lambda: of_tables(privatize(*given))


def draw_all(runs: Sequence[tuple[Draw, Truth]]) -> Iterator[list[Drawn]]:
    """Draw from each of the ``runs`` in turn, as often as is needed."""
    most, number = _FEWEST, 0
    while number < most:
        draw, truth = runs[number % len(runs)]
        drawn = draws_of(truth, draw())
        most, number = (most if number else _n_runs(drawn)), number + 1
        yield drawn


def _n_runs(first: Sequence[Drawn]) -> int:
    """How many small runs are to be drawn, by what one published."""
    shapes = [noise.values.shape for one in first for noise in one.noise]
    of_one = max((_NUMBERS / numbers for _, numbers in shapes), default=0.0)
    of_all = max((_OF_ALL / (cells * numbers) for cells, numbers in shapes), default=0.0)
    if any(one.responses is not None for one in first):
        of_one = max(of_one, _DRAWS / len(first[0].place))
    return math.ceil(max(_FEWEST, min(of_one, _MOST), min(of_all, _MOST_OF_ALL)))


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
        yield from noise_events(values, noise.scale, whose, cells)


def responses_of(runs: Runs) -> Iterator[Events]:
    """Draws of all units together, of those of each (pool, arm), and of each unit."""
    parts = [one.responses for one in runs if one.responses is not None]
    if not parts:
        return
    whose, cells = f"a unit's {runs[0].name}", runs[0].cells
    place = np.concatenate([one.place for one in runs])
    n = int(place.max()) + 1
    groups = [(place, [f"{whose}, place {number + 1} of {n}," for number in range(n)])]
    if cells and all(one.cells == cells for one in runs):
        cell = np.concatenate([part.cells for part in parts])
        groups.append((cell, [f"{whose} in {name}" for name in cells]))
    yield from response_events(parts, whose, groups)


def shared(pairs: Iterable[tuple[Drawn, Drawn]], whose: str) -> Iterator[Events]:
    """Whether noise, or draws of units in the same place, go together, which are independent."""
    together: dict[str, list[Trials]] = {}
    for here, there in pairs:
        for number, (mine, theirs) in enumerate(zip(here.noise, there.noise, strict=False)):
            n = min(mine.values.shape[1], theirs.values.shape[1])
            if len(mine.values) == len(theirs.values):
                one, other = (laplace(z.values[:, :n].ravel(), z.scale) for z in (mine, theirs))
                together.setdefault(f"noise {number + 1}", []).append(one.both(other))
        if here.responses is not None and there.responses is not None:
            _, mine_at, theirs_at = np.intersect1d(here.place, there.place, return_indices=True)
            one, other = here.responses.trials.at(mine_at), there.responses.trials.at(theirs_at)
            together.setdefault("draw of a unit", []).append(one.both(other))
    for what, parts in together.items():
        yield Trials.joined(parts).counted(f"each {what} of {whose}")


def shared_by(pairs: Iterable[tuple[Runs, Runs]]) -> Iterator[Events]:
    """Whether any two of all that is drawn of units go together."""
    for one, other in pairs:
        yield from shared(zip(one, other, strict=True), f"{one[0].name} and {other[0].name}")


def rounding(designed: Designed, values: Sequence[Floats]) -> Iterator[str | Events]:
    """Problems and laws of how ``values`` are rounded, in the order of units and of strata."""
    chosen, rows = designed.chosen, designed.rows.open()
    columns = several(OUTCOME, len(values))
    for view, one, column, given in zip(
        chosen.config.views, chosen.outcomes, columns, values, strict=True
    ):
        made = count_strata(view, rows, one.design.mechanism, None, keep=True, outcome=column)
        levels = np.concatenate([part.load()[LEVEL].to_numpy() for part in made.levels])
        levels, table = levels.astype(np.int64), cell_table(made.strata)
        cells = np.concatenate([cells_of(frame, table) for frame in rows.frames()])
        grid, nearest = np.array(view.outcome.grid), view.outcome.rounding == "nearest"
        place = cells.astype(np.int64) * len(grid) + levels
        if not np.array_equal(np.bincount(place, minlength=made.counts.size), made.counts.ravel()):
            yield "counts are of other outcomes than those that are drawn"
        whose = f"{view.outcomes[0].name} of a unit"
        for order, name in (
            (np.arange(len(cells)), whose),
            (np.argsort(cells, kind="stable"), f"{whose}, by stratum,"),
        ):
            events = rounding_events(levels[order], given[order], grid, name, nearest=nearest)
            yield from events
