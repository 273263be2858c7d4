"""What is in a released file besides the tables that analysts see."""

import re

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
    """Run statements in which ``$own`` stands for that schema."""
    if OWN in statements:
        statements = statements.replace(OWN, own_schema(connection))
    return connection.execute(statements)


def on_stored(connection: duckdb.DuckDBPyConnection, statement: str) -> str:
    """A statement about the table ``units`` as one about what is stored, of which that is a view.

    A column that follows from a unit's stratum is changed where that stands: the calibrated outcome
    by its shift, the debiased by its base, or by the weights of outputs.
    """
    if not re.search(r"\bunits\b", statement):
        return statement
    if statement.startswith(("DROP TABLE units", "ALTER TABLE units RENAME TO")):
        return statement.replace("TABLE", "VIEW", 1)
    if not statement.startswith(("UPDATE", "ALTER", "DELETE", "INSERT", "CREATE INDEX")):
        return statement
    schema = own_schema(connection)
    drawn = [str(one) for one, *_ in connection.execute(f"DESCRIBE {schema}.drawn").fetchall()]
    outcomes = [one.removesuffix("_randomised") for one in drawn if one.endswith("_randomised")]
    tables = "SELECT table_name FROM duckdb_tables() WHERE schema_name = $1"
    by_tables = ("weights",) in connection.execute(tables, [schema]).fetchall()
    named = (one for one in re.findall('"([^"]+)"', statement) if not one.startswith("i "))
    column = next(named, None)
    if column is None or column in drawn:
        return re.sub(r"\bunits\b", f"{schema}.drawn", statement)
    own, table = column, "unit_facts"
    if column in outcomes:
        own = f"shift{outcomes.index(column)}"
    elif column.endswith("_debiased"):
        own = f"base{outcomes.index(column.removesuffix('_debiased'))}"
        own, table = ("weight", "weights") if by_tables else (own, table)
    return re.sub(r"\bunits\b", f"{schema}.{table}", statement).replace(f'"{column}', f'"{own}')
