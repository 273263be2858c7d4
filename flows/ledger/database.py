"""The ledger: what every population has paid, in SQLite or PostgreSQL.

Every change is one short transaction that holds the whole ledger (SQLite: ``BEGIN IMMEDIATE``;
PostgreSQL: an advisory lock), so however many processes ask at once, the database lets them decide
one after the other. It is durable before any noise is drawn.
"""

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, MultipleResultsFound
from sqlalchemy.pool import NullPool

from flows.ledger.rules import (
    OPEN,
    ChargeRequest,
    Decision,
    Entry,
    State,
    Terms,
    UnknownRelease,
    decide,
    same_people,
    spent,
)
from flows.ledger.tables import (
    CHARGES,
    METADATA,
    VERSION_TABLE,
    concerns,
    entries_for,
    insert,
    new_row,
    row_of,
    select,
    unfinished,
    update,
)
from flows.runtime.files import private_directory
from flows.runtime.paths import absolute, check_place
from flows.runtime.regular_files import other_than_file
from privatizers.accounting.budget import Budget
from privatizers.accounting.composition import composed_epsilon
from schemas.errors import ClusterdpError, ConfigError, InputError, shown

P = ParamSpec("P")
R = TypeVar("R")

VERSION = 1
_WAIT_SECONDS = 60
_CONNECT_SECONDS = 60  # a busy server may take long to answer
_LOCK = 0x636C75_73746572  # of the whole ledger, for PostgreSQL: "cluster" in ASCII

ResolveCharge = Callable[[Entry], State]
"""Finds out what became of an unfinished charge; the state it is in where that is unknown."""


@dataclass(frozen=True)
class Statement:
    """What a population has paid and may pay; ``entries`` are its own, the oldest first."""

    terms: Terms
    entries: tuple[Entry, ...]

    @property
    def spent(self) -> Budget:
        """What a unit that is in every release of the population has paid."""
        return spent(self.entries, self.terms.population)

    @property
    def n_releases(self) -> int:
        """How many charges make up what was spent."""
        return sum(entry.counts for entry in self.entries)

    @cached_property
    def composed(self) -> Budget | None:
        """What all charges come to together, had they been fixed in advance; see `composition`.

        At the budget's δ, or the sum's where that is greater or alone. None where it tells nothing
        that the sum does not: of one charge, without a δ, or less than a thousandth below the sum.
        """
        prices = [entry.cost for entry in self.entries if entry.counts]
        limit = self.terms.limit.delta
        delta = max(self.spent.delta, limit if limit < 1.0 else 0.0)
        if len(prices) < 2 or not 0.0 < delta < 1.0:
            return None
        epsilon = composed_epsilon(prices, delta)
        return Budget(epsilon, delta) if epsilon < 0.999 * self.spent.epsilon else None

    def composed_json(self) -> dict[str, float | None]:
        """The fields of ``clusterdp ledger --json`` on :attr:`composed`; null where it is None."""
        found = self.composed
        return {
            "composed_epsilon": None if found is None else found.epsilon,
            "composed_delta": None if found is None else found.delta,
        }

    def as_json(self) -> dict[str, Any]:
        """The amounts, as ``clusterdp release --json`` gives them; null where no limit is set."""
        limit = self.terms.limit
        return {
            "population": self.terms.population,
            "spent_epsilon": self.spent.epsilon,
            "spent_delta": self.spent.delta,
            "budget_epsilon": None if limit.epsilon == float("inf") else limit.epsilon,
            "budget_delta": None if limit.delta == float("inf") else limit.delta,
            "n_releases": self.n_releases,
        }


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


