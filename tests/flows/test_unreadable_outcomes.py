"""Outcomes that cannot be read are told of: before a release by types, after it by what it shows.

They never stop one. Releases here leave outcomes as they are, but for one in 10¹².
"""

import json
from datetime import date, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from estimators.ends import ends_warnings
from flows.cli.main import run
from flows.operate.status import status
from flows.released.file.read import read_release
from tests.conftest import EXACT, Builder, a_log, released

N = 400
DAY = date(2026, 1, 1)
TEXT_OF = {
    "yes or no": lambda n: "yes" if n % 2 else "no",
    "decimal comma": lambda n: f"{n % 4},00",
    "currency": lambda n: f"${n % 4}.00",
    "thousands": lambda n: f"{n % 4} 000",
    "percent": lambda n: f"{n % 4}%",
    "date as text": lambda n: f"{DAY + timedelta(n % 4)}",
}
OTHERS: dict[str, Any] = {
    "date": lambda n: DAY + timedelta(n % 4),
    "timestamp": lambda n: datetime(2026, 1, 1) + timedelta(hours=n % 4),
    "high far below": lambda n: 50.0 + n % 40,
    "low far above": lambda n: -50.0 - n % 40,
    "nothing": lambda _: None,
    "an id": lambda n: 100_000 + n,
}
UNREADABLE = TEXT_OF | OTHERS


def a_log_of(kind: str) -> pl.DataFrame:
    values = [UNREADABLE[kind](n) for n in range(N)]
    dtype = pl.Float64 if kind == "nothing" else None
    return a_log(N).with_columns(pl.Series("clicks", values, dtype=dtype))


@pytest.mark.parametrize("kind", UNREADABLE)
def test_twelve_kinds_are_told_of(experiment: Builder, kind: str) -> None:
    """Of types before the release, which goes through all the same; of all by the release."""
    built = experiment(a_log_of(kind), privacy=EXACT)
    typed = kind in TEXT_OF or kind in ("date", "timestamp")
    named = [one for one in built.check().warnings if "column 'clicks' (outcome) is" in one]
    assert len(named) == typed
    result = built.run()
    (warning,) = [one for one in result.warnings if "may all be" in one]
    end = "highest" if kind in ("high far below", "an id") else "lowest"
    shares = {row["end"]: row["share"] for row in released(result.path, "ends").to_dicts()}
    assert shares[end] == pytest.approx(1)
    assert f"the {end} value" in warning
    assert "--outcomes" in warning
    assert built.run().status == "unchanged"


@pytest.mark.parametrize("file", ["log.csv", "log.jsonl", "log.parquet"])
def test_a_declared_decimal_mark_is_read_in_every_format(experiment: Builder, file: str) -> None:
    log = a_log(N).with_columns(pl.Series("clicks", [f"{n % 4},0" for n in range(N)]))
    built = experiment(log, file, outcome={"decimal": ","}, privacy=EXACT)
    assert [one for one in built.check().warnings if "(outcome)" in one] == []
    result = built.run()
    assert [one for one in result.warnings if "may all be" in one] == []
    shares = released(result.path, "ends")["share"].to_list()
    assert shares == pytest.approx([0.25] * 3, abs=0.02)  # missing, lowest, highest


def test_a_decimal_mark_is_a_setting_of_the_release(experiment: Builder) -> None:
    log = a_log(40).with_columns(pl.col("clicks").cast(pl.Int64))
    assert experiment(log, privacy=EXACT).run().status == "published"
    built = experiment(log, privacy=EXACT, outcome={"decimal": "."})
    assert built.run().status == "unchanged"
    built = experiment(log, privacy=EXACT, outcome={"decimal": ","})
    assert run(["release", str(built.config)]) == 4


def test_a_decimal_mark_belongs_to_numbers(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    built = experiment(outcome={"values": ["no", "yes"], "decimal": ","})
    assert run(["check", str(built.config)]) == 2
    assert "outcome.decimal: belongs to numbers" in capsys.readouterr().err


def test_a_plan_tells_of_types_and_does_without_the_column(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    built = experiment(a_log_of("yes or no"))
    assert run(["plan", str(built.config), "--json"]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert sum("column 'clicks' (outcome) is text" in one for one in warnings) == 1
    built = experiment(a_log_of("yes or no").drop("clicks"))
    assert run(["plan", str(built.config), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == []


def test_status_and_inspect_say_what_the_release_said(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    built = experiment(a_log_of("nothing"), privacy=EXACT)
    result = built.run()
    (warning,) = [one for one in result.warnings if "may all be" in one]
    (standing,) = status(built.config).experiments[0].periods
    assert standing.reason == warning
    capsys.readouterr()
    assert run(["inspect", str(result.path), "--json"]) == 0
    told = capsys.readouterr()
    assert warning in told.err
    ends = json.loads(told.out)["ends"]
    assert [(one["metric"], one["end"]) for one in ends] == [
        ("outcome", "missing"), ("outcome", "lowest"), ("outcome", "highest"),
    ]  # fmt: skip
    assert ends_warnings(read_release(result.path).ends) == (warning,)
    assert "at highest" in _printed(["inspect", str(result.path)], capsys)


def _printed(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run(command) == 0
    return capsys.readouterr().out


def test_a_sound_release_says_nothing(experiment: Builder) -> None:
    built = experiment(a_log(N), privacy=EXACT)
    assert [one for one in built.run().warnings if "may all be" in one] == []
    assert status(built.config).experiments[0].periods[0].reason is None
