"""Whether a release was withdrawn, as the lists beside its file say."""

from pathlib import Path

from flows.released.file.opening import open_safely
from flows.released.file.read import read_manifest
from flows.released.lists import WithdrawnRelease, read_withdrawn


def withdrawal_of(path: Path) -> WithdrawnRelease | None:
    """Whether the release in a file was withdrawn, by the list beside it, or beside its target.

    ``latest.duckdb`` and copies under other names are known by what stands in them. Raises
    InputError where the list, or the file, cannot be read.
    """
    places = dict.fromkeys((path.absolute().parent, path.resolve().parent))
    found = {name: one for place in places for name, one in read_withdrawn(place).items()}
    if not found:
        return None
    with open_safely(path) as connection:
        return found.get(read_manifest(connection).release_id)
