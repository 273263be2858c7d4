"""What a file states of the ends of its grids; :mod:`flows.released.file.ends` estimates it."""

from pathlib import Path

import duckdb

from estimators.ends import End, ends_warnings
from flows.released.file.opening import open_safely
from schemas.errors import InputError

_STATED = """
SELECT metric, "end", share, std_error FROM main.ends
WHERE metric IN (SELECT metric FROM main.metrics) AND "end" IN ('missing', 'lowest', 'highest')
ORDER BY rowid
"""


def stated_ends(connection: duckdb.DuckDBPyConnection) -> tuple[End, ...]:
    """The rows of ``ends``, as the file has them."""
    return tuple(End(*row) for row in connection.execute(_STATED).fetchall())


def stated_warnings(path: Path) -> tuple[str, ...]:
    """What :func:`~estimators.ends.ends_warnings` says of them; nothing of a file that is gone."""
    try:
        with open_safely(path) as connection:
            return ends_warnings(stated_ends(connection))
    except (InputError, OSError):
        return ()
