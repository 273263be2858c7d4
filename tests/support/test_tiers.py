"""A unit test that works for long fails, one that waits does not; what is used says the tier."""

import pytest

from tests.support import tiers

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.process  # whole runs of pytest, which work for long

SUITE = """
import types
import pytest
from tests.support.tiers import into_tiers, pytest_pyfunc_call


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
    monkeypatch.setattr(tiers, "MOST", 0.1)
    monkeypatch.setattr(tiers, "_slowness", lambda: 1.0)
    monkeypatch.setattr(tiers, "_crowding", lambda: 1.0)
    monkeypatch.setattr(tiers, "_TESTS", pytester.path)
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


def test_a_unit_test_that_works_for_long_fails(suite: pytest.Pytester) -> None:
    ended = suite.runpytest_inprocess()
    ended.assert_outcomes(passed=10, failed=1)
    ended.stdout.fnmatch_lines(["took * s of processor time, and a unit test has 0.1 s: *"])
    ended.stdout.fnmatch_lines(["FAILED *::test_works - *"])


@pytest.mark.parametrize("reason", ["_slowness", "_crowding"])
def test_a_slow_or_crowded_machine_is_not_the_tests_fault(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    monkeypatch.setattr(tiers, reason, lambda: 10.0)
    suite.runpytest_inprocess().assert_outcomes(passed=11)
