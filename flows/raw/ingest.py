"""Step 1, private: find the log's files, and say how their rows are read.

The next step reads the rows batch by batch. Each batch's outcomes are mapped into the range of the
grid: a missing or unreadable one counts as ``outcome.missing``, any other is clipped. Nothing is
drawn here: every draw, also for rounding onto the grid, is made by :func:`privatize`. So a dry run
draws nothing, and the ledger is charged before the first draw.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import polars as pl

from flows.config.model.declared import OF_OUTCOMES, LogSource
from flows.config.model.sections import NamedOutcome
from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.raw.land import EVENTS, TABLE, land
from flows.raw.reading.column_types import (
    ATTRIBUTES,
    attribute,
    attribute_type,
    identifier_type,
    type_warnings,
)
from flows.raw.reading.columns import (
    arm_labels,
    cluster,
    identifier,
    label,
    microseconds,
    outcome,
    private_label,
    text_outcome,
)
from flows.raw.reading.log_files import find_files, find_files_of_days, in_both
from flows.raw.reading.sources import LogFiles
from flows.raw.reading.stores import LogFile
from flows.raw.spill.workspace import Workspace
from flows.raw.units import assignment
from flows.raw.units.private_clusters import private_clusters
from flows.schedule.periods import day_of
from privatizers.domain.outcome_grid import map_outcomes
from schemas.arrays import Floats
from schemas.errors import InputError, NoFileError
from schemas.raw import (
    ARM,
    ASSIGNED,
    CLUSTER,
    EVENT,
    FILE,
    OUTCOME,
    PAYER,
    ROW,
    TIME,
    UNIT,
    VALUE,
    attribute_columns,
    numbered,
    several,
)

_FAR = 1e300  # as an outcome it counts as the end of the grid that is on its side


@dataclass(frozen=True)
class Log:
    """The tables to read: the units or exposures and, of grain "event", the outcome events.

    It says how rows are read and holds none, so that workers can be sent the log of an experiment.
    """

    roster: LogFiles
    """Units with their outcomes, or exposures: ``unit arm cluster``, ``outcome`` or ``time``."""
    events: LogFiles | None
    """Outcome events, of grain "event": ``unit time value``, and ``event`` where there are ids."""
    unit_type: pl.DataType
    """The type of the ids in ``roster``. Ids in ``events`` are cast to it; text that is not the
    usual form of such an integer ("007") becomes null, as no unit can have it."""
    mapped: tuple[Callable[[Floats], Floats], ...]
    """Map outcomes (NaN for missing) into the range of the grid, a function for each outcome."""
    attributes: tuple[pl.DataType, ...] = ()
    """The types of attributes, in their order."""

    def with_mapped(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows of a frame, every outcome in it mapped."""
        names = several(OUTCOME, len(self.mapped))
        return frame.with_columns(
            pl.Series(name, mapped(frame[name].to_numpy()))
            for name, mapped in zip(names, self.mapped, strict=True)
            if name in frame.columns
        )

    @property
    def ranges(self) -> list[tuple[float, float]]:
        """Between which values each outcome is mapped to."""
        ends = (one(np.array([-_FAR, np.nan, _FAR])) for one in self.mapped)
        return [(float(values.min()), float(values.max())) for values in ends]

    def batches(
        self, judged: Callable[[pl.DataFrame], pl.DataFrame] | None = None
    ) -> Iterator[pl.DataFrame]:
        """Units or exposures, in the order of the log, their outcomes mapped.

        Each batch is then passed through ``judged``, if there is one.
        """

        def postprocess(frame: pl.DataFrame) -> pl.DataFrame:
            rows = self.with_mapped(with_unit_type(frame, self.unit_type))
            return rows if judged is None else judged(rows)

        return replace(self.roster, postprocess=postprocess).batches()

    def event_batches(self) -> Iterator[pl.DataFrame]:
        """Outcome events, in the order of their log; where they stand in it, nobody asks."""

        def postprocess(frame: pl.DataFrame) -> pl.DataFrame:
            return with_unit_type(frame.drop(FILE, ROW), self.unit_type)

        if self.events is not None:
            yield from replace(self.events, postprocess=postprocess).batches()


