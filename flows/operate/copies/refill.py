"""A ledger put back from a backup: into an empty database alone, in one transaction.

What is to be put back is first loaded into memory, brought up to date and settled there
(:mod:`flows.operate.copies.reconcile`), so that a refusal leaves everything as it was.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from flows.ledger.database import Ledger, told_plainly
from flows.ledger.migrations import migrate, version_of
from flows.ledger.rules import OPEN, amount_text
from flows.ledger.tables import (
    CHARGES,
    FILES,
    METADATA,
    PIECES,
    POPULATIONS,
    REGISTERS,
    VERSION_TABLE,
    select,
)
from flows.ledger.units.registers import (
    DamagedRegisterError,
    RegisterRow,
    Shelves,
    register_rows,
)
from flows.operate.copies.folder import TABLES, Backup
from flows.operate.copies.snapshot import REGISTER
from flows.raw.boundary.guard import errors_as
from schemas.errors import ConflictError, InputError, shown

_KEPT = (VERSION_TABLE.name, PIECES.name, FILES.name)
"""Tables that are not put back: what they hold is made anew."""
_APART = 1_000_000
"""How far the numbers of new charges on a server are from those that were put back: a run that was
charged before, and lives on a machine that cannot be seen from here, finds none of its own."""
_NAMED = 5  # releases that a refusal names


@contextmanager
def loaded(backup: Backup) -> Iterator[sa.Connection]:
    """Give the ledger of a backup in memory, brought up to date; raises InputError.

    Whatever is done to it there, the backup stays as it is.
    """
    path = backup.folder / TABLES
    engine = sa.create_engine("sqlite://", poolclass=StaticPool, hide_parameters=True)
    failed = errors_as(
        lambda error: InputError(f"{path}: cannot be read ({getattr(error, 'orig', error)})"),
        DBAPIError,
        sqlite3.DatabaseError,
    )
    source = sqlite3.connect(f"file:{path.absolute()}?immutable=1", uri=True)
    try:
        with failed, engine.connect() as connection:
            raw = connection.connection.driver_connection
            if not isinstance(raw, sqlite3.Connection):
                raise AssertionError("memory is SQLite's")
            source.backup(raw)
            version = version_of(connection, f"{path}: this ledger") or 0
            METADATA.create_all(connection)
            migrate(connection, version)
            select(connection, sa.true())  # refuses rows that nobody should have written
            yield connection
    finally:
        engine.dispose()
        source.close()


@told_plainly
def is_there_whole(ledger: Ledger, backup: Backup, source: sa.Connection) -> bool:
    """Whether there is a ledger already, and it has all that the backup knows to be spent.

    Registers that it has lost are put back then; of charges that were open it knows better itself.
    Raises ConflictError where it knows less: it is never overwritten.
    """
    with ledger.reading() as connection:
        if connection is None or not _is_begun(connection):
            return False
    with ledger.alone() as connection:
        _check_has_all(ledger, connection, source)
        _put_registers(ledger, connection, backup, only_lost=True)
        return True


@told_plainly
def refill(ledger: Ledger, backup: Backup, source: sa.Connection) -> None:
    """Put a settled ledger back, whole or not at all; ConflictError where one is there by now."""
    with ledger.alone() as connection:
        if _is_begun(connection):
            raise ConflictError(
                f"ledger {ledger}: a run has made it meanwhile; nothing was changed. Let no run "
                "begin, move it away, and run again"
            )
        for table in METADATA.sorted_tables:
            if table.name not in _KEPT:
                connection.execute(sa.delete(table))
                rows = [dict(row) for row in source.execute(sa.select(table)).mappings()]
                if rows:
                    connection.execute(sa.insert(table), rows)
        _put_registers(ledger, connection, backup)
        if connection.dialect.name == "postgresql":
            last = connection.execute(sa.select(sa.func.max(CHARGES.c.id))).scalar() or 0
            number = sa.func.pg_get_serial_sequence(CHARGES.name, CHARGES.c.id.name)
            connection.execute(sa.select(sa.func.setval(number, last + _APART)))


def _is_begun(connection: sa.Connection) -> bool:
    tables = [one for one in (CHARGES, POPULATIONS) if sa.inspect(connection).has_table(one.name)]
    return any(connection.execute(sa.select(one).limit(1)).first() for one in tables)


def _check_has_all(ledger: Ledger, connection: sa.Connection, source: sa.Connection) -> None:
    there = {entry.name: entry for entry in select(connection, sa.true()) if entry.counts}
    wanted = [one for one in select(source, sa.true()) if one.counts and one.state not in OPEN]
    short = []
    for one in wanted:
        now = there.get(one.name)
        if (
            now is None
            or now.population != one.population
            or now.roster not in (None, one.roster)
            or not one.cost.fits_into(now.cost)
        ):
            short.append(one)
    if not short:
        return
    named = ", ".join(
        f"{shown(one.name.release_id)} {amount_text(one.cost.epsilon)}" for one in short[:_NAMED]
    )
    more = f" and {len(short) - _NAMED:,} more" if len(short) > _NAMED else ""
    raise ConflictError(
        f"ledger {ledger}: is there already, and knows less than what is to be put back: it lacks "
        f"{named}{more}. Nothing was changed. Move it away (of SQLite with its folder .accounts), "
        "or name another database, and run again: what was published since is found by its files"
    )


def _put_registers(
    ledger: Ledger, connection: sa.Connection, backup: Backup, *, only_lost: bool = False
) -> None:
    """Put registers back, by the rows that the ledger has of them.

    One that cannot be read from the backup was checked to be there, so its row is another's: it
    is left out, and counts for everybody as any that is lost.
    """
    kept = Shelves(backup.folder)
    populations = connection.execute(sa.select(REGISTERS.c.population).distinct()).scalars().all()
    for population in populations:
        for row in register_rows(connection, population).values():
            if row.name not in backup.registers or not REGISTER.fullmatch(row.name):
                continue
            if only_lost and _is_whole(ledger.shelves, connection, row):
                continue
            if _is_whole(kept, connection, row):
                ledger.shelves.write(connection, row.name, kept.blocks(connection, row))


def _is_whole(shelves: Shelves, connection: sa.Connection, row: RegisterRow) -> bool:
    try:
        for _ in shelves.blocks(connection, row):
            pass
    except DamagedRegisterError:
        return False
    return True
