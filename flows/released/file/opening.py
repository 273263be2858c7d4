"""The one door to released files: whoever made a file may have put anything into it.

A DuckDB file can hold more than tables. A view named like a table runs a query of its maker's,
which may read any file of the reader's or never end; a macro named ``sum`` takes the place of
DuckDB's own. So a file is attached, read-only, to an empty database that can reach no other file
and load nothing, and its catalog is looked at from there before anything in it is asked for. Only
tables may be in it, of the columns and types that a release has and with nothing attached to them,
and the macros of a release, which nothing here calls.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from flows.released.file.sql import quoted, text
from flows.runtime.regular_files import check_regular
from flows.runtime.terminal import shown
from schemas.errors import InputError
from schemas.released import OUTCOME, SCHEMA_VERSION, TABLES
from schemas.tables import MACROS, PREFIX, UNNAMED

Settings = dict[str, str | bool | int | float | list[str]]

_NAME = "opened"  # what the file is attached as
_CLOSED: Settings = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",  # no variable of ours is taken for a table
    "temp_directory": "",
}
_SECONDS = 600.0
_BYTES_A_SECOND = 100_000.0

_MACROS = ", ".join(text(name) for name in MACROS)
_TYPES = {("units", "unit_id"): ("VARCHAR", "BIGINT", "UBIGINT")}
"""Where a column may have several types; elsewhere it has the declared one."""

_IN_FILE = f"database_name = '{_NAME}'"
_OWN_SCHEMA = f"regexp_full_match(schema_name, '{PREFIX}[0-9a-f]{{16}}')"  # of what macros read
_TABLE_NAMES = ", ".join(f"'{name}'" for name in TABLES)
_VIEW = f"SELECT view_name FROM duckdb_views() WHERE {_IN_FILE} AND NOT internal LIMIT 1"  # noqa: S608 - constants of ours, as below
_FOREIGN = {
    "macro": f"""
        SELECT function_name FROM duckdb_functions() WHERE {_IN_FILE} AND NOT (
            schema_name = 'main' AND function_type = 'table_macro' AND function_name IN ({_MACROS})
        )""",  # noqa: S608 - constants of ours
    "schema": f"""
        SELECT schema_name FROM duckdb_schemas()
        WHERE {_IN_FILE} AND schema_name <> 'main' AND NOT {_OWN_SCHEMA}""",  # noqa: S608 - constants of ours
    "type": f"SELECT type_name FROM duckdb_types() WHERE {_IN_FILE} AND NOT internal",  # noqa: S608 - constants of ours
    "sequence": f"SELECT sequence_name FROM duckdb_sequences() WHERE {_IN_FILE}",  # noqa: S608 - constants of ours
    "index": f"SELECT index_name FROM duckdb_indexes() WHERE {_IN_FILE}",  # noqa: S608 - constants of ours
    "table": f"""
        SELECT table_name FROM duckdb_tables() WHERE {_IN_FILE} AND NOT (
            schema_name = 'main' AND table_name IN ({_TABLE_NAMES}) OR {_OWN_SCHEMA}
        )""",  # noqa: S608 - constants of ours
}
"""What no release holds, by its name in words: each query finds the name of one."""
_TABLES = f"""
    SELECT table_name FROM duckdb_tables() WHERE {_IN_FILE} AND schema_name = 'main'
"""  # noqa: S608 - constants of ours
_COLUMNS = f"""
    SELECT column_name, data_type FROM duckdb_columns()
    WHERE {_IN_FILE} AND schema_name = 'main' AND table_name = ? ORDER BY column_index
"""  # noqa: S608 - constants of ours
_VERSIONS = f"SELECT schema_version, package_version FROM {_NAME}.main.release LIMIT 2"  # noqa: S608 - constants of ours
_METRICS = f"SELECT metric, kind FROM {_NAME}.main.metrics LIMIT 2"  # noqa: S608 - constants of ours
_SPELT = """
    SELECT sql FROM duckdb_tables()
    WHERE database_name = ? AND schema_name = 'main' AND table_name = ?
"""


def memory_limit(memory: int | None) -> Settings:
    """DuckDB's setting for so many bytes; its own default where that is None."""
    return {} if memory is None else {"memory_limit": f"{max(memory // 1_000_000, 1)}MB"}


