"""What a ledger keeps of runs: by period the last that published it, and the last other one."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa

from flows.ledger.attempts import CLOSED, AttemptLog
from flows.ledger.database import Ledger
from flows.ledger.ends import Attempt, AttemptState
from flows.ledger.standing import standings
from flows.schedule.periods import Schedule
from schemas.errors import InputError

pytest_plugins = ["tests.postgresql"]

NOW = datetime(2026, 11, 20, 3, 15, 30, tzinfo=UTC)
RUN = Attempt(
    run="a" * 12,
    period="p",
    state=AttemptState.PUBLISHED,
    at=NOW,
    release_id="trial.p.r1",
    seconds=7,
    n_units=160,
    n_read=161,
    sample_ratio_p=0.25,
    set_aside={"unit_missing": 1},
)
FAILED = Attempt("b" * 12, "p", AttemptState.FAILED, "its disk is full", NOW + timedelta(seconds=1))
RUNNING = Attempt("f" * 12, "p", AttemptState.RUNNING, at=NOW, folder=Path("/releases/.draft"))


@pytest.fixture
def log(ledger: Ledger) -> AttemptLog:
    return AttemptLog(ledger, "trial")


def test_what_is_kept_is_read_again(log: AttemptLog) -> None:
    log.keep(FAILED)
    log.keep(RUN)
    assert log.attempts() == [RUN, FAILED]  # the oldest first


def test_a_reason_is_kept_as_far_as_anybody_reads_it(log: AttemptLog) -> None:
    log.keep(replace(FAILED, reason="x" * 10_000))
    assert log.attempts() == [replace(FAILED, reason="x" * 2000)]


def test_a_run_takes_the_place_of_one_that_ended_likewise(log: AttemptLog) -> None:
    again = replace(RUN, run="c" * 12, at=NOW + timedelta(days=1))
    refused = replace(FAILED, run="d" * 12, state=AttemptState.REFUSED)
    other = replace(FAILED, run="e" * 12, period="q", at=NOW)
    for run in (RUN, FAILED, other, again, refused):
        log.keep(run)
    assert log.attempts() == [other, refused, again]


@pytest.mark.parametrize("end", [RUN, FAILED], ids=["published", "failed"])
def test_a_run_ends_in_its_own_place(log: AttemptLog, end: Attempt) -> None:
    """One that runs takes that of the last failure: a try is made anew."""
    before = replace(RUN, run="c" * 12, period="q")
    log.keep(before)
    log.keep(replace(FAILED, at=NOW - timedelta(days=1)))
    log.keep(RUNNING)
    assert log.attempts() == [before, RUNNING]
    log.keep(replace(end, run=RUNNING.run))
    assert log.attempts() == [before, replace(end, run=RUNNING.run)]


def test_of_a_run_that_found_its_period_public_nothing_is_kept(log: AttemptLog) -> None:
    log.keep(RUN)
    log.keep(RUNNING)
    log.drop(RUNNING.run)
    assert log.attempts() == [RUN]


def test_what_was_told_is_news_again_once_the_period_is_published(log: AttemptLog) -> None:
    for period in "pq":
        log.note_told(period, "failed", NOW)
        log.note_told(period, "failed", NOW)
    log.keep(FAILED)
    assert log.notices() == {("p", "failed"), ("q", "failed")}
    log.keep(RUN)
    assert log.notices() == {("q", "failed")}


def test_the_end_of_an_experiment_is_no_news_again_once_its_last_period_is_drawn_anew(
    log: AttemptLog,
) -> None:
    for event in ("failed", CLOSED):
        log.note_told("p", event, NOW)
    log.keep(RUN)
    assert log.notices() == {("p", CLOSED)}


@pytest.mark.parametrize("state", [AttemptState.FAILED, AttemptState.NO_FILE])
@pytest.mark.parametrize("day", ["2026-11-19", "2026-11-20"], ids=["due", "early"])
def test_a_failure_whose_reason_a_version_before_did_not_keep_is_told_in_words(
    state: AttemptState, day: str
) -> None:
    schedule = Schedule(date(2026, 11, 19), ZoneInfo("UTC"), missing_after=timedelta(days=2))
    attempt = replace(FAILED, period=day, state=state, reason=None)
    found = {one.period: one for one in standings(schedule, NOW, [], {day: attempt}, {})}
    assert "kept no reason" in (found[day].reason or "")
    assert "None" not in (found[day].reason or "")


DAMAGES = [
    *(("set_aside", text) for text in ("", "7", "[]", '{"unit_missing": -1}', "{oh")),
    ("sample_ratio_p", "-1"),
    ("state", "paid"),
    ("at", "noon"),
]


@pytest.mark.parametrize(("column", "value"), DAMAGES)
def test_a_row_that_is_none_of_this_program_s_is_refused(
    log: AttemptLog, ledger: Ledger, column: str, value: str
) -> None:
    log.keep(RUN)
    change = sa.text(f"UPDATE clusterdp_ends SET {column} = :value WHERE run = :run")
    with ledger.alone() as connection:
        connection.execute(change, {"value": value, "run": RUN.run})
    with pytest.raises(InputError, match=f"clusterdp_ends: {column} .*'{RUN.run}' is .*delete it"):
        log.attempts()
