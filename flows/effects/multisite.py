"""Effects from several sites: what each site runs, and what the server runs on their reports.

A site: ingest → validate → charge → draw → publish a report. The server: read
reports → combine → plot. They share no ledger, log or key, and can run in different organisations;
what goes from one to the other is the site's report, a JSON file of schema
:mod:`schemas.effects.site`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from flows.config.load import period_of
from flows.effects.house import load_site
from flows.effects.raw.site_report import site_fingerprint, site_report, stand_in, unmatched
from flows.effects.raw.site_rows import ingest_site
from flows.effects.released.drafts import try_draft
from flows.effects.released.site_report import read_report, write_report
from flows.ledger.account import Account
from flows.ledger.statement import Statement
from flows.orchestration.step import step
from flows.raw.land import in_versions
from flows.raw.quarantine import write_quarantine
from flows.raw.spill.workspace import open_workspace
from flows.raw.validate import validate
from flows.released.file.draft import workplace
from schemas.effects.site import SiteReport
from schemas.roster import Roster


@dataclass(frozen=True)
class SiteResult:
    """What a run says of the report it made; nothing in it is raw but ``for_the_operator``."""

    path: Path
    status: Literal["published", "unchanged"]
    report: SiteReport
    roster: Roster
    statement: Statement
    warnings: tuple[str, ...]
    for_the_operator: tuple[str, ...]
    """Follows from private facts, in words: not for the document, nor for the server."""

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp site --json``; all of it may leave the site."""
        of_report = ("site", "estimate", "variance", "noise_variance", "n_units", "epsilon")
        return {
            "report_id": self.report.report_id,
            "path": str(self.path),
            "status": self.status,
            **{
                name: getattr(self.report, name)
                for name in (*of_report, "delta", "estimator", "design")
            },
            "quarantined": self.roster.quarantined,
            "quarantined_by_rule": self.roster.quarantined_by_rule,
            "warnings": list(self.warnings),
            "ledger": self.statement.as_json(),
        }


def report_period(config_path: str, period: str | None = None, revise: bool = False) -> SiteResult:
    """Make one site's report on one period of an experiment.

    Args:
        config_path: The site's configuration file, absolute or relative to the current folder.
        period: The period to report on; where the log's path needs none it may be left out.
        revise: Draw a published report anew, as its next revision.
    """
    config = load_site(Path(config_path))
    period = period_of(config.source, period)
    account = Account.of(config)
    account.refuse_early(period, revise=revise)
    with workplace(config.releases) as folder, open_workspace(config.spill) as workspace:
        source = in_versions(config.log_source, {} if revise else account.versions_of(period))
        log = step(ingest_site)(config, source, period, workspace)
        rows, aside, roster = step(validate)(config.log_facts, log)
        notes = step(unmatched)(config, rows)
        made_from = step(site_fingerprint)(config, rows)
        charge = account.reserve(  # before any draw
            period, made_from, folder, revise=revise, versions=source.versions
        )
        known = (*roster.warnings, *charge.warnings)
        if not charge.is_new:
            report = read_report(charge.path)
            statement = charge.statement
            return SiteResult(charge.path, "unchanged", report, roster, statement, known, notes)
        # Leaving this block makes the draft public; leaving it by an error gives the charge back.
        with account.publishing(charge) as warnings:
            step(write_quarantine)(config.quarantined, aside, charge.name.release_id)
            nothing = stand_in(config, charge.name)
            step(try_draft)(write_report, nothing, charge.draft)  # before any draw
            report = step(site_report)(config, rows, charge.name)
            step(write_report)(report, charge.draft)
    return SiteResult(
        path=charge.path,
        status="published",
        report=report,
        roster=roster,
        statement=charge.statement,
        warnings=(*known, *warnings),
        for_the_operator=notes,
    )
