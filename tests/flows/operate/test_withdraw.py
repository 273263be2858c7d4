"""A release that is withdrawn: what readers are told, what is drawn anew, what stays charged."""

import json
import shutil
import sqlite3
import subprocess
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import clusterdp
from flows.cli.main import run
from flows.ledger import account
from flows.ledger.account import Account
from flows.ledger.tables import SINCE
from flows.operate.series.nights import find_nights
from flows.operate.status import status
from flows.operate.withdraw import withdraw
from flows.released.lists import read_lists
from schemas.errors import ClusterdpError, ConfigError, InputError
from tests.conftest import Builder, Experiment, a_log, released, write_content
from tests.flows.operate.test_verify import digest, rewrite, signing_key, verified
from tests.support.made_once import made_once

LIGHT = {"mechanism": "uniform-prior-dp", "strata_statistic": "none"}
WHY = "prices were in the wrong currency"

pytestmark = pytest.mark.process  # sha256sum checks the lists


def an_experiment(experiment: Builder, *periods: str, **sections: Any) -> Experiment:
    """Releases of several periods, of one log."""
    given = {"source": {"path": "logs/{period}.csv"}, "privacy": LIGHT, **sections}
    built = experiment({f"logs/{one}.csv": a_log(160) for one in periods}, **given)
    return made_once(Experiment.run_all, built, *periods)


