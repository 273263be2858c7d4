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
from numpy.typing import NDArray

from flows.config.model.sections import NamedOutcome
from flows.raw.boundary.guard import values_free_batches
from flows.raw.drawing.margin_cells import Margins
from flows.raw.drawing.strata_counts import (
    LEVEL,
    Cells,
    StrataCounts,
    cell_table,
    cells_of,
    stratum_table,
)
from flows.raw.spill.sorted_runs import Handed, SortedRuns, Stored, stored
from flows.raw.spill.sorted_runs import parts as parts_of
from flows.raw.spill.unit_order import sort_rows
from flows.raw.spill.workspace import Workspace, each
from flows.raw.units.assignment import released_groups
from flows.raw.units.rows import Rows, labelled
from flows.raw.units.unit_ids import released_ids
from flows.runtime.progress import Progress
from flows.runtime.threads import in_batches, in_parallel
from privatizers.mechanisms.randomised_response import RandomisedResponse, ResponseTables
from privatizers.optimal_response.response import OptimalResponse, OutputTables
from schemas.arrays import Floats, Levels
from schemas.raw import ARM, ASSIGNED, CLUSTER, UNIT, attribute_columns, numbered
from schemas.released import UnitTable
from schemas.tables import (
    ASSIGNED_TO,
    NUMBER,
    STRATUM,
    TEXT,
    drawn_columns,
    margin_columns,
    randomised,
)

_BATCH = 122_880 * 4  # four of DuckDB's row groups
_HASHED = 1 << 20  # ids that are hashed at once
_PLACE = "place"
_Parts = Sequence[tuple[Stored, Sequence[Stored]]]
"""The parts of the rows, each with the levels of all outcomes, in their order, and with the numbers
of cells where there are margins."""


@dataclass(frozen=True)
class OutcomeResponse:
    """How the units' values of one outcome are drawn."""

    outcome: NamedOutcome
    counts: StrataCounts
    response: RandomisedResponse | OptimalResponse
    outputs: Floats
    """What a drawn position stands for in the release, shape [J]: the grid, or outputs' numbers."""
    shared: bool = False
    """Whether one draw a unit is for both outcomes of the release."""


@dataclass(frozen=True)
class _OutcomeDrawing:
    """Randomises one outcome."""

    name: str
    tables: ResponseTables | OutputTables
    outputs: Floats

    def places(self, levels: Levels, cells: Cells) -> Levels:
        """Return positions among the outputs, drawn here in place of raw levels, shape [n] each."""
        return self.tables.draw(levels, cells)


