"""Working in two threads at once: numpy, polars and DuckDB release Python's lock.

Threads are made anew for each piece of work: those of a pool that has slept may wake on one core.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from schemas.arrays import Integers, Ints

if TYPE_CHECKING:
    import polars as pl

N = TypeVar("N", bound=np.integer)
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


def in_batches(frames: "Iterable[pl.DataFrame]", size: int) -> "Iterator[pl.DataFrame]":
    """Yield the rows of all ``frames`` in batches of ``size`` rows; the last may have fewer."""
    import polars as pl  # noqa: PLC0415 - what asks a ledger alone does without

    held: pl.DataFrame | None = None
    for frame in frames:
        held = frame if held is None or held.is_empty() else pl.concat([held, frame])
        whole = held.height - held.height % size
        for start in range(0, whole, size):
            yield held.slice(start, size).rechunk()
        held = held.slice(whole)
    if held is not None and held.height > 0:
        yield held.rechunk()


def by_pieces(function: Callable[[slice], R], n: int, size: int) -> list[R]:
    """``function`` of each ``size`` places of ``n``, in their order; of none at least one empty."""
    pieces = [slice(start, min(start + size, n)) for start in range(0, max(n, 1), size)]
    if len(pieces) == 1:
        return [function(pieces[0])]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(function, pieces))


def rising(numbers: NDArray[N]) -> NDArray[N]:
    """The numbers in order, shape [n], which can be read only; in a quarter of numpy's time."""
    import polars as pl  # noqa: PLC0415 - likewise

    found: NDArray[N] = pl.Series(numbers).sort().to_numpy()
    return found


def places_of_rising(numbers: Integers) -> Ints:
    """Where each of the numbers in order stands among them, shape [n]; equal ones in any order."""
    import polars as pl  # noqa: PLC0415 - likewise

    return pl.Series(numbers).arg_sort().to_numpy().astype(np.int64)