def with_unit_type(frame: pl.DataFrame, kind: pl.DataType) -> pl.DataFrame:
    """The rows with their ids in the type of a log; see :attr:`Log.unit_type`."""
    if frame.schema[UNIT] == kind:
        return frame
    typed = pl.col(UNIT).cast(kind, strict=False)
    if frame.schema[UNIT] == pl.String:  # 7 is not "007"
        typed = pl.when(typed.cast(pl.String) == pl.col(UNIT)).then(typed)
    return frame.with_columns(typed.alias(UNIT))


@values_free
def ingest(log: LogSource, period: str, workspace: Workspace | None = None) -> Sealed[Log]:
    """Find the log of ``period``; raises InputError where no file matches.

    What is in tables is landed in the ``workspace`` first (:func:`land`).
    """
    columns = {TABLE: log.roster_columns(outcomes=True)[0], EVENTS: log.event_columns}
    return _find_log(land(log, period, workspace, columns), period, outcomes=True)


@values_free
def ingest_without_outcomes(
    log: LogSource, period: str, workspace: Workspace | None = None
) -> Sealed[Log]:
    """Find the log of ``period``, to be read without outcomes: each counts as missing.

    A plan uses this, as it may not see outcomes. The column of outcomes need not exist.
    """
    columns = {TABLE: log.roster_columns(outcomes=False)[0]}
    return _find_log(land(log, period, workspace, columns), period, outcomes=False)


@values_free
def outcome_type_warnings(
    log: LogSource, period: str, found: Sealed[Log] | None = None
) -> tuple[str, ...]:
    """Warn of outcomes whose columns have types that do not fit; reads no row.

    None of a file that is not there, and of a table that was not ``found``.
    """
    source = log.source
    if source.table:
        opened = None if found is None else found.open()
        of_outcomes = opened and (opened.events or opened.roster)
        return tuple(type_warnings(log.outcomes, of_outcomes.files)) if of_outcomes else ()
    try:
        files = (
            find_files(log.directory, "source.path", source.path, period)
            if source.outcomes_path is None
            else _event_files(log, source.outcomes_path, period)
        )
    except NoFileError:
        return ()
    return tuple(type_warnings(log.outcomes, files))


def _find_log(log: LogSource, period: str, *, outcomes: bool) -> Sealed[Log]:
    columns, source = log.columns, log.source
    files = find_files(log.directory, "source.path", source.path, period)
    keys = {}
    if not columns.outcome:  # then each outcome has a column of its own
        keys = {one.column: f"outcomes[{n}].column" for n, one in enumerate(log.outcomes)}
    events = None
    if source.grain == "event" and outcomes and source.outcomes_path is not None:
        event_files = _event_files(log, source.outcomes_path, period)
        for path in in_both(event_files, files):
            key = "source.outcomes_path"
            raise InputError(f"{key}: {path} is a file of source.path, too: {OF_OUTCOMES}", key=key)
        wanted = log.event_columns
        to_expressions = partial(_event_expressions, log)
        events = LogFiles(
            event_files,
            wanted,
            frozenset(wanted),
            to_expressions,
            keys=keys,
            delimiter=source.delimiter,
        )
    kinds = tuple(attribute_type(files, name) for name in columns.named_attributes.values())
    return Sealed(
        Log(
            roster=_roster(log, files, kinds, keys, outcomes=outcomes),
            events=events,
            unit_type=identifier_type(files, columns.unit),
            mapped=tuple(
                partial(map_outcomes, grid=np.array(one.ends), missing=one.missing_value)
                for one in log.outcomes
            ),
            attributes=kinds,
        )
    )


def _event_files(log: LogSource, pattern: str, period: str) -> tuple[LogFile, ...]:
    """The files of outcome events: of the period and, with a schedule, of all days of its window.

    That a day has none may hang on one person's event. So it is for the configuration to say what
    becomes of it: the run ends, whatever else there is, or the day is one without events, of which
    nobody is told.
    """
    key, day = "source.outcomes_path", day_of(period)
    if log.calendar is None or day is None:
        return find_files(log.directory, key, pattern, period)
    days = [day.isoformat() for day in log.calendar.days_reached(day)]
    absent = log.events_may_be_absent
    return find_files_of_days(log.directory, key, pattern, days, may_be_absent=absent)


