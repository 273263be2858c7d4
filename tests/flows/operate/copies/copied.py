"""Backups of ledgers alone, and releases that are one line each: their id and what they cost."""

from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from flows.config.model.declared import Terms
from flows.ledger.database import Ledger
from flows.ledger.rules import Entry
from flows.ledger.shelves.shelf import Shelf
from flows.ledger.tables import select
from flows.ledger.units.accounts import Tally
from flows.operate.copies.folder import (
    Backup,
    new_backup,
    open_backup,
    seal,
)
from flows.operate.copies.reconcile import Found, Payer, reconcile
from flows.operate.copies.refill import loaded, refill
from flows.operate.copies.snapshot import take_snapshot
from privatizers.accounting.budget import Budget
from schemas.names import ReleaseName

if TYPE_CHECKING:  # not imported twice, as it is a plug-in
    pass

NOBODY: list[ReleaseName] = []


def backed_up(ledger: Ledger, output: Path) -> Backup:
    """Take a backup of a ledger alone."""
    with new_backup(output) as folder:
        found = take_snapshot(ledger, folder)
        assert found is not None
        made = Backup(folder, found.made_at, "0", found.version, (), found.registers, found.lost)
        seal(made)
    return open_backup(output)


def shelf(folder: Path, experiment: str = "trial") -> Shelf:
    """A folder of releases that are one line each: an id, a blank and an amount."""

    def read(path: Path) -> tuple[str, Budget]:
        name, _, amount = path.read_text().partition(" ")
        return name, Budget(float(amount))

    return Shelf(folder, experiment, ".duckdb", True, read)


def line(folder: Path, name: str, amount: float = 2.0) -> Path:
    """Write a release under its public name."""
    path = folder / f"{name}.duckdb"
    path.write_text(f"{name} {amount}")
    return path


def put_back(
    backup: Backup,
    target: Ledger,
    folder: Path,
    lost: list[ReleaseName] = NOBODY,
    *,
    cost: float = 2.0,
) -> Found:
    """Put a ledger back, with what the files in the folder tell."""
    with loaded(backup) as source:
        found = reconcile(source, [Payer(shelf(folder), "people", Budget(cost))], lost)
        refill(target, backup, source)
    return found


def entries(ledger: Ledger) -> list[Entry]:
    with ledger.reading() as connection:
        assert connection is not None
        return select(connection, sa.true())


def tally(ledger: Ledger, of: Terms) -> Tally:
    found = ledger.statement(of, exact=True).tally
    assert found is not None
    return found
