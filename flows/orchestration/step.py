"""One wrapper for the steps of a flow: a Prefect task within a flow run, else a plain function.

Nothing of a step is kept: no result is persisted, no input hashed for a cache, nothing retried, as
inputs may be raw rows and a second draw would cost privacy.
"""

import functools
import logging
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from flows.orchestration.states import raised, running_flow, state_of_failure
from flows.runtime.logs import of_night

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("clusterdp")


def plain_step(function: Callable[P, R]) -> Callable[P, R]:
    """Make ``function`` say on the log when it begins and how long it took."""

    @functools.wraps(function)
    def timed(*args: P.args, **kwargs: P.kwargs) -> R:
        log.info("%s", of_night(f"{function.__name__} …"))
        begin = time.perf_counter()
        result = function(*args, **kwargs)
        seconds = time.perf_counter() - begin
        log.info(of_night("%s: %.2f s"), function.__name__, seconds)
        return result

    return timed


def step(function: Callable[P, R]) -> Callable[P, R]:
    """Make ``function`` a step: a Prefect task where a flow is running, else :func:`plain_step`."""
    timed = plain_step(function)
    if running_flow() is None:
        return timed
    from prefect import task
    from prefect.cache_policies import NO_CACHE

    kept = task(persist_result=False, cache_policy=NO_CACHE, retries=0, log_prints=False)
    as_task = kept(state_of_failure(timed))

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return raised(as_task(*args, **kwargs))

    return run
