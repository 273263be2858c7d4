"""``series.duckdb`` beside the releases of an experiment: its nights, and all of them together.

It is made anew after every publication, from released files alone. Rows of nights that it has
already are taken over from it, so a night is read once; where it is not intact, or a release that
it speaks of is another now, all are read again. Nights that were withdrawn are left out; of those
whose files were pruned the rows stay, which are all that is left of them. It appears whole or not
at all, and readers are never blocked.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import duckdb
import polars as pl

from estimators.arm_effects import Estimate
from estimators.operate.series import LOOKS, N_SCALES
from estimators.published_guess import MOST_CELLS
from flows.operate.series.nights import find_nights, open_night
from flows.operate.series.people import Accounted, people_by_files
from flows.operate.series.pooling import pool_periods
from flows.released.checksums import sha256_of
from flows.released.estimates.taught import read_outputs
from flows.released.file.draft import complete, workplace
from flows.released.file.sql import creation, quote_name
from flows.released.lists import Known, Lists
from flows.released.night import MadeNight, Night
from flows.released.small_file import small_file
from flows.runtime.engine import Settings, engine
from flows.runtime.files import folder_lock, sync_directory
from schemas.errors import ClusterdpError
from schemas.names import ReleaseName
from schemas.released import TABLES
from schemas.series import COUNTS, NUMBERS, SERIES, SERIES_TABLES, SERIES_VERSION, TEXTS
from schemas.tables import COUNT, NUMBER, TEXT

Row = dict[str, Any]

_CLOSED: Settings = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "enable_external_access": "false",
    "lock_configuration": "true",
    "threads": 1,
}
_LEVEL = 0.95
_SCALES = (1, N_SCALES)
_BEFORE: dict[int, Row] = {2: {"n_scales": 1}, 3: {}, 4: {"clusters": [], "counts_within": []}}
"""What was so in series of versions that do not say it."""
_FIRST_OUTPUTS = 4
"""The first version that has ``outputs``."""
_TYPES: dict[str, pl.DataType | type[pl.DataType]] = {
    NUMBERS: pl.List(pl.Float64),
    COUNTS: pl.List(pl.Int64),
    TEXTS: pl.List(pl.String),
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
    outputs: dict[str, list[Row]]
    notes: list[Row]
    is_current: bool
    """Whether this version of the program has made it: else only what was pruned is taken over."""


class Noted(Protocol):
    """Knows again what this program has made."""

    def is_as_made(self, path: Path) -> bool | None:
        """Whether a file is as it was last made; None where nobody has noted it."""

    def note_made(self, path: Path, sha256: str) -> None:
        """Note what is about to be made of it."""


def renew_series(
    directory: Path,
    experiment: str,
    known: Callable[[], Known],
    noted: Noted,
    made: MadeNight | None = None,
) -> tuple[str, ...]:
    """Bring ``series.duckdb`` in ``directory`` up to date; return warnings, and never fail.

    The releases are public whatever becomes of it. ``experiment`` is the one whose releases are in
    the folder, ``known`` says which of the files are releases; ``made`` is what this run has drawn,
    which is not read again. Of a series that is there all is
    taken over if it is as it was ``noted``, nothing if it is not, and rows of pruned releases where
    nobody has noted one.
    """
    path = directory / SERIES
    was_there = path.exists()
    try:
        is_own = noted.is_as_made(path)
        if made is not None or _todo(directory, experiment, known(), is_own) is not None:
            with workplace(directory) as folder, folder_lock(directory):
                todo = _todo(directory, experiment, known(), noted.is_as_made(path))
                if todo is not None and todo.files:
                    draft = folder / SERIES
                    _write(_tables(todo.kept, todo.files, made) | {"notes": todo.notes}, draft)
                    complete(draft)
                    noted.note_made(path, sha256_of(draft))
                    draft.replace(path)
                elif todo is not None:  # else another run has done it
                    path.unlink(missing_ok=True)
                sync_directory(directory)
    except (ClusterdpError, OSError, duckdb.Error) as error:
        reason = str(error).splitlines()[0]
    else:
        anew = f"{path}: somebody has changed it; it was made anew from the releases that are there"
        return (anew,) if was_there and is_own is False else ()
    return (f"{directory / SERIES} is not up to date, the release itself is public: {reason}",)


def read_outputs_of_nights(directory: Path, experiment: str, noted: Noted) -> list[Row]:
    """The rows of ``outputs`` in ``series.duckdb``, each with the ``epsilon`` of its release.

    None where there is no series, or it is not as this program has made it, by what was ``noted``.
    """
    path = directory / SERIES
    kept = _read(path, experiment) if noted.is_as_made(path) else None
    if kept is None:
        return []
    return [
        row | {"epsilon": kept.periods[release_id]["epsilon"]}
        for release_id, rows in kept.outputs.items()
        if release_id in kept.periods
        for row in rows
    ]


@dataclass(frozen=True)
class _Todo:
    """The releases that a series is made of, and what is taken over from the one that is there."""

    files: Sequence[tuple[Path, str, int, bool]]
    """Path, release, size, and whether its rows are there; none: no series is to be there."""
    kept: _Kept | None
    notes: list[Row]


def _todo(directory: Path, experiment: str, told: Known, is_own: bool | None) -> _Todo | None:
    lists = told.lists
    kept = None if is_own is False else _read(directory / SERIES, experiment)
    if kept is not None and is_own is None:
        kept = replace(kept, is_current=False, outputs={})
    known = {} if kept is None else {one: row["n_bytes"] for one, row in kept.periods.items()}
    sizes = _sizes(directory, told, known)
    notes = _notes(lists, experiment)
    if not sizes and not (lists.withdrawn and (directory / SERIES).exists()):
        return None
    if kept is not None and kept.is_current:
        if (list(known.items()), kept.notes) == (list(sizes.items()), notes):
            return None
        if any(sizes.get(one, size) != size for one, size in known.items()):
            known = {}  # a release is another now: read all again
    else:
        known = {}
    files = []
    for one, size in sizes.items():
        path = directory / f"{one}.duckdb"
        files.append((path, one, size, one in known or not path.exists()))
    return _Todo(files, kept, notes)


def _sizes(directory: Path, told: Known, known: Mapping[str, int]) -> dict[str, int]:
    """The size of the release of each period that counts, in order.

    A pruned one counts as long as its file is there, or its rows are ``known``.
    """
    pruned = (ReleaseName.parse(one) for one in told.lists.pruned if one in known)
    sizes: dict[ReleaseName, int] = {}
    for name in {*told.intact, *(one for one in pruned if one is not None)}:
        one = name.release_id
        if one in told.lists.withdrawn:
            continue
        try:
            sizes[name] = (directory / f"{one}.duckdb").stat().st_size
        except FileNotFoundError:  # it was pruned
            if one in known:
                sizes[name] = known[one]
    last = {name.period: name for name in sorted(sizes)}
    return {name.release_id: sizes[name] for name in last.values()}


def _notes(lists: Lists, experiment: str) -> list[Row]:
    found: list[tuple[str, str, str, str | None]] = [
        *((one.release_id, "withdrawn", one.withdrawn_at, one.reason)
          for one in lists.withdrawn.values()),
        *((one.release_id, "pruned", one.pruned_at, None) for one in lists.pruned.values()),
    ]  # fmt: skip
    names = ((ReleaseName.parse(one[0]), one) for one in sorted(found))
    return [
        dict(zip(_columns("notes"), (name.period, *one), strict=True))
        for name, one in names
        if name is not None and name.experiment == experiment
    ]


def _tables(
    kept: _Kept | None, files: Sequence[tuple[Path, str, int, bool]], made: MadeNight | None
) -> dict[str, list[Row]]:
    """The rows of every table; ``files`` are path, release, size, and whether it is kept."""
    periods: list[Row] = []
    estimates: list[list[Row]] = []
    outputs: list[Row] = []
    row = None
    taken_over = [is_kept for *_, is_kept in files]
    if kept is not None and (all(taken_over) or (kept.is_current and any(taken_over))):
        now = {"package_version": version("clusterdp"), "series_version": SERIES_VERSION}
        row = kept.series | now
    for path, release_id, size, is_kept in files:
        if is_kept and kept is not None:
            periods.append(kept.periods[release_id])
            estimates.append(kept.estimates.get(release_id, []))
            outputs += _outputs_kept(kept, path, release_id)
            continue
        if made is not None and made.night.manifest.release_id == release_id:
            night, found, counted = made.night, list(made.estimates), made.outputs
        else:
            with open_night(path) as (connection, night):
                found = _select(connection, "estimates", list(TABLES["estimates"]))
                is_alike = row is None or _series_row(night)["alike"] == row["alike"]
                counted = read_outputs(connection, night.manifest) if is_alike else []
        own = _series_row(night)
        row = row or own
        if own["alike"] != row["alike"]:
            find_nights([path.parent])  # says which file differs, and in what
        shares = [one["coverage"] for one in found if one["coverage"] is not None]
        period = {name: getattr(night.manifest, name, None) for name in _columns("periods")}
        if (
            night.manifest.assigned
        ):  # the account says who is new, and not whether their household is
            period["account_key_fingerprint"] = None
        periods.append(period | {"coverage": min(shares, default=None), "n_bytes": size})
        told = {"period": night.manifest.period, "release_id": release_id}
        estimates.append([told | one for one in found])
        outputs += [told | one for one in counted]
    if row is None:
        raise AssertionError("a series without releases")
    if kept is not None and taken_over[0]:  # as it began
        row |= {"n_scales": kept.series["n_scales"]}
    return {
        "series": [row],
        "periods": periods,
        "estimates": [one for rows in estimates for one in rows],
        "outputs": _looked_at(outputs),
        "cumulative": _cumulative(row, periods, estimates),
    }


def _looked_at(outputs: Sequence[Row]) -> list[Row]:
    """The rows of ``outputs`` that a later night may learn from, which looks at the latest alone.

    :func:`estimators.published_guess.latest` says how many: those with :data:`MOST_CELLS` values
    times outputs at most, one release at least. Values are as many as points of a grid, or more.
    """
    cells: dict[str, int] = {}
    kept: list[list[Row]] = []
    for of_release in reversed(_by_release(outputs).values()):
        for metric in reversed(dict.fromkeys(row["metric"] for row in of_release)):
            rows = [row for row in of_release if row["metric"] == metric]
            tables = {row["table"]: len(row["probabilities"]) for row in rows}
            before = cells.get(metric)
            cells[metric] = (before or 0) + sum(tables.values())
            if before is None or cells[metric] <= MOST_CELLS:
                kept.append(rows)
    return [row for rows in reversed(kept) for row in rows]


def _outputs_kept(kept: _Kept, path: Path, release_id: str) -> list[Row]:
    """The rows of ``outputs`` of a release; of a series of before as its file has them, if any."""
    rows = kept.outputs.get(release_id, [])
    if kept.series["series_version"] == SERIES_VERSION or not path.exists():
        return rows
    with open_night(path) as (connection, night):
        told = {"period": night.manifest.period, "release_id": release_id}
        return [told | one for one in read_outputs(connection, night.manifest)]


def _series_row(night: Night) -> Row:
    facts = [night.manifest.experiment, night.arms, night.measured, night.ranges]
    return {
        "experiment": night.manifest.experiment,
        "control": night.manifest.control,
        "n_arms": len(night.arms) - 1,
        "looks": LOOKS,
        "n_scales": N_SCALES,
        "alike": hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest(),
        "series_version": SERIES_VERSION,
        "package_version": version("clusterdp"),
    }


def _cumulative(row: Row, periods: Sequence[Row], estimates: Sequence[list[Row]]) -> list[Row]:
    every: list[list[Estimate]] = []
    for rows in estimates:
        known: list[Row] = [{name: one.get(name) for name in _ESTIMATE} for one in rows]
        every.append([Estimate(**one) for one in known])
    if not any(every):
        return []
    # Where units were assigned together, their periods have no fingerprint.
    names = ("created_at", "n_returning", "returning", "account_key_fingerprint")
    people = people_by_files([Accounted(*(one[name] for name in names)) for one in periods])
    pooled = pool_periods(
        every, people, row["n_arms"], _LEVEL, row["looks"], n_scales=row["n_scales"]
    )
    return [
        {"period": period["period"], "release_id": period["release_id"]} | asdict(one)
        for place, period in enumerate(periods)
        for one in pooled.after(place)
        if one.estimate is not None
    ]


def _read(path: Path, experiment: str) -> _Kept | None:
    if path.is_symlink() or not path.is_file() or path.with_name(f"{path.name}.wal").exists():
        return None
    try:
        with engine(_CLOSED, str(path), read_only=True) as connection:
            (told,) = connection.execute("SELECT series_version FROM main.series").fetchall()
            before = _BEFORE.get(told[0], {})
            tables = {
                name: _select(connection, name, _columns(name), before)
                for name in SERIES_TABLES
                if name != "outputs" or told[0] >= _FIRST_OUTPUTS
            }
        (row,) = tables["series"]
    except (duckdb.Error, OSError, TypeError, UnicodeError, ValueError):
        return None
    if (row["experiment"], row["looks"]) != (experiment, LOOKS):
        return None
    if row["series_version"] not in {*_BEFORE, SERIES_VERSION} or row["n_scales"] not in _SCALES:
        return None
    periods = {one["release_id"]: one for one in tables["periods"]}
    return _Kept(
        row,
        periods,
        _by_release(tables["estimates"]),
        _by_release(tables.get("outputs", [])),
        tables["notes"],
        row["package_version"] == version("clusterdp"),
    )


def _by_release(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for one in rows:
        found.setdefault(one["release_id"], []).append(one)
    return found


def _columns(table: str) -> list[str]:
    return list(SERIES_TABLES[table].columns)


def _select(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    columns: Sequence[str],
    unsaid: Mapping[str, Any] | None = None,
) -> list[Row]:
    """The rows of a table; ``unsaid`` is what columns have that are not there."""
    own = {name: value for name, value in (unsaid or {}).items() if name in columns}
    there = [name for name in columns if name not in own]
    query = f"SELECT {', '.join(map(quote_name, there))} FROM main.{quote_name(table)}"  # noqa: S608 - our own names
    rows = connection.execute(query).fetchall()
    return [own | dict(zip(there, row, strict=True)) for row in rows]


def _write(tables: Mapping[str, Sequence[Row]], draft: Path) -> None:
    with small_file(draft) as file:
        connection = file.connection
        connection.execute(f"BEGIN; {file.copied(creation(SERIES_TABLES))}")
        for name, table in SERIES_TABLES.items():
            if not tables[name]:
                continue
            schema = {column: _TYPES[fact.kind] for column, fact in table.columns.items()}
            rows = [{column: row[column] for column in schema} for row in tables[name]]
            rows_to_insert = pl.DataFrame(rows, schema=schema).to_arrow()  # noqa: F841 - by its name
            connection.execute(f"INSERT INTO {name} FROM rows_to_insert")
        connection.execute(f"COMMIT; CHECKPOINT {file.place}")
