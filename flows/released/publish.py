"""Step 4: write the tables of a release into a new DuckDB file.

Only what may be published reaches this step, so no page of the file and no log has ever held
anything else. The file stays open for the next step, which estimates from it, and is closed before
it gets its public name.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa

from flows.released.file.evidence import Released
from flows.released.file.macros import add_macros
from flows.released.file.margins import shifts_of_cells
from flows.released.file.opening import memory_limit
from flows.released.file.sql import comments, creation, quote_name, text, unplanned
from flows.released.file.units import (
    CELL_FACTS,
    DRAWN,
    FACTS,
    OUTPUT_KINDS,
    OUTPUTS,
    calibration,
    cell_fact_kinds,
    cell_facts_of,
    creation_of,
    fact_kinds,
    facts_of,
    name_in_session,
    outputs_of,
    view_of_units,
)
from flows.released.small_file import attaching, small_file
from flows.runtime.engine import Settings, engine
from flows.runtime.files import cannot_write
from flows.runtime.threads import in_parallel
from schemas.errors import ClusterdpError
from schemas.released import (
    TABLES,
    ReleaseTables,
    no_rows,
)
from schemas.tables import (
    ASSIGNED_TO,
    LABELS,
    MOST_LABELS,
    SCHEMA,
    TEXT,
    TEXT_IDS,
    Column,
    Table,
    drawn_columns,
    unit_table,
)

_FULL = "No space left on device"  # also in errors of other types, such as that of a transaction

_STORED = "What the view units is made of; see the comments there."

_REPEATED = "SET force_compression = 'dictionary'"
"""For text, which repeats: DuckDB would choose it, too, after it had tried others."""
_UNKNOWN = "SET force_compression = 'auto'"
_FEW = 20_000
"""Rows that take a few megabytes."""
_PLACES_BITS = 22
"""As :data:`~flows.released.file.unit_counts.PLACES_BITS`: up to so many strata, each with units.

Nothing that is grouped here leaves many places empty, so hashing would take as much memory."""
_KINDS = {
    pa.int64(): "BIGINT",
    pa.uint64(): "UBIGINT",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    pa.date32(): "DATE",
}
"""Types of ids and attributes in DuckDB, from those in Arrow; all others are text."""


@dataclass(frozen=True)
class FileDraft:
    """The file of a release while this run makes it."""

    path: Path
    connection: duckdb.DuckDBPyConnection
    """One for whoever writes to it and reads it; the file's is the current schema."""
    place: str
    """The name that the file is attached under."""
    copied: Callable[[str], str] = str
    """What makes the tables that statements make: these, or a copy of empty ones."""


@contextmanager
def new_draft(
    path: Path, memory: int | None = None, n_rows: int | None = None
) -> Iterator[FileDraft]:
    """Make a DuckDB file at ``path``, of the declared storage version; it is closed at the end.

    ``memory`` is what DuckDB may take, in bytes; it spills into a folder beside the file. A file of
    so few rows that it needs neither, ``n_rows``, is written by an engine that stays open.
    """
    with ExitStack() as stack:
        if n_rows is not None and n_rows <= _FEW:
            with _plain_errors(path, ()):
                file = stack.enter_context(small_file(path))
            yield FileDraft(path, file.connection, file.place, file.copied)
            return
        spill: Settings = {"temp_directory": str(path.parent / "spill")}
        places = {"perfect_ht_threshold": _PLACES_BITS}
        connection = stack.enter_context(engine(memory_limit(memory) | spill | places))
        with _plain_errors(path, ()):
            connection.execute(attaching(path, "draft"))
        yield FileDraft(path, connection, "draft")


def publish(tables: ReleaseTables, draft: FileDraft) -> None:
    """Write ``tables`` to a new draft, without estimates and means.

    An error in the making of the units is raised as it was.
    """
    connection = draft.connection
    manifest = tables.manifest
    stated = {
        "release": pl.DataFrame([manifest.row], schema=no_rows("release").schema),
        "metrics": pl.DataFrame(
            [metric.row for metric in manifest.metrics], schema=no_rows("metrics").schema
        ),
    }
    frames = stated | tables.frames()
    _judge(frames)
    judged: list[BaseException] = []
    with _plain_errors(draft.path, judged), _plain_errors(draft.path, tables.units.failures):
        names = _names_compressions(connection)
        made = SCHEMA | _cell_tables(tables)
        del made["units"]
        of_units = _creation_of_units(tables, TEXT_IDS if names else TEXT)
        setting = _REPEATED if names else _UNKNOWN
        tables_made = f"{draft.copied(creation(made))}; {of_units}"
        connection.execute(f"{setting}; BEGIN; {unplanned(tables_made)}")
        for name, frame in frames.items():
            kinds = {column: fact.kind for column, fact in made[name].columns.items()}
            _insert(connection, name, frame, kinds)
        _insert_facts(draft, tables)
        connection.execute(f"COMMIT; {_UNKNOWN}")
        _write_units(connection, tables, judged)


