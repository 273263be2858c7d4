"""Logs that are tables: the columns that are needed of them, as Parquet on this machine.

Tables are landed in the workspace, a private folder that is gone with the run, whole or not at all.
From there on everything goes on as with files. What is asked for is a table and columns, never a
query: with one, outcomes could decide whether it succeeds, and who is in it.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq

from flows.config.model.declared import LogPlace
from flows.raw.boundary.guard import errors_as, values_free
from flows.raw.landing.delta import open_delta
from flows.raw.landing.flightsql import open_flightsql
from flows.raw.landing.iceberg import open_iceberg
from flows.raw.landing.postgresql import open_postgresql
from flows.raw.landing.spans import Span, span_of
from flows.raw.landing.tables import Opener
from flows.raw.spill.workspace import Workspace
from flows.schedule.periods import day_of
from schemas.errors import ClusterdpError, InputError, NoFileError, did_you_mean

TABLE, EVENTS = "source.table", "source.outcomes_table"
_PATHS = {TABLE: "path", EVENTS: "outcomes_path"}
_AT = "source.at"
_GROUP = 1 << 20  # rows
_DATABASES = {"flightsql": open_flightsql, "postgresql": open_postgresql}
"""Those that keep no versions."""

Place = TypeVar("Place", bound=LogPlace)


@values_free
def in_versions(log: Place, released: Mapping[str, str]) -> Place:
    """The same log, with its tables in the versions ``released``, where these are of them.

    Of others in those that they have now; none are known of a database's. Reads no row.
    """
    versions = {}
    if log.source.tables and log.source.kind not in _DATABASES:
        with _opened(log) as opener:
            for key, name in log.source.tables.items():
                if version := opener(key, name, released.get(key)).version:
                    versions[key] = version
    return replace(log, versions=versions)


def land(
    log: Place, period: str, workspace: Workspace | None, columns: Mapping[str, Sequence[str]]
) -> Place:
    """Bring the tables of ``log`` here; the same log, as files. One of files stays as it is.

    ``columns`` are those that are read of a table, by its key; one that is not named is not read.
    Raises NoFileError where the first has no row of the period, and InputError where one cannot be
    read, or lacks a column.
    """
    source = log.source
    if not source.tables:
        return log
    if workspace is None:
        raise AssertionError("a table is landed in a workspace")
    files: dict[str, str | None] = {}
    with _opened(log) as opener:
        for key, name in source.tables.items():
            files |= {key.partition(".")[2]: None}
            if key not in columns:
                continue
            day, periods = day_of(period), [period]
            if key == EVENTS and log.calendar is not None and day is not None:
                periods = [one.isoformat() for one in log.calendar.days_reached(day)]
            wanted = list(dict.fromkeys(columns[key]))
            n_rows = _landed(log, opener, workspace.folder, key, name, wanted, periods)
            if key == TABLE and not n_rows:
                place = f"has no row of {period}" if source.period else "has no row"
                raise NoFileError(f"{key}: {name} {place}", key=key)
            files[_PATHS[key]] = f"{key}.parquet"
    landed = source.model_copy(update=files)
    return replace(log, directory=workspace.folder, source=landed)


@contextmanager
def _opened(log: LogPlace) -> Iterator[Opener]:
    """What opens the tables of a log, those of a database all of one moment."""
    source = log.source
    if source.kind in _DATABASES:
        with _DATABASES[source.kind](source.at or "", _AT) as opener:
            yield opener
    elif source.kind == "iceberg":
        yield open_iceberg(log.directory, source.at or "", _AT)
    else:
        yield lambda *named: open_delta(log.directory, *named)


def _landed(
    log: LogPlace,
    opener: Opener,
    folder: Path,
    key: str,
    name: str,
    wanted: Sequence[str],
    periods: Sequence[str],
) -> int:
    """Write the wanted columns of the rows of ``periods`` into a file; returns their number."""
    table, period = opener(key, name, log.versions.get(key)), log.source.period
    named, known = dict.fromkeys([*wanted, *([period] if period else [])]), table.schema.names
    for column in named:
        if column not in known:
            meant = did_you_mean(column, sorted(known))
            if opener(key, name, None).version != table.version:
                meant += ", or draw the period anew from the table as it is now, by --revise"
                name = f"the version of {name} that this period was released from"
            raise InputError(
                f"{key}: {name} has no column {column!r}; correct the name{meant}", key=key
            )
    span = None
    if period is not None:
        zone = ZoneInfo("UTC") if log.calendar is None else log.calendar.zone
        span = span_of(period, table.schema.field(period).type, periods, zone)
    kept = pa.schema([(column, table.schema.field(column).type) for column in wanted])
    return _write(folder, key, kept, _kept(table.pieces(list(named), span), list(wanted), span))


def _kept(pieces: Iterator[pa.Table], columns: list[str], span: Span | None) -> Iterator[pa.Table]:
    """The rows of a span, whether or not what keeps the table has left out all others."""
    for piece in pieces:
        rows = piece if span is None else piece.filter(span.expression)
        yield rows.select(columns)


def _write(folder: Path, key: str, schema: pa.Schema, pieces: Iterator[pa.Table]) -> int:
    """Write a file of that name, which is there once it is whole; returns the number of rows."""

    def failed(error: BaseException) -> ClusterdpError:
        if isinstance(error, pa.ArrowNotImplementedError):
            return InputError(f"{key}: a column has a type that cannot be landed", key=key)
        return ClusterdpError(
            f"{folder.parent}: cannot write the rows of {key} here ({type(error).__name__}); free "
            "some space, or name another folder with run.spill_directory (of a site: quarantine."
            "directory)"
        )

    n_rows = 0
    with errors_as(failed, OSError, pa.ArrowException):
        handle, begun = tempfile.mkstemp(prefix="landing-", dir=folder)  # 0600
        with os.fdopen(handle, "wb") as file, pq.ParquetWriter(file, schema) as writer:
            for piece in pieces:
                writer.write_table(piece.cast(schema), row_group_size=_GROUP)
                n_rows += piece.num_rows
        Path(begun).rename(folder / f"{key}.parquet")
    return n_rows
