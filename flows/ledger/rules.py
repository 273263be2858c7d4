"""What a ledger knows of a population, and what it decides: facts and pure functions.

A release is charged before any of its noise is drawn, and a charge is given back only when it is
certain that nothing was published:

    RESERVED ──► PUBLISHING ──► PUBLISHED
       │              └───────► LOST        its file is gone; the charge stays
       └────► VOID                          given back

Only a reservation that is still one may begin to publish, so a run whose reservation was given
back can no longer publish anything. :mod:`flows.ledger.database` keeps the entries in a database.
"""

import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from flows.config.model.declared import Terms
from flows.ledger.members import Accounts, greatest
from flows.released.file.draft import run_of
from flows.runtime.terminal import shown
from privatizers.accounting.budget import Budget, of_group, total
from schemas.errors import BudgetError, ConflictError
from schemas.names import ReleaseName

_SHOWN = 5  # releases that a refusal names


class State(StrEnum):
    """How far a charge has come."""

    RESERVED = "reserved"
    """Charged; nothing is published yet."""
    PUBLISHING = "publishing"
    """About to get its public name, or just given it."""
    PUBLISHED = "published"
    """Public."""
    LOST = "lost"
    """Its run died while publishing and no file is left: it may have been seen, so it counts."""
    VOID = "void"
    """Given back: certainly never published."""


OPEN = (State.RESERVED, State.PUBLISHING)
"""States that a run is still to leave, if it lives."""


@dataclass(frozen=True)
class Fingerprint:
    """Keyed digests of what a release is made from, each behind the name of its key.

    ``rows`` depends on outcomes: it is for the ledger alone, and for no log or message.
    """

    rows: str = field(repr=False)
    """Of the mapped rows, in any order."""
    units: str = field(repr=False)
    """Of the unit ids alone."""
    settings: str = field(repr=False)
    """Of all settings that can affect a release."""

    def same_key(self, other: "Fingerprint") -> bool:
        """Whether both were made under one key, so that they can be compared."""
        return self.rows.partition(":")[0] == other.rows.partition(":")[0]


@dataclass(frozen=True)
class Withdrawal:
    """That a release is not to be used any more, as its operator says."""

    reason: str
    """The operator's words, which are published."""
    at: datetime
    """UTC, as all times of a ledger."""


@dataclass(frozen=True)
class Entry:
    """A charge in the ledger."""

    id: int
    population: str
    name: ReleaseName
    cost: Budget
    state: State
    path: Path
    """Where the release lies once it is published; absolute, on the machine that made it."""
    draft: Path | None
    """The working folder of its run; None where the entry was made from a published file."""
    host: str
    created_at: datetime
    fingerprint: Fingerprint | None = None
    """None where the entry was made from a published file."""
    roster: str | None = None
    """The register of the units in it; None where it counts for everybody."""
    most: Budget = field(default_factory=Budget)
    """The most that one of these units had paid for releases with a register, with this one."""
    file_sha256: str | None = None
    """Of the file that is published; None before it is complete, and where nobody knew it."""
    withdrawal: Withdrawal | None = None
    """Why it is not to be used any more; its charge stays."""
    pruned_at: datetime | None = None
    """When its file was removed as too old; its charge stays."""
    versions: Mapping[str, str] | None = None
    """In which versions its log's tables were read; None where they have none."""

    @property
    def counts(self) -> bool:
        """Whether it is part of what was spent."""
        return self.state != State.VOID

    def as_json(self) -> dict[str, Any]:
        """An entry of ``clusterdp ledger --json``."""
        return {
            "release_id": self.name.release_id,
            "kind": self.name.kind,
            "experiment": self.name.experiment,
            "period": self.name.period,
            "epsilon": self.cost.epsilon,
            "delta": self.cost.delta,
            "state": str(self.state),
            "created_at": utc_text(self.created_at),
            "run": None if self.draft is None else run_of(self.draft),
            "withdrawn": None if self.withdrawal is None else self.withdrawal.reason,
            "pruned_at": None if self.pruned_at is None else utc_text(self.pruned_at),
        }

    def same_as(self, asked: "ChargeRequest") -> bool:
        """Whether it was made from the same rows with the same settings."""
        mine, theirs = self.fingerprint, asked.fingerprint
        return mine is not None and (mine.rows, mine.settings) == (theirs.rows, theirs.settings)


