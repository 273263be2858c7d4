"""Files whose facts a test has changed, as if they had been released so."""

from pathlib import Path

import duckdb

from flows.released.file.evidence import read_every
from flows.released.file.macros import add_macros
from flows.released.file.read import read_manifest
from flows.released.file.sql import quote_name
from flows.released.file.units import DRAWN, FACTS, OUTPUTS, name_in_session, view_of_units
from schemas.names import RANDOMISED
from schemas.tables import MACROS, randomised
from tests.support.own_schema import own_schema

_METRICS = "SELECT metric, response_epsilon FROM metrics WHERE kind = 'outcome' ORDER BY rowid"


def remake_macros(path: Path) -> None:
    """Put what the file's facts make, macros and the view of units, in place of what is there.

    Outcomes that are none of its metrics any more go from what is stored of units, too.
    """
    with duckdb.connect(str(path)) as connection:
        schema, of_units = own_schema(connection), f"DESCRIBE {own_schema(connection)}.{DRAWN}"
        rows = connection.execute(_METRICS).fetchall()
        tables = f"SELECT table_name FROM duckdb_tables() WHERE schema_name = '{schema}'"
        for (name,) in connection.execute(tables).fetchall():
            if name not in (DRAWN, FACTS, OUTPUTS):
                connection.execute(f"DROP TABLE {schema}.{name}")
        connection.execute("DROP VIEW units")
        names = [str(one) for one, *_ in connection.execute(of_units).fetchall()]
        drawn = [one for one in names if one.endswith(RANDOMISED)]
        metrics = [str(one) for one, _ in rows]
        of_strata, by_tables = "_stratum, cluster, arm, weight", rows[0][1] is not None
        for at, metric in enumerate(metrics):
            was = drawn.index(randomised(metric))
            parts = ("table", "shift") if by_tables else ("factor", "base", "shift")
            of_strata += "".join(f", {part}{was} AS {part}{at}" for part in parts)
        connection.execute(
            f"CREATE OR REPLACE TABLE {schema}.{FACTS} AS SELECT {of_strata} FROM {schema}.{FACTS}"
        )
        for gone in set(drawn) - set(map(randomised, metrics)):
            connection.execute(f"ALTER TABLE {schema}.{DRAWN} DROP COLUMN {quote_name(gone)}")
        others = [one for one in names[2:] if one not in drawn]
        connection.execute(view_of_units(schema, metrics, others, by_tables=by_tables))
        name_in_session(connection, schema, by_tables=by_tables)
        for name in MACROS:
            connection.execute(f"DROP MACRO TABLE {name}")
        add_macros(connection, read_every(connection, read_manifest(connection)))
