"""The shipped deployment for real: `prefect deploy` of deploy/prefect.yaml, and a worker's run."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.flows import load_flow_from_entrypoint
from prefect.settings import PREFECT_API_URL
from prefect.states import Scheduled

from flows.due import nightly
from flows.multisite import aggregate, site
from flows.release import release
from tests.conftest import PATIENCE, Builder, a_log, released

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "entrypoint",
    ["flows.release:release", "flows.release.release", f"{ROOT}/flows/release.py:release"],
)
def test_the_flow_is_found_by_its_entry_point(entrypoint: str) -> None:
    found: Flow[..., Any] = load_flow_from_entrypoint(entrypoint, use_placeholder_flow=False)
    assert found.name == "clusterdp-release"
    assert list(found.parameters.properties) == [
        "config_path", "period", "revise", "schedule_timezone",
    ]  # fmt: skip
    assert (found.persist_result, found.retries, found.log_prints) == (False, 0, False)


def test_a_flow_is_always_the_same_and_knows_where_it_stands() -> None:
    from flows.release import release as again  # noqa: PLC0415 - made at each of these imports

    assert release is again
    assert release._entrypoint == "flows.release:release"
    assert (nightly._entrypoint, nightly.name) == ("flows.due:nightly", "clusterdp-nightly")
    assert (site._entrypoint, site.name) == ("flows.multisite:site", "clusterdp-site")
    assert aggregate.name == "clusterdp-aggregate"


def test_what_is_no_flow_is_no_attribute() -> None:
    import flows.multisite  # noqa: PLC0415 - the module itself
    import flows.release  # noqa: PLC0415 - the module itself

    for module in (flows.release, flows.multisite):
        assert not hasattr(module, "nothing")


def prefect(url: str, folder: Path, *arguments: str) -> str:
    """Run Prefect's own program; what it said."""
    ours = {name: value for name, value in os.environ.items() if "PREFECT" not in name}
    ours |= {"PREFECT_API_URL": url, "PREFECT_HOME": str(folder / "home"), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-m", "prefect", *arguments],
        cwd=ROOT if arguments[0] == "deploy" else folder,  # as deploy/prefect.yaml says
        env=ours | {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_a_deployment_runs_on_a_worker(
    prefect_harness: Path, experiment: Builder, tmp_path: Path
) -> None:
    """Half an hour past midnight in its time zone it releases the day that has ended there; where
    the configuration has a schedule, every day that is due."""
    url = str(PREFECT_API_URL.value())
    today = datetime.now(UTC).date()
    days = [(today - timedelta(days=ago)).isoformat() for ago in (3, 2)]
    logs = {f"{day}.csv": a_log(40) for day in ("2025-11-20", *days)}
    built = experiment(logs, source={"path": "{period}.csv"})
    scheduled = built.folder / "due.toml"
    schedule = f'\n[schedule]\nsince = "{days[0]}"\nmissing_after = "9d"\n'
    scheduled.write_text(built.config.read_text().replace('"trial"', '"due"') + schedule)
    due = datetime(2025, 11, 20, 23, 30, tzinfo=UTC)
    prefect(url, tmp_path, "work-pool", "create", "clusterdp", "--type", "process")
    prefect(url, tmp_path, "deploy", "--all", "--prefect-file", "deploy/prefect.yaml")
    with get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name("clusterdp-nightly/nightly")
        assert deployment.entrypoint == "flows.due:nightly"
        asked = client.create_flow_run_from_deployment(
            deployment.id,
            parameters={"config_path": str(built.config)},
            state=Scheduled(scheduled_time=due),
        )
        said = prefect(url, tmp_path, "worker", "start", "--pool", "clusterdp", "--run-once")
        catching_up = client.create_flow_run_from_deployment(  # one at a time
            deployment.id, parameters={"config_path": str(scheduled)}
        )
        said += prefect(url, tmp_path, "worker", "start", "--pool", "clusterdp", "--run-once")
        ended = client.read_flow_run(asked.id).state
        caught_up = client.read_flow_run(catching_up.id).state
        client.delete_deployment(deployment.id)
    assert caught_up is not None
    assert caught_up.name == "Completed", said
    assert {path.name for path in (built.releases.parent / "due").glob("due.*.duckdb")} == {
        f"due.{day}.r1.duckdb" for day in days
    }
    assert ended is not None
    assert ended.name == "Completed", said
    path = built.releases / "trial.2025-11-20.r1.duckdb"
    assert released(path, "release")["n_units"].to_list() == [40]
