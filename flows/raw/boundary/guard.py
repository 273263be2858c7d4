"""No value of anybody's row may leave a private step in an exception.

Libraries put rows into their messages, and Python keeps the original error in ``__context__`` even
of a clean one. A guarded step therefore raises a new error, outside the block that caught the old
one: ours with its text (which names rules and counts), any other by its type and place alone.
"""

import functools
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

from schemas.errors import ClusterdpError, StepError, bare

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_ROOT = Path(__file__).resolve().parents[3]


def values_free(step: Callable[P, R]) -> Callable[P, R]:
    """Guard a private ``step``: what it raises holds no row, no cause and no frames of it."""

    @functools.wraps(step)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        failure: BaseException
        try:
            return step(*args, **kwargs)
        except BaseException as error:  # a panic of a Rust library is no Exception
            failure = _bare(error, step.__name__)
        raise failure

    return guarded


def values_free_batches(batches: Iterator[T], failures: list[BaseException]) -> Iterator[T]:
    """Guard what is made as it is read: what goes wrong is noted in ``failures``, without rows.

    Libraries that read it would only say, in words of their own, that it ended by an error.
    """
    try:
        yield from batches
    except GeneratorExit:  # nobody reads on: whatever went wrong did so elsewhere
        raise
    except BaseException as error:
        failures.append(_bare(error, "randomising"))
    if failures:
        msg = "the rows ended by an error"
        raise StepError(msg)


def _bare(error: BaseException, name: str) -> BaseException:
    """An error that says what ``error`` may say, without traceback, cause and context."""
    if isinstance(error, ClusterdpError):
        return bare(error)
    return _interrupt(error) or StepError(
        f"{name} failed with {type(error).__name__} at {_place(error)}; "
        "its message is withheld, as it may hold values of rows"
    )


def _interrupt(error: BaseException) -> BaseException | None:
    """The same kind of interruption, bare, if ``error`` is one; libraries raise none with rows."""
    kind = type(error)
    outside = kind.__module__ in ("builtins", "asyncio.exceptions") or kind.__module__.startswith(
        "prefect."
    )
    if isinstance(error, Exception) or not outside:
        return None
    return bare(error)


def _place(error: BaseException) -> str:
    """The innermost line of this project on the way to ``error``."""
    place = "an unknown place"
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        if path.is_relative_to(_ROOT) and ".venv" not in path.parts:
            place = f"{path.relative_to(_ROOT)}:{frame.lineno}"
    return place
