"""A ledger as it was at one moment, in files: its tables, and who is in which release.

The tables are read in one transaction, which no run has to wait for. A register never changes, and
is copied after it: what is taken away meanwhile is of a charge that was given back, or a sum that
can be made again. Both databases give the same files, so a backup of one may be restored to the
other.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, StatementError
from sqlalchemy.pool import NullPool

from flows.ledger.database import Ledger, told_plainly
from flows.ledger.place import is_there
from flows.ledger.tables import PIECES, POPULATIONS, REGISTERS, VERSION_TABLE, select
from flows.ledger.units.registers import (
    DamagedRegisterError,
    RegisterRow,
    register_rows,
)
from flows.operate.copies.folder import TABLES, private_file
from flows.runtime import clock
from schemas.errors import InputError

REGISTER = re.compile(r"[0-9a-f]{16}-[0-9]+(-[0-9]+)?")
"""What registers are called: a file of this name lies in the folder, wherever that is."""
_OURS = "clusterdp_"
_AT_ONCE = 1000  # rows


@dataclass(frozen=True)
class Snapshot:
    """What was copied of a ledger."""

    made_at: datetime
    version: int
    begun: dict[str, str]
    """Fingerprints of the keys that accounts by unit were begun with, by population."""
    experiments: frozenset[str]
    """Whose charges there are, given back or not."""
    registers: tuple[str, ...]
    lost: tuple[str, ...]
    """Releases whose register is lost or damaged, in the ledger itself."""


@told_plainly
def take_snapshot(ledger: Ledger, folder: Path) -> Snapshot | None:
    """Copy a ledger into files of a folder; None where there is none yet.

    Raises InputError where it cannot be read, or holds what this program cannot have written.
    """
    with _at_one_moment(ledger) as connection:
        if connection is None:
            return None
        made_at = clock.now().astimezone(UTC).replace(microsecond=0)
        version = ledger.version(connection) or 0
        entries = select(connection, sa.true())
        tables = _copied_tables(ledger, connection, folder / TABLES)
        begun, found, lost = {}, list[RegisterRow](), list[str]()
        if POPULATIONS.name in tables.tables:  # of a version with accounts by unit
            query = sa.select(POPULATIONS.c.population, POPULATIONS.c.key_fingerprint)
            begun = {str(name): str(key) for name, key in connection.execute(query)}
        if REGISTERS.name in tables.tables:
            for name in sorted({entry.population for entry in entries}):
                found += register_rows(connection, name).values()
        rows = [row for row in found if REGISTER.fullmatch(row.name)]
        if not ledger.shelves.in_files:
            lost = _copied_registers(ledger, connection, rows, folder)
    if ledger.shelves.in_files:
        with ledger.engine.connect() as connection:
            lost = _copied_registers(ledger, connection, rows, folder)
            entries = select(connection, sa.true())  # some may have been given back meanwhile
    names = {row.name for row in rows}
    return Snapshot(
        made_at=made_at,
        version=version,
        begun=begun,
        experiments=frozenset(entry.name.experiment for entry in entries),
        registers=tuple(sorted(names - set(lost))),
        lost=tuple(
            entry.name.release_id
            for entry in entries
            if entry.roster is not None and (entry.roster in lost or entry.roster not in names)
        ),
    )


@contextmanager
def _at_one_moment(ledger: Ledger) -> Iterator[sa.Connection | None]:
    if ledger.file is not None and not is_there(ledger.file):
        yield None
        return
    with ledger.engine.connect() as connection:
        if ledger.file is not None:
            connection.exec_driver_sql("BEGIN")
        else:
            connection.execution_options(isolation_level="REPEATABLE READ")
        made = sa.inspect(connection).has_table(VERSION_TABLE.name)
        yield connection if made and ledger.version(connection) else None


def _copied_tables(ledger: Ledger, connection: sa.Connection, path: Path) -> sa.MetaData:
    """Write all tables of a ledger but the words of registers into a file; returns them."""
    found = sa.MetaData()
    found.reflect(connection, only=lambda name, _: name.startswith(_OURS) and name != PIECES.name)
    with private_file(path):  # SQLite fills it
        pass
    engine = sa.create_engine(
        sa.URL.create("sqlite+pysqlite", database=str(path)),
        poolclass=NullPool,
        hide_parameters=True,
    )
    try:
        with engine.begin() as copy:
            for table in found.sorted_tables:
                same = _same_table(table)
                same.create(copy)
                for rows in _rows(ledger, connection, table):
                    copy.execute(sa.insert(same), rows)
    except DBAPIError as error:
        raise OSError(None, str(error.orig)) from None
    except StatementError:  # of a value that is none of its column's
        raise _no_row(ledger, table.name) from None
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return found


def _rows(
    ledger: Ledger, connection: sa.Connection, table: sa.Table
) -> Iterator[list[dict[str, Any]]]:
    try:
        rows = connection.execute(sa.select(table).execution_options(yield_per=_AT_ONCE))
        for some in rows.mappings().partitions():
            yield [dict(row) for row in some]
    except DBAPIError as error:
        problem = str(error.orig).strip().splitlines()[0]
        lost = f"ledger {ledger}: {problem}; nothing was copied, so run again"
        raise InputError(lost) from None
    except (ValueError, TypeError):
        raise _no_row(ledger, table.name) from None


def _no_row(ledger: Ledger, table: str) -> InputError:
    return InputError(
        f"ledger {ledger}: a row of the table {table} is none of this program's; nobody but "
        "clusterdp may write to a ledger, so put the row back as it was, from a copy"
    )


def _same_table(table: sa.Table) -> sa.Table:
    columns = (
        sa.Column(
            column.name,
            column.type.as_generic(),
            primary_key=column.primary_key,
            nullable=column.nullable,
            autoincrement=False,
        )
        for column in table.columns
    )
    return sa.Table(table.name, sa.MetaData(), *columns)


def _copied_registers(
    ledger: Ledger, connection: sa.Connection, rows: list[RegisterRow], folder: Path
) -> list[str]:
    lost = []
    for row in rows:
        path = folder / row.name
        try:
            with private_file(path) as handle, os.fdopen(handle, "wb", closefd=False) as file:
                for words in ledger.shelves.blocks(connection, row):
                    file.write(words.tobytes())
        except DamagedRegisterError:
            path.unlink()
            lost.append(row.name)
    return lost
