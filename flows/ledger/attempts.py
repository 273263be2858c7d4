"""How the last attempt at each period went, kept beside the charges: why a period is not there yet.

A row a period of an experiment, replaced by the next attempt. No reason holds an outcome or hangs
on one: whether a published period was unchanged or in conflict is left out (both are "published").
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from flows.ledger.database import Ledger, told_plainly
from flows.ledger.rules import OPEN, Entry
from flows.ledger.tables import CHARGES, METADATA, select
from flows.runtime import clock
from flows.runtime.interruption import was_interrupted
from schemas.errors import (
    BudgetError,
    ClusterdpError,
    ConflictError,
    InputError,
    NoFileError,
    shown,
)

_TABLE = sa.Table(
    "clusterdp_attempts",
    METADATA,
    sa.Column("experiment", sa.Text, primary_key=True),
    sa.Column("period", sa.Text, primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("started_at", sa.DateTime, nullable=False),
    sa.Column("ended_at", sa.DateTime),
    sa.Column("host", sa.Text, nullable=False),
    # The working folder of the run; whoever can lock it knows that the run is dead.
    sa.Column("folder", sa.Text),
)
_READ = [sa.type_coerce(column, sa.types.NullType()).label(column.name) for column in _TABLE.c]

_LONGEST = 2000  # characters of a reason


class AttemptState(StrEnum):
    """How an attempt at a period has ended, if it has."""

    RUNNING = "running"
    """Not ended, unless its run is dead."""
    PUBLISHED = "published"
    """The period is public, by this attempt or one before."""
    REFUSED = "refused"
    """By the budget."""
    NO_FILE = "no_file"
    """A file that it needs was not there."""
    FAILED = "failed"
    """For any other reason."""


@dataclass(frozen=True)
class Attempt:
    """The last attempt at a period."""

    period: str
    state: AttemptState
    reason: str | None
    started_at: datetime
    """UTC."""
    ended_at: datetime | None
    host: str
    folder: Path | None


class AttemptLog:
    """The attempts of an experiment in its ledger."""

    def __init__(self, ledger: Ledger, experiment: str) -> None:
        """Take the ledger; nothing is read or made yet."""
        self._ledger = ledger
        self._experiment = experiment

    def last(self) -> dict[str, Attempt]:
        """The last attempt at each period; changes nothing."""
        return _read(self._ledger, self._experiment)

    @contextmanager
    def attempt(self, period: str) -> Iterator["Began"]:
        """Note how the attempt at ``period`` ends that this block is.

        An error passes on as it is, and is noted in its own words, unless these say how rows
        compare with those of a published period.
        """
        began = Began(self._ledger, self._experiment, period, clock.now())
        try:
            yield began
        except BaseException as error:
            with suppress(ClusterdpError):  # then the error is worth more than this note
                state, reason = self.ending(period, error)
                began.note(state, reason)
            raise
        with suppress(ClusterdpError):  # the release is public, which the ledger knows better
            began.note(AttemptState.PUBLISHED)

    def ending(self, period: str, error: BaseException) -> tuple[AttemptState, str | None]:
        """How an attempt ended by ``error``, and why; nothing of how rows compare."""
        if isinstance(error, ConflictError) and _is_public(self._ledger, self._experiment, period):
            return AttemptState.PUBLISHED, None
        if isinstance(error, BudgetError):
            return AttemptState.REFUSED, str(error)
        if isinstance(error, NoFileError):
            return AttemptState.NO_FILE, str(error)
        return AttemptState.FAILED, reason_of(error)


def reason_of(error: BaseException) -> str:
    """An error as the reason of a failure; of errors that nobody foresaw the kind alone."""
    if isinstance(error, ClusterdpError):
        return str(error)
    if isinstance(error, Exception) and not was_interrupted():
        return f"unforeseen failure ({type(error).__name__})"
    return "interrupted"


@dataclass
class Began:
    """An attempt that has begun."""

    _ledger: Ledger
    _experiment: str
    _period: str
    _started_at: datetime
    _folder: Path | None = None

    def works_in(self, folder: Path) -> None:
        """Note that the run is on its way, in a working folder that it holds the lock of."""
        self._folder = folder
        self.note(AttemptState.RUNNING)

    def note(self, state: AttemptState, reason: str | None = None) -> None:
        """Replace what is noted of the period."""
        is_running = state == AttemptState.RUNNING
        row = {
            "experiment": self._experiment,
            "period": self._period,
            "state": state.value,
            "reason": reason if reason is None else reason[:_LONGEST],
            "started_at": _plain(self._started_at),
            "ended_at": None if is_running else _plain(clock.now()),
            "host": socket.gethostname(),
            "folder": str(self._folder) if is_running and self._folder else None,
        }
        _write(self._ledger, row)


@told_plainly
def _write(ledger: Ledger, row: dict[str, Any]) -> None:
    named = sa.and_(_TABLE.c.experiment == row["experiment"], _TABLE.c.period == row["period"])
    with ledger.alone() as connection:
        connection.execute(sa.delete(_TABLE).where(named))
        connection.execute(sa.insert(_TABLE).values(row))


@told_plainly
def _read(ledger: Ledger, experiment: str) -> dict[str, Attempt]:
    with ledger.reading() as connection:
        if connection is None or not sa.inspect(connection).has_table(_TABLE.name):
            return {}
        query = sa.select(*_READ).where(_TABLE.c.experiment == experiment)
        attempts = [_attempt(row._mapping) for row in connection.execute(query)]
        return {attempt.period: attempt for attempt in attempts}


@told_plainly
def _is_public(ledger: Ledger, experiment: str, period: str) -> bool:
    """Whether a release of the period is, or may have been, public."""
    of_period = sa.and_(CHARGES.c.experiment == experiment, CHARGES.c.period == period)
    with ledger.reading() as connection:
        entries: list[Entry] = [] if connection is None else select(connection, of_period)
    return any(entry.counts and entry.state not in OPEN for entry in entries)


def _attempt(values: Any) -> Attempt:
    """An attempt, read back; a row that this program cannot have written is refused."""
    try:
        folder = values["folder"]
        return Attempt(
            period=_text(values["period"]),
            state=AttemptState(values["state"]),
            reason=None if values["reason"] is None else _text(values["reason"]),
            started_at=_time(values["started_at"]),
            ended_at=None if values["ended_at"] is None else _time(values["ended_at"]),
            host=_text(values["host"]),
            folder=None if folder is None else Path(_text(folder)),
        )
    except (TypeError, ValueError):
        named = shown(values["period"])
    raise InputError(
        f"the ledger's table {_TABLE.name}: the row of the period {named} is none of this "
        "program's; nobody but clusterdp may write to a ledger. Put the row back as it was, from a "
        "copy, or delete it: it says how the last attempt went, and nothing hangs on it"
    )


def _text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise TypeError
    return value


def _time(value: object) -> datetime:
    """UTC; SQLite keeps times as text."""
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(found, datetime):
        raise TypeError
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _plain(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(tzinfo=None, microsecond=0)
