"""The nightly release: ingest → validate → privatize → publish → estimate."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from estimators.arm_effects import Estimate
from estimators.coverage import coverage_warnings
from estimators.ends import ends_warnings
from flows.config.load import load, period_of
from flows.config.model.experiment import Config
from flows.config.unit_id_key import read_key
from flows.ledger.account import Account, Charge
from flows.ledger.place import ledger_place
from flows.ledger.shelves.shelf import shelf_of
from flows.ledger.statement import Statement
from flows.ledger.teachers import learn_guess
from flows.ledger.watch import Watch, watched
from flows.orchestration.step import beside, plain_step, step
from flows.raw.charge import Designed, PeriodRows, charge_rows
from flows.raw.ingest import ingest
from flows.raw.land import in_versions
from flows.raw.privatize import privatize
from flows.raw.quarantine import write_quarantine
from flows.raw.spill.workspace import open_workspace
from flows.raw.validate import validate
from flows.released.estimates.release import estimate, estimate_release
from flows.released.file.draft import workplace
from flows.released.file.read import read_release
from flows.released.publish import new_draft, publish
from flows.runtime import logs
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
            "repeated": asdict(self.roster.repeats),
            "sample_ratio_p": self.roster.sample_ratio_p,
            "attribute_changed": self.roster.attribute_changed,
            "n_together": self.roster.n_together,
            "warnings": list(self.warnings),
            "estimates": [asdict(one) for one in self.estimates],
            "ledger": self.statement.as_json(),
        }


def release_period(
    config_path: str, period: str | None = None, revise: bool = False
) -> ReleaseResult:
    """Release one period of an experiment, by steps that are tasks within a flow of Prefect's.

    Args:
        config_path: The configuration file, absolute or relative to the current folder.
        period: The period to release; where the log's path needs none it may be left out.
        revise: Draw a published period anew, as its next revision.
    """
    config = load(Path(config_path))
    period = period_of(config.source, period)
    return release_of(config, period, revise=revise)


def release_of(config: Config, period: str, *, revise: bool = False) -> ReleaseResult:
    """Release one period of a configuration that was read: an audit has its own."""
    account = Account(config.terms, shelf_of(config), ledger_place(config))
    with watched(config, account, period) as watch:  # how it ends is kept and told
        return _release_period(config, account, period, revise=revise, watch=watch)


def _release_period(
    config: Config, account: Account, period: str, *, revise: bool, watch: Watch
) -> ReleaseResult:
    """Release one period: a line a step."""
    key = read_key(config.id_key_path)
    account.refuse_early(period, revise=revise)
    with workplace(config.releases, watch.run) as folder, open_workspace(config.spill) as workspace:
        watch.works_in(folder)
        source = in_versions(config.log_source, {} if revise else account.versions_of(period))
        log = step(ingest)(source, period, workspace)
        rows, aside, roster = step(validate)(config.log_facts, log, workspace)
        # By public files alone. After a log that is refused, as it may renew the series.
        taught = plain_step(learn_guess)(config, account, period, revise=revise)
        # Before any draw; what is charged may be fewer rows than were read.
        read = PeriodRows(Designed(taught, rows), period, roster, source.versions)
        charge, asked = charge_rows(account, read, folder, workspace, revise=revise)
        roster, chosen = asked.roster, asked.designed.chosen
        known = (*roster.warnings, *(key.warnings if key else ()), *charge.warnings)
        known += chosen.config.margin_warnings
        if not charge.is_new:
            known += step(account.renew_series)()  # a run may have died
            return _unchanged(charge, roster, known)
        logs.learn(release_id=charge.name.release_id)
        # Leaving this block makes the draft public; leaving it by an error gives the charge back.
        with account.publishing(charge) as warnings:
            step(write_quarantine)(config.quarantined, aside, charge.name.release_id)
            tables = step(privatize)(
                chosen.config,
                asked.rows,
                chosen.designs,
                charge.name,
                workspace,
                roster,
                asked.numbers,
            )
            with new_draft(charge.draft, workspace.engine_bytes, tables.n_rows) as draft:
                step(publish)(tables, draft)
                manifest = tables.manifest
                del tables  # the file has them now, and estimates are made from it alone
                made = step(estimate)(draft, asked.designed.forecast)
        of_one_value = ends_warnings(made.ends)
        watch.made(charge.name.release_id, roster, of_one_value)
        with beside(account.sum_up) as summed:  # what later nights read
            warnings += step(account.renew_series)(made.night)
        summed()
    return ReleaseResult(
        release_id=charge.name.release_id,
        path=charge.path,
        status="published",
        manifest=manifest,
        roster=roster,
        estimates=made.estimates,
        statement=charge.statement,
        warnings=(
            *known,
            *warnings,
            # These depend on sizes of clusters alone.
            *coverage_warnings(made.estimates, same_shares=manifest.same_shares),
            *of_one_value,
        ),
    )


def _unchanged(charge: Charge, roster: Roster, warnings: tuple[str, ...]) -> ReleaseResult:
    """Say of the release that is there already what was said when it was made."""
    stated = estimate_release(charge.path)
    return ReleaseResult(
        release_id=charge.name.release_id,
        path=charge.path,
        status="unchanged",
        manifest=read_release(charge.path).manifest,
        roster=roster,
        estimates=stated.estimates,
        statement=charge.statement,
        warnings=(*warnings, *stated.warnings),
    )
