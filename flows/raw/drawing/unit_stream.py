"""The rows of ``units``: randomised batch by batch, as the release is written."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from flows.config.experiment import Config
from flows.config.sections import Ledger
from flows.orchestration.workers import shared_out
from flows.raw.boundary.guard import values_free, values_free_batches
from flows.raw.drawing.strata_counts import LEVEL, Cells, Counted, cell_table, cells_of
from flows.raw.reading.parallel import in_batches, in_parallel
from flows.raw.spill.sorted_runs import Runs, Stored, parts
from flows.raw.spill.unit_order import in_order
from flows.raw.spill.workspace import Room, check_seen
from flows.raw.units.rows import Rows, labelled, positions
from flows.raw.units.unit_ids import released_ids
from flows.runtime.progress import Progress
from privatizers.mechanisms.randomised_response import RandomisedResponse, ResponseTables
from schemas.raw import ARM, CLUSTER, UNIT
from schemas.released import TABLES, UnitFiles, UnitTable

Floats = NDArray[np.float64]

_BATCH = 122_880 * 4  # four of DuckDB's row groups


@dataclass(frozen=True)
class _Drawing:
    """What it takes to randomise a batch."""

    tables: ResponseTables
    cells: Cells
    grid: Floats
    weights: Floats
    clusters: pa.Array
    arms: pa.Array

    def batch(self, frame: pl.DataFrame) -> pa.RecordBatch:
        """Rows of ``unit cluster arm level``, randomised."""
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
    found: Counted,
    response: RandomisedResponse,
    weights: Floats,
    room: Room | None,
) -> UnitTable | UnitFiles:
    """The table of all units, in the order of their released ids; drawn when it is read, once.

    Where there are workers these draw it at once, into files.

    ``weights`` are the debiased values of each cell and level, shape [S, K].
    """
    if room is not None and room.workers is not None:
        return _drawn_apart(config, rows, found, response, weights, room)
    hashed = config.publish.unit_id == "keyed-hash"
    drawing = _drawing(config, rows, found, response, weights)
    frames = _hashed(config, rows, found, room) if hashed else _plain(rows, found)
    failures: list[BaseException] = []
    schema = drawing.batch(_empty(config, rows)).schema
    # Made here: DuckDB reads in a thread of its own, which knows nothing of a flow.
    progress = Progress("randomising and writing", rows.n_units)
    batches = values_free_batches(_drawn(drawing, frames, progress), failures)
    return UnitTable(rows.n_units, pa.RecordBatchReader.from_batches(schema, batches), failures)


def no_units() -> UnitTable:
    """The table of a release that has no units."""
    kinds = [pa.string(), pa.string(), pa.string(), pa.float64(), pa.float64()]
    schema = pa.schema(list(zip(_COLUMNS, kinds, strict=True)))
    return UnitTable(0, pa.RecordBatchReader.from_batches(schema, []), [])


def _drawn(
    drawing: _Drawing, frames: Iterator[pl.DataFrame], progress: Progress
) -> Iterator[pa.RecordBatch]:
    with progress:
        # Of one size, wherever parts end: those of a log of events are cut by how many events there
        # are, of which the file's layout must tell nothing.
        for batch in in_parallel(drawing.batch, in_batches(frames, _BATCH)):
            yield batch
            progress.advance(batch.num_rows)


def _plain(rows: Rows, found: Counted) -> Iterator[pl.DataFrame]:
    """The rows with their levels, as they are ordered already."""
    for frame, levels in zip(rows.frames(), found.levels, strict=True):
        yield frame.select(UNIT, ARM, CLUSTER).hstack(levels.load())


def _hashed(
    config: Config, rows: Rows, found: Counted, room: Room | None
) -> Iterator[pl.DataFrame]:
    """The same under hashed ids and in their order: that of raw ones would tell of them."""
    runs = Runs(room, "hashed")
    for frame in _plain(rows, found):
        runs.add(frame.with_columns(released_ids(config, frame[UNIT]).alias(UNIT)))
    for (part,) in parts([runs], room):
        if part is not None:
            yield in_order(part)


def _empty(config: Config, rows: Rows) -> pl.DataFrame:
    kinds = {
        UNIT: pl.String() if config.publish.unit_id == "keyed-hash" else rows.unit_type,
        ARM: pl.Enum(rows.arms),
        CLUSTER: pl.Enum(rows.clusters),
        LEVEL: pl.UInt8(),
    }
    return pl.DataFrame(schema=kinds)


def _drawing(
    config: Config, rows: Rows, found: Counted, response: RandomisedResponse, weights: Floats
) -> _Drawing:
    return _Drawing(
        tables=response.tables(),
        cells=cell_table(found.strata),
        grid=np.array(config.outcome.grid),
        weights=weights,
        clusters=pa.array(rows.clusters, pa.string()),
        arms=pa.array(rows.arms, pa.string()),
    )


def _drawn_apart(
    config: Config,
    rows: Rows,
    found: Counted,
    response: RandomisedResponse,
    weights: Floats,
    room: Room,
) -> UnitFiles:
    """The same by workers, a file a part."""
    told = config.model_copy(update={"ledger": Ledger()})  # a database's password stays here
    work = _Share(told, _drawing(config, rows, found, response, weights), rows.clusters)
    calls = [
        (work, part, levels, str(room.folder))
        for part, levels in zip(rows.parts, found.levels, strict=True)
    ]
    paths = shared_out(
        room.runner,
        draw_apart,
        calls,
        what="randomising by workers",
        rows=[part.n_rows for part in rows.parts],
    )
    schema = work.drawing.batch(_empty(config, rows)).schema
    return UnitFiles(rows.n_units, tuple(map(Path, paths)), schema.field("unit_id").type)


@dataclass(frozen=True)
class _Share:
    """What it takes to draw a part in another process."""

    config: Config
    drawing: _Drawing
    clusters: tuple[str, ...]


@values_free
def draw_apart(work: _Share, part: Stored, levels: Stored, folder: str) -> str:
    """Draw one part, in another process; the file that it is in.

    Should this be done twice, as its worker was thought lost, both draws are sound, each is in a
    file of its own, and only the one whose name comes back is published.
    """
    check_seen(folder)
    frame = labelled(part, work.clusters).select(UNIT, ARM, CLUSTER).hstack(levels.load())
    frame = frame.with_columns(released_ids(work.config, frame[UNIT]).alias(UNIT))
    handle, path = tempfile.mkstemp(prefix="units-", suffix=".parquet", dir=folder)
    with os.fdopen(handle, "wb") as file:
        pq.write_table(pa.Table.from_batches([work.drawing.batch(frame)]), file, compression="zstd")
    return path


def _text_or_integers(units: pl.Series) -> pa.Array:
    found = units.rechunk().to_arrow(compat_level=pl.CompatLevel.newest())
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
