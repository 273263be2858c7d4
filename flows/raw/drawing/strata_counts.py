"""Rounding outcomes onto the grid and counting them by stratum: how every mechanism begins."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flows.config.model.sections import NamedOutcome
from flows.raw.drawing.margin_cells import Margins, codes_of
from flows.raw.spill.sorted_runs import Stored, Table, handed, received
from flows.raw.spill.workspace import Workspace, each
from flows.raw.units.rows import Rows, labelled, positions
from flows.runtime.progress import Progress
from privatizers.domain.outcome_grid import nearest_levels, stochastic_levels, stratum_counts
from privatizers.domain.strata import Strata, lay_out
from privatizers.mechanisms.aggregate_mechanism import AggregateMechanism
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.mechanisms.mechanism import Mechanism
from schemas.arrays import Floats, Ints, Levels
from schemas.raw import ARM, CLUSTER, OUTCOME

Cells = NDArray[np.uint32]

LEVEL = "level"
"""Position of a row's outcome on the grid; private."""
COUNT = "count"
"""How often a level is in a cell; private."""
SUM = "sum"
"""Of the outcomes of a margin's cell and arm; private."""

_THREADS = 2
_PIECE = 1 << 17  # rows that are worked on at once stay in the processor's cache


@dataclass(frozen=True)
class StrataCounts:
    """The levels of all outcomes, and the units of each stratum at each; raw, except ``strata``."""

    levels: tuple[Stored, ...]
    """For each part of the rows a column :data:`LEVEL`; empty where levels are not kept."""
    counts: Ints
    """Units of each cell at each level, shape [S, K]."""
    strata: Strata
    sums: tuple[Ints, ...] = ()
    """Of each margin the sums of its cells and arms, in steps; shape [cells, arms] each."""


@dataclass(frozen=True)
class StrataCounter:
    """Counts the rows of a frame by cell and level, in this process or in a worker."""

    grid: tuple[float, ...]
    is_stochastic: bool
    clusters: tuple[str, ...]
    cells: Cells
    """The cell of each (cluster, arm), shape [clusters, arms]."""
    n_cells: int
    outcome: str = OUTCOME
    """The column of the outcome."""
    steps: tuple[int, ...] = ()
    """Those of each level, where there are margins; shape [K]."""
    n_of_margins: tuple[int, ...] = ()
    """How many cells each margin has."""

    def of(
        self, frame: pl.DataFrame, codes: pl.DataFrame | None = None
    ) -> tuple[Levels, Ints, list[Floats]]:
        """The level of each row, shape [n], and the rows of each cell at each level, [S, K].

        And for each margin, whose ``codes`` are columns, the sums of cells and arms in steps; whole
        numbers, shape [cells · arms] each.
        """
        grid = np.array(self.grid)
        to_level = stochastic_levels if self.is_stochastic else nearest_levels
        values = frame[self.outcome].to_numpy()
        levels = np.empty(len(values), dtype=np.min_scalar_type(len(grid) - 1))
        cells = np.empty(len(values), dtype=np.int64)

        margins = [] if codes is None else codes_of(codes)
        n_arms, steps = self.cells.shape[1], np.array(self.steps, dtype=np.float64)
        widths = [n_cells * n_arms for n_cells in self.n_of_margins]

        def fill(start: int) -> list[NDArray[Any]]:
            piece = slice(start, start + _PIECE)
            rows = frame[piece]
            levels[piece] = to_level(values[piece], grid)
            cells[piece] = cells_of(rows, self.cells)
            if not margins:
                return []
            arm, weights = positions(rows[ARM]), steps[levels[piece]]
            return [
                np.bincount(code[piece] * np.uint32(n_arms) + arm, weights, width)
                for code, width in zip(margins, widths, strict=True)
            ]

        with ThreadPoolExecutor(_THREADS) as pool:  # which may draw, each from its own stream
            found = list(pool.map(fill, range(0, max(len(values), 1), _PIECE)))
        sums: list[Floats] = [np.sum(of_margin, axis=0) for of_margin in zip(*found, strict=True)]
        return levels, stratum_counts(levels, cells, self.n_cells, len(grid)), sums


