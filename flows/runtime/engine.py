"""The one way to DuckDB: without a progress bar, which would stand among what is printed."""

import duckdb

_LOCK = "lock_configuration"
Settings = dict[str, str | bool | int | float | list[str]]


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
