"""How far long work has come: a line on a terminal alone, per cent alone for Prefect."""

import json
import logging
import os
import pty
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect import flow
from prefect.client.orchestration import get_client

from flows.deployed import release
from flows.raw.reading import sources
from flows.runtime import progress
from flows.runtime.progress import Progress, _duration
from tests.conftest import PATIENCE, Builder, a_log, build_experiment

AWAY = "\r\x1b[K"
"""Takes the line of a terminal away."""

SHOWN = re.compile(r"(.+): ([\d,]+) rows, ([\d,]+) a second(?:, (\d+)%, (.+) left)?")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """All work is long."""
    monkeypatch.setattr(progress, "_QUIET", -1.0)
    monkeypatch.setattr(progress, "_EVERY", -1.0)
    monkeypatch.setenv("TERM", "xterm")


class Terminal:
    """A pseudo-terminal in place of standard error."""

    def __init__(self) -> None:
        self._above, below = pty.openpty()
        self.file = os.fdopen(below, "w")

    @contextmanager
    def instead(self) -> Iterator[None]:
        """Let this process write to it."""
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(sys, "stderr", self.file)
            yield

    def seen(self) -> str:
        """Everything that was written, once nothing more will be."""
        self.file.close()
        found = b""
        while True:
            try:
                more = os.read(self._above, 1 << 16)
            except OSError:  # the end, on Linux
                break
            if not more:
                break
            found += more
        os.close(self._above)
        return found.decode()


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


def lines(seen: str) -> list[str]:
    """What stood on the terminal, one after the other."""
    return [line for line in seen.split(AWAY) if line]


def work(total: int | None, *steps: int) -> None:
    with Progress("counting", total) as done:
        for rows in steps:
            done.advance(rows)


# on a terminal


@pytest.mark.usefixtures("impatient")
def test_rows_rate_per_cent_and_time_left_are_shown(terminal: Terminal) -> None:
    with terminal.instead():
        work(2000, 500, 700, 800)
    seen = terminal.seen()
    found = [SHOWN.fullmatch(line) for line in lines(seen)]
    assert [match and match.group(1, 2, 4) for match in found] == [
        ("counting", "500", "25"),
        ("counting", "1,200", "60"),
        ("counting", "2,000", "100"),
    ]
    assert seen.endswith(AWAY)  # nothing stays


@pytest.mark.usefixtures("impatient")
def test_without_a_total_there_is_no_time_left(terminal: Terminal) -> None:
    with terminal.instead():
        work(None, 500)
    (match,) = (SHOWN.fullmatch(line) for line in lines(terminal.seen()))
    assert match is not None
    assert match.group(2, 4, 5) == ("500", None, None)


@pytest.mark.usefixtures("impatient")
def test_the_line_is_taken_away_after_a_failure_too(terminal: Terminal) -> None:
    def fail() -> None:
        with Progress("counting", 10) as done:
            done.advance(5)
            raise RuntimeError

    with terminal.instead(), pytest.raises(RuntimeError):
        fail()
    assert terminal.seen().endswith(AWAY)


def test_short_work_is_not_told_of(terminal: Terminal) -> None:
    with terminal.instead():
        work(10, *[1] * 10)
    assert terminal.seen() == ""


def test_lines_come_a_few_times_a_second(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("flows.runtime.progress.time.monotonic", lambda: clock[0])
    monkeypatch.setenv("TERM", "xterm")
    with terminal.instead(), Progress("counting", 1000) as done:
        for _ in range(1000):  # of 10 ms each
            clock[0] += 0.01
            done.advance(1)
    found = lines(terminal.seen())
    assert 40 <= len(found) <= 46  # in the nine seconds after the first
    assert re.fullmatch(r"counting: 10\d rows, 100 a second, 10%, 9 s left", found[0])


@pytest.mark.parametrize(
    ("done", "total", "seconds", "expected"),
    [
        (0, 10, 2, "reading: 0 rows, 0 a second"),
        (0, None, 0, "reading: 0 rows, 0 a second"),
        (5, 0, 1, "reading: 5 rows, 5 a second"),
        (1_500_000, 6_000_000, 3, "reading: 1,500,000 rows, 500,000 a second, 25%, 9 s left"),
        (12, 10, 2, "reading: 12 rows, 6 a second, 100%, 0 s left"),  # an estimate was too low
    ],
)
def test_the_line_says_what_is_known(
    done: int, total: int | None, seconds: float, expected: str
) -> None:
    told = Progress("reading", total)
    told.advance(done)
    assert told.line(seconds) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.2, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (61, "1 min 01 s"),
        (3599.6, "1 h 00 min"),
        (7384, "2 h 03 min"),
        (90_000, "25 h 00 min"),
    ],
)
def test_times_are_told_as_people_tell_them(seconds: float, expected: str) -> None:
    assert _duration(seconds) == expected


