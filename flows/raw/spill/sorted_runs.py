"""Sorting rows by their units, in memory or, where they do not fit, by way of files.

Rows come in batches and are held until they fill their share of memory. They are then sorted and
written into the workspace as a *sorted run*. Once all rows have come, the units are cut into ranges
that are small enough. A *part* is all that the sorted runs hold of one range: all rows of its
units, and of no others. Where all rows fit into memory there is one part, and nothing is written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from flows.raw.spill.unit_order import sort_rows
from flows.raw.spill.workspace import Workspace
from schemas.raw import UNIT

Unit = str | int

_SAMPLED = 1024  # rows of a sorted run for each sampled unit


@dataclass(frozen=True)
class Stored:
    """Rows in memory, or in a file of the workspace."""

    n_rows: int
    place: pl.DataFrame | Path

    def __getstate__(self) -> dict[str, object]:
        """Refuse to be pickled with rows in it: workers are sent the names of files."""
        if isinstance(self.place, pl.DataFrame):
            raise TypeError("raw rows cannot be pickled")
        return dict(vars(self))

    def with_rows(self, frame: pl.DataFrame, workspace: Workspace | None, name: str) -> "Stored":
        """Store other rows as these are: in memory, or in a file of the workspace.

        ``name`` is what the name of that file begins with.
        """
        if workspace is None or isinstance(self.place, pl.DataFrame):
            return Stored(frame.height, frame)
        return Stored(frame.height, workspace.write(frame, name))

    def load(self, start: int = 0, length: int | None = None) -> pl.DataFrame:
        """The rows, or ``length`` of them from ``start``."""
        if isinstance(self.place, pl.DataFrame):
            return self.place.slice(start, length)
        scan = pl.scan_ipc(self.place)
        return scan.slice(start, length).collect()

    def column(self, name: str, start: int = 0, length: int | None = None) -> pl.Series:
        """One column of the rows, or of ``length`` of them from ``start``."""
        if isinstance(self.place, pl.DataFrame):
            return self.place[name].slice(start, length)
        return pl.scan_ipc(self.place).select(name).slice(start, length).collect()[name]


@dataclass(frozen=True)
class _SortedRun:
    """A sorted run of rows, and the unit of every 1,024th of them."""

    rows: Stored
    samples: pl.Series

    def cut(self, unit: Unit) -> int:
        """The number of rows whose unit comes before ``unit``."""
        block = max(_place(self.samples, unit) - 1, 0)
        units = self.rows.column(self.samples.name, block * _SAMPLED, _SAMPLED)
        return block * _SAMPLED + _place(units, unit)


class SortedRuns:
    """Rows that are being sorted; the names of their files in the workspace begin with ``name``."""

    def __init__(self, workspace: Workspace | None, name: str, by: str = UNIT) -> None:
        """Begin without rows, to be sorted by a column. Without a workspace all stay in memory."""
        self._workspace = workspace
        self._name = name
        self._by = by
        self._waiting: list[pl.DataFrame] = []
        self._waiting_bytes = 0
        self._written: list[_SortedRun] = []
        self.n_rows = 0
        self.n_bytes = 0

    def add(self, rows: pl.DataFrame) -> None:
        """Take more rows; the column that they are sorted by holds no null."""
        if rows.is_empty():
            return
        size = int(rows.estimated_size())
        self._waiting.append(rows)
        self._waiting_bytes += size
        self.n_rows += rows.height
        self.n_bytes += size
        if self._workspace is not None and self._waiting_bytes > self._workspace.run_bytes:
            self._write(self._workspace)

    @property
    def in_memory(self) -> bool:
        """Whether no row was written to a file."""
        return not self._written

    def take(self) -> pl.DataFrame | None:
        """Hand over all rows, unsorted, where all are in memory; None if there is none."""
        frames, self._waiting = self._waiting, []
        return pl.concat(frames) if frames else None

    def runs(self, workspace: Workspace) -> list[_SortedRun]:
        """All rows as sorted runs, after writing those still in memory."""
        if self._waiting:
            self._write(workspace)
        return self._written

    def _write(self, workspace: Workspace) -> None:
        frames, self._waiting, self._waiting_bytes = self._waiting, [], 0
        rows = sort_rows(pl.concat(frames), self._by)
        del frames
        place = workspace.write(rows, f"{self._name}-run-{len(self._written)}")
        samples = rows[self._by].gather_every(_SAMPLED)
        self._written.append(_SortedRun(Stored(rows.height, place), samples))


def parts(
    tables: Sequence[SortedRuns], workspace: Workspace | None, least: int = 0
) -> Iterator[list[pl.DataFrame | None]]:
    """Yield, for one range of units after the other, the rows of each of the ``tables``.

    The rows of a table are None where it has none of the range. Ranges come in the order of units;
    the rows within one are unsorted. With ``least`` above 0 there are at least about so many
    ranges, and all rows are written first.
    """
    if workspace is None or (least == 0 and all(table.in_memory for table in tables)):
        yield [table.take() for table in tables]
        return
    runs = [table.runs(workspace) for table in tables]
    size = sum(table.n_bytes for table in tables)
    n_parts = max(-(-size // workspace.part_bytes), least)
    cuts = _cuts([run for runs_of_table in runs for run in runs_of_table], n_parts)
    bounds = [[_bounds(run, cuts) for run in runs_of_table] for runs_of_table in runs]
    for position in range(len(cuts) + 1):
        yield [
            _gather(runs_of_table, [of_run[position : position + 2] for of_run in bounds_of_table])
            for runs_of_table, bounds_of_table in zip(runs, bounds, strict=True)
        ]


def _gather(runs: list[_SortedRun], bounds: list[list[int]]) -> pl.DataFrame | None:
    pieces = [
        run.rows.load(start, stop - start)
        for run, (start, stop) in zip(runs, bounds, strict=True)
        if stop > start
    ]
    return pl.concat(pieces) if pieces else None


def _cuts(runs: list[_SortedRun], n_parts: int) -> list[Unit]:
    """The units at which to cut all rows into about ``n_parts`` ranges of about the same size."""
    if not runs:
        return []
    samples = pl.concat([run.samples for run in runs]).sort()
    places = np.linspace(0, len(samples), n_parts + 1)[1:-1].astype(np.int64)
    return list(samples[places].unique(maintain_order=True))


def _bounds(run: _SortedRun, cuts: list[Unit]) -> list[int]:
    """The positions in a sorted run where the rows of each range begin and end."""
    return [0, *(run.cut(unit) for unit in cuts), run.rows.n_rows]


def _place(units: pl.Series, unit: Unit) -> int:
    """The number of sorted ``units`` that are less than ``unit``."""
    return int(units.search_sorted(unit, side="left"))
