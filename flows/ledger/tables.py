"""The tables of a ledger, and what is read from and written to them within a transaction."""

import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from flows.config.model.declared import Terms
from flows.ledger.rows import RowCodec, raw_rows
from flows.ledger.rules import OPEN, ChargeRequest, Entry, State
from flows.runtime import clock
from privatizers.accounting.budget import Budget
from schemas.names import ReleaseName

METADATA = sa.MetaData()
VERSION_TABLE = sa.Table(
    "clusterdp_ledger", METADATA, sa.Column("version", sa.Integer, primary_key=True)
)
CHARGES = sa.Table(
    "clusterdp_charges",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("population", sa.Text, nullable=False, index=True),
    sa.Column("experiment", sa.Text, nullable=False, index=True),
    sa.Column("period", sa.Text, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
    # The release id while the charge counts, null once it is given back: no name is given twice.
    sa.Column("slot", sa.Text, unique=True),
    # Amounts as they are written: a double would say more digits than anybody meant.
    sa.Column("epsilon", sa.Text, nullable=False),
    sa.Column("delta", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("draft", sa.Text),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("created_at", sa.DateTime, nullable=False),
    sa.Column("rows_digest", sa.Text),
    sa.Column("units_digest", sa.Text, index=True),
    sa.Column("settings_digest", sa.Text),
    # Since version 2. The register of who is in the release; null: it counts for everybody.
    sa.Column("roster", sa.Text, index=True),
    # The most that any of its units had then paid for releases with a register, this one included.
    sa.Column("most_epsilon", sa.Text),
    sa.Column("most_delta", sa.Text),
    # SHA-256 of the file, known once it is complete: when the run begins to publish.
    sa.Column("file_sha256", sa.Text),
    # Since version 3. Why the release is not to be used, in public words; null: it may be.
    sa.Column("withdrawn", sa.Text),
    sa.Column("withdrawn_at", sa.DateTime),
    # When its file was removed, as older than the configuration keeps them; null: it was not.
    sa.Column("pruned_at", sa.DateTime),
    # Since version 5. In which versions its log's tables were read, by their keys, as JSON.
    sa.Column("versions", sa.Text),
)
POPULATIONS = sa.Table(
    "clusterdp_populations",
    METADATA,
    sa.Column("population", sa.Text, primary_key=True),
    sa.Column("key_fingerprint", sa.Text, nullable=False),
)
REGISTERS = sa.Table(
    "clusterdp_registers",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("population", sa.Text, nullable=False, index=True),
    # Behind "2-canonical:" or "2-exact:", the form of ids that are digested; before it, as written.
    sa.Column("key_fingerprint", sa.Text, nullable=False),
    sa.Column("n_words", sa.BigInteger, nullable=False),
    sa.Column("checksum", sa.Text, nullable=False),
    sa.Column("histories", sa.Text, nullable=False),
    # The charges that it sums up, of registers made from others; null of a release's own.
    sa.Column("charges", sa.Text),
)
PIECES = sa.Table(
    "clusterdp_register_pieces",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("piece", sa.Integer, primary_key=True),
    sa.Column("words", sa.LargeBinary, nullable=False),
)
"""Words of registers, where the ledger is on a server; else they are in files beside it."""
FILES = sa.Table(
    "clusterdp_files",
    METADATA,
    sa.Column("path", sa.Text, primary_key=True),
    sa.Column("sha256", sa.Text, primary_key=True),
    sa.Column("experiment", sa.Text, nullable=False, index=True),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("stamp", sa.Text, nullable=False),
)
"""Published files as they were last seen: the stamp under which a file had this digest."""
ENDS = sa.Table(
    "clusterdp_ends",
    METADATA,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("experiment", sa.Text, nullable=False, index=True),
    sa.Column("period", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("at", sa.Text, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("folder", sa.Text),
    sa.Column("release_id", sa.Text),
    sa.Column("seconds", sa.BigInteger),
    sa.Column("n_units", sa.BigInteger),
    sa.Column("n_read", sa.BigInteger),
    sa.Column("sample_ratio_p", sa.Text),
    sa.Column("set_aside", sa.Text, nullable=False),
)
"""Runs on their way and how they ended, since version 4: :mod:`flows.ledger.ends`."""
NOTICES = sa.Table(
    "clusterdp_notices",
    METADATA,
    sa.Column("experiment", sa.Text, primary_key=True),
    sa.Column("period", sa.Text, primary_key=True),
    sa.Column("event", sa.Text, primary_key=True),
    sa.Column("sent_at", sa.Text, nullable=False),
)
"""What people were told of, since a period was last published."""

SINCE = {
    **dict.fromkeys(("roster", "most_epsilon", "most_delta", "file_sha256"), 2),
    **dict.fromkeys(("withdrawn", "withdrawn_at", "pruned_at"), 3),
    "versions": 5,
}
"""The version of the ledger that a column came with, where it is not the first."""
ENTRY = RowCodec(
    CHARGES,
    Entry,
    name=("experiment", "period", "revision"),
    cost=("epsilon", "delta"),
    fingerprint=("rows_digest", "units_digest", "settings_digest"),
    most=("most_epsilon", "most_delta"),
    withdrawal=("withdrawn", "withdrawn_at"),
)


def concerns(terms: Terms) -> sa.ColumnElement[bool]:
    """The condition on charges of a population or of an experiment."""
    return sa.or_(
        CHARGES.c.population == terms.population, CHARGES.c.experiment == terms.experiment
    )


def select(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> list[Entry]:
    """The entries that fulfil a condition, the oldest first."""
    rows = connection.execute(raw_rows(CHARGES).where(condition).order_by(CHARGES.c.id)).mappings()
    later = dict.fromkeys(SINCE)  # it may be read before it is brought up to date
    return [_entry({**later, **row}) for row in rows]


def _entry(row: dict[str, Any]) -> Entry:
    """The charge that a row is; raises InputError where it is none."""
    if row["roster"] is None:  # it counts for everybody, whatever units had paid
        row |= ENTRY.values(most=Budget())
    entry = ENTRY.read(row)
    if entry.name.revision < 1:
        raise ENTRY.wrong(row, "revision", "not a whole number from 1 on")
    if row["slot"] != (entry.name.release_id if entry.counts else None):
        raise ENTRY.wrong(row, "slot", f"not what a charge in the state {entry.state} has")
    if entry.file_sha256 is not None and not re.fullmatch("[0-9a-f]{64}", entry.file_sha256):
        raise ENTRY.wrong(row, "file_sha256", "not a SHA-256")
    return entry


def unfinished(connection: sa.Connection) -> list[Entry]:
    """The charges of all populations that a run is still to leave, if it lives."""
    return select(connection, CHARGES.c.state.in_(OPEN))


def new_row(asked: ChargeRequest, name: ReleaseName, path: Path) -> dict[str, Any]:
    """The row of a charge that is granted; its register is named once it is written."""
    accounts = asked.accounts
    return row_of(asked.terms.population, name, asked.cost, State.RESERVED, path) | ENTRY.values(
        draft=asked.draft,
        fingerprint=asked.fingerprint,
        versions=asked.versions or None,
        most=None if accounts is None else accounts.most(asked.terms.cost),
    )


def row_of(
    population: str, name: ReleaseName, cost: Budget, state: State, path: Path
) -> dict[str, Any]:
    """The row of a charge, without digests, made now by this machine."""
    return {"slot": name.release_id} | ENTRY.values(
        population=population,
        name=name,
        cost=cost,
        state=state,
        path=path,
        host=socket.gethostname(),
        created_at=clock.now(),
    )


def insert(connection: sa.Connection, row: dict[str, Any]) -> int:
    """Write the row of a charge; returns its id."""
    key = connection.execute(sa.insert(CHARGES).values(row)).inserted_primary_key
    if key is None:
        raise AssertionError("the database returned no key")
    return int(key[0])


def replacing(table: sa.Table, row: Mapping[str, Any], *same: str) -> list[sa.Executable]:
    """What puts a row in the place of those that have the same in some columns."""
    alike = (table.c[name] == row[name] for name in same)
    return [sa.delete(table).where(*alike), sa.insert(table).values(row)]


def update(connection: sa.Connection, entry: Entry, state: State, **changes: Any) -> None:
    """Move an entry to another state, and change fields; one that is given back frees its name."""
    values = ENTRY.values(state=state, **changes)
    if state == State.VOID:  # who was to be in it is nobody's business any more
        values |= {"slot": None, "roster": None}
        connection.execute(sa.delete(REGISTERS).where(REGISTERS.c.name == entry.roster))
    connection.execute(sa.update(CHARGES).where(CHARGES.c.id == entry.id).values(values))
