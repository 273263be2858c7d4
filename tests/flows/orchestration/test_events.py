"""What a Prefect server is told of a run: public facts, and only by runs of its own."""

import json
from typing import Any

import polars as pl
import prefect.events
import pytest

from flows.deployed import nightly, release
from flows.orchestration.states import state_of_failure
from flows.release import release_period
from schemas.errors import ConflictError, InputError
from tests.conftest import SENTINEL, Builder, a_log, write_content

LIGHT = {"mechanism": "uniform-prior-dp", "strata_statistic": "none", "epsilon": 20.0}
ODD = a_log(300).with_columns(
    variant=pl.when(pl.int_range(pl.len()) < 250).then(pl.lit("mail")).otherwise(pl.lit("none")),
    clicks=pl.when(pl.int_range(pl.len()) % 2 == 0).then(SENTINEL).otherwise(0),
)

Told = list[tuple[str, dict[str, str], dict[str, Any]]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """What is told of a period: name, resource and payload."""
    found: Told = []

    def emit(event: str, resource: dict[str, str], payload: dict[str, Any]) -> None:
        found.append((event, resource, payload))

    monkeypatch.setattr(prefect.events, "emit_event", emit)
    return found


@pytest.mark.usefixtures("prefect_harness")
def test_public_facts_of_a_release_are_told(experiment: Builder, told: Told) -> None:
    built = experiment({"log.csv": ODD}, "log.csv", privacy=LIGHT)
    release(str(built.config))
    ((event, resource, payload),) = told
    assert event == "clusterdp.sample_ratio"
    assert resource == {
        "prefect.resource.id": "clusterdp.trial.once",
        "prefect.resource.name": "trial once",
        "clusterdp.experiment": "trial",
        "clusterdp.period": "once",
    }
    assert payload["release_id"] == "trial.once.r1"
    assert payload["sample_ratio_p"] < 0.001
    assert payload["text"].startswith("trial once: published\ntrial once: sample ratio mismatch")
    assert str(SENTINEL) not in json.dumps(told)


@pytest.mark.usefixtures("prefect_harness")
def test_whether_rows_have_changed_is_told_by_no_event(experiment: Builder, told: Told) -> None:
    built = experiment({"log.csv": a_log(16)}, "log.csv", privacy=LIGHT)
    release(str(built.config))
    release(str(built.config))
    write_content(built.folder / "log.csv", a_log(18))
    with pytest.raises(ConflictError):
        release(str(built.config))
    assert told == []


@pytest.mark.usefixtures("prefect_harness")
def test_a_failure_before_any_period_is_told(experiment: Builder, told: Told) -> None:
    built = experiment(
        {"2026-11-01.csv": a_log(16)},
        source={"path": "{period}.csv"},
        schedule={"since": "2026-11-01"},
        privacy=LIGHT,
    )
    (built.folder / "ledger.sqlite").write_bytes(b"not a database" * 1000)
    with pytest.raises(InputError):
        nightly(str(built.config))
    ((event, resource, _),) = told
    assert (event, resource["clusterdp.period"]) == ("clusterdp.failed", "")
    assert resource["prefect.resource.id"] == "clusterdp.trial"


def test_without_a_flow_nobody_is_told(experiment: Builder, told: Told) -> None:
    release_period(str(experiment({"log.csv": ODD}, "log.csv", privacy=LIGHT).config))
    assert told == []


@pytest.mark.usefixtures("prefect_harness")
def test_a_server_that_cannot_be_told_stops_nothing(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError(SENTINEL)

    monkeypatch.setattr(prefect.events, "emit_event", fails)
    built = experiment({"log.csv": ODD}, "log.csv", privacy=LIGHT)
    assert release(str(built.config)).status == "published"
    assert "Prefect was not told (sample_ratio): RuntimeError" in caplog.text
    assert str(SENTINEL) not in caplog.text


def test_a_state_names_no_place_in_a_file() -> None:
    def fails() -> None:
        raise InputError("done.jsonl: line 613 does not parse")

    state: Any = state_of_failure(fails)()
    assert state.message == "done.jsonl: a line does not parse"
    assert str(state.result(raise_on_failure=False)) == "done.jsonl: line 613 does not parse"
