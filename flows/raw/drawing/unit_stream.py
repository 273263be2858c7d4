"""The rows of the table ``units``: randomised batch by batch while the release is written."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from flows.config.model.experiment import Config
from flows.config.model.sections import LedgerSection
from flows.raw.boundary.guard import values_free_batches
from flows.raw.drawing.strata_counts import LEVEL, Cells, StrataCounts, cell_table, cells_of
from flows.raw.reading.parallel import in_batches, in_parallel
from flows.raw.spill.sharing import each
from flows.raw.spill.sorted_runs import Handed, SortedRuns, Stored, parts, stored
from flows.raw.spill.unit_order import sort_rows
from flows.raw.spill.workspace import Workspace
from flows.raw.units.assignment import released_groups
from flows.raw.units.rows import Rows, labelled, positions
from flows.raw.units.unit_ids import released_ids
from flows.runtime.progress import Progress
from privatizers.mechanisms.randomised_response import RandomisedResponse, ResponseTables
from privatizers.optimal_response.response import OptimalResponse, OutputTables
from schemas.arrays import Floats, Integers, Levels
from schemas.raw import ARM, ASSIGNED, CLUSTER, PAYER, UNIT, attribute_columns, numbered, several
from schemas.released import UnitTable
from schemas.tables import ASSIGNED_TO, NUMBER, TEXT, debiased, randomised
from schemas.tables import unit_table as released_table

_BATCH = 122_880 * 4  # four of DuckDB's row groups
_HASHED = 1 << 20  # ids that are hashed at once
_PLACE = "place"


@dataclass(frozen=True)
class OutcomeResponse:
    """How the units' values of one outcome are drawn, and what they count as."""

    config: Config
    """That of the outcome."""
    counts: StrataCounts
    response: RandomisedResponse | OptimalResponse
    outputs: Floats
    """What a drawn position stands for in the release, shape [J]: the grid, or outputs' numbers."""
    weights: Floats
    """The debiased values of each cell and drawn position, shape [S, J]."""
    shared: bool = False
    """Whether one draw a unit is for both outcomes of the release."""


@dataclass(frozen=True)
class _OutcomeDrawing:
    """Randomises one outcome."""

    name: str
    tables: ResponseTables | OutputTables
    outputs: Floats
    weights: Floats

    def places(self, levels: Levels, cells: Cells) -> Integers:
        """Return :meth:`placed` positions, drawn here, in place of raw levels, shape [n] each."""
        return self.placed(self.tables.draw(levels, cells), cells)

    def placed(self, drawn: Levels, cells: Cells) -> Integers:
        """Return drawn positions with their cells as one number, shape [n] each.

        That is the place in a table with a row a cell and a column a position.
        """
        place = cells.astype(np.int64) * len(self.outputs) + drawn
        return place.astype(np.uint32 if self.weights.size < 1 << 32 else np.int64)


@dataclass(frozen=True)
class _Drawing:
    """Randomises rows."""

    outcomes: tuple[_OutcomeDrawing, ...]
    cells: Cells
    clusters: tuple[str, ...]
    arms: tuple[str, ...]
    facts: tuple[str, ...] = ()
    """Columns of public facts that are published: ``assigned``, and attributes."""
    attributes: tuple[str, ...] = ()
    """What attributes are called in the release."""
    together: int | None = None
    """Where two outcomes are drawn together, from one table: how many values the second has."""

    def drawn(self, frame: pl.DataFrame) -> pl.DataFrame:
        """A frame with ``unit cluster arm level``, drawn places in place of raw levels.

        Of several outcomes, ``level 2`` and so on likewise. Each is drawn by itself: no two share
        a random number, but for two that share one draw.
        """
        cells = cells_of(frame, self.cells)
        levels = [frame[numbered(LEVEL, at)].to_numpy() for at in range(len(self.outcomes))]
        if self.together is None:
            found = [
                one.places(level, cells) for one, level in zip(self.outcomes, levels, strict=True)
            ]
        else:
            pairs = levels[0].astype(np.int64) * self.together + levels[1]
            drawn = self.outcomes[0].tables.draw(pairs, cells)
            found = [one.placed(drawn, cells) for one in self.outcomes]
        places = [pl.Series(numbered(_PLACE, at), each) for at, each in enumerate(found)]
        return frame.select(UNIT, CLUSTER, ARM, *places, *self.facts)

    def released(self, key: bytes | None, drawn: pl.DataFrame) -> pa.RecordBatch:
        """The released rows of a frame that :meth:`drawn` gives.

        ``key`` is that of ``assigned_to``, where there is one: workers, who draw, do without.
        """
        columns: dict[str, Any] = {
            "unit_id": _plain_array(drawn[UNIT]),
            "cluster": _dictionary(drawn[CLUSTER], self.clusters),
            "arm": _dictionary(drawn[ARM], self.arms),
        }
        for position, outcome in enumerate(self.outcomes):
            place = drawn[numbered(_PLACE, position)].to_numpy()
            columns[randomised(outcome.name)] = outcome.outputs[place % len(outcome.outputs)]
            columns[debiased(outcome.name)] = outcome.weights.ravel()[place]
        named = zip(self.attributes, attribute_columns(len(self.attributes)), strict=True)
        columns |= {name: _plain_array(drawn[column]) for name, column in named}
        if key is not None:
            columns[ASSIGNED_TO] = released_groups(key, drawn[ASSIGNED])
        return pa.record_batch(list(columns.values()), names=list(columns))

    def batch(self, key: bytes | None, frame: pl.DataFrame) -> pa.RecordBatch:
        """Draw the released rows of a frame with ``unit cluster arm level`` and public facts."""
        return self.released(key, self.drawn(frame))


