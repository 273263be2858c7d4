"""The one way to open released files, safe whoever has made them.

A DuckDB file can hold more than tables. A view with the name of a table runs a query that the maker
of the file has written; it may read any file of the reader, or never end. A macro named ``sum``
replaces DuckDB's own. So the file is attached, read-only, to an empty database that can reach no
other file and load no extension, and its catalog is checked from there before any of its tables is
read. It may hold only the tables of a release, with their columns and types and without
constraints, and the macros of a release, which are never called here.
"""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from weakref import WeakSet

import duckdb

from flows.released.file.sql import quote_name, text
from flows.released.file.unit_counts import PLACES_BITS
from flows.released.file.units import (
    CELL_FACTS,
    DRAWN,
    FACTS,
    OUTPUT_KINDS,
    OUTPUTS,
    UNIT_TABLES,
    cell_fact_kinds,
    fact_kinds,
    name_in_session,
    view_of_units,
)
from flows.runtime.engine import Settings, ask, engine
from flows.runtime.reading.known_files import Known, identity
from flows.runtime.reading.regular_files import check_regular
from flows.runtime.terminal import shown
from schemas.errors import InputError
from schemas.names import COLUMN, RANDOMISED, TAKEN, is_derived, metric_problem
from schemas.released import OUTCOME, RATIO, SCHEMA_VERSION, TABLES
from schemas.tables import (
    ASSIGNED_TO,
    ATTRIBUTE_KINDS,
    DIGEST,
    LABELS,
    MACROS,
    MARGINS,
    MOST_ATTRIBUTES,
    PREFIX,
    TEXT,
    TEXT_IDS,
    UNNAMED,
    drawn_columns,
    margin_columns,
    unit_table,
)

_Columns = list[tuple[str, str]]
"""Names and types of a table's columns, in order."""

ATTACHED = "opened"
"""The name that a file is attached under."""
_CLOSED: Settings = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",  # no variable of this program is taken for a table
    "temp_directory": "",
    "perfect_ht_threshold": PLACES_BITS,
}
_SECONDS = 600.0
_BYTES_A_SECOND = 100_000.0
_KEPT_BYTES = 64_000_000
_SMALL_BYTES = 8_000_000

MOST_METRICS = 200
"""The most rows that ``metrics`` may have: each makes queries of its own."""

_MACROS = ", ".join(text(name) for name in MACROS)
_ID_KINDS = ("VARCHAR", "BIGINT", "UBIGINT")
_ENUM = "ENUM("
_JOIN = " INNER JOIN "
_NO_RELEASE = "not a clusterdp release"

