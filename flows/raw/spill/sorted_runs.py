"""Sorting rows by their units, in memory or, where they do not fit, by way of files.

Rows come in batches and are held until they fill their share of memory. They are then sorted and
written into the workspace as a *sorted run*. Once all rows have come, the units are cut into ranges
that are small enough. A *part* is all that the sorted runs hold of one range: all rows of its
units, and of no others. Where all rows fit into memory there is one part, and nothing is written.

Where workers do it, each sorts the runs of what it has read, and tells of them in an *index*, a
file; units are cut into ranges by the indexes of all, and a worker works on a range at a time.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from flows.raw.spill.unit_order import sort_rows
from flows.raw.spill.workspace import Workspace
from schemas.raw import UNIT

Unit = str | int

_SAMPLED = 1024  # rows of a sorted run for each sampled unit
_INDEX_FILE, _INDEX_ROWS, _INDEX_BYTES, _INDEX_SAMPLES = "file", "n_rows", "n_bytes", "samples"


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

    def remove(self) -> None:
        """Remove the file, which nobody needs any more, where there is one."""
        if isinstance(self.place, Path):
            self.place.unlink(missing_ok=True)

    def load(self, start: int = 0, length: int | None = None) -> pl.DataFrame:
        """The rows, or ``length`` of them from ``start``."""
        if isinstance(self.place, pl.DataFrame):
            return self.place.slice(start, length)
        return pl.scan_ipc(self.place).slice(start, length).collect()

    def column(self, name: str, start: int = 0, length: int | None = None) -> pl.Series:
        """One column of the rows, or of ``length`` of them from ``start``."""
        if isinstance(self.place, pl.DataFrame):
            return self.place[name].slice(start, length)
        return pl.scan_ipc(self.place).select(name).slice(start, length).collect()[name]


def stored(frame: pl.DataFrame, workspace: Workspace | None, name: str) -> Stored:
    """Rows as they are, in memory; those that a worker made in a file, for others to read."""
    return Stored(frame.height, handed(frame, workspace, name))


Table = pl.DataFrame | Path
"""A small table: as it is or, of a worker, in a file, since how many rows it has may be private."""


def handed(table: pl.DataFrame, workspace: Workspace | None, name: str) -> Table:
    """A small table for who asked for it."""
    if workspace is None or not workspace.is_shared:
        return table
    return workspace.write(table, name)


def received(table: Table) -> pl.DataFrame:
    """A small table that somebody else made."""
    return table if isinstance(table, pl.DataFrame) else pl.read_ipc(table)


@dataclass(frozen=True)
class _SortedRun:
    """A sorted run of rows, and the unit of every 1,024th of them."""

    rows: Stored
    samples: pl.Series
    begin: int
    """The first row that counts, from 0; those before it are another's part."""
    end: int
    """Where those that count end."""

    @property
    def n_rows(self) -> int:
        """How many rows count."""
        return self.end - self.begin

    def cut(self, unit: Unit) -> int:
        """The number of rows whose unit comes before ``unit``."""
        block = max(_place(self.samples, unit) - 1, 0)
        units = self.rows.column(self.samples.name, block * _SAMPLED, _SAMPLED)
        return block * _SAMPLED + _place(units, unit)

    def split(self, unit: Unit) -> tuple["_SortedRun", "_SortedRun"]:
        """The rows that count of the units before ``unit``, and those from it on."""
        place = self.cut(unit)
        return replace(self, end=place), replace(self, begin=place)


