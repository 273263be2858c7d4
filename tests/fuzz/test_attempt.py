"""The fuzzing finds what it is there to find: planted faults, each of a kind."""

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import polars as pl
import pytest

from flows.cli.main import run
from flows.raw.reading import columns
from schemas.errors import InputError
from tests.fuzz import soak
from tests.fuzz.attempt import Problem, problems
from tests.fuzz.bases import SECTIONS, base
from tests.fuzz.case import CANARY, DIGITS, ODD, Case, Remade
from tests.fuzz.chunk import CHUNK, each_of_chunk, smallest
from tests.fuzz.configurations import LOG, SOUND, sound, spelt
from tests.fuzz.kinds import KINDS
from tests.fuzz.releases import READING, TABLE

CHECK = Case({"c.toml": spelt(sound(SOUND[0])), "log.csv": LOG}, (("check", "c.toml"),))
RELEASE = Case(
    CHECK.files,
    (("release", "c.toml"),),
    (
        *("releases", "releases/*", "quarantine", "quarantine/*"),
        *("ledger.sqlite", "ledger.sqlite.accounts", "ledger.sqlite.accounts/*", "account.key"),
    ),
    ("here/case/quarantine", "here/case/releases", "here/case/ledger.sqlite.accounts"),
)

Reader = Callable[[pl.DataFrame, Path, str], pl.Expr]


def whats(found: list[Problem]) -> set[str]:
    return {one.what for one in found}


@pytest.mark.parametrize("case", [CHECK, RELEASE])
def test_a_sound_case_has_no_problem(case: Case) -> None:
    assert problems(case) == []


