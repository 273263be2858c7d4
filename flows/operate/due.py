"""Catching up: every period that is due and not published, the oldest first.

One that is refused or fails does not stop the others. What is public is not read again, and whether
a period is public is asked of the ledger just before it is tried, as others may be at work.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.config.load import load
from flows.config.model.experiment import Config
from flows.ledger.account import Account
from flows.ledger.attempts import CLOSED, reason_of
from flows.ledger.standing import FOR_A_PERSON, PeriodState, Standing
from flows.operate.watch.run import (
    after_all,
    standing_of,
    tell_of_failure,
    tell_of_missed,
    telling_at_the_end,
)
from flows.release import ReleaseResult, release_period
from flows.released.lists import Closing
from flows.runtime import clock
from flows.runtime.interruption import stop_if_interrupted
from flows.schedule.periods import Schedule
from schemas.errors import (
    BudgetError,
    ClusterdpError,
    ConfigError,
    ConflictError,
    InputError,
    NoFileError,
)

ReleasePeriod = Callable[[str, str], ReleaseResult]

_FIRST = 3  # periods that a failure names
_CODES: dict[PeriodState, int] = {
    PeriodState.REFUSED: BudgetError.exit_code,
    PeriodState.FAILED: InputError.exit_code,
    # A person has to look, or wait.
    PeriodState.LOST: ConflictError.exit_code,
    PeriodState.ALTERED: ConflictError.exit_code,
    PeriodState.RUNNING: ConflictError.exit_code,
}
_KINDS: dict[int, type[ClusterdpError]] = {
    kind.exit_code: kind for kind in (InputError, BudgetError, ConflictError)
}


@dataclass(frozen=True)
class PeriodResult:
    """What became of a period that is due."""

    period: str
    status: str
    """``published`` (or ``unchanged``, where another run was faster), ``refused``, ``failed``,
    ``waiting`` (for its files), ``running`` (in another run), ``lost`` or ``altered``."""
    reason: str | None
    exit_code: int
    """That of a release of this period alone; 0 where it is public, or waits for its files."""
    release_id: str | None
    release: ReleaseResult | None = None
    """What was made in this run."""

    def as_json(self) -> dict[str, Any]:
        """One of the ``releases`` of ``clusterdp release --due --json``."""
        made: dict[str, Any] = {"release_id": self.release_id, "path": None}
        if self.release is not None:
            made = self.release.as_json()
        return {"period": self.period, **made, "status": self.status, "reason": self.reason}


@dataclass(frozen=True)
class DueResult:
    """What became of all periods of a configuration that were due and not public."""

    config: str
    """Its absolute path."""
    experiment: str | None
    """None where its periods could not be found out."""
    releases: tuple[PeriodResult, ...] = ()
    """The oldest first."""
    notes: tuple[str, ...] = ()
    """Warnings about what dead runs left."""
    closing: Closing | None = None
    """How the experiment ended; None while one of its periods may still come by itself."""
    farewells: tuple[str, ...] = ()
    """That it has ended, and what is left to do; said once."""
    error: ClusterdpError | None = None

    @property
    def exit_code(self) -> int:
        """0 where nothing that is due is left; else the code of the oldest that is not public."""
        if self.error is not None:
            return self.error.exit_code
        return next((one.exit_code for one in self.releases if one.exit_code), 0)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the operator should look into."""
        of_releases = [
            f"{one.period}: {warning}"
            for one in self.releases
            if one.release is not None
            for warning in one.release.warnings
        ]
        return (*self.notes, *of_releases)

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp release --due --json`` of one configuration."""
        return {
            "experiment": self.experiment,
            "releases": self.releases_as_json(),
            "warnings": list(self.warnings),
            "closing": None if self.closing is None else self.closing.as_json(),
        }

    def releases_as_json(self) -> list[dict[str, Any]]:
        """Each of the ``releases``, with the experiment that it is of."""
        return [{"experiment": self.experiment, **one.as_json()} for one in self.releases]

    @property
    def failure(self) -> ClusterdpError | None:
        """One error for all periods that are left; None where none is."""
        left = [one for one in self.releases if one.exit_code]
        if not left:
            return self.error
        named = "; ".join(f"{one.period} ({one.status}): {one.reason}" for one in left[:_FIRST])
        more = f"; and {len(left) - _FIRST:,} more" if len(left) > _FIRST else ""
        kind = _KINDS.get(self.exit_code, ClusterdpError)
        return kind(
            f"{self.experiment}: of {len(self.releases):,} periods that were due, {len(left):,} "
            f"are not published: {named}{more}"
        )


@dataclass(frozen=True)
class SeveralDue:
    """What became of all that was due in several experiments."""

    configs: tuple[DueResult, ...]
    """In the order that they were named in."""

    @property
    def exit_code(self) -> int:
        """0 where nothing that is due is left anywhere, else that of the first that has some."""
        return next((one.exit_code for one in self.configs if one.exit_code), 0)

    @property
    def farewells(self) -> tuple[str, ...]:
        """That experiments have ended, each said once."""
        return tuple(farewell for one in self.configs for farewell in one.farewells)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the operator should look into."""
        return tuple(f"{one.experiment}: {said}" for one in self.configs for said in one.warnings)

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp release CONFIG… --due --json``."""
        return {
            "experiments": [
                {
                    "config": one.config,
                    "experiment": one.experiment,
                    "exit_code": one.exit_code,
                    "reason": None if one.error is None else str(one.error),
                }
                for one in self.configs
            ],
            "releases": [made for one in self.configs for made in one.releases_as_json()],
            "warnings": list(self.warnings),
        }


def release_all_due(
    config_paths: Sequence[str], release: ReleasePeriod = release_period
) -> SeveralDue:
    """Release what is due of several experiments, one after another (:func:`release_due`).

    One whose configuration, ledger or keys cannot be used stops none of the others.
    """
    with telling_at_the_end():
        paths = (str(Path(one).absolute()) for one in config_paths)
        return SeveralDue(tuple(_due_of(path, release) for path in paths))


def _due_of(path: str, release: ReleasePeriod) -> DueResult:
    try:
        return release_due(path, release)
    except ClusterdpError as error:
        return DueResult(path, None, error=error)
    except Exception as error:  # whatever it is, it must not stop the others
        stop_if_interrupted()
        words = f"{reason_of(error)}; clusterdp release CONFIG --due --debug shows where"
        return DueResult(path, None, error=ClusterdpError(words))


@telling_at_the_end()
def release_due(config_path: str, release: ReleasePeriod = release_period) -> DueResult:
    """Release every period of a schedule that is due and not published, the oldest first.

    Every period that is ``due``, ``refused`` or ``failed`` is tried once, and so is one that waits
    for its files; ``lost`` and ``altered`` ones wait for a person, ``running`` ones for their run.

    Args:
        config_path: The configuration file, absolute or relative to the current folder.
        release: What releases one of them.
    """
    path = Path(config_path).absolute()
    config = load(path)
    schedule = config.calendar
    if schedule is None:
        raise ConfigError(
            "schedule", f"missing in {path}: it says which periods there are, and when each is due"
        )
    account = Account.of(config)
    try:
        notes = account.settle()
        account.clear_away()
        standings = account.standings(schedule, clock.now())
    except Exception as error:
        tell_of_failure(config, account, error)
        raise
    tell_of_missed(config, account)
    releases = tuple(
        _caught_up(str(path), account, schedule, one, release)
        for one in standings
        if one.is_to_try or one.state in (*FOR_A_PERSON, PeriodState.RUNNING)
    )
    after_all(config, account, standings)
    closing = account.closing(clock.now())
    farewells = () if closing is None else _farewells(config, account, closing)
    return DueResult(str(path), config.experiment, releases, tuple(notes), closing, farewells)


def _farewells(config: Config, account: Account, closing: Closing) -> tuple[str, ...]:
    notice = (closing.last_period, CLOSED)
    try:
        if notice in account.log.notices():
            return ()
    except ClusterdpError:  # who cannot see whether it was said leaves it to the next run
        return ()
    try:
        account.settle()  # lets the list beside the releases say so, whatever the last run did
        account.log.note_told(*notice, clock.now())
    except ClusterdpError:  # it is said once too often then
        pass
    return (
        f"{config.experiment} {closing.in_words}; nothing more comes by itself. Write the final "
        f"report: clusterdp report {config.releases} -o FOLDER",
    )


def _caught_up(
    path: str, account: Account, schedule: Schedule, before: Standing, release: ReleasePeriod
) -> PeriodResult:
    stop_if_interrupted()
    standing = standing_of(account, schedule, before.period) or before
    if not standing.is_to_try:
        return _untouched(standing)
    try:
        made = release(path, before.period)
    except Exception as error:  # whatever it is, it must not stop the others
        stop_if_interrupted()
        return _not_made(before.period, standing_of(account, schedule, before.period), error)
    return PeriodResult(before.period, made.status, None, 0, made.release_id, made)


def _untouched(standing: Standing) -> PeriodResult:
    code = _CODES.get(standing.state, 0)
    status = str(standing.state)
    return PeriodResult(standing.period, status, standing.reason, code, standing.release_id)


def _not_made(period: str, after: Standing | None, error: Exception) -> PeriodResult:
    """What became of a period whose release ended by an error.

    Where it is public now, or being made, another run was faster: the error may say how rows
    compare, which is for nobody who only catches up. And it may wait for its files, if these are
    what it lacks: where the ledger could not be asked or written, it may say so of a night before.
    """
    settled = (PeriodState.PUBLISHED, PeriodState.RUNNING, *FOR_A_PERSON)
    waits = (PeriodState.WAITING,) if isinstance(error, NoFileError) else ()
    if after is not None and after.state in (*settled, *waits):
        return _untouched(after)
    status = PeriodState.REFUSED if isinstance(error, BudgetError) else PeriodState.FAILED
    reason = reason_of(error)
    if not isinstance(error, ClusterdpError):
        reason += f"; clusterdp release CONFIG --period {period} --debug shows where"
    code = error.exit_code if isinstance(error, ClusterdpError) else 1
    return PeriodResult(period, str(status), reason, code, None)
