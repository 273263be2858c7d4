"""What is kept and told of nights: notices, metrics, lines of the log; and what never is."""

import json
import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from prometheus_client.parser import text_string_to_metric_families

from flows.cli.main import run
from flows.ledger.account import Account
from flows.operate.due import release_due
from flows.release import release_period
from flows.runtime import logs
from schemas.errors import ConflictError, InputError
from schemas.roster import Repeats
from tests.conftest import SENTINEL, Builder, Experiment, a_log
from tests.flows.operate.test_due import DAYS, bring, caught_up, night, scheduled
from tests.flows.operate.watch.servers import Web, web_server
from tests.support.modes import mode

pytestmark = pytest.mark.release

Samples = dict[tuple[str, ...], float]


@pytest.fixture
def web() -> Iterator[Web]:
    with web_server() as server:
        yield server


def watched(experiment: Builder, web: Web, *days: str, **sections: Any) -> Experiment:
    """An experiment with a schedule that tells a web server, and writes metrics."""
    notify = {"webhook_file": "hook"} | sections.pop("notify", {})
    directory = {"metrics_directory": "metrics"}
    built = scheduled(experiment, *days, notify=notify, run=directory, **sections)
    (built.folder / "hook").write_text(web.url)
    (built.folder / "hook").chmod(0o600)
    (built.folder / "metrics").mkdir()
    return built


def told(web: Web) -> list[tuple[str, str]]:
    """Periods and events that were told since the last look."""
    found = [(one["period"], one["event"]) for one in web.got]
    web.got.clear()
    return found


def samples(built: Experiment) -> Samples:
    """The metrics as Prometheus reads them: name and labels, but for the experiment."""
    path = built.folder / "metrics" / "clusterdp_trial.prom"
    assert mode(path) == 0o644
    found: Samples = {}
    for family in text_string_to_metric_families(path.read_text()):
        assert (family.type, bool(family.documentation)) == ("gauge", True)
        for one in family.samples:
            labels = dict(one.labels)
            assert labels.pop("experiment") == "trial"
            key = (one.name.removeprefix("clusterdp_"), *labels.values())
            assert key not in found
            found[key] = one.value
    return found


