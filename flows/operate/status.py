"""Every period of every experiment, and why it is where it is; reads no log, changes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from flows.config.load import load
from flows.config.model.experiment import Config
from flows.ledger.account import Account
from flows.ledger.rules import utc_text
from flows.ledger.standing import FOR_A_PERSON, PeriodState, Standing
from flows.ledger.teachers import teachers_of
from flows.operate.watch.metrics import write_metrics
from flows.released.file.checks.stated import stated_warnings
from flows.released.lists import Closing
from flows.runtime import clock
from schemas.documents import Document
from schemas.errors import ClusterdpError, ConfigError, ConflictError


@dataclass(frozen=True)
class ExperimentStatus:
    """Where an experiment stands."""

    experiment: str
    periods: tuple[Standing, ...]
    """The oldest first."""
    next_due_at: datetime | None
    """The next moment at which a period becomes due, UTC; None without a schedule, or after it."""
    least_epsilon_left: float | None
    """What a person who has paid the most may still pay; None without a limit."""
    epsilon: float
    """What the next release costs."""
    last_period: str | None = None
    """The last period, where the schedule has an end (``until``)."""
    closing: Closing | None = None
    """How it ended; None while one of its periods may still come by itself."""
    guess_from: tuple[str, ...] = ()
    """The releases that the next night's guess at outcomes is learnt from."""

    @property
    def closed(self) -> bool:
        """Whether the last period has become due: none ever will again."""
        return self.last_period is not None and self.next_due_at is None

    @property
    def n_open(self) -> int:
        """How many of its periods were never public: each run tries them still."""
        return sum(not one.is_settled for one in self.periods)

    def as_json(self) -> dict[str, Any]:
        """One of the ``experiments`` of ``clusterdp status --json``."""
        return {
            "experiment": self.experiment,
            "periods": [one.as_json() for one in self.periods],
            "next_due_at": None if self.next_due_at is None else utc_text(self.next_due_at),
            "least_epsilon_left": self.least_epsilon_left,
            "guess_from": self.guess_from,
            "closed": self.closed,
            "closing": None if self.closing is None else self.closing.as_json(),
        }


@dataclass(frozen=True)
class StatusResult(Document):
    """Where several experiments stand."""

    experiments: tuple[ExperimentStatus, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Which releases are not as they were published."""
        return tuple(
            f"{each.experiment} {one.period}: {one.reason}"
            for each in self.experiments
            for one in each.periods
            if one.state in FOR_A_PERSON
        )

    @property
    def exit_code(self) -> int:
        """4 where a file is gone or another than was published; else 0, whatever is to be done."""
        return ConflictError.exit_code if self.warnings else 0


def status(*configs: str | Path) -> StatusResult:
    """Where every period of every experiment stands, and why; reads no log, changes nothing."""
    return StatusResult(tuple(_status(Path(config)) for config in configs))


def renew_metrics(config_paths: Sequence[Path]) -> None:
    """Write the metrics of every experiment anew, as they are now.

    Raises ConfigError where one names no folder for them, and InputError where it cannot be used.
    """
    for path in config_paths:
        config = load(path)
        if write_metrics(config, Account.of(config)) is None:
            raise ConfigError("run.metrics_directory", f"missing in {path}: metrics go there")


def _with_last_ends(config: Config, periods: list[Standing]) -> tuple[Standing, ...]:
    """The periods, the last published one with what its file warns of outcomes of one value."""
    for place, one in reversed(list(enumerate(periods))):
        if one.state == PeriodState.PUBLISHED:
            warnings = stated_warnings(config.releases / f"{one.release_id}.duckdb")
            told = "; ".join(filter(None, (one.reason, *warnings))) or None
            return (*periods[:place], replace(one, reason=told), *periods[place + 1 :])
    return tuple(periods)


def _with_changes(config: Config, account: Account, periods: list[Standing]) -> list[Standing]:
    """The periods; of those that are public whether the log's tables have other versions now.

    By versions alone, whatever has changed; nothing is said of tables that keep none.
    """
    released = {one.name.release_id: one.versions or {} for one in account.entries()}
    versions = [
        released.get(one.release_id or "", {}) if one.state == PeriodState.PUBLISHED else {}
        for one in periods
    ]
    if not any(versions):
        return periods
    from flows.raw.land import in_versions  # noqa: PLC0415 - loads libraries, for tables alone

    try:
        now, changed = in_versions(config.log_source, {}).versions, "its table has changed since"
    except ClusterdpError:
        now = dict.fromkeys((key for then in versions for key in then), "")
        changed = "whether its table has changed since cannot be seen from here"
    return [
        replace(one, reason="; ".join(filter(None, (one.reason, changed))))
        if any(now.get(key, version) != version for key, version in then.items())
        else one
        for one, then in zip(periods, versions, strict=True)
    ]


def _status(path: Path) -> ExperimentStatus:
    config, now = load(path), clock.now()
    schedule, account = config.calendar, Account.of(config)
    statement, standings = account.statement(), account.standings(schedule, now)
    left = statement.terms.limit.left_after(statement.spent).epsilon
    return ExperimentStatus(
        experiment=config.experiment,
        periods=_with_last_ends(config, _with_changes(config, account, standings)),
        next_due_at=None if schedule is None else schedule.next_due(now),
        least_epsilon_left=None if left == float("inf") else left,
        epsilon=statement.terms.cost.epsilon,
        last_period=None if schedule is None or not schedule.until else schedule.until.isoformat(),
        closing=account.closing(now),
        guess_from=teachers_of(config, account),
    )
