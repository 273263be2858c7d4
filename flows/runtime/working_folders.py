"""Working folders: private, locked while their run lives, and removed by a later run if it dies."""

import fcntl
import os
import shutil
import socket
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from flows.runtime.files import folder_lock
from schemas.errors import InputError

_LOCK = "lock"
_kept: set[Path] = set()


@contextmanager
def working_folder(directory: Path, prefix: str) -> Iterator[Path]:
    """Make a private folder (0700) in ``directory``; its name is ``prefix`` and random letters.

    It is locked while the block lasts, and removed when it ends, unless somebody says :func:`keep`.
    """
    folder, handle = _locked_folder(directory, prefix)
    try:
        yield folder
    finally:
        try:
            if folder not in _kept:
                shutil.rmtree(folder, ignore_errors=True)
        finally:  # who is interrupted here leaves it to the next run, not locked
            os.close(handle)


def keep(folder: Path) -> None:
    """Leave a folder of this process to a later run, as if this one had died: it settles that."""
    _kept.add(folder)


def sweep(directory: Path, prefix: str, keep: Collection[Path] = ()) -> None:
    """Remove the working folders of dead runs, except those to ``keep``."""
    with folder_lock(directory):
        for folder in directory.glob(f"{prefix}*"):
            if folder not in keep:
                with lock_if_dead(folder) as dead:
                    if dead:
                        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def lock_if_dead(folder: Path) -> Iterator[bool]:
    """Try to lock a working folder; gives True where no living run holds its lock.

    No link is followed: where others may write, too, one of this name may be anybody's.
    """
    try:
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            handle = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=place)
        finally:
            os.close(place)
    except OSError:  # the folder was removed
        yield False
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # a living run holds it
        yield False
    else:
        yield True
    finally:
        os.close(handle)


def _locked_folder(directory: Path, prefix: str) -> tuple[Path, int]:
    """Make a working folder and lock it; no sweep can come between the two."""
    with folder_lock(directory):
        try:
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=directory))
            handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise InputError(f"{directory}: cannot write here ({error.strerror})") from None
        fcntl.flock(handle, fcntl.LOCK_EX)
        return folder, handle


def is_alive(folder: Path, host: str) -> bool | None:
    """Whether the run of a working folder lives, which was made on ``host``; None: unknown here."""
    with lock_if_dead(folder) as dead:
        if dead:
            return False
        if folder.exists():
            return True
    return False if host == socket.gethostname() else None
