"""Where each period of an experiment stands: what the ledger, the clock and the schedule say of it.

The ledger's charges come first, then the last attempt, then the clock. No log is looked at: whether
there are files for a period is found out by trying it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Any

from flows.ledger.attempts import Attempt, AttemptState
from flows.ledger.files import Found
from flows.ledger.rules import Entry, State, utc_text
from flows.released.file.draft import draft_in
from flows.runtime.working_folders import is_alive
from flows.schedule.periods import Schedule, day_of
from schemas.names import ReleaseName

_UNSEEN = timedelta(days=1)
"""For so long an attempt of another machine, whose files cannot be seen from here, is held for
alive. It has no charge yet, or the ledger would know: to try again does no harm."""


class PeriodState(StrEnum):
    """Where a period stands."""

    PUBLISHED = "published"
    DUE = "due"
    """Complete, and not tried yet, or its run died."""
    WAITING = "waiting"
    """Not complete yet, or its files have not come yet."""
    RUNNING = "running"
    REFUSED = "refused"
    """By the budget."""
    FAILED = "failed"
    LOST = "lost"
    """Its file is gone, or its run died while publishing: it may have been seen."""
    ALTERED = "altered"
    """A file has its name that is not the one that was drawn, or that nobody has drawn."""
    WITHDRAWN = "withdrawn"
    """Public, and not to be used any more, as its operator says."""
    PRUNED = "pruned"
    """Was public; its file was removed as too old."""


FOR_A_PERSON = (PeriodState.LOST, PeriodState.ALTERED)
"""No run mends these."""
_TO_TRY = (PeriodState.DUE, PeriodState.REFUSED, PeriodState.FAILED, PeriodState.WAITING)
"""Of periods that are due; those that wait then wait for their files."""


@dataclass(frozen=True)
class Standing:
    """Where a period stands, and why."""

    period: str
    state: PeriodState
    due_at: datetime | None
    """UTC; None where it is none of a schedule's."""
    release_id: str | None = None
    """Of the last release that is public, or was."""
    reason: str | None = None
    is_due: bool = False
    """Whether it is one of the schedule's whose time has come; not told of what is public."""
    is_elsewhere: bool = False
    """Whether its file was released into another folder, or by another machine into its own."""

    @property
    def is_settled(self) -> bool:
        """Whether a release of it was public, so that no run tries it of itself."""
        return self.release_id is not None

    @property
    def is_to_try(self) -> bool:
        """Whether a run that catches up tries it."""
        return self.is_due and self.state in _TO_TRY

    def as_json(self) -> dict[str, Any]:
        """A period of ``clusterdp status --json``."""
        return {
            "period": self.period,
            "state": str(self.state),
            "release_id": self.release_id,
            "due_at": None if self.due_at is None else utc_text(self.due_at),
            "reason": self.reason,
        }


def standings(
    schedule: Schedule | None,
    now: datetime,
    entries: Iterable[Entry],
    attempts: Mapping[str, Attempt],
    found: Mapping[int, Found],
    strays: Collection[ReleaseName] = (),
) -> list[Standing]:
    """Where every period stands that the schedule, the ledger or the folder of releases knows.

    ``entries`` and ``attempts`` are those of the experiment, ``found`` says where the file of each
    entry is, ``strays`` are files with names of releases that the ledger does not know.
    """
    charged: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.counts:
            charged.setdefault(entry.name.period, []).append(entry)
    planted = {name.period: name for name in strays}
    begun = [] if schedule is None else [day.isoformat() for day in schedule.begun(now)]
    periods = sorted({*begun, *charged, *attempts, *planted})
    of_schedule = set(begun)
    told = []
    for period in periods:
        day = None if schedule is None else _scheduled_day(schedule, period)
        due_at = None if schedule is None or day is None else schedule.due_at(day)
        missing_at = None if schedule is None or day is None else schedule.missing_at(day)
        standing = (
            _by_stray(period, due_at, planted.get(period))
            or _by_charges(period, due_at, charged.get(period, ()), found, now)
            or _by_attempt(period, due_at, missing_at, attempts.get(period), now)
        )
        if standing is None and period in of_schedule:
            standing = _untried(period, due_at, now)
        if standing is not None:
            told.append(standing)
    return told


def _scheduled_day(schedule: Schedule, period: str) -> date | None:
    day = day_of(period)
    return day if day is not None and schedule.has(day) else None


def _by_charges(
    period: str,
    due_at: datetime | None,
    entries: Sequence[Entry],
    found: Mapping[int, Found],
    now: datetime,
) -> Standing | None:
    """By the charges for it, the last that is public first; None where none of them counts."""
    seen = [(entry, _outlook(entry, found)) for entry in entries]
    public = [entry for entry, outlook in seen if outlook == State.PUBLISHED]
    if public:
        return _by_public(period, due_at, public, found)
    lost = [entry for entry, outlook in seen if outlook == State.LOST]
    if lost:
        return _without_file(period, due_at, max(lost, key=lambda entry: entry.name), found)
    for entry, outlook in seen:
        if outlook in (State.RESERVED, State.PUBLISHING):
            return Standing(period, PeriodState.RUNNING, due_at, None, _running_text(entry))
    for entry, outlook in seen:
        if outlook is None:
            if found.get(entry.id) == Found.ALTERED:
                return _by_stray(period, due_at, entry.name)
            reason = "its run died while publishing; the next run finishes it"
            is_due = due_at is not None and due_at <= now
            return Standing(period, PeriodState.DUE, due_at, None, reason, is_due)
    return None


