"""The nightly flow: its steps in order, its result, and what Prefect is told of it."""

import inspect
import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.settings import (
    PREFECT_LOCAL_STORAGE_PATH,
    PREFECT_RESULTS_PERSIST_BY_DEFAULT,
    temporary_settings,
)

from flows.release import ReleaseResult, release
from flows.step import plain_step, step
from schemas.errors import ConfigError, ConflictError, InputError
from tests.conftest import SENTINEL, Builder, Experiment, a_log, released, rows

STEPS = ["ingest", "validate", "privatize", "publish", "estimate"]


# as a plain function


def test_a_run_says_what_it_made(experiment: Builder) -> None:
    built = experiment(rows(*a_log(100).rows(), ("x", "fax", "east", 1.0)))
    result = built.run("2026-11-20")
    assert result.release_id == "trial.2026-11-20.r1"
    assert result.path == built.releases / "trial.2026-11-20.r1.duckdb"
    assert result.path.is_absolute()
    assert (result.status, result.mechanism) == ("published", "cluster-dp")
    assert (result.epsilon, result.delta) == (2.0, 0.0)
    assert result.roster.n_units == 100
    assert result.roster.quarantined_by_rule == {"arm_not_declared": 1}
    assert [one.arm for one in result.estimates] == ["mail"]


def test_its_document_has_the_keys_of_the_contract(experiment: Builder) -> None:
    document = experiment().run().as_json()
    assert set(document) >= {
        "release_id", "path", "status", "mechanism", "epsilon", "delta", "n_units", "quarantined",
        "quarantined_by_rule", "sample_ratio_p", "ledger",
    }  # fmt: skip
    assert document["ledger"] is None  # there is none yet
    assert set(document["estimates"][0]) >= {
        "arm", "control", "segment", "estimator", "estimate", "std_error", "privacy_std_error",
        "ci_lower", "ci_upper", "p_value", "relative", "relative_ci_lower", "relative_ci_upper",
        "n_units",
    }  # fmt: skip


def test_a_published_period_is_a_conflict_unless_revised(experiment: Builder) -> None:
    built = experiment()
    first = built.run().path.read_bytes()
    with pytest.raises(ConflictError, match=r"trial\.once\.r1.*--revise"):
        built.run()
    assert built.run(revise=True).release_id == "trial.once.r2"
    assert (built.releases / "trial.once.r1.duckdb").read_bytes() == first
    with pytest.raises(ConflictError, match=r"trial\.once\.r2"):
        built.run()


def test_a_revision_is_drawn_anew(experiment: Builder) -> None:
    """240 outcomes, of which about half are resampled: alike with probability under 10⁻²⁰."""
    built = experiment(privacy={"epsilon": 0.5})
    drawn = [released(built.run(revise=True).path, "units")["outcome"].to_list() for _ in "ab"]
    assert drawn[0] != drawn[1]


def test_each_period_reads_its_own_log(experiment: Builder) -> None:
    parts = {"2026/log.csv": a_log(40), "2027/log.csv": a_log(60)}
    built = experiment(parts, source={"path": "{period}/log.csv"})
    assert [built.run(period).roster.n_units for period in ("2027", "2026")] == [60, 40]
    latest = released(built.releases / "latest.duckdb", "release")
    assert latest["period"].to_list() == ["2027"]


def test_a_fault_in_the_configuration_is_told_before_anything_is_done(experiment: Builder) -> None:
    built = experiment(source={"path": "{period}.csv"})
    before = built.entries
    with pytest.raises(ConfigError, match="--period"):
        built.run()
    assert built.entries == before