def count_strata(
    outcome: NamedOutcome,
    rows: Rows,
    mechanism: Mechanism | ClusterOptimalDP | AggregateMechanism,
    workspace: Workspace | None,
    min_stratum: int,
    *,
    keep: bool,
    column: str = OUTCOME,
    margins: Margins | None = None,
) -> StrataCounts:
    """Round outcomes onto the grid, once, and count them by (pool, arm).

    With ``keep`` the levels are kept, to be randomised later. The ``outcome`` is
    in the ``column``. Where the mechanism publishes sums of ``margins``, they are added up.
    """
    of_margins = mechanism.parameters.margins
    laid_out = margins if margins is not None and of_margins is not None else Margins()

    pool_of = mechanism.pool_of(rows.sizes, min_stratum)
    strata = lay_out(list(rows.clusters), list(rows.arms), rows.sizes, pool_of)
    counter = StrataCounter(
        grid=outcome.grid,
        is_stochastic=outcome.rounding == "stochastic",
        clusters=rows.clusters,
        cells=cell_table(strata),
        n_cells=len(strata.cell_sizes),
        outcome=column,
        steps=() if of_margins is None else of_margins.lattice.steps,
        n_of_margins=tuple(len(one.values) for one in laid_out.cells),
    )
    sums = [np.zeros(one.sizes.size, dtype=np.int64) for one in laid_out.cells]
    counts = np.zeros((counter.n_cells, len(counter.grid)), dtype=np.int64)
    levels = []
    codes = laid_out.codes or (None,) * len(rows.parts)
    calls = [(counter, part, code, keep) for part, code in zip(rows.parts, codes, strict=True)]
    with Progress("counting", rows.n_units) as progress:
        found = each(workspace, count_part, calls)
        for part, (part_levels, part_counts, part_sums) in zip(rows.parts, found, strict=True):
            counts += received(part_counts)[COUNT].to_numpy().reshape(counts.shape)
            for at, part_sum in enumerate(part_sums):
                sums[at] += received(part_sum)[SUM].to_numpy()
            progress.advance(part.n_rows)
            if part_levels is not None:
                levels.append(part_levels)
    of_cells = (one.reshape(of.sizes.shape) for one, of in zip(sums, laid_out.cells, strict=True))
    return StrataCounts(tuple(levels), counts, strata, tuple(of_cells))


def count_part(
    counter: StrataCounter,
    part: Stored,
    codes: Stored | None,
    keep: bool,
    workspace: Workspace | None,
) -> tuple[Stored | None, Table, list[Table]]:
    """Round and count one part; its levels, if they are kept, its counts, and sums of margins.

    They belong together: of a worker that does it again, none goes with another's.
    """
    frame = labelled(part, counter.clusters)
    levels, counts, sums = counter.of(frame, None if codes is None else codes.load())
    kept = part.with_rows(pl.DataFrame({LEVEL: levels}), workspace, "levels") if keep else None
    return (
        kept,
        handed(pl.DataFrame({COUNT: counts.ravel()}), workspace, "counts"),
        [handed(pl.DataFrame({SUM: one.astype(np.int64)}), workspace, "sums") for one in sums],
    )


def cell_table(strata: Strata) -> Cells:
    """The cell of each (cluster, arm), shape [clusters, arms]; 0 where there are no units."""
    return np.maximum(strata.cell_of[strata.pool_of], 0).astype(np.uint32)


def stratum_table(strata: Strata) -> Cells:
    """The row of the table ``strata`` of each (cluster, arm), likewise."""
    occupied = strata.sizes > 0
    numbers: Cells = np.cumsum(occupied, dtype=np.uint32).reshape(occupied.shape) - np.uint32(1)
    return np.where(occupied, numbers, np.uint32(0))


def cells_of(frame: pl.DataFrame, table: Cells) -> Cells:
    """The cell of each row, or what else ``table`` has of its cluster and arm; shape [n]."""
    flat = positions(frame[CLUSTER]) * np.uint32(table.shape[1]) + positions(frame[ARM])
    cells: Cells = table.ravel()[flat]
    return cells