def _roster(
    log: LogSource,
    files: tuple[LogFile, ...],
    kinds: tuple[pl.DataType, ...],
    keys: dict[str, str],
    *,
    outcomes: bool,
) -> LogFiles:
    """How units or exposures are read; ``keys`` name the columns of several outcomes."""
    columns = log.columns
    wanted, private_columns = log.roster_columns(outcomes=outcomes)
    keys = keys | dict.fromkeys(columns.named_attributes.values(), ATTRIBUTES)
    if columns.assigned_by is not None:
        keys[columns.assigned_by] = assignment.KEY
    to_expressions = partial(_roster_expressions, log, kinds, outcomes=outcomes)
    return LogFiles(
        files,
        wanted,
        private_columns,
        to_expressions,
        keys=keys,
        delimiter=log.source.delimiter,
    )


def _roster_expressions(
    log: LogSource,
    kinds: tuple[pl.DataType, ...],
    frame: pl.DataFrame,
    path: LogFile,
    *,
    outcomes: bool,
) -> list[pl.Expr]:
    """How the columns of a batch of units or exposures are converted."""
    columns, private = log.columns, log.private_clusters
    expressions = [
        identifier(frame, path, columns.unit, "unit").alias(UNIT),
        arm_labels(frame, path, columns.arm, log.arms).alias(ARM),
        (
            cluster(frame, path, columns.clusters)
            if private is None
            else private_clusters(frame, path, columns, private)
        ).alias(CLUSTER),
    ]
    if columns.privacy_unit is not None:
        payer = label(frame, path, columns.privacy_unit, "privacy_unit")
        expressions.append(payer.alias(PAYER))
    if columns.assigned_by is not None:
        expressions.append(assignment.assigned(frame, path, columns.assigned_by).alias(ASSIGNED))
    expressions += [
        attribute(frame, path, name, kind).alias(alias)
        for name, kind, alias in zip(
            columns.named_attributes.values(), kinds, attribute_columns(len(kinds)), strict=True
        )
    ]
    if log.source.grain == "event":
        time = columns.time or ""
        return [*expressions, microseconds(time, frame.schema[time], path).alias(TIME)]
    for position, one in enumerate(log.outcomes):
        values = read_outcome(one, frame, path) if outcomes else pl.lit(math.nan, pl.Float64)
        expressions.append(values.alias(numbered(OUTCOME, position)))
    return expressions


def read_outcome(one: NamedOutcome, frame: pl.DataFrame, path: LogFile) -> pl.Expr:
    """An outcome as a number, NaN where it is missing or unreadable; 1 where it has no column."""
    if not one.column:
        return pl.lit(1.0)
    if one.texts:
        return text_outcome(frame, path, one.column, one.numbers_of_texts)
    return outcome(frame, path, one.column, one.decimal or ".")


def _event_expressions(log: LogSource, frame: pl.DataFrame, path: LogFile) -> list[pl.Expr]:
    """How the columns of a batch of outcome events are converted; a value for each outcome."""
    columns = log.columns
    unit, time = columns.unit_of_events, columns.time_of_events
    expressions = [
        _of_event(identifier, frame, path, unit, "unit").alias(UNIT),
        microseconds(time, frame.schema[time], path).alias(TIME),
    ]
    expressions += [
        read_outcome(one, frame, path).alias(numbered(VALUE, position))
        for position, one in enumerate(log.outcomes)
        if one.column  # else each is worth 1
    ]
    if columns.event:
        expressions.append(_of_event(label, frame, path, columns.event, "event").alias(EVENT))
    return expressions


def _of_event(
    read: Callable[[pl.DataFrame, LogFile, str, str], pl.Expr],
    frame: pl.DataFrame,
    path: LogFile,
    name: str,
    key: str,
) -> pl.Expr:
    """An id of outcome events; many programs write integers as floats where one event has none."""
    kind = frame.schema[name]
    return (private_label if kind.is_float() or kind.is_decimal() else read)(frame, path, name, key)
