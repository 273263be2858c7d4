"""What there is of a world, read without the program: files, lists, charges."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.nights.world import Place, Row, World, digest_of

Public = dict[tuple[str, str], str]
"""Digests of files that were ever public, by folder and release id."""


class ViolationError(AssertionError):
    """Something does not hold; the life's number and the diary show how it came."""


def hold(condition: object, what: str, *facts: object) -> None:
    """Raise :class:`ViolationError` unless a condition holds."""
    if not condition:
        raise ViolationError(f"{what}: {', '.join(map(str, facts))}")


def file_of(place: Place, release_id: str | None) -> Path:
    """Where the file of a release is, in a place."""
    return place.releases / f"{release_id}.duckdb"


def sums_of(place: Place) -> dict[str, str]:
    """What SHA256SUMS says, by the names of files."""
    path = place.releases / "SHA256SUMS"
    lines = path.read_text().splitlines() if path.exists() else []
    return {line[66:]: line[:64] for line in lines}


def closed_of(place: Place) -> dict[str, Any] | None:
    """What closed.json says, if it is there."""
    path = place.releases / "closed.json"
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def usable(place: Place, rows: Iterable[Row], *, with_pruned: bool = False) -> list[Row]:
    """The releases in a folder that are to be used, the greatest last.

    ``with_pruned`` counts those, too, whose files a prune that was killed has left.
    """
    files = place.files
    found = [
        row
        for row in rows
        if row.release_id in files and not row.withdrawn
        if with_pruned or not row.is_pruned
        if files[row.release_id] == row.sha256
    ]
    return sorted(found, key=lambda row: (row.period, row.revision))


def paid_when_tried(
    world: World,
    rows: Iterable[Row],
    before: Collection[str],
    configs: Sequence[Path],
    config: Path,
    period: str,
) -> float:
    """What the people of a configuration had paid when a calm night tried a period of it.

    The night goes from one configuration to the next, and through the periods of each from the
    oldest on. What it charges for others after that trial is none of its reasons. Of two folders
    of an experiment the first makes what can be made, and the second tries again what was not.

    Args:
        world: Who pays for what.
        rows: The charges after the night.
        before: The ids of those releases that were charged for before it.
        configs: In the order that the night took them in.
        config: One of them.
        period: One of it that was not released.
    """
    experiments = {one.config: one.experiment for one in world.places}
    order = [experiments[one] for one in configs]
    people, trial = world.population(experiments[config]), (configs.index(config), period)
    return sum(
        row.epsilon
        for row in rows
        if row.experiment in people and row.state != "void"
        if row.release_id in before or (order.index(row.experiment), row.period) < trial
    )


def tried_as(document: Mapping[str, Any], experiment: str, period: str) -> list[str]:
    """How a run's trials of a period have ended, as it says: one in each folder, in their order."""
    return [
        one["status"]
        for one in document.get("releases", ())  # none where the whole run has failed
        if (one["experiment"], one["period"]) == (experiment, period)
    ]


def settled(
    world: World, known: Public, place: Place, period: str, rows: Iterable[Row]
) -> str | None:
    """Where a period that was ever public stands, by charges and files; None where none of it was.

    A file counts though its run died before it could note that it is public.
    """
    public = [
        row
        for row in rows
        if (row.experiment, row.period) == (place.experiment, period)
        and (row.state in ("published", "lost") or _came(world, known, row))
    ]
    if not public:
        return None
    good = [row for row in public if not row.withdrawn]
    files = [row for row in good if not row.is_pruned]
    if not files:
        return "pruned" if good else "withdrawn"
    return _of_file(world, place, max(files, key=lambda row: row.revision))


def _came(world: World, known: Public, row: Row) -> bool:
    places = world.of(row.experiment)
    keys = {(one.directory, str(row.release_id)) for one in places}
    return row.state == "publishing" and not keys.isdisjoint(known)


def _of_file(world: World, place: Place, row: Row) -> str:
    for one in (place, *world.of(place.experiment)):
        path = file_of(one, row.release_id)
        if path.exists():
            is_it = digest_of(path) == row.sha256
            return ("published" if one == place else "elsewhere") if is_it else "altered"
    return "lost"
