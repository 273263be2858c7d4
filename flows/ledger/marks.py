"""What the ledger notes of releases after they were published: withdrawn, and pruned.

Neither changes what was charged.
"""

from collections.abc import Callable, Collection, Iterable
from datetime import datetime

import sqlalchemy as sa

from flows.ledger.database import Ledger, told_plainly
from flows.ledger.rules import Entry, State, Withdrawal, utc_text
from flows.ledger.standing import FOR_A_PERSON, PeriodState, Standing
from flows.ledger.tables import CHARGES, ENTRY, select
from flows.released.lists import Closing, Lists, PrunedRelease, WithdrawnRelease
from flows.schedule.periods import Schedule
from schemas.errors import ConfigError, shown


@told_plainly
def note_withdrawal(
    ledger: Ledger, experiment: str, release_id: str, reason: str | None, now: datetime
) -> bool:
    """Note why a release is withdrawn, or that it is no longer (None); whether that is news.

    Raises ConfigError where the ledger knows no such release that is public.
    """
    named = sa.and_(CHARGES.c.slot == release_id, CHARGES.c.experiment == experiment)
    with ledger.alone() as connection:
        entries = select(connection, named)
        if not entries or entries[0].state != State.PUBLISHED:
            problem = f"is {entries[0].state}" if entries else "is not in the ledger"
            raise ConfigError(
                "RELEASE_ID",
                f"{shown(release_id)} {problem}; only a published release of {experiment!r} can be "
                "withdrawn (clusterdp ledger CONFIG lists all)",
            )
        (entry,) = entries
        before = None if entry.withdrawal is None else entry.withdrawal.reason
        if before == reason:
            return False
        row = ENTRY.values(withdrawal=None if reason is None else Withdrawal(reason, now))
        connection.execute(sa.update(CHARGES).where(CHARGES.c.id == entry.id).values(row))
        return True


def note_pruned(ledger: Ledger, charges: Collection[int], now: datetime) -> None:
    """Note that the files of these charges are pruned from now on."""
    noted = sa.update(CHARGES).values(ENTRY.values(pruned_at=now))
    ledger.write(
        *(noted.where(CHARGES.c.id == one, CHARGES.c.pruned_at.is_(None)) for one in charges)
    )


def lists_of(entries: Iterable[Entry], closing: Closing | None) -> Lists:
    """What is said beside the releases of an experiment, by all its entries."""
    withdrawn, pruned = {}, {}
    for entry in entries:
        release_id = entry.name.release_id
        if entry.state != State.PUBLISHED:
            continue
        if entry.withdrawal is not None:
            at = utc_text(entry.withdrawal.at)
            withdrawn[release_id] = WithdrawnRelease(release_id, at, entry.withdrawal.reason)
        if entry.pruned_at is not None:
            amounts = entry.cost.epsilon, entry.cost.delta
            at = utc_text(entry.pruned_at)
            pruned[release_id] = PrunedRelease(release_id, at, *amounts, entry.file_sha256)
    return Lists(withdrawn, pruned, closing)


def closing_of(
    experiment: str,
    schedule: Schedule | None,
    periods: Callable[[], Iterable[Standing]],
    now: datetime,
) -> Closing | None:
    """How an experiment ended; None while a run may still release one of its periods.

    That is any that was never public: one that failed, was refused or has no files is tried again
    by each run. Where ``periods`` stand is not asked while one is to come.
    """
    if schedule is None or schedule.until is None or schedule.next_due(now) is not None:
        return None
    due = [one for one in periods() if one.due_at is not None]
    if not due or not all(one.is_settled for one in due):
        return None

    def those(*states: PeriodState) -> tuple[str, ...]:
        return tuple(one.period for one in due if one.state in states)

    return Closing(
        experiment,
        schedule.since.isoformat(),
        schedule.until.isoformat(),
        len(due),
        not_published=those(*FOR_A_PERSON),
        withdrawn=those(PeriodState.WITHDRAWN),
        pruned=those(PeriodState.PRUNED),
        elsewhere=tuple(one.period for one in due if one.is_elsewhere),
    )
