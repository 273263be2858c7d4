"""Killed at any moment: nothing half under a public name, and the next run finishes the job.

Two sweeps. A whole run is killed at places within its steps and between them. Where files get
their names, the same act is repeated and killed one call of the operating system later each time,
until one comes through.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.files import replace_file
from flows.release import release
from flows.released.draft import LATEST, drafting, published
from flows.released.read import read_release
from schemas.errors import ConflictError
from tests.conftest import Builder, Experiment, a_log, build_experiment, released, rows

# A process of its own, in which a child is forked for every death; it says how each ended.
HEAD = """
import importlib, json, os, signal, sys
from pathlib import Path

FOLDER, *PLACES = sys.argv[1:]


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def ended(act, *given):
    child = os.fork()
    if child == 0:
        act(*given)
        os._exit(0)
    return -os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""

AT_PLACES = """
from flows.release import release


def run(config, place):
    when, _, name = place.partition(" ")
    module, _, name = name.rpartition(".")
    original = getattr(importlib.import_module(module), name)

    def act_and_die(*given, **named):
        if when == "after":
            original(*given, **named)
        die()

    setattr(importlib.import_module(module), name, act_and_die)
    release.fn(config, "b", False)


ends = [ended(run, f"{FOLDER}/{i}/trial.toml", place) for i, place in enumerate(PLACES)]
print(json.dumps(ends))
"""

BEFORE_CALLS = """
import io

from flows.files import replace_file
from flows.released.draft import drafting


def die_before_call(number):
    left = [number]

    def hook(frame, event, called):
        if event == "c_call" and asks_the_system(called):
            left[0] -= 1
            if left[0] < 0:
                die()

    sys.setprofile(hook)


def asks_the_system(called):
    of_a_file = isinstance(getattr(called, "__self__", None), io.IOBase)
    return of_a_file or called.__module__ in ("posix", "io", "_io", "fcntl")


def publish(folder, number):
    die_before_call(number)
    with drafting(folder, "trial", "b", revise=False) as draft:
        draft.working.write_text("whole")


def replace(folder, number):
    die_before_call(number)
    with replace_file(folder / "file", mode=0o600) as file:
        file.write(b"new")


ends = []
while 0 not in ends:
    ends.append(ended(globals()[PLACES[0]], Path(FOLDER) / str(len(ends)), len(ends)))
print(json.dumps(ends))
"""


