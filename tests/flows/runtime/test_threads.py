"""Batches worked on side by side come out in their order, and so does what goes wrong."""

import threading
import time
from collections.abc import Iterator

import pytest

from flows.runtime.threads import in_parallel
from tests.conftest import PATIENCE


def test_results_come_in_the_order_of_their_items_however_long_each_takes() -> None:
    def slowly(item: int) -> int:
        time.sleep(0.02 if item % 3 == 0 else 0)
        return item * item

    assert list(in_parallel(slowly, range(12))) == [item * item for item in range(12)]
    assert list(in_parallel(slowly, [])) == []


def test_items_are_worked_on_side_by_side() -> None:
    both = threading.Barrier(2, timeout=PATIENCE)  # which one alone would never pass

    def meet(item: int) -> int:
        both.wait()
        return item

    assert list(in_parallel(meet, range(4))) == [0, 1, 2, 3]


def test_no_more_than_three_items_are_held() -> None:
    begun: list[int] = []
    done: list[int] = []

    def items() -> Iterator[int]:
        for item in range(20):
            begun.append(item)
            yield item

    for result in in_parallel(int, items()):
        done.append(result)
        assert len(begun) - len(done) <= 3 - 1  # besides the one that came out just now
    assert done == list(range(20))


def test_what_goes_wrong_comes_out_where_its_result_would_have() -> None:
    def divide(item: int) -> float:
        return 1 / item

    found: list[float] = []
    with pytest.raises(ZeroDivisionError):
        found.extend(in_parallel(divide, [1, 2, 0, 4, 5, 6, 7]))
    assert found == [1.0, 0.5]
    results = in_parallel(divide, [1, 2, 0, 4, 5, 6, 7])
    assert [next(results), next(results)] == [1.0, 0.5]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert list(results) == []


def test_items_that_cannot_be_had_stop_it() -> None:
    def items() -> Iterator[int]:
        yield from range(5)
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011 - it has no message
        list(in_parallel(int, items()))


def test_nothing_goes_on_once_nobody_asks() -> None:
    before = threading.active_count()
    results = in_parallel(int, range(100))
    assert next(results) == 0
    results.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_what_goes_wrong_in_the_items_comes_after_the_results_before_it() -> None:
    """Else it would depend on how far ahead the items are read what a run ends with."""

    def items() -> Iterator[int]:
        yield from (1, 2)
        raise ValueError("third")

    results = in_parallel(lambda item: item * 10, items())
    assert [next(results), next(results)] == [10, 20]
    with pytest.raises(ValueError, match="third"):
        next(results)
    one = in_parallel(lambda item: 1 // (item - 2), items())
    assert next(one) == -1
    with pytest.raises(ZeroDivisionError):
        next(one)
