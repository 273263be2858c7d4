"""A unit test that works for long is named, one that waits is not; what is used says the tier."""

import pytest

from tests.support import tiers

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.process  # whole runs of pytest, which work for long

SUITE = """
import types
from pathlib import Path
import pytest
from tests.support import tiers
from tests.support.tiers import into_tiers, pytest_pyfunc_call, pytest_terminal_summary

tiers.MOST, tiers._TESTS = 0.1, Path(__file__).parent


def pytest_collection_modifyitems(items):
    into_tiers(items)


@pytest.fixture
def experiment():
    return types.SimpleNamespace(run=lambda: None)


@pytest.fixture
def released(experiment):
    return experiment.run()


@pytest.fixture
def prefect_harness():
    pass


@pytest.fixture
def clusterdp():
    pass
"""

TESTS = """
import sys, time, types
import pytest


def work():
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass


def helper(experiment):
    return [experiment.run() for _ in range(2)]


def test_works():
    work()


def test_waits():
    time.sleep(0.4)


def test_works_and_is_first_to_import():
    work()
    sys.modules["of its own"] = types.ModuleType("of its own")


@pytest.mark.statistical
def test_works_and_says_so():
    work()


def test_releases_itself(experiment):
    experiment.run()


def test_releases_by_a_helper(experiment):
    helper(experiment)


def test_has_a_release(released):
    pass


def test_makes_no_release(experiment):
    pass


def test_flow(prefect_harness):
    pass


def test_program(clusterdp):
    pass


@pytest.mark.slow
def test_slow():
    pass
"""

TIERS = {
    "unit": {
        "test_works",
        "test_waits",
        "test_works_and_is_first_to_import",
        "test_makes_no_release",
    },
    "release": {"test_releases_itself", "test_releases_by_a_helper", "test_has_a_release"},
    "statistical": {"test_works_and_says_so"},
    "prefect": {"test_flow"},
    "process": {"test_program", "test_slow"},
}
MARKS = "\n".join(["[pytest]", "markers =", *(f"    {name}" for name in (*TIERS, "slow"))])


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    for name in ("MOST", "_TESTS"):  # which the suite sets, in workers too
        monkeypatch.setattr(tiers, name, getattr(tiers, name))
    pytester.makeconftest(SUITE)
    pytester.makepyfile(TESTS)
    pytester.makeini(MARKS)
    return pytester


def collected(suite: pytest.Pytester, *arguments: str) -> list[str]:
    told = suite.runpytest_inprocess("--collect-only", "-q", *arguments).outlines
    return [line.rpartition("::")[2] for line in told if "::" in line]


@pytest.mark.parametrize("tier", TIERS)
def test_what_a_test_uses_says_its_tier(suite: pytest.Pytester, tier: str) -> None:
    assert set(collected(suite, "-m", tier)) == TIERS[tier]


def test_what_takes_long_comes_first(suite: pytest.Pytester) -> None:
    names = collected(suite)
    assert names[:3] == ["test_flow", "test_slow", "test_program"]
    assert set(names[-4:]) == TIERS["unit"]


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_unit_test_that_works_for_long_is_named(suite: pytest.Pytester, workers: str) -> None:
    ended = suite.runpytest_inprocess("-n", workers)
    ended.assert_outcomes(passed=11)
    told = [line for line in ended.outlines if " s test_" in line]
    ended.stdout.fnmatch_lines(["*= unit tests of more than 0.1 s of processor time =*"])
    assert [line.rpartition("::")[2] for line in told] == ["test_works"]
