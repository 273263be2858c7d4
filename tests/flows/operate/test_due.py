"""Catching up with a schedule: what is tried, in which order, and what stands there at the end."""

import hashlib
import json
import logging
import shutil
import socket
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import pytest

import clusterdp
from flows.cli.main import run
from flows.ledger.account import Account
from flows.ledger.ends import Attempt, AttemptState
from flows.ledger.rules import Fingerprint
from flows.ledger.watch import watched
from flows.operate.due import release_all_due, release_due
from flows.operate.status import status
from flows.released.checksums import read_sums
from flows.runtime import clock, interruption
from schemas.errors import ConfigError, ConflictError, InputError, NoFileError
from tests.conftest import SENTINEL, Builder, Content, Experiment, a_log, write_content

DAYS = [f"2026-11-{day:02}" for day in range(1, 8)]
SCHEDULE = {"since": DAYS[0], "timezone": "Europe/Zurich", "lateness": "2h", "missing_after": "2d"}
MADE = Fingerprint("k:r", "k:u", "k:s")

pytestmark = pytest.mark.release  # most of them release, whatever calls it


def scheduled(experiment: Builder, *days: str, **sections: Any) -> Experiment:
    """An experiment with a schedule, and sound logs for these days."""
    privacy = {"mechanism": "uniform-prior-dp", "strata_statistic": "none"}
    return experiment(
        {f"logs/{day}.csv": a_log(160) for day in days},
        source={"path": "logs/{period}.csv"},
        schedule=SCHEDULE | sections.pop("schedule", {}),
        privacy=privacy | sections.pop("privacy", {}),
        **sections,
    )


def night(monkeypatch: pytest.MonkeyPatch, day: str, hour: str = "03:15") -> None:
    """Let it be this time of this day, in UTC."""
    moment = datetime.fromisoformat(f"{day}T{hour}").replace(tzinfo=UTC)
    monkeypatch.setattr(clock, "now", lambda: moment)


def bring(built: Experiment, day: str, content: Content | None = None) -> None:
    write_content(built.folder / "logs" / f"{day}.csv", a_log(160) if content is None else content)


def caught_up(built: Experiment) -> dict[str, str]:
    return {one.period: one.status for one in release_due(str(built.config)).releases}


def states(built: Experiment) -> dict[str, str]:
    (found,) = status(built.config).experiments
    return {one.period: str(one.state) for one in found.periods}


def reason(built: Experiment, day: str) -> str:
    (found,) = status(built.config).experiments
    return next(one.reason or "" for one in found.periods if one.period == day)


def public(built: Experiment) -> list[str]:
    return sorted(path.name for path in built.releases.glob("trial.*.duckdb"))


def files_of(*days: str) -> list[str]:
    return [f"trial.{day}.r1.duckdb" for day in days]


