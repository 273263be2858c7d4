"""Schedules: what is refused before anything starts, and which day a run releases."""

import asyncio
import inspect
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import cloudpickle  # type: ignore[import-untyped] # has no types
import pytest

from flows import deployed
from flows.cli.main import run
from flows.deployed import day_before, release, served_release
from flows.operate.serve import quiet_control_port, serve_releases
from flows.release import ReleaseResult
from schemas.errors import ConfigError
from tests.conftest import Builder, a_log, released, toml

CRON = "15 3 * * *"


@pytest.mark.parametrize(
    "cron", ["", "nonsense", "61 * * * *", "* * * *", "R R * * *", "15 25 * * *", "a b c d e"]
)
def test_what_is_no_cron_expression_is_refused(experiment: Builder, cron: str) -> None:
    with pytest.raises(ConfigError, match=r"--cron: .* is not a cron expression"):
        serve_releases([experiment().config], cron, "UTC", lambda: deployed)


@pytest.mark.parametrize(
    "timezone", ["", "Mars/Olympus", "Europe", "utc+1", "+02:00", "../UTC", "/etc/localtime", "\0"]
)
def test_what_is_no_time_zone_is_refused(experiment: Builder, timezone: str) -> None:
    with pytest.raises(ConfigError, match=r"--timezone: .* is not a time zone"):
        serve_releases([experiment().config], CRON, timezone, lambda: deployed)


def test_a_faulty_configuration_is_refused_before_a_server_is_started(experiment: Builder) -> None:
    built = experiment(privacy={"epsilon": -1.0})
    with pytest.raises(ConfigError, match=r"privacy\.epsilon"):
        serve_releases([built.config], CRON, "UTC", lambda: deployed)


def test_a_ledger_on_a_server_without_a_key_is_refused_before_a_server_is_started(
    experiment: Builder,
) -> None:
    built = experiment(ledger={"url": "postgresql:///ledger"})
    with pytest.raises(ConfigError, match=r"ledger\.key_file: missing"):
        serve_releases([built.config], CRON, "UTC", lambda: deployed)


def test_two_configurations_of_one_experiment_are_refused(experiment: Builder) -> None:
    built = experiment()
    other = built.folder / "other.toml"
    other.write_text(built.config.read_text())
    with pytest.raises(ConfigError, match="two configurations name the same experiment"):
        serve_releases([built.config, other], CRON, "UTC", lambda: deployed)


@pytest.mark.parametrize(
    ("option", "value"), [("--cron", "nonsense"), ("--timezone", "Mars/Olympus")]
)
def test_the_command_says_which_option_is_at_fault(
    experiment: Builder, capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    options = {"--cron": CRON, "--timezone": "UTC", option: value}
    arguments = [word for pair in options.items() for word in pair]
    assert run(["serve", str(experiment().config), *arguments]) == 2
    told = capsys.readouterr()
    assert told.err.startswith(f"clusterdp: {option}: {value!r} is not a")
    assert told.out == ""


# which day a scheduled run releases


def at(monkeypatch: pytest.MonkeyPatch, scheduled: str | None) -> None:
    """Let the flow run be scheduled for this moment."""
    moment = None if scheduled is None else datetime.fromisoformat(scheduled)
    monkeypatch.setattr(deployed, "flow_run", SimpleNamespace(scheduled_start_time=moment))


@pytest.mark.parametrize(
    ("scheduled", "timezone", "expected"),
    [
        ("2026-11-21T03:15:00+00:00", "UTC", "2026-11-20"),
        # around midnight, there and here
        ("2026-11-20T23:59:59+00:00", "UTC", "2026-11-19"),
        ("2026-11-21T00:00:00+00:00", "UTC", "2026-11-20"),
        ("2026-11-20T22:59:59+00:00", "Europe/Zurich", "2026-11-19"),
        ("2026-11-20T23:00:00+00:00", "Europe/Zurich", "2026-11-20"),
        ("2026-11-21T04:59:59+00:00", "America/New_York", "2026-11-19"),
        ("2026-11-21T05:00:00+00:00", "America/New_York", "2026-11-20"),
        ("2026-11-20T09:59:59+00:00", "Pacific/Kiritimati", "2026-11-19"),
        ("2026-11-20T10:00:00+00:00", "Pacific/Kiritimati", "2026-11-20"),
        # the days on which clocks change are 23 and 25 hours long
        ("2026-03-28T22:59:59+00:00", "Europe/Zurich", "2026-03-27"),
        ("2026-03-28T23:00:00+00:00", "Europe/Zurich", "2026-03-28"),
        ("2026-03-29T21:59:59+00:00", "Europe/Zurich", "2026-03-28"),
        ("2026-03-29T22:00:00+00:00", "Europe/Zurich", "2026-03-29"),
        ("2026-10-24T22:00:00+00:00", "Europe/Zurich", "2026-10-24"),
        ("2026-10-25T22:59:59+00:00", "Europe/Zurich", "2026-10-24"),
        ("2026-10-25T23:00:00+00:00", "Europe/Zurich", "2026-10-25"),
        # years and leap days
        ("2027-01-01T03:15:00+00:00", "UTC", "2026-12-31"),
        ("2028-03-01T03:15:00+00:00", "UTC", "2028-02-29"),
        # a moment told in another time zone
        ("2026-11-21T00:30:00+01:00", "UTC", "2026-11-19"),
    ],
)
def test_a_run_releases_the_day_before_in_the_time_zone_of_its_schedule(
    monkeypatch: pytest.MonkeyPatch, scheduled: str, timezone: str, expected: str
) -> None:
    at(monkeypatch, scheduled)
    assert day_before(timezone) == expected


def test_a_late_run_releases_the_day_it_was_scheduled_for(
    monkeypatch: pytest.MonkeyPatch, experiment: Builder
) -> None:
    built = experiment({"2026-11-19.csv": a_log(40)}, source={"path": "{period}.csv"})
    at(monkeypatch, "2026-11-20T03:15:00+00:00")  # long ago, or to come
    result = release.fn(str(built.config), None, False, "Europe/Zurich")
    assert result.release_id == "trial.2026-11-19.r1"
    assert released(result.path, "release")["period"].to_list() == ["2026-11-19"]


def test_a_period_that_is_named_goes_before_the_schedule(
    monkeypatch: pytest.MonkeyPatch, experiment: Builder
) -> None:
    at(monkeypatch, "2026-11-20T03:15:00+00:00")
    result = release.fn(str(experiment().config), "backfill", False, "Europe/Zurich")
    assert result.release_id == "trial.backfill.r1"


def test_a_run_without_a_schedule_goes_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, None)
    zone = ZoneInfo("Pacific/Kiritimati")
    before = datetime.now(UTC).astimezone(zone).date()
    found = day_before("Pacific/Kiritimati")
    after = datetime.now(UTC).astimezone(zone).date()
    assert found in {(day - timedelta(days=1)).isoformat() for day in (before, after)}


