"""Between reading and drawing: choose a design, look at accounts, charge for the rows.

Units that were released before, or cannot pay, are set aside by public facts alone: who was in
which release is public, and so is what each unit has paid for them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from estimators.special import chdtrc
from flows.config.model.declared import LogFacts, Terms
from flows.config.model.experiment import Config
from flows.config.resolve import ResolvedRelease, predicted_errors, resolve_release
from flows.config.settings import settings_of
from flows.ledger.account import Account, Charge
from flows.ledger.members import Accounts, Members
from flows.ledger.rules import Fingerprint
from flows.ledger.units.account_key import read_account_key, read_assignment_key
from flows.orchestration.step import beside, step
from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.raw.drawing.margin_cells import Numbers, margin_facts, number_margins
from flows.raw.fingerprint import fingerprint
from flows.raw.spill.workspace import Workspace
from flows.raw.units.account_digests import count_units, digest_units
from flows.raw.units.private_clusters import known_clusters, known_sizes
from flows.raw.units.roster import check_left, check_sample_ratio, roster_of
from flows.raw.units.rows import Rows, rows_where
from privatizers.planning.margin_split import MarginFacts
from schemas.arrays import Bools
from schemas.errors import InputError
from schemas.raw import ASSIGNED
from schemas.roster import SAMPLE_RATIO_ALARM, Roster

RELEASED_BEFORE = "released_before"
BUDGET_SPENT = "budget_spent"
HOUSEHOLD_FULL = "household_full"


@dataclass(frozen=True)
class Designed:
    """Rows, and the designs of their release, which follow from public facts about them."""

    config: Config
    rows: Sealed[Rows]

    @cached_property
    def facts(self) -> LogFacts:
        """What judges the rows."""
        return self.config.log_facts

    @cached_property
    def chosen(self) -> ResolvedRelease:
        """The designs of their release."""
        return resolve_release(self.told_apart, known_sizes(self.facts, self.rows), self.margins)

    @cached_property
    def told_apart(self) -> Config:
        """The configuration for the clusters of the rows, each with what was learnt of itself."""
        return self.config.told_apart(known_clusters(self.facts, self.rows))

    @cached_property
    def margins(self) -> MarginFacts | None:
        """Public sizes of the cells of margins."""
        return margin_facts(self.config, self.rows)

    @cached_property
    def forecast(self) -> dict[tuple[str, str, str], float]:
        """The standard errors that are to be expected, by outcome, arm and estimator."""
        sizes = known_sizes(self.facts, self.rows)
        return predicted_errors(self.told_apart, self.chosen, sizes, self.margins)

    def fingerprint(self) -> Fingerprint:
        """Keyed digests of the rows and of the settings of their release.

        The settings are those without what earlier releases teach: whether a period is unchanged
        does not depend on what was published since.
        """
        chosen = self.chosen
        if self.config.guess_from:
            sizes = known_sizes(self.facts, self.rows)
            chosen = resolve_release(self.config.taught({}), sizes, self.margins)
        settings = settings_of(chosen.config, chosen.designs)
        return step(fingerprint)(self.facts, self.rows, settings, self.config.quarantine_folder)


@dataclass(frozen=True)
class PeriodRows:
    """Rows to be released of a period, and public facts about them."""

    designed: Designed
    period: str
    roster: Roster
    versions: Mapping[str, str] = field(default_factory=dict)
    """In which versions the log's tables were read."""
    numbers: Sealed[Numbers] | None = None
    """Those of the values of margins, once they are known."""

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
    terms, place, facts = account.terms, account.place, read.designed.facts
    if guards and not terms.sets_aside and terms.rows_each is None:  # before a key is made
        check_sample_ratio(facts, read.roster)
    _ = read.designed.chosen  # which fails before anything is made
    begun = account.has_accounts
    if ASSIGNED in facts.facts:  # made, or found to be lost, before any charge
        known = begun or account.has_released(read.period)
        read_assignment_key(place, terms.population, begun=known)
    with beside(read.designed.fingerprint) as recognising:
        if not terms.by_unit:
            read = _counted(terms, read)
        else:
            members = _members(account, read, begun=begun)
            _ = members.words  # sorted while the rows are recognised
        if read.designed.config.margins:
            numbers = step(number_margins)(read.designed.config, read.rows, workspace)
            read = replace(read, numbers=numbers)
    made_from, accounts = recognising(), None
    with account.turn():
        if terms.by_unit:
            accounts = account.accounts(members, read.period)
            read, accounts = _left(terms, read, accounts, workspace)
            if guards:
                check_sample_ratio(facts, read.roster)
        most = read.roster.most_paid
        charge = account.reserve(
            read.period,
            made_from,
            folder,
            revise=revise,
            accounts=accounts,
            most_paid=most,
            versions=read.versions,
        )
    return charge, read


