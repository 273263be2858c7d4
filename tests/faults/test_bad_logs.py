"""Bad files of large logs: a plain error that names file and line, and nothing left behind.

Each log is read twice: by a dry run of the command line, and by the flow; of Parquet files after a
period that was released, so that there is a ledger to be charged and a release to be replaced.
"""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from flows.cli.main import run
from schemas.errors import InputError
from tests.conftest import (
    SENTINEL,
    Builder,
    Content,
    Experiment,
    a_log,
    told,
    write_content,
)
from tests.support.spilling import Spilled

PRIVATE = "PRIVATEWORD"
GOOD, BAD = "2026-11-19", "2026-11-20"
SPILLING = {"memory_limit": "20KB"}
"""So little that rows are put aside long before the file at fault is read."""

EXPOSED = a_log(400).rename({"clicks": "seen"}).with_columns(seen=pl.lit(datetime(2026, 11, 18)))
HAPPENED = a_log(400).select(
    "customer", pl.lit(datetime(2026, 11, 19)).alias("seen"), pl.lit(SENTINEL).alias("clicks")
)
BY_EVENTS: dict[str, dict[str, Any]] = {
    "source": {
        "path": "logs/{period}/*",
        "grain": "event",
        "outcomes_path": "events/{period}/*",
        "window": "7d",
    },
    "columns": {"time": "seen"},
    "outcome": {"aggregate": "sum"},
}
BY_UNITS: dict[str, dict[str, Any]] = {"source": {"path": "logs/{period}/*"}}


