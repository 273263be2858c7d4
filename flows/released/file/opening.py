"""The one way to open released files, safe whoever has made them.

A DuckDB file can hold more than tables. A view with the name of a table runs a query that the maker
of the file has written; it may read any file of the reader, or never end. A macro named ``sum``
replaces DuckDB's own. So the file is attached, read-only, to an empty database that can reach no
other file and load no extension, and its catalog is checked from there before any of its tables is
read. It may hold only the tables of a release, with their columns and types and without
constraints, and the macros of a release, which are never called here.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from flows.released.file.sql import quote_name, text
from flows.runtime.regular_files import check_regular
from flows.runtime.terminal import shown
from schemas.errors import InputError
from schemas.released import OUTCOME, SCHEMA_VERSION, TABLES
from schemas.tables import MACROS, PREFIX, TEXT_IDS, UNNAMED

Settings = dict[str, str | bool | int | float | list[str]]

_NAME = "opened"  # the file is attached under this name
_CLOSED: Settings = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",  # no variable of this program is taken for a table
    "temp_directory": "",
}
_SECONDS = 600.0
_BYTES_A_SECOND = 100_000.0

_MACROS = ", ".join(text(name) for name in MACROS)
_TYPES = {("units", "unit_id"): ("VARCHAR", "BIGINT", "UBIGINT")}
"""The columns that may have one of several types; any other has the declared type."""
_LABELS = (("units", "cluster"), ("units", "arm"))
"""The columns that may be an ENUM, too."""
_ENUM = "ENUM("

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
"""Kinds of objects that no release holds, with the queries that find the name of one."""
_TABLES = f"""
    SELECT table_name FROM duckdb_tables() WHERE {_IN_FILE} AND schema_name = 'main'
"""  # noqa: S608 - constants of ours
_COLUMNS = f"SELECT name, type FROM pragma_table_info('{_NAME}.main.' || ?) ORDER BY cid"  # noqa: S608 - constants of ours
_VERSIONS = f"SELECT schema_version, package_version FROM {_NAME}.main.release LIMIT 2"  # noqa: S608 - constants of ours
_METRICS = f"SELECT metric, kind FROM {_NAME}.main.metrics LIMIT 2"  # noqa: S608 - constants of ours
_DEFINITION = """
    SELECT sql FROM duckdb_tables()
    WHERE database_name = ? AND schema_name = 'main' AND table_name = ?
"""


def memory_limit(memory: int | None) -> Settings:
    """DuckDB's setting for a limit of ``memory`` bytes; None stands for DuckDB's default."""
    return {} if memory is None else {"memory_limit": f"{max(memory // 1_000_000, 1)}MB"}


@contextmanager
def open_safely(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the file at ``path`` for reading, with its ``main`` as the current schema.

    Raises InputError where it is not a regular file or not a DuckDB file, where it holds something
    that no release holds, and where reading it takes longer than :func:`patience`.
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
        reason = "takes far longer to read than a release of its size does"
    except duckdb.OutOfMemoryException:
        reason = "takes more memory to read than there is"
    except duckdb.Error:
        reason = "not a clusterdp release that can be read whole"
    else:
        return
    raise InputError(f"{path.absolute()}: {reason}")


def patience(size: int) -> float:
    """The seconds that reading a file of ``size`` bytes may take: far more than it needs.

    It is a second line of defence: only tables are let in, and reading these ends.
    """
    return _SECONDS + size / _BYTES_A_SECOND


def _attached(path: Path) -> duckdb.DuckDBPyConnection:
    """Attach the file to a new, empty database that can reach no other file."""
    log = path.with_name(f"{path.name}.wal")
    if log.exists() or log.is_symlink():  # DuckDB would apply its changes to the tables
        raise InputError(
            f"{path}: beside it lies {log.name}, with changes that are not in the file, and a "
            "release has none. Move that file away, or get the release once more"
        )
    connection = duckdb.connect(config=_CLOSED)
    try:
        allowed = ", ".join(text(str(file)) for file in (path, log))  # DuckDB looks for the log
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
    """Interrupt the connection's queries once ``seconds`` have passed."""
    is_over = threading.Event()

    def watch() -> None:
        wait = seconds
        while not is_over.wait(wait):  # repeated, as between two queries nothing is interrupted
            connection.interrupt()
            wait = 0.1

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


def _problem(connection: duckdb.DuckDBPyConnection) -> str | None:
    """Say how the attached file differs from a release; None where it does not.

    The queries run in the empty database, where function names mean DuckDB's own functions.
    """
    return (
        _foreign(connection, "view", _VIEW)
        or _version_problem(connection)
        or next((problem for kind in _FOREIGN if (problem := _foreign(connection, kind))), None)
        or _table_problem(connection, "metrics")
        or _metrics_problem(connection)
        or next((problem for name in TABLES if (problem := _table_problem(connection, name))), None)
    )


def _foreign(connection: duckdb.DuckDBPyConnection, kind: str, query: str = "") -> str | None:
    row = connection.execute(query or f"{_FOREIGN[kind]} LIMIT 1").fetchone()
    if row is None:
        return None
    return f"not a clusterdp release: it holds the {kind} '{shown(str(row[0]))}'"


def _version_problem(connection: duckdb.DuckDBPyConnection) -> str | None:
    """Say why the file's schema version cannot be read, or which table is missing.

    The version comes first, as files of other versions have other tables.
    """
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
    """Say that the release is about other outcomes than the one that this program reads."""
    if connection.execute(_METRICS).fetchall() == [(UNNAMED, OUTCOME)]:
        return None
    return (
        f"is not about one outcome called {UNNAMED!r}, which is what this program reads; use the "
        "version of clusterdp that made it"
    )


def _table_problem(connection: duckdb.DuckDBPyConnection, name: str) -> str | None:
    """Say that a table differs from a release's: its definition is compared word by word.

    So it has no checks, keys, collations, defaults or generated columns.
    """
    present: list[tuple[Any, ...]] = connection.execute(_COLUMNS, [name]).fetchall()
    if len(present) != len(TABLES[name]):
        return _other_columns(name)
    for (column, kind), (declared, usual) in zip(present, TABLES[name].items(), strict=True):
        if column != declared or not _is_allowed(name, column, kind, usual):
            return _other_columns(name)
    labels = {column: kind for column, kind in present if kind.startswith(_ENUM)}
    stand_ins = {column: f"ENUM({text(column)})" for column in labels}
    columns = (f"{quote_name(column)} {stand_ins.get(column, kind)}" for column, kind in present)
    connection.execute(f"CREATE TABLE memory.main.{name} ({', '.join(columns)})")
    ours, theirs = (
        str(connection.execute(_DEFINITION, [database, name]).fetchall()[0][0])
        for database in ("memory", _NAME)
    )
    connection.execute(f"DROP TABLE memory.main.{name}")
    for column, kind in labels.items():  # their labels are compared, and never run as SQL
        ours = ours.replace(stand_ins[column], kind, 1)
    return None if theirs in (ours, _with_compression(ours)) else _other_columns(name)


def _is_allowed(table: str, column: str, kind: str, usual: str) -> bool:
    if (table, column) in _LABELS and kind.startswith(_ENUM) and kind.endswith(")"):
        return True  # an ENUM, and no list of one
    return kind in _TYPES.get((table, column), (usual,))


def _with_compression(definition: str) -> str:
    """The definition where ids that are text have their compression named."""
    return definition.replace("unit_id VARCHAR", f"unit_id {TEXT_IDS}", 1)


def _other_columns(name: str) -> str:
    return f"not a clusterdp release: the columns of table {name} are not a release's"
