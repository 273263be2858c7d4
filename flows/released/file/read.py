"""Opening a released file, and reading its manifest."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import duckdb

from estimators.ends import End
from flows.released.file.checks.own_catalog import foreign_code
from flows.released.file.checks.rules import LOSS_RULES, broken_row_rule
from flows.released.file.checks.stated import count_assigned, n_assigned, stated_ends
from flows.released.file.checks.table_rules import broken_table_rule
from flows.released.file.evidence import Released, read_every
from flows.released.file.opening import ATTACHED, open_safely
from flows.released.file.sql import quote_name
from flows.released.file.units import DRAWN, SESSION
from flows.runtime.engine import ask
from flows.runtime.reading.known_files import Known, identity
from flows.runtime.reading.regular_files import check_regular
from schemas.errors import ConfigError, InputError, shown
from schemas.released import RATIO, TABLES, Manifest, Metric, Ratio
from schemas.tables import ASSIGNED_TO, SCHEMA, TEXT, Table, unit_table

_COUNTS = " UNION ALL ".join(
    f"SELECT '{table}', count(*) FROM {SESSION[DRAWN] if table == 'units' else f'main.{table}'}"  # noqa: S608 - our own table names
    for table in TABLES
)

_MARGINS = "SELECT DISTINCT ON (margin) attribute FROM main.margins ORDER BY margin"


@dataclass(frozen=True)
class ReleaseFile:
    """The manifest of a released file, and the number of rows of each table."""

    path: Path
    manifest: Manifest
    row_counts: dict[str, int]
    assigned: dict[str, int] | None = None
    """What was assigned in each arm, where units were assigned together."""
    ends: tuple[End, ...] = ()
    """The rows of ``ends``."""

    @property
    def tables(self) -> dict[str, Table]:
        """What every table and column is. In our words: a file's own comments may say anything."""
        manifest = self.manifest
        outcomes = tuple(one.metric for one in manifest.outcomes)
        units = unit_table(
            outcomes,
            attributes=dict.fromkeys(manifest.attributes, TEXT),
            assigned=manifest.assigned,
            texts=manifest.texts,
        )
        return SCHEMA | {"units": units}

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp inspect --json``."""
        manifest = self.manifest
        return {
            **manifest.row,
            "created_at": manifest.created_at.isoformat() + "Z",
            "metrics": [metric.row for metric in manifest.metrics],
            "attributes": list(manifest.attributes),
            "assigned": manifest.assigned,
            "n_assigned": n_assigned(self.assigned),
            "ends": [asdict(one) for one in self.ends],
            "path": str(self.path),
            "row_counts": self.row_counts,
            "tables": {
                name: {
                    "comment": table.comment,
                    "columns": {column: fact.comment for column, fact in table.columns.items()},
                }
                for name, table in self.tables.items()
            },
        }


@contextmanager
def open_release(path: Path, *, at_any_loss: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a released file read-only, whoever has made it.

    Raises InputError unless its tables are those of a release, their values fit together
    (:mod:`flows.released.file.checks.rules`), and its macros are those that these make. A file that
    is opened ``at_any_loss`` may cost more than it says.
    """
    but = LOSS_RULES if at_any_loss else frozenset[str]()
    check_regular(path.absolute())
    file = identity(path)
    with open_safely(path) as connection:
        if _SOUND.of(path, file) not in (but, frozenset()):
            check_sound(connection, path, but)
            _SOUND.keep(path, file, but)
        yield connection


_SOUND: Final = Known[frozenset[str]]()
"""Of files whose values fit together: but for which rules."""


def check_sound(
    connection: duckdb.DuckDBPyConnection, path: Path, but: frozenset[str] = frozenset()
) -> None:
    """Raise InputError as :func:`open_release` does, of a file that is open; ``but`` some rules."""
    broken = broken_row_rule(connection, path.stat().st_size, but)
    if broken is None:
        manifest = read_manifest(connection)
        broken = broken_table_rule(connection, manifest, but)
    if broken is not None:
        raise InputError(f"{path.absolute()}: not a sound release: {broken}")
    foreign = foreign_code(connection, manifest, ATTACHED)
    if foreign is not None:
        raise InputError(
            f"{path.absolute()}: not a clusterdp release: {foreign}. Do not run it: get the "
            "file from who published it"
        )


def read_release(path: Path) -> ReleaseFile:
    """Read the manifest of a released file and count the rows of its tables."""
    with open_release(path) as connection:
        return release_file(connection, path)