def test_periods_that_are_due_are_released_in_order_and_once(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = scheduled(experiment, *DAYS[:4])
    night(monkeypatch, DAYS[3])  # three nights were missed
    before = (built.folder.stat().st_mtime_ns, built.entries)
    assert states(built) == dict.fromkeys(DAYS[:3], "due") | {DAYS[3]: "waiting"}
    assert (built.folder.stat().st_mtime_ns, built.entries) == before  # status changes nothing
    result = release_due(str(built.config))
    assert [(one.period, one.status) for one in result.releases] == [
        (day, "published") for day in DAYS[:3]
    ]
    assert (result.exit_code, result.failure) == (0, None)
    assert public(built) == files_of(*DAYS[:3])
    shutil.rmtree(built.folder / "logs")  # what is public is not read again
    assert caught_up(built) == {}
    assert states(built) == dict.fromkeys(DAYS[:3], "published") | {DAYS[3]: "waiting"}


@pytest.mark.parametrize(("hour", "expected"), [("00:59", {}), ("01:00", {DAYS[0]: "published"})])
def test_a_period_is_due_two_hours_after_midnight_there(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch, hour: str, expected: dict[str, str]
) -> None:
    built = scheduled(experiment, *DAYS)
    night(monkeypatch, DAYS[1], hour)
    assert caught_up(built) == expected


def test_a_late_file_is_waited_for_and_then_a_failure_until_it_comes(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = scheduled(experiment, DAYS[1], DAYS[2])
    night(monkeypatch, DAYS[1])
    result = release_due(str(built.config))
    assert [(one.status, one.exit_code) for one in result.releases] == [("waiting", 0)]
    assert result.exit_code == 0
    assert "no file matches" in reason(built, DAYS[0])
    assert "waits for it until 2026-11-04T01:00:00Z" in reason(built, DAYS[0])
    night(monkeypatch, DAYS[2])
    assert caught_up(built) == {DAYS[0]: "waiting", DAYS[1]: "published"}
    night(monkeypatch, DAYS[3])
    assert states(built)[DAYS[0]] == "failed"
    result = release_due(str(built.config))
    assert [(one.period, one.status) for one in result.releases] == [
        (DAYS[0], "failed"), (DAYS[2], "published"),
    ]  # fmt: skip
    assert result.exit_code == 2
    bring(built, DAYS[0])
    night(monkeypatch, DAYS[3], "04:00")
    assert caught_up(built) == {DAYS[0]: "published"}
    assert (built.releases / "latest.duckdb").samefile(built.releases / files_of(DAYS[2])[0])


@pytest.mark.parametrize("is_askable", [True, False])
def test_what_waited_for_its_files_waits_no_longer_where_the_ledger_fails(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch, is_askable: bool
) -> None:
    """Its files may have come: what the ledger says of it is of the night before."""
    built = scheduled(experiment, DAYS[1])
    night(monkeypatch, DAYS[1])
    assert caught_up(built) == {DAYS[0]: "waiting"}
    bring(built, DAYS[0])

    def cut(*_: object) -> NoReturn:
        raise InputError("the line was cut")

    with monkeypatch.context() as line:

        def release(*_: object) -> NoReturn:
            if is_askable:
                cut()
            line.setattr("flows.ledger.account.Account.standings", cut)
            raise NoFileError("no file matches")  # which nobody can note

        (one,) = release_due(str(built.config), release).releases
    assert (one.status, one.exit_code) == ("failed", 2)
    assert one.reason == ("the line was cut" if is_askable else "no file matches")
    assert caught_up(built) == {DAYS[0]: "published"}


def test_a_broken_file_stops_no_other_period_and_is_tried_again(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = scheduled(experiment, *DAYS[:3])
    bring(built, DAYS[1], "nothing,of\nthe,kind\n")
    night(monkeypatch, DAYS[3])
    result = release_due(str(built.config))
    assert [one.status for one in result.releases] == ["published", "failed", "published"]
    assert (result.exit_code, type(result.failure)) == (2, InputError)
    assert f"of 3 periods that were due, 1 are not published: {DAYS[1]} (failed)" in str(
        result.failure
    )
    assert states(built)[DAYS[1]] == "failed"
    assert "there is no column" in reason(built, DAYS[1])
    bring(built, DAYS[1])
    assert caught_up(built) == {DAYS[1]: "published"}


def test_every_line_of_a_night_names_it(
    experiment: Builder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    built = scheduled(experiment, *DAYS[:2])
    bring(built, DAYS[1], "nothing,of\nthe,kind\n")
    night(monkeypatch, DAYS[2])
    nights = [f"trial {day}: " for day in DAYS[:2]]
    with caplog.at_level(logging.INFO, "clusterdp"):
        assert run(["release", str(built.config), "--due"]) == 2
    told = [record.getMessage() for record in caplog.records if record.name == "clusterdp"]
    assert [line for line in told if not line.startswith(tuple(nights))] == []
    assert {line.split(": ")[1] for line in told} >= {"ingest …", "privatize …"}
    ended = capsys.readouterr()
    unnamed = [line for line in ended.out.splitlines() if not any(day in line for day in DAYS[:2])]
    assert " ".join(" ".join(unnamed).split()) == "trial period status release"
    assert all(any(day in line for day in DAYS[:2]) for line in ended.err.splitlines())
    assert run(["release", str(built.config), "--period", DAYS[1]]) == 2
    assert capsys.readouterr().err.startswith(f"clusterdp: {nights[1]}")


def test_a_night_over_budget_is_refused_until_people_may_pay_more(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built = scheduled(experiment, *DAYS[:3], privacy={"budget_epsilon": 4.0})
    night(monkeypatch, DAYS[3])
    result = release_due(str(built.config))
    assert [one.status for one in result.releases] == ["published", "published", "refused"]
    assert result.exit_code == 3
    assert states(built)[DAYS[2]] == "refused"
    assert reason(built, DAYS[2]).startswith("refused: this release costs epsilon 2")
    (found,) = status(built.config).experiments
    assert found.least_epsilon_left == 0.0
    for command in (["status"], ["release", "--due"]):
        run([*command, str(built.config)])
        assert "drawn or written. Spent by" in capsys.readouterr().out
    built.config.write_text(built.config.read_text().replace("= 4.0", "= 6.0"))
    assert caught_up(built) == {DAYS[2]: "published"}


def test_after_the_last_period_nothing_is_due_and_the_experiment_is_closed(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built = scheduled(experiment, DAYS[0], *DAYS[2:], schedule={"until": DAYS[1]})
    night(monkeypatch, DAYS[1])
    assert not status(built.config).experiments[0].closed
    night(monkeypatch, DAYS[6])
    assert states(built) == dict.fromkeys(DAYS[:2], "due")
    assert caught_up(built) == {DAYS[0]: "published", DAYS[1]: "failed"}
    assert run(["status", str(built.config)]) == 0
    told = capsys.readouterr().out
    told = " ".join(told.split())
    assert f"closed after {DAYS[1]}, its last period; 1 not published, which each run still" in told
    bring(built, DAYS[1])  # what was due before is made up all the same
    assert caught_up(built) == {DAYS[1]: "published"}
    assert caught_up(built) == {}
    assert run(["status", str(built.config), "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["experiments"]
    assert (one["closed"], one["next_due_at"], len(one["periods"])) == (True, None, 2)


def test_an_unforeseen_failure_is_told_by_its_kind_alone(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = scheduled(experiment, *DAYS[:2])
    night(monkeypatch, DAYS[2])

    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError(SENTINEL)

    with monkeypatch.context() as failing:
        failing.setattr("flows.raw.charge.resolve_release", fails)
        result = release_due(str(built.config))
    assert [(one.status, one.exit_code) for one in result.releases] == [("failed", 1)] * 2
    assert result.exit_code == 1
    assert reason(built, DAYS[0]) == "unforeseen failure (ZeroDivisionError)"
    assert str(SENTINEL) not in json.dumps(result.as_json())
    assert caught_up(built) == dict.fromkeys(DAYS[:2], "published")


# dead and living runs


def begun(built: Experiment, day: str, *, publishing: bool, draft: bool = True) -> Path:
    """Leave what a run of a period leaves that was killed."""
    built.releases.mkdir(parents=True, exist_ok=True)
    folder = built.releases / ".draft-dead"
    folder.mkdir()
    config = built.load()
    by_everybody = config.privacy.model_copy(update={"account": "population"})
    account = Account.of(config.model_copy(update={"privacy": by_everybody}))
    account.log.keep(Attempt("dead", day, AttemptState.RUNNING, folder=folder))
    charge = account.reserve(day, MADE, folder, revise=False)
    if draft:
        charge.draft.write_bytes(b"whole")
    if publishing:
        assert charge.receipt.charge is not None
        digest = hashlib.sha256(b"whole").hexdigest()
        account._ledger.begin_publishing(charge.receipt.charge, digest)
    return folder


def test_what_a_dead_run_left_is_found_and_finished(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = scheduled(experiment, *DAYS[:2])
    night(monkeypatch, DAYS[2])
    begun(built, DAYS[0], publishing=False)
    assert states(built)[DAYS[0]] == "due"
    assert "died; the next run begins anew" in reason(built, DAYS[0])
    assert caught_up(built) == dict.fromkeys(DAYS[:2], "published")


def test_what_a_dead_run_was_publishing_becomes_public_though_nothing_else_is_due(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = scheduled(experiment, *DAYS[:2])
    night(monkeypatch, DAYS[1])
    begun(built, DAYS[0], publishing=True)
    assert states(built)[DAYS[0]] == "due"
    assert reason(built, DAYS[0]).endswith("the next run finishes it")
    assert caught_up(built) == {}
    assert states(built)[DAYS[0]] == "published"
    assert (built.releases / files_of(DAYS[0])[0]).read_bytes() == b"whole"
    assert not list(built.releases.glob(".draft-*"))  # though nothing is released


def test_a_release_that_was_lost_waits_for_a_person(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = scheduled(experiment, *DAYS[:2])
    night(monkeypatch, DAYS[2])
    begun(built, DAYS[0], publishing=True, draft=False)
    assert states(built)[DAYS[0]] == "lost"
    file = built.releases / files_of(DAYS[0])[0]
    account = Account.of(built.load())
    account.settle()
    file.write_bytes(b"another")
    assert states(built)[DAYS[0]] == "altered"
    file.unlink()
    file.write_bytes(b"whole")  # from a copy
    assert states(built)[DAYS[0]] == "published"
    file.unlink()
    assert states(built)[DAYS[0]] == "lost"
    result = release_due(str(built.config))
    assert [(one.period, one.status) for one in result.releases] == [
        (DAYS[0], "lost"), (DAYS[1], "published"),
    ]  # fmt: skip
    assert result.exit_code == 4
    assert "--revise" in reason(built, DAYS[0])
    assert built.run(DAYS[0], revise=True).status == "published"
    assert states(built)[DAYS[0]] == "published"


@pytest.mark.parametrize("publishing", [False, True])
def test_a_living_run_is_left_alone(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch, *, publishing: bool
) -> None:
    import fcntl  # noqa: PLC0415 - of Unix alone

    built = scheduled(experiment, *DAYS[:2])
    night(monkeypatch, DAYS[2])
    folder = begun(built, DAYS[0], publishing=publishing)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert states(built)[DAYS[0]] == "running"
        result = release_due(str(built.config))
        assert [one.status for one in result.releases] == ["running", "published"]
        assert result.exit_code == 4


def elsewhere(built: Experiment) -> None:
    """Let all that was begun have been begun on a machine whose files cannot be seen."""
    with closing(sqlite3.connect(built.folder / "ledger.sqlite")) as ledger, ledger:
        for table, folder in (("clusterdp_charges", "draft"), ("clusterdp_ends", "folder")):
            ledger.execute(f"UPDATE {table} SET host = 'far away', {folder} = '/gone'")


def test_a_run_elsewhere_keeps_its_period_while_it_has_a_charge(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = scheduled(experiment, DAYS[0])
    night(monkeypatch, DAYS[1])
    begun(built, DAYS[0], publishing=False)
    elsewhere(built)
    assert states(built)[DAYS[0]] == "running"
    assert "--abandon trial.2026-11-01.r1" in reason(built, DAYS[0])
    assert caught_up(built) == {DAYS[0]: "running"}
    night(monkeypatch, DAYS[4])
    Account.of(built.load()).abandon("trial.2026-11-01.r1")
    assert caught_up(built)[DAYS[0]] == "published"


def test_an_attempt_elsewhere_without_a_charge_counts_for_a_day(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = scheduled(experiment, DAYS[0])
    night(monkeypatch, DAYS[1])
    begun(built, DAYS[0], publishing=False)
    elsewhere(built)
    Account.of(built.load()).abandon("trial.2026-11-01.r1")
    assert states(built)[DAYS[0]] == "running"
    night(monkeypatch, DAYS[2])
    assert states(built)[DAYS[0]] == "due"
    night(monkeypatch, "2026-11-01", "00:00")  # clocks went back
    assert states(built)[DAYS[0]] == "waiting"


# nothing hangs on an outcome


def test_whether_rows_have_changed_stands_nowhere(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release by hand says it to the operator; attempts and states do not."""
    built = scheduled(experiment, DAYS[0])
    night(monkeypatch, DAYS[1])
    assert caught_up(built) == {DAYS[0]: "published"}
    for content in (a_log(160), a_log(180)):
        bring(built, DAYS[0], content)
        run(["release", str(built.config), "--period", DAYS[0]])
        assert states(built) == {DAYS[0]: "published", DAYS[1]: "waiting"}
        assert reason(built, DAYS[0]) == ""
        with closing(sqlite3.connect(built.folder / "ledger.sqlite")) as ledger:
            noted = ledger.execute("SELECT period, state, reason, host FROM clusterdp_ends")
            assert noted.fetchall() == [(DAYS[0], "published", None, socket.gethostname())]


def test_a_run_that_was_faster_leaves_nothing_to_say(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was public before this run read other rows: in conflict, but that is not told."""
    built = scheduled(experiment, DAYS[0])
    night(monkeypatch, DAYS[1])

    def faster(path: str, period: str) -> Any:
        built.run(period)
        bring(built, period, a_log(180))
        return built.run(period)

    result = release_due(str(built.config), faster)
    assert [(one.status, one.reason, one.exit_code) for one in result.releases] == [
        ("published", None, 0)
    ]


# the ledger


def test_releases_that_a_new_ledger_does_not_know_are_charged_when_that_is_asked_for(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = scheduled(experiment, *DAYS[:3])
    night(monkeypatch, DAYS[2])
    caught_up(built)
    (built.folder / "ledger.sqlite").unlink()
    assert states(built) == dict.fromkeys(DAYS[:2], "altered") | {DAYS[2]: "waiting"}
    assert "that this ledger has not drawn" in reason(built, DAYS[0])
    night(monkeypatch, DAYS[3])
    with pytest.raises(ConflictError, match="the ledger knows nothing of these files"):
        caught_up(built)  # nobody can tell what was spent
    with pytest.raises(ConfigError, match="--complete: nothing was changed yet"):
        clusterdp.restore(None, built.config)
    told = clusterdp.restore(None, built.config, complete=True)
    assert told.as_json()["charged_to_everybody"] == [f"trial.{day}.r1" for day in DAYS[:2]]
    assert caught_up(built) == {DAYS[2]: "published"}
    assert reason(built, DAYS[0]) == ""
    assert len(read_sums(built.releases) or {}) == 3


def test_an_attempt_that_this_program_did_not_note_is_refused(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = scheduled(experiment, DAYS[0])
    night(monkeypatch, DAYS[1])
    caught_up(built)
    for column, value in (("state", "perhaps"), ("at", "noon"), ("host", b"7"), ("set_aside", "7")):
        with closing(sqlite3.connect(built.folder / "ledger.sqlite")) as ledger, ledger:
            (kept,) = ledger.execute(f"SELECT {column} FROM clusterdp_ends").fetchone()
            ledger.execute(f"UPDATE clusterdp_ends SET {column} = ?", (value,))
        with pytest.raises(
            InputError,
            match=f"clusterdp_ends: {column} .*in the row with the run '[0-9a-f]{{12}}' is",
        ):
            status(built.config)
        with closing(sqlite3.connect(built.folder / "ledger.sqlite")) as ledger, ledger:
            ledger.execute(f"UPDATE clusterdp_ends SET {column} = ?", (kept,))
    assert states(built)[DAYS[0]] == "published"


def test_a_period_that_was_misspelt_by_hand_is_none_of_the_schedule_s(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = scheduled(experiment, DAYS[0])
    night(monkeypatch, DAYS[1])
    for period in ("yesterday", "2026-10-31"):
        assert run(["release", str(built.config), "--period", period]) == 2
    assert states(built) == {DAYS[0]: "due", DAYS[1]: "waiting"}
    assert run(["release", str(built.config), "--period", DAYS[1]]) == 2
    assert reason(built, DAYS[1]).startswith("was tried before it was due: source.path: no file")
    assert caught_up(built) == {DAYS[0]: "published"}


# the commands


def document(
    capsys: pytest.CaptureFixture[str], *arguments: str | Path
) -> tuple[int, dict[str, Any]]:
    code = run([*map(str, arguments), "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, found


def test_the_documents(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built = scheduled(experiment, DAYS[0], DAYS[2], privacy={"budget_epsilon": 9.0})
    bring(built, DAYS[1], "broken")
    night(monkeypatch, DAYS[3])
    code, made = document(capsys, "release", built.config, "--due")
    assert code == 2
    assert [one["status"] for one in made["releases"]] == ["published", "failed", "published"]
    assert set(made["releases"][0]) >= {
        "period", "status", "reason", "release_id", "path", "epsilon", "n_units", "ledger",
    }  # fmt: skip
    assert made["releases"][1] == {
        "experiment": "trial",
        "period": DAYS[1],
        "status": "failed",
        "release_id": None,
        "path": None,
        "reason": made["releases"][1]["reason"],
    }
    code, found = document(capsys, "status", built.config)
    assert code == 0
    (one,) = found["experiments"]
    assert set(one) == {
        "experiment", "periods", "next_due_at", "least_epsilon_left", "guess_from", "closed",
        "closing",
    }  # fmt: skip
    assert not one["closed"]
    assert one["closing"] is None
    assert (one["next_due_at"], one["least_epsilon_left"]) == ("2026-11-05T01:00:00Z", 5.0)
    assert one["periods"][0] == {
        "period": DAYS[0],
        "state": "published",
        "release_id": "trial.2026-11-01.r1",
        "due_at": "2026-11-02T01:00:00Z",
        "reason": None,
    }
    assert run(["status", str(built.config)]) == 0
    told = capsys.readouterr().out
    assert "2026-11-02  failed" in told
    assert "next due    2026-11-05 01:00 UTC" in told
    assert run(["release", str(built.config), "--due"]) == 2
    assert "there is no column" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--period", "2026-11-01"], "--period: cannot go with --due"),
        (["--revise"], "--revise: cannot go with --due"),
    ],
)
def test_due_finds_its_periods_itself(
    experiment: Builder, capsys: pytest.CaptureFixture[str], options: list[str], says: str
) -> None:
    built = scheduled(experiment, DAYS[0])
    assert run(["release", str(built.config), "--due", *options]) == 2
    assert says in capsys.readouterr().err


def test_due_needs_a_schedule_and_status_does_not(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    built = experiment()
    assert run(["release", str(built.config), "--due"]) == 2
    assert "schedule: missing; --due goes by" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="schedule: missing"):
        release_due(str(built.config))
    assert run(["status", str(built.config)]) == 0
    assert "No period has begun." in capsys.readouterr().out
    built.run("a")
    assert states(built) == {"a": "published"}


def test_a_failure_before_the_schedule_is_looked_at_tries_nothing(experiment: Builder) -> None:
    built = scheduled(experiment, DAYS[0])
    (built.folder / "ledger.sqlite").mkdir()
    tried: list[str] = []
    never: Callable[[str, str], Any] = lambda _, period: tried.append(period)  # noqa: E731 - a line is enough
    with pytest.raises(InputError, match="ledger"):
        release_due(str(built.config), never)
    assert tried == []


def test_a_signing_key_that_cannot_be_used_draws_nothing(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = scheduled(experiment, DAYS[0], publish={"signing_key": "none.pem"})
    night(monkeypatch, DAYS[1])
    with pytest.raises(ConfigError, match=r"publish\.signing_key: .* there is no such file"):
        release_due(str(built.config))
    assert public(built) == []


# asked to stop


def test_a_query_that_was_interrupted_is_no_failure_to_go_on_after(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB makes a RuntimeError of the KeyboardInterrupt that a signal's handler raises."""
    built = scheduled(experiment, *DAYS[:3])
    night(monkeypatch, DAYS[3])
    asked = threading.Event()
    monkeypatch.setattr(interruption, "_asked", asked)
    tried: list[str] = []

    def is_stopped(path: str, period: str) -> Any:
        tried.append(period)
        if period == DAYS[1]:
            config = built.load()
            with watched(config, Account.of(config), period):
                interruption.note_interruption()
                raise RuntimeError("Query interrupted")
        return built.run(period)

    with pytest.raises(KeyboardInterrupt):
        release_due(str(built.config), is_stopped)
    assert tried == DAYS[:2]
    assert reason(built, DAYS[1]) == "interrupted"
    assert run(["release", str(built.config), "--due"]) == 1  # at once
    asked.clear()
    assert caught_up(built) == dict.fromkeys(DAYS[1:3], "published")


# several experiments


def three(experiment: Builder, **sections: Any) -> tuple[Experiment, list[Path]]:
    """One experiment with two days, and the configurations of a broken, a late and a sound one."""
    built = scheduled(experiment, *DAYS[:2], **sections)
    text = built.config.read_text()
    broken, late, sound = (built.folder / f"{name}.toml" for name in ("broken", "late", "sound"))
    broken.write_text(text.replace("[columns]", "[colums]"))
    late.write_text(text.replace('"trial"', '"late"').replace("logs/", "nowhere/"))
    sound.write_text(text.replace('"trial"', '"sound"'))
    return built, [broken, late, sound]


def test_an_experiment_that_fails_stops_no_other(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built, (broken, late, sound) = three(experiment)
    bring(built, DAYS[1], "broken")
    night(monkeypatch, DAYS[4])
    code, made = document(capsys, "release", late, broken, built.config, sound, "--due")
    assert code == 2
    assert [(one["experiment"], one["period"], one["status"]) for one in made["releases"]] == [
        ("late", DAYS[0], "failed"), ("late", DAYS[1], "failed"), ("late", DAYS[2], "waiting"),
        ("late", DAYS[3], "waiting"),
        ("trial", DAYS[0], "published"), ("trial", DAYS[1], "failed"),
        ("trial", DAYS[2], "waiting"), ("trial", DAYS[3], "waiting"),
        ("sound", DAYS[0], "published"), ("sound", DAYS[1], "failed"),
        ("sound", DAYS[2], "waiting"), ("sound", DAYS[3], "waiting"),
    ]  # fmt: skip
    assert [(one["experiment"], one["exit_code"]) for one in made["experiments"]] == [
        ("late", 2), (None, 2), ("trial", 2), ("sound", 2),
    ]  # fmt: skip
    assert made["experiments"][1]["config"] == str(broken)
    assert "colums" in made["experiments"][1]["reason"]
    assert public(built) == files_of(DAYS[0])
    assert run(["release", str(broken), str(sound), "--due"]) == 2
    told = capsys.readouterr().out
    assert told.startswith(f"{broken}\n")
    assert "sound\n" in told


def test_the_exit_code_is_that_of_the_first_experiment_with_something_left(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, (broken, _, sound) = three(experiment)
    refused = built.folder / "refused.toml"
    text = built.config.read_text().replace('"trial"', '"refused"')
    refused.write_text(text.replace("1000.0", "2.0"))
    night(monkeypatch, DAYS[2])
    codes = {
        (sound, built.config): 0,
        (sound, refused, broken): 3,
        (broken, refused): 2,
        (sound, built.config, sound): 0,
    }
    for configs, code in codes.items():
        assert release_all_due([str(config) for config in configs]).exit_code == code, configs


def test_what_nobody_foresaw_in_one_experiment_stops_no_other(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, (_, _, sound) = three(experiment)
    night(monkeypatch, DAYS[2])
    asked: list[Account] = []

    def fails_once(account: Account) -> list[str]:
        asked.append(account)
        if len(asked) == 1:
            raise ZeroDivisionError(SENTINEL)
        return []

    monkeypatch.setattr(Account, "settle", fails_once)
    found = release_all_due([str(built.config), str(sound)])
    assert [one.exit_code for one in found.configs] == [1, 0]
    assert found.exit_code == 1
    told = json.dumps(found.as_json())
    assert "unforeseen failure (ZeroDivisionError)" in told
    assert str(SENTINEL) not in told


def test_without_due_a_release_is_of_one_configuration(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    built, (_, _, sound) = three(experiment)
    assert run(["release", str(built.config), str(sound), "--period", DAYS[0]]) == 2
    assert "CONFIG: several are for --due" in capsys.readouterr().err
    assert public(built) == []