def _told_plainly(act: Callable[P, R]) -> Callable[P, R]:
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
        self._file = Path(url.database or "") if url.get_backend_name() == "sqlite" else None
        hidden = [name for name in url.query if "password" in name]
        self._shown = url.difference_update_query(hidden).render_as_string(hide_password=True)
        if self._file is not None:
            self._engine = sa.create_engine(
                url,
                poolclass=NullPool,
                connect_args={"timeout": _WAIT_SECONDS},
                hide_parameters=True,
            )
            sa.event.listen(self._engine, "connect", _make_durable)
            return
        # What a server's defaults say must not weaken the ledger: each statement has to see what
        # was committed before the lock was had, and a commit has to be on the disk.
        given = url.query.get("options", "")
        options = (
            f"-c lock_timeout={_WAIT_SECONDS}s {given if isinstance(given, str) else ''} "
            "-c synchronous_commit=on"
        )
        patience = {"connect_timeout": url.query.get("connect_timeout", str(_CONNECT_SECONDS))}
        self._engine = sa.create_engine(
            url.update_query_dict({"options": options, **patience}),
            poolclass=NullPool,
            isolation_level="READ COMMITTED",
            hide_parameters=True,
        )

    def __str__(self) -> str:
        """Where it is, without a password."""
        return self._shown

    @_told_plainly
    def reserve(
        self,
        asked: ChargeRequest,
        resolve_charge: ResolveCharge = lambda entry: entry.state,
        found: Sequence[UnknownRelease] = (),
    ) -> ChargeGrant:
        """Charge one more draw, or name the release that answers already.

        In one transaction charges that runs left unfinished are settled, and published releases
        that the ledger does not know (it was lost, or is new) are entered; in another it is
        decided. Raises ConflictError and BudgetError as :func:`flows.ledger.rules.decide` does;
        what was settled or entered stays then.
        """
        self.settle(asked.terms, resolve_charge, found)
        with self._alone() as connection:
            entries = entries_for(connection, asked)
            decision = decide(entries, asked)
            path = asked.path_of(decision.name)
            charge = None
            if decision.unchanged is None:
                charge = insert(connection, new_row(asked, decision.name, path))
            return ChargeGrant(
                decision=decision,
                charge=charge,
                path=decision.unchanged.path if decision.unchanged else path,
                statement=_statement(connection, asked.terms),
                same_people=same_people(entries, asked),
                unfinished=tuple(e.draft for e in unfinished(connection) if e.draft is not None),
            )

    @_told_plainly
    def settle(
        self,
        terms: Terms,
        resolve_charge: ResolveCharge = lambda entry: entry.state,
        found: Sequence[UnknownRelease] = (),
    ) -> None:
        """Settle what runs left unfinished, and enter releases that the ledger does not know."""
        with self._alone() as connection:
            self._resolve_charges(connection, resolve_charge)
            self._enter(connection, terms.population, found)

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

    @_told_plainly
    def abandon(self, experiment: str, release_id: str) -> State:
        """Settle an unfinished charge whose run an operator knows to be dead.

        A reservation is given back, as its run can no longer publish; what was about to become
        public stays charged. Returns the new state; ConfigError where there is no such charge.
        """
        with self._alone() as connection:
            named = sa.and_(CHARGES.c.slot == release_id, CHARGES.c.experiment == experiment)
            entries = select(connection, named)
            if not entries or entries[0].state not in OPEN:
                state = f"{entries[0].state} already" if entries else "not in the ledger"
                raise ConfigError("--abandon", f"{release_id} is {state}; nothing was changed")
            (entry,) = entries
            new = State.VOID if entry.state == State.RESERVED else State.LOST
            update(connection, entry, new)
            return new

    @_told_plainly
    def known(self, experiment: str) -> set[str]:
        """The release ids of an experiment that are charged."""
        with self._reading() as connection:
            if connection is None:
                return set()
            query = sa.select(CHARGES.c.slot).where(CHARGES.c.experiment == experiment)
            return {slot for slot in connection.execute(query).scalars() if slot is not None}

    @_told_plainly
    def statement(self, terms: Terms) -> Statement:
        """Return what a population has paid; changes nothing, and makes no ledger."""
        with self._reading() as connection:
            return Statement(terms, ()) if connection is None else _statement(connection, terms)

    @_told_plainly
    def entries(self, terms: Terms) -> list[Entry]:
        """All entries of a population or of an experiment; changes nothing."""
        with self._reading() as connection:
            return [] if connection is None else select(connection, concerns(terms))

    @_told_plainly
    def _move(self, charge: int, before: State, after: State, **columns: str | None) -> bool:
        with self._alone() as connection:
            one = sa.and_(CHARGES.c.id == charge, CHARGES.c.state == before)
            entries = select(connection, one)
            for entry in entries:
                update(connection, entry, after, **columns)
            return bool(entries)

    def _resolve_charges(self, connection: sa.Connection, resolve_charge: ResolveCharge) -> None:
        for entry in unfinished(connection):
            state = resolve_charge(entry)
            if state != entry.state:
                update(connection, entry, state)

    def _enter(
        self, connection: sa.Connection, population: str, found: Sequence[UnknownRelease]
    ) -> None:
        for one in found:
            slot = CHARGES.c.slot == one.name.release_id
            if connection.execute(sa.select(CHARGES.c.id).where(slot)).first() is None:
                row = row_of(population, one.name, one.cost, State.PUBLISHED, one.path)
                insert(connection, row)

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection | None]:
        """Open the ledger to look at it; None where there is none."""
        if self._file is not None and not _is_there(self._file):
            yield None
            return
        with self._engine.connect() as connection:
            made = sa.inspect(connection).has_table(VERSION_TABLE.name)
            yield connection if made and self._version(connection) else None

    @contextmanager
    def _alone(self) -> Iterator[sa.Connection]:
        """Open a transaction that no other one of the ledger runs beside; make what is missing."""
        if self._file is not None:
            _make_private(self._file)
        with self._engine.connect() as connection, connection.begin():
            if self._file is not None:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            else:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            METADATA.create_all(connection)
            if self._version(connection) is None:
                connection.execute(sa.insert(VERSION_TABLE).values(version=VERSION))
            yield connection

    def _version(self, connection: sa.Connection) -> int | None:
        """The ledger's version, None where it is still empty; ClusterdpError if it is another."""
        version = connection.execute(sa.select(VERSION_TABLE.c.version)).scalar_one_or_none()
        if version not in (None, VERSION):
            raise InputError(
                f"ledger {self}: has version {shown(version)}, this program knows {VERSION}; use "
                "the clusterdp that made it"
            )
        return version


