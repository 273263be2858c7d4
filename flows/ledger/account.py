"""What a run does with the ledger: charge, publish, and finish what dead runs left.

The order, which a kill at any moment survives: reserve (charged, durably) → draw and write the
draft → note that it is about to become public → give it its name → note that it is public.
"""

import math
import os
import socket
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.config.load import load_any
from flows.config.model.declared import Declared, Terms
from flows.config.signing_key import SigningKey, read_signing_key
from flows.ledger.attempts import AttemptLog
from flows.ledger.database import ChargeGrant, Ledger
from flows.ledger.marks import (
    closing_of,
    lists_of,
    note_pruned,
    note_withdrawal,
)
from flows.ledger.members import Accounts, Members
from flows.ledger.place import LedgerPlace, ledger_place
from flows.ledger.rules import (
    OPEN,
    ChargeRequest,
    Entry,
    Fingerprint,
    State,
    amount_text,
    check_accounts,
    of_period,
    refuse_early,
)
from flows.ledger.shelves.files import Files, FileState
from flows.ledger.shelves.shelf import Shelf, shelf_of
from flows.ledger.standing import Standing, standings
from flows.ledger.statement import Statement
from flows.released.checksums import sha256_of
from flows.released.file.draft import (
    complete,
    draft_in,
    has_name,
    make_public,
    sweep,
)
from flows.released.lists import Closing, Known, Lists
from flows.runtime import clock
from flows.runtime.houses import offered
from flows.runtime.reading.regular_files import digest_of
from flows.runtime.working_folders import keep, lock_if_dead
from flows.schedule.periods import Schedule
from privatizers.accounting.budget import of_group
from schemas.errors import ClusterdpError, ConflictError, InputError
from schemas.names import ReleaseName

if TYPE_CHECKING:
    from flows.released.night import MadeNight  # which opens DuckDB

UNLIMITED = (
    "privacy.budget_epsilon is not set: nothing limits what a unit pays over all releases; declare "
    "how much that may be"
)


@dataclass(frozen=True)
class Charge:
    """One release's charge, or the release that answers already (``is_new`` is false then)."""

    name: ReleaseName
    path: Path
    is_new: bool
    receipt: ChargeGrant
    folder: Path
    notes: tuple[str, ...] = ()
    """Warnings about what lies beside the releases."""

    @property
    def draft(self) -> Path:
        """The file that is to become the release."""
        return draft_in(self.folder)

    @property
    def statement(self) -> Statement:
        """What the population has paid, this charge included."""
        return self.receipt.statement

    @property
    def warnings(self) -> tuple[str, ...]:
        """That no budget is declared, that others have paid for the same people; its notes."""
        terms = self.receipt.statement.terms
        unlimited = () if terms.limit.epsilon < math.inf else (UNLIMITED,)
        return (
            self.notes
            + unlimited
            + tuple(
                f"exactly these units were released under population {name!r} too, for epsilon "
                f"{amount_text(paid.epsilon)}; whoever is in both has paid the sum. Name one "
                "population for both (privacy.population), so that one budget covers it"
                for name, paid in self.receipt.same_people.items()
            )
        )


_PUTS = 10  # times that all is made anew, where other machines put up meanwhile


