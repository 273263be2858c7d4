"""The releases of one experiment, a period each: found, and checked to be about the same thing.

Of each period the greatest revision counts. What periods must share is what an effect means: the
experiment, its arms, its metrics, and the range of their outcomes. How outcomes were protected
(ε, mechanism, the grid's values within its range) may change, and is told.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb

from flows.released.file.draft import LATEST
from flows.released.file.opening import Opening, OtherSchemaError, open_safely
from flows.released.file.sql import quote_name, text
from flows.released.lists import CLOSED, Closing, WithdrawnRelease, named, read_lists
from flows.released.night import Night, night_of
from flows.runtime.reading.regular_files import is_link
from flows.runtime.terminal import shown
from schemas.errors import InputError, in_short
from schemas.names import ReleaseName
from schemas.series import SERIES
from schemas.tables import WEIGHT, debiased, randomised

_BESIDE = (LATEST, SERIES)
_SUFFIX = ".duckdb"
_LISTED = 5
_HEAD = """\
-- Every release of {experiment}, put together; run it in a DuckDB of your own.
SET autoinstall_known_extensions = false;
SET autoload_known_extensions = false;
"""
_TAIL = """\
SET enable_external_access = false;
-- For example:
SELECT period, arm, count(*) AS n_units FROM units GROUP BY ALL ORDER BY ALL;
"""


@dataclass(frozen=True)
class Nights:
    """The releases of an experiment by period, one each, and what is to be said of them."""

    nights: tuple[Night, ...]
    notes: tuple[str, ...]
    """Periods that are missing, designs that have changed, what was left out: no errors."""
    closing: Closing | None = None
    """How the experiment ended, as the folder of the releases says; None where it has not."""
    withdrawn: tuple[WithdrawnRelease, ...] = ()
    """Releases there that are left out, as they were withdrawn."""

    @property
    def first(self) -> Night:
        """The release of the first period."""
        return self.nights[0]

    @property
    def arms(self) -> tuple[str, ...]:
        """Control first; the same in all."""
        return self.first.arms

    @property
    def sql(self) -> str:
        """SQL that attaches every release read-only, with views of all units and all estimates."""
        every = [(f"night_{number}", night) for number, night in enumerate(self.nights, start=1)]
        estimates = [
            f"SELECT {_said(night)}, * FROM {name}.main.estimates"  # noqa: S608 - names are ours
            for name, night in every
        ]
        parts = [
            _HEAD.format(experiment=self.first.manifest.experiment),
            *(f"ATTACH {text(str(night.path))} AS {name} (READ_ONLY);" for name, night in every),
            "CREATE TEMP VIEW units AS",
            "\nUNION ALL BY NAME ".join(_units(name, night) for name, night in every) + ";",
            "CREATE TEMP VIEW estimates AS",
            "\nUNION ALL BY NAME ".join(estimates) + ";",
            _TAIL,
        ]
        return "\n".join(parts)

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp inspect --json`` for a folder."""
        return {
            "experiment": self.first.manifest.experiment,
            "arms": list(self.arms),
            "notes": list(self.notes),
            "withdrawn": [one.release_id for one in self.withdrawn],
            "closing": None if self.closing is None else self.closing.as_json(),
            "releases": [
                {
                    **night.manifest.row,
                    "created_at": night.manifest.created_at.isoformat() + "Z",
                    "path": str(night.path),
                }
                for night in self.nights
            ],
            "sql": self.sql,
        }


def _said(night: Night) -> str:
    manifest = night.manifest
    return f"{text(manifest.period)} AS period, {text(manifest.release_id)} AS release_id"


def _units(name: str, night: Night) -> str:
    """The units of one release; ids and labels as text, whatever they are in the file."""
    outcomes = [one.metric for one in night.manifest.outcomes]
    columns = [quote_name(form(one)) for one in outcomes for form in (str, randomised, debiased)]
    labels = [f"{label}::VARCHAR AS {label}" for label in ("unit_id", "cluster", "arm")]
    every = ", ".join([_said(night), *labels, *columns, WEIGHT])
    return f"SELECT {every} FROM {name}.main.units"  # noqa: S608 - names are quoted


def are_several(paths: Sequence[Path]) -> bool:
    """Whether these paths stand for a series: several of them, or a folder."""
    return len(paths) > 1 or (len(paths) == 1 and paths[0].is_dir())


