"""Event files of a schedule: all days that the window reaches; absent ones by declaration."""

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.raw.ingest import ingest
from flows.raw.spill.workspace import open_workspace
from flows.raw.validate import validate
from flows.release import ReleaseResult
from schemas.errors import InputError, NoFileError
from tests.conftest import Builder, Experiment, plain_rows, write_content

PERIOD = "2026-11-20"
NIGHT = datetime(2026, 11, 19, 23, tzinfo=UTC)  # it begins here, in Zurich
UNITS = ["a", "b", "c", "d"]


def hours(after: float) -> str:
    return (NIGHT + timedelta(hours=after)).isoformat()


def exposures() -> pl.DataFrame:
    """Everybody is exposed at 23:00, an hour before the end of the day."""
    arms = ["none", "mail", "none", "mail"]
    return pl.DataFrame(
        {"customer": UNITS, "variant": arms, "region": ["x"] * 4, "ts": [hours(23.0)] * 4}
    )


def happened(*events: tuple[str, float]) -> pl.DataFrame:
    units = [unit for unit, _ in events]
    times = [hours(after) for _, after in events]
    schema = {"customer": pl.String, "ts": pl.String}
    return pl.DataFrame({"customer": units, "ts": times}, schema)


def scheduled(
    experiment: Builder,
    files: dict[str, pl.DataFrame],
    events: str | None = "required",
    *,
    window: str = "1d",
    **sections: Any,
) -> Experiment:
    contents: dict[str, Any] = {f"done/{day}.csv": frame for day, frame in files.items()}
    built = experiment(
        {f"seen/{PERIOD}.csv": exposures(), **contents},
        source={
            "path": "seen/{period}.csv", "grain": "event", "outcomes_path": "done/{period}.csv",
            "window": window,
        },
        columns={"time": "ts", "outcome": None},
        outcome={"aggregate": "count"},
        schedule={"since": PERIOD, "timezone": "Europe/Zurich", "events": events},
        privacy={"mechanism": "uniform-prior-dp", "strata_statistic": "none"},
        **sections,
    )  # fmt: skip
    (built.folder / "done").mkdir(exist_ok=True)
    return built


def outcomes(built: Experiment) -> list[float]:
    config = built.load()
    with open_workspace(config.spill) as workspace:
        rows, _, _ = validate(config.log_facts, ingest(config.log_source, PERIOD), workspace)
        return plain_rows(rows.open())["outcome"].to_list()


TODAY = happened(("a", 23.0), ("a", 23.5), ("b", 22.9))
TOMORROW = happened(("a", 24.5), ("c", 46.9), ("d", 47.0))
LATER = happened(("b", 25.0), ("d", 48.5))


def test_all_days_that_the_window_reaches_are_read(experiment: Builder) -> None:
    files = {PERIOD: TODAY, "2026-11-21": TOMORROW, "2026-11-22": LATER}
    assert outcomes(scheduled(experiment, files)) == [3.0, 0.0, 1.0, 0.0]


def test_without_a_schedule_the_period_s_own_files_are_read_as_before(experiment: Builder) -> None:
    files = {PERIOD: TODAY, "2026-11-21": TOMORROW}
    built = scheduled(experiment, files)
    text = built.config.read_text()
    built.config.write_text(text[: text.index("[schedule]")])
    assert outcomes(built) == [2.0, 0.0, 0.0, 0.0]


def test_a_day_without_a_file_is_fatal_where_files_are_required(experiment: Builder) -> None:
    for events in ("required", None):
        built = scheduled(experiment, {PERIOD: TODAY}, events)
        with pytest.raises(NoFileError, match=r"source\.outcomes_path: no file .*2026-11-21\.csv"):
            outcomes(built)


@pytest.mark.parametrize("there", [[], [PERIOD], ["2026-11-21"], [PERIOD, "2026-11-21"]])
def test_a_day_without_a_file_is_one_without_events_where_files_may_be_absent(
    experiment: Builder, there: list[str]
) -> None:
    files = {day: {PERIOD: TODAY, "2026-11-21": TOMORROW}[day] for day in there}
    first = 2.0 * (PERIOD in there) + 1.0 * ("2026-11-21" in there)
    third = 1.0 * ("2026-11-21" in there)
    built = scheduled(experiment, files, "may_be_absent")
    assert outcomes(built) == [first, 0.0, third, 0.0]


def test_a_folder_that_is_not_there_says_nothing_of_its_days(experiment: Builder) -> None:
    built = scheduled(experiment, {}, "may_be_absent")
    (built.folder / "done").rmdir()
    with pytest.raises(InputError, match="done is no folder") as caught:
        outcomes(built)
    assert not isinstance(caught.value, NoFileError)


def test_an_exposure_log_that_is_absent_is_fatal_all_the_same(experiment: Builder) -> None:
    built = scheduled(experiment, {}, "may_be_absent")
    (built.folder / "seen" / f"{PERIOD}.csv").unlink()
    with pytest.raises(NoFileError, match=r"source\.path: no file matches"):
        outcomes(built)


def test_one_file_for_all_days_is_read_once(experiment: Builder) -> None:
    built = scheduled(experiment, {"all": pl.concat([TODAY, TOMORROW])}, None)
    built.config.write_text(built.config.read_text().replace("done/{period}", "done/all"))
    assert outcomes(built) == [3.0, 0.0, 1.0, 0.0]


def said(
    result: ReleaseResult, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> tuple[Any, ...]:
    """All that a run tells, but for times, and what follows from drawn numbers."""
    told_before = [one for one in result.warnings if "may all be" not in one]
    document = result.as_json() | {"estimates": None, "path": None, "warnings": told_before}
    lines = [record.getMessage().partition(":")[0] for record in caplog.records]
    told = capsys.readouterr()
    return document, lines, told.out, told.err


def test_nobody_is_told_whether_a_day_had_events(
    experiment: Builder,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Neighbouring logs: one event of one person makes the file of a day."""
    caplog.set_level(logging.INFO, "clusterdp")
    found = []
    for files in ({}, {PERIOD: happened(("a", 23.0))}):
        built = scheduled(experiment, files, "may_be_absent")
        found.append(said(built.run(PERIOD), caplog, capsys))
        caplog.clear()
        for name in ("releases", "quarantine", "done"):
            if (built.folder / name).exists():
                (built.folder / name).rename(tmp_path / f"{name}-{len(found)}")
        (built.folder / "ledger.sqlite").unlink()
    assert found[0] == found[1]


def test_workers_read_no_file_as_one_process_does(experiment: Builder) -> None:
    built = scheduled(experiment, {}, "may_be_absent", run={"workers": 2})
    (share,) = shares(built)
    assert share.files == ()


def shares(built: Experiment) -> list[Any]:
    events = ingest(built.load().log_source, PERIOD).open().events
    assert events is not None
    return list(events.shares(3))


def test_a_file_that_is_broken_is_fatal_by_either_declaration(experiment: Builder) -> None:
    for events in ("required", "may_be_absent"):
        built = scheduled(experiment, {PERIOD: TODAY, "2026-11-21": TOMORROW}, events)
        write_content(built.folder / "done" / f"{PERIOD}.csv", "nothing,of\nthe,kind\n")
        with pytest.raises(InputError, match="there is no column"):
            outcomes(built)
