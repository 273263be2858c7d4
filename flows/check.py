"""The dry run: read and validate; draw, charge and write nothing."""

import os
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from flows.config.load import load, period_of
from flows.config.resolve import ResolvedDesign, ResolvedRelease
from flows.config.rules.notify import notify_problems
from flows.config.unit_id_key import read_key
from flows.ledger.account import Account
from flows.ledger.place import ledger_place
from flows.ledger.shelves.shelf import shelf_of
from flows.ledger.statement import Statement
from flows.ledger.teachers import as_taught
from flows.orchestration.states import running_flow
from flows.orchestration.step import plain_step
from flows.raw.charge import Designed, PeriodRows, look
from flows.raw.ingest import ingest, outcome_type_warnings
from flows.raw.outcome_shares import OutcomeShares, outcome_shares, with_sides
from flows.raw.spill.workspace import open_workspace
from flows.raw.validate import validate
from schemas.errors import ConfigError
from schemas.roster import Roster


@dataclass(frozen=True)
class CheckResult:
    """What a release of this log would say of it, and the design it would use."""

    roster: Roster
    chosen: ResolvedRelease
    statement: Statement
    """What the population has paid so far, without this release."""
    more_warnings: tuple[str, ...] = ()
    """What is wrong with the key of unit ids, with notices, and with types of outcomes' columns."""
    private_clusters: bool = False
    """Whether clusters are protected, beside outcomes."""
    outcomes: tuple[OutcomeShares, ...] = field(default=(), repr=False)
    """Of the outcomes themselves, for the operator alone; empty where nobody asked."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the operator should look into; none of it stops a release."""
        return (*self.roster.warnings, *self.more_warnings)

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp check --json``."""
        return {
            "n_units": self.roster.n_units,
            "n_clusters": self.roster.n_clusters,
            "units_by_arm": self.roster.units_by_arm,
            "quarantined": self.roster.quarantined,
            "quarantined_by_rule": self.roster.quarantined_by_rule,
            "repeated": asdict(self.roster.repeats),
            "sample_ratio_p": self.roster.sample_ratio_p,
            "attribute_changed": self.roster.attribute_changed,
            "n_together": self.roster.n_together,
            "warnings": list(self.warnings),
            "mechanism": self.chosen.mechanism,
            "epsilon": self.chosen.price.epsilon,
            "delta": self.chosen.price.delta,
            "designs": [_design(one) for one in self.chosen.outcomes],
            "ledger": self.statement.as_json(),
            **({"outcomes": [one.as_json() for one in self.outcomes]} if self.outcomes else {}),
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


def check(config: str | Path, period: str | None = None, *, outcomes: bool = False) -> CheckResult:
    """Read and validate configuration and log; nothing is drawn, charged or written.

    Stable besides: ``warnings``. ``outcomes`` says too, coarsely, how many are missing, unreadable
    or beyond the grid. Nothing protects this: keep it to yourself, and choose neither grid nor
    guess by it; a :class:`ConfigError` within a flow or a service.
    """
    # Started by systemd, with nobody at a terminal.
    is_service = "INVOCATION_ID" in os.environ and not sys.stdin.isatty()
    if outcomes and (running_flow() is not None or is_service):
        raise ConfigError(
            "--outcomes", "reads the outcomes themselves, for whoever sits at a terminal; refused "
            "in a flow or a scheduled run, whose answers are kept"
        )  # fmt: skip
    experiment = load(Path(config))
    # Not whether a period that was released is unchanged: that takes the key that a release makes.
    period = period_of(experiment.source, period)
    key = read_key(experiment.id_key_path)
    account = Account(experiment.terms, shelf_of(experiment), ledger_place(experiment))
    account.refuse_early(period, revise=False)
    with open_workspace(experiment.spill) as workspace:
        log = plain_step(ingest)(experiment.log_source, period, workspace)
        if outcomes:  # nothing below depends on them
            log = with_sides(experiment.outcomes, log)
        rows, _, roster = plain_step(validate)(experiment.log_facts, log, workspace)
        shares = outcome_shares(experiment.outcomes, log, rows) if outcomes else ()
        taught = as_taught(experiment, period)
        left = look(account, PeriodRows(Designed(taught, rows), period, roster), workspace)
        roster, chosen = left.roster, left.designed.chosen
        types = outcome_type_warnings(experiment.log_source, period, log)
    warnings = (
        *(key.warnings if key else ()),
        *notify_problems(experiment),
        *types,
    )
    private = experiment.private_clusters is not None
    return CheckResult(roster, chosen, account.statement(), warnings, private, shares)