@dataclass(eq=False, repr=False)
class Account:
    """The dealings of an experiment, a site of one, or its effect models, with their ledger."""

    terms: Terms
    shelf: Shelf
    place: LedgerPlace

    def __post_init__(self) -> None:
        """Read and make nothing yet."""
        self._ledger = Ledger(self.place.url)
        self.log = AttemptLog(self._ledger, self.terms.experiment)
        self._files = Files(self._ledger, self.shelf)
        self._notes: list[str] = []
        self._mark: str | None = None
        self._problem: str | None = None

    @classmethod
    def of(cls, config: Declared) -> "Account":
        """Those of a configuration of any kind."""
        return cls(config.terms, shelf_of(config), ledger_place(config))

    @cached_property
    def _signing_key(self) -> SigningKey | None:
        return read_signing_key(self.shelf.signing_key)

    def check_key_named(self) -> None:
        """Raise ConfigError where accounts by unit need a key that the configuration lacks."""
        if self.terms.by_unit:
            _ = self.place.key_path

    @property
    def has_accounts(self) -> bool:
        """Whether accounts of units were begun, under some key."""
        return self._ledger.has_accounts(self.terms.population)

    @property
    def register_marks(self) -> set[str]:
        """How the units of earlier releases were digested: marks of their registers."""
        return self._ledger.register_marks(self.terms.population)

    def statement(self, *, exact: bool = False) -> Statement:
        """What the population has paid, with all its entries; changes nothing.

        If it is to be ``exact``, the accounts of all units are added up, which takes a while.
        """
        return self._ledger.statement(self.terms, exact=exact)

    def turn(self) -> AbstractContextManager[None]:
        """Look at accounts and charge them, while no other run of the population does."""
        return self._ledger.turn(self.terms.population)

    def abandon(self, release_id: str) -> State:
        """Settle an unfinished charge of the experiment, as an operator says; its new state."""
        return self._ledger.abandon(self.terms.experiment, release_id)

    def refuse_early(self, period: str, *, revise: bool, most_paid: int = 1) -> None:
        """Raise BudgetError where no log could make the charge fit; changes nothing.

        Of a log that was read, somebody pays for ``most_paid`` of its rows. ConflictError where a
        file is there that the ledger has not drawn.

        Nor could a release be made with a signing key that cannot be used, or with accounts by unit
        and no key named that they need: ConfigError; or put up in a store that nobody was named
        for: InputError.
        """
        _ = self._signing_key
        if self.shelf.store is not None:
            self.shelf.store.check_named()
        self.check_key_named()
        self.shelf.check_known(self._ledger)
        terms = replace(self.terms, cost=of_group(self.terms.cost, most_paid))
        refuse_early(self._ledger.entries(terms), terms, period, revise=revise)

    def accounts(self, members: Members, period: str) -> Accounts:
        """What the units of a log have paid; to be called in the population's turn."""
        self._notes += self.settle()
        self._mark = members.mark
        return self._ledger.accounts(self.terms, members, period)

    def sum_up(self) -> None:
        """Let later nights read fewer registers, where this one looked at some; takes the turn."""
        if self._mark is not None:
            with suppress(ClusterdpError, OSError):  # nothing depends on it
                self._ledger.sum_up(self.terms.population, self._mark)

    def look_at_accounts(self, members: Members, period: str) -> Accounts | None:
        """The same for a dry run: changes nothing; None where no accounts were begun."""
        return self._ledger.look_at_accounts(self.terms, members, period)

    def check_accounts(self, accounts: Accounts, period: str) -> None:
        """Raise BudgetError where a release of units with these accounts would be refused.

        One of a period that was released may turn out unchanged, and is not.
        """
        if not self.has_released(period):
            check_accounts(self._ledger.entries(self.terms), self.terms, accounts)

    def has_released(self, period: str) -> bool:
        """Whether a release of the period was charged: it may turn out unchanged."""
        return bool(of_period(self._ledger.entries(self.terms), self.terms.experiment, period))

    def has_published(self, period: str) -> bool:
        """Whether a release of the period is public, wherever its file is now."""
        of_period = (one for one in self.entries() if one.name.period == period)
        return any(one.state == State.PUBLISHED for one in of_period)

    def versions_of(self, period: str) -> Mapping[str, str]:
        """In which versions a rerun of a period reads its log's tables; changes nothing.

        Those that its last release was made from, or is being made from by a run that has begun to
        publish. A reservation may yet be given back, and of a file that was pruned nothing is asked
        but that it was.
        """
        entries = of_period(self.entries(), self.terms.experiment, period)
        made = [e for e in entries if e.state != State.RESERVED and e.pruned_at is None]
        return (max(made, key=lambda entry: entry.name).versions if made else None) or {}

    def reserve(
        self,
        period: str,
        made_from: Fingerprint,
        folder: Path,
        *,
        revise: bool,
        accounts: Accounts | None = None,
        most_paid: int = 1,
        versions: Mapping[str, str] | None = None,
    ) -> Charge:
        """Charge for a release of ``period``, to be drafted in the working ``folder``.

        With accounts by unit, ``accounts`` are those of its units. Somebody pays for ``most_paid``
        of its rows; ``versions`` are those of the log's tables. Finishes what dead runs left, and
        brings here what other machines have put up, first. Raises ConflictError and BudgetError;
        nothing is charged then.
        """
        if self.terms.by_unit and accounts is None:
            raise AssertionError("each unit has an account here, and nobody has looked at it")
        if accounts is None:  # else it was done as these were looked at
            self.catch_up()
        shelf, key = self.shelf, self._signing_key
        asked = ChargeRequest(
            self.terms,
            period,
            made_from,
            shelf.directory,
            folder,
            revise,
            shelf.suffix,
            accounts,
            most_paid,
            versions or {},
        )
        notes = [*self._notes, *([] if key is None else key.warnings)]
        shelf.check_known(self._ledger)
        try:
            receipt = self._ledger.reserve(asked, resolve_charge)
        finally:
            notes += self._renew_beside()  # a run may have been killed just before it
        notes += self._not_as_published()
        sweep(shelf.directory, keep=receipt.unfinished)
        is_new = receipt.charge is not None
        unchanged = receipt.decision.unchanged
        if unchanged is not None and not self._files.holds(receipt.path, unchanged):
            raise ConflictError(
                f"{receipt.path}: is not the file that was published; nothing was done. Put that "
                "back from a copy, or ask for another draw, which costs privacy again, by --revise"
            )
        if unchanged is not None and unchanged.withdrawal is not None:
            notes.append(
                f"{unchanged.name.release_id} was withdrawn ({unchanged.withdrawal.reason}); "
                "another draw costs privacy again: ask for it with --revise"
            )
        return Charge(receipt.decision.name, receipt.path, is_new, receipt, folder, tuple(notes))

    def _not_as_published(self) -> list[str]:
        """Models and reports, of which no status tells, that are gone or altered."""
        if self.shelf.has_latest:
            return []
        problems = {
            FileState.GONE: "is gone",
            FileState.ALTERED: "is not the file that was published",
        }
        entries = self.entries()
        files = self._files.look(entries)
        return [
            f"{entry.path}: {problems[files[entry.id]]}; put it back from a copy"
            for entry in entries
            if entry.state == State.PUBLISHED and files[entry.id] in problems
        ]

    def digests(self) -> dict[str, str]:
        """The SHA-256 of the file of each release, by its id, as it was when it was published.

        A release that is known from its file alone has none: the file may have been altered.
        """
        return {
            entry.name.release_id: entry.file_sha256
            for entry in self.entries()
            if entry.counts and entry.file_sha256 is not None
        }

    def settle(self) -> list[str]:
        """Finish what dead runs left, without a release of one's own; gives warnings.

        Raises ConflictError where a file is there that the ledger knows nothing of.
        """
        shelf = self.shelf
        shelf.check_known(self._ledger)
        self._ledger.settle(resolve_charge)
        warnings = self._renew_beside()
        self._note_files()
        return [*warnings, *self._put_up()]

    def catch_up(self) -> None:
        """Bring here what other machines have put up until now, where there is a store."""
        self._notes += self._put_up()

    def clear_away(self) -> None:
        """Remove the working folders of dead runs, once what they left is finished."""
        if self.shelf.directory.is_dir():
            sweep(self.shelf.directory, keep=self.unfinished())

    def renew_series(self, made: "MadeNight | None" = None) -> tuple[str, ...]:
        """Bring ``series.duckdb`` beside the releases up to date; gives warnings, never fails.

        ``made`` is the night that this run has released. Where they are put up in a store, all is.
        """
        shelf, warnings = self.shelf, tuple[str, ...]()
        for renew in offered("renew_series"):
            warnings += renew(shelf.directory, shelf.experiment, self.known, self._files, made)
        self._note_files()
        return (*warnings, *self._put_up())

    def _put_up(self) -> list[str]:
        """Put up what the folder has, with what other machines have put up until then."""
        store, folder = self.shelf.store, self.shelf.directory
        if store is None:
            return []
        problem = "other machines are putting up, too"
        try:
            for _ in range(_PUTS):
                seen, digests, pruned = store.look(), self.digests(), self.lists().pruned
                digests = {name: one for name, one in digests.items() if name not in pruned}
                brought = store.bring(folder, seen, digests)
                warnings = self._renew_beside()  # after that look, whatever was noted since
                if brought and self.shelf.has_latest:
                    for renew in offered("renew_series"):
                        experiment = self.shelf.experiment
                        warnings += renew(folder, experiment, self.known, self._files, None)
                if store.put_up(folder, seen, digests, pruned):
                    return warnings
        except (ClusterdpError, OSError) as error:
            problem = str(error)
        told, self._problem = self._problem, problem
        said = f"not all is put up in the store, which the next run does ({problem})"
        return [] if told == problem else [said]

    def outputs_of_nights(self) -> list[dict[str, Any]]:
        """How many units had each output, by the series beside the releases; changes nothing.

        Empty where there is none, or it is not as it was made.
        """
        shelf = self.shelf
        found: list[dict[str, Any]] = []
        for read in offered("outputs_of_nights"):
            found += read(shelf.directory, shelf.experiment, self._files)
        return found

    def _note_files(self) -> None:
        with suppress(ClusterdpError):  # they are read once more then
            self._files.note()

    def standings(self, schedule: Schedule | None, now: datetime) -> list[Standing]:
        """Where every period stands that anybody knows of; changes nothing."""
        ledger, shelf = self._ledger, self.shelf
        names = shelf.names()  # first: what is published after it is no stray
        entries = ledger.entries(self.terms)
        ours = [entry for entry in entries if entry.name.experiment == shelf.experiment]
        charged = {entry.name.release_id for entry in ours if entry.counts}
        strays = [name for name in names if name.release_id not in charged]
        last = {attempt.period: attempt for attempt in self.log.attempts()}
        return standings(schedule, now, ours, last, self._files.look(ours), strays)

    @contextmanager
    def publishing(self, charge: Charge) -> Iterator[list[str]]:
        """Make the draft public on leaving the block without an error; else give the charge back.

        Gives a list that warnings are put into.
        """
        number = charge.receipt.charge
        if number is None:
            raise AssertionError("what is to be published is public already")
        ledger = self._ledger
        warnings: list[str] = []
        begun = False
        try:
            yield warnings
            complete(charge.draft)
            digest = sha256_of(charge.draft)
            begun = True
            ledger.begin_publishing(number, digest)
            make_public(charge.draft, charge.path)
            self._files.learn(charge.path, charge.draft, digest)
        except BaseException:
            if not has_name(charge.draft, charge.path):  # else the next run notes that it has
                try:
                    ledger.give_back(number)
                    ledger.withdraw(number)
                except ClusterdpError:  # the next run will
                    if begun:  # by the draft
                        keep(charge.folder)
            raise
        try:
            ledger.publish(number)
        except ClusterdpError as error:
            name = charge.name.release_id
            warnings.append(f"{name} is public, which the next run notes: {error}")
        else:
            warnings += self._renew_beside()
            if not self.shelf.has_latest:  # and no series is to come
                warnings += self._put_up()

    def entries(self) -> list[Entry]:
        """All charges for the experiment, the oldest first; changes nothing."""
        return self._ledger.entries_of(self.shelf.experiment)

    def unfinished(self) -> set[Path]:
        """Working folders of charges that are not settled, which nobody may clear away."""
        return self._ledger.unfinished_folders()

    def closing(self, now: datetime) -> Closing | None:
        """How the experiment ended; None while one of its periods may still come by itself."""
        schedule = self.shelf.calendar
        if schedule is None or schedule.until is None:
            return None
        periods = partial(self.standings, schedule, now)
        return closing_of(self.shelf.experiment, schedule, periods, now)

    def known(self) -> Known:
        """What there is to say of the releases, and which files in their folder are these."""
        shelf, entries = self.shelf, self.entries()
        files = self._files.look(entries)
        there = [
            e
            for e in entries
            if e.state == State.PUBLISHED or (e.state == State.LOST and e.file_sha256)
            if os.path.lexists(shelf.path_of(e.name))
        ]
        return Known(
            lists_of(entries, self.closing(clock.now())),
            [e.name for e in there if files[e.id] == FileState.HERE],
            {shelf.path_of(e.name).name: e.file_sha256 for e in there if not e.pruned_at},
        )

    def lists(self) -> Lists:
        """What there is to say beside the releases, by the ledger."""
        return lists_of(self.entries(), self.closing(clock.now()))

    def latest(self) -> str | None:
        """The release that ``latest.duckdb`` is; None where there is none to be used."""
        return self.known().latest

    def note_withdrawal(self, release_id: str, reason: str | None) -> bool:
        """Note why a release is withdrawn, or that it is no longer (None); whether that is news.

        What lies beside releases is to be brought up to date then (:meth:`settle`). Raises
        ConfigError where there is no such release that is public.
        """
        now = clock.now()
        return note_withdrawal(self._ledger, self.shelf.experiment, release_id, reason, now)

    def note_pruned(self, charges: Collection[int]) -> None:
        """Note that the files of these charges are pruned from now on; likewise."""
        note_pruned(self._ledger, charges, clock.now())

    def _renew_beside(self) -> list[str]:
        key = self._signing_key
        sign = None if key is None else key.sign
        return self.shelf.renew_beside(self.known, sign)