_IN_FILE = f"database_name = '{ATTACHED}'"
_OWN_SCHEMA = f"regexp_full_match(schema_name, '{PREFIX}[0-9a-f]{{16}}')"
_OWN = f"SELECT schema_name FROM duckdb_schemas() WHERE {_IN_FILE} AND {_OWN_SCHEMA} LIMIT 2"  # noqa: S608 - constants of ours, as below
_OF_UNITS = ", ".join(map(text, UNIT_TABLES))
_STORED = f"""
    SELECT table_name FROM duckdb_tables()
    WHERE {_IN_FILE} AND schema_name = $schema AND table_name IN ({_OF_UNITS})
"""  # noqa: S608 - constants of ours
_TABLE_NAMES = ", ".join(f"'{name}'" for name in TABLES)
_VIEWS = f"""
    SELECT view_name, sql FROM duckdb_views() WHERE {_IN_FILE} AND NOT internal
    ORDER BY schema_name = 'main' AND view_name = 'units' LIMIT 2
"""  # noqa: S608 - constants of ours
OWN_MACROS: Final = "temp.main.own_macros"
"""The functions of a file that is open, listed once: DuckDB goes through all that there are."""
_LIST_MACROS: Final = f"""
    CREATE TEMP TABLE own_macros AS SELECT * FROM duckdb_functions() WHERE {_IN_FILE}
"""  # noqa: S608 - constants of ours
_LISTED: Final = WeakSet[duckdb.DuckDBPyConnection]()
_FOREIGN = {
    "macro": f"""
        SELECT function_name FROM {OWN_MACROS} WHERE NOT (
            schema_name = 'main' AND function_type = 'table_macro' AND function_name IN ({_MACROS})
        )""",  # noqa: S608 - constants of ours
    "schema": f"""
        SELECT schema_name FROM duckdb_schemas()
        WHERE {_IN_FILE} AND schema_name <> 'main' AND NOT {_OWN_SCHEMA}""",  # noqa: S608 - constants of ours
    "type": f"SELECT type_name FROM duckdb_types() WHERE {_IN_FILE} AND NOT internal",  # noqa: S608 - constants of ours
    "sequence": f"SELECT sequence_name FROM duckdb_sequences() WHERE {_IN_FILE}",  # noqa: S608 - constants of ours
    "trigger": f"SELECT trigger_name FROM duckdb_triggers() WHERE {_IN_FILE}",  # noqa: S608 - constants of ours
    "index": f"SELECT index_name FROM duckdb_indexes() WHERE {_IN_FILE}",  # noqa: S608 - constants of ours
    "table": f"""
        SELECT table_name FROM duckdb_tables() WHERE {_IN_FILE} AND NOT (
            schema_name = 'main' AND table_name IN ({_TABLE_NAMES}) OR {_OWN_SCHEMA}
        )""",  # noqa: S608 - constants of ours
}
"""Kinds of objects that no release holds, with the queries that find the name of one."""
_ANY_FOREIGN = " UNION ALL ".join(
    f"(SELECT '{kind}', * FROM ({query}) LIMIT 1)"  # noqa: S608 - constants of ours
    for kind, query in _FOREIGN.items()
)
_COLUMNS = f"""
    SELECT table_name, column_name, data_type FROM duckdb_columns()
    WHERE {_IN_FILE} AND schema_name = 'main' AND table_name IN ({_TABLE_NAMES})
    ORDER BY table_oid, column_index
"""  # noqa: S608 - constants of ours
_VERSIONS = f"SELECT schema_version, package_version FROM {ATTACHED}.main.release LIMIT 2"  # noqa: S608 - constants of ours
_METRICS = (
    f"SELECT metric, kind FROM {ATTACHED}.main.metrics ORDER BY rowid LIMIT {MOST_METRICS + 1}"  # noqa: S608 - constants of ours
)
_WITH_COMPRESSION = ("unit_id VARCHAR", f"unit_id {TEXT_IDS}", 1)
"""How a definition may differ: ids that are text may have their compression named."""
_DEFINITIONS = """
    SELECT if(schema_name = 'main', '', schema_name || '.') || table_name, sql FROM duckdb_tables()
    WHERE database_name = $database
    UNION ALL
    SELECT view_name, sql FROM duckdb_views() WHERE database_name = $database AND NOT internal
"""


def memory_limit(memory: int | None) -> Settings:
    """DuckDB's setting for a limit of ``memory`` bytes; None stands for DuckDB's default."""
    return {} if memory is None else {"memory_limit": f"{max(memory // 1_000_000, 1)}MB"}


class OtherSchemaError(InputError):
    """A release whose tables are those of another version of clusterdp."""