def told(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[dict[str, Any], str]:
    """What a command prints with ``--json``, and on standard error."""
    capsys.readouterr()
    assert run([*map(str, arguments), "--json"]) == 0
    found = capsys.readouterr()
    return json.loads(found.out), found.err


def state(built: Experiment, period: str) -> str:
    (found,) = status(built.config).experiments
    return next(str(one.state) for one in found.periods if one.period == period)


def test_a_withdrawn_release_stays_as_it_is_and_everybody_is_told(
    experiment: Builder, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    built = an_experiment(experiment, "a", "b", "c")
    path = built.releases / "trial.c.r1.duckdb"
    before = digest(path)
    document, _ = told(capsys, "withdraw", built.config, "trial.c.r1", "--reason", WHY)
    assert document == {
        "experiment": "trial", "release_id": "trial.c.r1", "withdrawn": WHY, "changed": True,
        "latest": "trial.b.r1", "warnings": [],
    }  # fmt: skip
    assert digest(path) == before
    latest = built.releases / "latest.duckdb"
    assert latest.samefile(built.releases / "trial.b.r1.duckdb")
    for command in ("estimate", "inspect"):
        document, error = told(capsys, command, path)
        assert document["withdrawn"] == WHY
        assert "warning: trial.c.r1 was withdrawn on 20" in error
        assert told(capsys, command, latest)[0]["withdrawn"] is None
    out = tmp_path / "c.html"
    assert WHY in told(capsys, "report", path, "--output", out)[1]
    assert "This release was withdrawn" in out.read_text()
    document, _ = told(capsys, "ledger", built.config)
    assert [one["withdrawn"] for one in document["entries"]] == [None, None, WHY]
    assert document["n_releases"] == 3
    assert (state(built, "b"), state(built, "c")) == ("published", "withdrawn")


def test_verify_says_so_by_the_ledger_and_by_the_list_that_is_signed(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    built = experiment(a_log(160), privacy=LIGHT, publish={"signing_key": "signing.pem"})
    _, public = signing_key(built.folder)
    path = built.run("a").path
    sources: list[list[str | Path]] = [[], ["--ledger", built.config], ["--key", public]]
    for source in sources:
        assert verified(capsys, path, *source)[1][0]["withdrawn"] is None
    withdraw(built.config, "trial.a.r1", WHY)
    for source in sources:
        code, (found,) = verified(capsys, path, *source)
        assert (code, found["intact"], found["withdrawn"]) == (0, True, WHY)
    checked = subprocess.run(
        [shutil.which("sha256sum") or "sha256sum", "--check", "--strict", "SHA256SUMS"],
        cwd=built.releases, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (checked.returncode, "withdrawn.json: OK" in checked.stdout) == (0, True)
    rewrite(built.releases / "withdrawn.json", '{"releases": []}\n')
    for source in (sources[0], sources[2]):  # whoever takes the word away is found out
        code, (found,) = verified(capsys, path, *source)
        assert (code, found["intact"], found["withdrawn"]) == (0, True, None)
        assert "withdrawn.json is not the one that SHA256SUMS lists" in found["reason"]
    built.run("b")  # the next run of any kind mends it
    assert read_lists(built.releases).withdrawn["trial.a.r1"].reason == WHY


def test_the_series_leaves_it_out_and_takes_it_back(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    built = an_experiment(experiment, "a", "b", "c")
    series = built.releases / "series.duckdb"
    withdraw(built.config, "trial.b.r1", WHY)
    assert released(series, "periods")["period"].to_list() == ["a", "c"]
    assert set(released(series, "cumulative")["n_releases"]) == {1, 2}
    (note,) = released(series, "notes").to_dicts()
    assert (note["release_id"], note["state"], note["reason"]) == ("trial.b.r1", "withdrawn", WHY)
    document, _ = told(capsys, "estimate", built.releases)
    assert [one["period"] for one in document["periods"]] == ["a", "c"]
    assert any(WHY in one for one in document["notes"])
    withdraw(built.config, "trial.b.r1", None, undo=True)
    assert released(series, "periods")["period"].to_list() == ["a", "b", "c"]
    assert released(series, "notes").is_empty()
    assert not (built.releases / "withdrawn.json").exists()
    assert state(built, "b") == "published"


def test_pages_that_are_there_say_so_and_cease_to(experiment: Builder, tmp_path: Path) -> None:
    built = an_experiment(experiment, "a", "b")
    arguments = ["report", str(built.releases), "--output", str(tmp_path / "pages")]
    own = tmp_path / "pages" / "trial.a.r1.html"
    for undo, expected in ((None, False), (False, True), (True, False)):
        if undo is not None:
            withdraw(built.config, "trial.a.r1", None if undo else WHY, undo=undo)
        assert run(arguments) == 0
        assert (WHY in own.read_text()) == expected
        assert (WHY in (tmp_path / "pages" / "index.html").read_text()) == expected


def test_its_period_is_drawn_anew_by_a_revision_alone(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    built = an_experiment(experiment, "a", "b")
    withdraw(built.config, "trial.b.r1", WHY)
    again = built.run("b")
    assert again.status == "unchanged"
    assert any(f"was withdrawn ({WHY})" in one for one in again.warnings)
    revised = built.run("b", revise=True)
    assert revised.release_id == "trial.b.r2"
    assert (built.releases / "latest.duckdb").samefile(revised.path)
    assert state(built, "b") == "published"
    assert find_nights([built.releases]).nights[-1].manifest.release_id == "trial.b.r2"
    withdraw(built.config, "trial.b.r2", "worse still")
    assert (built.releases / "latest.duckdb").samefile(built.releases / "trial.a.r1.duckdb")


def test_where_all_are_withdrawn_there_is_no_latest_and_no_series(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    built = an_experiment(experiment, "a")
    assert withdraw(built.config, "trial.a.r1", WHY).latest is None
    left = sorted(path.name for path in built.releases.iterdir())
    assert left == ["SHA256SUMS", "trial.a.r1.duckdb", "withdrawn.json"]
    with pytest.raises(InputError, match="every release that is named was withdrawn"):
        find_nights([built.releases])
    write_content(built.folder / "logs" / "b.csv", a_log(160))
    built.run("b")
    assert (built.releases / "latest.duckdb").exists()


def test_a_ledger_that_was_lost_learns_it_from_the_list(experiment: Builder) -> None:
    built = an_experiment(experiment, "a", "b")
    withdraw(built.config, "trial.b.r1", WHY)
    (built.folder / "ledger.sqlite").unlink()
    clusterdp.restore(None, built.config, complete=True)
    write_content(built.folder / "logs" / "c.csv", a_log(160))
    built.run("c")
    assert read_lists(built.releases).withdrawn["trial.b.r1"].reason == WHY
    assert state(built, "b") == "withdrawn"


@pytest.mark.parametrize(
    ("release_id", "reason", "undo", "key"),
    [
        ("trial.a.r1", None, False, "--reason"),
        ("trial.a.r1", " ", False, "--reason"),
        ("trial.a.r1", "two\nlines", False, "--reason"),
        ("trial.a.r1", "x" * 501, False, "--reason"),
        ("trial.a.r1", WHY, True, "--reason"),
        ("trial.a.r2", WHY, False, "RELEASE_ID"),
        ("../a.r1", WHY, False, "RELEASE_ID"),
    ],
)
def test_what_cannot_be_withdrawn_is_refused_by_name(
    experiment: Builder, release_id: str, reason: str | None, undo: bool, key: str
) -> None:
    built = an_experiment(experiment, "a")
    with pytest.raises(ConfigError) as failure:
        withdraw(built.config, release_id, reason, undo=undo)
    assert failure.value.key == key
    assert not (built.releases / "withdrawn.json").exists()


def test_twice_changes_nothing_and_another_reason_replaces_the_first(experiment: Builder) -> None:
    built = an_experiment(experiment, "a", "b")
    assert withdraw(built.config, "trial.a.r1", WHY).changed
    before = {path.name: path.stat().st_mtime_ns for path in built.releases.iterdir()}
    assert not withdraw(built.config, "trial.a.r1", WHY).changed
    assert {path.name: path.stat().st_mtime_ns for path in built.releases.iterdir()} == before
    assert withdraw(built.config, "trial.a.r1", "another").changed
    assert read_lists(built.releases).withdrawn["trial.a.r1"].reason == "another"
    assert not withdraw(built.config, "trial.b.r1", None, undo=True).changed


@pytest.mark.parametrize(
    "killed", ["Account.settle", "renew_series"], ids=["after the ledger", "before the series"]
)
def test_a_run_that_dies_on_the_way_is_finished_by_the_next(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    built = an_experiment(experiment, "a", "b")
    settle = account.Account.settle
    calls: list[int] = []

    def die(*_: object) -> list[str]:
        calls.append(1)
        if killed == "Account.settle" and len(calls) == 1:  # before anything is noted
            return settle(*_)  # type: ignore[arg-type] # the account
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if killed == "Account.settle":
            patched.setattr(account.Account, "settle", die)
        else:
            patched.setattr(account.Account, "renew_series", die)
        with pytest.raises(KeyboardInterrupt):
            withdraw(built.config, "trial.b.r1", WHY)
    write_content(built.folder / "logs" / "0.csv", a_log(160))
    built.run("0")
    assert (built.releases / "latest.duckdb").samefile(built.releases / "trial.a.r1.duckdb")
    assert released(built.releases / "series.duckdb", "periods")["period"].to_list() == ["0", "a"]


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"releases": 3}', '{"releases": [{"release_id": "trial.a.r1"}]}', "\x00" * 40,
     '{"releases": [{"release_id": "../a", "withdrawn_at": "", "reason": ""}]}'],
)  # fmt: skip
def test_a_list_that_is_none_is_told_to_readers(
    experiment: Builder, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    built = an_experiment(experiment, "a")
    (built.releases / "withdrawn.json").write_text(content)
    for arguments in (["estimate", built.releases], ["inspect", built.releases / "latest.duckdb"]):
        assert run([str(one) for one in arguments]) == 2
        assert "withdrawn.json" in capsys.readouterr().err
    (warning,) = Account.of(built.load()).settle()
    assert "withdrawn.json: somebody has changed it" in warning
    assert not (built.releases / "withdrawn.json").exists()


def test_a_hostile_reason_moves_no_cursor(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    built = an_experiment(experiment, "a")
    one = {"release_id": "trial.a.r1", "withdrawn_at": "\x1b[2J", "reason": "\x1b[31m" * 200}
    (built.releases / "withdrawn.json").write_text(json.dumps({"releases": [one]}))
    assert run(["estimate", str(built.releases / "latest.duckdb")]) == 0
    found = capsys.readouterr()
    assert "was withdrawn" in found.err
    assert "\x1b" not in found.out + found.err


def test_python_warns_and_names_the_reason(experiment: Builder) -> None:
    built = an_experiment(experiment, "a")
    path = built.releases / "trial.a.r1.duckdb"
    assert clusterdp.open(path).withdrawn is None
    result = clusterdp.withdraw(built.config, "trial.a.r1", WHY)
    assert result.as_json()["withdrawn"] == WHY
    with pytest.warns(clusterdp.ClusterdpWarning, match=WHY):
        assert clusterdp.open(path).withdrawn == WHY
    (found,) = clusterdp.verify(path).releases
    assert found.withdrawn == WHY
    clusterdp.withdraw(built.config, "trial.a.r1", undo=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clusterdp.open(path)


def test_a_site_has_nothing_to_withdraw(tmp_path: Path) -> None:
    config = tmp_path / "site.toml"
    config.write_text('[site]\nname = "north"\n[design]\n')
    with pytest.raises(ClusterdpError, match="configuration of a site's report"):
        withdraw(config, "a.b.r1", WHY)


def test_a_ledger_of_the_version_before_is_brought_up_to_date(experiment: Builder) -> None:
    built = an_experiment(experiment, "a", "b")
    with closing(sqlite3.connect(built.folder / "ledger.sqlite")) as ledger, ledger:
        for name in (name for name, version in SINCE.items() if version > 2):
            ledger.execute(f"ALTER TABLE clusterdp_charges DROP COLUMN {name}")
        ledger.execute("UPDATE clusterdp_ledger SET version = 2")
    assert state(built, "a") == "published"  # read as it is
    assert (
        clusterdp.verify(built.releases / "trial.a.r1.duckdb", ledger=built.config).exit_code == 0
    )
    withdraw(built.config, "trial.a.r1", WHY)
    assert state(built, "a") == "withdrawn"
