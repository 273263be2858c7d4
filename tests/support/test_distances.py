"""Distances: what passes, what is noted, what is shown; and the record has none to one side."""

from pathlib import Path

import numpy as np
import pytest

from tests.support import distances
from tests.support.distances import (
    ALARM,
    RECORD,
    assert_between,
    assert_near,
    assert_p_value,
    distance,
    false_alarm,
    farthest,
    one_sided,
    read_record,
    write_record,
)

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def noted(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Notes of this file's own, which are those of no statistical test."""
    own: list[float] = []
    monkeypatch.setattr(distances, "_noted", own)
    return own


def test_what_is_near_passes_and_what_is_far_fails_in_plain_words(noted: list[float]) -> None:
    assert_near(1.0, 0.0, 0.25, within=4.5)
    with pytest.raises(AssertionError, match=r"found 1.0 where 0.0 is expected.*5.0 of them off"):
        assert_near(1.0, 0.0, 0.2, within=4.5)
    with pytest.raises(AssertionError):
        assert_near(np.array([0.0, -1.0]), 0.0, np.array([0.1, 0.2]), within=4.5)
    assert noted == [4.0, 5.0, 0.0, -5.0]


def test_what_is_no_number_fails() -> None:
    for found, error in ((np.nan, 1.0), (0.0, np.nan), (1.0, 0.0)):
        with pytest.raises(AssertionError):
            assert_near(found, 1.0 if error == 1.0 else 0.5, error, within=4.5)
    with pytest.raises(AssertionError):
        assert_between(np.nan, (0.0, 1.0), 0.5, 0.1)
    with pytest.raises(AssertionError):
        assert_p_value(np.nan, 1e-6)


def test_of_a_range_only_what_is_outside_is_a_distance(noted: list[float]) -> None:
    assert_between(np.array([0.93, 0.96, 1.0]), (0.92, np.inf), (0.95, 1.0), 0.01)
    with pytest.raises(AssertionError, match=r"where 0\.935 to inf is allowed"):
        assert_between(0.93, (0.935, np.inf), (0.95, 1.0), 0.01)
    assert noted == pytest.approx([-2.0, 0.0, 0.0, -2.0])


def test_a_p_value_is_the_normal_with_as_much_above_it(noted: list[float]) -> None:
    assert_p_value(np.array([0.5, 0.025, 0.975, 0.0227501]), 1e-6)
    assert_p_value(0.975, 1e-6, is_bound=True)
    for p_value in (1e-7, 0.0):
        with pytest.raises(AssertionError, match=r"where 1e-06 to 1\.0 is allowed"):
            assert_p_value(p_value, 1e-6)
    with pytest.raises(AssertionError):
        assert_p_value(1 - 1e-7, 1e-6, most=1 - 1e-6)
    assert noted[:5] == pytest.approx([0.0, 1.959964, -1.959964, 2.0, 0.0], abs=1e-5)


def test_false_alarms_are_as_stated() -> None:
    for within, stated in ((4.0, 6e-5), (4.5, 7e-6), (5.0, 6e-7)):
        assert false_alarm(within) == pytest.approx(stated, rel=0.1)


def test_a_distance_for_what_is_broken_on_purpose_is_noted_nowhere(noted: list[float]) -> None:
    assert distance(3.0, (0.0, 1.0), 0.5) == 4.0
    assert not noted


RUN = """
import pytest
from tests.support.distances import assert_near


@pytest.mark.parametrize("case", range(32))
def test_far(case):
    assert_near(case / 8.0, 0.0, 1.0, within=3.8)
"""


@pytest.mark.process
@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_run_ends_with_the_farthest(pytester: pytest.Pytester, workers: str) -> None:
    """Those of tests that fail, too; what is as expected is none."""
    pytester.makepyfile(RUN)
    found = pytester.runpytest_subprocess("-p", "tests.support.distances", "-n", workers)
    found.assert_outcomes(passed=31, failed=1)
    found.stdout.fnmatch_lines(["*farthest of 31 distances*", "+3.88 (of normals: 2.29) *far?31?"])


def test_with_other_seeds_generators_draw_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = np.random.default_rng
    monkeypatch.setattr(np.random, "default_rng", honest)
    distances._with_other_seeds(3)
    found = np.random.default_rng(7)
    assert found.random() == honest([7, 3]).random() != honest(7).random()
    assert np.random.default_rng(found) is found


def test_the_farthest_are_shown_beside_those_of_normals() -> None:
    """The greatest of 1,000: its median is 3.39, the second's 3.14."""
    found = [(0.1, "near")] * 998 + [(-3.9, "far"), (3.5, "next")]
    first, second, *_ = farthest(found)
    assert first == "-3.90 (of normals: 3.39) far"
    assert second.startswith("+3.50 (of normals: 3.1")


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = {("a.py::b[x, 1]", 0): [0.25, -1.5], ("a.py::b[x, 1]", 1): [3.0]}
    write_record(tmp_path / "some.csv", record)
    assert read_record(tmp_path / "some.csv") == record


def test_ten_distances_to_one_side_are_found_and_ten_of_a_seed_count_once() -> None:
    random = np.random.default_rng(1)
    record = {("t", at): random.standard_normal(10).tolist() for at in range(300)}
    assert one_sided(record, ALARM) == []
    assert one_sided({**record, ("seeded", 0): [2.0] * 10}, ALARM) == []
    biased = {**record, ("biased", 0): (random.standard_normal(10) - 2.5).tolist()}
    assert [line.split()[0] for line in one_sided(biased, ALARM)] == ["biased"]


def test_the_record_has_no_test_whose_distances_lie_to_one_side() -> None:
    """A record of sound tests fails here once in 10,000 times that it is made anew (Bonferroni).

    Made by ``python -m tests.support.distances``, with other seeds in each of ten runs.
    """
    assert one_sided(read_record(RECORD), ALARM) == []


def test_tests_of_the_record_are_there() -> None:
    root = Path(__file__).parents[2]
    for name in {name.partition("[")[0] for name, _ in read_record(RECORD)}:
        path, _, function = name.partition("::")
        assert f"def {function}(" in (root / path).read_text(encoding="utf-8"), name