def truncated(log: pl.DataFrame, folder: Path) -> bytes:
    """All of a Parquet file but its last part, which says where everything is."""
    log.write_parquet(folder / "whole.parquet")
    content = (folder / "whole.parquet").read_bytes()
    (folder / "whole.parquet").unlink()
    return content[: len(content) * 2 // 3]


def shares(log: pl.DataFrame, n_files: int = 8) -> Iterator[pl.DataFrame]:
    """The rows of a log, spread over files."""
    return (log.gather_every(n_files, start) for start in range(n_files))


def private(log: pl.DataFrame) -> pl.DataFrame:
    """The same with outcomes that nobody may read of."""
    return log.with_columns(clicks=pl.lit(SENTINEL)) if "clicks" in log.columns else log


@dataclass(frozen=True)
class Case:
    """One file at fault among sound ones, and what is said of it."""

    says: str
    content: Content
    file: str = "0006.parquet"
    log: str = "logs"
    by_events: bool = False
    sections: dict[str, dict[str, Any]] = field(default_factory=dict)


HEAD = "customer,variant,region,clicks\n"
LINES = "".join(f"d{number:03d},none,east,{SENTINEL}\n" for number in range(300))
EVENT_LINES = f"c00001,2026-11-19,{SENTINEL}\n" * 300

CASES = {
    "a truncated Parquet": Case("cannot be read as Parquet; is it whole?", b""),
    "a truncated Parquet of exposures": Case(
        "cannot be read as Parquet; is it whole?", b"", by_events=True
    ),
    "a truncated Parquet of events": Case(
        "cannot be read as Parquet; is it whole?", b"", log="events", by_events=True
    ),
    "a Parquet of no bytes": Case("cannot be read as Parquet", b"", file="empty.parquet"),
    "a Parquet of events of no bytes": Case(
        "cannot be read as Parquet", b"", file="empty.parquet", log="events", by_events=True
    ),
    "a CSV of no bytes": Case("there is no column 'customer'", "", file="empty.csv"),
    "a CSV of events of no bytes": Case(
        "there is no column 'customer'", "", file="empty.csv", log="events", by_events=True
    ),
    "a CSV with a wide line": Case(
        "cannot be read as CSV: row 302 does not parse (the header is row 1)",
        f"{HEAD}{LINES}{PRIVATE},none,east,{SENTINEL},{PRIVATE}\n{LINES}",
        file="0006.csv",
    ),
    "a CSV with an open quote": Case(
        "cannot be read as CSV: row 302 does not parse (the header is row 1)",
        f'{HEAD}{LINES}{PRIVATE},none,east,"{SENTINEL}\n{LINES}',
        file="0006.csv",
    ),
    "a CSV with a closed quote amid a field": Case(
        "cannot be read as CSV: row 302 does not parse (the header is row 1)",
        f'{HEAD}{LINES}"{PRIVATE}" x,none,east,{SENTINEL}\n{LINES}',
        file="0006.csv",
    ),
    "a CSV of events with a wide line": Case(
        "cannot be read as CSV: row 302 does not parse (the header is row 1)",
        f"customer,seen,clicks\n{EVENT_LINES}{PRIVATE},,{SENTINEL},{PRIVATE}\n{EVENT_LINES}",
        file="0006.csv",
        log="events",
        by_events=True,
    ),
    "JSON Lines with half a line": Case(
        "cannot be read as JSON Lines: line 3 does not parse",
        f'{{"customer": "d1"}}\n\n{{"customer": "{PRIVATE}", "clicks": {SENTINEL}\n',
        file="0006.jsonl",
    ),
    "a missing column": Case("there is no column 'clicks'", a_log(9).drop("clicks")),
    "a missing column of exposures": Case(
        "there is no column 'seen'", EXPOSED.head(9).drop("seen"), by_events=True
    ),
    "units of float": Case(
        "column 'customer' (unit) is Float64", a_log(9).with_columns(customer=pl.lit(SENTINEL))
    ),
    "exposed units of float": Case(
        "column 'customer' (unit) is Float64",
        EXPOSED.head(9).with_columns(customer=pl.lit(SENTINEL)),
        by_events=True,
    ),
    "times of numbers": Case(
        "column 'seen' (time) is Int64; it has to be a timestamp",
        EXPOSED.head(9).with_columns(seen=pl.lit(987_654_500, pl.Int64)),
        by_events=True,
    ),
}


def build(experiment: Builder, case: Case) -> Experiment:
    """A period that is sound, and the same once more with the file at fault."""
    logs = {"logs": EXPOSED, "events": HAPPENED} if case.by_events else {"logs": a_log(400)}
    files: dict[str, Content] = {
        f"{name}/{period}/{number:04d}.parquet": private(share)
        for name, log in logs.items()
        for number, share in enumerate(shares(log))
        for period in (GOOD, BAD)
    }
    sections = BY_EVENTS if case.by_events else BY_UNITS
    built = experiment(files, "logs/{period}/*", **sections, **case.sections, run=SPILLING)
    replaced = built.folder / case.log / BAD / "0006.parquet"
    content = case.content
    if isinstance(content, bytes) and case.file == "0006.parquet":
        content = truncated(pl.read_parquet(replaced), built.folder)
    replaced.unlink()
    write_content(replaced.with_name(case.file), content)
    return built


def state(built: Experiment) -> tuple[list[str], dict[str, bytes], list[Any]]:
    """All there is beside the logs, and what the ledger holds."""
    kept = [name for name in built.files if not name.startswith(("logs", "events", "ledger"))]
    if not (built.folder / "ledger.sqlite").exists():
        return built.entries, {name: (built.folder / name).read_bytes() for name in kept}, []
    with closing(sqlite3.connect(built.folder / "ledger.sqlite")) as connection:
        charges = connection.execute("SELECT * FROM clusterdp_charges").fetchall()
    return built.entries, {name: (built.folder / name).read_bytes() for name in kept}, charges


def assert_plain(text: str, says: str, file: Path) -> None:
    assert re.search(re.escape(f"{file}: ") + ".*" + re.escape(says), text)
    assert len(text.splitlines()) == 1
    for secret in (PRIVATE, str(SENTINEL), "987654", "c00001", "d001"):
        assert secret not in text


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_bad_file_among_many_is_refused(
    experiment: Builder, capsys: pytest.CaptureFixture[str], spilled: list[Spilled], case: Case
) -> None:
    built = build(experiment, case)
    if isinstance(case.content, bytes):
        assert built.run(GOOD).status == "published"
    file = built.folder / case.log / BAD / case.file
    before = state(built)
    spilled.clear()
    with pytest.raises(InputError) as caught:
        built.run(BAD)
    assert caught.value.exit_code == 2
    assert_plain(str(caught.value), case.says, file)
    for secret in (PRIVATE, str(SENTINEL)):
        assert secret not in told(caught.value)
    assert state(built) == before
    capsys.readouterr()  # Prefect says a word when it is imported
    assert run(["check", str(built.config), "--period", BAD]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"clusterdp: {caught.value}\n"
    assert state(built) == before
    assert spilled
    assert not any(file.path.parent.exists() for file in spilled)


def test_what_is_refused_above_is_released_once_it_is_sound(experiment: Builder) -> None:
    """Else any reason would do; and what failed costs nothing afterwards."""
    built = build(experiment, CASES["a truncated Parquet of events"])
    with pytest.raises(InputError):
        built.run(BAD)
    (built.folder / "events" / BAD / "0006.parquet").unlink()
    result = built.run(BAD)
    assert result.roster.n_units == 400
    assert result.statement.spent.epsilon == result.manifest.epsilon == 2.0


def test_a_line_a_million_rows_down_is_named(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twenty-five megabytes; found by its number, and nothing of it is shown."""
    lines = "".join(f"u{number:06d},mail,east,1\n" for number in range(1000)) * 1000
    bad = f"{PRIVATE},mail,east,{SENTINEL},{PRIVATE}\n"
    built = experiment(f"{HEAD}{lines}{bad}{LINES}", "log.csv", run={"memory_limit": "8MB"})
    before = built.entries
    assert run(["check", str(built.config)]) == 2
    file = built.folder / "log.csv"
    assert_plain(capsys.readouterr().err, "cannot be read as CSV: row 1000002 does not parse", file)
    assert built.entries == before


# files that do not agree


def folder_of(experiment: Builder, *contents: Content) -> Experiment:
    names = (f"logs/{number}.parquet" for number in range(len(contents)))
    return experiment(dict(zip(names, contents, strict=True)), "logs/*", source={"path": "logs/*"})


def integers(first: int, n_units: int = 20) -> pl.DataFrame:
    return a_log(n_units).with_columns(customer=pl.Series(np.arange(n_units) + first))


def test_text_among_integers_makes_all_text(experiment: Builder) -> None:
    built = folder_of(experiment, integers(1), a_log(20), integers(101))
    assert built.check().roster.n_units == 60
    ids = built.read()["unit"]
    assert ids.dtype == pl.String
    assert {"1", "c00001", "120"} <= set(ids)


def test_the_same_integer_in_text_is_the_same_unit(experiment: Builder) -> None:
    same = integers(1).with_columns(pl.col("customer").cast(pl.String))
    built = folder_of(experiment, integers(1), same[:2], a_log(20))
    assert built.check().roster.quarantined_by_rule == {"unit_twice": 4}


def test_an_empty_partition_of_no_type_leaves_integers_as_they_are(experiment: Builder) -> None:
    """As programs write a column of nothing but nulls; its rows are set aside."""
    nulls = a_log(3).with_columns(customer=pl.lit(None))
    built = folder_of(experiment, integers(1), nulls, nulls.clear())
    assert built.read()["unit"].dtype == pl.Int64
    assert built.check().roster.quarantined_by_rule == {"unit_missing": 3}


# wrong keys

KEYS = {
    "a window in words": ("source.window: '7 days' is not", {"source": {"window": "7 days"}}),
    "a window of nothing": ("source.window: '0d' is not", {"source": {"window": "0d"}}),
    "a window of ages": (
        'source.window: \'99999d\' is not a whole number and d, h, m or s, such as "2d", "12h", '
        '"30m" or "90s", of a century at most',
        {"source": {"window": "99999d"}},
    ),
    "no time": ("columns.time: missing", {"columns": {"time": None}}),
    "no log of events": ("source.outcomes_path: missing", {"source": {"outcomes_path": None}}),
    "no aggregate": ("outcome.aggregate: missing", {"outcome": {"aggregate": None}}),
    "no value to add": ("columns.outcome: missing", {"columns": {"outcome": None}}),
    "an unknown aggregate": ("outcome.aggregate: ", {"outcome": {"aggregate": "mean"}}),
    "a cap below zero": ("outcome.cap: ", {"outcome": {"cap": -1.0}}),
    "time and unit alike": ("columns.time: 'customer' is", {"columns": {"time": "customer"}}),
    "a grain of its own": ("source.grain: ", {"source": {"grain": "session"}}),
    "no period": ("--period: missing: source.outcomes_path", {"source": {"path": "logs/x/*"}}),
}


@pytest.mark.parametrize("command", ["check", "release", "plan"])
@pytest.mark.parametrize(("says", "sections"), KEYS.values(), ids=KEYS.keys())
def test_a_wrong_key_is_refused(
    experiment: Builder,
    capsys: pytest.CaptureFixture[str],
    command: str,
    says: str,
    sections: dict[str, dict[str, Any]],
) -> None:
    names = {*BY_EVENTS, *sections}
    merged = {name: BY_EVENTS.get(name, {}) | sections.get(name, {}) for name in names}
    built = experiment({"logs/x/a.parquet": EXPOSED}, "logs/x/*", **merged)
    before = built.entries
    assert run([command, str(built.config)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"clusterdp: {says}")
    assert len(printed.err.splitlines()) == 1
    assert built.entries == before
