"""What a site's run does with its ledger: charge, publish a report, finish what dead runs left.

The order is that of :mod:`flows.ledger.account`, which a kill at any moment survives: reserve
(charged, durably) → draw and write the draft → note that it is about to become public → give it its
name → note that it is public. What is published is a JSON report in place of a DuckDB file.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flows.config.load import is_site, load, load_site
from flows.config.site import SiteConfig
from flows.ledger.account import Account, Charge, publishing, settle, told_as_stray
from flows.ledger.database import Found, Ledger, Statement, ledger_url
from flows.ledger.rules import Application, Fingerprint, State, Terms, refuse_early
from flows.released.file.draft import sweep
from flows.released.file.site_report import read_report
from privatizers.accounting.budget import Budget
from schemas.errors import InputError
from schemas.names import ReleaseName


class SiteAccount:
    """A site's dealings with its ledger."""

    def __init__(self, config: SiteConfig) -> None:
        """Take the terms from a configuration; nothing is read or made yet."""
        self._config = config
        self._ledger = Ledger(ledger_url(config.ledger.url, config.directory))
        self._terms = Terms(
            experiment=config.series,
            population=config.population,
            cost=config.cost,
            limit=config.budget,
        )

    def statement(self) -> Statement:
        """What the population has paid, with all its entries; changes nothing."""
        return self._ledger.statement(self._terms)

    def abandon(self, report_id: str) -> State:
        """Settle an unfinished charge of the site, as an operator says; its new state."""
        return self._ledger.abandon(self._terms.experiment, report_id)

    def refuse_early(self, period: str, *, revise: bool) -> None:
        """Raise BudgetError where no log could make the charge fit; changes nothing."""
        refuse_early(self._ledger.entries(self._terms), self._terms, period, revise=revise)

    def reserve(self, period: str, made_from: Fingerprint, folder: Path, *, revise: bool) -> Charge:
        """Charge for a report on ``period``, to be drafted in the working ``folder``.

        Finishes what dead runs left, first. Raises ConflictError and BudgetError; nothing is
        charged then.
        """
        directory = self._config.reports
        asked = Application(
            self._terms, period, made_from, directory, folder, revise, suffix=".json"
        )
        receipt = self._ledger.reserve(asked, settle, self._unknown_reports())
        sweep(directory, keep=receipt.unfinished)
        is_new = receipt.charge is not None
        return Charge(receipt.decision.name, receipt.path, is_new, receipt, folder)

    @contextmanager
    def publishing(self, charge: Charge) -> Iterator[list[str]]:
        """Make the draft public on leaving the block without an error; else give the charge back.

        Gives a list that warnings are put into.
        """
        with publishing(self._ledger, charge) as warnings:
            yield warnings

    def _unknown_reports(self) -> list[Found]:
        """List reports in the folder that the ledger has no charge for (another one had it, say).

        The folder is looked at first, so a report that is being published now is not among them.
        """
        names = published(self._config.reports, self._config.series)
        known = self._ledger.known(self._config.series) if names else set()
        return [self._found(name) for name in names if name.release_id not in known]

    def _found(self, name: ReleaseName) -> Found:
        path = self._config.reports / f"{name.release_id}.json"
        with told_as_stray(name):
            report = read_report(path)
            if report.report_id != name.release_id:
                raise InputError(f"{path}: says that it is {report.report_id}")
        return Found(name, Budget(report.epsilon, report.delta), path)


def account_of(path: Path) -> tuple[str, Account | SiteAccount]:
    """Return the name and the account of a configuration, be it a site's or a release's."""
    if is_site(path):
        site = load_site(path)
        return site.series, SiteAccount(site)
    config = load(path)
    return config.experiment, Account(config)


def published(directory: Path, series: str) -> list[ReleaseName]:
    """List the reports of a site in a folder, by period, then revision."""
    names = (ReleaseName.parse(path.stem) for path in directory.glob("*.json"))
    return sorted(name for name in names if name and name.experiment == series)
