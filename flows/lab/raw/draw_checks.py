"""What an audit asks of very many small runs: the law of every noise, draw and rounding."""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from flows.config.model.experiment import Config
from flows.lab.raw.draws import DrawnOutcome, draws_of, labels_of
from flows.lab.raw.made_up_log import off_grid
from flows.lab.raw.small_runs import SmallRun
from flows.raw.drawing.strata_counts import LEVEL, cell_table, cells_of, count_strata
from privatizers.lab.audit.checks import Events
from privatizers.lab.audit.laws import (
    Responses,
    Trials,
    misplaced,
    noise_events,
    noise_pairs,
    response_events,
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

Drawn = Sequence[Sequence[DrawnOutcome]]
"""Every outcome of every run."""


def draw_all(
    runs: Sequence[SmallRun], levels: Sequence[Sequence[Ints]]
) -> Iterator[tuple[list[DrawnOutcome], Responses | None]]:
    """Draw from each of the ``runs`` in turn, as often as is needed; labels where private."""
    truths = [run.truth(own) for run, own in zip(runs, levels, strict=True)]
    most = _FEWEST
    for number in itertools.count():
        if number == most:
            return
        release, truth = runs[number % len(runs)].release(), truths[number % len(runs)]
        drawn = draws_of(truth, release)
        most = most if number else _n_runs(drawn)
        yield drawn, labels_of(truth, release)


def _n_runs(first: Sequence[DrawnOutcome]) -> int:
    """How many small runs are to be drawn, by what one published."""
    shapes = [noise.values.shape for one in first for noise in one.noise]
    of_one = max((_NUMBERS / numbers for _, numbers in shapes), default=0.0)
    of_all = max((_OF_ALL / (cells * numbers) for cells, numbers in shapes), default=0.0)
    if any(one.responses is not None for one in first):
        of_one = max(of_one, _DRAWS / len(first[0].place))
    return math.ceil(max(_FEWEST, min(of_one, _MOST), min(of_all, _MOST_OF_ALL)))


def noise_of_all(drawn: Drawn) -> Iterator[Events]:
    """Noise of all runs together that are of one shape and scale, as private clusters need not."""
    for of_outcome in zip(*drawn, strict=True):
        for parts in zip(*(one.noise for one in of_outcome), strict=True):
            whose = f"noise of {of_outcome[0].name}"
            alike = sorted({(part.values.shape, part.scale) for part in parts})
            for shape, scale in alike:
                same = [
                    number
                    for number, part in enumerate(parts)
                    if (part.values.shape, part.scale) == (shape, scale)
                ]
                names = of_outcome[same[0]].cells
                cells = [f"{whose} in {names[cell]}" for cell in parts[same[0]].cells]
                noise = np.stack([parts[number].values for number in same])
                yield from noise_events(noise, scale, whose, cells)


def responses_of_all(drawn: Drawn) -> Iterator[Events]:
    """Draws of all units together, of those of each (pool, arm), and of each unit."""
    if not drawn:
        raise AssertionError("no run came to its draws")
    for of_outcome in zip(*drawn, strict=True):
        parts = [one.responses for one in of_outcome if one.responses is not None]
        if parts:
            whose, cells = f"a unit's {of_outcome[0].name}", of_outcome[0].cells
            groups = [_by_place(of_outcome, whose)]
            if all(one.cells == cells for one in of_outcome):
                cell = np.concatenate([part.cells for part in parts])
                groups.append((cell, [f"{whose} in {name}" for name in cells]))
            yield from response_events(parts, whose, groups)


def _by_place(drawn: Sequence[DrawnOutcome], whose: str) -> tuple[Ints, Sequence[str]]:
    place = np.concatenate([one.place for one in drawn])
    n = int(place.max()) + 1
    return place, [f"{whose}, place {number + 1} of {n}," for number in range(n)]


def labels_of_all(drawn: Drawn, labels: Sequence[Responses]) -> Iterator[Events]:
    """Private clusters of units, which are drawn independently of their outcomes."""
    if not labels:
        return
    whose = "a unit's cluster"
    yield from response_events(labels, whose, [_by_place([one[0] for one in drawn], whose)])
    for of_outcome in zip(*drawn, strict=True):
        yield from _shared([one.responses for one in of_outcome], labels, of_outcome[0].name, whose)


def _shared(
    first: Sequence[Responses | None], second: Sequence[Responses | None], *names: str
) -> list[Events]:
    """Whether draws of the same units go together, which are independent."""
    pairs = zip(first, second, strict=True)
    both = [a.trials.both(b.trials) for a, b in pairs if a is not None and b is not None]
    whose = f"each of {' and '.join(names)} of a unit"
    return [Trials.joined(both).counted(whose)] if both else []


def shared_by_outcomes(drawn: Drawn) -> Iterator[Events]:
    """Any two outcomes share neither draws nor noise."""
    for here, there in itertools.combinations(list(zip(*drawn, strict=True)), 2):
        names = here[0].name, there[0].name
        yield from _shared(
            [one.responses for one in here], [one.responses for one in there], *names
        )
        for one, other in zip(_noises(here), _noises(there), strict=False):
            n = min(one[0].shape[1], other[0].shape[1])
            pairs = noise_pairs(one[0][:, :n].ravel(), one[1], other[0][:, :n].ravel(), other[1])
            yield pairs.counted(f"each of two noises of {' and '.join(names)} of a stratum")


def _noises(runs: Sequence[DrawnOutcome]) -> list[tuple[Ints, float]]:
    """Each noise of an outcome in all runs, shape [runs × cells, numbers], with its scale."""
    parts = zip(*(one.noise for one in runs), strict=True)
    return [(np.concatenate([each.values for each in same]), same[0].scale) for same in parts]


# rounding


def between(config: Config, n_units: int) -> list[Floats]:
    """Values of each outcome between the points of its grid, or on them where they are texts."""
    grids = [(np.array(one.grid), one.texts) for one in config.outcomes]
    return [
        grid[np.arange(n_units) % len(grid)] if texts else off_grid(grid, n_units)
        for grid, texts in grids
    ]


def rounding(run: SmallRun, values: Sequence[Floats]) -> tuple[list[str], list[Events]]:
    """Problems and laws of how ``values`` are rounded, in the order of units and of strata."""
    problems: list[str] = []
    events: list[Events] = []
    for view, one, column, given in zip(
        run.chosen.config.views,
        run.chosen.outcomes,
        several(OUTCOME, len(values)),
        values,
        strict=True,
    ):
        made = count_strata(view, run.rows, one.design.mechanism, None, keep=True, outcome=column)
        levels = np.concatenate([part.load()[LEVEL].to_numpy() for part in made.levels])
        levels, table = levels.astype(np.int64), cell_table(made.strata)
        cells = np.concatenate([cells_of(frame, table) for frame in run.rows.frames()])
        grid, nearest = np.array(view.outcome.grid), view.outcome.rounding == "nearest"
        place = cells.astype(np.int64) * len(grid) + levels
        if not np.array_equal(np.bincount(place, minlength=made.counts.size), made.counts.ravel()):
            problems.append("counts are of other outcomes than those that are drawn")
        if wrong := misplaced(levels, given, grid, nearest=nearest):
            problems.append(f"{wrong:,} outcomes are at another point of the grid than they may be")
        elif not nearest:
            by_stratum, whose = (
                np.argsort(cells, kind="stable"),
                f"{view.outcomes[0].name} of a unit",
            )
            events += rounding_events(levels, given, grid, whose)
            events += rounding_events(
                levels[by_stratum], given[by_stratum], grid, f"{whose}, by stratum,"
            )
    return problems, events
