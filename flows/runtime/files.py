"""Writing files that appear whole or not at all, and making folders with the right modes."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from schemas.errors import InputError

_HALF = ".half-written"


def private_directory(path: Path) -> Path:
    """Make a folder that only its owner can enter (0700); an existing folder keeps its mode."""
    _make(path, 0o700)
    return path


def public_directory(path: Path) -> list[Path]:
    """Make a folder that all can read (0755); return the folders made, outermost first."""
    return _make(path, 0o755)


def _make(path: Path, mode: int) -> list[Path]:
    try:
        missing = [folder for folder in (path, *path.parents) if not folder.exists()][::-1]
        for folder in missing:
            wanted = mode if folder == path else 0o755
            folder.mkdir(wanted, exist_ok=True)  # never open to more than that, even for a moment
            folder.chmod(wanted)  # the umask may have taken something away
        if not path.is_dir():
            raise NotADirectoryError(None, "there is a file of this name")
    except OSError as error:
        raise InputError(f"{path}: cannot make this folder ({error.strerror})") from None
    return missing


def remove_if_empty(folders: list[Path]) -> None:
    """Remove those of the folders that are still empty, the innermost first."""
    for folder in reversed(folders):
        with suppress(OSError):  # not empty
            folder.rmdir()


@contextmanager
def folder_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a folder; runs hold it only for moments."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def replace_file(path: Path, mode: int) -> Iterator[IO[bytes]]:
    """Write a new file beside ``path`` and rename it to ``path`` once it is complete.

    The folder is locked meanwhile, so half-written files in it are left over from killed runs; they
    are removed.
    """
    with folder_lock(path.parent):
        for leftover in half_written(path.parent):
            leftover.unlink(missing_ok=True)
        half = path.with_name(f".{path.name}{_HALF}")
        try:
            with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                yield file
            half.replace(path)
        except BaseException:
            half.unlink(missing_ok=True)
            raise


def half_written(folder: Path) -> list[Path]:
    """What killed runs have left of files in a folder; whoever holds its lock may remove them."""
    return sorted(folder.glob(f".*{_HALF}"))


def cannot_write(folder: Path, problem: str | None) -> InputError:
    """That what was to be published cannot be written in a folder, and what to do."""
    return InputError(
        f"{folder}: cannot write here ({problem}); nothing was published. Make room, if the disk "
        "is full, and run again"
    )


def sync_directory(path: Path) -> None:
    """Make the names in a folder survive a power cut."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
