"""A test that works for long is named, one that waits is not; what is used says the tier."""

from pathlib import Path

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

tiers.MOST, tiers._TESTS = {"unit": 0.1}, Path(__file__).parent
tiers.listed = lambda: [f"{one.name}::test_slow" for one in tiers._TESTS.glob("test_*.py")]


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


@pytest.mark.parametrize("case", [1, 2])
def test_slow(case):
    work()
"""

TIERS = {
    "unit": {
        "test_works",
        "test_waits",
        "test_works_and_is_first_to_import",
        "test_makes_no_release",
        "test_slow[1]",
        "test_slow[2]",
    },
    "release": {"test_releases_itself", "test_releases_by_a_helper", "test_has_a_release"},
    "statistical": {"test_works_and_says_so"},
    "prefect": {"test_flow"},
    "process": {"test_program"},
}
MARKS = "\n".join(["[pytest]", "markers =", *(f"    {name}" for name in (*TIERS, "slow"))])


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    for name in ("MOST", "_TESTS", "listed"):  # which the suite sets, in workers too
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
    assert names[:2] == ["test_flow", "test_program"]
    assert set(names[-6:]) == TIERS["unit"]


def test_what_is_listed_can_be_left_out(suite: pytest.Pytester) -> None:
    assert collected(suite, "-m", "unit and slow") == ["test_slow[1]", "test_slow[2]"]
    assert len(collected(suite, "-m", "not slow")) == 10


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_test_that_works_for_long_is_named(suite: pytest.Pytester, workers: str) -> None:
    ended = suite.runpytest_inprocess("-n", workers)
    ended.assert_outcomes(passed=12)
    told = [line for line in ended.outlines if " s test_" in line]
    ended.stdout.fnmatch_lines(["*= took long, in seconds of processor time: *"])
    assert [line.rpartition("::")[2] for line in told] == ["test_works"]


@pytest.mark.parametrize(
    ("mark", "test", "has_none"),
    [
        ("process", "", True),
        ("release  # most of them", "", True),
        ("unit", "", False),
        ("usefixtures('way')", "", False),
        ("statistical", "@pytest.mark.unit\n", False),
    ],
)
def test_a_file_of_another_tier_is_not_imported_for_units(
    tmp_path: Path, mark: str, test: str, *, has_none: bool
) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(f"pytestmark = pytest.mark.{mark}\n\n\n{test}def test_it():\n    pass\n")
    assert tiers._says_that_it_has_no_units(path) is has_none
