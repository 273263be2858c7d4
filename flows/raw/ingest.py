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

from flows.config.model.experiment import Config
from flows.config.model.sections import Columns, NamedOutcome, PrivateClusters
from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.raw.reading import attributes
from flows.raw.reading.attributes import attribute, attribute_type
from flows.raw.reading.columns import (
    arm_labels,
    cluster,
    identifier,
    label,
    outcome,
    text_outcome,
)
from flows.raw.reading.log_files import find_files, find_files_of_days
from flows.raw.reading.outcome_types import type_warnings
from flows.raw.reading.sources import LogFiles, identifier_type
from flows.raw.reading.stores import LogFile
from flows.raw.reading.times import microseconds
from flows.raw.units import assignment
from flows.raw.units.private_clusters import cluster_columns, private_clusters
from flows.schedule.periods import day_of
from privatizers.domain.outcome_grid import map_outcomes
from schemas.arrays import Floats
from schemas.errors import NoFileError
from schemas.raw import (
    ARM,
    ASSIGNED,
    CLUSTER,
    EVENT,
    OUTCOME,
    PAYER,
    TIME,
    UNIT,
    VALUE,
    attribute_columns,
    numbered,
)

_FAR = 1e300  # as an outcome it counts as the end of the grid that is on its side
ToExpressions = Callable[[pl.DataFrame, LogFile], list[pl.Expr]]


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
    mapped: Callable[[Floats], Floats]
    """Maps outcomes (NaN for missing) into the range of the grid; the first of several."""
    more_mapped: tuple[Callable[[Floats], Floats], ...] = ()
    """The same of the other outcomes, where there are several."""
    attributes: tuple[pl.DataType, ...] = ()
    """The types of attributes, in their order."""

    def with_mapped(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows of a frame, every outcome in it mapped."""
        by_column = {
            numbered(OUTCOME, position): mapped
            for position, mapped in enumerate((self.mapped, *self.more_mapped))
        }
        return frame.with_columns(
            pl.Series(name, mapped(frame[name].to_numpy()))
            for name, mapped in by_column.items()
            if name in frame.columns
        )

    @property
    def ranges(self) -> list[tuple[float, float]]:
        """The ends of each outcome's grid."""
        ends = np.array([-_FAR, _FAR])
        return [
            (low, high) for low, high in (one(ends) for one in (self.mapped, *self.more_mapped))
        ]

    @property
    def files(self) -> tuple[LogFile, ...]:
        """The files whose rows are units or exposures."""
        return self.roster.files

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
        """Outcome events, in the order of their log."""
        if self.events is not None:
            cast = partial(with_unit_type, kind=self.unit_type)
            yield from replace(self.events, postprocess=cast).batches()


def with_unit_type(frame: pl.DataFrame, kind: pl.DataType) -> pl.DataFrame:
    """The rows with their ids in the type of a log; see :attr:`Log.unit_type`."""
    if frame.schema[UNIT] == kind:
        return frame
    typed = pl.col(UNIT).cast(kind, strict=False)
    if frame.schema[UNIT] == pl.String:  # 7 is not "007"
        typed = pl.when(typed.cast(pl.String) == pl.col(UNIT)).then(typed)
    return frame.with_columns(typed.alias(UNIT))


@values_free
def ingest(config: Config, period: str) -> Sealed[Log]:
    """Find the log of ``period``; raises InputError where no file matches."""
    return _find_log(config, period, outcomes=True)


@values_free
def ingest_without_outcomes(config: Config, period: str) -> Sealed[Log]:
    """Find the log of ``period``, to be read without outcomes: each counts as missing.

    A plan uses this, as it may not see outcomes. The column of outcomes need not exist.
    """
    return _find_log(config, period, outcomes=False)


@values_free
def outcome_type_warnings(config: Config, period: str) -> tuple[str, ...]:
    """Warn of outcomes whose columns have types that do not fit; reads no row.

    None of a file that is not there.
    """
    source = config.source
    try:
        files = (
            find_files(config.directory, "source.path", source.path, period)
            if source.outcomes_path is None
            else _event_files(config, source.outcomes_path, period)
        )
    except NoFileError:
        return ()
    return tuple(type_warnings(config.outcomes, files))


def _find_log(config: Config, period: str, *, outcomes: bool) -> Sealed[Log]:
    columns, source = config.columns, config.source
    files = find_files(config.directory, "source.path", source.path, period)
    by_events = source.grain == "event"
    events = None
    if by_events and outcomes and source.outcomes_path is not None:
        event_files = _event_files(config, source.outcomes_path, period)
        wanted = _event_columns(config)
        to_expressions = partial(_event_expressions, columns, config.outcomes)
        keys = _keys_of_outcomes(config)
        events = LogFiles(event_files, wanted, frozenset(wanted), to_expressions, keys=keys)
    kinds = tuple(attribute_type(files, name) for name in columns.named_attributes.values())
    mapped = [
        partial(map_outcomes, grid=np.array(one.ends), missing=one.missing_value)
        for one in config.outcomes
    ]
    log = Log(
        roster=LogFiles(
            files,
            *_roster_columns(config, kinds, by_events=by_events, outcomes=outcomes),
            keys=_keys_of_outcomes(config) | _keys(columns),
        ),
        events=events,
        unit_type=identifier_type(files, columns.unit),
        mapped=mapped[0],
        more_mapped=tuple(mapped[1:]),
        attributes=kinds,
    )
    return Sealed(log)


def _event_files(config: Config, pattern: str, period: str) -> tuple[LogFile, ...]:
    """The files of outcome events: of the period and, with a schedule, of all days of its window.

    That a day has none may hang on one person's event. So it is for the configuration to say what
    becomes of it: the run ends, whatever else there is, or the day is one without events, of which
    nobody is told.
    """
    key, schedule, section = "source.outcomes_path", config.calendar, config.schedule
    day = day_of(period)
    if schedule is None or section is None or day is None:
        return find_files(config.directory, key, pattern, period)
    days = [day.isoformat() for day in schedule.days_reached(day)]
    may_be_absent = section.events == "may_be_absent"
    return find_files_of_days(config.directory, key, pattern, days, may_be_absent=may_be_absent)


def _keys(columns: Columns) -> dict[str, str]:
    """The keys that name columns of public facts."""
    keys = dict.fromkeys(columns.named_attributes.values(), attributes.KEY)
    return keys if columns.assigned_by is None else keys | {columns.assigned_by: assignment.KEY}


def _keys_of_outcomes(config: Config) -> dict[str, str]:
    """The keys that name the columns of several outcomes."""
    return {
        one.column: f"outcomes[{number}].column" for number, one in enumerate(config.named_outcomes)
    }


def _roster_columns(
    config: Config, kinds: tuple[pl.DataType, ...], *, by_events: bool, outcomes: bool
) -> tuple[tuple[str, ...], frozenset[str], ToExpressions]:
    """The columns to read of units or exposures, the private ones, and how to convert them.

    Shape of the conversion: a batch and its file in, one expression a column out.
    """
    columns, arms, private = config.columns, config.arms.names, config.private_clusters
    of_clusters = cluster_columns(columns, private)
    others = (columns.privacy_unit, columns.assigned_by, *columns.named_attributes.values())
    wanted = [columns.unit, columns.arm, *of_clusters, *(name for name in others if name)]
    hidden = set(() if private is None else of_clusters)
    if by_events:
        wanted.append(_given(columns.time))
    elif outcomes:
        wanted += _of_outcomes(config)
        hidden.update(_of_outcomes(config))

    of_outcomes = config.outcomes if outcomes else (None,) * len(config.outcomes)
    to_expressions = partial(
        _roster_expressions, columns, arms, private, of_outcomes, kinds, by_events=by_events
    )
    return tuple(wanted), frozenset(hidden - {columns.unit, columns.arm}), to_expressions


def _roster_expressions(
    columns: Columns,
    arms: tuple[str, ...],
    private: PrivateClusters | None,
    of_outcomes: tuple[NamedOutcome | None, ...],
    kinds: tuple[pl.DataType, ...],
    frame: pl.DataFrame,
    path: LogFile,
    *,
    by_events: bool,
) -> list[pl.Expr]:
    """How the columns of a batch of units or exposures are converted.

    ``of_outcomes`` are the outcomes; None for one that is not read.
    """
    expressions = [
        identifier(frame, path, columns.unit, "unit").alias(UNIT),
        arm_labels(frame, path, columns.arm, arms).alias(ARM),
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
    if by_events:
        time = _given(columns.time)
        return [*expressions, microseconds(time, frame.schema[time], path).alias(TIME)]
    for position, one in enumerate(of_outcomes):
        values = pl.lit(math.nan, pl.Float64) if one is None else read_outcome(one, frame, path)
        expressions.append(values.alias(numbered(OUTCOME, position)))
    return expressions


def read_outcome(one: NamedOutcome, frame: pl.DataFrame, path: LogFile) -> pl.Expr:
    """An outcome as a number, NaN where it is missing or unreadable; 1 where it has no column."""
    if not one.column:
        return pl.lit(1.0)
    if one.texts:
        return text_outcome(frame, path, one.column, one.numbers_of_texts)
    return outcome(frame, path, one.column, one.decimal or ".")


def _of_outcomes(config: Config) -> tuple[str, ...]:
    """The column of each outcome, in their order; empty for one that needs none."""
    return tuple(one.column for one in config.outcomes)


def _event_columns(config: Config) -> tuple[str, ...]:
    columns = config.columns
    wanted = [columns.unit_of_events, columns.time_of_events]
    # A count needs its column, too: events without a readable value do not count.
    wanted += [name for name in _of_outcomes(config) if name]
    return (*dict.fromkeys(wanted), *([columns.event] if columns.event else []))


def _event_expressions(
    columns: Columns, of_outcomes: tuple[NamedOutcome, ...], frame: pl.DataFrame, path: LogFile
) -> list[pl.Expr]:
    """How the columns of a batch of outcome events are converted; a value for each outcome."""
    unit, time = columns.unit_of_events, columns.time_of_events
    expressions = [
        identifier(frame, path, unit, "unit").alias(UNIT),
        microseconds(time, frame.schema[time], path).alias(TIME),
    ]
    for position, one in enumerate(of_outcomes):
        expressions.append(read_outcome(one, frame, path).alias(numbered(VALUE, position)))
    if columns.event:
        expressions.append(label(frame, path, columns.event, "event").alias(EVENT))
    return expressions


def _given(name: str | None) -> str:
    if name is None:
        raise AssertionError("columns.time is checked to be there")
    return name
