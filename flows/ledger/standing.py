"""Where each period of an experiment stands: what the ledger, the clock and the schedule say of it.

The ledger's charges come first, then the last attempt, then the clock. No log is looked at: whether
there are files for a period is found out by trying it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from flows.ledger.ends import Attempt, AttemptState
from flows.ledger.rules import OPEN, Entry, State, utc_text
from flows.ledger.shelves.files import FileState
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


@dataclass(frozen=True)
class _Period:
    """A period that the schedule, the ledger or the folder of releases knows, at this moment."""

    name: str
    now: datetime
    due_at: datetime | None = None
    missing_at: datetime | None = None

    @property
    def is_due(self) -> bool:
        return self.due_at is not None and self.due_at <= self.now

    def stands(
        self,
        state: PeriodState,
        reason: str | None = None,
        release_id: str | None = None,
        **more: bool,
    ) -> Standing:
        return Standing(self.name, state, self.due_at, release_id, reason, **more)

    def untried(self, reason: str | None = None) -> Standing:
        state = PeriodState.DUE if self.is_due else PeriodState.WAITING
        return self.stands(state, reason, is_due=self.is_due)


def standings(
    schedule: Schedule | None,
    now: datetime,
    entries: Iterable[Entry],
    attempts: Mapping[str, Attempt],
    files: Mapping[int, FileState],
    strays: Collection[ReleaseName] = (),
) -> list[Standing]:
    """Where every period stands that the schedule, the ledger or the folder of releases knows.

    ``entries`` and ``attempts`` are those of the experiment, ``files`` says where the file of each
    entry is, ``strays`` are files with names of releases that the ledger does not know.
    """
    charged: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.counts:
            charged.setdefault(entry.name.period, []).append(entry)
    planted = {name.period: name for name in strays}
    begun = set() if schedule is None else {day.isoformat() for day in schedule.begun(now)}
    periods = (
        _period(schedule, name, now) for name in sorted({*begun, *charged, *attempts, *planted})
    )
    of_each = (
        _by_stray(period, planted.get(period.name))
        or _by_charges(period, charged.get(period.name, ()), files)
        or _by_attempt(period, attempts.get(period.name))
        or (period.untried() if period.name in begun else None)
        for period in periods
    )
    return [standing for standing in of_each if standing is not None]


def _period(schedule: Schedule | None, name: str, now: datetime) -> _Period:
    day = day_of(name)
    if schedule is None or day is None or not schedule.has(day):
        return _Period(name, now)
    return _Period(name, now, schedule.due_at(day), schedule.missing_at(day))


def _by_charges(
    period: _Period, entries: Sequence[Entry], files: Mapping[int, FileState]
) -> Standing | None:
    """By the charges for it, the last that is public first; None where none of them counts."""
    outlooks = [(entry, _outlook(entry, files)) for entry in entries]
    if public := [entry for entry, outlook in outlooks if outlook == State.PUBLISHED]:
        return _by_public(period, public, files)
    if lost := [entry for entry, outlook in outlooks if outlook == State.LOST]:
        return _without_file(period, max(lost, key=lambda entry: entry.name), files)
    if running := [entry for entry, outlook in outlooks if outlook in OPEN]:
        return period.stands(PeriodState.RUNNING, _running_text(running[0]))
    if drafted := [entry for entry, outlook in outlooks if outlook is None]:
        if files.get(drafted[0].id) == FileState.ALTERED:
            return _by_stray(period, drafted[0].name)
        reason = "its run died while publishing; the next run finishes it"
        return period.stands(PeriodState.DUE, reason, is_due=period.is_due)
    return None


def _by_public(
    period: _Period, public: Sequence[Entry], files: Mapping[int, FileState]
) -> Standing:
    """By the releases of a period that are public, or were: the one to be used, if there is one."""
    good = [entry for entry in public if entry.withdrawal is None]
    kept = [entry for entry in good if entry.pruned_at is None]
    last = max(kept or good or public, key=lambda entry: entry.name)
    release_id = last.name.release_id
    if kept and files.get(last.id) in (FileState.GONE, FileState.ALTERED):
        return _without_file(period, last, files)
    if kept:
        where = f"its file is not here: {last.host} released it into {last.path.parent}"
        is_elsewhere = files.get(last.id) == FileState.ELSEWHERE
        reason = where if is_elsewhere else None
        return period.stands(PeriodState.PUBLISHED, reason, release_id, is_elsewhere=is_elsewhere)
    if last.withdrawal is not None:
        reason = (
            f"withdrawn on {last.withdrawal.at:%Y-%m-%d}: {last.withdrawal.reason} (another draw "
            f"costs privacy again: clusterdp release CONFIG --period {period.name} --revise)"
        )
        return period.stands(PeriodState.WITHDRAWN, reason, release_id)
    reason = f"its file was pruned on {last.pruned_at:%Y-%m-%d}, as retention.releases says"
    return period.stands(PeriodState.PRUNED, reason, release_id)


def _without_file(period: _Period, last: Entry, files: Mapping[int, FileState]) -> Standing:
    """A release that may have been seen, and whose file is not what was drawn, or not there."""
    release_id, state = last.name.release_id, PeriodState.LOST
    what = f"the file of {release_id} is gone"
    if last.state != State.PUBLISHED:
        what = f"the run of {release_id} died while publishing, and its file is gone"
    if files.get(last.id) == FileState.ALTERED:
        what, state = f"{last.path.name} is not the file that was published", PeriodState.ALTERED
    withdraw = "withdraw it, " if last.state == State.PUBLISHED else ""
    reason = (
        f"{what}: put it back from a copy, {withdraw}or ask for another draw, which costs "
        f"privacy again: clusterdp release CONFIG --period {period.name} --revise"
    )
    return period.stands(state, reason, release_id)


def _outlook(entry: Entry, files: Mapping[int, FileState]) -> State | None:
    """What the next run will make of a charge; None where it will publish it from its draft.

    One that was lost is published again once its file is put back.
    """
    is_there = files.get(entry.id) in (FileState.HERE, FileState.ELSEWHERE)
    if entry.state == State.LOST and is_there:
        return State.PUBLISHED
    if entry.state not in OPEN or entry.draft is None:
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


def _by_stray(period: _Period, name: ReleaseName | None) -> Standing | None:
    if name is None:
        return None
    reason = (
        f"a file is called {name.release_id} that this ledger has not drawn: move it out of the "
        "folder; or, if the ledger was lost, charge for it (clusterdp restore)"
    )
    return period.stands(PeriodState.ALTERED, reason)


def _by_attempt(period: _Period, attempt: Attempt | None) -> Standing | None:
    """By the last attempt at it; None where there is none, or it is none of the schedule's.

    (One that says "published" has lost its charge with a ledger that was replaced, and its file.)
    """
    if attempt is None or attempt.state == AttemptState.PUBLISHED or period.due_at is None:
        return None
    if attempt.state == AttemptState.RUNNING:
        when = f"{attempt.at:%Y-%m-%d %H:%M} UTC"
        if _is_running(attempt, period.now):
            reason = f"a run on {attempt.host} has been at it since {when}"
            return period.stands(PeriodState.RUNNING, reason)
        return period.untried(
            f"a run on {attempt.host}, begun {when}, died; the next run begins anew"
        )
    why = attempt.reason or "a version of clusterdp before this one kept no reason"
    if not period.is_due:
        reason = f"was tried before it was due: {why}"
        return period.stands(PeriodState.WAITING, reason)
    missing_at = period.missing_at
    if attempt.state == AttemptState.NO_FILE and missing_at is not None and period.now < missing_at:
        reason = f"{why} (waits for it until {utc_text(missing_at)})"
        return period.stands(PeriodState.WAITING, reason, is_due=True)
    is_refused = attempt.state == AttemptState.REFUSED
    state = PeriodState.REFUSED if is_refused else PeriodState.FAILED
    return period.stands(state, why, is_due=True)


def _is_running(attempt: Attempt, now: datetime) -> bool:
    """Whether an attempt that has no charge may be alive."""
    if attempt.folder is None:
        return False
    alive = is_alive(attempt.folder, attempt.host)
    return abs(now - attempt.at) < _UNSEEN if alive is None else alive
