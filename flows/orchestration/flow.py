"""Pages as Prefect flows, made when somebody asks for them: plain runs do without Prefect."""

import functools
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from flows.orchestration.states import ends_in_state
from flows.runtime import clock
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from prefect import Flow

P = ParamSpec("P")
R = TypeVar("R")


def as_flow(function: Callable[P, R], name: str) -> "Flow[P, R]":
    """Make ``function`` the flow ``clusterdp-NAME``; a failure of ours is its state.

    Nothing of it is kept or tried again, as of steps.
    """
    from prefect import flow

    kept = flow(name=f"clusterdp-{name}", persist_result=False, retries=0, log_prints=False)
    return kept(ends_in_state(function))


def flow_of_module(module: str, name: str, functions: Mapping[str, Callable[..., Any]]) -> Any:
    """The flow that ``module`` offers as ``name``, always the same; for its ``__getattr__``.

    Raises AttributeError where there is none of this name among ``functions``.
    """
    if name not in functions:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return _named_flow(functions[name], name)


@functools.cache
def _named_flow(function: Callable[..., Any], name: str) -> Any:
    """The flow of a function that is called ``name``, by which Prefect finds it again."""

    @functools.wraps(function)
    def named(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    named.__name__ = named.__qualname__ = name
    return as_flow(named, name)


def day_before(timezone: str) -> str:
    """The day before the scheduled time of the flow run, in the schedule's time zone.

    A run without a schedule goes by the clock. Raises ConfigError for what is no time zone.
    """
    from prefect.runtime import flow_run

    scheduled = flow_run.scheduled_start_time or clock.now()
    return (scheduled.astimezone(_zone(timezone)).date() - timedelta(days=1)).isoformat()


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # whatever a schedule or a caller gave
        problem = f"{name!r} is not a time zone such as Europe/Zurich"
    raise ConfigError("schedule_timezone", problem)
