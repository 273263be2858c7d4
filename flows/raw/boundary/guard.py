"""A guard that keeps the values of raw rows out of the exceptions of private steps.

Libraries quote rows in their messages, and Python keeps the original error in the ``__context__``
of the error that replaces it. So a guarded step raises a new error after it has left the block that
caught the old one. Our own errors keep their text, which names rules and counts; of any other error
only the type and the place in our code are said.
"""

import functools
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

from schemas.errors import ClusterdpError, StepError, bare

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

_ROOT = Path(__file__).resolve().parents[3]


def values_free(step: Callable[P, R]) -> Callable[P, R]:
    """Guard a private ``step``: its errors hold no row, no cause and no frames of the step."""

    @functools.wraps(step)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        failure: BaseException
        try:
            return step(*args, **kwargs)
        except BaseException as error:  # a panic of a Rust library is no Exception
            failure = _bare(error, step.__name__)
        raise failure

    return guarded


@contextmanager
def errors_as(failure: Callable[[E], BaseException], *kinds: type[E]) -> Iterator[None]:
    """Raise ``failure(error)`` in place of an error of these ``kinds``, which may quote rows.

    The new error has no cause and no context.
    """
    try:
        yield
    except kinds as error:
        try:
            raise failure(error)
        except BaseException as replacement:
            replacement.__context__ = None
            raise


def values_free_batches(batches: Iterator[T], failures: list[BaseException]) -> Iterator[T]:
    """Guard an iterator: an error in it is added to ``failures`` without rows; a StepError follows.

    The library that reads the batches would report the error only in words of its own.
    """
    try:
        yield from batches
    except GeneratorExit:  # the reader has stopped: the error, if any, is not in these batches
        raise
    except BaseException as error:
        failures.append(_bare(error, "randomising"))
    if failures:
        raise StepError("the rows ended by an error")


def _bare(error: BaseException, name: str) -> BaseException:
    """A new error that says as much as may be said of ``error``: no traceback, cause or context."""
    kind = type(error)
    outside = kind.__module__ in ("builtins", "asyncio.exceptions") or kind.__module__.startswith(
        "prefect."
    )
    is_interruption = outside and not isinstance(error, Exception)  # these never hold rows
    if is_interruption or isinstance(error, ClusterdpError):
        return bare(error)
    return StepError(
        f"{name} failed with {kind.__name__} at {_place(error)}; "
        "its message is withheld, as it may hold values of rows"
    )


def _place(error: BaseException) -> str:
    """The innermost line of this project in the traceback of ``error``."""
    place = "an unknown place"
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        if path.is_relative_to(_ROOT) and ".venv" not in path.parts:
            place = f"{path.relative_to(_ROOT)}:{frame.lineno}"
    return place
