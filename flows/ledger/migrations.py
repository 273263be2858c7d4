"""Ledgers of earlier versions, brought up to date by Alembic's operations.

A migration runs within the transaction that holds the whole ledger: it is done whole or not at
all. New tables are made before; what an older ledger lacks are columns.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import sqlalchemy as sa

from flows.ledger.tables import CHARGES, VERSION_TABLE

if TYPE_CHECKING:
    from alembic.operations import Operations

OLDEST = 1
"""The first version that can be brought up to date."""


def _to_version_2(operations: "Operations") -> None:
    """Accounts by unit, and digests of published files: charges so far count for everybody."""
    for name in ("roster", "most_epsilon", "most_delta", "file_sha256"):
        operations.add_column(CHARGES.name, sa.Column(name, sa.Text))
    operations.create_index("ix_clusterdp_charges_roster", CHARGES.name, ["roster"])


def _to_version_3(operations: "Operations") -> None:
    """Releases that were withdrawn, and those whose files were pruned: none of them so far."""
    operations.add_column(CHARGES.name, sa.Column("withdrawn", sa.Text))
    for name in ("withdrawn_at", "pruned_at"):
        operations.add_column(CHARGES.name, sa.Column(name, sa.DateTime))


_STEPS: dict[int, Callable[["Operations"], None]] = {1: _to_version_2, 2: _to_version_3}
"""What brings each version to the next."""


def migrate(connection: sa.Connection, version: int) -> None:
    """Bring a ledger of an earlier ``version`` up to date, within its transaction."""
    from alembic.migration import MigrationContext  # noqa: PLC0415 - hardly ever
    from alembic.operations import Operations  # noqa: PLC0415 - likewise

    operations = Operations(MigrationContext.configure(connection))
    while version in _STEPS:
        _STEPS[version](operations)
        version += 1
        connection.execute(sa.update(VERSION_TABLE).values(version=version))