def look(account: Account, read: PeriodRows, workspace: Workspace) -> PeriodRows:
    """The rows that would be left, by accounts as they are now; charges and changes nothing.

    Raises BudgetError where units cannot pay, and InputError where their arms are refused.
    """
    left, terms = read, account.terms
    if not terms.by_unit or not account.has_accounts:
        left = _counted(terms, read)
        if not terms.spares:
            most = left.roster.most_paid
            account.refuse_early(read.period, revise=False, most_paid=most)
    else:
        members = _members(account, read, begun=True)
        accounts = account.look_at_accounts(members, read.period)
        if accounts is not None:
            left, accounts = _left(terms, read, accounts, workspace)
            account.check_accounts(accounts, read.period)
    if not account.has_released(read.period):
        check_sample_ratio(read.designed.facts, left.roster)
    return left


def _members(account: Account, read: PeriodRows, *, begun: bool) -> Members:
    """The units of the rows as the accounts know them."""
    key = read_account_key(account.place, account.terms, begun=begun)
    marks = account.register_marks
    return step(digest_units)(account.terms, read.designed.facts.ids, read.rows, key, marks)


def _left(
    terms: Terms, read: PeriodRows, accounts: Accounts, workspace: Workspace
) -> tuple[PeriodRows, Accounts]:
    """The rows that are left after the rules that read accounts, and the accounts of these."""
    rows, roster, accounts = step(set_known_aside)(
        terms, read.designed.facts, read.rows, read.roster, accounts, workspace
    )
    if rows.n_rows == read.rows.n_rows:  # nobody is left out, and the design stays
        return replace(read, roster=roster), accounts
    for numbers, _ in read.numbers.open() if read.numbers else ():
        numbers.remove()
    designed = replace(read.designed, rows=rows)
    return replace(read, designed=designed, roster=roster, numbers=None), accounts


def _counted(terms: Terms, read: PeriodRows) -> PeriodRows:
    """The same rows, with how many are whose, where accounts are not looked at."""
    counts = step(count_units)(terms, read.designed.facts.ids, read.rows)
    return replace(read, roster=told_together(read.roster, counts))


# who is set aside


