"""An audit of releases of several outcomes: what is drawn of any two of them, and what all lose.

All outcomes are released together by the function that a release calls. The truth is made up, so
that the noise and the draws of each are known; those of two outcomes have to be independent.
"""

import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

from flows.config.model.experiment import AnyDesign, Config
from flows.raw.audit.made_up_rows import Layout, layout, on_grid
from flows.raw.audit.noise_laws import (
    DRAWN,
    Noise,
    Published,
    learns,
    noise_in,
    publish_made_up,
    responses_of,
    table_responses,
)
from flows.raw.spill.sorted_runs import Stored
from flows.raw.units.rows import Rows
from flows.raw.units.unit_ids import released_ids
from privatizers.audit.checks import Check, Events, judge_events
from privatizers.audit.laws import AnyResponses, response_events
from privatizers.audit.lower_bounds import DRAW, SIGNATURE, Bound, Sample, lower_bound
from privatizers.audit.mechanism_laws import noise_pairs
from privatizers.audit.several_outcomes import response_pairs
from privatizers.mechanisms.paired_optimal_dp import PairedOptimalDP
from schemas.arrays import Bools, Floats, Ints
from schemas.raw import OUTCOME, several

APART = "no two outcomes of a unit share a draw, and no two of a stratum share noise"
TOGETHER = "both outcomes are drawn together as published, and no two of a stratum share noise"
_IN_SIGNATURE = 4  # outcomes whose statistics are looked at together
_log = logging.getLogger("clusterdp")


@dataclass(frozen=True)
class Whole:
    """A release of several outcomes: its configuration, grids settled, and their designs."""

    config: Config
    designs: tuple[AnyDesign, ...]

    def published(self, rows: Rows) -> Published:
        """Release made-up rows, all outcomes together."""
        return publish_made_up(self.config, self.designs, rows)

    def rows(self, rows: Rows, view: Config) -> Rows:
        """Rows of one outcome with values of all: as far between the ends of their grids as its."""
        (low, high), views = view.outcome.ends, self.config.views
        own = [one.outcomes[0].name for one in views].index(view.outcomes[0].name)

        def with_all(frame: pl.DataFrame) -> pl.DataFrame:
            share = (frame[OUTCOME].to_numpy() - low) / (high - low)
            ends = [one.outcome.ends for one in views]
            values = [least + share * (most - least) for least, most in ends]
            values[own] = frame[OUTCOME].to_numpy()
            return _with_outcomes(frame, values)

        return _each_part(rows, with_all)

    def of_levels(self, units: Layout, levels: list[Ints]) -> Rows:
        """Rows whose outcomes have these positions on their grids, shape [n] each."""
        values = [
            np.array(view.outcome.grid)[level]
            for view, level in zip(self.config.views, levels, strict=True)
        ]
        begun = 0

        def with_all(frame: pl.DataFrame) -> pl.DataFrame:
            nonlocal begun
            piece = slice(begun, begun + frame.height)
            begun += frame.height
            return _with_outcomes(frame, [value[piece] for value in values])

        return _each_part(units.rows(values[0]), with_all)


def _with_outcomes(frame: pl.DataFrame, values: list[Floats]) -> pl.DataFrame:
    names = several(OUTCOME, len(values))
    return frame.with_columns(
        pl.Series(name, value) for name, value in zip(names, values, strict=True)
    )


def _each_part(rows: Rows, change: Callable[[pl.DataFrame], pl.DataFrame]) -> Rows:
    parts = tuple(Stored(part.n_rows, change(part.load())) for part in rows.parts)
    return Rows(parts, rows.unit_type, rows.arms, rows.clusters, rows.sizes)


@dataclass(frozen=True)
class _Drawn:
    """What was drawn of one outcome."""

    name: str
    responses: AnyResponses | None
    noise: list[Noise]
    units: pl.DataFrame | None = None
    """The units as published, with ``level``, in the order of :attr:`cells`."""
    cells: Ints | None = None


def _drawn(whole: Whole, position: int, units: Layout, levels: Ints, release: Published) -> _Drawn:
    """Work out the draws and the noise of one outcome of a release; the truth is ``levels``."""
    view, design = whole.config.views[position], whole.designs[position]
    name, grid = view.outcomes[0].name, np.array(view.outcome.grid)
    own = release.of_outcome(name)
    if not own.units.height:
        if whole.config.private_clusters is not None:
            return _Drawn(name, None, [])
        cluster = pl.Series(units.clusters, dtype=pl.String).gather(units.cluster)
        arm = pl.Series(units.arms, dtype=pl.String).gather(units.arm)
        cell = own.cells_of(cluster, arm)
        return _Drawn(name, None, _noise(view, design, own, cell, levels))
    truth = pl.DataFrame({"unit_id": released_ids(whole.config, units.units), "level": levels})
    placed = own.units.join(truth, on="unit_id", how="left", maintain_order="left")
    cell = own.cells_of(placed["cluster"], placed["arm"])
    level = placed["level"].to_numpy()
    noise = _noise(view, design, own, cell, level)
    responses = responses_of(design, own, placed, cell, level, grid)
    return _Drawn(name, responses, noise, placed, cell)