def _by_public(
    period: str, due_at: datetime | None, public: Sequence[Entry], found: Mapping[int, Found]
) -> Standing:
    """By the releases of a period that are public, or were: the one to be used, if there is one."""
    good = [entry for entry in public if entry.withdrawal is None]
    files = [entry for entry in good if entry.pruned_at is None]
    last = max(files or good or public, key=lambda entry: entry.name)
    release_id = last.name.release_id
    if files and found.get(last.id) in (Found.GONE, Found.ALTERED):
        return _without_file(period, due_at, last, found)
    if files:
        where = f"its file is not here: {last.host} released it into {last.path.parent}"
        is_elsewhere = found.get(last.id) == Found.ELSEWHERE
        reason = where if is_elsewhere else None
        state = PeriodState.PUBLISHED
        return Standing(period, state, due_at, release_id, reason, is_elsewhere=is_elsewhere)
    if last.withdrawal is not None:
        reason = (
            f"withdrawn on {last.withdrawal.at:%Y-%m-%d}: {last.withdrawal.reason} (another draw "
            f"costs privacy again: clusterdp release CONFIG --period {period} --revise)"
        )
        return Standing(period, PeriodState.WITHDRAWN, due_at, release_id, reason)
    reason = f"its file was pruned on {last.pruned_at:%Y-%m-%d}, as retention.releases says"
    return Standing(period, PeriodState.PRUNED, due_at, release_id, reason)


def _without_file(
    period: str, due_at: datetime | None, last: Entry, found: Mapping[int, Found]
) -> Standing:
    """A release that may have been seen, and whose file is not what was drawn, or not there."""
    release_id, state = last.name.release_id, PeriodState.LOST
    what = f"the file of {release_id} is gone"
    if last.state != State.PUBLISHED:
        what = f"the run of {release_id} died while publishing, and its file is gone"
    if found.get(last.id) == Found.ALTERED:
        what, state = f"{last.path.name} is not the file that was published", PeriodState.ALTERED
    withdraw = "withdraw it, " if last.state == State.PUBLISHED else ""
    reason = (
        f"{what}: put it back from a copy, {withdraw}or ask for another draw, which costs "
        f"privacy again: clusterdp release CONFIG --period {period} --revise"
    )
    return Standing(period, state, due_at, release_id, reason)


def _outlook(entry: Entry, found: Mapping[int, Found]) -> State | None:
    """What the next run will make of a charge; None where it will publish it from its draft.

    One that was lost is published again once its file is put back.
    """
    is_there = found.get(entry.id) in (Found.HERE, Found.ELSEWHERE)
    if entry.state == State.LOST and is_there:
        return State.PUBLISHED
    if entry.state not in (State.RESERVED, State.PUBLISHING) or entry.draft is None:
        return entry.state
    alive = is_alive(entry.draft, entry.host)
    if alive is None or alive:
        return entry.state
    if entry.state == State.RESERVED:
        return State.VOID
    if is_there:
        return State.PUBLISHED
    return None if draft_in(entry.draft).exists() else State.LOST


def _running_text(entry: Entry) -> str:
    since = f"{entry.created_at:%Y-%m-%d %H:%M} UTC"
    release_id = entry.name.release_id
    return (
        f"{release_id} is being released on {entry.host}, since {since}. If you know that run to "
        f"be dead: clusterdp ledger CONFIG --abandon {release_id}"
    )


def _by_stray(period: str, due_at: datetime | None, name: ReleaseName | None) -> Standing | None:
    if name is None:
        return None
    reason = (
        f"a file is called {name.release_id} that this ledger has not drawn: move it out of the "
        "folder; or, if the ledger was lost, charge for it (clusterdp restore)"
    )
    return Standing(period, PeriodState.ALTERED, due_at, None, reason)


def _by_attempt(
    period: str,
    due_at: datetime | None,
    missing_at: datetime | None,
    attempt: Attempt | None,
    now: datetime,
) -> Standing | None:
    """By the last attempt at it; None where there is none, or it is none of the schedule's.

    (One that says "published" has lost its charge with a ledger that was replaced, and its file.)
    """
    if attempt is None or attempt.state == AttemptState.PUBLISHED or due_at is None:
        return None
    if attempt.state == AttemptState.RUNNING:
        when = f"{attempt.started_at:%Y-%m-%d %H:%M} UTC"
        if _is_running(attempt, now):
            reason = f"a run on {attempt.host} has been at it since {when}"
            return Standing(period, PeriodState.RUNNING, due_at, None, reason)
        untried = _untried(period, due_at, now)
        reason = f"a run on {attempt.host}, begun {when}, died; the next run begins anew"
        return Standing(period, untried.state, due_at, None, reason, untried.is_due)
    if now < due_at:
        reason = f"was tried before it was due: {attempt.reason}"
        return Standing(period, PeriodState.WAITING, due_at, None, reason)
    if attempt.state == AttemptState.NO_FILE and missing_at is not None and now < missing_at:
        reason = f"{attempt.reason} (waits for it until {utc_text(missing_at)})"
        return Standing(period, PeriodState.WAITING, due_at, None, reason, is_due=True)
    refused = attempt.state == AttemptState.REFUSED
    state = PeriodState.REFUSED if refused else PeriodState.FAILED
    return Standing(period, state, due_at, None, attempt.reason, is_due=True)


def _is_running(attempt: Attempt, now: datetime) -> bool:
    """Whether an attempt that has no charge may be alive."""
    if attempt.folder is None:
        return False
    alive = is_alive(attempt.folder, attempt.host)
    return abs(now - attempt.started_at) < _UNSEEN if alive is None else alive


def _untried(period: str, due_at: datetime | None, now: datetime) -> Standing:
    if due_at is None or now < due_at:
        return Standing(period, PeriodState.WAITING, due_at)
    return Standing(period, PeriodState.DUE, due_at, is_due=True)
