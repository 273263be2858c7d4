"""What the program needs of the system around it: streams, a current folder, words for failures."""

import errno
import os
import sys

from schemas.errors import InputError

_OF_PATHS = (
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
    """Let nothing that is said go astray where somebody closed our streams (``>&-``).

    The next file that is opened would get the number of a closed one, and with it whatever is
    printed; and Python has no object for it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free, which is this one
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - stays


def check_current_folder() -> None:
    """Raise InputError where the current folder is gone, from which paths are read."""
    try:
        os.getcwd()  # noqa: PTH109 - only whether there is one
    except FileNotFoundError:
        raise InputError("the current folder is gone; change to one that is there") from None


def code_of(error: BaseException) -> int:
    """Return the exit code of an error that is none of ours.

    2 where the system refuses a path that somebody named, 1 for anything else.
    """
    is_of_path = isinstance(error, OSError) and error.errno in _OF_PATHS
    return 2 if is_of_path else 1
