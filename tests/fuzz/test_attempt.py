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

import duckdb
import polars as pl
import pytest

from flows.cli.main import run
from flows.raw.reading import columns
from schemas.errors import InputError
from schemas.released import TABLES
from tests.fuzz import soak
from tests.fuzz.attempt import Problem, problems
from tests.fuzz.bases import NIGHTS, SECTIONS, base
from tests.fuzz.bases import columns as columns_of
from tests.fuzz.case import CANARY, DIGITS, ODD, Case, Content, Remade
from tests.fuzz.chunk import CHUNK
from tests.fuzz.configurations import BASES, LOG, LOGS
from tests.fuzz.documents import TABLE as ROWS
from tests.fuzz.kinds import KINDS, case
from tests.fuzz.releases import READING, READING_NIGHTS, TABLE, Target
from tests.fuzz.values import spelt

SIMPLE = {
    "experiment": "trial",
    "source": {"path": "log.csv"},
    "columns": {"unit": "customer", "arm": "variant", "cluster": "region", "outcome": "clicks"},
    "arms": {"control": "none", "treatments": ["mail"]},
    "outcome": {"values": [0, 1, 2]},
    "privacy": {"epsilon": 2.0},
}
CHECK = Case({"c.toml": spelt(SIMPLE), "log.csv": LOG}, (("check", "c.toml"),))
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
    content = Remade("plain", ("DROP TABLE pools",), cut=0.5, flips=(0.1,))
    Case({one.kind: one for one in ODD} | {"x.duckdb": content}, ()).lay_out(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*(one.kind for one in ODD), "x.duckdb"}
    assert (tmp_path / "fifo").is_fifo()
    made = (tmp_path / "x.duckdb").read_bytes()
    assert len(made) > 1000
    assert made != base("plain")["x.duckdb"][: len(made)]


@pytest.mark.parametrize(
    "statement", ["no such statement", "UPDATE units SET cluster = NULL WHERE false"]
)
def test_a_statement_that_fails_or_changes_nothing_on_its_base_fails_the_test(
    tmp_path: Path, statement: str
) -> None:
    case_of_it = Case({"x.duckdb": Remade("plain", (statement,))}, ())
    with pytest.raises((duckdb.Error, ValueError)):
        problems(case_of_it)


def test_a_column_that_no_case_changes_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that a later schema has beside those of today's bases."""
    hit = {what for number in range(120) for what, _ in case("releases", number).hits}
    monkeypatch.setitem(TABLES["pools"], "unheard_of", "DOUBLE")
    assert set(KINDS["releases"].targets()) - hit == {"pools.unheard_of"}


def test_tables_without_rows_are_none_that_a_case_changes() -> None:
    assert not {"squares", "counts", "arm_counts"} & set(columns_of("plain"))
    with pytest.raises(KeyError, match="squares"):
        Target("plain", "squares", "centre").change(0)


@pytest.mark.parametrize("name", [*SECTIONS, "nights", "model"])
def test_a_base_that_nobody_changed_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Else every change would be refused for something else."""
    files: dict[str, Content] = dict(base(name))
    Case(files | {"table.csv": ROWS if name == "model" else TABLE}, ()).lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    commands = {
        "tables": READING,
        "nights": READING_NIGHTS,
        "model": (
            ("report", "model.json", "-o", "page.html"),
            ("cate-predict", "model.json", "table.csv", "-o", "out.csv"),
        ),
    }
    for command in commands.get(name, READING[:2]):
        assert run(list(command)) == 0, command


@pytest.mark.parametrize("sound", [one for ones in BASES.values() for one in ones])
def test_a_configuration_that_nobody_changed_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sound: dict[str, Any]
) -> None:
    command = "site" if "design" in sound else "cate" if "features" in sound else "check"
    period = ("--period", NIGHTS[0]) if "{period}" in sound["source"]["path"] else ()
    files = {"c.toml": spelt(sound), **LOGS, f"log.{NIGHTS[0]}.csv": LOG}
    Case(files, ()).lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run([command, "c.toml", *period]) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_number_is_always_the_same_case(kind: str) -> None:
    drawn, again = ([case(kind, number) for number in range(300, 330)] for _ in range(2))
    assert drawn == again
    assert len([one for place, one in enumerate(drawn) if one not in drawn[:place]]) > 15


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
            keep(number, soak.Hits([("epsilon", "fits")]), [found])

    monkeypatch.setattr(soak, "_try_chunks", chunks)
    with pytest.raises(KeyboardInterrupt):
        soak.soak("reports", 4 * CHUNK, tmp_path, processes=1)
    found = soak.soak("reports", 4 * CHUNK, tmp_path, processes=1)
    assert sorted(found.done) == [0, 1, 2, 3]
    assert tried.count(2) == 2
    assert tried.count(0) == tried.count(1) == 1
    assert found.hits == {("epsilon", "fits"): 4}
    assert [one["number"] for one in found.by_signature()["odd"]].count(200) == 1
    again = soak.soak("reports", 4 * CHUNK, tmp_path, processes=1)
    assert (again.hits, again.done) == (found.hits, found.done)
    assert soak.coverage("reports", found.hits)[0].startswith("  hit 1 of 24, 1 with")


CHILD = """
import os, time
from tests.fuzz import chunk
tried = []
def found_in(number, case):
    if number == 3: os.kill(os.getpid(), 9)
    if number == 5: time.sleep(3600)
    return []
chunk.found_in = found_in
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
    kept: list[tuple[int, soak.Hits, list[dict[str, Any]]]] = []
    soak._try_chunks("reports", [0, 1], lambda *one: kept.append(one))
    assert [(chunk, hits.total()) for chunk, hits, _ in kept] == [(0, CHUNK - 2), (1, CHUNK)]
    told = {one["number"]: one["what"] for one in kept[0][2]}
    assert (told[3], told[5]) == ("kills the process", "never ends")


def test_a_column_with_the_name_of_a_pattern_is_one_column() -> None:
    """A case that could not be made once: polars takes ``*`` for all columns."""
    made = case("tables", 15049)
    content = made.files["table.csv"]
    assert isinstance(content, bytes)
    assert content.startswith(b"unit_id,age,*,")
    assert problems(made) == []


ESTIMATE = ("estimate", "x.duckdb", "--json")


def test_a_sound_base_is_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def judge(*_: object) -> None:
        asked.append("rows")

    monkeypatch.setattr("flows.released.file.read.broken_row_rule", judge)
    monkeypatch.setattr("tests.fuzz.attempt._judgements", {})
    files = {"x.duckdb": Remade("plain")}
    assert problems(Case(files, (ESTIMATE, ESTIMATE), judged="plain")) == []
    assert asked == ["rows"]
    assert problems(Case(files, (ESTIMATE, ESTIMATE))) == []
    assert len(asked) == 2  # the second time it is known


def test_one_that_is_not_sound_is_judged_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(*_: object) -> str:
        return "a rule that it breaks"

    monkeypatch.setattr("flows.released.file.read.broken_row_rule", judge)
    monkeypatch.setattr("tests.fuzz.attempt._judgements", {})
    files = {"x.duckdb": Remade("plain")}
    assert problems(Case(files, (ESTIMATE,), judged="plain")) == []
    monkeypatch.setattr(
        "flows.released.file.read.broken_row_rule", lambda *_: failing(KeyError("x"))()
    )
    assert whats(problems(Case(files, (ESTIMATE,), judged="plain"))) == {"exit code"}
