"""The one way to DuckDB: without a progress bar, which would stand among what is printed."""

from typing import Final

import duckdb

_LOCK = "lock_configuration"
Settings = dict[str, str | bool | int | float | list[str]]

_PARSED: Final = dict[str, list[duckdb.Statement]]()
_MOST_PARSED = 500


def engine(
    settings: Settings, path: str = ":memory:", *, read_only: bool = False
) -> duckdb.DuckDBPyConnection:
    """Connect to a database, in memory where no ``path`` is given; no setting changes once locked.

    Where Python runs no file (``python -c``, a notebook), DuckDB shows how long queries take, on
    standard output. That setting belongs to a connection: a cursor of this one has it too.
    """
    open_to_change = {name: one for name, one in settings.items() if name != _LOCK}
    connection = duckdb.connect(path, read_only=read_only, config=open_to_change)
    connection.execute("SET enable_progress_bar = false")
    if settings.get(_LOCK) == "true":
        connection.execute(f"SET {_LOCK} = true")
    return connection


def parsed(connection: duckdb.DuckDBPyConnection, query: str) -> list[duckdb.Statement]:
    """The statements of a query, which are the same for every file of ours: parsed once.

    A file of a few thousand units is asked a hundred, and parsing takes a fifth of their time.
    """
    known = _PARSED.get(query)
    if known is None:
        if len(_PARSED) >= _MOST_PARSED:
            _PARSED.clear()
        known = _PARSED[query] = connection.extract_statements(query)
    return known


def ask(
    connection: duckdb.DuckDBPyConnection, query: str, parameters: object = None
) -> duckdb.DuckDBPyConnection:
    """Run a query that is :func:`parsed`, and return the connection, with the last one's result."""
    for statement in parsed(connection, query):
        connection.execute(statement, parameters)
    return connection
