"""Files that appear whole or not at all, and folders with the modes they should have."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from schemas.errors import InputError


def private_directory(path: Path) -> Path:
    """Make a folder that only its owner can enter (0700); leave an existing one's mode alone."""
    return _directory(path, 0o700)


def public_directory(path: Path) -> Path:
    """Make a folder that everybody can read (0755)."""
    return _directory(path, 0o755)


def _directory(path: Path, mode: int) -> Path:
    try:
        if not path.is_dir():
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(mode)
    except OSError as error:
        raise InputError(f"{path}: cannot make this folder ({error.strerror})") from None
    return path


@contextmanager
def replace_file(path: Path, mode: int) -> Iterator[IO[bytes]]:
    """Write a file apart and rename it over ``path`` once it is complete."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, mode)
            yield file
        Path(name).replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise


def sync_directory(path: Path) -> None:
    """Make renames in a folder survive a power cut."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
