"""Whether somebody has asked this process to stop.

A query of DuckDB that a signal interrupts ends by a ``RuntimeError`` in place of the
``KeyboardInterrupt`` that the signal's handler raises, which looks like a failure of the query:
what would go on after a failure asks here first.
"""

import threading

_asked = threading.Event()


def note_interruption() -> None:
    """Note that this process was asked to stop; a signal's handler may call it."""
    _asked.set()


def was_interrupted() -> bool:
    """Whether this process was asked to stop."""
    return _asked.is_set()


def stop_if_interrupted() -> None:
    """Raise KeyboardInterrupt if this process was asked to stop."""
    if was_interrupted():
        raise KeyboardInterrupt
