"""`clusterdp check --outcomes`: four coarse words of each outcome, for the operator alone."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

import clusterdp
from flows.cli.main import run
from flows.raw.outcome_shares import coarse
from schemas.errors import ConfigError
from tests.conftest import SENTINEL, Builder, a_log, write_content
from tests.flows.raw.test_event_grain import TWO, a_trial

N = 200
ODD = "spent all in Aarau"
CLEAN = {"missing": "none", "unreadable": "none", "below": "none", "above": "none"}
HALF = "1–50 %"


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at a terminal, wherever the tests run."""
    monkeypatch.delenv("INVOCATION_ID", raising=False)


@pytest.mark.parametrize(
    ("number", "of", "word"),
    [
        (0, 0, "none"),
        (0, 9, "none"),
        (1, 101, "under 1 %"),
        (1, 100, HALF),
        (50, 100, HALF),
        (51, 100, "over 50 %"),
        (9, 9, "over 50 %"),
    ],
)
def test_shares_in_words(number: int, of: int, word: str) -> None:
    assert coarse(number, of) == word


def told(built: Any, capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    assert run(["check", str(built.config), "--outcomes", "--json"]) == 0
    found: list[dict[str, str]] = json.loads(capsys.readouterr().out)["outcomes"]
    return found


def texts(*values: tuple[str | None, int]) -> pl.DataFrame:
    every = [value for value, times in values for _ in range(times)]
    return a_log(len(every)).with_columns(pl.Series("clicks", every))


@pytest.mark.parametrize("file", ["log.csv", "log.jsonl", "log.parquet"])
def test_each_kind_of_fault_is_counted(
    experiment: Builder, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    log = texts(("1", 60), (None, 20), ("", 1), ("no idea", 101), ("-7", 1), ("9e9", 17))
    (found,) = told(experiment(log, file), capsys)
    below = "under 1 %" if len(log) > 100 else HALF
    assert found == {
        "metric": "outcome", "missing": HALF, "unreadable": "over 50 %", "below": below,
        "above": HALF,
    }  # fmt: skip


def test_a_sound_column_and_one_of_another_type(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    log = a_log(N).with_columns(pl.Series("day", [1] * N).cast(pl.Date))
    several: list[dict[str, Any]] = [
        {"name": "clicks", "column": "clicks", "values": [0, 1, 2, 3]},
        {"name": "day", "column": "day", "values": [0, 1]},
        {"name": "high", "column": "clicks", "low": 0.0, "high": 1.0, "levels": 3},
    ]
    built = experiment(log, columns={"outcome": None}, outcome=None, outcomes=several)
    clicks, day, high = told(built, capsys)
    assert clicks == {"metric": "clicks"} | CLEAN
    assert day == {"metric": "day"} | CLEAN | {"unreadable": "over 50 %"}
    assert high == {"metric": "high"} | CLEAN | {"above": HALF}


def test_of_events_values_are_read_and_units_compared(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unreadable among events; a unit is above whatever readable events it has beside them."""
    built, seen, _ = a_trial(experiment, None, TWO)
    units = sorted({str(row[0]) for row in seen})
    lines = [f"{unit},2126-01-01T00:00:00Z,9e9,{unit}" for unit in units]
    lines += [f"{units[0]},2126-01-01T00:00:00Z,,missing{number}" for number in range(150)]
    lines += [f"{units[0]},2126-01-01T00:00:00Z,many,unreadable"]
    for old in (built.folder / "events").iterdir():
        old.unlink()
    write_content(built.folder / "events" / "one.csv", "\n".join(["who,at,amount,id", *lines]))
    (found,) = told(built, capsys)
    assert found == {
        "metric": "outcome", "missing": "over 50 %", "unreadable": "under 1 %", "below": "none",
        "above": "over 50 %",
    }  # fmt: skip


def test_it_changes_nothing_else_and_says_whose_it_is(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    built = experiment(texts(("1", 60), ("no idea", 60)))
    before = built.entries
    assert run(["check", str(built.config), "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert run(["check", str(built.config), "--json", "--outcomes"]) == 0
    asked = json.loads(capsys.readouterr().out)
    del asked["outcomes"]
    assert asked == plain
    assert run(["check", str(built.config), "--outcomes"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "pass it on to nobody" in shown
    assert "its grid and its guess, must not follow it" in shown
    assert built.entries == before
    bad = experiment("customer,variant\n", "log.csv")
    assert run(["check", str(bad.config), "--outcomes"]) == run(["check", str(bad.config)]) == 2


def test_no_value_leaves_and_nothing_is_logged(
    experiment: Builder,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = texts((str(SENTINEL), 70), (ODD, 50))
    built = experiment(log)
    with caplog.at_level("DEBUG"):
        result = clusterdp.check(built.config, outcomes=True)
    assert result.outcomes[0].above == "over 50 %"
    assert "over 50 %" not in repr(result)
    assert "over 50 %" not in caplog.text
    capsys.readouterr()
    assert run(["check", str(built.config), "--outcomes"], debug=True) == 0
    streams = capsys.readouterr()
    assert "over 50 %" not in streams.err
    for text in (str(SENTINEL), ODD):
        assert text not in streams.out + streams.err + caplog.text


def test_it_is_refused_within_a_flow_and_a_service(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = experiment()
    monkeypatch.setattr("flows.check.running_flow", object)
    with pytest.raises(ConfigError, match=r"--outcomes: .* refused in a flow"):
        clusterdp.check(built.config, outcomes=True)
    monkeypatch.setattr("flows.check.running_flow", lambda: None)
    monkeypatch.setenv("INVOCATION_ID", "of systemd")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: False))
    with pytest.raises(ConfigError, match="scheduled run"):
        clusterdp.check(built.config, outcomes=True)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    assert clusterdp.check(built.config, outcomes=True).outcomes
    assert clusterdp.check(Path(built.config)).outcomes == ()