def add_estimates(
    draft: FileDraft, frames: dict[str, pl.DataFrame], every: Sequence[Released]
) -> None:
    """Add the rows of ``estimates`` and ``means``, and the macros, to a draft.

    ``every`` has all outcomes, in order. All is on the disk then.
    """
    connection = draft.connection
    _judge(frames)
    with _plain_errors(draft.path, ()):
        connection.execute("BEGIN")
        for name, frame in frames.items():
            _insert(connection, name, frame, TABLES[name])
        _calibrate_units(connection, every)
        add_macros(connection, every)
        connection.execute("COMMIT")
        connection.execute(f"CHECKPOINT {draft.place}")  # closing alone would hide a failure


def _judge(frames: Mapping[str, pl.DataFrame]) -> None:
    """Hold tables to their models; InputError says which rule one of them breaks."""
    from schemas.frames import judge  # noqa: PLC0415 - pandera, which who reads does without

    for name, frame in frames.items():
        judge(name, frame)


@contextmanager
def _plain_errors(path: Path, failures: Sequence[BaseException]) -> Iterator[None]:
    """Raise InputError with the reason in one line where a file cannot be written.

    That is a full disk, for example. Errors in the making of the units, ``failures``, come first.
    """
    try:
        yield
    except (duckdb.Error, OSError) as error:
        is_plain = isinstance(error, duckdb.IOException | OSError) or _FULL in str(error)
        if not failures and not is_plain:
            raise
        reason = _FULL if _FULL in str(error) else str(error).splitlines()[0]
    else:
        return
    if failures:
        raise failures[0]
    raise cannot_write(path.parent.parent, reason)


