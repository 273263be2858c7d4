"""Step 1, private: find the log's files, and say how their rows are read.

Rows are read batch by batch, when the next step asks for them, and outcomes are brought into the
grid's range as they come. Missing and unreadable ones count as ``outcome.missing``, others are
clipped. Nothing is drawn here: rounding onto the grid is the first act of :func:`privatize`, so
that a dry run spends no randomness and a charge can come before any of it.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flows.config.experiment import Config
from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.raw.reading.columns import arm_labels, cluster, identifier, label, outcome
from flows.raw.reading.log_files import find_files
from flows.raw.reading.sources import Source, identifier_type
from flows.raw.reading.times import microseconds
from flows.raw.units.private_clusters import cluster_columns, private_clusters
from privatizers.domain.outcome_grid import map_outcomes
from schemas.raw import ARM, CLUSTER, EVENT, OUTCOME, TIME, UNIT, VALUE

Floats = NDArray[np.float64]
Brought = Callable[[pl.DataFrame, Path], list[pl.Expr]]


@dataclass(frozen=True)
class Log:
    """What is to be read: who is where, and, of grain "event", what happened."""

    roster: Source
    """Units with their outcomes, or exposures: ``unit arm cluster``, ``outcome`` or ``time``."""
    events: Source | None
    """Outcome events, of grain "event": ``unit time value``, and ``event`` where there are ids."""
    unit_type: pl.DataType
    """Of the units or exposures. Ids of events are brought to it, whatever type they have: text
    that is not spelt as such an integer is nobody's id."""
    mapped: Callable[[Floats], Floats]
    """Brings outcomes (NaN for missing) into the grid's range."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files whose rows are units or exposures."""
        return self.roster.files

    def batches(
        self, judged: Callable[[pl.DataFrame], pl.DataFrame] | None = None
    ) -> Iterator[pl.DataFrame]:
        """Units or exposures, in the order of the log; outcomes mapped, then ``judged``."""

        def finished(frame: pl.DataFrame) -> pl.DataFrame:
            found = self._typed(frame)
            if OUTCOME in found.columns:
                values = self.mapped(found[OUTCOME].to_numpy())
                found = found.with_columns(pl.Series(OUTCOME, values))
            return found if judged is None else judged(found)

        return replace(self.roster, finished=finished).batches()

    def event_batches(self) -> Iterator[pl.DataFrame]:
        """Outcome events, in the order of their log."""
        if self.events is not None:
            yield from replace(self.events, finished=self._typed).batches()

    @property
    def frame(self) -> pl.DataFrame:
        """All units or exposures at once, labels as text, for a log that is known to be small."""
        labels = pl.col(ARM, CLUSTER).cast(pl.String)
        return pl.concat([batch.with_columns(labels) for batch in self.batches()])

    def _typed(self, frame: pl.DataFrame) -> pl.DataFrame:
        if frame.schema[UNIT] == self.unit_type:
            return frame
        typed = pl.col(UNIT).cast(self.unit_type, strict=False)
        if frame.schema[UNIT] == pl.String:  # 7 is not "007"
            typed = pl.when(typed.cast(pl.String) == pl.col(UNIT)).then(typed)
        return frame.with_columns(typed.alias(UNIT))


@values_free
def ingest(config: Config, period: str) -> Sealed[Log]:
    """Find the files of ``period``; raises InputError where there are none."""
    return _ingested(config, period, outcomes=True)


@values_free
def ingest_places(config: Config, period: str) -> Sealed[Log]:
    """The same without any outcome: each counts as missing.

    For what may not look at outcomes, a plan; the column of outcomes need not even be there.
    """
    return _ingested(config, period, outcomes=False)


def _ingested(config: Config, period: str, *, outcomes: bool) -> Sealed[Log]:
    columns, source = config.columns, config.source
    files = find_files(config.directory, "source.path", source.path, period)
    by_events = source.grain == "event"
    events = None
    if by_events and outcomes and source.outcomes_path is not None:
        pattern = source.outcomes_path
        event_files = find_files(config.directory, "source.outcomes_path", pattern, period)
        wanted = _event_columns(config)
        events = Source(event_files, wanted, frozenset(wanted), _bring_events(config))
    ends, missing = np.array(config.outcome.ends), config.outcome.missing_value
    log = Log(
        roster=Source(
            files,
            *_roster_columns(config, by_events=by_events, outcomes=outcomes),
        ),
        events=events,
        unit_type=identifier_type(files, columns.unit),
        mapped=lambda values: map_outcomes(values, ends, missing),
    )
    return Sealed(log)


def _roster_columns(
    config: Config, *, by_events: bool, outcomes: bool
) -> tuple[tuple[str, ...], frozenset[str], Brought]:
    """What is read of units or exposures, and what of it is private."""
    columns, arms, private = config.columns, config.arms.names, config.private_clusters
    of_clusters = cluster_columns(columns, private)
    wanted = [columns.unit, columns.arm, *of_clusters]
    hidden = set(() if private is None else of_clusters)
    if by_events:
        wanted.append(_given(columns.time))
    elif outcomes:
        wanted.append(columns.outcome)
        hidden.add(columns.outcome)

    def brought(frame: pl.DataFrame, path: Path) -> list[pl.Expr]:
        found = [
            identifier(frame, path, columns.unit, "unit").alias(UNIT),
            arm_labels(frame, path, columns.arm, arms).alias(ARM),
            (
                cluster(frame, path, columns.clusters)
                if private is None
                else private_clusters(frame, path, columns, private)
            ).alias(CLUSTER),
        ]
        if by_events:
            time = _given(columns.time)
            return [*found, microseconds(time, frame.schema[time], path).alias(TIME)]
        if not outcomes:
            return [*found, pl.lit(math.nan, pl.Float64).alias(OUTCOME)]
        return [*found, outcome(frame, path, columns.outcome).alias(OUTCOME)]

    return tuple(wanted), frozenset(hidden - {columns.unit, columns.arm}), brought


def _event_columns(config: Config) -> tuple[str, ...]:
    columns = config.columns
    wanted = [columns.unit_of_events, columns.time_of_events]
    if columns.outcome:  # a count counts what can be read of it
        wanted.append(columns.outcome)
    return (*wanted, *([columns.event] if columns.event else []))


def _bring_events(config: Config) -> Brought:
    columns = config.columns

    def brought(frame: pl.DataFrame, path: Path) -> list[pl.Expr]:
        unit, time = columns.unit_of_events, columns.time_of_events
        found = [
            identifier(frame, path, unit, "unit").alias(UNIT),
            microseconds(time, frame.schema[time], path).alias(TIME),
        ]
        value = outcome(frame, path, columns.outcome) if columns.outcome else pl.lit(1.0)
        found.append(value.alias(VALUE))
        if columns.event:
            found.append(label(frame, path, columns.event, "event").alias(EVENT))
        return found

    return brought


def _given(name: str | None) -> str:
    if name is None:
        msg = "columns.time is checked to be there"
        raise AssertionError(msg)
    return name