@contextmanager
def open_safely(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the file at ``path`` for reading, with its ``main`` as the current schema.

    Raises InputError where it is not a regular file or not a DuckDB file, where it holds something
    that no release holds, and where reading it takes longer than :func:`patience`.
    """
    with _opened(path) as connection, _patiently(connection, path):
        yield connection


@contextmanager
def _opened(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    check_regular(path.absolute())
    file = identity(path)
    connection = _attached(path.resolve())
    with connection:
        with _patiently(connection, path):
            units = _UNITS.of(path, file)
            try:
                units = units or _checked(connection)
            except InputError as error:
                raise type(error)(f"{path.absolute()}: {error}") from None
            _UNITS.keep(path, file, units)
            name_in_session(connection, f"{ATTACHED}.{units.schema}", by_tables=units.by_tables)
            connection.execute(f"USE {ATTACHED}")
        yield connection


@contextmanager
def _patiently(connection: duckdb.DuckDBPyConnection, path: Path) -> Iterator[None]:
    """Read the file for as long as that may take; InputError, which names it, where it fails."""
    try:
        with _interrupted_after(connection, patience(path.stat().st_size)):
            yield
    except duckdb.InterruptException:
        reason = "takes far longer to read than a release of its size does"
    except duckdb.OutOfMemoryException:
        reason = "takes more memory to read than there is"
    except duckdb.Error:
        reason = "not a clusterdp release that can be read whole"
    else:
        return
    raise InputError(f"{path.absolute()}: {reason}")


Opening = Callable[[Path], AbstractContextManager[duckdb.DuckDBPyConnection]]
"""What opens a file as :func:`open_safely` does."""


@contextmanager
def kept_open() -> Iterator[Opening]:
    """Give what opens files and keeps them open, the first 64 MB, until the block ends.

    To open a small file again takes longer than to read it; more would take memory. What is kept
    open is of the file as it was when it was opened first.
    """
    kept, room = dict[Path, duckdb.DuckDBPyConnection](), _KEPT_BYTES
    with ExitStack() as stack:

        @contextmanager
        def opening(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
            nonlocal room
            one = path.absolute()
            check_regular(one)
            if one not in kept:
                size = one.stat().st_size
                if size > room:
                    with open_safely(one) as connection:
                        yield connection
                    return
                kept[one] = stack.enter_context(_opened(one))
                room -= size
            with _patiently(kept[one], one):
                yield kept[one]

        yield opening


def patience(size: int) -> float:
    """The seconds that reading a file of ``size`` bytes may take: far more than it needs.

    It is a second line of defence: only tables are let in, and reading these ends.
    """
    return _SECONDS + size / _BYTES_A_SECOND


def _attached(path: Path) -> duckdb.DuckDBPyConnection:
    """Attach the file to a new, empty database that can reach no other file."""
    log = path.with_name(f"{path.name}.wal")
    if log.exists() or log.is_symlink():  # DuckDB would apply its changes to the tables
        raise InputError(
            f"{path}: beside it lies {log.name}, with changes that are not in the file, and a "
            "release has none. Move that file away, or get the release once more"
        )
    is_small = path.stat().st_size <= _SMALL_BYTES  # so plans take longer to better than to run
    connection = engine(_CLOSED | ({"enable_optimizer": "false"} if is_small else {}))
    try:
        allowed = ", ".join(text(str(file)) for file in (path, log))  # DuckDB looks for the log
        connection.execute(
            f"SET allowed_paths = [{allowed}];"
            "SET enable_external_access = false;"
            "SET lock_configuration = true;"
            f"ATTACH {text(str(path))} AS {ATTACHED} (READ_ONLY, TYPE duckdb)"
        )
    except (duckdb.Error, UnicodeEncodeError):
        connection.close()
    else:
        return connection
    if path.suffix == ".json":
        raise InputError(
            f"{path}: not a release; of an effect model `clusterdp report` makes a page, and site "
            "reports go to `clusterdp aggregate`"
        )
    raise InputError(
        f"{path}: not a DuckDB file that can be opened; is it whole, neither encrypted nor of a "
        "newer DuckDB, and may you read it?"
    )


@contextmanager
def _interrupted_after(connection: duckdb.DuckDBPyConnection, seconds: float) -> Iterator[None]:
    """Interrupt the connection's queries once ``seconds`` have passed."""
    is_over = threading.Event()

    def watch() -> None:
        wait = seconds
        while not is_over.wait(wait):  # repeated, as between two queries nothing is interrupted
            connection.interrupt()
            wait = 0.1

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


class _Units(NamedTuple):
    """Where a release has what is stored of its units, and whether response tables drew them."""

    schema: str
    by_tables: bool


_UNITS: Final = Known[_Units]()
"""Of files whose definitions are a release's."""


def _checked(connection: duckdb.DuckDBPyConnection) -> _Units:
    """Say where the attached release has its units; InputError where it is none.

    The queries run in the empty database, where function names mean DuckDB's own functions. The
    view ``units`` is compared with ours word by word before anything is asked of it.
    """
    schema, stored = _stored_units(connection)
    views = ask(connection, _VIEWS).fetchall()
    definitions = {} if stored is None else _definitions(connection, ATTACHED)
    foreign: dict[str, str] = {"view": views[0][0]} if views else {}
    units_fit = stored is not None and _are_ours(connection, schema, stored, views, definitions)
    if not views or units_fit:
        columns: dict[str, _Columns] = {}
        for table, column, kind in ask(connection, _COLUMNS).fetchall():
            columns.setdefault(table, []).append((column, kind))
        _check_version(connection, columns)
        list_macros(connection)
        foreign = dict(ask(connection, _ANY_FOREIGN).fetchall())
    for kind in ("view", *_FOREIGN):
        if kind in foreign and foreign[kind] != "units":
            raise InputError(f"{_NO_RELEASE}: it holds the {kind} '{shown(str(foreign[kind]))}'")
    if stored is None or not units_fit:
        raise InputError(f"{_NO_RELEASE}: the columns of table units are not a release's")
    del columns["units"]
    _check_columns(connection, columns, definitions)
    metrics = ask(connection, _METRICS).fetchall()
    problem = _metrics_problem(metrics)
    if problem is not None:
        raise InputError(f"{_NO_RELEASE}: {problem}")
    if [name for name, kind in metrics if kind == OUTCOME] != _outcomes_of(stored):
        raise InputError(f"{_NO_RELEASE}: the columns of table units are not a release's")
    return _Units(schema, OUTPUTS in stored)


def list_macros(connection: duckdb.DuckDBPyConnection) -> None:
    """Put the functions of the attached file into :data:`OWN_MACROS`."""
    if connection not in _LISTED:
        ask(connection, _LIST_MACROS)
        _LISTED.add(connection)


def _stored_units(
    connection: duckdb.DuckDBPyConnection,
) -> tuple[str, dict[str, _Columns] | None]:
    """The schema of what is stored of units, and the columns of its tables.

    None where these may not be a release's, so that no name and no type of theirs is used in SQL.
    """
    own = ask(connection, _OWN).fetchall()
    if len(own) != 1:
        return "", None
    ((schema,),) = own
    names = {name for (name,) in ask(connection, _STORED, {"schema": schema}).fetchall()}
    if not {DRAWN, FACTS} <= names:
        return schema, None
    described = {
        name: connection.execute(f"DESCRIBE {ATTACHED}.{schema}.{name}").fetchall()
        for name in sorted(names)
    }
    stored = {name: [(one[0], one[1]) for one in rows] for name, rows in described.items()}
    return schema, stored if _may_be_units(stored) else None


def _outcomes_of(stored: dict[str, _Columns]) -> list[str]:
    """The outcomes that something is stored of."""
    names = [column for column, _ in stored[DRAWN]]
    return [one.removesuffix(RANDOMISED) for one in names if one.endswith(RANDOMISED)]


def _n_margins(stored: dict[str, _Columns]) -> int:
    """How many margins units have numbers of cells of, as a column's name says."""
    named = (re.fullmatch(MARGINS + "([1-9][0-9]?)", column) for column, _ in stored[DRAWN])
    return max((int(one[1]) for one in named if one), default=0)


def _may_be_units(stored: dict[str, _Columns]) -> bool:
    """Whether the tables of units have the columns of a release with their outcomes."""
    outcomes, by_tables = tuple(_outcomes_of(stored)), OUTPUTS in stored
    drawn, facts = dict(stored[DRAWN]), dict(stored[FACTS])
    n_margins = _n_margins(stored)
    own = drawn_columns(outcomes, drawn.get("unit_id", ""), {}, assigned=False, n_margins=n_margins)
    labels = [facts.get(name, "") for name in ("cluster", "arm")]
    expected = fact_kinds(len(outcomes), *labels, by_tables=by_tables)
    of_cells = cell_fact_kinds(len(outcomes), labels[1])
    return (
        stored[DRAWN][: len(own)] == list(own.items())
        and own["unit_id"] in _ID_KINDS
        and _are_facts(list(unit_table(outcomes).columns), stored[DRAWN][len(own) :])
        and stored[FACTS] == list(expected.items())
        and all(map(_is_label, labels))
        and stored.get(OUTPUTS, list(OUTPUT_KINDS.items())) == list(OUTPUT_KINDS.items())
        and stored.get(CELL_FACTS, []) == (list(of_cells.items()) if n_margins else [])
        and all(metric_problem(name) is None for name in outcomes)
    )


def _are_ours(
    connection: duckdb.DuckDBPyConnection,
    schema: str,
    stored: dict[str, _Columns],
    views: Sequence[tuple[str, str]],
    definitions: dict[str, str],
) -> bool:
    """Whether tables and view of units are spelled as DuckDB spells ours.

    A view that was written into a file has no brackets around its joins.
    """
    metrics = _outcomes_of(stored)
    n_margins = _n_margins(stored)
    n_own = 2 + len(metrics) + len(margin_columns(n_margins))
    others = [column for column, _ in stored[DRAWN][n_own:]]
    view = view_of_units(PREFIX, metrics, others, by_tables=OUTPUTS in stored, n_margins=n_margins)
    made = _own_definitions(
        connection, {f"{PREFIX}.{name}": of for name, of in stored.items()}, view
    )
    head, _, joined = made["units"].removesuffix(";").partition(" FROM ")
    first, *joins = joined.lstrip("(").split(_JOIN)
    bare = f"{head} FROM {_JOIN.join([first, *(one[:-1] for one in joins)])};"
    may_be = {f"{PREFIX}.{name}": [made[f"{PREFIX}.{name}"]] for name in stored}
    may_be[f"{PREFIX}.{DRAWN}"].append(made[f"{PREFIX}.{DRAWN}"].replace(*_WITH_COMPRESSION))
    theirs = {
        name.replace(schema, PREFIX): sql.replace(schema, PREFIX)
        for name, sql in definitions.items()
    }
    shown = [(name, sql.replace(schema, PREFIX)) for name, sql in views]
    return shown in ([("units", made["units"])], [("units", bare)]) and all(
        theirs[name] in spellings for name, spellings in may_be.items()
    )


def _metrics_problem(metrics: Sequence[tuple[object, object]]) -> str | None:
    """Say why these names and kinds of ``metrics`` are none of a release; None where they may be.

    Outcomes are columns of ``units``, so their names have to be apart from all others there,
    whatever the case of their letters: to DuckDB it makes no difference.
    """
    if len(metrics) > MOST_METRICS:
        return f"its table metrics has more than {MOST_METRICS} rows"
    if not any(kind == OUTCOME for _, kind in metrics):
        return "its table metrics has no outcome"
    taken: set[str] = set()
    for name, kind in metrics:
        if kind not in (OUTCOME, RATIO):
            return "its table metrics has a row that is neither an outcome nor a ratio"
        if not isinstance(name, str):
            problem: str | None = "is missing"
        elif name.lower() in taken:
            problem = "stands there twice"
        else:
            problem = metric_problem(name)
            taken.add(name.lower())
        if problem is not None:
            return f"a name in its table metrics {problem}"
    return None


def _check_version(connection: duckdb.DuckDBPyConnection, columns: dict[str, _Columns]) -> None:
    """Raise InputError where the file's schema version cannot be read, or a table is missing.

    The version comes first, as files of other versions have other tables.
    """
    missing = [table for table in TABLES if table not in columns]
    if "release" in missing:
        raise InputError(f"{_NO_RELEASE} (no table release)")
    stated = {("schema_version", "INTEGER"), ("package_version", "VARCHAR")}
    if not stated.issubset(columns["release"]):
        raise InputError(f"{_NO_RELEASE} (table release does not say its schema version)")
    rows = ask(connection, _VERSIONS).fetchall()
    if len(rows) != 1:
        raise InputError("not a complete clusterdp release: table release does not have one row")
    version, made_by = rows[0]
    if version != SCHEMA_VERSION:
        raise OtherSchemaError(
            f"has schema version {version}, this program reads {SCHEMA_VERSION}; use the version "
            f"of clusterdp that made it: {shown(str(made_by))}"
        )
    if missing:
        raise InputError(f"{_NO_RELEASE} (no table {missing[0]})")


def _check_columns(
    connection: duckdb.DuckDBPyConnection, columns: dict[str, _Columns], theirs: dict[str, str]
) -> None:
    """Raise InputError where a table differs from a release's: definitions are compared as text.

    So none has checks, keys, collations, defaults or generated columns. ``columns`` are those of
    the tables to be compared.
    """
    possible = {name: of for name, of in columns.items() if _has_columns(name, of)}
    ours = _own_definitions(connection, possible)
    for name in (name for name in TABLES if name in columns):
        if ours.get(name) != theirs[name]:
            raise InputError(f"{_NO_RELEASE}: the columns of table {name} are not a release's")


def _has_columns(table: str, columns: _Columns) -> bool:
    expected = TABLES[table]
    return [column for column, _ in columns] == list(expected) and all(
        kind == expected[column] or ((table, column) in LABELS and _is_label(kind))
        for column, kind in columns
    )


def _is_label(kind: str) -> bool:
    """Whether it is the type of a column of labels: text, or an ENUM, and no list of one."""
    return kind == TEXT or (kind.startswith(_ENUM) and kind.endswith(")"))


_SPELT: Final = dict[str, dict[str, str]]()
"""What DuckDB makes of definitions: nights of one experiment have the same."""
_MOST_SPELT = 16


def _own_definitions(
    connection: duckdb.DuckDBPyConnection, tables: dict[str, _Columns], view: str = ""
) -> dict[str, str]:
    """How DuckDB spells the definitions of tables that have these columns and nothing else.

    And of the ``view`` of units. They are made in the empty database, and taken back. An ENUM that
    is made has its column's name for a label: the labels of the file are put in afterwards, and
    never run as SQL.
    """
    made = [f"CREATE SCHEMA {PREFIX}"]
    for name, columns in tables.items():
        spelt = (f"{quote_name(column)} {_kind_of(column, kind)}" for column, kind in columns)
        made.append(f"CREATE TABLE {name} ({', '.join(spelt)})")
    script = f"BEGIN; {'; '.join(made)}; {view}"
    if script not in _SPELT:
        if len(_SPELT) >= _MOST_SPELT:
            _SPELT.clear()
        connection.execute(script)
        _SPELT[script] = _definitions(connection, "memory")
        connection.execute("ROLLBACK")
    definitions = dict(_SPELT[script])
    for name, columns in tables.items():
        for column, kind in columns:
            definitions[name] = definitions[name].replace(_kind_of(column, kind), kind, 1)
    return definitions


def _kind_of(column: str, kind: str) -> str:
    return f"ENUM({text(column)})" if kind.startswith(_ENUM) else kind


def _are_facts(before: list[str], columns: _Columns) -> bool:
    """Whether the last columns of units, ``before`` which come these, are public facts of units.

    That is attributes and, if arms were not given unit by unit, ``assigned_to``.
    """
    attributes = columns[:-1] if columns and columns[-1] == (ASSIGNED_TO, DIGEST) else columns
    taken = TAKEN | {UNNAMED} | {name.lower() for name in before}
    names = [name.lower() for name, _ in attributes]
    return len(set(names)) == len(names) <= MOST_ATTRIBUTES and all(
        re.fullmatch(COLUMN, name) is not None
        and name.lower() not in taken
        and not is_derived(name)
        and kind in ATTRIBUTE_KINDS
        for name, kind in attributes
    )


def _definitions(connection: duckdb.DuckDBPyConnection, database: str) -> dict[str, str]:
    rows = ask(connection, _DEFINITIONS, {"database": database}).fetchall()
    return {str(name): str(definition) for name, definition in rows}
