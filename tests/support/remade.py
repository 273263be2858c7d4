"""Files whose facts a test has changed, as if they had been released so."""

from pathlib import Path

import duckdb

from flows.released.file.evidence import read_every
from flows.released.file.macros import add_macros
from flows.released.file.read import read_manifest
from schemas.tables import MACROS, PREFIX


def remake_macros(path: Path) -> None:
    """Put the macros of a file's facts, and what these read, in place of what is there."""
    with duckdb.connect(str(path)) as connection:
        found = f"SELECT schema_name FROM duckdb_schemas() WHERE schema_name LIKE '{PREFIX}%'"
        for (name,) in connection.execute(found).fetchall():
            connection.execute(f"DROP SCHEMA {name} CASCADE")
        for name in MACROS:
            connection.execute(f"DROP MACRO TABLE {name}")
        add_macros(connection, read_every(connection, read_manifest(connection)))
