"""Step 4: write the tables of a release into a DuckDB file of their own.

Only what may be published arrives here, so the file has never held anything else, in no page and
no log. It is closed before anybody sees it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa

from flows.released.file.evidence import Released
from flows.released.file.macros import add_macros
from flows.released.file.opening import memory_limit
from flows.released.file.sql import quoted, text
from schemas.errors import ClusterdpError
from schemas.released import (
    OUTCOME,
    STORAGE_VERSION,
    TABLES,
    ReleaseTables,
    UnitFiles,
    UnitTable,
)
from schemas.tables import SCHEMA, TEXT, Table, unit_table

_FULL = "No space left on device"  # also within errors of other kinds, of a transaction's say


def publish(tables: ReleaseTables, path: Path, memory: int | None = None) -> None:
    """Write ``tables`` to a new DuckDB file at ``path``, without estimates and means; close it.

    ``memory`` is what DuckDB may take, in bytes. Raises what went wrong while units were made.
    """
    manifest = tables.manifest
    stated = {
        "release": pl.DataFrame([manifest.row]),
        "metrics": pl.DataFrame([asdict(metric) for metric in manifest.metrics]),
    }
    with (
        _told_plainly(path, getattr(tables.units, "failures", [])),
        _new_file(path, memory) as connection,
    ):
        units = _units_of(tables)
        for name, table in (SCHEMA | {"units": units}).items():
            _create(connection, name, table)
        for name, frame in (stated | tables.frames()).items():
            _insert(connection, name, frame)
        _write_units(connection, tables.units, units)
        connection.execute("CHECKPOINT draft")  # on closing, DuckDB would not say that it failed


def add_estimates(
    path: Path, frames: dict[str, pl.DataFrame], released: Released, memory: int | None = None
) -> None:
    """Put the rows of ``estimates`` and ``means``, and the macros, into the draft of ``released``.

    The draft is closed then.
    """
    with (
        _told_plainly(path, ()),
        duckdb.connect(str(path), config=memory_limit(memory)) as connection,
    ):
        for name, frame in frames.items():
            _insert(connection, name, frame)
        add_macros(connection, released)
        connection.execute("CHECKPOINT")  # on closing, DuckDB would not say that it failed


@contextmanager
def _told_plainly(path: Path, failures: Sequence[BaseException]) -> Iterator[None]:
    """Say in one line why a file could not be written (a full disk, say)."""
    try:
        yield
    except (duckdb.Error, OSError) as error:
        is_plain = isinstance(error, duckdb.IOException | OSError) or _FULL in str(error)
        if not failures and not is_plain:
            raise
        reason = str(error).splitlines()[0]
    else:
        return
    if failures:
        raise failures[0]
    raise ClusterdpError(f"cannot write the release in {path.parent}: {reason}")


def _new_file(path: Path, memory: int | None) -> duckdb.DuckDBPyConnection:
    """An attached new file in the declared storage version; spills go beside it."""
    spill = {"temp_directory": str(path.parent / "spill")}
    connection = duckdb.connect(config=memory_limit(memory) | spill)
    file = text(str(path))
    connection.execute(f"ATTACH {file} AS draft (STORAGE_VERSION '{STORAGE_VERSION}')")
    connection.execute("USE draft")
    return connection


def _units_of(tables: ReleaseTables) -> Table:
    """The table of the units: with the type of their ids, and the columns of each outcome."""
    integers = {pa.int64(): "BIGINT", pa.uint64(): "UBIGINT"}
    kind = integers.get(tables.units.unit_type, TEXT)
    outcomes = (one.metric for one in tables.manifest.metrics if one.kind == OUTCOME)
    return unit_table(tuple(outcomes), kind)


def _write_units(
    connection: duckdb.DuckDBPyConnection, units: UnitTable | UnitFiles, table: Table
) -> None:
    """Insert the units, in the order of their ids: as they are made, or from files of parts."""
    names = ", ".join(map(quoted, table.columns))
    insert = f"INSERT INTO units ({names}) SELECT {names} FROM "  # noqa: S608 - our own names
    if isinstance(units, UnitTable):
        connection.register("units_to_insert", units.reader)
        connection.execute(insert + "units_to_insert")
        connection.unregister("units_to_insert")
    else:
        # In order, however files were cut: the file's layout must tell nothing of that.
        paths = [str(path) for path in units.paths]
        connection.execute(f"{insert} read_parquet($paths) ORDER BY unit_id", {"paths": paths})
    written = connection.sql("SELECT count(*) FROM units").fetchall()[0][0]
    if written != units.n_rows:
        raise ClusterdpError(f"{written:,} of {units.n_rows:,} units were written; run again")


def _create(connection: duckdb.DuckDBPyConnection, name: str, table: Table) -> None:
    """Make a table, and say in it what it and its columns are."""
    kinds = ", ".join(f"{quoted(column)} {fact.kind}" for column, fact in table.columns.items())
    connection.execute(f"CREATE TABLE {name} ({kinds})")
    connection.execute(f"COMMENT ON TABLE {name} IS {text(table.comment)}")
    for column, fact in table.columns.items():
        connection.execute(f"COMMENT ON COLUMN {name}.{quoted(column)} IS {text(fact.comment)}")


def _insert(connection: duckdb.DuckDBPyConnection, table: str, frame: pl.DataFrame) -> None:
    """Insert the rows of a frame, in their order, into the table's columns by name."""
    names = ", ".join(map(quoted, TABLES[table]))
    connection.register("frame_to_insert", frame.select(list(TABLES[table])).to_arrow())
    query = f"INSERT INTO {table} ({names}) SELECT {names} FROM frame_to_insert"  # noqa: S608 - our own names
    connection.execute(query)
    connection.unregister("frame_to_insert")