def test_each_event_of_a_period_is_told_once(
    experiment: Builder, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = watched(experiment, web, DAYS[0], privacy={"budget_epsilon": 2.0})
    night(monkeypatch, DAYS[2])
    assert caught_up(built) == {DAYS[0]: "published", DAYS[1]: "waiting"}
    (late,) = web.got
    assert told(web) == [(DAYS[1], "late")]
    assert (late["experiment"], late["state"]) == ("trial", "waiting")
    assert "no file matches" in late["reason"]
    assert len(late["run"]) == 12
    caught_up(built)
    assert told(web) == []
    bring(built, DAYS[1], "nothing,of\nthe,kind\n")
    caught_up(built)
    caught_up(built)
    assert told(web) == [(DAYS[1], "failed")]
    bring(built, DAYS[1])
    caught_up(built)
    caught_up(built)
    assert told(web) == [(DAYS[1], "refused")]
    built.config.write_text(built.config.read_text().replace("budget_epsilon = 2.0", ""))
    assert caught_up(built) == {DAYS[1]: "published"}
    assert told(web) == []


def test_the_reason_is_that_of_status_and_nothing_else_is_told(
    experiment: Builder, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = watched(experiment, web, DAYS[0])
    night(monkeypatch, DAYS[1])

    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError(SENTINEL)

    monkeypatch.setattr("flows.raw.charge.resolve_release", fails)
    caught_up(built)
    (document,) = web.got
    assert document.pop("run")
    reason, named = "unforeseen failure (ZeroDivisionError)", f"trial {DAYS[0]}"
    assert document == {
        "text": f"clusterdp: {named}: the release failed\n{named}: failed\n{named}: {reason}",
        "experiment": "trial",
        "period": DAYS[0],
        "event": "failed",
        "state": "failed",
        "reason": reason,
    }


def test_a_night_that_was_released_is_told_of_by_its_public_counts(
    experiment: Builder, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = watched(experiment, web, notify={"on": ["set_aside", "sample_ratio"]})
    log = a_log(160).vstack(a_log(160).with_columns(customer=pl.lit("twice")))
    bring(built, DAYS[0], log)
    shares = pl.when(pl.int_range(pl.len()) < 250).then(pl.lit("mail")).otherwise(pl.lit("none"))
    bring(built, DAYS[1], a_log(300).with_columns(variant=shares))
    night(monkeypatch, DAYS[2])
    assert set(caught_up(built).values()) == {"published"}
    aside, ratio = web.got
    assert told(web) == [(DAYS[0], "set_aside"), (DAYS[1], "sample_ratio")]
    reason = f"50 % of 320 rows have a fault ({_rules(aside)})"
    assert aside["reason"] == f"{reason}. {Repeats(n_lost=1).problem}"
    assert (sum(aside["set_aside"].values()), aside["rows_read"]) == (160, 320)
    assert aside["release_id"] == f"trial.{DAYS[0]}.r1"
    assert ratio["sample_ratio_p"] < 0.001
    caught_up(built)
    assert told(web) == []


def _rules(document: dict[str, Any]) -> str:
    return ", ".join(f"{rule} {count}" for rule, count in document["set_aside"].items())


def test_who_cannot_be_told_stops_nothing_and_is_told_next_time(
    experiment: Builder, web: Web, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    built = watched(experiment, web)
    night(monkeypatch, DAYS[1])
    web.code = 500
    assert caught_up(built) == {DAYS[0]: "waiting"}
    assert "nobody was told (late) by webhook: was answered with 500" in caplog.text
    assert "very-secret" not in caplog.text
    web.got.clear()
    web.code = 200
    assert caught_up(built) == {DAYS[0]: "waiting"}
    assert told(web) == [(DAYS[0], "late")]


def test_one_that_is_silent_is_tried_once_after_all_releases(
    experiment: Builder, web: Web, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    built = watched(experiment, web)
    for day in DAYS[:3]:
        bring(built, day, "nothing,of\nthe,kind\n")
    bring(built, DAYS[3])
    night(monkeypatch, DAYS[4])
    posts: list[int] = []

    def post(*_: object) -> None:
        posts.append(len(list(built.releases.rglob("*.duckdb"))))
        raise TimeoutError

    with monkeypatch.context() as silent:
        silent.setattr("flows.operate.watch.sending._post", post)
        assert list(caught_up(built).values()) == ["failed"] * 3 + ["published"]
    (there,) = posts
    assert there == len(list(built.releases.rglob("*.duckdb"))) > 0
    assert caplog.text.count("nobody was told (failed) by webhook: no answer in time") == 3
    caught_up(built)
    assert told(web) == [(day, "failed") for day in DAYS[:3]]


@pytest.mark.parametrize("end", [KeyboardInterrupt, None])
def test_what_was_not_sent_of_a_release_is_told_by_the_next_run(
    experiment: Builder, web: Web, monkeypatch: pytest.MonkeyPatch, end: type[BaseException] | None
) -> None:
    """It was killed before it sent anything, or nobody answered."""
    built = watched(experiment, web)
    odd = pl.when(pl.int_range(pl.len()) < 250).then(pl.lit("mail")).otherwise(pl.lit("none"))
    bring(built, DAYS[0], a_log(300).with_columns(variant=odd))
    night(monkeypatch, DAYS[1])
    with monkeypatch.context() as dies:
        if end is None:
            dies.setattr(web, "code", 500)
            caught_up(built)
        else:
            dies.setattr("flows.operate.due.after_all", interrupted)
            with pytest.raises(KeyboardInterrupt):
                caught_up(built)
            assert web.got == []
    web.got.clear()
    for expected in ([(DAYS[0], "sample_ratio")], []):
        caught_up(built)
        assert told(web) == expected


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_ledger_that_cannot_be_read_is_told(
    experiment: Builder, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = watched(experiment, web, DAYS[0])
    (built.folder / "ledger.sqlite").write_bytes(b"not a database" * 1000)
    night(monkeypatch, DAYS[1])
    with pytest.raises(InputError):
        release_due(str(built.config))
    (document,) = web.got
    assert (document["period"], document["event"]) == (None, "failed")
    assert document["reason"].startswith("ledger sqlite")


def test_unchanged_and_conflict_leave_the_same_and_tell_nobody(
    experiment: Builder, web: Web, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    built = watched(experiment, web, DAYS[0])
    night(monkeypatch, DAYS[1])
    caught_up(built)
    metrics, kept = samples(built), _kept(built)
    night(monkeypatch, DAYS[1], "09:00")
    caplog.set_level(logging.INFO, "clusterdp")
    monkeypatch.setattr(logs, "_chosen", [True])
    lines = []
    for clicks in (0, 1):  # the same rows, then other outcomes
        caplog.clear()
        if clicks:
            other = a_log(160).with_columns(clicks=(pl.col("clicks") + 1) % 4)
            bring(built, DAYS[0], other)
            with pytest.raises(ConflictError):
                release_period(str(built.config), DAYS[0])
        else:
            assert release_period(str(built.config), DAYS[0]).status == "unchanged"
        lines.append([one.message for one in caplog.records if one.message.startswith("the run")])
        assert (samples(built), _kept(built), told(web)) == (metrics, kept, [])
    assert lines[0] == lines[1] == [
        "the run begins", "the run ends: the period was published before",
    ]  # fmt: skip


def test_a_conflict_is_kept_nowhere_where_nobody_knows_whether_the_period_is_public(
    experiment: Builder, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its words may say how rows compare."""
    built = watched(experiment, web, DAYS[0])
    night(monkeypatch, DAYS[1])

    def conflict(*_: Any, **_named: Any) -> None:
        raise ConflictError("from other rows")

    def no_answer(*_: Any) -> None:
        raise InputError("ledger: no answer")

    with monkeypatch.context() as broken:
        broken.setattr("flows.release.charge_rows", conflict)
        broken.setattr(Account, "has_released", no_answer)
        with pytest.raises(ConflictError):
            release_period(str(built.config), DAYS[0])
    assert (_kept(built), told(web)) == ([], [])


def _kept(built: Experiment) -> list[Any]:
    with closing(sqlite3.connect(built.folder / "ledger.sqlite")) as ledger:
        return ledger.execute("SELECT * FROM clusterdp_ends").fetchall()


def test_metrics_follow_every_night(
    experiment: Builder, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = watched(experiment, web, DAYS[0], privacy={"budget_epsilon": 5.0})
    night(monkeypatch, DAYS[0])
    old = os.umask(0o077)
    try:
        caught_up(built)  # nothing is due
        before = samples(built)
        night(monkeypatch, DAYS[2])
        caught_up(built)
    finally:
        os.umask(old)
    assert before == {
        ("epsilon_left",): 5.0,
        **_periods(waiting=1),
        ("next_due_timestamp_seconds",): _moment(DAYS[1], "01:00"),
    }
    after = samples(built)
    at = _moment(DAYS[2], "03:15")
    duration = after.pop(("release_duration_seconds",))
    assert duration == int(duration) > 0
    assert after == {
        ("last_success_timestamp_seconds",): at,
        ("last_run_timestamp_seconds",): at,
        **_ended("no_file"),
        ("release_units",): 160.0,
        ("release_rows_read",): 160.0,
        ("sample_ratio_p",): 1.0,
        ("epsilon_left",): 3.0,
        **_periods(published=1, waiting=2),
        ("next_due_timestamp_seconds",): _moment(DAYS[3], "01:00"),
    }
    night(monkeypatch, DAYS[5])
    assert samples(built)["periods", "due"] == 0.0  # as of the last run
    assert run(["status", str(built.config), "--metrics"]) == 0
    assert samples(built)["periods", "due"] == 3.0
    assert samples(built)["periods", "failed"] == 1.0


def _ended(state: str) -> Samples:
    names = ("published", "refused", "no_file", "failed")
    return {("last_run_state", name): float(name == state) for name in names}


def _periods(**counts: int) -> Samples:
    names = ("published", "due", "waiting", "running", "refused", "failed", "lost", "altered",
             "withdrawn", "pruned")  # fmt: skip
    return {("periods", name): float(counts.get(name, 0)) for name in names}


def _moment(day: str, hour: str) -> float:
    return datetime.fromisoformat(f"{day}T{hour}").replace(tzinfo=UTC).timestamp()


def test_a_folder_of_metrics_that_is_not_there_stops_no_night(
    experiment: Builder,
    web: Web,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    built = watched(experiment, web, DAYS[0])
    (built.folder / "metrics").rmdir()
    night(monkeypatch, DAYS[1])
    assert caught_up(built) == {DAYS[0]: "published"}
    assert "run.metrics_directory: " in caplog.text
    assert run(["status", str(built.config), "--metrics"]) == 2
    assert "cannot be written (No such file or directory)" in capsys.readouterr().err


def test_without_a_schedule_a_release_is_watched_too(
    experiment: Builder, web: Web, caplog: pytest.LogCaptureFixture
) -> None:
    built = experiment(
        {"log.csv": "nothing,of\nthe,kind\n"},
        source={"path": "log.csv"},
        notify={"webhook_file": "hook"},
        run={"metrics_directory": "."},
        privacy={"mechanism": "uniform-prior-dp", "strata_statistic": "none"},
    )
    (built.folder / "hook").write_text(web.url)
    for _ in range(2):
        with pytest.raises(InputError):
            release_period(str(built.config))
    assert told(web) == [("once", "failed")]
    (built.folder / "log.csv").write_bytes(a_log(160).write_csv().encode())
    release_period(str(built.config))
    text = (built.folder / "clusterdp_trial.prom").read_text()
    assert 'clusterdp_last_run_state{experiment="trial",state="published"} 1' in text
    assert "next_due" not in text


def test_a_runs_identifier_leads_from_its_log_to_its_release(
    experiment: Builder,
    web: Web,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    built = watched(experiment, web, DAYS[0])
    night(monkeypatch, DAYS[1])
    caplog.set_level(logging.INFO, "clusterdp")
    monkeypatch.setattr(logs, "_chosen", [True])
    caplog.handler.setFormatter(logs.JsonFormatter())
    caught_up(built)
    monkeypatch.setattr(logs, "_chosen", [False])
    lines = [json.loads(line) for line in caplog.text.splitlines()]
    last = lines[-1]
    assert (last["message"], last["release_id"]) == (
        "the run ends: published",
        f"trial.{DAYS[0]}.r1",
    )
    assert {line["run"] for line in lines} == {last["run"]}
    assert {line["period"] for line in lines} == {DAYS[0]}
    assert run(["ledger", str(built.config), "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["entries"]
    assert (entry["run"], entry["release_id"]) == (last["run"], last["release_id"])
    assert last["run"].encode() not in _released(built)


def _released(built: Experiment) -> bytes:
    (path,) = built.releases.glob("trial.*.duckdb")
    return Path(path).read_bytes()


def test_a_notice_has_no_place_in_a_file(
    experiment: Builder, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which line of outcome events is broken may hang on outcomes; the operator sees it."""
    seen = f"customer,variant,region,ts\na,none,x,{DAYS[0]}T01:00\nb,mail,x,{DAYS[0]}T02:00\n"
    event = json.dumps({"customer": "a", "ts": f"{DAYS[0]}T03:00"})
    built = watched(
        experiment, web, columns={"time": "ts", "outcome": None}, outcome={"aggregate": "count"}
    )
    text = built.config.read_text().replace(
        "[columns]", 'grain = "event"\noutcomes_path = "done.jsonl"\nwindow = "1h"\n[columns]'
    )
    built.config.write_text(text)
    bring(built, DAYS[0], seen)
    (built.folder / "done.jsonl").write_text(f"{event}\n" * 1233 + "{oh\n")
    night(monkeypatch, DAYS[2], "00:30")
    (result,) = release_due(str(built.config)).releases
    assert (result.reason or "").endswith("cannot be read as JSON Lines: line 1234 does not parse")
    (document,) = web.got
    assert document["reason"].endswith("cannot be read as JSON Lines: a line does not parse")
    assert "1234" not in json.dumps(document)


# what a run that died could not tell


def test_what_a_dead_run_could_not_tell_is_told_by_the_next(
    experiment: Builder, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It died when its release was public; for one that died earlier see test_nights.py."""
    built = watched(experiment, web)
    odd = pl.when(pl.int_range(pl.len()) < 250).then(pl.lit("mail")).otherwise(pl.lit("none"))
    twice = a_log(16).with_columns(customer=pl.lit("twice"))
    bring(built, DAYS[0], a_log(300).with_columns(variant=odd).vstack(twice).vstack(twice))
    night(monkeypatch, DAYS[1])
    with monkeypatch.context() as dies:
        dies.setattr("flows.operate.watch.run._after_success", lambda *_: None)
        caught_up(built)
    web.got.clear()
    night(monkeypatch, DAYS[1], "09:00")
    for _ in range(2):
        assert caught_up(built) == {}
    ratio, aside = web.got
    assert told(web) == [(DAYS[0], "sample_ratio"), (DAYS[0], "set_aside")]
    assert ratio["reason"].endswith("the arm sizes do not fit the intended shares")
    assert aside["reason"] == "9.64 % of 332 rows have a fault"
    assert (aside["release_id"], len(aside["run"])) == (f"trial.{DAYS[0]}.r1", 12)
    found = samples(built)
    assert found["last_success_timestamp_seconds",] == _moment(DAYS[1], "09:00")
    assert (found["release_units",], found["release_rows_read",]) == (300.0, 332.0)
    assert ("release_duration_seconds",) not in found


def test_releases_of_runs_that_ended_in_order_are_no_news(
    experiment: Builder, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as those of before anybody asked to be told."""
    built = watched(experiment, web)
    log = a_log(160).vstack(a_log(160).with_columns(customer=pl.lit("twice")))
    bring(built, DAYS[0], log)
    night(monkeypatch, DAYS[1])
    with monkeypatch.context() as untold:
        untold.setattr(
            "flows.operate.watch.run._after_success",
            lambda _config, account, _period, watch, _seconds: account.log.drop(watch.run),
        )
        caught_up(built)
    caught_up(built)
    assert told(web) == []
    assert ("last_success_timestamp_seconds",) not in samples(built)
