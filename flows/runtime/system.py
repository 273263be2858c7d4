"""The program's standard streams, its current folder, and exit codes for errors of the system."""

import errno
import os
import sys

from schemas.errors import InputError

_PATH_ERRORS = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENAMETOOLONG,
    errno.ELOOP,
)


def open_closed_streams() -> None:
    """Open the null device for each standard stream that the caller has closed (``>&-``).

    Otherwise the next file that is opened would get the number of the stream, and with it all that
    is printed. Python, too, has no object for a closed stream.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - stays


def check_current_folder() -> None:
    """Raise InputError where the current folder, which paths are relative to, no longer exists."""
    try:
        os.getcwd()  # noqa: PTH109 - only whether there is one
    except FileNotFoundError:
        raise InputError("the current folder is gone; change to one that is there") from None


def code_of(error: BaseException) -> int:
    """Return the exit code of an error of the system or a library.

    2 where the system refuses a path, 1 for anything else.
    """
    is_of_path = isinstance(error, OSError) and error.errno in _PATH_ERRORS
    return 2 if is_of_path else 1