Marks = Mapping[str, str | datetime | Withdrawal]
"""What lists beside releases note of one, by the field of its entry."""


@dataclass(frozen=True)
class UnknownRelease:
    """A published release that the ledger may not know of, and what it says it cost."""

    name: ReleaseName
    cost: Budget
    path: Path
    marks: Marks = field(default_factory=dict)
    """What was noted of it."""


@dataclass(frozen=True)
class ChargeRequest:
    """What a run asks of the ledger: one more draw on a population."""

    terms: Terms
    period: str
    fingerprint: Fingerprint
    directory: Path
    """The folder of the experiment's releases."""
    draft: Path | None
    """The working folder of the run; whoever can lock it knows that the run is dead."""
    revise: bool = False
    suffix: str = ".duckdb"
    """Of the file that is published."""
    accounts: Accounts | None = None
    """What the units have paid, where each has an account."""
    most_paid: int = 1
    """The most rows of the log that one member of the population pays for, each of them."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """In which versions the log's tables were read, by their keys."""

    @property
    def cost(self) -> Budget:
        """What whoever pays most is charged for the release."""
        return of_group(self.terms.cost, self.most_paid)

    def path_of(self, name: ReleaseName) -> Path:
        """Where a release of that name is published."""
        return self.directory / f"{name.release_id}{self.suffix}"


@dataclass(frozen=True)
class Decision:
    """A new charge under ``name``, or the release that answers already."""

    name: ReleaseName
    unchanged: Entry | None = None