def test_configurations_of_several_experiments_are_told_apart(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Past the checks the server comes: here it is stood in for, and says that it was asked."""

    def asked(*, schedules: bool) -> None:
        raise LookupError(schedules)

    monkeypatch.setattr("flows.operate.serve.prefect_server", asked)
    built = experiment()
    other = built.folder / "other.toml"
    other.write_text(built.config.read_text().replace(toml({}), toml({}, "other")))
    with pytest.raises(LookupError, match="True"):
        serve_releases([built.config, other], CRON, "Europe/Zurich", lambda: deployed)


# what a served run may do


def test_a_configuration_that_is_not_served_is_refused(
    prefect_harness: Path, experiment: Builder, tmp_path: Path
) -> None:
    """Whatever a deployment or a caller gives as parameters."""
    built = experiment()
    flow = served_release([str(built.config)])
    other = tmp_path / "other.toml"
    other.write_bytes(built.config.read_bytes())
    before = built.entries
    for path in (str(other), f"{built.folder}/./trial.toml", "trial.toml"):
        state: Any = flow(path, return_state=True)
        assert (state.name, state.message) == (
            "BadInput",
            "config_path: this configuration is not served here",
        )
    with pytest.raises(ConfigError, match="schedule_timezone: 'Mars' is not a time zone"):
        flow(str(built.config), schedule_timezone="Mars")
    assert built.entries == before
    made = flow(str(built.config), "backfill")
    assert isinstance(made, ReleaseResult)
    assert made.release_id == "trial.backfill.r1"


def test_a_served_run_is_the_flow_of_this_process(experiment: Builder) -> None:
    """It goes to the process that runs it as it is: no entry point and no step has a part in it."""
    from prefect.runner._deployment_registry import DeploymentRegistry  # noqa: PLC0415
    from prefect.runner.runner import Runner  # noqa: PLC0415

    source = inspect.getsource(Runner.aadd_flow)
    assert "register_flow(deployment_id, flow)" in source
    assert "DirectSubprocessStarter" in inspect.getsource(Runner.__aenter__)
    assert "get_flow" in vars(DeploymentRegistry)
    path = str(experiment().config)
    sent = cloudpickle.loads(cloudpickle.dumps(served_release([path])))
    with pytest.raises(ConfigError, match="is not served here"):
        sent.fn("/elsewhere.toml")


def test_the_document_of_a_served_flow_is_that_of_the_flow() -> None:
    ours = inspect.signature(served_release([]).fn).parameters
    assert list(ours) == list(inspect.signature(release.fn).parameters)


def test_logs_do_not_repeat_what_strangers_say(caplog: pytest.LogCaptureFixture) -> None:
    from prefect.runner._control_channel import ControlChannel  # noqa: PLC0415 - takes a while

    async def intrude() -> None:
        async with ControlChannel() as channel:
            reader, writer = await asyncio.open_connection("127.0.0.1", channel.port)
            writer.write(b"a stranger's line\n")
            await writer.drain()
            await reader.read()
            writer.close()

    quiet_control_port()
    logger = logging.getLogger("prefect.runner.control_channel")
    logger.addHandler(caplog.handler)
    try:
        asyncio.run(intrude())
    finally:
        logger.removeHandler(caplog.handler)
    assert caplog.records == []