def find_nights(
    paths: Sequence[Path],
    read: Callable[[duckdb.DuckDBPyConnection, Night], object] | None = None,
    opening: Opening = open_safely,
) -> Nights:
    """Find and check the releases at ``paths``: files, or folders of files.

    ``read`` is called with each of them that was not withdrawn, while ``opening`` has it open.

    ``latest.duckdb`` and ``series.duckdb`` are passed over, as are releases that a list beside them
    says are withdrawn, and revisions that a later one has replaced. Raises InputError, naming the
    file, where one is no release, where two are the same release, and where one is not about the
    same effects as the first.
    """
    lists, withdrawn = cache(read_lists), dict[str, WithdrawnRelease]()

    def is_withdrawn(path: Path, release_id: str) -> bool:
        one = lists(path.absolute().parent).withdrawn.get(release_id)
        if one is not None:
            withdrawn[release_id] = one
        return one is not None

    files = [path for path in release_files(paths) if not is_withdrawn(path, path.stem)]

    def open_one(path: Path) -> Night:
        with open_night(path, opening) as (connection, night):
            if read is not None and not is_withdrawn(path, night.manifest.release_id):
                read(connection, night)
            return night

    found = _opened(newest(files), open_one)
    known = [one for one in found if not is_withdrawn(one.path, one.manifest.release_id)]
    left_out = tuple(withdrawn[name] for name in sorted(withdrawn))
    if not known:
        raise InputError(
            f"every release that is named was withdrawn: {left_out[0].warning}"
            if left_out
            else _no_release(paths)
        )
    known.sort(key=lambda night: night.name)
    for night in known:
        _check_alike(known[0], night)
    kept, notes = _of_periods(known)
    periods, experiment = [night.name.period for night in kept], known[0].name.experiment
    folders = [lists(path.absolute()) for path in paths if path.is_dir()]
    names = {ReleaseName.parse(one) for of_folder in folders for one in of_folder.pruned}
    gone = names - {night.name for night in kept}  # a prune that was killed may have left its file
    pruned = sorted(one for one in gone if one is not None and one.experiment == experiment)
    closing = folders[0].closing if len(paths) == len(folders) == 1 else None
    if closing is not None and closing.experiment != experiment:
        closing = None
    told = [*notes, *_gone(left_out, pruned)]
    told += gaps(sorted({*periods, *(name.period for name in pruned)}))
    told += _changes(kept)
    if closing is not None and (absent := sorted({*closing.here} - {*periods})):
        told.append(
            f"{CLOSED} says that this folder has releases that are not here: {named(absent)}"
        )
    return Nights(kept, tuple(told), closing, left_out)


def _opened(files: Sequence[Path], open_one: Callable[[Path], Night]) -> list[Night]:
    found, others = [], []
    for path in files:
        try:
            found.append(open_one(path))
        except OtherSchemaError as error:
            others.append(str(error))
    if others:
        raise InputError(_of_other_schemas(others, len(found)))
    return found


def _gone(withdrawn: Sequence[WithdrawnRelease], pruned: Sequence[ReleaseName]) -> Iterator[str]:
    yield from (f"left out: {one.warning}" for one in withdrawn[:_LISTED])
    if len(withdrawn) > _LISTED:
        yield f"{len(withdrawn) - _LISTED:,} more were withdrawn and are left out"
    if pruned:
        what = "1 file was" if len(pruned) == 1 else f"{len(pruned):,} files were"
        listed = named(name.release_id for name in pruned)
        yield f"{what} pruned: {listed}; {SERIES} may still have their estimates"


def _of_other_schemas(others: Sequence[str], n_found: int) -> str:
    if n_found == 0:
        return others[0]
    more = f"; and {len(others) - _LISTED:,} more" if len(others) > _LISTED else ""
    return (
        f"{_releases(len(others))} of another version than {n_found:,} beside: move them into a "
        f"folder of their own, or name the files that are to be read: {'; '.join(others[:_LISTED])}"
        f"{more}"
    )


