"""Between reading and drawing: choose a design, look at accounts, charge for the rows."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from flows.config.model.experiment import Config
from flows.config.resolve import ResolvedRelease, predicted_errors, resolve_release
from flows.ledger.account import Account, Charge
from flows.ledger.members import Accounts
from flows.ledger.units.account_key import read_account_key, read_assignment_key
from flows.orchestration.step import step
from flows.raw.boundary.sealed import Sealed
from flows.raw.fingerprint import fingerprint
from flows.raw.spill.workspace import Workspace
from flows.raw.units.account_digests import count_units, digest_units
from flows.raw.units.known_units import set_known_aside, told_together
from flows.raw.units.private_clusters import known_sizes
from flows.raw.units.roster import check_sample_ratio
from flows.raw.units.rows import Rows
from schemas.roster import Roster


@dataclass(frozen=True)
class Designed:
    """Rows, and the designs of their release, which follow from public facts about them."""

    config: Config
    rows: Sealed[Rows]

    @cached_property
    def chosen(self) -> ResolvedRelease:
        """The designs of their release."""
        return resolve_release(self.config, known_sizes(self.config, self.rows))

    @cached_property
    def forecast(self) -> dict[tuple[str, str, str], float]:
        """The standard errors that are to be expected, by outcome, arm and estimator."""
        return predicted_errors(self.config, self.chosen, known_sizes(self.config, self.rows))


@dataclass(frozen=True)
class PeriodRows:
    """Rows to be released of a period, and public facts about them."""

    designed: Designed
    period: str
    roster: Roster

    @property
    def config(self) -> Config:
        """Their configuration."""
        return self.designed.config

    @property
    def rows(self) -> Sealed[Rows]:
        """The rows."""
        return self.designed.rows


def charge_rows(
    account: Account, read: PeriodRows, folder: Path, workspace: Workspace, *, revise: bool
) -> tuple[Charge, PeriodRows]:
    """Charge for a release of the rows of a period; returns the rows that were charged for.

    Whether a period is unchanged is judged by all rows of its log, and by the design for them. With
    accounts by unit some may then be left out for what was released before, and the design is that
    for the rest. No other run of the population looks at its accounts meanwhile. Raises InputError,
    before anything is charged, where the arms of these are refused (``arms.sample_ratio``).
    """
    guards = revise or not account.has_released(read.period)
    privacy = read.config.privacy
    leaves_out = (privacy.returning, privacy.spent) != ("charge", "refuse")
    if guards and not leaves_out and privacy.rows_each is None:  # before a key is made
        check_sample_ratio(read.config, read.roster)
    chosen = read.designed.chosen
    made_from = step(fingerprint)(chosen.config, read.rows, chosen.designs)
    begun = account.has_accounts
    if read.config.columns.assigned_by is not None:  # made, or found to be lost, before any charge
        read_assignment_key(read.config, begun=begun or account.has_released(read.period))
    if not account.terms.by_unit:
        read = _counted(read)
        most = read.roster.most_paid
        with account.turn():
            charge = account.reserve(read.period, made_from, folder, revise=revise, most_paid=most)
            return charge, read
    key = read_account_key(read.config, begun=begun)
    members = step(digest_units)(read.config, read.rows, key, account.register_marks)
    with account.turn():
        accounts = account.accounts(members, read.period)
        left, accounts = _left(read, accounts, workspace)
        if guards:
            check_sample_ratio(read.config, left.roster)
        most = left.roster.most_paid
        charge = account.reserve(
            read.period, made_from, folder, revise=revise, accounts=accounts, most_paid=most
        )
        if charge.is_new:
            account.sum_up(members)
    return charge, left


def look(account: Account, read: PeriodRows, workspace: Workspace) -> PeriodRows:
    """The rows that would be left, by accounts as they are now; charges and changes nothing.

    Raises BudgetError where units cannot pay, and InputError where their arms are refused.
    """
    left = read
    if not account.terms.by_unit or not account.has_accounts:
        left = _counted(read)
        if not account.terms.spares:
            most = left.roster.most_paid
            account.refuse_early(read.period, revise=False, most_paid=most)
    else:
        key = read_account_key(read.config, begun=True)
        members = step(digest_units)(read.config, read.rows, key, account.register_marks)
        accounts = account.look_at_accounts(members, read.period)
        if accounts is not None:
            left, accounts = _left(read, accounts, workspace)
            account.check_accounts(accounts, read.period)
    if not account.has_released(read.period):
        check_sample_ratio(read.config, left.roster)
    return left


def _left(
    read: PeriodRows, accounts: Accounts, workspace: Workspace
) -> tuple[PeriodRows, Accounts]:
    """The rows that are left after the rules that read accounts, and the accounts of these."""
    rows, roster, accounts = step(set_known_aside)(
        read.config, read.rows, read.roster, accounts, workspace
    )
    if rows.n_rows == read.rows.n_rows:  # nobody is left out, and the design stays
        return replace(read, roster=roster), accounts
    return PeriodRows(Designed(read.config, rows), read.period, roster), accounts


def _counted(read: PeriodRows) -> PeriodRows:
    """The same rows, with how many are whose, where accounts are not looked at."""
    counts = step(count_units)(read.config, read.rows)
    return replace(read, roster=told_together(read.roster, counts))
