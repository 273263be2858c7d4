"""The one record of a run: that it is on its way, or how it ended.

All in it is public, and no reason holds an outcome or hangs on one: a run that found its period
public already, with the same rows or with others, is not kept, as which it was hangs on outcomes.
"""

import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from json import loads
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from flows.ledger.rows import RowCodec
from flows.ledger.tables import ENDS
from flows.released.file.draft import run_of
from flows.runtime import clock
from schemas.errors import InputError


class AttemptState(StrEnum):
    """How an attempt at a period has ended, if it has."""

    RUNNING = "running"
    """Not ended, unless its run is dead."""
    PUBLISHED = "published"
    REFUSED = "refused"
    """By the budget."""
    NO_FILE = "no_file"
    """A file that it needs was not there."""
    FAILED = "failed"
    """For any other reason."""


@dataclass(frozen=True)
class Attempt:
    """A run at a period; nothing in it hangs on an outcome, but that its length may, faintly."""

    run: str
    """The identifier that its log has."""
    period: str
    state: AttemptState
    reason: str | None = None
    """Why nothing was published."""
    at: datetime = field(default_factory=lambda: clock.now().replace(microsecond=0))
    """When it ended or, as long as it runs, when it began: UTC, in whole seconds."""
    host: str = field(default_factory=socket.gethostname)
    folder: Path | None = None
    """The working folder of one that runs; whoever can lock it knows that the run is dead."""
    release_id: str | None = None
    seconds: int | None = None
    """How long it took, rounded up to whole seconds."""
    n_units: int | None = None
    n_read: int | None = None
    sample_ratio_p: float | None = None
    set_aside: Mapping[str, int] = field(default_factory=dict)
    """Rows by rule."""


ATTEMPT = RowCodec(
    ENDS,
    Attempt,
    "run",
    ", or delete it: it says how a run ended, and nothing hangs on it",
)
OLDER = ("clusterdp_runs", "clusterdp_attempts")
"""What was kept of runs before version 4: of each period the last that published it and the last
that did not, without a reason; and how the last attempt at it stands."""


def older_attempts(connection: sa.Connection) -> list[dict[str, Any]]:
    """What a ledger of before version 4 has of runs, as rows of :data:`ENDS`.

    An attempt takes the place of the run that did not publish. One at a period that a run has
    published was not kept as a run, and is none here. Rows that are damaged are left out.
    """
    tables = sa.inspect(connection).get_table_names()
    rows: dict[tuple[str, str, bool], dict[str, Any]] = {}
    for name in OLDER:
        query = sa.select(sa.text("*")).select_from(sa.table(name))
        for row in connection.execute(query).mappings() if name in tables else ():
            key = row["experiment"], row["period"], row["state"] == AttemptState.PUBLISHED
            is_run = "facts" in row
            if not is_run and (key[2] or (*key[:2], True) in rows):
                continue
            with suppress(InputError, TypeError, ValueError):
                made = ATTEMPT.values(**vars(_older_run(row) if is_run else _older_attempt(row)))
                ATTEMPT.read(made)
                rows[key] = {"experiment": row["experiment"], **made}
    return list(rows.values())


def _older_run(row: sa.RowMapping) -> Attempt:
    return Attempt(
        row["run"],
        row["period"],
        row["state"],
        at=row["ended_at"],
        host="unknown",
        release_id=row["release_id"],
        **loads(row["facts"]),
    )


def _older_attempt(row: sa.RowMapping) -> Attempt:
    at: Any = str(row["ended_at"] or row["started_at"])
    folder = row["folder"]
    run = None if folder is None else run_of(Path(folder))
    name = run or f"{row['experiment']}.{row['period']}"
    return Attempt(name, row["period"], row["state"], row["reason"], at, row["host"], folder)
