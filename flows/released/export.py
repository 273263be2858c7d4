"""A table of a release as a CSV or Parquet file, for programs that do not read DuckDB files.

From the released file alone, batch by batch, so that memory does not grow with its units.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from flows.released.file.opening import ATTACHED
from flows.released.file.read import open_release
from flows.released.file.sql import quote_name
from flows.released.file.units import DRAWN, SESSION
from flows.runtime.files import replace_file
from flows.runtime.reading.table_files import check_format
from schemas.documents import Document
from schemas.errors import ConfigError, InputError, shown

EXPORTED: Final = ("units", "estimates", "counts", "debias")
"""The tables that can be exported."""

_BATCH = 65_536  # rows
_PIECE = 16 * _BATCH
_VIEW = f"""
    SELECT sql FROM duckdb_views()
    WHERE database_name = '{ATTACHED}' AND schema_name = 'main' AND view_name = 'units'
"""  # noqa: S608 - a constant of ours
_FORMULA = "^[=+\\-@\\t\\r]"
"""How a text begins that a spreadsheet takes for a formula, or may."""


@dataclass(frozen=True)
class ExportResult(Document):
    """What was written."""

    path: Path
    table: str
    n_rows: int


def export(
    release: Path, output: Path, table: str = "units", *, keep_formulas: bool = False
) -> ExportResult:
    """Write a table of a released file to ``output``, CSV or Parquet by its name.

    The rows and their order are those of the file, labels are text, and a text is never changed. A
    CSV file with text that a spreadsheet would take for a formula is refused, unless
    ``keep_formulas``: ids come from a log, and whoever wrote that could run a formula on the
    reader's machine. Raises ConfigError for a table that cannot be exported, and InputError where
    it is empty, or ``output`` exists or cannot be written.
    """
    if table not in EXPORTED:
        raise ConfigError("--table", f"{shown(table)} is none of {', '.join(EXPORTED)}")
    check_format(output)
    _check_new(output)
    is_csv = output.suffix.lower() == ".csv"
    with open_release(release) as connection:
        described = connection.execute(f"DESCRIBE main.{table}").fetchall()
        columns = {name: kind for name, kind, *_ in described}
        if is_csv and not keep_formulas:
            _check_formulas(connection, table, columns)
        labels = ", ".join(f"{one}::VARCHAR AS {one}" for one in _texts(columns))
        query = f"SELECT * REPLACE ({labels}) FROM"
        if table == "units":
            reader = _units_in_order(connection, query)
        else:
            reader = connection.sql(f"{query} main.{table}").to_arrow_reader(_BATCH)
        n_rows = _write(reader, output, is_csv=is_csv, empty=f"{release}: {_nothing_in(table)}")
    return ExportResult(output.absolute(), table, n_rows)


def _units_in_order(connection: duckdb.DuckDBPyConnection, query: str) -> pa.RecordBatchReader:
    """The rows of ``units`` in the order in which they are stored, which joins do not keep.

    The view's own text, which was compared with ours, is asked for a piece after the other, so that
    little is sorted at once.
    """
    ((view,),) = connection.execute(_VIEW).fetchall()
    _, _, body = view.removesuffix(";").partition(" AS ")
    ((n_units,),) = connection.execute(f"SELECT count(*) FROM {SESSION[DRAWN]}").fetchall()  # noqa: S608 - our own name

    def piece(start: int) -> pa.RecordBatchReader:
        rows = f"u.rowid >= {start} AND u.rowid < {start + _PIECE}"
        ordered = f"{query} ({body} WHERE {rows} ORDER BY u.rowid)"
        return connection.sql(ordered).to_arrow_reader(_BATCH)

    batches = (batch for start in range(0, n_units, _PIECE) for batch in piece(start))
    return pa.RecordBatchReader.from_batches(piece(n_units).schema, batches)


def _texts(columns: dict[str, str]) -> list[str]:
    """The columns of texts and labels, in quotes."""
    return [
        quote_name(name)
        for name, kind in columns.items()
        if kind == "VARCHAR" or kind.startswith("ENUM(")
    ]


def _nothing_in(table: str) -> str:
    if table == "units":
        return (
            "this release publishes no units, so there is nothing to export; take --table "
            "estimates or --table counts"
        )
    return f"its table {table} has no row, so there is nothing to export"


def _check_formulas(
    connection: duckdb.DuckDBPyConnection, table: str, columns: dict[str, str]
) -> None:
    """Raise InputError where text begins as a formula does."""
    formulas = (
        f"count(*) FILTER (regexp_matches({name}::VARCHAR, '{_FORMULA}')) AS {name}"
        for name in _texts(columns)
    )
    query = f"SELECT {', '.join(formulas)} FROM main.{table}"  # noqa: S608 - our own names
    (counts,) = connection.sql(query).pl().to_dicts()
    for name, count in counts.items():
        if count:
            raise InputError(
                f"{count:,} value(s) of the column {name} begin as a formula of a spreadsheet does "
                "(with =, +, -, @, a tab or a carriage return), and opening a CSV file would run "
                "them; nothing was written. Export to a .parquet file, or, for programs that are "
                "no spreadsheets, say --keep-formulas"
            )


def _check_new(output: Path) -> None:
    if output.exists():
        raise InputError(f"{output}: exists already, and is not overwritten; name another file")


def _write(reader: pa.RecordBatchReader, output: Path, *, is_csv: bool, empty: str) -> int:
    """Write batch by batch, the file whole or not at all; returns the number of rows."""
    kind: Any = pc.CSVWriter if is_csv else pq.ParquetWriter
    n_rows = 0
    try:
        with replace_file(output, mode=0o644) as file:
            _check_new(output)  # nobody else's, meanwhile
            with kind(file, reader.schema) as writer:
                for batch in reader:
                    writer.write_batch(batch)
                    n_rows += batch.num_rows
            if n_rows == 0:
                raise InputError(empty)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InputError(f"{output}: cannot be written ({error.strerror or 'no space?'})") from None
    return n_rows
