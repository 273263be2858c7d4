"""Whether a path is a regular file: reading a pipe or a device may never end.

The program asks this before it opens any file that a person has named or that it has found.
"""

import hashlib
import os
import stat
from pathlib import Path
from typing import IO

from schemas.errors import InputError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def other_than_file(path: Path) -> str | None:
    """Say why ``path`` is not a regular file; None where it is one, or a link to one.

    Nothing is opened.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return (
            "there is a link of this name to nothing" if is_link(path) else "there is no such file"
        )
    except OSError as error:
        return f"cannot be looked at ({error.strerror})"
    except ValueError:  # a name with a null character
        return "no file can have this name"
    if stat.S_ISREG(mode):
        return None
    return f"is {_KINDS.get(stat.S_IFMT(mode), 'something else')}, not a file"


def is_link(path: Path) -> bool:
    """Whether there is a symbolic link at ``path``, even one that leads nowhere."""
    try:
        return path.is_symlink()
    except (OSError, ValueError):
        return False


def check_regular(path: Path) -> None:
    """Raise InputError, naming ``path``, where it is neither a regular file nor a link to one."""
    problem = other_than_file(path)
    if problem is not None:
        raise InputError(f"{path}: {problem}")


def digest_of(path: Path) -> str:
    """The SHA-256 of the bytes of a regular file; raises InputError where it cannot be read."""
    check_regular(path.absolute())
    try:
        # A pipe that has taken the place of the file since would never open otherwise.
        with open(path, "rb", opener=_without_waiting) as file:
            _check_still_regular(path, file)
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        problem = error.strerror
    raise InputError(f"{path.absolute()}: cannot be read ({problem})")


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _check_still_regular(path: Path, file: IO[bytes]) -> None:
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        raise InputError(f"{path.absolute()}: is no longer a file")
