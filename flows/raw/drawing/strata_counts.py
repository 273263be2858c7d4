"""Rows onto the grid and into strata: what every mechanism begins with."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flows.config.experiment import Config
from flows.orchestration.workers import shared_out
from flows.raw.boundary.guard import values_free
from flows.raw.spill.sorted_runs import Stored
from flows.raw.spill.workspace import Room, check_seen, put_aside
from flows.raw.units.rows import Rows, labelled, positions
from flows.runtime.progress import Progress
from privatizers.domain.outcome_grid import nearest_levels, stochastic_levels, stratum_counts
from privatizers.domain.strata import Strata, lay_out
from privatizers.mechanisms.aggregate_mechanism import AggregateMechanism
from privatizers.mechanisms.mechanism import Mechanism
from schemas.raw import ARM, CLUSTER, OUTCOME

Ints = NDArray[np.int64]
Cells = NDArray[np.uint32]

LEVEL = "level"
"""Position of a row's outcome on the grid; private."""
COUNT = "count"
"""How often a level is in a cell; private."""

_PIECE = 1 << 17  # rows that are worked on at once stay in the processor's cache


@dataclass(frozen=True)
class Counted:
    """Raw, all but ``strata``: outcomes on the grid, and how often each is in which stratum."""

    levels: tuple[Stored, ...]
    """Of each part, a column :data:`LEVEL`; none where they are not wanted again."""
    counts: Ints
    """Units of each cell at each level, shape [S, K]."""
    strata: Strata


@dataclass(frozen=True)
class Counting:
    """What it takes to count rows, here or in another process."""

    grid: tuple[float, ...]
    is_stochastic: bool
    clusters: tuple[str, ...]
    cells: Cells
    """The cell of each (cluster, arm), shape [clusters, arms]."""
    n_cells: int

    def of(self, frame: pl.DataFrame) -> tuple[NDArray[np.unsignedinteger], Ints]:
        """The level of each row, shape [n], and how often each is in which cell, [S, K]."""
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


def counted(
    config: Config,
    rows: Rows,
    mechanism: Mechanism | AggregateMechanism,
    room: Room | None,
    *,
    keep: bool,
) -> Counted:
    """Round outcomes onto the grid, once, and count them by (pool, arm).

    The levels are kept where they are wanted again, to be randomised.
    """
    pool_of = mechanism.pool_of(rows.sizes, config.privacy.min_stratum)
    strata = lay_out(list(rows.clusters), list(rows.arms), rows.sizes, pool_of)
    counting = Counting(
        grid=config.outcome.grid,
        is_stochastic=config.outcome.rounding == "stochastic",
        clusters=rows.clusters,
        cells=cell_table(strata),
        n_cells=len(strata.cell_sizes),
    )
    if room is not None and room.workers is not None:
        return _counted_apart(counting, rows, strata, room)
    counts = np.zeros((counting.n_cells, len(counting.grid)), dtype=np.int64)
    levels = []
    with Progress("counting", rows.n_units) as progress:
        for number, frame in enumerate(rows.frames()):
            found, more = counting.of(frame)
            counts += more
            progress.advance(frame.height)
            if keep:
                levels.append(_kept(found, number, rows, room))
    return Counted(tuple(levels), counts, strata)


def _counted_apart(counting: Counting, rows: Rows, strata: Strata, room: Room) -> Counted:
    """The same by workers, who leave levels and counts in the room."""
    calls = [(counting, part, str(room.folder)) for part in rows.parts]
    found = shared_out(
        room.runner,
        count_apart,
        calls,
        what="counting by workers",
        rows=[part.n_rows for part in rows.parts],
    )
    counts = np.zeros((counting.n_cells, len(counting.grid)), dtype=np.int64)
    for _, own in found:
        counts += own.column(COUNT).to_numpy().reshape(counts.shape)
    return Counted(tuple(levels for levels, _ in found), counts, strata)


@values_free
def count_apart(counting: Counting, part: Stored, folder: str) -> tuple[Stored, Stored]:
    """Count one part, in another process; where its levels and its counts are.

    Files have names of their own: what a worker that was lost has left is never read.
    """
    check_seen(folder)
    levels, counts = counting.of(labelled(part, counting.clusters))
    of_levels, of_counts = pl.DataFrame({LEVEL: levels}), pl.DataFrame({COUNT: counts.ravel()})
    return (
        Stored(len(levels), put_aside(of_levels, Path(folder), "levels")),
        Stored(counts.size, put_aside(of_counts, Path(folder), "counts")),
    )


def cell_table(strata: Strata) -> Cells:
    """The cell of each (cluster, arm), shape [clusters, arms]; of no use where it has no units."""
    return np.maximum(strata.cell_of[strata.pool_of], 0).astype(np.uint32)


def cells_of(frame: pl.DataFrame, table: Cells) -> Cells:
    """The cell of each row, shape [n]."""
    flat = positions(frame[CLUSTER]) * np.uint32(table.shape[1]) + positions(frame[ARM])
    found: Cells = table.ravel()[flat]
    return found


def level_type(n_outcomes: int) -> np.dtype[np.unsignedinteger]:
    """The smallest type that holds all levels."""
    if n_outcomes <= 1 << 8:
        return np.dtype(np.uint8)
    return np.dtype(np.uint16 if n_outcomes <= 1 << 16 else np.uint32)


def _kept(
    levels: NDArray[np.unsignedinteger], number: int, rows: Rows, room: Room | None
) -> Stored:
    frame = pl.DataFrame({LEVEL: levels})
    if room is None or isinstance(rows.parts[number].place, pl.DataFrame):
        return Stored(frame.height, frame)
    return Stored(frame.height, room.write(frame, f"levels-{number}"))
