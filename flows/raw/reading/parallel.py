"""Batches worked on side by side: the libraries below leave the interpreter to others."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import polars as pl

T = TypeVar("T")
R = TypeVar("R")

_THREADS = 2


def in_parallel(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield ``function`` of each of the ``items``, in their order, a few of them ahead.

    What goes wrong comes out where its result would have, be it in ``function`` or in ``items``. No
    more than three items are held.
    """
    failure: Exception | None = None
    source = iter(items)
    with ThreadPoolExecutor(_THREADS) as pool:
        waiting: deque[Future[R]] = deque()
        try:
            while True:
                try:
                    item = next(source)
                except StopIteration:
                    break
                except Exception as error:  # raised below, after what came before
                    failure = error
                    break
                waiting.append(pool.submit(function, item))
                if len(waiting) > _THREADS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
            if failure is not None:
                raise failure
        finally:
            for one in waiting:
                one.cancel()


def in_batches(frames: Iterable[pl.DataFrame], size: int) -> Iterator[pl.DataFrame]:
    """The same rows, ``size`` at a time (the last may be fewer), wherever frames end."""
    held: pl.DataFrame | None = None
    for frame in frames:
        held = frame if held is None or held.is_empty() else pl.concat([held, frame])
        whole = held.height - held.height % size
        for start in range(0, whole, size):
            yield held.slice(start, size).rechunk()
        held = held.slice(whole)
    if held is not None and held.height > 0:
        yield held.rechunk()
