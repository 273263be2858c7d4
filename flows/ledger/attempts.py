"""What a ledger keeps of runs, beside the charges: how they ended, and what people were told.

Of each period of an experiment the last run that published it, and the last other one, ended or on
its way: why it is not there yet. And of what was told to people, that it was.
"""

from datetime import datetime

import sqlalchemy as sa

from flows.ledger.database import Ledger
from flows.ledger.ends import ATTEMPT, Attempt, AttemptState
from flows.ledger.tables import ENDS, NOTICES, replacing
from flows.runtime.interruption import was_interrupted
from schemas.errors import ClusterdpError

_LONGEST = 2000  # characters of a reason
CLOSED = "closed"
"""The event, of its last period, that people were told of the end of an experiment: once."""


class AttemptLog:
    """What the ledger of an experiment keeps of its runs."""

    def __init__(self, ledger: Ledger, experiment: str) -> None:
        """Take the ledger; nothing is read or made yet."""
        self._ledger = ledger
        self._experiment = experiment

    def attempts(self) -> list[Attempt]:
        """The runs that are kept, the oldest first; changes nothing."""
        rows = self._ledger.find(ENDS, experiment=self._experiment)
        return sorted(map(ATTEMPT.read, rows), key=lambda attempt: attempt.at)

    def keep(self, attempt: Attempt) -> None:
        """Keep how a run stands, in place of what was kept of it and of the last one like it.

        Of a period the runs that published it are alike, and so are all others.
        """
        row = {"experiment": self._experiment} | ATTEMPT.values(**vars(attempt))
        if attempt.reason is not None:
            row["reason"] = attempt.reason[:_LONGEST]
        published = AttemptState.PUBLISHED.value
        is_published = attempt.state == published
        alike = ENDS.c.state == published if is_published else ENDS.c.state != published
        before = sa.and_(alike, *self._of(ENDS, attempt.period))
        changes = [
            sa.delete(ENDS).where(sa.or_(before, ENDS.c.run == attempt.run)),
            sa.insert(ENDS).values(row),
        ]
        if is_published:  # what comes of this release, or after it, is news again; the end is not
            of_release = NOTICES.c.event != CLOSED
            changes.append(sa.delete(NOTICES).where(of_release, *self._of(NOTICES, attempt.period)))
        self._ledger.write(*changes)

    def drop(self, run: str) -> None:
        """Keep nothing of a run."""
        self._ledger.write(sa.delete(ENDS).where(ENDS.c.run == run))

    def _of(self, table: sa.Table, period: str) -> tuple[sa.ColumnElement[bool], ...]:
        return table.c.experiment == self._experiment, table.c.period == period

    def notices(self) -> set[tuple[str, str]]:
        """The periods and events that people were told of; changes nothing."""
        rows = self._ledger.find(NOTICES, experiment=self._experiment)
        return {(str(row["period"]), str(row["event"])) for row in rows}

    def note_told(self, period: str, event: str, now: datetime) -> None:
        """Note that people were told of an event of a period."""
        named = {"experiment": self._experiment, "period": period, "event": event}
        row = {**named, "sent_at": now.isoformat()}
        self._ledger.write(*replacing(NOTICES, row, *named))


def reason_of(error: BaseException) -> str:
    """An error as the reason of a failure; of errors that nobody foresaw the kind alone."""
    if isinstance(error, ClusterdpError):
        return str(error)
    if isinstance(error, Exception) and not was_interrupted():
        return f"unforeseen failure ({type(error).__name__})"
    return "interrupted"
