"""What the page of a release is made of, read as the page itself reads it."""

from pathlib import Path

from flows.released.file.evidence import read_every
from flows.released.file.read import open_release, read_manifest
from flows.released.page.contents import Contents, contents_of


def read_contents(path: Path) -> Contents:
    """Read what the report needs of the release at ``path``."""
    with open_release(path) as connection:
        return contents_of(connection, path, read_every(connection, read_manifest(connection)))
