"""Step 4: write the tables of a release into a DuckDB file of their own.

Only what may be published arrives here, so the file has never held anything else, in no page and
no log. It is closed before anybody sees it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import duckdb
import polars as pl

from flows.released.evidence import Released
from flows.released.macros import add_macros
from schemas.errors import ClusterdpError
from schemas.released import STORAGE_VERSION, TABLES, ReleaseTables


def publish(tables: ReleaseTables, path: Path) -> None:
    """Write ``tables`` to a new DuckDB file at ``path``, without estimates, and close it."""
    manifest = pl.DataFrame([asdict(tables.manifest)])
    with _told_plainly(path), _new_file(path) as connection:
        for table, frame in {"release": manifest, **tables.frames()}.items():
            _write(connection, table, frame)
        _create(connection, "estimates", TABLES["estimates"])


def add_estimates(path: Path, rows: pl.DataFrame, released: Released) -> None:
    """Put the ``estimates`` rows and the macros into the draft of ``released`` and close it."""
    with _told_plainly(path), duckdb.connect(str(path)) as connection:
        _insert(connection, "estimates", rows)
        add_macros(connection, released)


@contextmanager
def _told_plainly(path: Path) -> Iterator[None]:
    """Say in one line why a file could not be written (a full disk, say)."""
    try:
        yield
    except (duckdb.IOException, OSError) as error:
        reason = str(error).splitlines()[0]
    else:
        return
    raise ClusterdpError(f"cannot write the release in {path.parent}: {reason}")


def _new_file(path: Path) -> duckdb.DuckDBPyConnection:
    """An attached new file in the declared storage version; spills go beside it."""
    connection = duckdb.connect(config={"temp_directory": str(path.parent / "spill")})
    quoted = str(path).replace("'", "''")
    connection.execute(f"ATTACH '{quoted}' AS draft (STORAGE_VERSION '{STORAGE_VERSION}')")
    connection.execute("USE draft")
    return connection


def _write(connection: duckdb.DuckDBPyConnection, table: str, frame: pl.DataFrame) -> None:
    columns = dict(TABLES[table])
    if table == "units" and frame.schema["unit_id"] != pl.String:
        columns["unit_id"] = "UBIGINT" if frame.schema["unit_id"] == pl.UInt64 else "BIGINT"
    _create(connection, table, columns)
    _insert(connection, table, frame)


def _create(connection: duckdb.DuckDBPyConnection, table: str, columns: dict[str, str]) -> None:
    spelt = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    connection.execute(f"CREATE TABLE {table} ({spelt})")


def _insert(connection: duckdb.DuckDBPyConnection, table: str, frame: pl.DataFrame) -> None:
    """Insert the rows of a frame, in their order, into the table's columns by name."""
    names = ", ".join(TABLES[table])
    connection.register("frame_to_insert", frame.select(list(TABLES[table])).to_arrow())
    query = f"INSERT INTO {table} ({names}) SELECT {names} FROM frame_to_insert"  # noqa: S608 - our own names
    connection.execute(query)
    connection.unregister("frame_to_insert")
