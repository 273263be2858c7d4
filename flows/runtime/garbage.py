"""When Python looks for garbage: not among modules that are being loaded, where there is none.

Their objects are many and stay, and looking through them is a tenth of a program's start.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


def collect_from_here() -> None:
    """Look for garbage from now on, but never among what there is already."""
    if not gc.isenabled():
        gc.freeze()
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
