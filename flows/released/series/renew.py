"""``series.duckdb`` beside the releases of an experiment: its nights, and all of them together.

It is made anew after every publication, from released files alone. Rows of nights that it has
already are taken over from it, so a night is read once; where it is not intact, or a release that
it speaks of is another now, all are read again. It appears whole or not at all, and readers are
never blocked.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from estimators.effects import Estimate
from estimators.series import LOOKS
from flows.released.file.draft import complete, workplace
from flows.released.file.sql import creation, quote_name, text
from flows.released.series.nights import Night, find_nights, newest, open_night, release_files
from flows.released.series.people import people_by_files
from flows.released.series.pooling import pool_periods
from flows.runtime.files import folder_lock, sync_directory
from schemas.errors import ClusterdpError
from schemas.names import ReleaseName
from schemas.released import STORAGE_VERSION, TABLES
from schemas.series import SERIES, SERIES_TABLES, SERIES_VERSION
from schemas.tables import COUNT, NUMBER, TEXT

Row = dict[str, Any]

_CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "enable_external_access": "false",
    "lock_configuration": "true",
    "threads": 1,
}
_LEVEL = 0.95
_TYPES = {
    TEXT: pl.String,
    NUMBER: pl.Float64,
    COUNT: pl.Int64,
    "INTEGER": pl.Int64,
    "TIMESTAMP": pl.Datetime,
    "BOOLEAN": pl.Boolean,
}
_ESTIMATE = [one.name for one in fields(Estimate)]


@dataclass(frozen=True)
class _Kept:
    """What a series says already: its one row, and rows by release."""

    series: Row
    periods: dict[str, Row]
    estimates: dict[str, list[Row]]


@dataclass(frozen=True)
class _Seen:
    """What tells whether people come back (see ``flows.released.series.people``)."""

    created_at: Any
    n_returning: int | None
    returning: str | None
    account_key_fingerprint: str | None

    @property
    def assigned(self) -> bool:
        """Whether units were assigned together: their periods have no fingerprint."""
        return False


def renew_series(directory: Path, experiment: str) -> tuple[str, ...]:
    """Bring ``series.duckdb`` in ``directory`` up to date; return warnings, and never fail.

    The releases are public whatever becomes of it. ``experiment`` is the one whose releases are in
    the folder.
    """
    try:
        if _todo(directory, experiment) is not None:
            with workplace(directory) as folder, folder_lock(directory):
                _renew(directory, experiment, folder / SERIES)
    except (ClusterdpError, OSError, duckdb.Error) as error:
        reason = str(error).splitlines()[0]
    else:
        return ()
    return (f"{directory / SERIES} is not up to date, the release itself is public: {reason}",)


@dataclass(frozen=True)
class _Todo:
    """The releases that a series is made of, and what is taken over from the one that is there."""

    files: Sequence[tuple[Path, str, int, bool]]
    """Path, release, size, and whether its rows are there."""
    kept: _Kept | None


def _todo(directory: Path, experiment: str) -> _Todo | None:
    """What is to be done; None where nothing is."""
    names = {
        name: path
        for path in newest(release_files([directory]))
        if (name := ReleaseName.parse(path.stem)) and name.experiment == experiment
    }
    sizes = {name.release_id: names[name].stat().st_size for name in sorted(names)}
    kept = _read(directory / SERIES, experiment)
    known = {} if kept is None else {one: row["n_bytes"] for one, row in kept.periods.items()}
    if not sizes or list(known.items()) == list(sizes.items()):
        return None
    if any(sizes.get(one, size) != size for one, size in known.items()):
        known = {}  # a release is another now: read all again
    files = [(names[name], name.release_id, sizes[name.release_id]) for name in sorted(names)]
    return _Todo([(*one, one[1] in known) for one in files], kept)


def _renew(directory: Path, experiment: str, draft: Path) -> None:
    todo = _todo(directory, experiment)
    if todo is None:  # another run has done it
        return
    _write(_tables(todo.kept, todo.files), draft)
    complete(draft)
    draft.replace(directory / SERIES)
    sync_directory(directory)


def _tables(
    kept: _Kept | None, files: Sequence[tuple[Path, str, int, bool]]
) -> dict[str, list[Row]]:
    """The rows of every table; ``files`` are path, release, size, and whether it is kept."""
    periods: list[Row] = []
    estimates: list[list[Row]] = []
    row = kept.series if kept is not None and any(one[3] for one in files) else None
    for path, release_id, size, is_kept in files:
        if is_kept and kept is not None:
            periods.append(kept.periods[release_id])
            estimates.append(kept.estimates.get(release_id, []))
            continue
        with open_night(path) as (connection, night):
            found = _select(connection, "main", "estimates", list(TABLES["estimates"]))
        own = _series_row(night)
        row = row or own
        if own["alike"] != row["alike"]:
            find_nights([path.parent])  # says which file differs, and in what
        periods.append(_period_row(night, size, found))
        told = {"period": night.manifest.period, "release_id": release_id}
        estimates.append([told | one for one in found])
    if row is None:
        raise AssertionError("a series without releases")
    return {
        "series": [row],
        "periods": periods,
        "estimates": [one for rows in estimates for one in rows],
        "cumulative": _cumulative(row, periods, estimates),
    }


def _series_row(night: Night) -> Row:
    facts = [night.manifest.experiment, night.arms, night.measured, night.ranges]
    return {
        "experiment": night.manifest.experiment,
        "control": night.manifest.control,
        "n_arms": len(night.arms) - 1,
        "looks": LOOKS,
        "alike": hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest(),
        "series_version": SERIES_VERSION,
        "package_version": version("clusterdp"),
    }


def _period_row(night: Night, size: int, estimates: Sequence[Row]) -> Row:
    shares = [one["coverage"] for one in estimates if one["coverage"] is not None]
    row = {name: getattr(night.manifest, name, None) for name in _columns("periods")}
    if night.manifest.assigned:  # the account says who is new, and not whether their household is
        row["account_key_fingerprint"] = None
    return row | {"coverage": min(shares, default=None), "n_bytes": size}


def _cumulative(row: Row, periods: Sequence[Row], estimates: Sequence[list[Row]]) -> list[Row]:
    every = [[_estimate(one) for one in rows] for rows in estimates]
    if not any(every):
        return []
    names = [one.name for one in fields(_Seen)]
    people = people_by_files([_Seen(**{name: one[name] for name in names}) for one in periods])
    pooled = pool_periods(every, people, row["n_arms"], _LEVEL, row["looks"])
    return [
        {"period": period["period"], "release_id": period["release_id"]} | asdict(one)
        for place, period in enumerate(periods)
        for one in pooled.after(place)
        if one.estimate is not None
    ]


def _estimate(row: Row) -> Estimate:
    known: dict[str, Any] = {name: row.get(name) for name in _ESTIMATE}
    return Estimate(**known)


def _read(path: Path, experiment: str) -> _Kept | None:
    """What the series at ``path`` holds; None where there is none that can be gone on with."""
    if path.is_symlink() or not path.is_file() or path.with_name(f"{path.name}.wal").exists():
        return None
    try:
        with duckdb.connect(str(path), read_only=True, config=_CLOSED) as connection:
            tables = {
                name: _select(connection, "main", name, _columns(name)) for name in SERIES_TABLES
            }
    except (duckdb.Error, OSError, UnicodeError):
        return None
    (row,) = tables["series"] if len(tables["series"]) == 1 else ({},)
    wanted = {
        "experiment": experiment,
        "looks": LOOKS,
        "series_version": SERIES_VERSION,
        "package_version": version("clusterdp"),
    }
    if {name: row.get(name) for name in wanted} != wanted:
        return None
    estimates: dict[str, list[Row]] = {}
    for one in tables["estimates"]:
        estimates.setdefault(one["release_id"], []).append(one)
    return _Kept(row, {one["release_id"]: one for one in tables["periods"]}, estimates)


def _columns(table: str) -> list[str]:
    return list(SERIES_TABLES[table].columns)


def _select(
    connection: duckdb.DuckDBPyConnection, schema: str, table: str, columns: Sequence[str]
) -> list[Row]:
    query = f"SELECT {', '.join(map(quote_name, columns))} FROM {schema}.{quote_name(table)}"  # noqa: S608 - our own names
    rows = connection.execute(query).fetchall()
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _write(tables: Mapping[str, Sequence[Row]], draft: Path) -> None:
    """Write the tables to a new DuckDB file, and close it."""
    with duckdb.connect(config={"temp_directory": "", "threads": 1}) as connection:
        attached = f"ATTACH {text(str(draft))} AS series (STORAGE_VERSION '{STORAGE_VERSION}')"
        connection.execute(f"{attached}; USE series; BEGIN; {creation(SERIES_TABLES)}")
        for name, table in SERIES_TABLES.items():
            schema = {column: _TYPES[fact.kind] for column, fact in table.columns.items()}
            rows = [{column: row[column] for column in schema} for row in tables[name]]
            connection.register("rows", pl.DataFrame(rows, schema=schema).to_arrow())
            connection.execute(f"INSERT INTO {name} FROM rows")
            connection.unregister("rows")
        connection.execute("COMMIT; CHECKPOINT series")
