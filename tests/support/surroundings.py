"""Fixtures for the surroundings of a run, loaded by ``tests/conftest.py``."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from tests.conftest import Ran
from tests.support.spilling import Spilled, note_spilled

if TYPE_CHECKING:
    from tests.boundary.watched import Watch


@pytest.fixture
def watch(
    prefect_harness: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> Iterator["Watch"]:
    """Watch all that a run leaves and says."""
    from tests.boundary.watched import watching  # noqa: PLC0415 - costs a unit test too much

    yield from watching(prefect_harness, tmp_path / "temporary", monkeypatch, capfd, caplog)


@pytest.fixture
def spilled(monkeypatch: pytest.MonkeyPatch) -> list[Spilled]:
    """Note the files of rows that runs write into their workspaces."""
    return note_spilled(monkeypatch)


class Command(Protocol):
    """What the fixture ``command`` gives."""

    def __call__(self, *arguments: str | Path, debug: bool = False) -> Ran:
        """Run a command of the program in this process."""


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    from flows.cli.main import run  # noqa: PLC0415 - costs a unit test too much

    def call(*arguments: str | Path, debug: bool = False) -> Ran:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments], debug=debug)
        told = capsys.readouterr()
        return Ran(code, told.out, told.err)

    return call
