"""What a ledger keeps of runs: by period the last that published it, and the last that did not."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from flows.ledger.attempts import CLOSED, ENDED, AttemptLog, AttemptState, RunRecord
from flows.ledger.database import Ledger

pytest_plugins = ["tests.postgresql"]

NOW = datetime(2026, 11, 20, 3, 15, 30, tzinfo=UTC)
RUN = RunRecord(
    run="a" * 12,
    period="p",
    state=AttemptState.PUBLISHED,
    ended_at=NOW,
    release_id="trial.p.r1",
    seconds=7,
    n_units=160,
    n_read=161,
    sample_ratio_p=0.25,
    set_aside={"unit_missing": 1},
)
FAILED = RunRecord("b" * 12, "p", AttemptState.FAILED, NOW + timedelta(seconds=1))


@pytest.fixture
def log(ledger: Ledger) -> AttemptLog:
    return AttemptLog(ledger, "trial")


def test_what_is_kept_is_read_again(log: AttemptLog) -> None:
    log.keep(FAILED)
    log.keep(RUN)
    assert log.runs() == [RUN, FAILED]  # the oldest end first


def test_a_run_takes_the_place_of_one_that_ended_likewise(log: AttemptLog) -> None:
    again = replace(RUN, run="c" * 12, ended_at=NOW + timedelta(days=1))
    refused = replace(FAILED, run="d" * 12, state=AttemptState.REFUSED)
    other = replace(FAILED, run="e" * 12, period="q", ended_at=NOW)
    for run in (RUN, FAILED, other, again, refused):
        log.keep(run)
    assert log.runs() == [other, refused, again]


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


NUMBERS = ("seconds", "n_units", "n_read", "sample_ratio_p")
NEGATIVE = json.dumps({**dict.fromkeys(NUMBERS, -1), "set_aside": {}})
DAMAGES = [
    *(("facts", facts) for facts in ("", "7", "{}", "[]", NEGATIVE)),
    ("state", "paid"),
    ("ended_at", "noon"),
]


@pytest.mark.parametrize(("column", "value"), DAMAGES)
def test_a_row_that_is_none_of_this_program_s_is_left_out(
    log: AttemptLog, ledger: Ledger, column: str, value: str
) -> None:
    log.keep(RUN)
    log.keep(FAILED)
    change = sa.text(f"UPDATE clusterdp_runs SET {column} = :value WHERE run = :run")
    with ledger.alone() as connection:
        connection.execute(change, {"value": value, "run": RUN.run})
    assert log.runs() == [FAILED]


def test_no_run_that_has_ended_is_running() -> None:
    assert {*ENDED, AttemptState.RUNNING} == set(AttemptState)
    assert AttemptState.RUNNING not in ENDED