def release_files(paths: Sequence[Path]) -> list[Path]:
    """List the files at ``paths``, and in the folders among them, that may be releases."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += sorted(one for one in path.glob(f"*{_SUFFIX}") if not one.name.startswith("."))
        else:
            files.append(path)
    if not are_several(paths):
        return files
    return [one for one in files if one.name not in _BESIDE]


def newest(files: Sequence[Path]) -> list[Path]:
    """Leave out the files that by their names are revisions replaced by a later one here."""
    names = {path: ReleaseName.parse(path.stem) for path in files}
    greatest: dict[tuple[str, str], int] = {}
    for name in filter(None, names.values()):
        period = (name.experiment, name.period)
        greatest[period] = max(greatest.get(period, 0), name.revision)
    return [
        path
        for path, name in names.items()
        if name is None or name.revision == greatest[name.experiment, name.period]
    ]


@contextmanager
def open_night(
    path: Path, opening: Opening = open_safely
) -> Iterator[tuple[duckdb.DuckDBPyConnection, Night]]:
    """Open a release and read what it is about: of units nothing, and no value is checked.

    Raises InputError where it is no release, or has another's name.
    """
    with opening(path) as connection:
        try:
            night = night_of(path, connection)
            name = ReleaseName.parse(night.manifest.release_id)
        except (TypeError, ValueError):
            name = None
        if name is None or name != night.name or not night.manifest.is_whole:
            raise InputError(f"{path.absolute()}: not a sound release: it does not say what it is")
        if ReleaseName.parse(path.stem) not in (None, name):
            raise InputError(
                f"{path.absolute()}: holds the release {shown(name.release_id)}, which is not what "
                "it is called; give it its own name"
            )
        yield connection, night


def _of_periods(known: Sequence[Night]) -> tuple[tuple[Night, ...], list[str]]:
    """The greatest revision of each period; ``known`` is sorted by name."""
    kept: dict[str, Night] = {}
    replaced = 0
    for night in known:
        other = kept.get(night.name.period)
        if other is not None and other.name == night.name:
            if other.path.samefile(night.path):
                continue
            raise InputError(
                f"{other.path} and {night.path} are both the release "
                f"{shown(night.manifest.release_id)}; give one of them"
            )
        replaced += other is not None
        kept[night.name.period] = night
    notes = [f"{_releases(replaced)} left out: a later revision of the period is here"]
    return tuple(kept.values()), notes if replaced else []


def _releases(number: int) -> str:
    return "1 release is" if number == 1 else f"{number:,} releases are"


def _check_alike(first: Night, night: Night) -> None:
    ours, theirs = first.manifest, night.manifest
    where = f"{night.path}: cannot be put together with {first.path.name}"
    if theirs.experiment != ours.experiment:
        raise InputError(
            f"{where}: it is of the experiment {_named(theirs.experiment)}, not of "
            f"{_named(ours.experiment)}. Give releases of one experiment"
        )
    if night.arms != first.arms:
        raise InputError(
            f"{where}: its arms are {_list(night.arms)} (control first), not {_list(first.arms)}. "
            "Give the periods before and after the change apart"
        )
    if night.measured != first.measured:
        raise InputError(
            f"{where}: its metrics are {_metrics(night)}, not {_metrics(first)}. Give the periods "
            "before and after the change apart"
        )
    for metric, (low, high) in first.ranges.items():
        if night.ranges.get(metric) != (low, high):
            there = night.ranges.get(metric, (low, low))
            raise InputError(
                f"{where}: its outcomes go from {there[0]:g} to {there[1]:g}, not from {low:g} to "
                f"{high:g}, so values beyond were clipped otherwise and the effects are not of the "
                "same thing. Give the periods before and after the change apart"
            )


def _named(text: str) -> str:
    return f"'{in_short(shown(text))}'"


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return ", ".join(_named(name) for name in names[:_LISTED]) + more


def _metrics(night: Night) -> str:
    told = (
        _named(name) + (f" in {_named(unit)}" if unit else "")
        for name, (_, unit) in night.measured.items()
    )
    return ", ".join(told)


def missing_days(periods: Sequence[str]) -> list[str]:
    """Return which periods are missing, where all of them are days; ``periods`` are in order.

    The shortest step between two of them is taken for the usual one.
    """
    try:
        days = [date.fromisoformat(period) for period in periods]
    except ValueError:
        return []
    if len(days) < 3:
        return []
    steps = [later - earlier for earlier, later in pairwise(days)]
    usual = max(min(steps), timedelta(days=1))
    return [
        (day + usual * number).isoformat()
        for day, step in zip(days, steps, strict=False)
        for number in range(1, min(step // usual, 10_000))
    ]


def gaps(periods: Sequence[str]) -> list[str]:
    """Say which periods are missing (:func:`missing_days`)."""
    missing = missing_days(periods)
    if not missing:
        return []
    listed = ", ".join(missing[:_LISTED])
    more = f" and {len(missing) - _LISTED:,} more" if len(missing) > _LISTED else ""
    plural = "period is" if len(missing) == 1 else "periods are"
    return [f"{len(missing):,} {plural} missing: {listed}{more}"]


def _changes(nights: Sequence[Night]) -> list[str]:
    told = []
    for before, after in pairwise(nights):
        changed = [
            f"{what} {_value(old)} to {_value(new)}"
            for (what, old), new in zip(
                _design(before).items(), _design(after).values(), strict=False
            )
            if old != new
        ]
        if changed:
            told.append(
                f"from {in_short(after.name.period)} on the design is another: "
                f"{', '.join(changed)}; effects are of the same outcomes, and are pooled"
            )
    if len(told) > _LISTED:
        return [*told[:_LISTED], f"the design changed {len(told) - _LISTED:,} times more"]
    return told


def _value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _design(night: Night) -> dict[str, object]:
    manifest = night.manifest
    return {
        "mechanism from": manifest.mechanism,
        "epsilon from": manifest.epsilon,
        "delta from": manifest.delta,
        "values of the grid from": sum(one.n_outcomes for one in manifest.outcomes),
        "what is published of strata from": " and ".join(
            dict.fromkeys(one.strata_statistic for one in manifest.outcomes)
        ),
    }


def _no_release(paths: Sequence[Path]) -> str:
    where = ", ".join(str(path.absolute()) for path in paths[:_LISTED])
    inside = [one for path in paths if path.is_dir() for one in experiment_folders(path)]
    if inside:
        names = ", ".join(in_short(one.name) for one in inside[:_LISTED])
        return f"{where}: holds no release itself, but its folders do: {names}. Name one of them"
    return f"{where}: holds no release (EXPERIMENT.PERIOD.rN.duckdb)"


def experiment_folders(folder: Path) -> list[Path]:
    """The folders in ``folder`` that hold files named as releases are."""
    return [
        one
        for one in sorted(folder.iterdir())
        if one.is_dir() and not one.name.startswith(".") and not is_link(one)
        if any(ReleaseName.parse(path.stem) for path in one.glob(f"*{_SUFFIX}"))
    ]
