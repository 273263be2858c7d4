"""An effect model's units: each id once, in an order that follows from ids and places alone.

Of several rows of an id the first in the order of the log counts; a row without an id is a unit of
its own, and comes after all others. Nothing else decides who is counted and in which batch a unit
is, so neighbours have the same n, and all rows but one unit's at the same places.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from flows.config.model.declared import LogPlace
from flows.effects.config.effects import EffectConfig
from flows.effects.raw.columns import (
    COMPLETE,
    FAULTS,
    PROPENSITY,
    TREATED,
    EffectColumns,
    feature_column,
)
from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.raw.ingest import Log
from flows.raw.land import TABLE, land
from flows.raw.quarantine import FaultyRows, Quarantined
from flows.raw.reading.column_types import identifier_type
from flows.raw.reading.log_files import file_names, find_files
from flows.raw.reading.sources import LogFiles
from flows.raw.spill.sorted_runs import SortedRuns, Stored, parts
from flows.raw.spill.unit_order import order_units, sort_rows
from flows.raw.spill.workspace import Workspace
from flows.runtime.progress import Progress
from flows.runtime.threads import in_batches
from privatizers.effects.models.lattice_sums import BATCH
from privatizers.effects.models.rows import EffectRows
from schemas.effects.roster import EffectRoster
from schemas.errors import InputError
from schemas.raw import FAULT, FILE, OUTCOME, ROW, RULE, UNIT, Values

_PLACE = "place"
_MOST_FAULTY = 100_000
"""Faulty rows that are kept, the first of the log: no disk is asked to hold more for more of them,
since how many there are may be private."""
_ROW_BITS = 40  # a place is the file's number and, in these bits, the row's


@dataclass(frozen=True)
class EffectUnits:
    """Mapped rows, one a unit: those with an id in the order of ids, then those without."""

    named: tuple[Stored, ...]
    """Columns ``unit`` and :attr:`EffectColumns.kept`."""
    nameless: tuple[Stored, ...]
    """The latter alone."""
    unit_type: pl.DataType
    n_features: int

    @property
    def n_named(self) -> int:
        """How many have an id."""
        return sum(part.n_rows for part in self.named)

    @property
    def n_units(self) -> int:
        """n: how many there are."""
        return self.n_named + sum(part.n_rows for part in self.nameless)

    def ids(self) -> Iterator[pl.Series]:
        """All ids in order, some after the other."""
        return (part.column(UNIT) for part in self.named)

    def column(self, name: str) -> Iterator[pl.Series]:
        """One of the other columns, of all units in order."""
        return (part.column(name) for part in (*self.named, *self.nameless))

    def batches(self, size: int = BATCH) -> Iterator[EffectRows]:
        """All units, ``size`` at a time, the same in every call."""
        frames = (part.load() for part in (*self.named, *self.nameless))
        wanted = (pl.exclude(UNIT),)
        for frame in in_batches((each.select(wanted) for each in frames), size):
            features = np.empty((frame.height, self.n_features))
            for place in range(self.n_features):
                features[:, place] = frame[feature_column(place)].to_numpy()
            has_shares = PROPENSITY in frame.columns
            yield EffectRows(
                features=features,
                treated=frame[TREATED].to_numpy(),
                outcome=frame[OUTCOME].to_numpy(),
                propensity=frame[PROPENSITY].to_numpy() if has_shares else None,
                complete=frame[COMPLETE].to_numpy(),
            )


@values_free
def ingest_effects(
    config: EffectConfig, source: LogPlace, period: str, workspace: Workspace | None = None
) -> Sealed[Log]:
    """Find the log of ``period``, and say how its rows are read; :func:`arrange` maps them.

    What is in a table is landed in the ``workspace`` first (:func:`land`). Raises InputError where
    no file matches. Whether files can be read depends on their types, on ids, and on where rows and
    fields end.
    """
    columns = EffectColumns(config)
    wanted, private = (config.columns.unit, *columns.private), frozenset(columns.private)
    landed = land(source, period, workspace, {TABLE: wanted})
    files = find_files(landed.directory, "source.path", landed.source.path, period)
    kind = identifier_type(files, config.columns.unit)
    delimiter = config.source.delimiter
    log = LogFiles(files, wanted, private, columns.expressions, delimiter=delimiter)
    return Sealed(Log(roster=log, events=None, unit_type=kind, mapped=()))


@values_free
def arrange(
    config: EffectConfig, log: Sealed[Log], workspace: Workspace
) -> tuple[Sealed[EffectUnits], Sealed[Quarantined], EffectRoster]:
    """Read all rows and bring each unit's into its place; faulty rows; what may be told of them.

    Faulty rows stay among the units, as zeros. How many there are follows from arms and features,
    and is for the quarantine alone.

    Memory is that of a few batches and of ``run.memory_limit``; mapped rows that do not fit go to
    the ``workspace``. Raises InputError where a file cannot be read or the log has no row.
    """
    raw, columns = log.open(), EffectColumns(config)
    ordering = _Ordering(workspace, columns.ranges)
    faulty = FaultyRows(None)
    with Progress("reading the log", raw.roster.known_rows()) as progress:
        for batch in raw.batches(columns.mapped):
            left = _MOST_FAULTY - faulty.n_rows
            broken = batch.filter(pl.col(FAULT) > 0).head(left)
            rule = pl.Series(FAULTS).gather(broken[FAULT]).alias(RULE)
            faulty.add(broken.select(rule, pl.col(UNIT).cast(pl.String), FILE, ROW))
            ordering.add(batch.drop(FAULT))
            progress.advance(batch.height)
    if ordering.n_rows == 0:
        raise InputError(f"the log is empty: no row in {file_names(raw.roster.files)}")
    named = tuple(ordering.named_parts())
    nameless = tuple(ordering.nameless_parts())
    units = EffectUnits(named, nameless, raw.unit_type, len(config.features))
    roster = EffectRoster(
        n_units=units.n_units,
        n_repeats=ordering.n_rows - units.n_units,
        n_without_id=units.n_units - units.n_named,
    )
    aside = Quarantined(faulty, raw.roster.files)
    return Sealed(units, units.n_units), Sealed(aside, units.n_units), roster


class _Ordering:
    """Rows on their way into order: by ids, and by their places where they have none."""

    def __init__(self, workspace: Workspace, ranges: Mapping[str, Values]) -> None:
        self._workspace = workspace
        self._ranges = ranges
        self._named = SortedRuns(workspace, "rows", n_tables=2)
        self._nameless = SortedRuns(workspace, "nameless", by=_PLACE, n_tables=2)
        self.n_rows = 0

    def add(self, rows: pl.DataFrame) -> None:
        self.n_rows += rows.height
        named = rows.drop(FILE, ROW)
        if rows[UNIT].null_count():
            place = pl.col(FILE).cast(pl.UInt64) * 2**_ROW_BITS + pl.col(ROW)
            without = rows.filter(pl.col(UNIT).is_null())
            self._nameless.add(without.select(place.alias(_PLACE), pl.exclude(UNIT, FILE, ROW)))
            named = named.filter(pl.col(UNIT).is_not_null())
        self._named.add(named)

    def named_parts(self) -> Iterator[Stored]:
        """The first row of each id, in the order of ids."""
        with Progress("ordering units", self._named.n_rows) as progress:
            for (rows,) in parts([self._named], self._workspace):
                if rows is None:
                    continue
                order = order_units(rows[UNIT])
                kept = order.rows(rows)
                if order.repeats.any():  # equal ids stay in the order of the log
                    kept = kept.filter(pl.Series(~order.repeats))
                progress.advance(rows.height)
                yield self._stored(kept, self._named)
        self._named.remove_files()

    def nameless_parts(self) -> Iterator[Stored]:
        """Rows without an id, in the order of the log."""
        for (rows,) in parts([self._nameless], self._workspace):
            if rows is not None:
                yield self._stored(sort_rows(rows, _PLACE).drop(_PLACE), self._nameless)
        self._nameless.remove_files()

    def _stored(self, rows: pl.DataFrame, runs: SortedRuns) -> Stored:
        from schemas.raw_frame import broken, fits_model  # noqa: PLC0415 - pandera

        if breaks := broken(fits_model(self._ranges, named=UNIT in rows.columns), rows):
            raise InputError(f"rows of a model break their schema ({', '.join(breaks)})")
        in_memory = Stored(rows.height, rows)
        if runs.in_memory:
            return in_memory
        return replace(in_memory, place=self._workspace.write(rows, "units"))
