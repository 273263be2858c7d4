"""What the page of a release is made of, read as the page itself reads it."""

from pathlib import Path

from flows.released.estimates.release import estimate_open
from flows.released.file.read import open_release
from flows.released.page.contents import Contents, contents_of


def read_contents(path: Path) -> Contents:
    """Read what the report needs of the release at ``path``."""
    with open_release(path) as connection:
        return contents_of(connection, path, estimate_open(connection))
