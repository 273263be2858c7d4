"""Which tests are slow: a list that the suite keeps itself, by what its tests took.

``make test`` leaves the listed ones out, ``make test-all`` runs them, too. ``make slow`` makes the
list anew: the dearest functions, by processor seconds a case, until all others together take
:data:`REST`. Then it runs these once more, as what was made by a listed test for others (a fixture
of a module, a compiled regular expression) is made by one of them now, and adds to the list.
"""

import os
import resource
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.support import zygote

REST = 420.0
"""Processor seconds that all tests together may take which are not on the list."""

COSTS = "CLUSTERDP_TEST_COSTS"
"""The variable that names a folder in which each process of a run notes what its tests took."""

LIST = Path(__file__).with_name("slow.txt")

_HEAD = "# What `make test` leaves to `make test-all`, as it takes long; made by `make slow`."


def function_of(nodeid: str) -> str:
    """The test function of which a test is a case."""
    return nodeid.partition("[")[0]


def listed() -> frozenset[str]:
    """The functions on the list."""
    lines = LIST.read_text(encoding="utf-8").splitlines() if LIST.exists() else []
    return frozenset(line for line in lines if not line.startswith("#"))


def spent() -> float:
    """Processor seconds so far: of this process, its threads, and programs that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime + zygote.spent()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note what a test took, with what was made for it, where a folder for that is named."""
    start = spent()
    result = yield
    if folder := os.environ.get(COSTS):
        with (Path(folder) / str(os.getpid())).open("a", encoding="utf-8") as file:
            file.write(f"{spent() - start:.4f} {item.nodeid}\n")
    return result


def read_costs(folder: Path) -> dict[str, list[float]]:
    """The processor seconds of each case, by function."""
    costs: dict[str, list[float]] = {}
    for path in folder.iterdir():
        for line in path.read_text(encoding="utf-8").splitlines():
            seconds, _, nodeid = line.partition(" ")
            costs.setdefault(function_of(nodeid), []).append(float(seconds))
    return costs


def slow_ones(
    costs: Mapping[str, list[float]], kept: Collection[str], rest: float = REST
) -> list[str]:
    """The functions that are slow, in order: those ``kept`` that were not run, and the dearest."""
    left = sum(map(sum, costs.values()))
    slow = {one for one in kept if one not in costs}
    for name in sorted(costs, key=lambda one: -sum(costs[one]) / len(costs[one])):
        if left <= rest:
            break
        left -= sum(costs[name])
        slow.add(name)
    return sorted(slow)


def write_list(names: Iterable[str]) -> None:
    """Put the list in place of what there is."""
    LIST.write_text("\n".join([_HEAD, *names, ""]), encoding="utf-8")


if __name__ == "__main__":
    measured = read_costs(Path(sys.argv[1]))
    write_list(slow_ones(measured, listed()))
    total = sum(map(sum, measured.values()))
    rest = sum(sum(of) for one, of in measured.items() if one not in listed())
    print(f"{len(listed())} functions are slow; {rest:.0f} of {total:.0f} s are left")  # noqa: T201 - a command
