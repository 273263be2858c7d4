"""Working folders: private, locked while their run lives, and swept once it is dead."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from flows.runtime.files import folder_lock
from schemas.errors import InputError

_LOCK = "lock"


@contextmanager
def working_folder(directory: Path, prefix: str) -> Iterator[Path]:
    """Open a folder of one's own (0700) in ``directory``, named by ``prefix`` and chance.

    It is locked while this process lives, and gone on leaving the block.
    """
    folder, handle = _locked_folder(directory, prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def sweep(directory: Path, prefix: str, keep: Collection[Path] = ()) -> None:
    """Remove working folders that no living run holds, but for those to ``keep``."""
    with folder_lock(directory):
        for folder in directory.glob(f"{prefix}*"):
            if folder not in keep:
                with lock_of_the_dead(folder) as dead:
                    if dead:
                        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def lock_of_the_dead(folder: Path) -> Iterator[bool]:
    """Hold the lock of a working folder if no living run does; gives whether that is so."""
    try:
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:  # gone
        yield False
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held
        yield False
    else:
        yield True
    finally:
        os.close(handle)


def _locked_folder(directory: Path, prefix: str) -> tuple[Path, int]:
    """Make a working folder and lock it, with no moment between for a sweep."""
    with folder_lock(directory):
        try:
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=directory))
            handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise InputError(f"{directory}: cannot write here ({error.strerror})") from None
        fcntl.flock(handle, fcntl.LOCK_EX)
        return folder, handle
