"""Processes that end without pages about leaks.

When the interpreter takes modules apart, DuckDB's binding prints what it takes for leaks, on
standard error and past Python. They are harmless, and nobody can do anything about them.
"""

import atexit
import functools
import os
import sys


@functools.cache
def end_quietly() -> None:
    """Close standard error at the very end of this process; its exit code stays as it is.

    Functions that are registered at exit are called in reverse, so those that are registered
    later, Prefect's last reports for example, are still heard.
    """
    atexit.register(_silence)


def _silence() -> None:
    sys.stderr.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
