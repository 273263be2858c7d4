"""Functions of ``scipy.special``: those that are compiled, without the package around them.

The package takes a tenth of a second, more than all that a small file's estimates take: it reads
the documentation of a hundred functions, and imports numpy's compiler of Fortran. While its
compiled module is loaded an empty package stands in for it, which has the true one imported
wherever another thread asks it for anything. These are the very functions that the package has.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING

import scipy

_PACKAGE, _COMPILED = "scipy.special", "scipy.special._ufuncs"
_LOCK = Lock()


@contextmanager
def _empty_package() -> Iterator[None]:
    if _PACKAGE in sys.modules:
        yield
        return
    empty = ModuleType(_PACKAGE)
    empty.__path__ = [str(Path(scipy.__file__).with_name("special"))]

    def leave() -> None:
        with _LOCK:
            if sys.modules.get(_PACKAGE) is empty:
                del sys.modules[_PACKAGE]

    def of_true_one(name: str) -> object:
        leave()
        import scipy.special  # noqa: PLC0415 - the whole package, where it is asked for

        return getattr(scipy.special, name)

    empty.__getattr__ = of_true_one  # type: ignore[method-assign] # of a module (PEP 562)
    sys.modules[_PACKAGE] = empty
    try:
        yield
    finally:
        leave()


def _functions() -> ModuleType:
    try:
        with _empty_package():
            import scipy.special._ufuncs  # noqa: PLC0415 - within

            return sys.modules[_COMPILED]
    except (AttributeError, ImportError):  # of a scipy that has them elsewhere
        import scipy.special  # noqa: PLC0415 - then alone

        return scipy.special


__all__ = ["bdtr", "betaln", "chdtrc", "chdtri", "log_ndtr", "ndtr", "ndtri"]
__all__ += ["stdtr", "stdtridf", "stdtrit"]

if TYPE_CHECKING:
    from scipy.special import (
        bdtr,
        betaln,
        chdtrc,
        chdtri,
        log_ndtr,
        ndtr,
        ndtri,
        stdtr,
        stdtridf,
        stdtrit,
    )
else:
    _found = _functions()
    globals().update({name: getattr(_found, name) for name in __all__})
