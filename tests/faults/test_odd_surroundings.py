"""Streams that are closed or full, a folder that is gone, an environment full of rubbish."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.runtime.files import private_directory, public_directory
from schemas.errors import InputError
from tests.conftest import Builder, Ran

PROGRAM = f"{shlex.quote(sys.executable)} -m flows.cli"


def shell(folder: Path, command: str, **environment: str) -> Ran:
    """Run a line of shell; ``clusterdp`` in it is the program."""
    ours = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        ["/bin/sh", "-c", command.replace("clusterdp", PROGRAM)],
        cwd=folder,
        env=ours | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def test_closed_streams_swallow_what_is_said_and_nothing_else(experiment: Builder) -> None:
    folder = experiment().folder
    assert shell(folder, "clusterdp check trial.toml >&-") == (0, "", "")
    assert shell(folder, "clusterdp check trial.toml <&- >&- 2>&-") == (0, "", "")
    assert shell(folder, "clusterdp check none.toml 2>&-") == (2, "", "")
    assert sorted(path.name for path in folder.iterdir()) == ["log.parquet", "trial.toml"]


def test_what_cannot_be_written_is_told(experiment: Builder) -> None:
    ended = shell(experiment().folder, "clusterdp check trial.toml > /dev/full")
    assert ended == (1, "", "clusterdp: No space left on device\n")


def test_a_current_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    ended = shell(tmp_path / "gone", 'rmdir "$PWD"; clusterdp check trial.toml')
    told = "clusterdp: the current folder is gone; change to one that is there\n"
    assert ended == (2, "", told)


@pytest.mark.parametrize(
    "environment",
    [
        {"TZ": "no/where"},
        {"LC_ALL": "C"},
        {"LC_ALL": "no_WHERE", "LANG": "?"},
        {"TMPDIR": "/nonexistent"},
        {"HOME": "/nonexistent"},
        {"TERM": "no-terminal", "COLUMNS": "x", "LINES": "-1"},
    ],
    ids=lambda one: next(iter(one)),
)
def test_rubbish_in_the_environment_does_no_harm(
    experiment: Builder, environment: dict[str, str]
) -> None:
    ended = shell(experiment().folder, "clusterdp check trial.toml", **environment)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "nothing was drawn" in ended.stdout


@pytest.mark.parametrize("make", [private_directory, public_directory])
def test_a_folder_that_cannot_be_is_told(tmp_path: Path, make: Callable[[Path], object]) -> None:
    with pytest.raises(InputError, match=r"cannot make this folder \(File name too long\)"):
        make(tmp_path / ("x" * 300) / "y")


def test_a_name_that_is_no_text_is_told(experiment: Builder) -> None:
    ended = shell(experiment().folder, "clusterdp check \"$(printf 'a\\377b.toml')\"")
    assert ended.returncode == 2
    assert ended.stderr.endswith("there is no such file\n")