def test_so_has_the_program_itself() -> None:
    assert problems(CHECK, as_program=True) == []


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Have something happen whenever outcomes are read."""
    read = columns.outcome

    def planted(act: Callable[[], object]) -> None:
        def instead(frame: pl.DataFrame, path: Path, name: str, decimal: str) -> pl.Expr:
            act()
            return read(frame, path, name, decimal)

        monkeypatch.setattr("flows.raw.ingest.outcome", instead)

    return planted


def failing(error: BaseException) -> Callable[[], NoReturn]:
    def fail() -> NoReturn:
        raise error

    return fail


class Panic(BaseException):
    """As Rust libraries raise."""


def test_an_error_that_nobody_foresaw_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise KeyError("clicks")

    monkeypatch.setattr("flows.check.read_key", fail)
    (found,) = problems(CHECK)
    assert found.what == "exit code"
    assert "check.py:check KeyError" in found.place


def test_a_panic_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.check.load", lambda *_: failing(Panic())())
    assert whats(problems(CHECK)) == {"raised"}


@pytest.mark.parametrize(
    "shown", [f"row of {DIGITS}.5", "7,391,846", CANARY.upper(), f"{{'{CANARY}': 1}}"]
)
def test_an_outcome_in_a_message_is_found(plant: Any, shown: str) -> None:
    plant(failing(InputError(f"x: {shown}")))
    assert whats(problems(CHECK)) == {"outcome in what was heard"}


def test_an_outcome_in_a_log_or_past_the_streams_is_found(plant: Any) -> None:
    plant(lambda: logging.getLogger("clusterdp").warning("%s", DIGITS))
    assert whats(problems(CHECK)) == {"outcome in what was heard"}
    plant(lambda: os.write(2, DIGITS.encode()))
    assert whats(problems(CHECK)) == {"outcome in what was heard"}


def test_a_traceback_and_control_characters_are_found(plant: Any) -> None:
    plant(lambda: print("Traceback (most recent call last)\x1b[31m", file=sys.stderr))  # noqa: T201 - caught
    assert whats(problems(CHECK)) == {"traceback", "control characters"}


def test_what_is_left_behind_is_found(plant: Any) -> None:
    plant(lambda: Path(os.environ["TMPDIR"], "left").write_text("x"))
    assert whats(problems(CHECK)) == {"left behind"}
    plant(lambda: Path("left").write_text(DIGITS))
    assert whats(problems(CHECK)) == {"left behind", "outcome in file left"}


def test_drafts_and_outcomes_beside_a_release_are_found(plant: Any) -> None:
    plant(lambda: Path("releases", ".draft-x").mkdir(exist_ok=True))
    assert whats(problems(RELEASE)) == {"left behind"}
    plant(lambda: Path("ledger.sqlite-notes").write_text(DIGITS))
    assert whats(problems(RELEASE)) == {"left behind", "outcome in file ledger.sqlite-notes"}


def test_a_process_and_a_socket_that_stay_are_found(plant: Any) -> None:
    kept: list[Any] = []
    try:
        plant(lambda: kept.append(subprocess.Popen(["/bin/sleep", "600"])))
        assert whats(problems(CHECK)) == {"child left"}
    finally:
        for one in kept:
            one.kill()
            one.wait()
    kept.clear()
    plant(lambda: kept.append(socket.socket()))
    assert whats(problems(CHECK)) == {"socket left"}
    for one in kept:
        one.close()


def test_one_that_takes_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.check.read_key", lambda _: time.sleep(3600))
    assert whats(problems(CHECK, limit=0.2)) >= {"raised", "slow"}


# cases


def test_odd_files_and_changed_releases_are_laid_out(tmp_path: Path) -> None:
    content = Remade("counts", ("DROP TABLE pools", "no such statement"), cut=0.5, flips=(0.1,))
    Case({one.kind: one for one in ODD} | {"x.duckdb": content}, ()).lay_out(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*(one.kind for one in ODD), "x.duckdb"}
    assert (tmp_path / "fifo").is_fifo()
    made = (tmp_path / "x.duckdb").read_bytes()
    assert len(made) > 1000
    assert made != base("counts")[: len(made)]


@pytest.mark.parametrize("name", SECTIONS)
def test_a_release_that_nobody_changed_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Else every change would be refused for something else."""
    Case({"x.duckdb": Remade(name), "table.csv": TABLE}, ()).lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    for command in READING:
        slices = {"--segments", "--covariates"} & set(command)
        of_units = name not in ("histogram", "differences")
        assert run(list(command)) == (2 if slices and not of_units else 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_number_is_always_the_same_case(kind: str) -> None:
    drawn: list[list[Case]] = [[], []]
    for cases in drawn:
        each_of_chunk(kind, 3, lambda _, case, into=cases: into.append(case))  # type: ignore[misc] # a lambda that binds
    assert len(drawn[0]) == CHUNK
    assert drawn[0] == drawn[1]
    assert len({repr(case) for case in drawn[0]}) > CHUNK / 2


# the soak


def test_the_soak_goes_on_where_it_was_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    monkeypatch.setattr(soak, "TOGETHER", 3)

    def chunks(_: str, numbers: list[int], keep: soak.Keep) -> None:
        for number in numbers:
            tried.append(number)
            if number == 2 and tried.count(2) == 1:
                raise KeyboardInterrupt
            found = {"number": number * CHUNK, "signature": "odd", "what": "", "detail": ""}
            keep(number, CHUNK, [found])

    monkeypatch.setattr(soak, "_try_chunks", chunks)
    with pytest.raises(KeyboardInterrupt):
        soak.soak("reports", 4 * CHUNK, tmp_path, processes=1)
    found = soak.soak("reports", 4 * CHUNK, tmp_path, processes=1)
    assert sorted(found.done) == [0, 1, 2, 3]
    assert tried.count(2) == 2
    assert tried.count(0) == tried.count(1) == 1
    assert found.tried == 4 * CHUNK
    assert [one["number"] for one in found.by_signature()["odd"]].count(200) == 1
    assert soak.soak("reports", 4 * CHUNK, tmp_path, processes=1).tried == 4 * CHUNK


CHILD = """
import os, time
from tests.fuzz import chunk
tried = []
def found_in(number, case):
    if number == 3: os.kill(os.getpid(), 9)
    if number == 5: time.sleep(3600)
    return []
chunk.found_in = found_in
chunk._import_all = lambda: None  # whichever cases these are: nobody runs them
chunk.main("reports", {first}, {chunks})
"""


def test_a_case_that_kills_or_never_ends_is_found_and_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin = subprocess.Popen

    def instead(command: list[str], **named: Any) -> Any:
        first, *chunks = map(int, command[4:])
        return begin([command[0], "-c", CHILD.format(first=first, chunks=chunks)], **named)

    monkeypatch.setattr(subprocess, "Popen", instead)
    monkeypatch.setattr(soak, "PATIENCE", 20.0)  # where it falsely runs out, more are found
    kept: list[tuple[int, int, list[dict[str, Any]]]] = []
    soak._try_chunks("reports", [0, 1], lambda *one: kept.append(one))
    assert [(chunk, tried) for chunk, tried, _ in kept] == [(0, CHUNK), (1, CHUNK)]
    told = {one["number"]: one["what"] for one in kept[0][2]}
    assert (told[3], told[5]) == ("kills the process", "never ends")


def test_the_smallest_case_of_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def found_in(_: int, case: Case) -> list[Problem]:
        return [Problem("odd", "aggregate")] if len(case.files) > 1 else []

    monkeypatch.setattr("tests.fuzz.chunk.found_in", found_in)
    first = next(number for number, case in enumerate(drawn_of("reports")) if len(case.files) > 1)
    assert len(smallest("reports", first, "odd | aggregate | ").files) == 2


def drawn_of(kind: str) -> list[Case]:
    found: list[Case] = []
    each_of_chunk(kind, 0, lambda _, case: found.append(case))
    return found


def test_a_number_is_the_same_case_whatever_was_run_before() -> None:
    """Commands import modules as they need them, and Hypothesis tries the constants of modules."""
    first, again = [], []
    each_of_chunk("configurations", 7, lambda _, case: first.append(case))

    def use(number: int, case: Case) -> None:
        again.append(case)
        if number % CHUNK < 12:
            problems(case)

    each_of_chunk("configurations", 7, use)
    assert first == again