class SortedRuns:
    """Rows that are being sorted; the names of their files in the workspace begin with ``name``."""

    def __init__(
        self, workspace: Workspace | None, name: str, by: str = UNIT, *, n_tables: int = 1
    ) -> None:
        """Begin without rows, to be sorted by a column. Without a workspace all stay in memory.

        They are one of ``n_tables`` whose rows are held at the same time.
        """
        self._workspace = workspace
        self._n_tables = n_tables
        self._name = name
        self._by = by
        self._waiting: list[pl.DataFrame] = []
        self._waiting_bytes = 0
        self._written: list[_SortedRun] = []
        self._writing: Future[_SortedRun] | None = None
        """Of the run that a thread sorts and writes while more rows come."""
        self.indexes: list[Path] = []
        """Of the runs that workers have handed over."""
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
        self._write_if_full()

    @property
    def in_memory(self) -> bool:
        """Whether no row was written to a file."""
        return not self._written and self._writing is None

    def take(self) -> pl.DataFrame | None:
        """Hand over all rows, unsorted, those in memory for good; None if there is none."""
        self._await_run()
        frames, self._waiting = self._waiting, []
        frames += [run.rows.load(run.begin, run.n_rows) for run in self._written if run.n_rows]
        return pl.concat(frames) if frames else None

    def runs(self, workspace: Workspace) -> list[_SortedRun]:
        """All rows as sorted runs, after writing those still in memory."""
        if self._waiting:
            self._write(workspace)
        self._await_run()
        return self._written

    def _write_if_full(self) -> None:
        workspace = self._workspace
        if workspace is None:
            return
        most = workspace.run_bytes // self._n_tables
        if self._waiting_bytes > (most if self.in_memory else most // 2):
            self._write(workspace)

    def _write(self, workspace: Workspace) -> None:
        """Write what waits, half as much at once as may wait: sorting holds it three times."""
        most = workspace.run_bytes // self._n_tables // 2
        frames, size = list[pl.DataFrame](), 0
        while self._waiting:
            frames.append(self._waiting.pop(0))
            size += int(frames[-1].estimated_size())
            if size > most or not self._waiting:
                self._await_run()
                self._writing = workspace.behind.submit(self._write_run, frames, workspace)
                frames, size = [], 0
                if workspace.is_shared:  # a worker leaves nothing at work when it is done
                    self._await_run()
        self._waiting_bytes = 0

    def _write_run(self, frames: list[pl.DataFrame], workspace: Workspace) -> _SortedRun:
        rows = sort_rows(pl.concat(frames), self._by)
        frames.clear()
        place = workspace.write(rows, f"{self._name}-run")
        samples = rows[self._by].gather_every(_SAMPLED)
        return _SortedRun(Stored(rows.height, place), samples, 0, rows.height)

    def _await_run(self) -> None:
        if self._writing is not None:
            self._written.append(self._writing.result())
            self._writing = None

    # runs that others sorted

    def handed_over(self) -> "SortedRuns | Path":
        """These rows for who asked for them; of a worker's all are written, and told of in a file.

        How many there are stays in that file, as it may be an outcome: how many events, say.
        """
        if self._workspace is None or not self._workspace.is_shared:
            return self
        runs = self.runs(self._workspace)
        index = {
            _INDEX_FILE: [str(run.rows.place) for run in runs],
            _INDEX_ROWS: [run.rows.n_rows for run in runs],
            _INDEX_SAMPLES: [run.samples for run in runs],
        }
        frame = pl.DataFrame(index).with_columns(pl.lit(self.n_bytes).alias(_INDEX_BYTES))
        return self._workspace.write(frame, f"{self._name}-index")

    def take_over(self, given: "SortedRuns | Path") -> None:
        """Take the rows that somebody else has handed over, too."""
        if isinstance(given, SortedRuns):
            given._await_run()
            self._waiting += given._waiting
            self._waiting_bytes += given._waiting_bytes
            self._written += given._written
            self.n_rows += given.n_rows
            self.n_bytes += given.n_bytes
            self._write_if_full()
            return
        self.indexes.append(given)
        index = pl.read_ipc(given)
        columns = (index[name] for name in (_INDEX_FILE, _INDEX_ROWS, _INDEX_SAMPLES))
        for file, n_rows, samples in zip(*columns, strict=True):
            rows = Stored(n_rows, Path(file))
            self._written.append(_SortedRun(rows, samples.alias(self._by), 0, n_rows))
            self.n_rows += n_rows
        self.n_bytes += int(index[_INDEX_BYTES].max() or 0)  # type: ignore[arg-type] # a number

    @classmethod
    def of(
        cls, workspace: Workspace | None, indexes: Iterable["Handed"], name: str
    ) -> "SortedRuns":
        """All the rows that workers have told of in these files."""
        runs = cls(workspace, name)
        for index in indexes:
            runs.take_over(index)
        return runs

    def cuts(self, n_parts: int) -> pl.Series:
        """The units at which to cut all rows, which others have handed over, into ranges."""
        return _cuts(self._written, n_parts)

    def between(self, cuts: pl.Series, position: int) -> "SortedRuns":
        """The rows of one of the ranges that such cuts make, from 0."""
        some = self if position == len(cuts) else self.split(cuts[position])[0]
        return some if position == 0 else some.split(cuts[position - 1])[1]

    def split(self, unit: Unit) -> tuple["SortedRuns", "SortedRuns"]:
        """The rows, all of them written, of the units before ``unit``, and those from it on."""
        pairs = [run.split(unit) for run in self._written]
        return self._some([first for first, _ in pairs]), self._some([rest for _, rest in pairs])

    def _some(self, runs: list[_SortedRun]) -> "SortedRuns":
        some = SortedRuns(self._workspace, self._name, self._by)
        some._written = runs
        some.n_rows = sum(run.n_rows for run in runs)
        some.n_bytes = self.n_bytes * some.n_rows // max(self.n_rows, 1)
        return some

    def remove_files(self) -> None:
        """Remove the files of all runs, which nobody needs any more."""
        for run in self._written:
            run.rows.remove()


Handed = SortedRuns | Path
"""Rows that somebody hands over: as they are or, of a worker, the index of their files."""


def parts(
    tables: Sequence[SortedRuns], workspace: Workspace | None
) -> Iterator[list[pl.DataFrame | None]]:
    """Yield, for one range of units after the other, the rows of each of the ``tables``.

    The rows of a table are None where it has none of the range. Ranges come in the order of units;
    the rows within one are unsorted.
    """
    if workspace is None or all(table.in_memory for table in tables):
        yield [table.take() for table in tables]
        return
    runs = [run for table in tables for run in table.runs(workspace)]
    n_parts = -(-sum(table.n_bytes for table in tables) // workspace.part_bytes)
    for unit in _cuts(runs, n_parts):
        pairs = [table.split(unit) for table in tables]
        yield [first.take() for first, _ in pairs]
        tables = [rest for _, rest in pairs]
    yield [table.take() for table in tables]


def _cuts(runs: list[_SortedRun], n_parts: int) -> pl.Series:
    """The units at which to cut all rows into about ``n_parts`` ranges of about the same size."""
    samples = [run.samples[-(-run.begin // _SAMPLED) : -(-run.end // _SAMPLED)] for run in runs]
    if not sum(map(len, samples)):
        return pl.Series([])
    units = pl.concat(samples).sort()
    places = np.linspace(0, len(units), n_parts + 1)[1:-1].astype(np.int64)
    return units[places].unique(maintain_order=True)


def _place(units: pl.Series, unit: Unit) -> int:
    """The number of sorted ``units`` that are less than ``unit``."""
    return int(units.search_sorted(unit, side="left"))