def ledger_url(url: str, directory: Path) -> sa.URL:
    """Read ``ledger.url``, SQLite paths relative to ``directory``; raises ConfigError."""
    try:
        parsed = sa.make_url(url)
        parsed.get_dialect()
    except (ArgumentError, ValueError):
        parsed = None
    if parsed is None or parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise ConfigError("ledger.url", "not sqlite:///FILE or postgresql+psycopg://HOST/DATABASE")
    if parsed.get_backend_name() == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.database in (None, "", ":memory:") or parsed.query:
        raise ConfigError("ledger.url", "a SQLite ledger is a plain file: sqlite:///FILE")
    written = parsed.database or ""
    check_place(directory, written, "ledger.url")
    path = absolute(directory, written, "ledger.url")
    return parsed.set(drivername="sqlite+pysqlite", database=str(path))


def _make_durable(connection: Any, _record: object) -> None:
    """Let a commit outlive a power cut, also where the ledger lies apart from the releases."""
    connection.execute("PRAGMA synchronous = EXTRA")


def _is_there(path: Path) -> bool:
    """Whether there is a file of this name; InputError where there is anything else."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise InputError(f"ledger {path}: cannot be looked at ({error.strerror})") from None
    problem = other_than_file(path)
    if problem is not None:
        raise InputError(f"ledger {path}: {problem}")
    return True


def _make_private(path: Path) -> None:
    """Make an empty file that its owner alone can read, where there is none."""
    if _is_there(path):
        return
    if not path.parent.is_dir():
        private_directory(path.parent)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise InputError(f"ledger {path}: cannot be made ({error.strerror})") from None


def _statement(connection: sa.Connection, terms: Terms) -> Statement:
    """The population's entries without their digests, which nobody outside need see."""
    entries = select(connection, CHARGES.c.population == terms.population)
    return Statement(terms, tuple(replace(entry, fingerprint=None) for entry in entries))