@values_free
def set_known_aside(
    terms: Terms,
    facts: LogFacts,
    rows: Sealed[Rows],
    roster: Roster,
    accounts: Accounts,
    workspace: Workspace | None,
) -> tuple[Sealed[Rows], Roster, Accounts]:
    """Leave out units by their accounts, as ``privacy.returning`` and ``privacy.spent`` say.

    First, with ``columns.privacy_unit``, ``household_full``: of whoever pays, the first rows in the
    order of units are kept, as many as ``privacy.rows_each``. Then, against every release but those
    of the log's own period: ``released_before``, of units that the experiment has released; and
    ``budget_spent``, of those that would have paid more than they may. Raises InputError where
    nothing is left, or where a register that the rules need is lost. Returns the rows that are
    released, the facts about them, and the accounts of their units.
    """
    raw = rows.open()
    before, n_rows = accounts.released_before, accounts.members.n_rows
    rows_each = terms.rows_each
    known = replace(
        roster,
        n_returning=None if accounts.unlisted else int(n_rows[before].sum()),
        n_arm_changed=None if accounts.unlisted or rows_each else accounts.n_arm_changed,
        account_key_fingerprint=accounts.members.key_fingerprint,
        notes=(*roster.notes, *accounts.warnings),
    )
    kept = np.ones(raw.n_units, dtype=np.bool_)
    by_rule = dict(roster.quarantined_by_rule)
    notes: list[str] = []
    if rows_each is not None:
        kept = accounts.members.is_among_first(rows_each)
        by_rule[HOUSEHOLD_FULL] = int((~kept).sum())
    if terms.once:
        _check_all_listed(accounts)
        again = accounts.of_rows(before)
        by_rule[RELEASED_BEFORE] = int((again & kept).sum())
        kept &= ~again
    if terms.spares:
        _check_nothing_lost(accounts)
        short = accounts.of_rows(
            accounts.cannot_pay(
                accounts.everybody, terms.cost, terms.limit, accounts.codes_without_own
            )
        )
        out = short & kept
        by_rule[BUDGET_SPENT] = int(out.sum())
        notes = _by_arm(accounts, kept, out)
        kept &= ~short
    if kept.all():
        return rows, told_together(known, accounts.members), accounts
    left = rows_where(raw, kept, workspace)
    by_rule = {rule: count for rule, count in by_rule.items() if count}
    known = replace(known, notes=(*known.notes, *notes))
    of_left, told = accounts.kept(kept), roster_of(facts, left, by_rule, known)
    check_left(facts, told, raw.n_units + roster.quarantined)
    return Sealed(left, left.n_units), told_together(told, of_left.members), of_left


def told_together(roster: Roster, members: Members | None) -> Roster:
    """The same facts, with how many rows share an account; nobody looks where there is None."""
    if members is None:
        return roster
    n_paid = members.n_paid
    n_together = int(n_paid[n_paid > 1].sum())
    return replace(roster, n_together=n_together, most_paid=members.most_paid)


def _check_all_listed(accounts: Accounts) -> None:
    """Raise InputError where nobody knows whom an earlier release has released."""
    _check_nothing_lost(accounts)
    if accounts.unlisted:
        names = ", ".join(accounts.unlisted[:5])
        more = len(accounts.unlisted) - 5
        raise InputError(
            f"privacy.returning: the ledger has no list of the units in {len(accounts.unlisted)} "
            f"earlier release(s) of this experiment ({names}"
            f"{f' and {more} more' if more > 0 else ''}): they were charged to everybody, or "
            "found as files. So nobody can tell who was released before, and nothing was charged. "
            'Use returning = "charge", or a new experiment name'
        )


def _check_nothing_lost(accounts: Accounts) -> None:
    if accounts.lost:
        raise InputError(
            f"{accounts.warnings[0]}. Until then nobody can tell who was released before, so no "
            "unit can be set aside for it, and nothing was charged"
        )


def _by_arm(accounts: Accounts, kept: Bools, out: Bools) -> list[str]:
    """Warn where arms differ in how many cannot pay: whoever is left is then no fair sample."""
    arms = accounts.members.arms
    n_arms = len(accounts.members.arm_names)
    left, gone = (np.bincount(arms[rows], minlength=n_arms) for rows in (kept & ~out, out))
    if not gone.any() or not left.any():
        return []
    observed = np.stack([left, gone]).astype(np.float64)
    observed = observed[:, observed.sum(axis=0) > 0]
    expected = observed.sum(axis=1, keepdims=True) * observed.sum(axis=0) / observed.sum()
    p = float(chdtrc(observed.shape[1] - 1, ((observed - expected) ** 2 / expected).sum()))
    told = (
        f"{BUDGET_SPENT}: {int(gone.sum()):,} unit(s) that came back were set aside, as they "
        "cannot pay; who comes back may depend on the treatment"
    )
    if p < SAMPLE_RATIO_ALARM:
        told += f", and here the arms differ in it (p = {p:.2g}): do not trust the effects"
    return [told]
