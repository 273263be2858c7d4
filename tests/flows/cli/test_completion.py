"""What a shell offers once completion is installed: commands, options, and files that fit."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from flows.cli.options import files
from tests.conftest import PATIENCE

PROGRAMS = str(Path(sys.executable).parent)

ASK = """
set -e
eval "$(clusterdp --show-completion)"
complete -p clusterdp >/dev/null
COMP_WORDS=({words}); COMP_CWORD={last}
_clusterdp_completion clusterdp
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An analyst's folder."""
    for name in ("autumn.toml", "notes.txt", ".hidden.toml", "log.csv", "odd $(name).toml"):
        (tmp_path / name).touch()
    releases = tmp_path / "releases" / "autumn"
    releases.mkdir(parents=True)
    for name in ("latest.duckdb", "autumn.2026-11-20.r1.duckdb", "SHA256SUMS"):
        (releases / name).touch()
    return tmp_path


def bash(folder: Path, script: str) -> str:
    done = subprocess.run(
        ["/usr/bin/env", "bash", "--norc", "-c", f"{script}\ntrue"],
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "PATH": f"{PROGRAMS}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ins"], {"inspect"}),
        (["re"], {"release", "report", "replicate", "restore"}),
        (["release", "--re"], {"--revise"}),
        (["inspect", "rel"], {
            "releases/autumn/autumn.2026-11-20.r1.duckdb",
            "releases/autumn/latest.duckdb",
        }),
        (["check", ""], {"autumn.toml", "releases/"}),
        (["replicate", "m"], {"multisite"}),
    ],
)  # fmt: skip
def test_bash_completes(folder: Path, words: list[str], expected: set[str]) -> None:
    asked = " ".join(shlex.quote(word) for word in ("clusterdp", *words))
    assert set(bash(folder, ASK.format(words=asked, last=len(words))).splitlines()) == expected


def test_completion_is_installed_for_the_shell_it_is_run_from(folder: Path) -> None:
    assert "bash completion installed" in bash(folder, "clusterdp --install-completion")
    assert ".bash_completions/clusterdp.sh" in (folder / ".bashrc").read_text(encoding="utf-8")
    asked = ASK.replace('eval "$(clusterdp --show-completion)"', "source ~/.bashrc")
    assert bash(folder, asked.format(words="clusterdp aud", last=1)) == "audit\n"


@pytest.mark.parametrize(
    ("shell", "line", "expected"),
    [
        ("zsh", "clusterdp inspect rel", "releases/autumn/latest.duckdb"),
        ("zsh", "clusterdp --", "--install-completion"),
        ("fish", "clusterdp inspect rel", "releases/autumn/latest.duckdb"),
        ("fish", "clusterdp hash", "hash-ids\t"),
    ],
)
def test_other_shells_are_answered(folder: Path, shell: str, line: str, expected: str) -> None:
    """As their scripts ask; neither shell has to be there."""
    asked = {
        "_CLUSTERDP_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = subprocess.run(
        [f"{PROGRAMS}/clusterdp"],
        cwd=folder,
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert expected in done.stdout
    assert "SHA256SUMS" not in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("incomplete", "expected"),
    [
        ("", ["autumn.toml", "releases/"]),
        ("a", ["autumn.toml"]),
        ("./a", ["./autumn.toml"]),
        (".h", [".hidden.toml"]),
        ("rel", ["releases/autumn/"]),  # no file fits there; a shell offers what there is
        ("odd", []),  # nothing that a shell could run
        ("no-such-folder/", []),
        ("~nobody-of-this-name/", []),
    ],
)
def test_files_are_found_folder_by_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, incomplete: str, expected: list[str]
) -> None:
    monkeypatch.chdir(folder)
    assert files(".toml")(None, incomplete) == expected  # type: ignore[arg-type]


def test_a_home_folder_stays_as_it_was_typed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    assert files(".toml")(None, "~/a") == ["~/autumn.toml"]  # type: ignore[arg-type]
    assert files(".toml")(None, f"{folder}/a") == [f"{folder}/autumn.toml"]  # type: ignore[arg-type]
