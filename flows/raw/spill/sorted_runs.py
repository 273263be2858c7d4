"""Rows on their way into the order of their units, in memory or beside it.

Rows come in batches and are held until they fill their share of memory; then they are put into
order and written to the run's room, a *run* of sorted rows. Once all have come, the units are cut
into ranges, each small enough, and a *part* is what every run holds of one range: all rows of its
units, and of no others. Where everything fits there is one part, and nothing is written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from flows.raw.spill.unit_order import in_order
from flows.raw.spill.workspace import Room
from schemas.raw import UNIT

Unit = str | int

_SAMPLED = 1024  # rows a sample of a run's units stands for


@dataclass(frozen=True)
class Stored:
    """Rows in memory, or in a file of the room."""

    n_rows: int
    place: pl.DataFrame | Path

    def __getstate__(self) -> dict[str, object]:
        """Refuse to leave the process with rows: workers are sent the names of files."""
        if isinstance(self.place, pl.DataFrame):
            msg = "raw rows cannot be pickled"
            raise TypeError(msg)
        return dict(vars(self))

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
class _Run:
    """Sorted rows, and every so-manieth unit of them."""

    rows: Stored
    samples: pl.Series

    def cut(self, unit: Unit) -> int:
        """How many of the rows are of lesser units."""
        block = max(_place(self.samples, unit) - 1, 0)
        units = self.rows.column(self.samples.name, block * _SAMPLED, _SAMPLED)
        return block * _SAMPLED + _place(units, unit)


class Runs:
    """Rows that are being put into order; ``name`` distinguishes their files in the room."""

    def __init__(self, room: Room | None, name: str, by: str = UNIT) -> None:
        """Begin without rows, to be ordered by a column. Without a room all stay in memory."""
        self._room = room
        self._name = name
        self._by = by
        self._waiting: list[pl.DataFrame] = []
        self._waiting_bytes = 0
        self._written: list[_Run] = []
        self.n_rows = 0
        self.n_bytes = 0

    def add(self, rows: pl.DataFrame) -> None:
        """Take more rows, whose column of the order holds no null."""
        if rows.is_empty():
            return
        size = int(rows.estimated_size())
        self._waiting.append(rows)
        self._waiting_bytes += size
        self.n_rows += rows.height
        self.n_bytes += size
        if self._room is not None and self._waiting_bytes > self._room.run_bytes:
            self._write(self._room)

    @property
    def in_memory(self) -> bool:
        """Whether nothing was written."""
        return not self._written

    def take(self) -> pl.DataFrame | None:
        """All rows, in no order, where all are in memory; they are held no longer. None if none."""
        frames, self._waiting = self._waiting, []
        return pl.concat(frames) if frames else None

    def runs(self, room: Room) -> list[_Run]:
        """All rows as runs; what was still in memory is written."""
        if self._waiting:
            self._write(room)
        return self._written

    def _write(self, room: Room) -> None:
        frames, self._waiting, self._waiting_bytes = self._waiting, [], 0
        rows = in_order(pl.concat(frames), self._by)
        del frames
        place = room.write(rows, f"{self._name}-run-{len(self._written)}")
        samples = rows[self._by].gather_every(_SAMPLED)
        self._written.append(_Run(Stored(rows.height, place), samples))


def parts(
    every: Sequence[Runs], room: Room | None, least: int = 0
) -> Iterator[list[pl.DataFrame | None]]:
    """Yield, range by range of units, the rows of each of ``every`` (None where it has none).

    Ranges come in the order of units, and the rows of one in no order. Where at least so many are
    wanted, all rows are written first.
    """
    if room is None or (least == 0 and all(one.in_memory for one in every)):
        yield [one.take() for one in every]
        return
    runs = [one.runs(room) for one in every]
    size = sum(one.n_bytes for one in every)
    n_parts = max(-(-size // room.part_bytes), least)
    cuts = _cuts([run for some in runs for run in some], n_parts)
    bounds = [[_bounds(run, cuts) for run in some] for some in runs]
    for position in range(len(cuts) + 1):
        yield [
            _gathered(some, [own[position : position + 2] for own in their])
            for some, their in zip(runs, bounds, strict=True)
        ]


def _gathered(runs: list[_Run], bounds: list[list[int]]) -> pl.DataFrame | None:
    pieces = [
        run.rows.load(start, stop - start)
        for run, (start, stop) in zip(runs, bounds, strict=True)
        if stop > start
    ]
    return pl.concat(pieces) if pieces else None


def _cuts(runs: list[_Run], n_parts: int) -> list[Unit]:
    """Units that cut all rows into about ``n_parts`` ranges of about one size."""
    if not runs:
        return []
    samples = pl.concat([run.samples for run in runs]).sort()
    places = np.linspace(0, len(samples), n_parts + 1)[1:-1].astype(np.int64)
    return list(samples[places].unique(maintain_order=True))


def _bounds(run: _Run, cuts: list[Unit]) -> list[int]:
    """Where a run's rows of each range begin and end."""
    return [0, *(run.cut(unit) for unit in cuts), run.rows.n_rows]


def _place(units: pl.Series, unit: Unit) -> int:
    """How many of sorted ``units`` are less than ``unit``."""
    return int(units.search_sorted(unit, side="left"))