def _noise(
    view: Config, design: AnyDesign, own: Published, cells: Ints, levels: Ints
) -> list[Noise]:
    k = len(view.outcome.grid)
    counts = np.bincount(cells * k + levels, minlength=own.cells.height * k).reshape(-1, k)
    return noise_in(view, design, own, counts)


def apart(whole: Whole, n_units: int, most_clusters: int, error: float) -> Check:
    """Check one large release: what is drawn of any two outcomes is independent.

    But for two that are drawn together, whose one output has to follow the table of both.
    """
    _log.info("releasing %d made-up units with all outcomes", n_units)
    most = max(len(view.outcome.grid) for view in whole.config.views)
    units = layout(whole.config, n_units, max(2, min(most_clusters, (1 << 22) // most)))
    levels = [
        on_grid(view, units.n_units, salt=20 + position, uneven=learns(design))
        for position, (view, design) in enumerate(
            zip(whole.config.views, whole.designs, strict=True)
        )
    ]
    release = whole.published(whole.of_levels(units, levels))
    drawn = [
        _drawn(whole, position, units, level, release) for position, level in enumerate(levels)
    ]
    events: list[Events] = []
    for first, second in itertools.combinations(drawn, 2):
        names = f"{first.name} and {second.name}"
        if first.responses is not None and second.responses is not None:
            events += response_pairs(first.responses, second.responses, f"{names} of a unit")
        for one, other in zip(first.noise, second.noise, strict=False):
            if np.array_equal(one.cells, other.cells):
                columns = min(one.values.shape[1], other.values.shape[1])
                pair = (one.values[:, :columns].ravel(), other.values[:, :columns].ravel())
                scales = (one.scale, other.scale)
                events += noise_pairs(
                    (pair[0], scales[0]), (pair[1], scales[1]), f"noises of {names} of a stratum"
                )
    if isinstance(whole.designs[0].mechanism, PairedOptimalDP):
        events += _events_of_pair(whole, drawn, release)
        return judge_events(TOGETHER, events, error)
    return judge_events(APART, events, error)


def _events_of_pair(whole: Whole, drawn: list[_Drawn], release: Published) -> list[Events]:
    """Events of the output that tells of both outcomes: the one's is the other's, and its law."""
    first, second = drawn
    if first.units is None or second.units is None or first.cells is None:
        return []
    outputs = [units[DRAWN[0]].to_numpy() for units in (first.units, second.units)]
    levels = [units["level"].to_numpy() for units in (first.units, second.units)]
    n, sizes = len(outputs[0]), [len(view.outcome.grid) for view in whole.config.views]
    same = np.count_nonzero(outputs[0] == outputs[1])
    grid = np.array(whole.config.views[0].outcome.grid)
    responses = table_responses(
        whole.designs[0],
        release.of_outcome(first.name),
        first.units,
        first.cells,
        levels[0] * sizes[1] + levels[1],
        grid,
    )
    events = [Events.one("a unit has one output for both outcomes", same, float(n), n)]
    return events if responses is None else [*events, *response_events(responses, "a unit")]


# all together


def sampled_bound(whole: Whole, n_units: int, error: float) -> tuple[Bound, int]:
    """A lower bound on the loss of all outcomes together, and the replicates behind it.

    Every (cluster, arm) of a large made-up log is a replicate: in the one data set one unit of each
    has the lowest of every outcome and all others have the highest; in the other this unit has the
    highest, too. The bound is above the true ε with a probability of at most ``error``. Where
    clusters share a pool, or are private, draws of units alone are looked at, each unit a
    replicate; where these depend on statistics of a shared pool, or on those of a whole arm, there
    is no bound: 0.
    """
    config = whole.config
    mechanism = whole.designs[0].mechanism.name
    if any(learns(design) for design in whole.designs):
        return Bound(0.0, None), 0
    own_pools = config.private_clusters is None and bool(config.columns.clusters)
    own_pools &= mechanism != "cluster-free-dp"
    if not own_pools and mechanism not in ("uniform-prior-dp", "cluster-optimal-dp"):
        return Bound(0.0, None), 0
    least = max(config.privacy.min_stratum, 2)
    n_arms = len(config.arms.names)
    most = max(len(view.outcome.grid) for view in config.views)
    number = max(2, min(n_units // (least * n_arms), (1 << 22) // (most * n_arms)))
    units = _even_layout(config, least, number)
    # The first unit of each cell is the one that changes.
    cell = units.cluster * n_arms + units.arm
    changed = np.zeros(units.n_units, dtype=np.bool_)
    changed[np.unique(cell, return_index=True)[1]] = True
    if not own_pools:
        changed[:] = True  # each is drawn by itself, whatever the others are
    here, there = (
        _sample(whole, units, changed, moved=moved, own_pools=own_pools) for moved in (False, True)
    )
    delta = config.privacy.delta
    bounds = [
        lower_bound(here, there, delta, error / 2),
        lower_bound(there, here, delta, error / 2),
    ]
    return max(bounds, key=lambda bound: bound.epsilon), 2 * here.size


def _even_layout(config: Config, each: int, number: int) -> Layout:
    """So many clusters of ``each`` units an arm; one where there are none, declared ones alone."""
    n_arms = len(config.arms.names)
    if config.private_clusters is not None or not config.columns.clusters:
        return layout(config, each * number * n_arms, 2)
    names = tuple(f"cluster {place:06d}" for place in range(number))
    place = np.tile(np.arange(number * n_arms), each)
    return Layout(config.arms.names, names, place // n_arms, place % n_arms, config.columns)


def _sample(whole: Whole, units: Layout, changed: Bools, *, moved: bool, own_pools: bool) -> Sample:
    """What is published around the unit that changes, in each cell of a release."""
    views = whole.config.views
    levels = [np.full(units.n_units, len(view.outcome.grid) - 1) for view in views]
    if not moved:
        for level in levels:
            level[changed] = 0
    release = whole.published(whole.of_levels(units, levels))
    ids = released_ids(whole.config, units.units.filter(pl.Series(changed)))
    chosen = pl.DataFrame({"unit_id": ids})
    n = int(changed.sum())
    cluster = pl.Series(units.clusters, dtype=pl.String).gather(units.cluster[changed])
    arm = pl.Series(units.arms, dtype=pl.String).gather(units.arm[changed])
    category, draws = np.zeros(n), []
    for view, design in list(zip(views, whole.designs, strict=True))[:_IN_SIGNATURE]:
        own = release.of_outcome(view.outcomes[0].name)
        grid = np.array(view.outcome.grid)
        drawn = np.full(n, 2.0)
        if own.units.height:
            rows = chosen.join(own.units, on="unit_id", how="left", maintain_order="left")
            value = rows[DRAWN[0]].to_numpy()
            low, high = value == grid[0], value == grid[-1]
            if design.mechanism.parameters.response_epsilon is not None:
                at = own.cells_of(cluster, arm), value.astype(np.int64)
                tables = own.response_tables(grid)
                of_low, of_high = tables[at[0], 0, at[1]], tables[at[0], -1, at[1]]
                low, high = of_low > of_high, of_low < of_high
            drawn = np.where(low, 0.0, np.where(high, 1.0, 2.0))
        sides = np.zeros((2, n))
        if own_pools:
            sides = _sides(own, grid)[:, own.cells_of(cluster, arm)]
        draws.append(drawn)
        category = category * 12.0 + drawn + 3.0 * sides[0] + 6.0 * sides[1]
    alike = np.stack(draws)
    both = np.where((alike == 0).all(axis=0), 0.0, np.where((alike == 1).all(axis=0), 1.0, 2.0))
    return Sample({DRAW: both, SIGNATURE: category})


def _sides(own: Published, grid: Floats) -> Floats:
    """Whether the statistics of a cell look like those of the unit at the lowest value, [2, S]."""
    n = own.frames["pools"]["n_units"].to_numpy()
    noisy = own.by_level("noisy_count", grid)
    if noisy is not None:
        return np.stack([noisy[:, 0] >= 1, noisy[:, -1] <= n - 1]).astype(np.float64)
    if own.with_column("noisy_mean") is None:
        return np.zeros((2, len(n)))
    total = own.frames["pools"]["noisy_mean"].to_numpy() * n
    true = grid[0] + grid[-1] * (n - 1)
    slack = 1e-9 * np.abs(grid).max() * n
    return np.stack([total <= true + slack, np.zeros(len(n))]).astype(np.float64)