def release_file(connection: duckdb.DuckDBPyConnection, path: Path) -> ReleaseFile:
    """Return :func:`read_release` of a file that is open."""
    rows = dict(ask(connection, _COUNTS).fetchall())
    counts = {table: int(rows[table]) for table in TABLES}
    manifest = read_manifest(connection)
    assigned = count_assigned(connection, manifest)
    return ReleaseFile(path.absolute(), manifest, counts, assigned, stated_ends(connection))


def read_manifest(connection: duckdb.DuckDBPyConnection) -> Manifest:
    """Read the row of ``release``, the rows of ``metrics``, and what facts ``units`` has.

    Once: a file does not change while it is open.
    """
    if connection not in _MANIFESTS:
        _MANIFESTS[connection] = _manifest(connection)
    return _MANIFESTS[connection]


_MANIFESTS: Final = WeakKeyDictionary[duckdb.DuckDBPyConnection, Manifest]()


def _manifest(connection: duckdb.DuckDBPyConnection) -> Manifest:
    (release,) = _rows(connection, "release")
    metrics = tuple(map(_metric, _rows(connection, "metrics")))
    names = [str(row[0]) for row in ask(connection, "DESCRIBE main.units").fetchall()]
    outcomes = tuple(one.metric for one in metrics if isinstance(one, Metric))
    facts = names[len(unit_table(outcomes).columns) :]
    return Manifest(
        **release,
        metrics=metrics,
        attributes=tuple(name for name in facts if name != ASSIGNED_TO),
        margins=tuple(str(row[0]) for row in ask(connection, _MARGINS).fetchall()),
        assigned=ASSIGNED_TO in facts,
    )


M = TypeVar("M", bound=Metric | Ratio)


def chosen_outcomes(manifest: Manifest, names: Sequence[str]) -> tuple[Metric, ...]:
    """The outcomes of these names, in the order of the release; without a name all of them.

    Raises ConfigError, naming ``metric``, where there is none of a name.
    """
    return _chosen(manifest.outcomes, names, "outcome")


def _chosen(metrics: Sequence[M], names: Sequence[str], what: str) -> tuple[M, ...]:
    there = [one.metric for one in metrics]
    for name in names:
        if name not in there:
            has = _listed(there)
            raise ConfigError("metric", f"{shown(name)} is no {what} of the release; it has {has}")
    return tuple(one for one in metrics if not names or one.metric in names)


def read_chosen(
    connection: duckdb.DuckDBPyConnection, names: Sequence[str]
) -> tuple[tuple[Metric | Ratio, ...], tuple[Released, ...]]:
    """The outcomes and ratios of these names, and the facts of the outcomes that they are made of.

    Raises as :func:`chosen_outcomes`.
    """
    manifest = read_manifest(connection)
    chosen = _chosen(manifest.metrics, names, "metric")
    needed = {one.metric for one in chosen}
    for one in chosen:
        if isinstance(one, Ratio):
            needed |= {one.numerator, one.denominator}
    outcomes = [one for one in manifest.outcomes if one.metric in needed]
    return chosen, read_every(connection, manifest, outcomes)


def one_outcome(manifest: Manifest, name: str | None) -> Metric:
    """The outcome of this name; None stands for the one that there is.

    Raises ConfigError, naming ``metric``, where there is none of that name, and where one of
    several has to be named.
    """
    (first, *others) = chosen_outcomes(manifest, () if name is None else (name,))
    if others:
        names = _listed(one.metric for one in manifest.outcomes)
        why = f"is missing: the release has several outcomes, {names}; name one"
        raise ConfigError("metric", why)
    return first


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(shown, names))


def _metric(row: dict[str, Any]) -> Metric | Ratio:
    if row["kind"] == RATIO:
        return Ratio(**{one.name: row[one.name] for one in fields(Ratio)})
    return Metric(**{one.name: row[one.name] for one in fields(Metric)})


def has_text_ids(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether the ids of units are text; else they are whole numbers."""
    return str(connection.sql(f"SELECT unit_id FROM {SESSION[DRAWN]}").types[0]) == "VARCHAR"  # noqa: S608 - our own name


def _rows(connection: duckdb.DuckDBPyConnection, table: str) -> list[dict[str, Any]]:
    names = list(TABLES[table])
    query = f"SELECT {', '.join(map(quote_name, names))} FROM main.{table} ORDER BY rowid"  # noqa: S608 - our own names
    return [dict(zip(names, row, strict=True)) for row in ask(connection, query).fetchall()]
