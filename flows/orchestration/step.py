"""Wrappers for the steps of a flow: a Prefect task within a flow run, else a plain function.

The one place that says what Prefect may keep of a step, and try again. Of a step before the
boundary, or across it, nothing: inputs may be raw rows, which no result, cache key or parameter may
hold, and a second draw would cost privacy a second time (:func:`step`). A step on released files
alone is post-processing: it costs nothing however often it runs, so it is tried again where a disk
or a network hiccups, and its result is kept for the next night (:func:`open_step`). Stores and
notices have retries of their own, which runs without Prefect have, too.
"""

import contextvars
import functools
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from flows.orchestration.states import raised, running_flow, state_of_failure
from flows.runtime.logs import of_night

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("clusterdp")

RETRIES, RETRY_SECONDS = 2, 2.0


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
    if running_flow() is None:
        return plain_step(function)
    from prefect import task
    from prefect.cache_policies import NO_CACHE

    kept = task(persist_result=False, cache_policy=NO_CACHE, retries=0, log_prints=False)
    as_task = kept(state_of_failure(plain_step(function)))

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return raised(as_task(*args, **kwargs))

    return run


@contextmanager
def beside(function: Callable[[], R]) -> Iterator[Callable[[], R]]:
    """Work in a thread on something, which may be a step, and on what is within at the same time.

    Gives what waits for it and returns its result, or raises its error.
    """
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(contextvars.copy_context().run, function).result


def open_step(function: Callable[P, R], key: str | None) -> Callable[P, R]:
    """Make ``function`` a step on what is published: a task that is tried again, else itself.

    Its result, a document of JSON, is kept with Prefect's under ``key``, which has to name all that
    it follows from; None keeps nothing. A failure is raised: as a state it would be kept.
    """
    if running_flow() is None:
        return function
    from prefect import task
    from prefect.cache_policies import NO_CACHE

    kept: dict[str, Any] = {"persist_result": False, "cache_policy": NO_CACHE}
    if key is not None:  # JSON: who can write to where results are kept makes us run nothing
        kept = {"persist_result": True, "result_serializer": "json", "cache_key_fn": lambda *_: key}
    tried = task(retries=RETRIES, retry_delay_seconds=RETRY_SECONDS, log_prints=False, **kept)
    as_task: Callable[P, R] = tried(function)
    return as_task
