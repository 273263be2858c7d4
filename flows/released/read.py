"""Reading a released file: what it says of itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import duckdb

from schemas.errors import InputError
from schemas.released import SCHEMA_VERSION, TABLES, Manifest

Settings = dict[str, str | bool | int | float | list[str]]


@dataclass(frozen=True)
class ReleaseFile:
    """What a released file says of itself."""

    path: Path
    manifest: Manifest
    row_counts: dict[str, int]


def memory_limit(memory: int | None) -> Settings:
    """DuckDB's setting for so many bytes; its own default where that is None."""
    return {} if memory is None else {"memory_limit": f"{max(memory // 1_000_000, 1)}MB"}


@contextmanager
def opened(path: Path, memory: int | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a released file read-only; InputError where it is none.

    ``memory`` is what DuckDB may take, in bytes; None for its own default.
    """
    if not path.is_file():
        raise InputError(f"{path.absolute()}: there is no such file")
    try:
        connection = duckdb.connect(str(path), read_only=True, config=memory_limit(memory))
    except duckdb.Error:
        connection = None
    if connection is None:
        raise InputError(f"{path.absolute()}: not a DuckDB file that can be opened")
    try:
        with connection:
            _check_is_release(connection, path)
            yield connection
    except duckdb.Error:
        damaged = True
    else:
        damaged = False
    if damaged:
        raise InputError(f"{path.absolute()}: not a clusterdp release that can be read whole")


def read_release(path: Path) -> ReleaseFile:
    """Read the manifest of a released file and count the rows of its tables."""
    with opened(path) as connection:
        counts = {
            table: int(_row(connection, f"SELECT count(*) FROM main.{table}")[0])  # noqa: S608 - our own table names
            for table in TABLES
        }
        return ReleaseFile(path.absolute(), read_manifest(connection), counts)


def read_manifest(connection: duckdb.DuckDBPyConnection) -> Manifest:
    """Read the one row of ``release``."""
    names = [field.name for field in fields(Manifest)]
    row = _row(connection, f"SELECT {', '.join(names)} FROM main.release")  # noqa: S608 - our own column names
    return Manifest(**dict(zip(names, row, strict=True)))


def _row(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    row = connection.execute(query).fetchone()
    if row is None:
        msg = f"no row from: {query}"
        raise AssertionError(msg)
    return row


def _check_is_release(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    found = {
        row[0]
        for row in connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main'"
        ).fetchall()
    }
    missing = [table for table in TABLES if table not in found]
    if missing:
        raise InputError(f"{path.absolute()}: not a clusterdp release (no table {missing[0]})")
    rows = connection.execute("SELECT schema_version FROM main.release").fetchall()
    if len(rows) != 1:
        raise InputError(f"{path.absolute()}: not a complete clusterdp release")
    if rows[0][0] != SCHEMA_VERSION:
        raise InputError(
            f"{path.absolute()}: has schema version {rows[0][0]}, this program reads "
            f"{SCHEMA_VERSION}; use the version of clusterdp that made it"
        )
