"""How a run in Prefect ends: failures of ours as states that an automation can tell apart.

A state holds the error's message, without the places in files that it names, as states go wherever
an automation sends them. For a caller in the same process it holds the error itself, without
traceback, cause and context. Prefect's own way would write a traceback into the run's log.
"""

import functools
import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from flows.orchestration.leaving import without_places
from flows.orchestration.quiet_end import end_quietly
from schemas.errors import (
    BudgetError,
    ClusterdpError,
    ConfigError,
    ConflictError,
    InputError,
    bare,
)

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State
    from prefect.context import FlowRunContext

P = ParamSpec("P")
R = TypeVar("R")

_NAMES: dict[type[ClusterdpError], str] = {
    BudgetError: "Refused",
    ConflictError: "Conflict",
    ConfigError: "BadInput",
    InputError: "BadInput",
}


def name_of(error: ClusterdpError) -> str:
    """The name of the state of a run that ended by ``error``: ``Failed`` for unforeseen ones."""
    return next((name for kind, name in _NAMES.items() if isinstance(error, kind)), "Failed")


def ends_in_state(function: Callable[P, R]) -> Callable[P, R]:
    """Make the function of a flow end in a state named after its failure.

    Whoever calls the flow gets the error raised, as ever; so does who calls the plain function.
    """

    @functools.wraps(function)
    def ended(*args: P.args, **kwargs: P.kwargs) -> R:
        if not _is_run_by_prefect(ended):
            return function(*args, **kwargs)
        end_quietly()
        return state_of_failure(function)(*args, **kwargs)

    return ended


def state_of_failure(function: Callable[P, R]) -> Callable[P, R]:
    """Return a failure of ``function`` as a state of Prefect's; types do not tell of the state."""

    @functools.wraps(function)
    def told(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except ClusterdpError as error:
            failure = bare(error)
        from prefect.states import Failed

        logging.getLogger("prefect.task_runs").addFilter(_without_empty_trace)
        message = without_places(str(failure))
        return cast(R, Failed(name=name_of(failure), message=message, data=failure))

    return told


def raised(result: "R | State[R]") -> R:
    """Raise the failure that a state returned by a task holds; any other result is returned."""
    from prefect.client.schemas.objects import State

    if not isinstance(result, State):
        return result
    failure = result.result(raise_on_failure=False)
    if isinstance(failure, BaseException):
        raise failure
    return cast(R, failure)


def _without_empty_trace(record: logging.LogRecord) -> bool:
    """Mend what Prefect logs of a task that returned a failed state: the traceback of no error."""
    if record.exc_info is not None and record.exc_info[0] is None:
        record.exc_info = None
    return True


def running_flow() -> "FlowRunContext | None":
    """The innermost flow run that this is part of; none where nobody has imported Prefect."""
    context = sys.modules.get("prefect.context")
    return None if context is None else cast("FlowRunContext | None", context.FlowRunContext.get())


def _is_run_by_prefect(function: Callable[P, R]) -> bool:
    """Whether the innermost flow that is running is the one that ``function`` was made into."""
    running = running_flow()
    return running is not None and running.flow is not None and running.flow.fn is function
