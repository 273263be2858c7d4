"""Units that were released before, or cannot pay: set aside by public facts alone.

Who was in which release is public, and so is what each unit has paid for them.
"""

from dataclasses import replace

import numpy as np

from flows.config.model.experiment import Config
from flows.ledger.members import Accounts, Members
from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.raw.spill.workspace import Workspace
from flows.raw.units.roster import check_left, roster_of
from flows.raw.units.rows import Rows, rows_where
from schemas.arrays import Bools
from schemas.errors import InputError
from schemas.roster import SAMPLE_RATIO_ALARM, Roster

RELEASED_BEFORE = "released_before"
BUDGET_SPENT = "budget_spent"
HOUSEHOLD_FULL = "household_full"


@values_free
def set_known_aside(
    config: Config,
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
    together = config.columns.privacy_unit is not None
    known = replace(
        roster,
        n_returning=None if accounts.unlisted else int(n_rows[before].sum()),
        n_arm_changed=None if accounts.unlisted or together else accounts.n_arm_changed,
        account_key_fingerprint=accounts.members.key_fingerprint,
        notes=(*roster.notes, *accounts.warnings),
    )
    kept = np.ones(raw.n_units, dtype=np.bool_)
    by_rule = dict(roster.quarantined_by_rule)
    notes: list[str] = []
    if config.privacy.rows_each is not None:
        kept = accounts.members.is_among_first(config.privacy.rows_each)
        by_rule[HOUSEHOLD_FULL] = int((~kept).sum())
    if config.privacy.returning == "set_aside":
        _check_all_listed(accounts)
        again = accounts.of_rows(before)
        by_rule[RELEASED_BEFORE] = int((again & kept).sum())
        kept &= ~again
    if config.privacy.spent == "set_aside":
        _check_nothing_lost(accounts)
        short = accounts.of_rows(
            accounts.cannot_pay(
                accounts.everybody, config.charged, config.budget, accounts.codes_without_own
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
    facts = roster_of(config.log_facts, left, by_rule, known)
    check_left(config.log_facts, facts, raw.n_units + roster.quarantined)
    of_left = accounts.kept(kept)
    facts = told_together(facts, of_left.members)
    return Sealed(left, left.n_units), facts, of_left


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
    from scipy.special import chdtrc  # noqa: PLC0415 - takes a quarter of a second

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
