"""A fork of the program tells and does what the program does."""

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import Builder
from tests.support import zygote


@pytest.mark.process
@pytest.mark.parametrize(
    "words", [["--help"], ["check", "trial.toml"], ["check", "none.toml", "--json"], ["chek"]]
)
def test_a_fork_ends_as_the_program_does(
    experiment: Builder, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = experiment().folder
    forked = zygote.run_program(words, folder, os.environ)
    monkeypatch.setattr(zygote, "_fork", lambda *_: None)
    assert forked == zygote.run_program(words, folder, os.environ)


@pytest.mark.process
def test_what_is_read_at_a_start_takes_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[object] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        began.append(command)
        return subprocess.CompletedProcess(command, 0)

    zygote.run_program(["--version"], tmp_path, os.environ)  # the server is there
    monkeypatch.setattr(subprocess, "run", run)
    assert zygote.run_program(["--version"], tmp_path, os.environ)[0] == 0
    assert began == []
    zygote.run_program(["--version"], tmp_path, os.environ | {"LC_ALL": "C"})
    assert began == [[sys.executable, "-m", "flows.cli", "--version"]]


@pytest.mark.process
@pytest.mark.parametrize("sent", [0, 100])
def test_a_server_ends_with_who_asks_even_in_the_middle_of_it(sent: int) -> None:
    line, server = zygote.start_server()
    with line, open(os.devnull) as nothing:  # noqa: PTH123 - a file descriptor
        socket.send_fds(line, [(200).to_bytes(4)], [nothing.fileno()] * 3)
        line.sendall(b"?" * sent)
    assert server.wait(zygote.PATIENCE) == 0


@pytest.mark.process
def test_commands_of_several_threads_run_side_by_side(tmp_path: Path) -> None:
    def run(_: int) -> zygote.Ran:
        return zygote.run_program(["--version"], tmp_path, os.environ)

    with ThreadPoolExecutor(3) as pool:
        assert len(set(pool.map(run, range(3)))) == 1
