"""The nightly release: ingest → validate → privatize → publish → estimate."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from prefect import flow
from prefect.runtime import flow_run

from estimators.effects import Estimate
from flows.config import check_period, load
from flows.raw.ingest import ingest
from flows.raw.privatize import privatize
from flows.raw.validate import validate
from flows.released.draft import drafting
from flows.released.estimate import estimate
from flows.released.publish import publish
from flows.roster import Roster
from flows.step import step


@dataclass(frozen=True)
class ReleaseResult:
    """What a run says of the release it made; nothing in it depends on an outcome but estimates."""

    release_id: str
    path: Path
    status: str
    mechanism: str
    epsilon: float
    delta: float
    roster: Roster
    estimates: list[Estimate]

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp release --json``."""
        return {
            "release_id": self.release_id,
            "path": str(self.path),
            "status": self.status,
            "mechanism": self.mechanism,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "n_units": self.roster.n_units,
            "quarantined": self.roster.quarantined,
            "quarantined_by_rule": self.roster.quarantined_by_rule,
            "sample_ratio_p": self.roster.sample_ratio_p,
            "warnings": list(self.roster.warnings),
            "estimates": [asdict(one) for one in self.estimates],
            "ledger": None,
        }


@flow(name="clusterdp-release", persist_result=False, retries=0, log_prints=False)
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
    period = check_period(period, config.source.path)
    design = config.design()
    # Leaving this block gives the file its name; leaving it by an error leaves nothing.
    with drafting(config.releases, config.experiment, period, revise=revise) as draft:
        log = step(ingest)(config, period)
        rows, roster = step(validate)(config, log, draft.name.release_id)
        tables = step(privatize)(config, rows, design, draft.name)
        step(publish)(tables, draft.working)
        estimates = step(estimate)(draft.working)
    manifest = tables.manifest
    return ReleaseResult(
        release_id=draft.name.release_id,
        path=draft.path,
        status="published",
        mechanism=manifest.mechanism,
        epsilon=manifest.epsilon,
        delta=manifest.delta,
        roster=roster,
        estimates=estimates,
    )


def _yesterday(timezone: str) -> str:
    """The day before the run's scheduled time, in the schedule's time zone."""
    scheduled = flow_run.scheduled_start_time or datetime.now(UTC)
    return (scheduled.astimezone(ZoneInfo(timezone)).date() - timedelta(days=1)).isoformat()