def unit_table(
    config: Config,
    rows: Rows,
    responses: Sequence[OutcomeResponse],
    workspace: Workspace | None,
    assignment_key: bytes | None = None,
) -> UnitTable:
    """The table of all units, in the order of their released ids.

    ``responses`` are those of the outcomes, in their order; their strata are the same. Outcomes are
    drawn while the table is read, which is possible once. Workers begin to draw at once, part by
    part, and are read in order while they draw the parts to come. ``assignment_key`` is that of
    ``assigned_to``, where that is published.
    """
    drawing = _drawing(config, rows, responses)
    counts = [one.counts for one in responses]
    make = partial(drawing.batch, assignment_key)
    if workspace is not None and workspace.workers is not None:
        frames = _drawn_by_workers(_Share.of(config, drawing), rows, counts, workspace)
        make = partial(drawing.released, assignment_key)
    elif config.publish.unit_id == "keyed-hash":
        frames = _with_hashed_ids(config, rows, counts, drawing.facts, workspace)
    else:
        frames = _with_levels(rows, counts, drawing.facts)
    failures: list[BaseException] = []
    schema = drawing.batch(assignment_key, _empty(config, rows, drawing.facts)).schema
    # Made here: DuckDB reads in a thread of its own, which has no context of a flow run.
    progress = Progress("randomising and writing", rows.n_units)
    batches = values_free_batches(_batches(make, frames, progress), failures)
    reader = pa.RecordBatchReader.from_batches(schema, batches)
    return UnitTable(
        rows.n_units,
        reader,
        failures,
        rows.clusters,
        rows.arms,
        drawing.attributes,
        assigned=assignment_key is not None,
    )


def empty_units(metrics: tuple[str, ...]) -> UnitTable:
    """The table of a release of these outcomes that has no units."""
    kinds = {TEXT: pa.string(), NUMBER: pa.float64()}
    columns = released_table(metrics).columns
    schema = pa.schema([(name, kinds[column.kind]) for name, column in columns.items()])
    return UnitTable(0, pa.RecordBatchReader.from_batches(schema, []), [])


def _batches(
    make: Callable[[pl.DataFrame], pa.RecordBatch],
    frames: Iterator[pl.DataFrame],
    progress: Progress,
) -> Iterator[pa.RecordBatch]:
    with progress:
        # Batches are of one size, wherever parts end: in a log of events, parts are cut by the
        # number of events, and the layout of the file must not depend on that.
        for batch in in_parallel(make, in_batches(frames, _BATCH)):
            yield batch
            progress.advance(batch.num_rows)


def _with_levels(
    rows: Rows, counts: Sequence[StrataCounts], facts: tuple[str, ...]
) -> Iterator[pl.DataFrame]:
    """The rows with their levels and public facts, in the order of the parts."""
    for frame, levels in zip(rows.frames(), _levels(counts), strict=True):
        yield frame.select(UNIT, ARM, CLUSTER, *facts).hstack(_loaded_levels(levels))


def _levels(counts: Sequence[StrataCounts]) -> list[tuple[Stored, ...]]:
    """For each part of the rows the levels of all outcomes, in their order."""
    return list(zip(*(one.levels for one in counts), strict=True))


def _loaded_levels(levels: Sequence[Stored]) -> list[pl.Series]:
    """The levels of all outcomes in columns of their own."""
    return [one.load()[LEVEL].alias(numbered(LEVEL, at)) for at, one in enumerate(levels)]


def _with_hashed_ids(
    config: Config,
    rows: Rows,
    counts: Sequence[StrataCounts],
    facts: tuple[str, ...],
    workspace: Workspace | None,
) -> Iterator[pl.DataFrame]:
    """The rows with their levels under hashed ids and in the order of these.

    The order of raw ids would say something about them.
    """
    runs = SortedRuns(workspace, "hashed")
    for frame in _with_levels(rows, counts, facts):
        for piece in frame.iter_slices(_HASHED):
            runs.add(_hashed(config, piece))
    yield from _sorted([runs], workspace)


