"""Which tier a test is in, in which order tests run, and which tests take long.

A test's tier follows from what it uses, so nobody has to remember; where that says too little, a
mark on the test does (``@pytest.mark.statistical``). The tiers are described in pyproject.toml.
"""

import dis
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from tests.support.slow import function_of, listed, spent

TIERS = ("prefect", "process", "statistical", "release", "unit")
"""In the order they run: what takes long comes first, so that no worker ends long after another."""

MOST = {"unit": 1.0}
"""Seconds of processor time from which on a test of a tier is named at the end of a run.

On a busy machine a test waits, which costs none.
"""
_MOST = 2.0
"""The same of other tiers, where a test is not on the list of slow ones."""

_SPENT = "seconds of processor time"
_TESTS = Path(__file__).parents[1]
_PROCESSES = ("faults", "benchmarks", "fuzz", "boundary", "nights")
"""Folders of tests that run programs, kill them, or try hundreds of cases."""

_OTHER_TIER = re.compile(
    r"^pytestmark = pytest\.mark\.(prefect|process|statistical|release)\b", re.M
)
_WITHOUT_UNITS = (*_PROCESSES, "statistical")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where unit tests alone are asked for, import no file that has none."""
    if config.option.markexpr not in ("unit", "unit and not soak and not slow"):
        return None
    has_none = collection_path.parent == _TESTS and collection_path.name in _WITHOUT_UNITS
    return True if has_none or _says_that_it_has_no_units(collection_path) else None


def _says_that_it_has_no_units(path: Path) -> bool:
    """Whether a file of tests is marked whole as of another tier, and no test of it as a unit."""
    if not path.match("test_*.py"):
        return False
    text = path.read_text(encoding="utf-8")
    return _OTHER_TIER.search(text) is not None and "mark.unit" not in text


def into_tiers(items: list[pytest.Item]) -> None:
    """Mark every test with its tier, and with ``slow`` if it is, and sort them.

    Cases of one function have one tier, but where some are marked. Slow tests of a module stand
    among the others: what is made for one of them is made once.
    """
    slow = listed()
    known: dict[object, str] = {}
    places: dict[pytest.Item, int] = {}
    for item in items:
        if function_of(item.nodeid) in slow:
            item.add_marker("slow")
        tier = _marked(item)
        if tier is None:
            cases = getattr(item, "function", item)
            tier = known.get(cases) or known.setdefault(cases, _tier(item))
            item.add_marker(tier)
        places[item] = TIERS.index(tier)
    items.sort(key=places.__getitem__)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Note what a test took, where that is more than :data:`MOST` of its tier.

    A test that is the first to import something pays for all that come later: it is let off.
    """
    modules, start = len(sys.modules), spent()
    result = yield
    seconds, most = spent() - start, MOST.get(_marked(pyfuncitem) or "", _MOST)
    is_slow = pyfuncitem.get_closest_marker("slow") is not None
    if seconds > most and not is_slow and len(sys.modules) == modules:
        pyfuncitem.user_properties.append((_SPENT, seconds))  # which reaches xdist's controller
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the tests that took long; machines differ, so that no clock fails a test."""
    passed = terminalreporter.stats.get("passed", ())
    took = {one.nodeid: dict(one.user_properties).get(_SPENT, 0.0) for one in passed}
    found = sorted((seconds, name) for name, seconds in took.items() if seconds)
    if found:
        terminalreporter.section("took long, in seconds of processor time: make them quicker")
    for seconds, name in reversed(found):
        terminalreporter.line(f"{seconds:.1f} s {name}")


def _marked(item: pytest.Item) -> str | None:
    """The tier that a test is marked with, the nearest mark first."""
    return next((mark.name for mark in item.iter_markers() if mark.name in TIERS), None)


def _tier(item: pytest.Item) -> str:
    room = item.path.relative_to(_TESTS).parts[0]
    fixtures = set(getattr(item, "fixturenames", ()))
    if room == "statistical":
        return "statistical"
    if "prefect_harness" in fixtures:
        return "prefect"
    servers = {"clusterdp", "postgresql", "store", "s3", "gs"}
    programs = {"subprocess", "multiprocessing", "browser", "dask"}
    names = set(vars(getattr(item, "module", object)))
    if room in _PROCESSES or fixtures & servers or names & programs:
        return "process"
    return "release" if any(map(_runs, _functions(item))) else "unit"


def _functions(item: pytest.Item) -> Iterator[Callable[..., Any]]:
    """The test's function, and those of the fixtures that it asks for."""
    if isinstance(item, pytest.Function):
        drawn = getattr(item.function, "hypothesis", None)  # it draws examples for another one
        yield getattr(drawn, "inner_test", item.function)
        for found in item._fixtureinfo.name2fixturedefs.values():
            yield found[-1].func


@cache
def _runs(function: object) -> bool:
    """Whether it, or a function of its module that it names, calls a method ``run``.

    That is `Experiment.run`: a release from its log to its file.
    """
    if not isinstance(function, FunctionType):
        return False
    seen: set[str] = set()
    left = [function.__code__]
    while left:
        code = left.pop()
        left += [part for part in code.co_consts if isinstance(part, CodeType)]
        if "run" in code.co_names and any(map(_takes_run, dis.get_instructions(code))):
            return True
        for name in set(code.co_names) - seen:
            known = function.__globals__.get(name)
            if isinstance(known, FunctionType) and known.__module__ == function.__module__:
                left.append(known.__code__)
            seen.add(name)
    return False


def _takes_run(step: dis.Instruction) -> bool:
    """Whether it takes ``run`` of an object, not a function of that name."""
    return step.opname in ("LOAD_ATTR", "LOAD_METHOD") and step.argval == "run"
