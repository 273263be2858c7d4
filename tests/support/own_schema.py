"""What is in a released file besides the tables that analysts see."""

import duckdb

from schemas.tables import PREFIX

OWN = "$own"
"""In statements: the schema of what units are stored as and of what macros read."""


def own_schema(connection: duckdb.DuckDBPyConnection) -> str:
    """The name of that schema in the file that is open."""
    query = "SELECT schema_name FROM duckdb_schemas() WHERE starts_with(schema_name, $prefix)"
    ((name,),) = connection.execute(query, {"prefix": PREFIX}).fetchall()
    return str(name)


def alter(connection: duckdb.DuckDBPyConnection, statements: str) -> duckdb.DuckDBPyConnection:
    """Run statements in which ``$own`` stands for that schema.

    The view ``units`` is made again after columns of what it shows have changed: DuckDB would not
    read it else.
    """
    if OWN in statements:
        statements = statements.replace(OWN, own_schema(connection))
    return connection.execute(statements)