def ends_of(script: str, folder: Path, *places: str) -> list[int]:
    """Let one act be killed in each folder; by which signal each ended, 0 where it came through."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + script, str(folder), *places],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ends: list[int] = json.loads(done.stdout.splitlines()[-1])
    return ends


# whole runs

PLACES = [
    "before flows.release.ingest",
    "before os.fsync",  # while it writes the quarantine
    "after flows.raw.validate._keep_aside",
    "before flows.raw.privatize.stochastic_levels",
    "after flows.released.publish._insert",
    "after flows.released.estimate.add_estimates",
    "before os.link",
    "after os.link",
    "before flows.released.draft.point_latest",
    "after flows.released.draft.point_latest",
]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Experiment]:
    """Experiments that have released a period already, each killed in the next at one place."""
    original = build_experiment(
        tmp_path_factory.mktemp("killed") / "original",
        rows(*a_log(60).rows(), ("x", "fax", "east", 1.0)),
    )
    original.run("a")
    copies = tmp_path_factory.mktemp("copies")
    for i in range(len(PLACES)):  # by links, as latest is a link to its release
        shutil.copytree(original.folder, copies / str(i), copy_function=os.link)
    assert ends_of(AT_PLACES, copies, *PLACES) == [signal.SIGKILL] * len(PLACES)
    return {place: Experiment(copies / str(i) / "trial.toml") for i, place in enumerate(PLACES)}


@pytest.mark.parametrize("place", PLACES)
def test_a_run_that_is_killed_leaves_nothing_half_and_the_next_finishes_the_job(
    killed: dict[str, Experiment], place: str
) -> None:
    built = killed[place]
    assert_nothing_is_half(built)
    if (built.releases / "trial.b.r1.duckdb").exists():
        with pytest.raises(ConflictError, match=r"published already, as trial\.b\.r1"):
            built.run("b")
    else:
        assert built.run("b").release_id == "trial.b.r1"
    names = [LATEST, "trial.a.r1.duckdb", "trial.b.r1.duckdb"]
    assert sorted(path.name for path in built.releases.iterdir()) == names
    assert released(built.releases / LATEST, "release")["period"].to_list() == ["b"]
    assert_nothing_is_half(built)


def assert_nothing_is_half(built: Experiment) -> None:
    """Whatever has a public name is whole, whether or not anybody has cleaned up."""
    for path in built.releases.glob("*.duckdb"):
        found = read_release(path)
        assert found.row_counts["units"] == found.manifest.n_units == 60
        assert found.row_counts["estimates"] == 1
        assert path.stat().st_mode & 0o777 == 0o444
    for path in built.quarantine.glob("*.parquet"):
        assert pl.read_parquet(path).height == 1


def test_the_next_run_leaves_nothing_of_a_killed_one_in_the_quarantine(
    killed: dict[str, Experiment],
) -> None:
    built = killed["before os.fsync"]
    built.run("b", revise=True)
    assert [path.name for path in built.quarantine.iterdir() if path.name[0] == "."] == []


def test_a_run_that_is_interrupted_cleans_up_at_once(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    built = experiment()
    monkeypatch.setattr("flows.released.publish._insert", interrupt)
    with pytest.raises(KeyboardInterrupt):
        release.fn(str(built.config))
    assert not built.releases.exists()


# one call after another

MOST_CALLS = 300
"""More than an act makes, so that one comes through."""


def calls_of(act: str, folder: Path) -> int:
    """Kill an act before each call that it makes; how many these are."""
    ends = ends_of(BEFORE_CALLS, folder, act)
    assert ends == [signal.SIGKILL] * (len(ends) - 1) + [0]
    return len(ends) - 1


@pytest.mark.parametrize("earlier", [True, False], ids=["a later release", "the first release"])
def test_publishing_that_is_killed_before_any_call_leaves_nothing_half(
    tmp_path: Path, *, earlier: bool
) -> None:
    folders = [tmp_path / str(i) for i in range(MOST_CALLS)]
    for folder in folders if earlier else []:
        with drafting(folder, "trial", "a", revise=False) as draft:
            draft.working.write_text("earlier")
    calls = calls_of("publish", tmp_path)
    assert calls > 20
    for folder in folders[: calls + 1]:
        assert_publishing_can_be_finished(folder, earlier=earlier)


def assert_publishing_can_be_finished(folder: Path, *, earlier: bool) -> None:
    first = {"trial.a.r1.duckdb": "earlier"} if earlier else {}
    both = first | {"trial.b.r1.duckdb": "whole"}
    before = contents(folder)
    latest = before.pop(LATEST, None)
    assert before in (first, both)
    assert latest in (before.values() if earlier else {*before.values(), None})
    try:
        with drafting(folder, "trial", "b", revise=False) as draft:
            draft.working.write_text("whole")
    except ConflictError:
        assert before == both
    else:
        assert before == first
    assert contents(folder) == both | {LATEST: "whole"}
    assert len(list(folder.iterdir())) == len(both) + 1  # no working folder, no half of latest
    assert published(folder, "trial")[-1].period == "b"


def contents(folder: Path) -> dict[str, str]:
    """What stands under a public name."""
    return {path.name: path.read_text() for path in folder.glob("*.duckdb")}


def test_replacing_a_file_that_is_killed_before_any_call_leaves_the_old_or_the_new(
    tmp_path: Path,
) -> None:
    folders = [tmp_path / str(i) for i in range(MOST_CALLS)]
    for folder in folders:
        folder.mkdir()
        (folder / "file").write_text("old")
    calls = calls_of("replace", tmp_path)
    assert calls > 5
    left = [(folder / "file").read_text() for folder in folders[: calls + 1]]
    assert left[0] == "old"
    assert set(left) == {"old", "new"}
    assert left == sorted(left, reverse=True)  # once it is new it stays so
    with replace_file(folders[0] / "file", mode=0o600) as file:
        file.write(b"newer")
    assert (folders[0] / "file").read_text() == "newer"
