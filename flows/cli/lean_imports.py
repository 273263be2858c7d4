"""What the program leaves out of a library that it uses a part of.

pandera imports pandas where that is installed, and hypothesis: a quarter of a second, of less than
two that a small release takes. It judges polars' frames without them, as where they are not
installed. Only the program leaves them out: whoever calls functions may judge frames of pandas by
pandera in the same process.
"""

import sys
from collections.abc import Sequence
from types import FrameType, ModuleType

_LEFT_OUT = {"pandas": "pandera", "hypothesis": "pandera"}


def leave_out() -> None:
    """From now on, pandera finds neither pandas nor hypothesis; whoever else asks for them does."""
    sys.meta_path.insert(0, _NotFound())


class _NotFound:
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - importlib hands it in, and the next
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> None:
        library = _LEFT_OUT.get(fullname)
        if library is not None and _asks(library):
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def _asks(library: str) -> bool:
    """Whether the import is one of this library's own."""
    frame = sys._getframe(2)
    while frame.f_back is not None and _package(frame) == "importlib":
        frame = frame.f_back
    return _package(frame) == library


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
