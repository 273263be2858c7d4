"""Facts that a file states and others ask for: groups assigned together, and ends of grids."""

from pathlib import Path

import duckdb

from estimators.ends import End, ends_warnings
from flows.released.file.opening import open_safely
from flows.runtime.engine import ask
from schemas.errors import InputError
from schemas.released import Manifest

_GROUPS = """
SELECT arm::VARCHAR AS arm, count(DISTINCT assigned_to) FROM main.units GROUP BY 1 ORDER BY 1
"""
_STATED = """
SELECT metric, "end", share, std_error FROM main.ends
WHERE metric IN (SELECT metric FROM main.metrics) AND "end" IN ('missing', 'lowest', 'highest')
ORDER BY rowid
"""


def count_assigned(
    connection: duckdb.DuckDBPyConnection, manifest: Manifest
) -> dict[str, int] | None:
    """Count what was assigned in each arm, control first.

    None where each unit was assigned by itself, and where no units are published to tell.
    """
    if not (manifest.assigned and manifest.has_units):
        return None
    found = dict(ask(connection, _GROUPS).fetchall())
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


def stated_ends(connection: duckdb.DuckDBPyConnection) -> tuple[End, ...]:
    """The rows of ``ends``, as the file has them."""
    return tuple(End(*row) for row in ask(connection, _STATED).fetchall())


def stated_warnings(path: Path) -> tuple[str, ...]:
    """What :func:`~estimators.ends.ends_warnings` says of them; nothing of a file that is gone."""
    try:
        with open_safely(path) as connection:
            return ends_warnings(stated_ends(connection))
    except (InputError, OSError):
        return ()
