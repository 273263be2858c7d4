"""The flows of ``flows.deployed`` on a local Prefect server: names, tasks, states, what is kept.

What a release does as a flow is in test_release_flow.py; tests/deploy/test_prefect.py runs what is
shipped on a server and a worker of its own.
"""

import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    ArtifactCollectionFilter,
    ArtifactCollectionFilterKey,
    FlowRunFilter,
    FlowRunFilterId,
)
from prefect.client.schemas.objects import State, TaskRun
from prefect.flows import load_flow_from_entrypoint
from prefect.settings import PREFECT_LOCAL_STORAGE_PATH, temporary_settings

from flows import deployed
from flows.deployed import aggregate, cate, estimate, nightly, release, served_estimate, site
from flows.effects.released.model_file import ModelFile, read_model
from flows.operate.series.estimates import estimate_series
from schemas.errors import InputError
from tests.conftest import PATIENCE, Builder, Experiment, a_log
from tests.effect_logs import Campaign, campaign
from tests.flows.effects.test_multisite import Hospital, hospital
from tests.flows.effects.test_sites_model import Made, sites

__all__ = ["campaign", "hospital", "sites"]

ROOT = Path(__file__).parents[2]
FLOWS = (nightly, release, estimate, cate, site, aggregate)


def declared_tasks(name: str) -> list[str]:
    """What the table of the module says of a flow's tasks, in their order."""
    (cells,) = re.findall(
        rf"^\| ``clusterdp-{name}`` \|[^|]*\|([^|]*)\|", str(deployed.__doc__), re.M
    )
    return re.findall(r"``(\w+)``", cells)


def tasks_of(state: State[Any], n: int) -> list[TaskRun]:
    """The ``n`` tasks of a flow run, in their order; they arrive a little later than it ends."""
    assert state.state_details.flow_run_id is not None
    run = FlowRunFilter(id=FlowRunFilterId(any_=[state.state_details.flow_run_id]))
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with get_client(sync_client=True) as client:
            found = client.read_task_runs(flow_run_filter=run)
        if len(found) >= n and all(one.state and one.state.is_final() for one in found):
            return sorted(found, key=lambda one: str(one.start_time))
        time.sleep(0.2)
    pytest.fail(f"{len(found)} of {n} tasks arrived")


def names(tasks: list[TaskRun]) -> list[str]:
    return [one.name.rpartition("-")[0] for one in tasks]


@pytest.fixture
def nights(experiment: Builder) -> Experiment:
    """An experiment of which two nights are released."""
    days = ("2026-11-20", "2026-11-21")
    logs = {f"{day}.csv": a_log(160) for day in days}
    built = experiment(logs, source={"path": "{period}.csv"}, schedule={"since": days[0]})
    for day in days:
        built.run(day)
    return built


# what there is


@pytest.mark.parametrize("one", FLOWS, ids=lambda one: one.name)
def test_every_flow_is_found_by_its_entry_point(one: Flow[..., Any]) -> None:
    name = one.name.removeprefix("clusterdp-")
    assert one._entrypoint == f"flows.deployed:{name}"
    for entrypoint in (f"flows.deployed:{name}", f"{ROOT}/flows/deployed.py:{name}"):
        loaded: Flow[..., Any] = load_flow_from_entrypoint(entrypoint, use_placeholder_flow=False)
        assert (loaded.name, loaded.parameters) == (one.name, one.parameters)
    assert (one.persist_result, one.retries, one.log_prints) == (False, 0, False)
    assert one.description


# tasks and states, as the module says them


def test_a_night_is_a_run_a_period(prefect_harness: Path, experiment: Builder) -> None:
    built = experiment(
        {"2026-11-20.csv": a_log(160)},
        source={"path": "{period}.csv"},
        schedule={"since": "2026-11-20", "until": "2026-11-20"},
    )
    state: Any = nightly(str(built.config), return_state=True)
    assert state.is_completed()
    assert [one.state_name for one in tasks_of(state, 1)] == ["Completed"]
    (released,) = state.result(raise_on_failure=False).releases
    assert released.release_id == "trial.2026-11-20.r1"


def test_a_site_and_all_of_them_have_these_tasks(prefect_harness: Path, hospital: Hospital) -> None:
    paths = []
    for name in ("north", "south"):
        state: Any = site(str(hospital(name=name).config), return_state=True)
        steps = declared_tasks("site")
        assert names(tasks_of(state, len(steps))) == steps
        paths.append(str(state.result().path))
    state = aggregate(paths, sites="dealt", return_state=True)
    assert names(tasks_of(state, 1)) == declared_tasks("aggregate")[:1]
    assert state.result().declared == "dealt"
    broken = Path(paths[0])
    broken.write_text("{}")
    state = aggregate(paths, return_state=True)
    assert state.name == "BadInput"
    assert [one.state_name for one in tasks_of(state, 1)] == ["BadInput"]


def test_one_effect_model_of_all_sites_is_a_task(
    prefect_harness: Path, sites: Made, tmp_path: Path
) -> None:
    paths, output = list(map(str, sites().reports())), tmp_path / "all.json"
    state = aggregate(paths, cate=True, output=str(output), return_state=True)
    assert names(tasks_of(state, 1)) == declared_tasks("aggregate")[1:]
    made = state.result()
    assert isinstance(made, ModelFile)
    assert made.model.n_rows == read_model(output).model.n_rows > 0
    declared = {"cate": True, "output": str(tmp_path / "new.json"), "sites": "places"}
    others = {"cate": True, "output": "all.txt"}, {"cate": True}, declared
    for asked in ({"output": str(output)}, *others):
        assert aggregate(paths, **asked, return_state=True).name == "BadInput"


