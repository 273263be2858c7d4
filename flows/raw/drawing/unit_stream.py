"""The rows of the table ``units``: randomised batch by batch while the release is written."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from flows.config.experiment import Config
from flows.config.sections import LedgerSection
from flows.orchestration.workers import run_on_workers
from flows.raw.boundary.guard import values_free, values_free_batches
from flows.raw.drawing.strata_counts import LEVEL, Cells, StrataCounts, cell_table, cells_of
from flows.raw.reading.parallel import in_batches, in_parallel
from flows.raw.spill.sorted_runs import SortedRuns, Stored, parts
from flows.raw.spill.unit_order import in_one_piece, sort_rows
from flows.raw.spill.workspace import Workspace, check_folder_usable
from flows.raw.units.rows import Rows, labelled, positions
from flows.raw.units.unit_ids import released_ids
from flows.runtime.progress import Progress
from privatizers.mechanisms.randomised_response import RandomisedResponse, ResponseTables
from schemas.arrays import Floats
from schemas.raw import ARM, CLUSTER, UNIT
from schemas.released import TABLES, UnitFiles, UnitTable

_BATCH = 122_880 * 4  # four of DuckDB's row groups
_HASHED = 1 << 20  # ids that are hashed at once


@dataclass(frozen=True)
class _Drawing:
    """Randomises a batch of rows."""

    tables: ResponseTables
    cells: Cells
    grid: Floats
    weights: Floats
    clusters: pa.Array
    arms: pa.Array

    def batch(self, frame: pl.DataFrame) -> pa.RecordBatch:
        """Draw the released rows of a frame with the columns ``unit cluster arm level``."""
        cells = cells_of(frame, self.cells)
        levels = self.tables.draw(frame[LEVEL].to_numpy(), cells)
        place = cells.astype(np.int64) * len(self.grid) + levels
        return pa.record_batch(
            [
                _text_or_integers(frame[UNIT]),
                pa.DictionaryArray.from_arrays(positions(frame[CLUSTER]), self.clusters),
                pa.DictionaryArray.from_arrays(positions(frame[ARM]), self.arms),
                self.grid[levels],
                self.weights.ravel()[place],
            ],
            names=list(_COLUMNS),
        )


_COLUMNS = tuple(TABLES["units"])


def unit_table(
    config: Config,
    rows: Rows,
    counts: StrataCounts,
    response: RandomisedResponse,
    weights: Floats,
    workspace: Workspace | None,
) -> UnitTable | UnitFiles:
    """The table of all units, in the order of their released ids.

    Outcomes are drawn while the table is read, which is possible once. Where there are workers,
    these draw them at once, into files. ``weights`` are the debiased values of each cell and level,
    shape [S, K].
    """
    if workspace is not None and workspace.workers is not None:
        return _draw_by_workers(config, rows, counts, response, weights, workspace)
    hashed = config.publish.unit_id == "keyed-hash"
    drawing = _drawing(config, rows, counts, response, weights)
    frames = (
        _with_hashed_ids(config, rows, counts, workspace) if hashed else _with_levels(rows, counts)
    )
    failures: list[BaseException] = []
    schema = drawing.batch(_empty(config, rows)).schema
    # Made here: DuckDB reads in a thread of its own, which has no context of a flow run.
    progress = Progress("randomising and writing", rows.n_units)
    batches = values_free_batches(_draw(drawing, frames, progress), failures)
    reader = pa.RecordBatchReader.from_batches(schema, batches)
    return UnitTable(rows.n_units, reader, failures, rows.clusters, rows.arms)


def empty_units() -> UnitTable:
    """The table of a release that has no units."""
    kinds = [pa.string(), pa.string(), pa.string(), pa.float64(), pa.float64()]
    schema = pa.schema(list(zip(_COLUMNS, kinds, strict=True)))
    return UnitTable(0, pa.RecordBatchReader.from_batches(schema, []), [])


def _draw(
    drawing: _Drawing, frames: Iterator[pl.DataFrame], progress: Progress
) -> Iterator[pa.RecordBatch]:
    with progress:
        # Batches are of one size, wherever parts end: in a log of events, parts are cut by the
        # number of events, and the layout of the file must not depend on that.
        for batch in in_parallel(drawing.batch, in_batches(frames, _BATCH)):
            yield batch
            progress.advance(batch.num_rows)


def _with_levels(rows: Rows, counts: StrataCounts) -> Iterator[pl.DataFrame]:
    """The rows with their levels, in the order of the parts."""
    for frame, levels in zip(rows.frames(), counts.levels, strict=True):
        yield frame.select(UNIT, ARM, CLUSTER).hstack(levels.load())


def _with_hashed_ids(
    config: Config, rows: Rows, counts: StrataCounts, workspace: Workspace | None
) -> Iterator[pl.DataFrame]:
    """The rows with their levels under hashed ids and in the order of these.

    The order of raw ids would say something about them.
    """
    runs = SortedRuns(workspace, "hashed")
    for frame in _with_levels(rows, counts):
        for piece in frame.iter_slices(_HASHED):
            runs.add(piece.with_columns(released_ids(config, piece[UNIT]).alias(UNIT)))
    for (part,) in parts([runs], workspace):
        if part is not None:
            ordered = sort_rows(part)
            del part
            yield ordered.with_columns(in_one_piece(ordered[UNIT]))


def _empty(config: Config, rows: Rows) -> pl.DataFrame:
    kinds = {
        UNIT: pl.String() if config.publish.unit_id == "keyed-hash" else rows.unit_type,
        ARM: pl.Enum(rows.arms),
        CLUSTER: pl.Enum(rows.clusters),
        LEVEL: pl.UInt8(),
    }
    return pl.DataFrame(schema=kinds)


def _drawing(
    config: Config,
    rows: Rows,
    counts: StrataCounts,
    response: RandomisedResponse,
    weights: Floats,
) -> _Drawing:
    return _Drawing(
        tables=response.tables(),
        cells=cell_table(counts.strata),
        grid=np.array(config.outcome.grid),
        weights=weights,
        clusters=pa.array(rows.clusters, pa.string()),
        arms=pa.array(rows.arms, pa.string()),
    )


def _draw_by_workers(
    config: Config,
    rows: Rows,
    counts: StrataCounts,
    response: RandomisedResponse,
    weights: Floats,
    workspace: Workspace,
) -> UnitFiles:
    """The table of all units, drawn by workers, a file for each part."""
    without_ledger = {"ledger": LedgerSection()}  # the database's password stays here
    for_workers = config.model_copy(update=without_ledger)
    work = _Share(for_workers, _drawing(config, rows, counts, response, weights), rows.clusters)
    calls = [
        (work, part, levels, str(workspace.folder))
        for part, levels in zip(rows.parts, counts.levels, strict=True)
    ]
    paths = run_on_workers(
        workspace.runner,
        draw_part,
        calls,
        what="randomising by workers",
        rows=[part.n_rows for part in rows.parts],
    )
    schema = work.drawing.batch(_empty(config, rows)).schema
    kind = schema.field("unit_id").type
    return UnitFiles(rows.n_units, tuple(map(Path, paths)), kind, rows.clusters, rows.arms)


@dataclass(frozen=True)
class _Share:
    """What a worker needs to draw a part."""

    config: Config
    drawing: _Drawing
    clusters: tuple[str, ...]


@values_free
def draw_part(work: _Share, part: Stored, levels: Stored, folder: str) -> str:
    """Draw one part, in a worker; returns the file that it is in.

    A part may be drawn twice, if its worker was taken for lost. Both draws are sound, each is in a
    file of its own, and only the file that is returned here is published.
    """
    check_folder_usable(folder)
    frame = labelled(part, work.clusters).select(UNIT, ARM, CLUSTER).hstack(levels.load())
    frame = frame.with_columns(released_ids(work.config, frame[UNIT]).alias(UNIT))
    handle, path = tempfile.mkstemp(prefix="units-", suffix=".parquet", dir=folder)
    with os.fdopen(handle, "wb") as file:
        pq.write_table(pa.Table.from_batches([work.drawing.batch(frame)]), file, compression="zstd")
    return path


def _text_or_integers(units: pl.Series) -> pa.Array:
    array = units.rechunk().to_arrow(compat_level=pl.CompatLevel.newest())
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
