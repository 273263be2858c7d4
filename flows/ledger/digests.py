"""The digests of published files that a ledger knows."""

import sqlalchemy as sa

from flows.ledger.database import Ledger, told_plainly
from flows.ledger.rules import Entry
from flows.ledger.tables import CHARGES, select


@told_plainly
def entries_of(ledger: Ledger, experiment: str) -> list[Entry]:
    """All charges for an experiment, the oldest first; changes nothing."""
    with ledger.reading() as connection:
        if connection is None:
            return []
        return select(connection, CHARGES.c.experiment == sa.literal(experiment))


def digests(ledger: Ledger, experiment: str) -> dict[str, str]:
    """The SHA-256 of the file of each release of an experiment, by its id; changes nothing.

    A release that the ledger knows from its file alone has none: the file may have been altered.
    """
    return {
        entry.name.release_id: entry.file_sha256
        for entry in entries_of(ledger, experiment)
        if entry.counts and entry.file_sha256 is not None
    }