def test_an_effect_model_has_these_tasks(prefect_harness: Path, campaign: Campaign) -> None:
    built = campaign()
    state = cate(str(built.config), return_state=True)
    steps = declared_tasks("cate")
    assert names(tasks_of(state, len(steps))) == steps
    (built.folder / "log.parquet").unlink()
    state = cate(str(built.config), return_state=True)
    assert state.name == "BadInput"
    assert [one.state_name for one in tasks_of(state, 1)] == ["BadInput"]


# effects of what is published


def test_effects_of_a_folder_are_those_of_the_command_each_release_a_task(
    prefect_harness: Path, nights: Experiment, tmp_path: Path
) -> None:
    output = tmp_path / "effects.json"
    state = estimate(str(nights.releases), output=str(output), return_state=True)
    assert state.is_completed()
    found = tasks_of(state, 2)
    assert names(found) == declared_tasks("estimate") * 2
    expected = estimate_series([nights.releases]).as_json()
    assert state.result() == json.loads(output.read_text()) == json.loads(json.dumps(expected))


def test_what_was_estimated_is_kept_until_a_file_or_a_question_is_another(
    prefect_harness: Path, nights: Experiment, tmp_path: Path
) -> None:
    def states(**question: Any) -> list[str | None]:
        state = estimate(str(nights.releases), return_state=True, **question)
        assert state.is_completed(), state
        return [
            one.state_name for one in tasks_of(state, len(list(nights.releases.glob("*.r?.*"))))
        ]

    with temporary_settings({PREFECT_LOCAL_STORAGE_PATH: tmp_path / "kept"}):
        assert states() == ["Completed", "Completed"]
        assert states() == ["Cached", "Cached"]
        assert states(level=0.9) == ["Completed", "Completed"]
        nights.run("2026-11-21", revise=True)
        (nights.releases / "trial.2026-11-21.r1.duckdb").unlink()
        assert states() == ["Cached", "Completed"]
        # The analyst's own table is kept nowhere.
        n_kept = len(list((tmp_path / "kept").iterdir()))
        segments = tmp_path / "segments.csv"
        log = a_log(160).select(unit_id="customer", segment=pl.lit("all"))
        log.write_csv(segments)
        assert states(segments=str(segments)) == ["Completed", "Completed"]
        assert states(segments=str(segments)) == ["Completed", "Completed"]
    assert len(list((tmp_path / "kept").iterdir())) == n_kept
    kept = [json.loads(one.read_text()) for one in (tmp_path / "kept").iterdir()]
    assert {one["metadata"]["serializer"]["type"] for one in kept} == {"json"}


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"by": "nothing"}, "nothing"),
        ({"by": "a", "adjust": ["b"]}, "cannot go with"),
        ({"level": 1.0}, "level"),
        ({"segments": "none.csv"}, "none.csv"),
    ],
)
def test_what_cannot_be_estimated_is_bad_input(
    prefect_harness: Path,
    nights: Experiment,
    monkeypatch: pytest.MonkeyPatch,
    parameters: dict[str, Any],
    says: str,
) -> None:
    monkeypatch.setattr("flows.orchestration.step.RETRY_SECONDS", 0.0)
    state = estimate(str(nights.releases), **parameters, return_state=True)
    assert state.name == "BadInput"
    assert state.message is not None
    assert says in state.message


def test_a_release_that_cannot_be_read_is_tried_again_and_named(
    prefect_harness: Path, nights: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Path] = []

    def hiccup(path: Path, *_: object) -> Any:
        tried.append(path)
        raise InputError(f"{path.name}: cannot be read")

    monkeypatch.setattr("flows.orchestration.step.RETRY_SECONDS", 0.0)
    monkeypatch.setattr("flows.operate.series.estimates.estimate_file", hiccup)
    state = estimate(str(nights.releases), return_state=True)
    assert (state.name, len(tried)) == ("BadInput", 3)
    assert "trial.2026-11-20.r1.duckdb: cannot be read" in str(state.message)


def test_effects_are_an_artifact_of_the_run_and_a_server_that_takes_none_stops_nothing(
    prefect_harness: Path, nights: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = release(str(nights.config), "2026-11-20")
    with get_client(sync_client=True) as client:
        (shown,) = client.read_latest_artifacts(
            artifact_filter=ArtifactCollectionFilter(
                key=ArtifactCollectionFilterKey(any_=["clusterdp-trial"])
            )
        )
    assert shown.description == f"Effects: {made.release_id}"
    rows = json.loads(str(shown.data))
    assert [row["estimate"] for row in rows] == [one.estimate for one in made.estimates]

    def takes_none(*_: object, **__: object) -> None:
        raise OSError

    monkeypatch.setattr("prefect.artifacts.create_table_artifact", takes_none)
    assert release(str(nights.config), "2026-11-20").status == "unchanged"


def test_a_served_estimate_reads_the_served_folders_alone(
    prefect_harness: Path, nights: Experiment, tmp_path: Path
) -> None:
    output = tmp_path / "trial.json"
    served = served_estimate({str(nights.releases): str(output)})
    other = tmp_path / "other"
    shutil.copytree(nights.releases, other)
    state: Any = served(str(other), return_state=True)
    assert (state.name, state.message) == ("BadInput", "path: this folder is not served here")
    assert not output.exists()
    served(str(nights.releases))
    assert json.loads(output.read_text())["experiment"] == "trial"
