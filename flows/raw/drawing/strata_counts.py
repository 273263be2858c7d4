"""Rounding outcomes onto the grid and counting them by stratum: how every mechanism begins."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flows.config.model.sections import NamedOutcome
from flows.raw.spill.sorted_runs import Stored, Table, handed, received
from flows.raw.spill.workspace import Workspace, each
from flows.raw.units.rows import Rows, labelled, positions
from flows.runtime.progress import Progress
from privatizers.domain.outcome_grid import nearest_levels, stochastic_levels, stratum_counts
from privatizers.domain.strata import Strata, lay_out
from privatizers.mechanisms.aggregate_mechanism import AggregateMechanism
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.mechanisms.mechanism import Mechanism
from schemas.arrays import Ints, Levels
from schemas.raw import ARM, CLUSTER, OUTCOME

Cells = NDArray[np.uint32]

LEVEL = "level"
"""Position of a row's outcome on the grid; private."""
COUNT = "count"
"""How often a level is in a cell; private."""

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

    def of(self, frame: pl.DataFrame) -> tuple[Levels, Ints]:
        """The level of each row, shape [n], and the rows of each cell at each level, [S, K]."""
        grid = np.array(self.grid)
        to_level = stochastic_levels if self.is_stochastic else nearest_levels
        values = frame[self.outcome].to_numpy()
        levels = np.empty(len(values), dtype=np.min_scalar_type(len(grid) - 1))
        cells = np.empty(len(values), dtype=np.int64)

        def fill(start: int) -> None:
            piece = slice(start, start + _PIECE)
            levels[piece] = to_level(values[piece], grid)
            cells[piece] = cells_of(frame[piece], self.cells)

        with ThreadPoolExecutor(_THREADS) as pool:  # which may draw, each from its own stream
            list(pool.map(fill, range(0, len(values), _PIECE)))
        return levels, stratum_counts(levels, cells, self.n_cells, len(grid))


def count_strata(
    outcome: NamedOutcome,
    rows: Rows,
    mechanism: Mechanism | ClusterOptimalDP | AggregateMechanism,
    workspace: Workspace | None,
    min_stratum: int,
    *,
    keep: bool,
    column: str = OUTCOME,
) -> StrataCounts:
    """Round outcomes onto the grid, once, and count them by (pool, arm).

    With ``keep`` the levels are kept, to be randomised later. The ``outcome`` is
    in the ``column``.
    """
    pool_of = mechanism.pool_of(rows.sizes, min_stratum)
    strata = lay_out(list(rows.clusters), list(rows.arms), rows.sizes, pool_of)
    counter = StrataCounter(
        grid=outcome.grid,
        is_stochastic=outcome.rounding == "stochastic",
        clusters=rows.clusters,
        cells=cell_table(strata),
        n_cells=len(strata.cell_sizes),
        outcome=column,
    )
    counts = np.zeros((counter.n_cells, len(counter.grid)), dtype=np.int64)
    levels = []
    calls = [(counter, part, keep) for part in rows.parts]
    with Progress("counting", rows.n_units) as progress:
        found = each(workspace, count_part, calls)
        for part, (part_levels, part_counts) in zip(rows.parts, found, strict=True):
            counts += received(part_counts)[COUNT].to_numpy().reshape(counts.shape)
            progress.advance(part.n_rows)
            if part_levels is not None:
                levels.append(part_levels)
    return StrataCounts(tuple(levels), counts, strata)


def count_part(
    counter: StrataCounter, part: Stored, keep: bool, workspace: Workspace | None
) -> tuple[Stored | None, Table]:
    """Round and count one part; its levels, if they are kept, and its counts.

    The two belong together: of a worker that does it again, neither goes with the other's.
    """
    levels, counts = counter.of(labelled(part, counter.clusters))
    kept = part.with_rows(pl.DataFrame({LEVEL: levels}), workspace, "levels") if keep else None
    return kept, handed(pl.DataFrame({COUNT: counts.ravel()}), workspace, "counts")


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
