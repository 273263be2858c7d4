"""The dry run: read and validate; draw, charge and write nothing."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.config.load import check_period, load
from flows.config.resolve import ResolvedDesign, ResolvedRelease
from flows.config.rules.notify import notify_problems
from flows.config.unit_id_key import read_key
from flows.ledger.account import Account
from flows.ledger.statement import Statement
from flows.orchestration.step import plain_step
from flows.raw.charge import PeriodRows, look
from flows.raw.ingest import ingest
from flows.raw.spill.workspace import open_workspace
from flows.raw.validate import validate
from schemas.roster import Roster


@dataclass(frozen=True)
class CheckResult:
    """What a release of this log would say of it, and the design it would use."""

    roster: Roster
    chosen: ResolvedRelease
    statement: Statement
    """What the population has paid so far, without this release."""
    key_warnings: tuple[str, ...] = ()
    """What is wrong with the key of the unit ids, if there is one."""
    private_clusters: bool = False
    """Whether clusters are protected, beside outcomes."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the operator should look into; none of it stops a release."""
        return (*self.roster.warnings, *self.key_warnings)

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp check --json``."""
        return {
            "n_units": self.roster.n_units,
            "n_clusters": self.roster.n_clusters,
            "units_by_arm": self.roster.units_by_arm,
            "quarantined": self.roster.quarantined,
            "quarantined_by_rule": self.roster.quarantined_by_rule,
            "sample_ratio_p": self.roster.sample_ratio_p,
            "attribute_changed": self.roster.attribute_changed,
            "warnings": list(self.warnings),
            "mechanism": self.chosen.mechanism,
            "epsilon": self.chosen.price.epsilon,
            "delta": self.chosen.price.delta,
            "designs": [_design(one) for one in self.chosen.outcomes],
            "ledger": self.statement.as_json(),
        }


def _design(one: ResolvedDesign) -> dict[str, Any]:
    """What becomes of one outcome."""
    (outcome,), parameters = one.config.outcomes, one.design.mechanism.parameters
    return {
        "metric": outcome.name,
        "levels": parameters.n_outcomes,
        "strata_statistic": parameters.strata_statistic,
        "statistic_epsilon": parameters.statistic_epsilon,
        "learnt_from": parameters.learnt_from,
        "arm_counts_epsilon": parameters.arm_counts_epsilon,
        "response_epsilon": parameters.response_epsilon,
    }


def check(config_path: Path, period: str | None) -> CheckResult:
    """Read and validate a configuration and its log; raises what a release would raise.

    Whether a period that was released would be unchanged is not looked into: that would need the
    key of the ledger's digests, which a release makes.
    """
    config = load(config_path)
    period = check_period(period, config.source.path, config.source.outcomes_path)
    key = read_key(config)
    account = Account(config)
    account.refuse_early(period, revise=False)
    with open_workspace(config) as workspace:
        log = plain_step(ingest)(config, period)
        rows, _, roster = plain_step(validate)(config, log, workspace)
        left = look(account, PeriodRows(config, period, rows, roster), workspace)
        roster, chosen = left.roster, left.chosen
    warnings = (*(key.warnings if key else ()), *notify_problems(config))
    private = config.private_clusters is not None
    return CheckResult(roster, chosen, account.statement(), warnings, private)