def utc_text(moment: datetime) -> str:
    """A moment in UTC as documents have it."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def amount_text(amount: float) -> str:
    """An ε or δ as people write it, with all its digits."""
    return repr(amount).removesuffix(".0")


def spent(entries: Iterable[Entry], population: str, lost: Collection[int] = ()) -> Budget:
    """The most that a member of the ``population`` has paid, ε and δ each.

    Releases without a register, or whose register is ``lost``, count for everybody. Of the others
    each tells what its units had paid by then; charges given back since may make that too much.
    """
    counted = [entry for entry in entries if entry.population == population and entry.counts]
    of_units = greatest(entry.most for entry in counted if entry.roster is not None)
    return total((of_everybody(counted, population, lost), of_units))


def of_everybody(entries: Iterable[Entry], population: str, lost: Collection[int] = ()) -> Budget:
    """What everybody has paid: for releases of which nobody knows who is in them."""
    return total(
        entry.cost
        for entry in entries
        if entry.population == population
        and entry.counts
        and (entry.roster is None or entry.id in lost)
    )


def decide(entries: Sequence[Entry], asked: ChargeRequest) -> Decision:
    """Grant one more draw, or name the release that has the same rows and settings already.

    ``entries`` are all of the population and all of the experiment, in the order they were made.
    Raises ConflictError where the period is being released, or was from other rows or settings
    (unless a revision is asked for), and BudgetError where the population cannot pay.
    """
    period = of_period(entries, asked.terms.experiment, asked.period)
    for entry in period:
        if entry.state in OPEN:
            raise _being_released(entry)
    if period and not asked.revise:
        return _unchanged(period, asked)
    if asked.accounts is None:
        check_budget(entries, asked.terms.population, asked.cost, asked.terms.limit)
    else:
        _check_nobody_waits(entries, asked)
        check_accounts(entries, asked.terms, asked.accounts)
    revision = max((entry.name.revision for entry in period), default=0) + 1
    return Decision(ReleaseName(asked.terms.experiment, asked.period, revision))


def check_accounts(entries: Sequence[Entry], terms: Terms, accounts: Accounts) -> None:
    """Raise BudgetError where a unit cannot pay, saying how many cannot and for what they paid.

    Every unit is to have paid at most the limit: for releases that count for everybody, for those
    it is in, and for this one.
    """
    everybody = of_everybody(entries, terms.population, accounts.lost)
    limit = terms.limit
    short = accounts.cannot_pay(everybody, terms.cost, limit, accounts.codes)
    n_short = int(short.sum())
    if n_short == 0:
        return
    paid = [everybody + each for each in accounts.paid(accounts.codes[short]).values()]
    n_rows = int(accounts.members.n_paid[short].max())
    cost = of_group(terms.cost, n_rows)
    name = "epsilon" if any((b + cost).epsilon > limit.epsilon for b in paid) else "delta"
    amounts = terms.cost, cost, limit.left_after(greatest(paid)), limit
    costs, for_rows, left, whole = (amount_text(getattr(b, name)) for b in amounts)
    twice = f" ({for_rows} for {n_rows} rows whose ids are one)" if n_rows > 1 else ""
    raise BudgetError(
        f"refused: this release costs {name} {costs}{twice}, which {n_short:,} of its "
        f"{len(short):,} units cannot pay: of the {whole} that each of population "
        f"{terms.population!r} may pay, {left} is left to one of them; nothing was drawn or "
        f"written.\n{_paid_for(entries, terms.population, accounts, name)}"
        f"Ask for a smaller privacy.{name}; or leave these units out "
        '(privacy.spent = "set_aside"); or, if they may pay more, raise '
        f"privacy.budget_{name}"
    )


def _paid_for(entries: Sequence[Entry], population: str, accounts: Accounts, which: str) -> str:
    """What the units that cannot pay were in; releases that count for everybody, too."""
    paid = [
        entry
        for entry in entries
        if entry.population == population
        and entry.counts
        and (entry.roster is None or entry.id in accounts.lost or accounts.found_in.get(entry.id))
    ]
    return _spending(paid, which, accounts.found_in)


def _check_nobody_waits(entries: Sequence[Entry], asked: ChargeRequest) -> None:
    """Raise ConflictError where who is set aside hangs on whether another run will publish."""
    if not asked.terms.once:
        return
    for entry in entries:
        same = entry.name.experiment == asked.terms.experiment and entry.name.period != asked.period
        if same and entry.state in OPEN:
            raise _being_released(entry)


def check_budget(entries: Sequence[Entry], population: str, cost: Budget, limit: Budget) -> None:
    """Raise BudgetError where ``population`` cannot pay ``cost``, saying who spent the rest.

    Everybody pays for every one of the ``entries`` that is the population's.
    """
    paid = [entry for entry in entries if entry.population == population and entry.counts]
    before = total(entry.cost for entry in paid)
    after = before + cost
    if after.fits_into(limit):
        return
    short = "epsilon" if after.epsilon > limit.epsilon else "delta"
    costs, left, whole = (
        amount_text(getattr(amount, short)) for amount in (cost, limit.left_after(before), limit)
    )
    raise BudgetError(
        f"refused: this release costs {short} {costs}, and of the {whole} that population "
        f"{population!r} may pay {left} is left; nothing was drawn or written.\n"
        f"{_spending(paid, short)}"
        f"Ask for a smaller privacy.{short}; or, if these people may pay more, raise "
        f"privacy.budget_{short}"
    )


def _spending(paid: Sequence[Entry], which: str, units: Mapping[int, int] | None = None) -> str:
    """The last few that took something, and how many of the units that cannot pay each has."""
    if not paid:
        return ""
    named = [
        f"{shown(each.name.release_id)} {amount_text(getattr(each.cost, which))}"
        + (f" ({units[each.id]:,} of them)" if units and units.get(each.id) else "")
        for each in paid[-_SHOWN:]
    ]
    more = len(paid) - len(named)
    rest = f", and {more} more before them (clusterdp ledger CONFIG lists all)" if more else ""
    return f"Spent by {', '.join(named)}{rest}.\n"


def of_period(entries: Sequence[Entry], experiment: str, period: str) -> list[Entry]:
    """The charges of a period that count."""
    wanted = (experiment, period)
    return [
        entry
        for entry in entries
        if (entry.name.experiment, entry.name.period) == wanted and entry.counts
    ]


def _unchanged(period: Sequence[Entry], asked: ChargeRequest) -> Decision:
    kept = [entry for entry in period if entry.pruned_at is None]
    if not kept:  # said alike whatever the rows are
        pruned = max(period, key=lambda entry: entry.name)
        raise ConflictError(
            f"period {pruned.name.period!r} was released as {pruned.name.release_id}, whose file "
            f"was pruned on {pruned.pruned_at:%Y-%m-%d} as older than retention.releases; nothing "
            "was done. Another draw on the same people costs privacy again: ask for it with "
            "--revise"
        )
    same = [entry for entry in kept if entry.same_as(asked)]
    if not same:
        raise _conflict(max(kept, key=lambda entry: entry.name), asked)
    last = max(same, key=lambda entry: entry.name)
    for path in (asked.path_of(last.name), last.path):
        if path.is_file():
            return Decision(last.name, replace(last, path=path))
    where = f"gone from {last.path.parent}"
    back = "Put the file back from a copy, or"
    if last.host != socket.gethostname():
        where = f"not here: {last.host} released it into {last.path.parent}"
        back = (
            "Where publish.directory is a store, run again once it is put up there; else bring the "
            "file here. Should it be gone there, too,"
        )
    raise ConflictError(
        f"period {asked.period!r} was released as {last.name.release_id}, from the same rows and "
        f"settings, but its file is {where}; nothing was done. {back} ask for another draw, which "
        "costs privacy again, with --revise"
    )


def _conflict(latest: Entry, asked: ChargeRequest) -> ConflictError:
    before = latest.fingerprint
    if before is None:
        why = "the ledger knows it from its file alone, so the rows cannot be compared"
    elif not before.same_key(asked.fingerprint):
        why = "the key its rows could be compared with is not the one in the quarantine folder"
    elif before.settings != asked.fingerprint.settings:
        why = "with other settings" + (
            "" if before.rows == asked.fingerprint.rows else ", and from other rows"
        )
    else:
        why = "from other rows; rows that came late need a revision"
    return ConflictError(
        f"period {asked.period!r} is published already, as {latest.name.release_id} ({why}); "
        "nothing was done. Another draw on the same people costs privacy again: ask for it with "
        "--revise"
    )


def _being_released(entry: Entry) -> ConflictError:
    since = f"{entry.created_at:%Y-%m-%d %H:%M} UTC"
    return ConflictError(
        f"{entry.name.release_id} is being released by another run (on {entry.host}, since "
        f"{since}); nothing was done. Wait for it. If you know that run to be dead: clusterdp "
        f"ledger CONFIG --abandon {entry.name.release_id}"
    )


def refuse_early(
    entries: Sequence[Entry], terms: Terms, period: str, *, revise: bool = False
) -> None:
    """Raise BudgetError where no log could change that; so that no log is read in vain.

    A period that was released may turn out unchanged, and an unfinished run may turn out dead:
    neither is refused here.
    """
    if revise or not of_period(entries, terms.experiment, period):
        done = [entry for entry in entries if entry.state not in OPEN]
        if terms.by_unit:  # who is in the log, nobody knows yet
            done = [entry for entry in done if entry.roster is None]
        check_budget(done, terms.population, terms.cost, terms.limit)


def same_people(entries: Iterable[Entry], asked: ChargeRequest) -> dict[str, Budget]:
    """What other populations paid for releases of exactly the units that are asked for."""
    theirs = [
        entry
        for entry in entries
        if entry.population != asked.terms.population
        and entry.counts
        and entry.fingerprint is not None
        and entry.fingerprint.units == asked.fingerprint.units
    ]
    return {name: spent(theirs, name) for name in sorted({each.population for each in theirs})}
