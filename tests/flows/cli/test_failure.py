"""With --json a failure is one document on standard output; the plain line and the code stay."""

import json
import sys
from collections.abc import Callable
from io import StringIO
from typing import Any, NoReturn

import pytest

from flows.cli.failure import Failure, usage_failure, wants_json
from schemas.errors import (
    BudgetError,
    ClusterdpError,
    ConfigError,
    ConflictError,
    InputError,
    NoFileError,
    StepError,
    bare,
)
from tests.conftest import SENTINEL, Builder, Ran, a_log, rows
from tests.support.surroundings import Command


def error_of(ended: Ran) -> dict[str, Any]:
    """The one document of a failure, which says what standard error says."""
    found = json.loads(ended.stdout)
    assert list(found) == ["error"]
    error = found["error"]
    assert list(error) == ["code", "kind", "key", "message"]
    assert error["code"] == ended.returncode
    assert "Traceback" not in ended.stdout
    if error["kind"] != "usage":
        assert ended.stderr == f"clusterdp: {error['message']}\n"
    assert isinstance(error, dict)
    return error


def fails_with(error: BaseException) -> Callable[..., NoReturn]:
    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code", "kind", "key"),
    [
        (ConfigError("privacy.epsilon", "is 0"), 2, "config", "privacy.epsilon"),
        (InputError("log.csv: no row"), 2, "input", None),
        (InputError("columns.unit: none", key="columns.unit"), 2, "input", "columns.unit"),
        (NoFileError("source.path: none", key="source.path"), 2, "input", "source.path"),
        (BudgetError("3 is left"), 3, "budget", None),
        (ConflictError("it is there"), 4, "conflict", None),
        (StepError("validate failed"), 1, "failed", None),
        (ClusterdpError("a full disk"), 1, "failed", None),
        (ZeroDivisionError(SENTINEL), 1, "unforeseen", None),
        (KeyboardInterrupt(), 1, "interrupted", None),
    ],
)
def test_every_kind_has_its_document(
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    kind: str,
    key: str | None,
) -> None:
    monkeypatch.setattr("flows.check.check", fails_with(error))
    ended = command("check", "a.toml", "--json")
    found = error_of(ended)
    assert (ended.returncode, found["kind"], found["key"]) == (code, kind, key)
    assert str(SENTINEL) not in ended.stdout
    plain = command("check", "a.toml")
    assert (plain.returncode, plain.stdout) == (code, "")


@pytest.mark.parametrize(
    ("arguments", "key", "words"),
    [
        (["check", "--json"], "CONFIG", "Missing argument"),
        (["check", "a.toml", "b.toml", "--json"], None, "unexpected extra argument"),
        (["check", "a.toml", "--perod", "x", "--json"], "--perod", "No such option"),
        (["--json", "check", "a.toml"], "--json", "No such option"),
        (["nonsense", "--json"], None, "No such command"),
        (["estimate", "a", "--level", "high", "--json"], "--level", "valid number"),
        (["serve", "a.toml", "--json"], "--json", "No such option"),
        (["report", "a.duckdb", "--json"], "--output", "Missing option"),
    ],
)
def test_a_wrong_command_line_has_one_too(
    command: Command, arguments: list[str], key: str | None, words: str
) -> None:
    ended = command(*arguments)
    found = error_of(ended)
    assert (ended.returncode, found["kind"], found["key"]) == (2, "usage", key)
    assert words in found["message"]
    assert "Usage: " in ended.stderr


def test_a_configuration_at_fault_names_its_key(command: Command, experiment: Builder) -> None:
    built = experiment(privacy={"epsilon": "two"})
    assert error_of(command("plan", built.config, "--json"))["key"] == "privacy.epsilon"
    wrong = experiment(columns={"unit": "nobody"})
    assert error_of(command("check", wrong.config, "--json"))["kind"] == "input"
    missing = experiment(source={"path": "none.csv"})
    assert error_of(command("check", missing.config, "--json"))["key"] == "source.path"
    unmade = experiment(rows(("a", "none", "east", SENTINEL)))
    found = error_of(command("check", unmade.config, "--json"))
    assert found["key"] == "arms.treatments"
    assert str(SENTINEL) not in found["message"]


@pytest.mark.release
def test_a_release_that_is_refused_or_in_conflict_is_one_document(
    command: Command, experiment: Builder
) -> None:
    built = experiment(privacy={"budget_epsilon": 2.0})
    built.run()
    assert error_of(command("release", built.config, "--revise", "--json"))["kind"] == "budget"
    a_log(242).write_parquet(built.folder / "log.parquet")
    assert error_of(command("release", built.config, "--json"))["kind"] == "conflict"


def test_what_comes_after_two_dashes_is_no_option() -> None:
    assert wants_json(["check", "a", "--json"])
    assert not wants_json(["check", "--", "--json"])


def test_an_end_that_is_no_wrong_command_line_has_no_failure() -> None:
    assert usage_failure(SystemExit(2)) is None


def test_a_stream_that_takes_nothing_is_no_second_failure(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(StringIO):
        def write(self, _: str) -> int:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", Full())
        patched.setattr("flows.check.check", fails_with(BudgetError("none is left")))
        from flows.cli.main import run  # noqa: PLC0415 - costs a unit test too much

        assert run(["check", "a.toml", "--json"]) == 3


def test_errors_keep_their_key_when_they_are_made_bare() -> None:
    assert bare(InputError("no row", key="source.path")).key == "source.path"
    assert bare(ConfigError("a.b", "wrong")).key == "a.b"


def test_odd_characters_are_spelt_out(command: Command) -> None:
    found = error_of(command("check", "a\x1b[31m.toml", "--json"))
    assert "\x1b" not in found["key"] + found["message"]
    assert Failure(1, "failed", "x").as_json()["error"]["key"] is None
