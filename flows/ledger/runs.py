"""The runs of an experiment, kept beside the charges: for metrics, and for who looks into one.

Of each period the last run that published it, and the last one that did not; and of what was told
to people, that it was. A run that found its period public already, with the same rows or with
others, is not kept: which it was hangs on outcomes. All else here is public.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from flows.ledger.database import Ledger, told_plainly
from flows.ledger.tables import METADATA

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
PUBLISHED = "published"


@dataclass(frozen=True)
class RunRecord:
    """How a run ended; nothing in it hangs on an outcome, but that its length may, faintly."""

    run: str
    """The identifier that its log has."""
    period: str
    state: str
    """``published``, ``refused``, ``no_file`` or ``failed``."""
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


_FACTS = ("seconds", "n_units", "n_read", "sample_ratio_p", "set_aside")


@told_plainly
def write_run(ledger: Ledger, experiment: str, record: RunRecord) -> None:
    """Keep how a run ended, in place of the last one of its period that ended likewise."""
    published = record.state == PUBLISHED
    alike = _RUNS.c.state == PUBLISHED if published else _RUNS.c.state != PUBLISHED
    of_period = sa.and_(_RUNS.c.experiment == experiment, _RUNS.c.period == record.period)
    row = {
        "run": record.run,
        "experiment": experiment,
        "period": record.period,
        "state": record.state,
        "ended_at": record.ended_at.astimezone(UTC).isoformat(),
        "release_id": record.release_id,
        "facts": json.dumps({name: getattr(record, name) for name in _FACTS}),
    }
    with ledger.alone() as connection:
        connection.execute(sa.delete(_RUNS).where(of_period, alike))
        connection.execute(sa.insert(_RUNS).values(row))
        if published:  # what comes of this release, or after it, is news again
            of_notices = sa.and_(
                _NOTICES.c.experiment == experiment, _NOTICES.c.period == record.period
            )
            connection.execute(sa.delete(_NOTICES).where(of_notices))


@told_plainly
def read_runs(ledger: Ledger, experiment: str) -> list[RunRecord]:
    """The runs that are kept, the oldest end first; changes nothing."""
    with ledger.reading() as connection:
        if connection is None or not sa.inspect(connection).has_table(_RUNS.name):
            return []
        rows = connection.execute(sa.select(_RUNS).where(_RUNS.c.experiment == experiment))
        found = [_record(row._mapping) for row in rows]
    return sorted((one for one in found if one is not None), key=lambda one: one.ended_at)


@told_plainly
def told_notices(ledger: Ledger, experiment: str) -> set[tuple[str, str]]:
    """The periods and events that people were told of; changes nothing."""
    with ledger.reading() as connection:
        if connection is None or not sa.inspect(connection).has_table(_NOTICES.name):
            return set()
        query = sa.select(_NOTICES.c.period, _NOTICES.c.event)
        rows = connection.execute(query.where(_NOTICES.c.experiment == experiment))
        return {(str(period), str(event)) for period, event in rows}


@told_plainly
def note_told(ledger: Ledger, experiment: str, period: str, event: str, now: datetime) -> None:
    """Note that people were told of an event of a period."""
    row = {"experiment": experiment, "period": period, "event": event}
    same = sa.and_(*(_NOTICES.c[name] == value for name, value in row.items()))
    with ledger.alone() as connection:
        connection.execute(sa.delete(_NOTICES).where(same))
        connection.execute(sa.insert(_NOTICES).values({**row, "sent_at": now.isoformat()}))


def _record(values: Any) -> RunRecord | None:
    """A run, read back; None for a row that is none of this program's: nothing hangs on it."""
    try:
        facts = json.loads(values["facts"])
        ended_at = datetime.fromisoformat(values["ended_at"])
        return RunRecord(
            run=str(values["run"]),
            period=str(values["period"]),
            state=str(values["state"]),
            ended_at=ended_at if ended_at.tzinfo else ended_at.replace(tzinfo=UTC),
            release_id=values["release_id"],
            seconds=_whole(facts["seconds"]),
            n_units=_whole(facts["n_units"]),
            n_read=_whole(facts["n_read"]),
            sample_ratio_p=None
            if facts["sample_ratio_p"] is None
            else float(facts["sample_ratio_p"]),
            set_aside={str(rule): int(count) for rule, count in facts["set_aside"].items()},
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)