@pytest.mark.usefixtures("impatient")
def test_without_a_terminal_nothing_is_written(capfd: pytest.CaptureFixture[str]) -> None:
    work(10, 5, 5)
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("impatient")
def test_a_terminal_that_cannot_take_a_line_away_is_left_alone(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with terminal.instead():
        work(10, 5, 5)
        with progress.waiting("clusterdp audit"):
            time.sleep(0.05)
    assert terminal.seen() == ""


@pytest.mark.usefixtures("impatient")
def test_a_line_is_cut_where_the_terminal_ends(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would go on below, where it is never taken away."""
    monkeypatch.setenv("COLUMNS", "25")
    with terminal.instead():
        work(2000, 500)
    assert [len(line) for line in lines(terminal.seen())] == [24]


# how long a command has worked


@pytest.fixture
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """All commands are long."""
    monkeypatch.setattr(progress, "_PATIENCE", -1.0)
    monkeypatch.setattr(progress, "_TICK", 0.01)
    monkeypatch.setenv("TERM", "xterm")


def until(there: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not there():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.usefixtures("restless")
def test_the_time_is_shown_while_nothing_else_is(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    with terminal.instead():
        told: list[str] = []
        monkeypatch.setattr(terminal.file, "write", told.append, raising=False)
        with progress.waiting("clusterdp audit"):
            until(lambda: len(told) > 2)
    assert set(told[:-1]) == {f"{AWAY}clusterdp audit: 0 s"}
    assert told[-1] == AWAY  # nothing stays
    terminal.seen()


@pytest.mark.usefixtures("restless", "impatient")
def test_other_progress_goes_before_the_time(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_TICK", 0.01)
    monkeypatch.setattr(progress, "_PATIENCE", PATIENCE)
    with terminal.instead(), progress.waiting("clusterdp plan"), Progress("counting") as done:
        time.sleep(0.05)
        done.advance(3)
        time.sleep(0.05)
    seen = terminal.seen()
    assert "counting: 3 rows" in seen
    assert "clusterdp plan" not in seen


@pytest.mark.usefixtures("restless")
def test_a_log_is_written_above_the_line(terminal: Terminal) -> None:
    with terminal.instead():
        progress._line.show("working")
        handler = progress.LineHandler()
        handler.emit(logging.LogRecord("x", logging.INFO, "x", 1, "validated", (), None))
        handler.emit(logging.LogRecord("x", logging.INFO, "x", 1, "drawn", (), None))
    assert terminal.seen().replace("\r\n", "\n") == f"{AWAY}working{AWAY}validated\ndrawn\n"


@pytest.mark.usefixtures("restless")
def test_without_a_terminal_no_time_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    with progress.waiting("clusterdp audit"):
        time.sleep(0.05)
    assert capfd.readouterr() == ("", "")


# whole commands

RUN = """
from flows.runtime import progress
from flows.cli.main import main
from flows.raw.reading import sources
progress._QUIET = progress._EVERY = -1.0
sources.BATCH = 100
main()
"""


def command(folder: Path, error: Any, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        env=os.environ | {"TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=error,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_a_command_shows_its_progress_on_a_terminal_alone(tmp_path: Path) -> None:
    built = build_experiment(tmp_path / "experiment", a_log(400))
    arguments = ("check", str(built.config), "--json")
    terminal = Terminal()
    done = command(tmp_path, terminal.file, *arguments)
    seen = terminal.seen()
    assert done.returncode == 0, seen
    found = {match.group(1) for line in lines(seen) if (match := SHOWN.match(line))}
    assert found >= {"reading the log", "ordering units"}
    assert "reading the log: 400 rows" in seen
    assert json.loads(done.stdout)["n_units"] == 400  # nothing else is there

    quiet = command(tmp_path, subprocess.PIPE, *arguments)
    assert quiet.returncode == 0
    assert not SHOWN.search(quiet.stderr)
    assert "\x1b" not in quiet.stderr
    assert json.loads(quiet.stdout)["n_units"] == 400


# for Prefect


@pytest.fixture
def told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_ARTIFACT_QUIET", -1.0)
    monkeypatch.setattr(progress, "_ARTIFACT_EVERY", -1.0)


Artifacts = Callable[[UUID | None], dict[str, dict[str, Any]]]


@pytest.fixture
def artifacts(prefect_harness: Path) -> Iterator[Artifacts]:
    """Gives a function that finds what a flow run's artifacts are in Prefect's database, by key."""
    with closing(sqlite3.connect(next(prefect_harness.glob("*.db")))) as connection:
        connection.row_factory = sqlite3.Row

        def of(run_id: UUID | None) -> dict[str, dict[str, Any]]:
            assert run_id is not None
            query = "SELECT * FROM artifact WHERE flow_run_id IN (?, ?)"
            found = connection.execute(query, (str(run_id), run_id.hex)).fetchall()
            return {row["key"]: {**row, "data": json.loads(str(row["data"]))} for row in found}

        yield of


@pytest.mark.usefixtures("told_at_once")
def test_prefect_is_told_per_cent_and_no_counts(
    experiment: Builder, artifacts: Artifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "BATCH", 311)
    built = experiment(a_log(1234))
    state = release(str(built.config), return_state=True)
    assert state.is_completed()
    found = artifacts(state.state_details.flow_run_id)
    assert found.keys() >= {
        "clusterdp-reading-the-log",
        "clusterdp-ordering-units",
        "clusterdp-recognising-the-rows",
        "clusterdp-counting",
        "clusterdp-randomising-and-writing",
    }
    assert found.pop("clusterdp-trial")["type"] == "table"  # effects, which are published
    for key, row in found.items():
        assert row["type"] == "progress"
        assert row["data"] == 100
        assert row["description"] == key.removeprefix("clusterdp-").replace("-", " ")
        told = {name: row[name] for name in ("key", "data", "description", "metadata_")}
        assert not re.search(r"\d", json.dumps(told).replace("100", ""))


@pytest.mark.usefixtures("told_at_once")
def test_work_in_another_thread_is_told_of_too(artifacts: Artifacts) -> None:
    """A release's rows are made in a thread of DuckDB's, while it writes them."""

    @flow
    def works() -> None:
        with Progress("writing elsewhere", 400) as done:
            thread = threading.Thread(target=done.advance, args=(100,))
            thread.start()
            thread.join()
            raise RuntimeError  # else the end would say 100

    state = works(return_state=True)
    found = artifacts(state.state_details.flow_run_id)
    assert found["clusterdp-writing-elsewhere"]["data"] == 25


@pytest.mark.usefixtures("told_at_once")
def test_of_unknown_length_prefect_is_told_nothing(artifacts: Artifacts) -> None:
    @flow
    def works() -> int:
        work(None, 100, 100)
        return 1

    assert artifacts(works(return_state=True).state_details.flow_run_id) == {}


@pytest.mark.usefixtures("told_at_once")
def test_prefects_troubles_stop_nothing(
    monkeypatch: pytest.MonkeyPatch, prefect_harness: Path
) -> None:
    calls = []

    def fail(**_: object) -> None:
        calls.append(1)
        raise ConnectionError

    monkeypatch.setattr("prefect.artifacts.create_progress_artifact", fail)

    @flow
    def works() -> int:
        work(200, 100, 100)
        return 1

    assert works() == 1
    assert len(calls) == 2


@pytest.mark.usefixtures("told_at_once")
def test_outside_a_flow_prefect_is_told_nothing(prefect_harness: Path) -> None:
    with get_client(sync_client=True) as client:
        before = len(client.read_artifacts())
        work(200, 100, 100)
        assert len(client.read_artifacts()) == before
