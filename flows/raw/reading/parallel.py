"""Working on several batches at once in threads: polars and DuckDB release Python's lock."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import polars as pl

T = TypeVar("T")
R = TypeVar("R")

_THREADS = 2


def in_parallel(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield ``function(item)`` for each of the ``items``, in their order, working a few ahead.

    An error of ``function`` or of ``items`` is raised in the place of the result, after all results
    before it. At most three items are held at once.
    """
    with ThreadPoolExecutor(_THREADS) as pool:

        def submitted() -> Iterator[Future[R]]:
            try:
                for item in items:
                    yield pool.submit(function, item)
            except Exception as error:
                failed: Future[R] = Future()
                failed.set_exception(error)
                yield failed

        waiting: deque[Future[R]] = deque()
        try:
            for future in submitted():
                waiting.append(future)
                if len(waiting) > _THREADS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def in_batches(frames: Iterable[pl.DataFrame], size: int) -> Iterator[pl.DataFrame]:
    """Yield the rows of all ``frames`` in batches of ``size`` rows; the last may have fewer."""
    held: pl.DataFrame | None = None
    for frame in frames:
        held = frame if held is None or held.is_empty() else pl.concat([held, frame])
        whole = held.height - held.height % size
        for start in range(0, whole, size):
            yield held.slice(start, size).rechunk()
        held = held.slice(whole)
    if held is not None and held.height > 0:
        yield held.rechunk()
