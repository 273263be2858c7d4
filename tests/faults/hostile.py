"""Releases that somebody else has changed, and every command that reads one."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import pytest

from flows.cli.main import run
from tests.support.own_schema import alter

Change = Callable[[duckdb.DuckDBPyConnection], object]


def changed(sound: Path, folder: Path, change: Change) -> Path:
    """A copy of a sound release, changed through a connection that may write to it."""
    path = folder / "theirs.duckdb"
    shutil.copy(sound, path)
    path.chmod(0o600)
    with duckdb.connect(str(path)) as connection:
        change(connection)
    return path


def said(*statements: str) -> Change:
    """A change by statements of SQL."""

    def change(connection: duckdb.DuckDBPyConnection) -> None:
        for statement in statements:
            alter(connection, statement)

    return change


def commands(release: Path, folder: Path) -> list[list[str]]:
    """The command lines that read a release."""
    segments, covariates = folder / "segments.csv", folder / "covariates.csv"
    segments.write_text("unit_id,segment\n1,a\n2,b\n")
    covariates.write_text("unit_id,x\n1,1.5\n2,2.5\n")
    file = str(release)
    return [
        ["inspect", file],
        ["inspect", file, "--json"],
        ["estimate", file],
        ["estimate", file, "--segments", str(segments)],
        ["estimate", file, "--covariates", str(covariates)],
        ["report", file, "-o", str(folder / "page.html")],
    ]


def refusals(
    release: Path, folder: Path, capsys: pytest.CaptureFixture[str], only: Sequence[str] = ()
) -> list[str]:
    """What each command says as it refuses a release: a line, exit code 2, and nothing written."""
    told = []
    for command in commands(release, folder):
        if only and command[0] not in only:
            continue
        assert run(command) == 2, command
        printed = capsys.readouterr()
        if "--json" in command:
            error = json.loads(printed.out)["error"]
            assert f"clusterdp: {error['message']}\n" == printed.err
        else:
            assert printed.out == ""
        assert printed.err.startswith(f"clusterdp: {release}: "), printed.err
        assert printed.err.count("\n") == 1
        assert "unforeseen" not in printed.err
        assert "Traceback" not in printed.err
        assert printed.err.isprintable() or printed.err[:-1].isprintable()
        told.append(printed.err)
    assert not (folder / "page.html").exists()
    return told
