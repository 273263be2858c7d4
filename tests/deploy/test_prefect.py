"""The shipped deployments and automations on a real Prefect server, with a real worker."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args
from uuid import uuid4

import polars as pl
import pytest
from prefect.events.schemas.automations import AutomationCore
from ruamel.yaml import YAML

from flows.config.model.notify import Event
from schemas.names import PERIOD
from tests.conftest import Experiment, a_log, build_experiment, write_content
from tests.deploy.real_prefect import RealPrefect, real_prefect, wait_for
from tests.docs.blocks import ROOT, blocks
from tests.flows.operate.watch.servers import Web, web_server

DEPLOY = ROOT / "deploy"
LIGHT = {"mechanism": "uniform-prior-dp", "strata_statistic": "none"}
TODAY = datetime.now(UTC).date()
DAYS = [(TODAY - timedelta(days=ago)).isoformat() for ago in (3, 2)]
EVENING = "2025-11-20"  # the day before the time that runs are asked for, in Zurich

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPrefect]:
    late = {
        "PREFECT_SERVER_SERVICES_LATE_RUNS_LOOP_SECONDS": "1",
        "PREFECT_SERVER_SERVICES_LATE_RUNS_AFTER_SECONDS": "1",
    }
    with real_prefect(tmp_path_factory.mktemp("server"), **late) as found:
        for pool in ("clusterdp", "estimates"):
            found.program("work-pool", "create", pool, "--type", "process", folder=ROOT)
        yield found


@pytest.fixture
def web() -> Iterator[Web]:
    with web_server() as found:
        yield found


def an_experiment(folder: Path, name: str, logs: dict[str, Any], **sections: Any) -> Experiment:
    """An experiment of its own name, in a folder of its own."""
    given = {"source": {"path": "{period}.csv"}, **sections}
    given["privacy"] = LIGHT | given.get("privacy", {})
    built = build_experiment(folder / name, logs, **given)
    config = built.folder / f"{name}.toml"
    config.write_text(built.config.read_text().replace('"trial"', f'"{name}"'))
    built.config.unlink()
    return Experiment(config)


def released(built: Experiment) -> list[str]:
    folder = built.folder / "releases" / built.config.stem
    return sorted(path.name for path in folder.glob(f"{built.config.stem}.*.duckdb"))


def deployments(folder: Path, *configs: Path) -> Path:
    """The shipped file for these configurations, each of them a few lines."""
    text = (DEPLOY / "prefect.yaml").read_text()
    begun = text[: text.index("  - <<: *nightly")]
    each = (
        f"  - <<: *nightly\n    name: {config.stem}\n    parameters:\n"
        f"      config_path: {config}\n      schedule_timezone: Europe/Zurich\n"
        for config in configs
    )
    path = folder / "prefect.yaml"
    path.write_text(begun + "\n".join(each))
    return path


def work(server: RealPrefect, folder: Path, *runs: str, pool: str = "clusterdp") -> None:
    """Let a worker of a pool do these runs, four at a time, and end."""
    command = ["worker", "start", "--pool", pool, "--limit", "4", "--run-once"]
    done = {"COMPLETED", "FAILED", "CRASHED"}

    def ended() -> bool:
        server.program(*command, folder=folder)
        found = [server.ask(f"/flow_runs/{run}")[1]["state"]["type"] for run in runs]
        return done.issuperset(found)

    wait_for(ended, "runs of a worker")


def started(server: RealPrefect, built: Experiment) -> str:
    code, run = server.run(built.config.stem)
    assert code == 201, run
    return str(run["id"])


# deployments


def test_both_experiments_of_the_shipped_file_are_released_and_one_is_estimated(
    server: RealPrefect, tmp_path: Path
) -> None:
    schedule = {"since": DAYS[0], "missing_after": "9d"}
    logs = {f"{day}.csv": a_log(40) for day in DAYS}
    autumn = an_experiment(tmp_path, "autumn", logs, schedule=schedule)
    winter = an_experiment(tmp_path, "winter", {f"{EVENING}.csv": a_log(40)})
    text = (DEPLOY / "prefect.yaml").read_text()
    for built in (autumn, winter):
        text = text.replace(f"/etc/clusterdp/{built.config.name}", str(built.config))
    text = text.replace("/srv/clusterdp/releases/autumn", str(autumn.folder / "releases/autumn"))
    (tmp_path / "prefect.yaml").write_text(text)
    (command,) = re.findall(r"#   prefect (deploy .*?) +#", text)
    server.program(*command.split(), folder=tmp_path)
    runs = [started(server, built) for built in (autumn, winter)]
    work(server, tmp_path, *runs)
    assert [server.state(run) for run in runs] == [("Completed", "")] * 2
    assert released(autumn) == [f"autumn.{day}.r1.duckdb" for day in DAYS]
    assert released(winter) == [f"winter.{EVENING}.r1.duckdb"]
    code, run = server.run("autumn", "clusterdp-estimate")
    assert code == 201, run
    work(server, tmp_path, run["id"], pool="estimates")
    assert server.state(run["id"]) == ("Completed", "")
    assert server.tasks(run["id"]) == [("estimate_night", "Completed")] * 2


def test_what_does_not_fit_is_refused_before_there_is_a_run(
    server: RealPrefect, tmp_path: Path
) -> None:
    """By the schema that the server has of the flow; no log is there to be looked at."""
    config = tmp_path / "typed.toml"
    path = deployments(tmp_path, config)
    server.program("deploy", "--all", "--prefect-file", path.name, folder=tmp_path)
    _, found = server.ask("/deployments/name/clusterdp-nightly/typed")
    schema = found["parameter_openapi_schema"]
    assert (found["enforce_parameter_schema"], schema["required"]) == (True, ["config_path"])
    stated = schema["properties"]["config_path"]
    assert stated["type"] == "string"
    assert stated["description"].startswith("The configuration file; of a deployment an absolute")
    assert "time zone" in schema["properties"]["schedule_timezone"]["description"]
    wrong: list[tuple[dict[str, object], str]] = [
        ({"config_path": "typed.toml"}, "does not match"),
        ({"config_path": 7}, "is not of type 'string'"),
        ({"schedule_timezone": ["UTC"]}, "is not valid under any of the given schemas"),
        ({"schedule_timezone": "Europe/Zurich; ls"}, "does not match"),
    ]
    for parameters, says in wrong:
        code, answer = server.run("typed", **parameters)
        assert (code, says in str(answer)) == (409, True), answer
    runs = {"deployments": {"id": {"any_": [found["id"]]}}, "flow_runs": {"state": {
        "name": {"not_any_": ["Scheduled", "Late"]}}}}  # fmt: skip
    assert server.ask("/flow_runs/filter", runs)[1] == []
    path.write_text(path.read_text().replace(str(config), "typed.toml"))
    said = server.program(
        "deploy", "--all", "--prefect-file", path.name, folder=tmp_path, fails=True
    )
    assert "'typed.toml' does not match" in said


def test_a_period_has_the_form_that_configurations_ask_for() -> None:
    from flows.deployed import release  # noqa: PLC0415 - a flow, made where it is asked for

    (period, _) = release.parameters.properties["period"]["anyOf"]
    assert period["pattern"] == f"^{PERIOD}$"


# automations


def test_every_event_of_a_period_is_sent_on() -> None:
    sent = {event for one in automations() for event in one["trigger"]["expect"]}
    of_runs = {"failed", "refused"}  # by the state of the run
    assert sent >= {f"clusterdp.{event}" for event in get_args(Event) if event not in of_runs}


def automations() -> list[dict[str, Any]]:
    text = (DEPLOY / "automations.yaml").read_text().replace("BLOCK", "0" * 32)
    found = YAML(typ="safe").load(text)["automations"]
    assert isinstance(found, list)
    return found


def test_automations_are_what_prefect_knows() -> None:
    for one in automations():
        AutomationCore.model_validate(one)
        assert one["description"]


@pytest.mark.soak  # nearly three minutes, most of them waiting
def test_each_fault_of_a_night_is_told(server: RealPrefect, tmp_path: Path, web: Web) -> None:
    create_automations(server, tmp_path, web)
    faults = faulty_experiments(tmp_path)
    path = deployments(tmp_path, *(built.config for built in faults.values()))
    server.program("deploy", "--all", "--prefect-file", path.name, folder=tmp_path)
    faults["conflict"].run(EVENING)
    write_content(faults["conflict"].folder / f"{EVENING}.csv", a_log(42))
    runs = {name: started(server, built) for name, built in faults.items()}
    runs["killed"] = started(server, faults["late"])
    begun = {f"clusterdp: {built.config.stem}: Late" for built in faults.values()}
    wait_for(lambda: begun <= subjects(web), "runs that no worker takes")
    crashed = {"state": {"type": "CRASHED", "message": "killed"}, "force": True}
    assert server.ask(f"/flow_runs/{runs.pop('killed')}/set_state", crashed)[0] < 300
    work(server, tmp_path, *runs.values())
    names = {name: server.state(run)[0] for name, run in runs.items()}
    assert names == {
        "broken": "BadInput", "events": "BadInput", "refused": "Refused", "conflict": "Conflict",
        "late": "Completed", "ratio": "Completed", "aside": "Completed", "alike": "Completed",
    }  # fmt: skip
    day = DAYS[0]
    expected = {
        "clusterdp: broken: BadInput", "clusterdp: events: BadInput",
        "clusterdp: refused: Refused", "clusterdp: conflict: Conflict", "clusterdp: late: Crashed",
        f"clusterdp: late {day}: late", f"clusterdp: ratio {day}: sample_ratio",
        f"clusterdp: aside {day}: set_aside", f"clusterdp: alike {day}: one_value",
    }  # fmt: skip
    wait_for(lambda: expected <= subjects(web), f"notices: {expected - subjects(web)}")
    assert subjects(web) == begun | expected
    told = [one["text"] for one in web.got if ": Late\n" not in one["text"]]
    assert len(told) == len(expected)  # each of them once
    texts = "\n".join(told)
    assert "costs epsilon 2" in texts
    assert "rows have a fault (" in texts
    assert "cannot be read as JSON Lines: a line does not parse" in texts
    assert_public(server, runs["events"])
    assert_told_once_a_week(server, web)


def create_automations(server: RealPrefect, folder: Path, web: Web) -> None:
    """As deploy/README.md says it."""
    (block,) = [one for one in blocks(DEPLOY / "README.md", "sh") if "automation" in one.text]
    (folder / "automations.yaml").write_text((DEPLOY / "automations.yaml").read_text())
    (folder / "webhook.url").write_text(web.url)
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/sh", "-eu", "-c", block.text],
        cwd=folder, env={**server.environment, "PATH": programs}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    _, found = server.ask("/automations/filter", {})
    assert {one["name"] for one in found} == {one["name"] for one in automations()}


def faulty_experiments(folder: Path) -> dict[str, Experiment]:
    """An experiment with each of the faults that the program finds."""
    day = DAYS[0]
    schedule = {"schedule": {"since": day, "until": day, "missing_after": "9d"}}
    twice = a_log(160).vstack(a_log(160).with_columns(customer=pl.lit("twice")))
    shares = pl.when(pl.int_range(pl.len()) < 250).then(pl.lit("mail")).otherwise(pl.lit("none"))
    log = f"{day}.csv"
    return {
        "broken": an_experiment(folder, "broken", {log: "nothing,of\nthe,kind\n"}, **schedule),
        "events": with_broken_events(folder, day, schedule),
        "refused": an_experiment(
            folder, "refused", {log: a_log(160)}, privacy={"budget_epsilon": 1.0}, **schedule
        ),
        "conflict": an_experiment(folder, "conflict", {f"{EVENING}.csv": a_log(40)}),
        "late": an_experiment(folder, "late", {}, **schedule),
        "ratio": an_experiment(
            folder, "ratio", {log: a_log(300).with_columns(variant=shares)}, **schedule
        ),
        "aside": an_experiment(folder, "aside", {log: twice}, **schedule),
        "alike": an_experiment(
            folder, "alike", {log: a_log(300).with_columns(clicks=0.0)}, **schedule
        ),
    }


def with_broken_events(folder: Path, day: str, schedule: dict[str, Any]) -> Experiment:
    """One whose outcome events have a line that does not parse; which one must stay inside."""
    seen = pl.DataFrame(
        {"customer": ["a", "b"], "variant": ["none", "mail"], "region": ["x", "x"],
         "ts": [f"{day}T01:00"] * 2}
    )  # fmt: skip
    event = json.dumps({"customer": "a", "ts": f"{day}T02:00"})
    return an_experiment(
        folder, "events", {f"{day}.csv": seen, "done/all.jsonl": f"{event}\n" * 612 + "{oh\n"},
        source={
            "path": "{period}.csv", "grain": "event", "outcomes_path": "done/*.jsonl",
            "window": "1h",
        },
        columns={"time": "ts", "outcome": None}, outcome={"aggregate": "count"}, **schedule,
    )  # fmt: skip


def subjects(web: Web) -> set[str]:
    """The first lines of what was posted."""
    return {str(one["text"]).partition("\n")[0] for one in web.got}


def assert_public(server: RealPrefect, run: str) -> None:
    """Neither an event nor the state of the run says where a file of outcome events is broken."""
    said = json.dumps(server.events())
    places = set(re.findall(r"cannot be read as JSON Lines: (.*?) does not parse", said))
    assert places == {"a line"}
    assert "clusterdp.failed" in said
    assert server.state(run)[1].count("a line does not parse") == 1


def assert_told_once_a_week(server: RealPrefect, web: Web) -> None:
    """A period that is late another night is not told of again; what comes after it is."""
    now = datetime.now(UTC).isoformat()
    again = [
        {
            "event": f"clusterdp.{event}",
            "occurred": now,
            "id": str(uuid4()),
            "resource": {"prefect.resource.id": name, "prefect.resource.name": "late again"},
            "payload": {"event": event, "text": "as before"},
        }
        for event, name in (("late", f"clusterdp.late.{DAYS[0]}"), ("lost", "clusterdp.late.other"))
    ]
    assert server.ask("/events", again)[0] == 204
    wait_for(lambda: "clusterdp: late again: lost" in subjects(web), "what comes after it")
    assert "clusterdp: late again: late" not in subjects(web)
