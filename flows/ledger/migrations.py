"""Ledgers of earlier versions, brought up to date.

A migration runs within the transaction that holds the whole ledger: it is done whole or not at
all. New tables are made before.
"""

import sqlalchemy as sa
from sqlalchemy.schema import CreateColumn

from flows.ledger.ends import OLDER, older_attempts
from flows.ledger.tables import CHARGES, ENDS, SINCE, VERSION_TABLE
from schemas.errors import InputError, shown

OLDEST = 1
"""The first version that can be brought up to date."""
VERSION = 5
"""2 has accounts by unit, and digests of published files: charges before it count for everybody. 3
has releases that were withdrawn or pruned. 4 has one record of a run. 5 has versions of tables."""


def version_of(connection: sa.Connection, which: str) -> int | None:
    """The version of a ledger, None where it is still empty; InputError where it is another's."""
    version = connection.execute(sa.select(VERSION_TABLE.c.version)).scalar_one_or_none()
    if version is not None and not OLDEST <= version <= VERSION:
        raise InputError(
            f"{which} has version {shown(version)}, this program knows those up to {VERSION}; use "
            "the clusterdp that made it"
        )
    return version


def migrate(connection: sa.Connection, version: int) -> None:
    """Bring a ledger of an earlier ``version`` up to date, within its transaction."""
    for column in CHARGES.c:
        if SINCE.get(column.name, OLDEST) > version:
            added = CreateColumn(column).compile(dialect=connection.dialect)
            connection.execute(sa.text(f"ALTER TABLE {CHARGES.name} ADD COLUMN {added}"))
    for index in CHARGES.indexes:
        index.create(connection, checkfirst=True)
    for row in older_attempts(connection):
        connection.execute(sa.insert(ENDS).values(row))
    for name in OLDER:
        connection.execute(sa.text(f"DROP TABLE IF EXISTS {name}"))
    connection.execute(sa.update(VERSION_TABLE).values(version=VERSION))