@dataclass(frozen=True)
class _Drawing:
    """Randomises rows."""

    key_file: Path | None
    """Of the key of released ids; None where these are as in the log."""
    attributes: tuple[str, ...]
    """The names that attributes are published under."""
    outcomes: tuple[_OutcomeDrawing, ...]
    cells: Cells
    strata: Cells
    """The number of the stratum of each (cluster, arm), shape [clusters, arms]."""
    clusters: tuple[str, ...]
    facts: tuple[str, ...]
    """Columns of public facts that are published: ``assigned``, and attributes."""
    margins: tuple[str, ...]
    """Columns of numbers of cells."""
    together: int | None
    """Where two outcomes are drawn together, from one table: how many values the second has."""

    def frame(
        self, part: Stored, levels: Sequence[Stored], length: int | None = None
    ) -> pl.DataFrame:
        """The rows of a part with their levels and public facts, or so many of them."""
        rows = labelled(part, self.clusters, length)
        frames = [one.load(0, length) for one in levels]
        n_outcomes = len(self.outcomes)
        columns = [
            one[LEVEL].alias(numbered(LEVEL, at)) for at, one in enumerate(frames[:n_outcomes])
        ]
        columns += [code for one in frames[n_outcomes:] for code in one.get_columns()]
        return rows.select(UNIT, ARM, CLUSTER, *self.facts).hstack(columns)

    def hashed(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Rows under hashed ids."""
        return frame.with_columns(released_ids(self.key_file, frame[UNIT]).alias(UNIT))

    def drawn(self, frame: pl.DataFrame) -> pl.DataFrame:
        """A frame with ``unit stratum place`` and public facts: drawn places for raw levels.

        Of several outcomes, ``place 2`` and so on likewise. Each is drawn by itself: no two share
        a random number, but for two that share one draw.
        """
        cells = cells_of(frame, self.cells)
        levels = [frame[numbered(LEVEL, at)].to_numpy() for at in range(len(self.outcomes))]
        if self.together is None:
            drawn = zip(self.outcomes, levels, strict=True)
            places = [one.places(level, cells) for one, level in drawn]
        else:
            pairs = levels[0].astype(np.int64) * self.together + levels[1]
            places = [self.outcomes[0].places(pairs, cells)] * len(self.outcomes)
        return frame.select(
            UNIT,
            pl.Series(STRATUM, cells_of(frame, self.strata)),
            *(pl.Series(numbered(_PLACE, at), place) for at, place in enumerate(places)),
            *self.margins,
            *self.facts,
        )

    def released(self, key: bytes | None, drawn: pl.DataFrame) -> pa.RecordBatch:
        """The released rows of a frame that :meth:`drawn` gives.

        ``key`` is that of ``assigned_to``, where there is one: workers, who draw, do without.
        """
        columns = {
            "unit_id": _plain_array(drawn[UNIT]),
            STRATUM: _array_of_numbers(drawn[STRATUM].to_numpy()),
        }
        for position, outcome in enumerate(self.outcomes):
            place = drawn[numbered(_PLACE, position)].to_numpy()
            columns[randomised(outcome.name)] = _array_of_numbers(outcome.outputs[place])
        columns |= {name: _array_of_numbers(drawn[name].to_numpy()) for name in self.margins}
        named = zip(self.attributes, attribute_columns(len(self.attributes)), strict=True)
        columns |= {name: _plain_array(drawn[column]) for name, column in named}
        if key is not None:
            columns[ASSIGNED_TO] = _array_of_numbers(released_groups(key, drawn[ASSIGNED]))
        return pa.record_batch(list(columns.values()), names=list(columns))

    def batch(self, key: bytes | None, frame: pl.DataFrame) -> pa.RecordBatch:
        """Draw the released rows of a frame with ``unit cluster arm level`` and public facts."""
        return self.released(key, self.drawn(frame))


def unit_table(
    rows: Rows,
    responses: Sequence[OutcomeResponse],
    workspace: Workspace | None,
    attributes: tuple[str, ...],
    key_file: Path | None,
    assignment_key: bytes | None = None,
    margins: Margins | None = None,
) -> UnitTable:
    """The table of all units, in the order of their released ids.

    ``responses`` are those of the outcomes, in their order; their strata are the same. Outcomes are
    drawn while the table is read, which is possible once. Workers begin to draw at once, part by
    part, and are read in order while they draw the parts to come. ``attributes`` are the names that
    these are published under; the key of released ids is in ``key_file``, if they are hashed, and
    ``assignment_key`` is that of ``assigned_to``, where that is published. The numbers of cells of
    ``margins`` are stored with each unit.
    """
    is_hashed, assigned = key_file is not None, assignment_key is not None
    drawing = _Drawing(
        key_file=key_file,
        attributes=attributes,
        outcomes=tuple(
            _OutcomeDrawing(one.outcome.name, one.response.tables(), one.outputs)
            for one in responses
        ),
        cells=cell_table(responses[0].counts.strata),
        strata=stratum_table(responses[0].counts.strata),
        clusters=rows.clusters,
        facts=(*((ASSIGNED,) if assigned else ()), *attribute_columns(len(attributes))),
        margins=() if margins is None else tuple(margin_columns(len(margins.cells))),
        together=_values_of_second(responses),
    )
    codes = (margins.codes,) if margins is not None and margins.codes else ()
    levels = zip(*(one.counts.levels for one in responses), *codes, strict=True)
    parts = list(zip(rows.parts, levels, strict=True))
    make = partial(drawing.batch, assignment_key)
    if workspace is not None and workspace.workers is not None:
        frames = _drawn_by_workers(drawing, parts, workspace)
        make = partial(drawing.released, assignment_key)
    elif is_hashed:
        frames = _with_hashed_ids(drawing, parts, workspace)
    else:
        frames = _with_levels(drawing, parts)
    nobody = drawing.frame(*parts[0], length=0)
    nobody = nobody.cast({UNIT: pl.String}) if is_hashed else nobody
    failures: list[BaseException] = []
    # Made here: DuckDB reads in a thread of its own, which has no context of a flow run.
    progress = Progress("randomising and writing", rows.n_units)
    batches = values_free_batches(_batches(make, frames, progress), failures)
    return UnitTable(
        rows.n_units,
        pa.RecordBatchReader.from_batches(drawing.batch(assignment_key, nobody).schema, batches),
        failures,
        attributes,
        assigned=assigned,
    )


def empty_units(metrics: tuple[str, ...]) -> UnitTable:
    """The table of a release of these outcomes that has no units."""
    kinds = {TEXT: pa.string(), NUMBER: pa.float64(), "UINTEGER": pa.uint32()}
    columns = drawn_columns(metrics, TEXT, {}, assigned=False)
    schema = pa.schema([(name, kinds[kind]) for name, kind in columns.items()])
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


def _with_levels(drawing: _Drawing, parts: _Parts) -> Iterator[pl.DataFrame]:
    """The rows with their levels and public facts, in the order of the parts."""
    return (drawing.frame(part, levels) for part, levels in parts)


def _with_hashed_ids(
    drawing: _Drawing, parts: _Parts, workspace: Workspace | None
) -> Iterator[pl.DataFrame]:
    """The rows with their levels under hashed ids and in the order of these.

    The order of raw ids would say something about them.
    """
    yield from _sorted(_hashed_runs(drawing, parts, workspace), workspace)


def _hashed_runs(drawing: _Drawing, parts: _Parts, workspace: Workspace | None) -> SortedRuns:
    calls = [(drawing, part, levels) for part, levels in parts]
    return SortedRuns.of(workspace, each(workspace, hash_part, calls), "hashed")


def _sorted(runs: SortedRuns, workspace: Workspace | None) -> Iterator[pl.DataFrame]:
    for (part,) in parts_of([runs], workspace):
        if part is not None:
            yield sort_rows(part)


def _values_of_second(responses: Sequence[OutcomeResponse]) -> int | None:
    """How many values the second of two outcomes has that share a table; None for others.

    Raises AssertionError where a table is of other outcomes than those that are drawn from it.
    """
    sizes = [len(one.outcome.grid) for one in responses]
    together = any(one.shared for one in responses)
    wanted = [math.prod(sizes)] * 2 if together else sizes
    found = [
        len(one.response.tables_used[0].inputs)
        if isinstance(one.response, OptimalResponse)
        else len(one.outcome.grid)
        for one in responses
    ]
    if found != wanted:
        raise AssertionError("a table is of other outcomes than those that are drawn from it")
    return sizes[1] if together else None


# what workers do


def _drawn_by_workers(
    drawing: _Drawing, parts: _Parts, workspace: Workspace
) -> Iterator[pl.DataFrame]:
    """The rows that workers draw, in the order of released ids; they begin at once."""
    if drawing.key_file is None:
        calls = [(drawing, part, levels) for part, levels in parts]
        return _loaded(each(workspace, draw_part, calls))
    runs = _hashed_runs(drawing, parts, workspace)
    cuts = runs.cuts(len(parts))
    of_cuts = workspace.write(pl.DataFrame({UNIT: cuts}), "cuts")
    ranges = [(drawing, runs.indexes, of_cuts, position) for position in range(len(cuts) + 1)]
    return _loaded(each(workspace, draw_range, ranges))


def _loaded(drawn: Iterator[Stored | None]) -> Iterator[pl.DataFrame]:
    """The rows of each part, whose file then is no longer needed."""
    for part in drawn:
        if part is not None:
            yield part.load()
            part.remove()


def draw_part(
    drawing: _Drawing, part: Stored, levels: Sequence[Stored], workspace: Workspace
) -> Stored:
    """Draw one part, in a worker.

    A part may be drawn twice, if its worker was taken for lost. Both draws are sound, each is in a
    file of its own, and only the file that is returned first is read.
    """
    return stored(drawing.drawn(drawing.frame(part, levels)), workspace, "units")


def hash_part(
    drawing: _Drawing, part: Stored, levels: Sequence[Stored], workspace: Workspace | None
) -> Handed:
    """Bring the rows of one part, under hashed ids, on their way into the order of these."""
    runs = SortedRuns(workspace, "hashed")
    for piece in drawing.frame(part, levels).iter_slices(_HASHED):
        runs.add(drawing.hashed(piece))
    return runs.handed_over()


def draw_range(
    drawing: _Drawing, indexes: Sequence[Path], cuts: Path, position: int, workspace: Workspace
) -> Stored | None:
    """Draw the rows between two hashed ids, in a worker; as :func:`draw_part`."""
    runs = SortedRuns.of(workspace, indexes, "hashed").between(pl.read_ipc(cuts)[UNIT], position)
    drawn = [drawing.drawn(frame) for frame in _sorted(runs, workspace)]
    return stored(pl.concat(drawn), workspace, "units") if drawn else None


def _plain_array(values: pl.Series) -> pa.Array:
    array = values.rechunk().to_arrow(compat_level=pl.CompatLevel.newest())
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _array_of_numbers(values: NDArray[Any]) -> pa.Array:
    """The numbers as they are in memory; ``pa.array`` imports pandas, where that is installed."""
    numbers = np.ascontiguousarray(values)
    kind = pa.from_numpy_dtype(numbers.dtype)
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])