def _names_compressions(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether DuckDB writes the compressions that are named here into a file of this storage.

    It reads them in any; newer storage has others, which it then has to find by itself.
    """
    try:
        connection.execute(f"BEGIN; CREATE TABLE trial (text {TEXT_IDS})")
    except duckdb.BinderException:
        return False
    finally:
        connection.execute("ROLLBACK")
    return True


def _creation_of_units(tables: ReleaseTables, text_ids: str) -> str:
    """Statements that make what is stored of units, and the view of them, with comments.

    ``text_ids`` is the type of ids that are text.
    """
    manifest, units = tables.manifest, tables.units
    schema, metrics = manifest.own_schema, tuple(one.metric for one in manifest.outcomes)
    by_tables, n_margins = manifest.outcomes[0].has_tables, len(manifest.margins)
    labels = [_label_kind(tables.strata[name].unique().to_list()) for name in ("cluster", "arm")]
    attributes = {name: _KINDS.get(units.kind_of(name), TEXT) for name in units.attributes}
    id_kind = _KINDS.get(units.unit_type, text_ids)
    stored = {
        DRAWN: drawn_columns(
            metrics, id_kind, attributes, assigned=units.assigned, n_margins=n_margins
        ),
        FACTS: fact_kinds(len(metrics), *labels, by_tables=by_tables),
        **({OUTPUTS: OUTPUT_KINDS} if by_tables else {}),
        **({CELL_FACTS: cell_fact_kinds(len(metrics), labels[1])} if n_margins else {}),
    }
    shown = unit_table(
        metrics,
        attributes=attributes,
        assigned=units.assigned,
        texts=manifest.texts,
        by_tables=by_tables,
    )
    others = [*attributes, *([ASSIGNED_TO] if units.assigned else [])]
    view = view_of_units(schema, metrics, others, by_tables=by_tables, n_margins=n_margins)
    statements = [f"CREATE SCHEMA {schema}", creation_of(schema, stored), view]
    statements += comments("units", shown, kind="VIEW")
    for name, columns in stored.items():
        shown = Table(_STORED, {column: Column(kind, _STORED) for column, kind in columns.items()})
        statements += comments(f"{schema}.{name}", shown)
    return "; ".join(statements)


def _cell_tables(tables: ReleaseTables) -> dict[str, Table]:
    """The definitions of the tables with a row for each outcome: the types of their labels."""
    kinds = {name: _label_kind(tables.pools[name].unique().to_list()) for name in ("metric", "arm")}
    made: dict[str, Table] = {}
    for name, column in LABELS:
        table = made.get(name, SCHEMA[name])
        label = replace(table.columns[column], kind=kinds[column])
        made[name] = replace(table, columns=table.columns | {column: label})
    return made


def _label_kind(labels: Sequence[str]) -> str:
    """The type of a column of labels: an ENUM in their order as text, or text where they are many.

    An ENUM is grouped in half the time. It is compared, joined and united as text is.
    """
    if not 0 < len(labels) <= MOST_LABELS:
        return TEXT
    return f"ENUM({', '.join(map(text, sorted(labels)))})"


def _insert_facts(draft: FileDraft, tables: ReleaseTables) -> None:
    connection = draft.connection
    schema, by_tables = tables.manifest.own_schema, tables.manifest.outcomes[0].has_tables
    facts = facts_of(tables)
    _insert(connection, f"{schema}.{FACTS}", facts, dict.fromkeys(facts.columns, ""))
    if by_tables:
        _insert(connection, f"{schema}.{OUTPUTS}", outputs_of(tables), OUTPUT_KINDS)
    if tables.manifest.margins:
        cells = cell_facts_of(tables)
        _insert(connection, f"{schema}.{CELL_FACTS}", cells, dict.fromkeys(cells.columns, ""))
    name_in_session(connection, f"{draft.place}.{schema}", by_tables=by_tables)


def _calibrate_units(connection: duckdb.DuckDBPyConnection, every: Sequence[Released]) -> None:
    """Put into the facts of units what draws settle, in the order of ``numbered_strata``."""
    manifest = every[0].manifest
    known = calibration([one.whole for one in every], same_shares=manifest.same_shares)
    strata = known.with_row_index("code")
    joined = "JOIN temp.main.numbered_strata AS s ON s.code = k.code WHERE f._stratum = s.stratum"
    _update(connection, f"{manifest.own_schema}.{FACTS}", strata, known.columns, joined)
    margins = [one.margins for one in every if one.margins is not None]
    if margins:
        cells = shifts_of_cells(every[0].arms, margins)
        shifts = [name for name in cells.columns if name.startswith("shift")]
        same = "WHERE (f.margin, f.code, f.arm::VARCHAR) = (k.margin, k.code, k.arm)"
        _update(connection, f"{manifest.own_schema}.{CELL_FACTS}", cells, shifts, same)


def _update(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    known: pl.DataFrame,
    names: Sequence[str],
    joined: str,
) -> None:
    """Set these columns of ``table`` f to those of the rows k that are ``joined`` to its own."""
    connection.register("known_now", known.to_arrow())
    columns = ", ".join(f"{name} = k.{name}" for name in names)
    connection.execute(f"UPDATE {table} AS f SET {columns} FROM known_now AS k {joined}")  # noqa: S608 - our own names
    connection.unregister("known_now")


def _write_units(
    connection: duckdb.DuckDBPyConnection,
    tables: ReleaseTables,
    failures: list[BaseException],
) -> None:
    """Insert the units in the order of their ids, while they are made and judged.

    Raises ClusterdpError where not all were written.
    """
    from schemas.frames import judge_of_units  # noqa: PLC0415 - likewise

    units = tables.units
    table = f"{tables.manifest.own_schema}.{DRAWN}"
    names = ", ".join(map(quote_name, units.reader.schema.names))
    bounds = tables.debias.group_by("metric").agg(low=pl.min("outcome"), high=pl.max("outcome"))
    ranges = {metric: (low, high) for metric, low, high in bounds.iter_rows()}
    schema = units.reader.schema
    judge = judge_of_units(schema.field("unit_id").type, ranges, failures)
    judged = in_parallel(judge, units.reader)
    connection.register("units_to_insert", pa.RecordBatchReader.from_batches(schema, judged))
    connection.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM units_to_insert")  # noqa: S608 - our own names
    connection.unregister("units_to_insert")
    written = connection.sql(f"SELECT count(*) FROM {table}").fetchall()[0][0]  # noqa: S608 - likewise
    if written != units.n_rows:
        raise ClusterdpError(f"{written:,} of {units.n_rows:,} units were written; run again")


def _insert(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    frame: pl.DataFrame,
    kinds: Mapping[str, str],
) -> None:
    """Insert the rows of a frame into a table, in their order; ``kinds`` are types by column.

    Labels that are an ENUM there and here are handed over as numbers: DuckDB would look up the text
    of every row. A label of all rows is said once, and what is null in all needs no value.
    """
    filled = [name for name in kinds if frame[name].null_count() < frame.height]
    if not filled:
        return
    values = {name: quote_name(name) for name in filled}
    for name, dtype in frame.schema.items():
        if name not in values or not isinstance(dtype, pl.Enum):
            continue
        if len(dtype.categories) == 1 and not frame[name].has_nulls():
            values[name] = text(dtype.categories[0])
        elif kinds[name].startswith("ENUM"):
            labels = ", ".join(map(text, dtype.categories))
            values[name] = f"([{labels}]::{kinds[name]}[])[{values[name]}::BIGINT + 1]"
            frame = frame.with_columns(pl.col(name).to_physical())
    kept = pl.CompatLevel.newest()  # as polars holds it: texts are not copied
    frame = frame.select(filled)
    # To register it would take twice the time.
    rows_to_insert = frame.to_arrow(compat_level=kept)  # noqa: F841 - DuckDB finds it by its name
    names = ", ".join(map(quote_name, filled))
    columns = ", ".join(values.values())
    query = f"INSERT INTO {table} ({names}) SELECT {columns} FROM rows_to_insert"  # noqa: S608 - our own names
    connection.execute(query)