@contextmanager
def opened_safely(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the file at ``path`` for reading, its ``main`` being the current schema.

    Raises InputError where it is no plain file, no DuckDB file, holds what no release holds, or
    is not read within :func:`patience`.
    """
    check_regular(path.absolute())
    connection = _attached(path.resolve())
    try:
        with connection, _interrupted_after(connection, patience(path.stat().st_size)):
            problem = _problem(connection)
            if problem is not None:
                raise InputError(f"{path.absolute()}: {problem}")
            connection.execute(f"USE {_NAME}")
            yield connection
    except duckdb.InterruptException:
        told = "takes far longer to read than a release of its size does"
    except duckdb.OutOfMemoryException:
        told = "takes more memory to read than there is"
    except duckdb.Error:
        told = "not a clusterdp release that can be read whole"
    else:
        return
    raise InputError(f"{path.absolute()}: {told}")


def patience(size: int) -> float:
    """How many seconds reading a file of ``size`` bytes may take: far more than it ever should.

    A second line of defence: what is let in are tables alone, and reading those ends.
    """
    return _SECONDS + size / _BYTES_A_SECOND


def _attached(path: Path) -> duckdb.DuckDBPyConnection:
    """An empty database that the file is attached to, and that reaches no other file."""
    log = path.with_name(f"{path.name}.wal")
    if log.exists() or log.is_symlink():  # DuckDB would add what it says to the tables
        raise InputError(
            f"{path}: beside it lies {log.name}, with changes that are not in the file, and a "
            "release has none. Move that file away, or ask for the release anew"
        )
    connection = duckdb.connect(config=_CLOSED)
    try:
        allowed = ", ".join(text(str(each)) for each in (path, log))  # DuckDB looks for the log
        connection.execute(f"SET allowed_paths = [{allowed}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        connection.execute(f"ATTACH {text(str(path))} AS {_NAME} (READ_ONLY, TYPE duckdb)")
    except (duckdb.Error, UnicodeEncodeError):
        connection.close()
    else:
        return connection
    raise InputError(
        f"{path}: not a DuckDB file that can be opened; is it whole, neither encrypted nor of a "
        "newer DuckDB, and may you read it?"
    )


@contextmanager
def _interrupted_after(connection: duckdb.DuckDBPyConnection, seconds: float) -> Iterator[None]:
    """Interrupt whatever the connection does once so many seconds have passed."""
    over = threading.Event()

    def watch() -> None:
        wait = seconds
        while not over.wait(wait):  # again and again: between two queries nothing is interrupted
            connection.interrupt()
            wait = 0.1

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _problem(connection: duckdb.DuckDBPyConnection) -> str | None:
    """What the attached file holds that a release does not, or lacks; None for a release.

    Asked from the empty database, where names of functions mean DuckDB's own.
    """
    return (
        _foreign(connection, "view", _VIEW)
        or _version_problem(connection)
        or next((told for kind in _FOREIGN if (told := _foreign(connection, kind))), None)
        or _table_problem(connection, "metrics")
        or _metrics_problem(connection)
        or next((told for name in TABLES if (told := _table_problem(connection, name))), None)
    )


def _foreign(connection: duckdb.DuckDBPyConnection, kind: str, query: str = "") -> str | None:
    found = connection.execute(query or f"{_FOREIGN[kind]} LIMIT 1").fetchone()
    if found is None:
        return None
    return f"not a clusterdp release: it holds the {kind} '{shown(str(found[0]))}'"


def _version_problem(connection: duckdb.DuckDBPyConnection) -> str | None:
    """Why the version that the file says it has is not read; a file of another has other tables."""
    tables = {row[0] for row in connection.execute(_TABLES).fetchall()}
    missing = [table for table in TABLES if table not in tables]
    if "release" in missing:
        return "not a clusterdp release (no table release)"
    columns = connection.execute(_COLUMNS, ["release"]).fetchall()
    if not {("schema_version", "INTEGER"), ("package_version", "VARCHAR")}.issubset(columns):
        return "not a clusterdp release (table release does not say its schema version)"
    rows = connection.execute(_VERSIONS).fetchall()
    if len(rows) != 1:
        return "not a complete clusterdp release: table release does not have one row"
    version, made_by = rows[0]
    if version != SCHEMA_VERSION:
        return (
            f"has schema version {version}, this program reads {SCHEMA_VERSION}; use the version "
            f"of clusterdp that made it: {shown(str(made_by))}"
        )
    return f"not a clusterdp release (no table {missing[0]})" if missing else None


def _metrics_problem(connection: duckdb.DuckDBPyConnection) -> str | None:
    """Units have columns by metric, and this program reads one."""
    if connection.execute(_METRICS).fetchall() == [(UNNAMED, OUTCOME)]:
        return None
    return (
        f"is not about one outcome called {UNNAMED!r}, which is what this program reads; use the "
        "version of clusterdp that made it"
    )


def _table_problem(connection: duckdb.DuckDBPyConnection, name: str) -> str | None:
    """How a table differs from a release's, its definition compared word by word with our own.

    So there are no checks, keys, collations, defaults or columns that are worked out.
    """
    found: list[tuple[Any, ...]] = connection.execute(_COLUMNS, [name]).fetchall()
    if len(found) != len(TABLES[name]):
        return _other_columns(name)
    for (column, kind), (declared, usual) in zip(found, TABLES[name].items(), strict=True):
        if column != declared or kind not in _TYPES.get((name, column), (usual,)):
            return _other_columns(name)
    columns = ", ".join(f"{quoted(column)} {kind}" for column, kind in found)
    connection.execute(f"CREATE TABLE memory.main.{name} ({columns})")
    spelt = [connection.execute(_SPELT, [where, name]).fetchall() for where in ("memory", _NAME)]
    connection.execute(f"DROP TABLE memory.main.{name}")
    return None if spelt[0] == spelt[1] else _other_columns(name)


def _other_columns(name: str) -> str:
    return f"not a clusterdp release: the columns of table {name} are not a release's"
