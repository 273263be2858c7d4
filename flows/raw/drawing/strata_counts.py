"""Rounding outcomes onto the grid and counting them by stratum: how every mechanism begins."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flows.config.experiment import Config
from flows.orchestration.workers import run_on_workers
from flows.raw.boundary.guard import values_free
from flows.raw.spill.sorted_runs import Stored
from flows.raw.spill.workspace import Workspace, check_folder_usable, write_frame
from flows.raw.units.rows import Rows, labelled, positions
from flows.runtime.progress import Progress
from privatizers.domain.outcome_grid import nearest_levels, stochastic_levels, stratum_counts
from privatizers.domain.strata import Strata, lay_out
from privatizers.mechanisms.aggregate_mechanism import AggregateMechanism
from privatizers.mechanisms.mechanism import Mechanism
from schemas.arrays import Ints, Levels
from schemas.raw import ARM, CLUSTER, OUTCOME

Cells = NDArray[np.uint32]

LEVEL = "level"
"""Position of a row's outcome on the grid; private."""
COUNT = "count"
"""How often a level is in a cell; private."""

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

    def of(self, frame: pl.DataFrame) -> tuple[Levels, Ints]:
        """The level of each row, shape [n], and the rows of each cell at each level, [S, K]."""
        grid = np.array(self.grid)
        to_level = stochastic_levels if self.is_stochastic else nearest_levels
        values = frame[OUTCOME].to_numpy()
        levels = np.empty(len(values), dtype=level_type(len(grid)))
        cells = np.empty(len(values), dtype=np.int64)
        for start in range(0, len(values), _PIECE):
            piece = slice(start, start + _PIECE)
            levels[piece] = to_level(values[piece], grid)
            cells[piece] = cells_of(frame[piece], self.cells)
        return levels, stratum_counts(levels, cells, self.n_cells, len(grid))


def count_strata(
    config: Config,
    rows: Rows,
    mechanism: Mechanism | AggregateMechanism,
    workspace: Workspace | None,
    *,
    keep: bool,
) -> StrataCounts:
    """Round outcomes onto the grid, once, and count them by (pool, arm).

    With ``keep`` the levels are kept, to be randomised later.
    """
    pool_of = mechanism.pool_of(rows.sizes, config.privacy.min_stratum)
    strata = lay_out(list(rows.clusters), list(rows.arms), rows.sizes, pool_of)
    counter = StrataCounter(
        grid=config.outcome.grid,
        is_stochastic=config.outcome.rounding == "stochastic",
        clusters=rows.clusters,
        cells=cell_table(strata),
        n_cells=len(strata.cell_sizes),
    )
    if workspace is not None and workspace.workers is not None:
        return _count_by_workers(counter, rows, strata, workspace)
    counts = np.zeros((counter.n_cells, len(counter.grid)), dtype=np.int64)
    levels = []
    with Progress("counting", rows.n_units) as progress:
        for part, frame in zip(rows.parts, rows.frames(), strict=True):
            part_levels, part_counts = counter.of(frame)
            counts += part_counts
            progress.advance(frame.height)
            if keep:
                levels.append(
                    part.with_rows(pl.DataFrame({LEVEL: part_levels}), workspace, "levels")
                )
    return StrataCounts(tuple(levels), counts, strata)


def _count_by_workers(
    counter: StrataCounter, rows: Rows, strata: Strata, workspace: Workspace
) -> StrataCounts:
    """Count by workers, which leave levels and counts in the workspace."""
    calls = [(counter, part, str(workspace.folder)) for part in rows.parts]
    stored = run_on_workers(
        workspace.runner,
        count_part,
        calls,
        what="counting by workers",
        rows=[part.n_rows for part in rows.parts],
    )
    counts = np.zeros((counter.n_cells, len(counter.grid)), dtype=np.int64)
    for _, part_counts in stored:
        counts += part_counts.column(COUNT).to_numpy().reshape(counts.shape)
    return StrataCounts(tuple(levels for levels, _ in stored), counts, strata)


@values_free
def count_part(counter: StrataCounter, part: Stored, folder: str) -> tuple[Stored, Stored]:
    """Count one part, in a worker; returns the files of its levels and of its counts.

    Every call writes files of new names, so a file that a lost worker has left is never read.
    """
    check_folder_usable(folder)
    levels, counts = counter.of(labelled(part, counter.clusters))
    of_levels, of_counts = pl.DataFrame({LEVEL: levels}), pl.DataFrame({COUNT: counts.ravel()})
    return (
        Stored(len(levels), write_frame(of_levels, Path(folder), "levels")),
        Stored(counts.size, write_frame(of_counts, Path(folder), "counts")),
    )


def cell_table(strata: Strata) -> Cells:
    """The cell of each (cluster, arm), shape [clusters, arms]; 0 where there are no units."""
    return np.maximum(strata.cell_of[strata.pool_of], 0).astype(np.uint32)


def cells_of(frame: pl.DataFrame, table: Cells) -> Cells:
    """The cell of each row, shape [n]."""
    flat = positions(frame[CLUSTER]) * np.uint32(table.shape[1]) + positions(frame[ARM])
    cells: Cells = table.ravel()[flat]
    return cells


def level_type(n_outcomes: int) -> np.dtype[np.unsignedinteger]:
    """The smallest type that holds all levels."""
    if n_outcomes <= 1 << 8:
        return np.dtype(np.uint8)
    return np.dtype(np.uint16 if n_outcomes <= 1 << 16 else np.uint32)
