"""The ledger: what every population has paid, in SQLite or PostgreSQL.

Every change is one short transaction that holds the whole ledger (SQLite: ``BEGIN IMMEDIATE``;
PostgreSQL: an advisory lock), so however many processes ask at once, the database lets them decide
one after the other. It is durable before any noise is drawn.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, MultipleResultsFound
from sqlalchemy.pool import NullPool

from flows.config.model.declared import Terms
from flows.ledger.ends import older_attempts
from flows.ledger.members import Accounts, Members
from flows.ledger.migrations import VERSION, migrate, version_of
from flows.ledger.place import PATIENCE, is_there, make_durable, make_private
from flows.ledger.rows import raw_rows
from flows.ledger.rules import (
    OPEN,
    ChargeRequest,
    Decision,
    Entry,
    State,
    decide,
    same_people,
)
from flows.ledger.statement import Statement
from flows.ledger.tables import (
    CHARGES,
    ENDS,
    METADATA,
    POPULATIONS,
    REGISTERS,
    VERSION_TABLE,
    concerns,
    insert,
    new_row,
    replacing,
    select,
    unfinished,
    update,
)
from flows.ledger.units.accounts import read_accounts, sum_up, tally
from flows.ledger.units.registers import Shelves, new_register, prefix_of
from flows.ledger.units.turn import turn_by_file, turn_by_server
from privatizers.accounting.budget import Budget
from schemas.errors import ClusterdpError, ConfigError, ConflictError, InputError

P = ParamSpec("P")
R = TypeVar("R")

_WAIT_SECONDS = 60
_LOCK = 0x636C75_73746572  # of the whole ledger, for PostgreSQL: "cluster" in ASCII

ResolveCharge = Callable[[Entry], State]
"""Finds out what became of an unfinished charge; the state it is in where that is unknown."""


@dataclass(frozen=True)
class ChargeGrant:
    """What a run was granted: a new charge, or the release that answers already."""

    decision: Decision
    charge: int | None
    """The id of the new charge; None where the release is unchanged."""
    path: Path
    statement: Statement
    same_people: dict[str, Budget]
    """What other populations paid for exactly these units."""
    unfinished: tuple[Path, ...]
    """Working folders of charges that are not settled, which nobody may clear away."""


@functools.lru_cache(maxsize=8)
def _engine_of(url: sa.URL, seconds: int) -> sa.Engine:
    """What connects to a database, and waits so long for it.

    It keeps no connection, and knows the statements that it has spelt: nights of several
    experiments have one.
    """
    if url.get_backend_name() == "sqlite":
        engine = sa.create_engine(
            url,
            poolclass=NullPool,
            connect_args={"timeout": seconds},
            hide_parameters=True,
        )
        sa.event.listen(engine, "connect", make_durable)
        return engine
    # What a server's defaults say must not weaken the ledger: each statement has to see what
    # was committed before the lock was had, and a commit has to be on the disk.
    given = url.query.get("options", "")
    options = (
        f"-c lock_timeout={seconds}s {given if isinstance(given, str) else ''} "
        "-c synchronous_commit=on"
    )
    return sa.create_engine(
        url.update_query_dict({**PATIENCE, **url.query, "options": options}),
        poolclass=NullPool,
        isolation_level="READ COMMITTED",
        hide_parameters=True,
    )


def told_plainly(act: Callable[P, R]) -> Callable[P, R]:
    """Let a method of the ledger say in one line what the database complains of.

    Raised outside the handling of the database's error, which holds the values of the statement.
    """

    @functools.wraps(act)
    def plain(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return act(*args, **kwargs)
        except DBAPIError as error:
            reason = (str(error.orig).strip().splitlines() or [type(error.orig).__name__])[0]
        except MultipleResultsFound:
            reason = f"the table {VERSION_TABLE.name} states several versions"
        raise InputError(
            f"ledger {args[0]}: {reason}; nothing is released without a ledger, so see that it can "
            "be reached and written, and run again"
        )

    return plain


class Ledger:
    """A ledger in the database at ``url``, which is made at the first charge."""

    def __init__(self, url: sa.URL) -> None:
        """Connect to nothing yet; :func:`ledger_url` checks what a configuration says."""
        self.file = Path(url.database or "") if url.get_backend_name() == "sqlite" else None
        hidden = [name for name in url.query if "password" in name]
        file = self.file
        self._folder = None if file is None else file.with_name(f"{file.name}.accounts")
        self.shelves = Shelves(self._folder)
        self._shown = url.difference_update_query(hidden).render_as_string(hide_password=True)
        self._is_complete = False  # whether this has seen that all tables are there
        self.engine = _engine_of(url, _WAIT_SECONDS)

    def __str__(self) -> str:
        """Where it is, without a password."""
        return self._shown

    def turn(self, population: str) -> AbstractContextManager[None]:
        """Let no other run look at the population's accounts or charge them meanwhile."""
        if self.file is None or self._folder is None:
            return turn_by_server(self.engine, population)
        make_private(self.file)
        return turn_by_file(self._folder, population)

    @told_plainly
    def settle(self, resolve_charge: ResolveCharge = lambda entry: entry.state) -> None:
        """Settle charges that runs left unfinished."""
        with self.alone() as connection:
            for entry in unfinished(connection):
                state = resolve_charge(entry)
                if state != entry.state:
                    update(connection, entry, state)

    @told_plainly
    def accounts(self, terms: Terms, members: Members, period: str) -> Accounts:
        """Find out what the units of a log have paid; to be called in the population's turn.

        Raises ConfigError where the accounts were begun under another key.
        """
        return read_accounts(self.alone, self.engine.connect, self.shelves, terms, members, period)

    @told_plainly
    def sum_up(self, population: str, mark: str) -> None:
        """Make sums of registers with a mark, so that few are read; takes the population's turn."""
        with self.turn(population):
            sum_up(self.alone, self.engine.connect, self.shelves, population, mark)

    @told_plainly
    def look_at_accounts(self, terms: Terms, members: Members, period: str) -> Accounts | None:
        """The same as it is now, for a dry run: changes nothing; None where none were begun."""
        if not self.has_accounts(terms.population):
            return None
        return read_accounts(None, self.engine.connect, self.shelves, terms, members, period)

    def register_marks(self, population: str) -> set[str]:
        """The marks of the population's registers: how, and under what keys, they were digested."""
        return {row["key_fingerprint"] for row in self.find(REGISTERS, population=population)}

    def has_accounts(self, population: str) -> bool:
        """Whether accounts by unit were begun, under some key."""
        return bool(self.find(POPULATIONS, population=population))

    @told_plainly
    def reserve(
        self,
        asked: ChargeRequest,
        resolve_charge: ResolveCharge = lambda entry: entry.state,
    ) -> ChargeGrant:
        """Charge one more draw, or name the release that answers already.

        Raises ConflictError and BudgetError as :func:`flows.ledger.rules.decide` does; what
        :meth:`settle` did first stays then.
        """
        self.settle(resolve_charge)
        with self.alone() as connection:
            # Of the population, of the experiment, and of the same units elsewhere.
            same_units = CHARGES.c.units_digest == asked.fingerprint.units
            entries = select(connection, sa.or_(concerns(asked.terms), same_units))
            decision = decide(entries, asked)
            path = asked.path_of(decision.name)
            charge = None
            if decision.unchanged is None:
                charge = insert(connection, new_row(asked, decision.name, path))
                self._enter_members(connection, entries, asked, charge)
            return ChargeGrant(
                decision=decision,
                charge=charge,
                path=decision.unchanged.path if decision.unchanged else path,
                statement=_statement(connection, asked.terms, asked.accounts),
                same_people=same_people(entries, asked),
                unfinished=tuple(e.draft for e in unfinished(connection) if e.draft is not None),
            )

    def _enter_members(
        self, connection: sa.Connection, entries: Sequence[Entry], asked: ChargeRequest, charge: int
    ) -> None:
        """Write down who is in the release that is charged."""
        accounts, population = asked.accounts, asked.terms.population
        if accounts is None:
            return
        now = {
            entry.id
            for entry in entries
            if entry.population == population and entry.counts and entry.roster is not None
        }
        if now != accounts.charges and (asked.terms.sets_aside or not now <= accounts.charges):
            raise ConflictError(
                f"charges of population {population!r} changed while its accounts were read; "
                "nothing was charged. Run it again"
            )
        name = f"{prefix_of(population)}-{charge}"
        members = accounts.members
        written = self.shelves.write(connection, name, [members.words])
        histories = members.histories(asked.terms.cost)
        row = new_register(population, name, members.mark, written, histories, met=accounts.met)
        for change in replacing(REGISTERS, row, "name"):
            connection.execute(change)
        connection.execute(sa.update(CHARGES).where(CHARGES.c.id == charge).values(roster=name))

    def begin_publishing(self, charge: int, file_sha256: str | None = None) -> None:
        """Note that the release may become public from now on; ClusterdpError if it may not.

        ``file_sha256`` is the digest of the file that is to become public.
        """
        if not self._move(charge, State.RESERVED, State.PUBLISHING, file_sha256=file_sha256):
            raise ClusterdpError(
                "the reservation of this release was given back while it was being made "
                "(abandoned, or taken for dead); nothing was published. Run it again"
            )

    def publish(self, charge: int) -> None:
        """Note that the release is public."""
        self._move(charge, State.PUBLISHING, State.PUBLISHED)

    def give_back(self, charge: int) -> None:
        """Void a reservation; nothing happens to a charge that may have become public."""
        self._move(charge, State.RESERVED, State.VOID)

    def withdraw(self, charge: int) -> None:
        """Void a charge whose run knows that it did not get its public name."""
        self._move(charge, State.PUBLISHING, State.VOID)

    @told_plainly
    def abandon(self, experiment: str, release_id: str) -> State:
        """Settle an unfinished charge whose run an operator knows to be dead.

        A reservation is given back, as its run can no longer publish; what was about to become
        public stays charged. Returns the new state; ConfigError where there is no such charge.
        """
        with self.alone() as connection:
            named = sa.and_(CHARGES.c.slot == release_id, CHARGES.c.experiment == experiment)
            entries = select(connection, named)
            if not entries or entries[0].state not in OPEN:
                state = f"{entries[0].state} already" if entries else "not in the ledger"
                raise ConfigError("--abandon", f"{release_id} is {state}; nothing was changed")
            (entry,) = entries
            new = State.VOID if entry.state == State.RESERVED else State.LOST
            update(connection, entry, new)
            return new

    def known(self, experiment: str) -> set[str]:
        """The release ids of an experiment that are charged."""
        return {entry.name.release_id for entry in self.entries_of(experiment) if entry.counts}

    def unfinished_folders(self) -> set[Path]:
        """Working folders of charges that are not settled, which nobody may clear away."""
        return {e.draft for e in self.charges(CHARGES.c.state.in_(OPEN)) if e.draft is not None}

    def entries_of(self, experiment: str) -> list[Entry]:
        """All charges for an experiment, the oldest first; changes nothing."""
        return self.charges(CHARGES.c.experiment == experiment)

    @told_plainly
    def statement(self, terms: Terms, *, exact: bool = False) -> Statement:
        """Return what a population has paid; changes nothing, and makes no ledger.

        If it is to be ``exact``, the accounts of all units are looked at, which takes a while.
        """
        with self.reading() as connection:
            if connection is None:
                return Statement(terms, ())
            statement = _statement(connection, terms)
            if exact and any(entry.roster is not None for entry in statement.entries):
                of_units = tally(connection, self.shelves, statement.entries, terms.population)
                return replace(statement, tally=of_units)
            return statement

    def entries(self, terms: Terms) -> list[Entry]:
        """All entries of a population or of an experiment; changes nothing."""
        return self.charges(concerns(terms))

    @told_plainly
    def _move(self, charge: int, before: State, after: State, **changes: str | None) -> bool:
        with self.alone() as connection:
            one = sa.and_(CHARGES.c.id == charge, CHARGES.c.state == before)
            entries = select(connection, one)
            for entry in entries:
                update(connection, entry, after, **changes)
                if after == State.VOID and entry.roster is not None:
                    self.shelves.remove(connection, [entry.roster])
            return bool(entries)

    @told_plainly
    def charges(self, *conditions: sa.ColumnElement[bool]) -> list[Entry]:
        """The charges that fulfil all conditions, the oldest first; changes nothing."""
        with self.reading() as connection:
            return [] if connection is None else select(connection, sa.and_(*conditions))

    @told_plainly
    def find(self, table: sa.Table, **same: str) -> list[Mapping[Any, Any]]:
        """The rows of a table that have these values, as they are; changes nothing."""
        with self.reading() as connection:
            if connection is None:
                return []
            has_it = self._is_complete or sa.inspect(connection).has_table(table.name)
            if not has_it:  # the ledger is not brought up to date yet
                rows = older_attempts(connection) if table is ENDS else []
                return [row for row in rows if same.items() <= row.items()]
            alike = (table.c[name] == value for name, value in same.items())
            return list(connection.execute(raw_rows(table).where(*alike)).mappings())

    @told_plainly
    def write(self, *changes: sa.Executable) -> None:
        """Make changes in one transaction, in their order."""
        with self.alone() as connection:
            for change in changes:
                connection.execute(change)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection | None]:
        """Open the ledger to look at it; None where there is none."""
        if self.file is not None and not is_there(self.file):
            self._is_complete = False
            yield None
            return
        with self.engine.connect() as connection:
            made = self._is_complete or sa.inspect(connection).has_table(VERSION_TABLE.name)
            version = self.version(connection) if made else None
            self._is_complete = version == VERSION
            yield connection if version else None

    @contextmanager
    def alone(self) -> Iterator[sa.Connection]:
        """Open a transaction that no other one of the ledger runs beside; make what is missing."""
        if self.file is not None:
            self._is_complete &= is_there(self.file)
            make_private(self.file)
        with self.engine.connect() as connection, connection.begin():
            if self.file is not None:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            else:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            if not self._is_complete:
                METADATA.create_all(connection)
            version = self.version(connection)
            if version is None:
                connection.execute(sa.insert(VERSION_TABLE).values(version=VERSION))
            elif version < VERSION:
                METADATA.create_all(connection)
                migrate(connection, version)
            yield connection
        self._is_complete = True

    def version(self, connection: sa.Connection) -> int | None:
        """The ledger's version, None where it is still empty; InputError if it is another's."""
        return version_of(connection, f"ledger {self}:")


def _statement(
    connection: sa.Connection, terms: Terms, accounts: Accounts | None = None
) -> Statement:
    """The population's entries without their digests, which nobody outside need see."""
    entries = select(connection, CHARGES.c.population == terms.population)
    lost = frozenset() if accounts is None else accounts.lost
    return Statement(terms, tuple(replace(entry, fingerprint=None) for entry in entries), lost)
