"""Replications draw with matplotlib, an extra: without it the command says what to install."""

import sys
from pathlib import Path

import pytest

from flows.cli.main import run


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run(["replicate", "efficiency", "--quick", "-o", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert "pip install 'clusterdp[replicate]'" in told.err
    assert list(tmp_path.iterdir()) == []