def test_after_a_failure_the_next_run_does_the_job(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = experiment()
    with monkeypatch.context() as broken:
        broken.setattr("flows.released.publish._insert", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            built.run()
    assert built.files == ["log.parquet", "trial.toml"]
    assert built.run().release_id == "trial.once.r1"


def test_its_parameters_can_be_given_to_a_schedule() -> None:
    """Deployments pass them by name and as JSON, so neither may change."""
    parameters = inspect.signature(release.fn).parameters
    assert list(parameters) == ["config_path", "period", "revise", "schedule_timezone"]
    assert all(p.annotation in (str, bool, str | None) for p in parameters.values())


# a step


def test_a_step_outside_a_flow_is_its_function(caplog: pytest.LogCaptureFixture) -> None:
    def add(left: int, right: int = 2) -> int:
        return left + right

    caplog.set_level(logging.INFO, "clusterdp")
    assert step(add)(1, right=4) == plain_step(add)(1, right=4) == 5
    assert caplog.messages[0] == "add …"
    assert caplog.messages[1].startswith("add: 0.0")


def test_a_step_says_nothing_of_what_it_is_given(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    plain_step(str)(SENTINEL)
    assert caplog.messages
    assert str(SENTINEL) not in caplog.text


# as a Prefect flow


@pytest.fixture
def database(prefect_harness: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(next(prefect_harness.glob("*.db")))) as connection:
        yield connection


def run_in_prefect(built: Experiment, **parameters: Any) -> tuple[State[ReleaseResult], UUID]:
    state = release(str(built.config), **parameters, return_state=True)
    run_id = state.state_details.flow_run_id
    assert run_id is not None
    return state, run_id


def task_runs(database: sqlite3.Connection, run_id: UUID) -> list[dict[str, Any]]:
    """The task runs of a flow run in their order; they arrive a little later than it ends."""
    database.row_factory = sqlite3.Row
    query = "SELECT * FROM task_run WHERE flow_run_id IN (?, ?) ORDER BY start_time"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = database.execute(query, (str(run_id), run_id.hex)).fetchall()
        if found and all(row["state_type"] in ("COMPLETED", "FAILED") for row in found):
            return [dict(row) for row in found]
        time.sleep(0.2)
    pytest.fail("the task runs never arrived")


def test_every_step_is_a_task_in_the_order_of_the_way(
    experiment: Builder, database: sqlite3.Connection
) -> None:
    state, run_id = run_in_prefect(experiment(), period="2026-11-20")
    assert state.is_completed()
    while len(found := task_runs(database, run_id)) < len(STEPS):
        time.sleep(0.2)
    assert [row["name"].split("-")[0] for row in found] == STEPS
    assert {row["state_type"] for row in found} == {"COMPLETED"}
    assert {row["run_count"] for row in found} == {1}
    assert {row["cache_key"] for row in found} == {None}


def test_prefect_knows_the_parameters_and_nothing_of_the_rows(
    experiment: Builder, prefect_harness: Path
) -> None:
    built = experiment()
    _, run_id = run_in_prefect(built, period="2026-11-20")
    with get_client(sync_client=True) as client:
        assert client.read_flow_run(run_id).parameters == {
            "config_path": str(built.config),
            "period": "2026-11-20",
            "revise": False,
            "schedule_timezone": None,
        }


def test_a_refusal_comes_out_of_prefect_as_it_went_in(
    experiment: Builder, prefect_harness: Path
) -> None:
    built = experiment(rows(("a", "fax", "east", SENTINEL)))
    with pytest.raises(InputError, match="no row is left"):
        release(str(built.config))
    with pytest.raises(ConfigError, match="there is no such file"):
        release(str(built.folder / "none.toml"))


def test_a_step_that_fails_is_not_tried_again(
    experiment: Builder, database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def fail(*given: object) -> None:
        calls.append(given)
        raise RuntimeError

    monkeypatch.setattr("flows.raw.privatize._debias", fail)
    state, run_id = run_in_prefect(experiment())
    assert state.is_failed()
    assert len(calls) == 1
    last = task_runs(database, run_id)[-1]
    assert (last["name"].split("-")[0], last["state_type"]) == ("privatize", "FAILED")
    assert last["run_count"] == 1


def test_nothing_of_a_run_is_kept_even_where_results_are_kept_by_default(
    experiment: Builder, prefect_harness: Path, tmp_path: Path
) -> None:
    @flow
    def other() -> int:
        return 1

    storage = tmp_path / "storage"
    keeping = {PREFECT_RESULTS_PERSIST_BY_DEFAULT: True, PREFECT_LOCAL_STORAGE_PATH: str(storage)}
    with temporary_settings(keeping):
        state, _ = run_in_prefect(experiment())
        assert state.is_completed()
        assert not storage.exists()
        other()
        assert len(list(storage.iterdir())) == 1
