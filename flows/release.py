"""The nightly release: ingest → validate → privatize → publish → estimate."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from prefect import flow
from prefect.runtime import flow_run

from estimators.effects import Estimate
from flows.config.load import check_period, load
from flows.config.resolve import foreseen, settled
from flows.config.unit_id_key import read_key
from flows.ledger.account import Account, Charge
from flows.ledger.database import Statement
from flows.orchestration.states import ends_in_state
from flows.orchestration.step import step
from flows.raw.fingerprint import fingerprint
from flows.raw.ingest import ingest
from flows.raw.privatize import privatize
from flows.raw.quarantine import set_aside
from flows.raw.spill.workspace import room_of
from flows.raw.units.private_clusters import known_sizes
from flows.raw.validate import validate
from flows.released.estimate import estimate, estimate_file
from flows.released.file.draft import workplace
from flows.released.file.read import read_release
from flows.released.publish import publish
from schemas.errors import ConfigError
from schemas.released import Manifest
from schemas.roster import Roster


@dataclass(frozen=True)
class ReleaseResult:
    """What a run says of the release it made; nothing in it depends on an outcome but estimates."""

    release_id: str
    path: Path
    status: Literal["published", "unchanged"]
    manifest: Manifest
    roster: Roster
    estimates: list[Estimate]
    statement: Statement
    warnings: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp release --json``."""
        return {
            "release_id": self.release_id,
            "path": str(self.path),
            "status": self.status,
            "mechanism": self.manifest.mechanism,
            "epsilon": self.manifest.epsilon,
            "delta": self.manifest.delta,
            "n_units": self.roster.n_units,
            "quarantined": self.roster.quarantined,
            "quarantined_by_rule": self.roster.quarantined_by_rule,
            "sample_ratio_p": self.roster.sample_ratio_p,
            "warnings": list(self.warnings),
            "estimates": [asdict(one) for one in self.estimates],
            "ledger": self.statement.as_json(),
        }


@flow(name="clusterdp-release", persist_result=False, retries=0, log_prints=False)
@ends_in_state
def release(
    config_path: str,
    period: str | None = None,
    revise: bool = False,
    schedule_timezone: str | None = None,
) -> ReleaseResult:
    """Release one period of an experiment.

    Args:
        config_path: The configuration file, absolute or relative to the current folder.
        period: The period to release; where the log's path needs none it may be left out.
        revise: Draw a published period anew, as its next revision.
        schedule_timezone: Set by schedules; without a period, releases the day before the run's
            scheduled time in this time zone (such as ``Europe/Zurich``).
    """
    config = load(Path(config_path))
    if period is None and schedule_timezone is not None:
        period = _yesterday(schedule_timezone)
    period = check_period(period, config.source.path, config.source.outcomes_path)
    key = read_key(config)
    account = Account(config)
    account.refuse_early(period, revise=revise)
    with workplace(config.releases) as folder, room_of(config) as room:
        log = step(ingest)(config, period)
        rows, aside, roster = step(validate)(config, log, room)
        sizes = known_sizes(config, rows)
        chosen = settled(config, sizes)
        forecast = foreseen(config, chosen, sizes)
        made_from = step(fingerprint)(chosen.config, rows, chosen.design)
        charge = account.reserve(period, made_from, folder, revise=revise)  # before any draw
        known = (*roster.warnings, *(key.warnings if key else ()), *charge.warnings)
        if not charge.is_new:
            return _unchanged(charge, roster, known)
        # Leaving this block makes the draft public; leaving it by an error gives the charge back.
        with account.publishing(charge) as warnings:
            step(set_aside)(config, aside, charge.name.release_id)
            drawn = step(privatize, shares_out=room.workers is not None)
            tables = drawn(chosen.config, rows, chosen.design, charge.name, room, roster)
            step(publish)(tables, charge.draft, room.engine_bytes)
            estimates = step(estimate)(charge.draft, room.engine_bytes, forecast)
    return ReleaseResult(
        release_id=charge.name.release_id,
        path=charge.path,
        status="published",
        manifest=tables.manifest,
        roster=roster,
        estimates=estimates,
        statement=charge.statement,
        warnings=(*known, *warnings),
    )


def _unchanged(charge: Charge, roster: Roster, warnings: tuple[str, ...]) -> ReleaseResult:
    """Say of the release that is there already what was said when it was made."""
    return ReleaseResult(
        release_id=charge.name.release_id,
        path=charge.path,
        status="unchanged",
        manifest=read_release(charge.path).manifest,
        roster=roster,
        estimates=estimate_file(charge.path),
        statement=charge.statement,
        warnings=warnings,
    )


def _yesterday(timezone: str) -> str:
    """The day before the run's scheduled time, in the schedule's time zone."""
    scheduled = flow_run.scheduled_start_time or datetime.now(UTC)
    return (scheduled.astimezone(_zone(timezone)).date() - timedelta(days=1)).isoformat()


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # whatever a schedule or a caller gave
        problem = f"{name!r} is not a time zone such as Europe/Zurich"
    raise ConfigError("schedule_timezone", problem)
