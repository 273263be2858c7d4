"""The one way to DuckDB: without a progress bar, which would stand among what is printed."""

import duckdb

Settings = dict[str, str | bool | int | float | list[str]]


def engine(
    settings: Settings, path: str = ":memory:", *, read_only: bool = False
) -> duckdb.DuckDBPyConnection:
    """Connect to a database, in memory where no ``path`` is given.

    Where Python runs no file (``python -c``, a notebook), DuckDB shows how long queries take, on
    standard output. That setting belongs to a connection: a cursor of this one has it too.
    """
    connection = duckdb.connect(path, read_only=read_only, config=settings)
    connection.execute("SET enable_progress_bar = false")
    return connection
