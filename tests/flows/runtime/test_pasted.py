"""Commands that people are told to run next work in the shell that called the program."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from flows.runtime.pasted import pasted

SAYS = '#!/bin/sh\necho said "$@"\n'
"""A program that stands in for ours."""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in a folder with a blank in its name, below the shell's folder."""
    path = tmp_path / "an environment" / "bin" / "clusterdp"
    path.parent.mkdir(parents=True)
    path.write_text(SAYS, encoding="utf-8")
    path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    monkeypatch.setattr("sys.argv", [str(path.relative_to(tmp_path))])
    return path


def ran(line: str, folder: Path) -> str:
    """What the line answers where it is pasted into a shell in ``folder``."""
    told = subprocess.run(
        ["/bin/sh", "-c", line], cwd=folder, capture_output=True, text=True, check=True
    )
    return told.stdout.removesuffix("\n")


def test_a_program_that_no_path_has_is_called_by_its_own(program: Path, tmp_path: Path) -> None:
    line = pasted("inspect", tmp_path / "the releases" / "latest.duckdb")
    assert line == "'an environment/bin/clusterdp' inspect 'the releases/latest.duckdb'"
    assert ran(line, tmp_path) == "said inspect the releases/latest.duckdb"


def test_a_program_on_the_path_is_called_by_its_name(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    line = pasted("check", tmp_path / "folder" / "a.toml")
    assert line == "clusterdp check folder/a.toml"
    assert ran(line, tmp_path) == "said check folder/a.toml"


def test_another_program_of_the_name_on_the_path_is_not_called(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "elsewhere" / "clusterdp"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho another\n", encoding="utf-8")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{other.parent}{os.pathsep}{os.environ['PATH']}")
    assert ran(pasted("status", tmp_path / "a" / "b.toml"), tmp_path) == "said status a/b.toml"


@pytest.mark.parametrize("shell", ["elsewhere", "gone", None])
def test_paths_are_whole_where_the_shell_may_be_elsewhere(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str | None
) -> None:
    """As under ``make -C``, or where the shell's folder is not told."""
    monkeypatch.delenv("PWD")
    (tmp_path / "elsewhere").mkdir()
    if shell is not None:
        monkeypatch.setenv("PWD", str(tmp_path / shell))
    file = tmp_path / "folder" / "a.toml"
    assert pasted("check", file) == shlex.join([str(program), "check", str(file)])
    assert ran(pasted("check", file), tmp_path / "elsewhere") == f"said check {file}"


def test_files_of_other_folders_and_those_like_options_are_named_whole(
    program: Path, tmp_path: Path
) -> None:
    assert pasted("check", Path("/a/b.toml")).endswith(" check /a/b.toml")
    assert pasted("check", tmp_path / "-o").endswith(f" check {tmp_path}/-o")
    assert pasted("check", tmp_path / "a.toml").endswith(" check a.toml")


def test_a_program_in_the_shells_folder_is_called_there(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(program.parent)
    monkeypatch.setenv("PWD", str(program.parent))
    monkeypatch.setattr("sys.argv", ["./clusterdp"])
    assert ran(pasted("check", program.parent / "a.toml"), program.parent) == "said check a.toml"