def account_of(path: Path) -> tuple[str, Account]:
    """Return the name and the account of a configuration, whatever it is of."""
    account = Account.of(load_any(path))
    return account.terms.experiment, account


def resolve_charge(entry: Entry) -> State:
    """Find out what became of an unfinished charge, and finish it where its run is dead.

    A dead run's reservation is void, as only a run that began to publish can have shown anything.
    What was about to become public is made so now, if it is not, from its draft. Where the run
    lives, or cannot be seen from here, the state stays what it is.
    """
    folder = entry.draft
    if entry.state not in OPEN or folder is None:
        return entry.state
    with lock_if_dead(folder) as dead:
        gone_with_its_run = not folder.exists() and entry.host == socket.gethostname()
        if not (dead or gone_with_its_run):
            return entry.state
        return State.VOID if entry.state == State.RESERVED else _finish(entry, draft_in(folder))


def _finish(entry: Entry, draft: Path) -> State:
    """Make public what a dead run was about to: the very file whose digest it has noted."""
    if _is_drawn(entry.path, entry):
        return State.PUBLISHED
    if not _is_drawn(draft, entry):
        return State.LOST
    try:
        make_public(draft, entry.path)
    except ClusterdpError:  # whatever the reason, another run will try again
        return entry.state
    return State.PUBLISHED


def _is_drawn(path: Path, entry: Entry) -> bool:
    with suppress(InputError):
        return digest_of(path) == entry.file_sha256
    return False
