"""Whether what runs in a file is what its manifest makes: its macros, and the tables they read.

Macros run in the session of whoever calls them, with the rights of that person, whatever their
name. So they are made again from the manifest, and compared as DuckDB tells both; nothing of the
file's is called. Numbers in them are the same on every machine.
"""

from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

from flows.released.file.cells import Cells
from flows.released.file.evidence import Drawn
from flows.released.file.macros import Macros
from flows.released.file.opening import OWN_MACROS, list_macros
from flows.released.file.sql import quote_name, text
from flows.released.file.units import DRAWN, SESSION, UNIT_TABLES
from flows.runtime.engine import ask, engine
from schemas.released import STORAGE_VERSION, Manifest
from schemas.tables import MACROS, PREFIX

_MADE = """
    SELECT function_name, schema_name, function_type, parameters, parameter_types,
        replace(macro_definition, $schema, $prefix)
    FROM {functions} WHERE database_name = $database AND NOT internal ORDER BY ALL"""
_TABLES = """
    SELECT s.schema_name, t.table_name, t.sql
    FROM duckdb_schemas() AS s LEFT JOIN duckdb_tables() AS t USING (database_name, schema_name)
    WHERE s.database_name = $database AND s.schema_name <> 'main' AND NOT s.internal
        AND NOT list_contains($units, t.table_name)
    ORDER BY ALL"""
_COLUMNS = """
    SELECT table_name, column_name, data_type FROM duckdb_columns()
    WHERE database_name = $database AND schema_name <> 'main' AND NOT internal
        AND NOT list_contains($units, table_name)
    ORDER BY table_oid, column_index"""
_PLAIN = ("BIGINT", "BOOLEAN", "DOUBLE", "INTEGER", "VARCHAR")
_IDS = f"SELECT unit_id FROM {SESSION[DRAWN]}"  # noqa: S608 - our own name


def foreign_code(
    connection: duckdb.DuckDBPyConnection, manifest: Manifest, database: str
) -> str | None:
    """Say what the attached ``database`` has that its manifest would not make; None for nothing.

    It is attached to an empty database, and its tables, which are in use, keep their rules.
    """
    every = [Drawn(manifest, one, Cells(connection, one.metric).grid) for one in manifest.outcomes]
    macros = Macros(every, str(connection.sql(_IDS).types[0]))
    made, signatures = _stored(macros.creation("main").replace(macros.schema, PREFIX))
    list_macros(connection)
    theirs = _made(connection, database, macros.schema, OWN_MACROS)
    for name in MACROS:
        own, found = ([row for row in rows if row[0] == name] for rows in (made, theirs))
        if own != found or _signature(connection, database, name) != signatures[name]:
            return f"its macro {name} is not the one that clusterdp makes of its facts"
    return _foreign_table(connection, macros, database)


@lru_cache(maxsize=16)  # nights of one experiment have the same, but for the schema
def _stored(creation: str) -> tuple[list[Any], dict[str, str]]:
    """What DuckDB tells of macros once it has written them into a file: less than before."""
    with TemporaryDirectory() as folder, engine({}) as connection:
        file = text(str(Path(folder) / "macros.duckdb"))
        connection.execute(
            f"ATTACH {file} AS ours (STORAGE_VERSION '{STORAGE_VERSION}'); USE ours; {creation};"
            f"USE memory; DETACH ours; ATTACH {file} AS ours (READ_ONLY)"
        )
        signatures = {name: _signature(connection, "ours", name) for name in MACROS}
        return _made(connection, "ours", PREFIX), signatures


def _made(
    connection: duckdb.DuckDBPyConnection,
    database: str,
    schema: str,
    functions: str = "duckdb_functions()",
) -> list[Any]:
    """The macros of a database; ``schema`` in their bodies is one for all."""
    of_file = {"database": database, "schema": schema, "prefix": PREFIX}
    return ask(connection, _MADE.format(functions=functions), of_file).fetchall()


def _signature(connection: duckdb.DuckDBPyConnection, database: str, name: str) -> str:
    """The parameters of a macro, defaults included: DuckDB tells them where too many are given.

    So it binds nothing; the macro takes fewer, as is known by now.
    """
    try:
        connection.execute(f"FROM {database}.main.{name}({', '.join(['NULL'] * 9)})")
    except duckdb.BinderException as error:
        return str(error).partition("Candidate")[2]
    raise AssertionError("no macro of ours takes nine values")


def _foreign_table(
    connection: duckdb.DuckDBPyConnection, macros: Macros, database: str
) -> str | None:
    """Definitions are compared word by word with those of plain columns of the same types."""
    wanted = {"database": database, "units": UNIT_TABLES}  # seen when it was opened
    theirs = ask(connection, _TABLES, wanted).fetchall()
    wrong = f"the tables in {macros.schema} are not those that its macros read"
    if [row[:2] for row in theirs] != [(macros.schema, name) for name in sorted(macros.own_tables)]:
        return wrong
    columns: dict[str, list[str]] = {}
    for table, column, kind in ask(connection, _COLUMNS, wanted).fetchall():
        if kind not in _PLAIN:
            return wrong
        columns.setdefault(table, []).append(f"{quote_name(column)} {kind}")
    place = f"memory.{macros.schema}"
    made = (f"CREATE TABLE {place}.{name} ({', '.join(of)})" for name, of in columns.items())
    connection.execute(f"BEGIN; CREATE SCHEMA {place}; {'; '.join(made)}")
    ours = ask(connection, _TABLES, wanted | {"database": "memory"}).fetchall()
    connection.execute("ROLLBACK")
    return None if ours == theirs else wrong