def _hashed(config: Config, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(released_ids(config, frame[UNIT]).alias(UNIT))


def _sorted(runs: Sequence[SortedRuns], workspace: Workspace | None) -> Iterator[pl.DataFrame]:
    for (part,) in parts(runs, workspace):
        if part is not None:
            yield sort_rows(part)


def _empty(config: Config, rows: Rows, facts: tuple[str, ...]) -> pl.DataFrame:
    kinds: dict[str, pl.DataType] = {
        UNIT: pl.String() if config.publish.unit_id == "keyed-hash" else rows.unit_type,
        ARM: pl.Enum(rows.arms),
        CLUSTER: pl.Enum(rows.clusters),
        **dict.fromkeys(several(LEVEL, len(config.outcomes)), pl.UInt8()),
        **{name: rows.kind_of(name) for name in facts},
    }
    return pl.DataFrame(schema=kinds)


def _drawing(config: Config, rows: Rows, responses: Sequence[OutcomeResponse]) -> _Drawing:
    return _Drawing(
        outcomes=tuple(
            _OutcomeDrawing(
                name=one.config.outcomes[0].name,
                tables=one.response.tables(),
                outputs=one.outputs,
                weights=one.weights,
            )
            for one in responses
        ),
        cells=cell_table(responses[0].counts.strata),
        clusters=rows.clusters,
        arms=rows.arms,
        facts=tuple(name for name in config.columns.facts if name != PAYER),
        attributes=tuple(config.columns.named_attributes),
        together=_values_of_second(responses),
    )


def _values_of_second(responses: Sequence[OutcomeResponse]) -> int | None:
    """How many values the second of two outcomes has that share a table; None for others.

    Raises AssertionError where a table is of other outcomes than those that are drawn from it.
    """
    sizes = [len(one.config.outcome.grid) for one in responses]
    together = any(one.shared for one in responses)
    wanted = [math.prod(sizes)] * 2 if together else sizes
    found = [
        len(one.response.tables_used[0].inputs)
        if isinstance(one.response, OptimalResponse)
        else len(one.config.outcome.grid)
        for one in responses
    ]
    if found != wanted:
        raise AssertionError("a table is of other outcomes than those that are drawn from it")
    return sizes[1] if together else None


# what workers do


@dataclass(frozen=True)
class _Share:
    """What a worker needs to draw a part."""

    config: Config
    drawing: _Drawing

    @classmethod
    def of(cls, config: Config, drawing: _Drawing) -> "_Share":
        without_ledger = {"ledger": LedgerSection()}  # the database's password stays here
        return cls(config.model_copy(update=without_ledger), drawing)


def _drawn_by_workers(
    work: _Share, rows: Rows, counts: Sequence[StrataCounts], workspace: Workspace
) -> Iterator[pl.DataFrame]:
    """The rows that workers draw, in the order of released ids; they begin at once."""
    calls = [(work, part, levels) for part, levels in zip(rows.parts, _levels(counts), strict=True)]
    if work.config.publish.unit_id != "keyed-hash":
        return _loaded(each(workspace, draw_part, calls))
    runs = SortedRuns.of(workspace, each(workspace, hash_part, calls), "hashed")
    cuts = runs.cuts(len(rows.parts))
    of_cuts = workspace.write(pl.DataFrame({UNIT: cuts}), "cuts")
    ranges = [(work, runs.indexes, of_cuts, position) for position in range(len(cuts) + 1)]
    return _loaded(each(workspace, draw_range, ranges))


def _loaded(drawn: Iterator[Stored | None]) -> Iterator[pl.DataFrame]:
    """The rows of each part, whose file then is no longer needed."""
    for part in drawn:
        if part is not None:
            yield part.load()
            part.remove()


def draw_part(work: _Share, part: Stored, levels: Sequence[Stored], workspace: Workspace) -> Stored:
    """Draw one part, in a worker.

    A part may be drawn twice, if its worker was taken for lost. Both draws are sound, each is in a
    file of its own, and only the file that is returned first is read.
    """
    return stored(work.drawing.drawn(_part_with_levels(work, part, levels)), workspace, "units")


def hash_part(work: _Share, part: Stored, levels: Sequence[Stored], workspace: Workspace) -> Handed:
    """Bring the rows of one part, under hashed ids, on their way into the order of these."""
    runs = SortedRuns(workspace, "hashed")
    runs.add(_hashed(work.config, _part_with_levels(work, part, levels)))
    return runs.handed_over()


def draw_range(
    work: _Share, indexes: Sequence[Path], cuts: Path, position: int, workspace: Workspace
) -> Stored | None:
    """Draw the rows between two hashed ids, in a worker; as :func:`draw_part`."""
    runs = SortedRuns.of(workspace, indexes, "hashed").between(pl.read_ipc(cuts)[UNIT], position)
    drawn = [work.drawing.drawn(frame) for frame in _sorted([runs], workspace)]
    return stored(pl.concat(drawn), workspace, "units") if drawn else None


def _part_with_levels(work: _Share, part: Stored, levels: Sequence[Stored]) -> pl.DataFrame:
    frame = labelled(part, work.drawing.clusters)
    return frame.select(UNIT, ARM, CLUSTER, *work.drawing.facts).hstack(_loaded_levels(levels))


def _dictionary(labels: pl.Series, names: tuple[str, ...]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(positions(labels), pa.array(names, pa.string()))


def _plain_array(values: pl.Series) -> pa.Array:
    array = values.rechunk().to_arrow(compat_level=pl.CompatLevel.newest())
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
