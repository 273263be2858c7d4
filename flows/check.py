"""The dry run: read and validate; draw, charge and write nothing."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.config import check_period, load
from flows.raw.ingest import ingest
from flows.raw.validate import validate
from flows.roster import Roster
from flows.step import plain_step
from privatizers.design import Design


@dataclass(frozen=True)
class CheckResult:
    """What a release of this log would say of it, and the design it would use."""

    roster: Roster
    design: Design

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp check --json``."""
        return {
            "n_units": self.roster.n_units,
            "n_clusters": self.roster.n_clusters,
            "units_by_arm": self.roster.units_by_arm,
            "quarantined": self.roster.quarantined,
            "quarantined_by_rule": self.roster.quarantined_by_rule,
            "sample_ratio_p": self.roster.sample_ratio_p,
            "warnings": list(self.roster.warnings),
            "mechanism": self.design.mechanism.name,
            "epsilon": self.design.epsilon,
            "delta": self.design.delta,
        }


def check(config_path: Path, period: str | None) -> CheckResult:
    """Read and validate a configuration and its log; raises what a release would raise."""
    config = load(config_path)
    period = check_period(period, config.source.path)
    log = plain_step(ingest)(config, period)
    _, roster = plain_step(validate)(config, log, None)
    return CheckResult(roster, config.design())
