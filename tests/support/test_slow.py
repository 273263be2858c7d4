"""The list of slow tests: the dearest functions, until the rest is cheap enough."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.slow import listed, read_costs, slow_ones, spent


def test_the_dearest_a_case_are_slow_until_the_rest_is_cheap(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("5.0 a.py::dear\n0.5 a.py::many[1]\n0.6 a.py::many[a b]\n")
    (tmp_path / "2").write_text("0.5 a.py::many[3]\n2.0 b.py::middle\n0.1 b.py::cheap\n")
    costs = read_costs(tmp_path)
    assert sorted(costs["a.py::many"]) == [0.5, 0.5, 0.6]
    assert slow_ones(costs, [], rest=10.0) == []
    assert slow_ones(costs, [], rest=3.8) == ["a.py::dear"]
    assert slow_ones(costs, [], rest=3.6) == ["a.py::dear", "b.py::middle"]
    assert set(slow_ones(costs, [], rest=0.0)) == set(costs)


def test_what_was_not_run_stays_on_the_list(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("1.0 a.py::one\n")
    assert slow_ones(read_costs(tmp_path), ["b.py::other", "a.py::one"], rest=2.0) == [
        "b.py::other"
    ]


def test_every_listed_function_is_there() -> None:
    root = Path(__file__).parents[2]
    for name in listed():
        path, _, function = name.partition("::")
        assert f"def {function.rpartition('::')[2]}(" in (root / path).read_text(encoding="utf-8")


@pytest.mark.process
def test_programs_that_have_ended_are_among_what_was_spent() -> None:
    before = spent()
    subprocess.run([sys.executable, "-c", "sum(range(20_000_000))"], check=True)
    assert spent() - before > 0.1
