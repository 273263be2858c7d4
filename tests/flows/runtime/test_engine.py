"""DuckDB prints nothing of its own, whoever runs Python how."""

import subprocess
import sys

PROGRAM = """
import duckdb
from flows.runtime.engine import engine
asked = "SELECT current_setting('enable_progress_bar')"
with engine({"threads": 1}) as connection, connection.cursor() as cursor:
    print(duckdb.sql(asked).fetchall())
    print(connection.sql(asked).fetchall(), cursor.sql(asked).fetchall())
"""


def test_no_progress_bar_stands_among_what_is_printed_where_python_runs_no_file() -> None:
    """It would, by DuckDB's own choice, once a query takes two seconds."""
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[(True,)]\n[(False,)] [(False,)]\n", "")
