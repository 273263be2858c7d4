"""How runs in Prefect end: states by name, with the message and without a traceback."""

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType

from flows.deployed import release, site
from flows.orchestration.states import name_of
from flows.orchestration.step import step
from schemas.errors import (
    BudgetError,
    ClusterdpError,
    ConfigError,
    ConflictError,
    InputError,
    NoFileError,
    StepError,
)
from tests.conftest import Builder, a_log, told, write_content

Given = tuple[Any, ...]


def over_budget(experiment: Builder) -> Given:
    return (str(experiment(privacy={"budget_epsilon": 1.0}).config),)


def in_conflict(experiment: Builder) -> Given:
    built = experiment()
    built.run()
    write_content(built.folder / "log.parquet", a_log(242))
    return (str(built.config),)


def without_configuration(experiment: Builder) -> Given:
    return (str(experiment().folder / "none.toml"),)


def without_log(experiment: Builder) -> Given:
    """What fails here is a step, which is a task."""
    return (str(experiment(source={"path": "none.csv"}).config),)


def in_no_time_zone(experiment: Builder) -> Given:
    return (str(experiment().config), None, False, "Mars/Olympus")


ENDINGS = [
    (over_budget, BudgetError, "Refused", "costs epsilon 2"),
    (in_conflict, ConflictError, "Conflict", "from other rows"),
    (without_configuration, ConfigError, "BadInput", "there is no such file"),
    (without_log, NoFileError, "BadInput", "no file matches"),
    (in_no_time_zone, ConfigError, "BadInput", "schedule_timezone: 'Mars/Olympus' is not a time"),
]


@pytest.mark.parametrize(("given", "kind", "name", "says"), ENDINGS)
def test_a_failure_is_a_state_of_its_own_name(
    prefect_harness: Path,
    experiment: Builder,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    given: Callable[[Builder], Given],
    kind: type[ClusterdpError],
    name: str,
    says: str,
) -> None:
    arguments = given(experiment)
    runs = [logging.getLogger(f"prefect.{kind}") for kind in ("flow_runs", "task_runs")]
    for one in runs:  # they hand nothing up, and may be quiet by what ran before
        caplog.set_level(logging.INFO, one.name)
        monkeypatch.setattr(one, "disabled", False)
        one.addHandler(caplog.handler)
    try:
        state = release(*arguments, return_state=True)
    finally:
        for one in runs:
            one.removeHandler(caplog.handler)
    failure = state.result(raise_on_failure=False)
    assert type(failure) is kind
    assert (failure.__traceback__, failure.__cause__, failure.__context__) == (None, None, None)
    run_id = state.state_details.flow_run_id
    assert run_id is not None
    with get_client(sync_client=True) as client:
        kept = client.read_flow_run(run_id).state
    assert kept is not None
    for end in (state, kept):
        assert (end.name, end.type) == (name, StateType.FAILED)
        assert end.message is not None
        assert says in end.message
        assert "Traceback" not in end.message
    assert f"Finished in state {name}(" in caplog.text
    assert "Traceback" not in caplog.text
    assert "NoneType" not in caplog.text


def test_whoever_calls_the_flow_gets_the_error(prefect_harness: Path, experiment: Builder) -> None:
    with pytest.raises(BudgetError) as refused:
        release(*over_budget(experiment))
    assert refused.value.__cause__ is None
    assert "test_states" in told(refused.value)


def test_a_site_ends_alike(prefect_harness: Path, tmp_path: Path) -> None:
    state = site(str(tmp_path / "none.toml"), return_state=True)
    assert (state.name, state.type) == ("BadInput", StateType.FAILED)


def test_within_a_flow_of_somebody_else_the_plain_function_raises(
    prefect_harness: Path, tmp_path: Path
) -> None:
    caught = []

    @flow
    def theirs() -> None:
        with pytest.raises(ConfigError) as failure:
            release.fn(str(tmp_path / "none.toml"))
        caught.append(failure.value)

    theirs()
    assert len(caught) == 1


def test_a_step_that_fails_raises_in_its_flow(prefect_harness: Path) -> None:
    def fails() -> int:
        msg = "no"
        raise InputError(msg)

    def works() -> int:
        return 3

    @flow
    def theirs() -> int:
        with pytest.raises(InputError, match="no"):
            step(fails)()
        return step(works)()

    assert theirs() == 3


def test_only_what_a_person_can_act_on_has_a_name() -> None:
    assert name_of(StepError("x")) == name_of(ClusterdpError("x")) == "Failed"
    assert name_of(ConfigError("key", "x")) == name_of(InputError("x")) == "BadInput"


def test_a_quiet_end_keeps_the_exit_code_and_what_was_said_before() -> None:
    """What the interpreter's last act prints, past Python, is what is not heard."""
    program = """if True:
        import atexit, os, sys
        atexit.register(os.write, 2, b"what the interpreter does later still")
        from flows.orchestration.quiet_end import end_quietly
        end_quietly()
        end_quietly()
        atexit.register(print, "a last report", file=sys.stderr)
        sys.exit(7)
    """
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 7
    assert ended.stderr == "a last report\n"
