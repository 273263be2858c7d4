"""How many groups of units were assigned together: a public fact, which errors rest on."""

from pathlib import Path

import duckdb

from flows.released.file.opening import open_safely
from schemas.released import Manifest

_GROUPS = """
SELECT arm::VARCHAR AS arm, count(DISTINCT assigned_to) FROM main.units GROUP BY 1 ORDER BY 1
"""


def count_assigned(
    connection: duckdb.DuckDBPyConnection, manifest: Manifest
) -> dict[str, int] | None:
    """Count what was assigned in each arm, control first.

    None where each unit was assigned by itself, and where no units are published to tell.
    """
    if not (manifest.assigned and manifest.has_units):
        return None
    found = dict(connection.execute(_GROUPS).fetchall())
    return {arm: found[arm] for arm in sorted(found, key=lambda arm: arm != manifest.control)}


def read_assigned(path: Path, manifest: Manifest) -> dict[str, int] | None:
    """Count what was assigned in each arm of a release that was opened and checked before."""
    if not (manifest.assigned and manifest.has_units):
        return None
    with open_safely(path) as connection:
        return count_assigned(connection, manifest)


def n_assigned(by_arm: dict[str, int] | None) -> int | None:
    """How many groups there are in all; a group is in one arm."""
    return None if by_arm is None else sum(by_arm.values())
