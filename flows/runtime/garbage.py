"""When Python looks for garbage: not among modules that are being loaded, where there is none.

Their objects are many and stay, and looking through them is a tenth of a program's start.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_NEW_OBJECTS = 20_000
"""After so many it is looked for: a command goes on loading, and Python's 700 are soon there."""


def collect_from_here() -> None:
    """Look for garbage from now on, but never among what there is already."""
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(_NEW_OBJECTS)
        gc.enable()


@contextmanager
def loading() -> Iterator[None]:
    """Look for none within this block, which loads modules."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
