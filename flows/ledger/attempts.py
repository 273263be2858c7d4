"""What a ledger keeps of runs, beside the charges: how they ended, and what people were told.

Of each period of an experiment the last attempt, replaced by the next: why it is not there yet. For
metrics, and for who looks into one, of each period the last run that published it, and the last one
that did not; and of what was told to people, that it was. No reason holds an outcome or hangs on
one: a run that found its period public already, with the same rows or with others, is "published",
or is not kept: which it was hangs on outcomes. All else here is public.
"""

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path

import sqlalchemy as sa

from flows.ledger.database import Ledger
from flows.ledger.rows import RowCodec
from flows.ledger.rules import OPEN
from flows.ledger.tables import CHARGES, METADATA, replacing
from flows.runtime import clock
from flows.runtime.interruption import was_interrupted
from schemas.errors import (
    BudgetError,
    ClusterdpError,
    ConflictError,
    InputError,
    NoFileError,
)

_ATTEMPTS = sa.Table(
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
_RUNS = sa.Table(
    "clusterdp_runs",
    METADATA,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("experiment", sa.Text, nullable=False, index=True),
    sa.Column("period", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("ended_at", sa.Text, nullable=False),
    sa.Column("release_id", sa.Text),
    sa.Column("facts", sa.Text, nullable=False),
)
_NOTICES = sa.Table(
    "clusterdp_notices",
    METADATA,
    sa.Column("experiment", sa.Text, primary_key=True),
    sa.Column("period", sa.Text, primary_key=True),
    sa.Column("event", sa.Text, primary_key=True),
    sa.Column("sent_at", sa.Text, nullable=False),
)
_LONGEST = 2000  # characters of a reason
CLOSED = "closed"
"""The event, of its last period, that people were told of the end of an experiment: once."""


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


ENDED = tuple(state for state in AttemptState if state != AttemptState.RUNNING)
"""How an attempt may have ended."""


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


@dataclass(frozen=True)
class RunRecord:
    """How a run ended; nothing in it hangs on an outcome, but that its length may, faintly."""

    run: str
    """The identifier that its log has."""
    period: str
    state: AttemptState
    """One of those that have :data:`ENDED`."""
    ended_at: datetime
    """UTC, in whole seconds."""
    release_id: str | None = None
    seconds: int | None = None
    """How long it took, rounded up to whole seconds."""
    n_units: int | None = None
    n_read: int | None = None
    sample_ratio_p: float | None = None
    set_aside: Mapping[str, int] = field(default_factory=dict)
    """Rows by rule."""


_ATTEMPT = RowCodec(
    _ATTEMPTS,
    Attempt,
    "period",
    ", or delete it: it says how the last attempt went, and nothing hangs on it",
)
_RUN = RowCodec(_RUNS, RunRecord, "run")
_FACTS = ("seconds", "n_units", "n_read", "sample_ratio_p", "set_aside")


class AttemptLog:
    """What the ledger of an experiment keeps of its runs."""

    def __init__(self, ledger: Ledger, experiment: str) -> None:
        """Take the ledger; nothing is read or made yet."""
        self._ledger = ledger
        self._experiment = experiment

    def last(self) -> dict[str, Attempt]:
        """The last attempt at each period; changes nothing."""
        rows = self._ledger.find(_ATTEMPTS, experiment=self._experiment)
        return {attempt.period: attempt for attempt in map(_ATTEMPT.read, rows)}

    @contextmanager
    def attempt(self, period: str) -> Iterator["OpenAttempt"]:
        """Note how the attempt at ``period`` ends that this block is.

        An error passes on as it is, and is noted in its own words, unless these say how rows
        compare with those of a published period.
        """
        began = OpenAttempt(self._ledger, self._experiment, period, clock.now())
        try:
            yield began
        except BaseException as error:
            with suppress(ClusterdpError):  # then the error is worth more than this note
                began.note(*self.ending(period, error))
            raise
        with suppress(ClusterdpError):  # the release is public, which the ledger knows better
            began.note(AttemptState.PUBLISHED)

    def ending(self, period: str, error: BaseException) -> tuple[AttemptState, str | None]:
        """How an attempt ended by ``error``, and why; nothing of how rows compare."""
        if isinstance(error, ConflictError) and self._is_public(period):
            return AttemptState.PUBLISHED, None
        if isinstance(error, BudgetError):
            return AttemptState.REFUSED, str(error)
        if isinstance(error, NoFileError):
            return AttemptState.NO_FILE, str(error)
        return AttemptState.FAILED, reason_of(error)

    def _of(self, table: sa.Table, period: str) -> tuple[sa.ColumnElement[bool], ...]:
        return table.c.experiment == self._experiment, table.c.period == period

    def _is_public(self, period: str) -> bool:
        """Whether a release of the period is, or may have been, public."""
        entries = self._ledger.charges(*self._of(CHARGES, period))
        return any(entry.counts and entry.state not in OPEN for entry in entries)

    def keep(self, run: RunRecord) -> None:
        """Keep how a run ended, in place of the last one of its period that ended likewise."""
        is_published = run.state == AttemptState.PUBLISHED
        facts = {name: getattr(run, name) for name in _FACTS}
        row = {"experiment": self._experiment, "facts": json.dumps(facts)}
        row |= _RUN.values(
            **{name: value for name, value in vars(run).items() if name not in facts}
        )
        published = AttemptState.PUBLISHED.value
        alike = _RUNS.c.state == published if is_published else _RUNS.c.state != published
        changes = [
            sa.delete(_RUNS).where(alike, *self._of(_RUNS, run.period)),
            sa.insert(_RUNS).values(row),
        ]
        if is_published:  # what comes of this release, or after it, is news again; the end is not
            of_release = _NOTICES.c.event != CLOSED
            changes.append(sa.delete(_NOTICES).where(of_release, *self._of(_NOTICES, run.period)))
        self._ledger.write(*changes)

    def runs(self) -> list[RunRecord]:
        """The runs that are kept, the oldest end first; changes nothing.

        A row that is none of this program's is left out: nothing hangs on it.
        """
        runs = []
        for row in self._ledger.find(_RUNS, experiment=self._experiment):
            with suppress(InputError, KeyError, TypeError, ValueError):
                runs.append(_RUN.read({**json.loads(row["facts"]), **row}))
        return sorted(runs, key=lambda run: run.ended_at)

    def notices(self) -> set[tuple[str, str]]:
        """The periods and events that people were told of; changes nothing."""
        rows = self._ledger.find(_NOTICES, experiment=self._experiment)
        return {(str(row["period"]), str(row["event"])) for row in rows}

    def note_told(self, period: str, event: str, now: datetime) -> None:
        """Note that people were told of an event of a period."""
        named = {"experiment": self._experiment, "period": period, "event": event}
        row = {**named, "sent_at": now.isoformat()}
        self._ledger.write(*replacing(_NOTICES, row, *named))


def reason_of(error: BaseException) -> str:
    """An error as the reason of a failure; of errors that nobody foresaw the kind alone."""
    if isinstance(error, ClusterdpError):
        return str(error)
    if isinstance(error, Exception) and not was_interrupted():
        return f"unforeseen failure ({type(error).__name__})"
    return "interrupted"


@dataclass
class OpenAttempt:
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
        row = {"experiment": self._experiment} | _ATTEMPT.values(
            period=self._period,
            state=state,
            reason=reason if reason is None else reason[:_LONGEST],
            started_at=self._started_at,
            ended_at=None if is_running else clock.now(),
            host=socket.gethostname(),
            folder=self._folder if is_running else None,
        )
        self._ledger.write(*replacing(_ATTEMPTS, row, "experiment", "period"))
