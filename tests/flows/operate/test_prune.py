"""What is older than the configuration keeps it goes, and what was charged stays charged."""

import errno
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest

import clusterdp
from flows.cli.main import run
from flows.config.load import load
from flows.ledger.account import Account
from flows.operate import prune as page
from flows.operate.prune import prune
from flows.operate.series import renew
from flows.operate.status import status
from flows.released.lists import read_lists
from flows.runtime import clock
from schemas.errors import ConfigError, ConflictError, InputError
from tests.conftest import Builder, Experiment, a_log, released, write_content
from tests.flows.operate.test_verify import digest, rewrite, verified
from tests.support.made_once import made_once

LIGHT = {"mechanism": "uniform-prior-dp", "strata_statistic": "none"}
PERIODS = ("a", "b", "c")
LATER = datetime.now(UTC) + timedelta(days=40)

pytestmark = pytest.mark.process  # sha256sum checks the lists


def an_experiment(
    experiment: Builder, *, periods: tuple[str, ...] = PERIODS, **retention: str
) -> Experiment:
    """Releases of several periods; rows without an arm are set aside."""
    last = pl.col("customer") == "c00017"
    log = a_log(180).with_columns(pl.when(~last).then("variant").alias("variant"))
    built = experiment(
        {f"logs/{one}.csv": log for one in periods},
        source={"path": "logs/{period}.csv"},
        privacy=LIGHT,
        retention=retention or {"releases": "30d"},
    )
    with patch.object(clock, "now", lambda: datetime.now(UTC)):  # now, whenever the test is
        return made_once(Experiment.run_all, built, *periods)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty days have passed."""
    monkeypatch.setattr(clock, "now", lambda: LATER)


def states(built: Experiment) -> dict[str, str]:
    (found,) = status(built.config).experiments
    return {one.period: str(one.state) for one in found.periods}


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


KEPT = ["SHA256SUMS", "latest.duckdb", "pruned.json", "series.duckdb", "trial.c.r1.duckdb"]


@pytest.mark.usefixtures("later")
def test_old_releases_go_but_the_latest_and_what_was_charged_stay(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    built = an_experiment(experiment)
    paths = [built.releases / f"trial.{one}.r1.duckdb" for one in PERIODS]
    sizes, digests = [path.stat().st_size for path in paths], [digest(path) for path in paths]
    spent = account_of(built).statement().spent
    estimates = released(built.releases / "series.duckdb", "estimates")
    cumulative = released(built.releases / "series.duckdb", "cumulative")
    assert run(["prune", str(built.config), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["releases"] == {
        "older_than": "30d", "n": 2, "bytes": sum(sizes[:2]),
        "names": [path.name for path in paths[:2]],
    }  # fmt: skip
    assert (document["quarantine"], document["spill"], document["prefect"]) == (None, None, None)
    assert files(built.releases) == KEPT
    assert (built.releases / "latest.duckdb").samefile(paths[2])
    assert account_of(built).statement().spent == spent
    assert states(built) == {"a": "pruned", "b": "pruned", "c": "published"}
    checked = subprocess.run(
        [shutil.which("sha256sum") or "sha256sum", "--check", "--strict", "SHA256SUMS"],
        cwd=built.releases, capture_output=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0
    pruned = read_lists(built.releases).pruned
    assert [pruned[f"trial.{one}.r1"].sha256 for one in "ab"] == digests[:2]
    assert released(built.releases / "series.duckdb", "estimates").equals(estimates)
    assert released(built.releases / "series.duckdb", "cumulative").equals(cumulative)
    assert run(["ledger", str(built.config), "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)["entries"]
    assert [one["pruned_at"] is None for one in entries] == [False, False, True]
    assert prune(built.config).kinds["releases"].n == 0


def account_of(built: Experiment) -> Account:
    return Account.of(load(built.config))


@pytest.mark.usefixtures("later")
def test_a_pruned_period_is_not_released_again_whatever_its_rows_are(experiment: Builder) -> None:
    built = an_experiment(experiment)
    prune(built.config)
    with pytest.raises(ConflictError, match=r"trial\.a\.r1, whose file was pruned on 20") as same:
        built.run("a")
    write_content(built.folder / "logs" / "a.csv", a_log(24))
    with pytest.raises(ConflictError) as other:
        built.run("a")
    assert str(other.value) == str(same.value)
    assert files(built.releases) == KEPT
    assert built.run("a", revise=True).release_id == "trial.a.r2"
    assert states(built)["a"] == "published"
    periods = released(built.releases / "series.duckdb", "periods")["release_id"].to_list()
    assert periods == ["trial.a.r2", "trial.b.r1", "trial.c.r1"]


@pytest.mark.usefixtures("later")
def test_copies_of_pruned_files_are_known_and_a_missing_one_is_explained(
    experiment: Builder, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    built = an_experiment(experiment)
    path = built.releases / "trial.a.r1.duckdb"
    copy = Path(shutil.copy(path, tmp_path / "copy.duckdb"))
    prune(built.config)
    code, (found,) = verified(capsys, copy, "--ledger", built.config)
    assert (code, found["release_id"], found["intact"]) == (0, "trial.a.r1", True)
    assert found["pruned_at"].startswith(f"{LATER:%Y-%m-%d}")
    for source in ([], ["--ledger", str(built.config)]):
        assert run(["verify", str(path), *source]) == 2
        assert "as it was pruned on" in capsys.readouterr().err
    shutil.copy(copy, path)  # somebody puts it back
    code, (found,) = verified(capsys, path)
    assert (code, found["intact"], found["pruned_at"] is None) == (0, True, False)
    assert prune(built.config).kinds["releases"].names == (path.name,)


@pytest.mark.usefixtures("later")
def test_readers_of_the_folder_are_told(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    built = an_experiment(experiment)
    left = built.releases / "trial.b.r1.duckdb"  # as by a prune that was killed
    content = left.read_bytes()
    prune(built.config)
    assert run(["estimate", str(built.releases)]) == 0
    assert "2 files were pruned: trial.a.r1, trial.b.r1" in capsys.readouterr().err
    left.write_bytes(content)
    assert run(["estimate", str(built.releases)]) == 0
    assert "1 file was pruned: trial.a.r1;" in capsys.readouterr().err


@pytest.mark.usefixtures("later")
def test_the_rows_of_pruned_nights_outlive_a_new_version_of_the_program(
    experiment: Builder,
) -> None:
    built = an_experiment(experiment)
    prune(built.config)
    series = built.releases / "series.duckdb"
    before = released(series, "estimates")
    with patch.object(renew, "version", lambda _: "99.0"):
        assert account_of(built).renew_series() == ()
        assert set(released(series, "series")["package_version"]) == {"99.0"}
    assert released(series, "estimates").equals(before)


@pytest.mark.usefixtures("later")
def test_a_ledger_that_was_lost_charges_what_was_pruned(experiment: Builder) -> None:
    """No file is left to be found, so the list says what it cost."""
    built = an_experiment(experiment)
    prune(built.config)
    before = account_of(built).statement()
    (built.folder / "ledger.sqlite").unlink()
    shutil.rmtree(built.folder / "ledger.sqlite.accounts")
    clusterdp.restore(None, built.config, complete=True)
    after = account_of(built).statement()
    assert after.n_releases == before.n_releases == 3
    assert after.spent.epsilon >= before.spent.epsilon
    assert states(built) == {"a": "pruned", "b": "pruned", "c": "published"}


@pytest.mark.parametrize(
    "content",
    ['{"releases": [{"release_id": "other.a.r1", "pruned_at": "", "epsilon": 1, "delta": 0, '
     '"sha256": null}]}',
     '{"releases": [{"release_id": "trial.a.r1", "pruned_at": "", "epsilon": -1, "delta": 0, '
     '"sha256": null}]}',
     '{"releases": [{"release_id": "trial.a.r1", "pruned_at": "", "epsilon": 1e999, "delta": 0, '
     '"sha256": null}]}'],
)  # fmt: skip
@pytest.mark.usefixtures("later")
def test_a_list_that_is_none_enters_nothing_into_a_new_ledger(
    experiment: Builder, content: str
) -> None:
    built = an_experiment(experiment)
    prune(built.config)
    (built.folder / "ledger.sqlite").unlink()
    rewrite(built.releases / "pruned.json", content)
    with pytest.raises(InputError, match=r"pruned\.json"):
        clusterdp.restore(None, built.config, complete=True)


@pytest.mark.usefixtures("later")
def test_withdrawn_releases_can_go_and_the_latest_falls_back_first(experiment: Builder) -> None:
    built = an_experiment(experiment)
    clusterdp.withdraw(built.config, "trial.c.r1", "wrong prices")
    assert prune(built.config).kinds["releases"].names == (
        "trial.a.r1.duckdb", "trial.c.r1.duckdb",
    )  # fmt: skip
    assert (built.releases / "latest.duckdb").samefile(built.releases / "trial.b.r1.duckdb")
    assert states(built) == {"a": "pruned", "b": "published", "c": "withdrawn"}
    assert released(built.releases / "series.duckdb", "periods")["period"].to_list() == ["a", "b"]


def test_what_is_young_stays_and_a_dry_run_changes_nothing(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = an_experiment(experiment, releases="30d", quarantine="30d", spill="30d")
    result = prune(built.config)
    assert {name: one.n for name, one in result.kinds.items()} == dict.fromkeys(
        ("quarantine", "spill", "releases"), 0
    )
    monkeypatch.setattr(clock, "now", lambda: LATER)
    before = snapshot(built.folder)
    would = prune(built.config, dry_run=True)
    assert snapshot(built.folder) == before
    did = prune(built.config)
    assert (would.as_json()["releases"], would.as_json()["quarantine"]) == (
        did.as_json()["releases"], did.as_json()["quarantine"],
    )  # fmt: skip
    assert did.kinds["releases"].n == 2


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in found}


@pytest.mark.usefixtures("later")
def test_the_quarantine_loses_old_files_of_this_experiment_alone(experiment: Builder) -> None:
    built = an_experiment(experiment, quarantine="30d")
    folder = built.folder / "quarantine" / "trial"
    names = [f"trial.{one}.r1.parquet" for one in PERIODS]
    assert files(folder) == names
    shutil.copy(folder / names[0], folder / "other.a.r1.parquet")
    shutil.copy(folder / names[0], folder / "notes.parquet")
    os.utime(folder / names[1], (LATER.timestamp(),) * 2)
    killed = f".{names[1]}.half-written"
    shutil.copy(folder / names[0], folder / killed)
    found = prune(built.config).kinds["quarantine"]
    assert found.names == (killed, names[0], names[2])
    assert files(folder) == ["notes.parquet", "other.a.r1.parquet", names[1]]
    assert (built.folder / "quarantine" / "digest.key").exists()
    assert built.run("a").status == "unchanged"
    assert len(list(built.releases.glob("trial.*"))) == 3


@pytest.mark.usefixtures("later")
def test_leftovers_of_dead_runs_go_and_those_of_living_ones_stay(experiment: Builder) -> None:
    built = an_experiment(experiment, spill="30d")
    quarantine = built.folder / "quarantine"
    left = [quarantine / ".spill-dead", built.releases / ".draft-dead"]
    for folder in (*left, quarantine / ".spill-alive"):
        folder.mkdir(mode=0o700)
        (folder / "rows.arrow").write_bytes(b"x" * 1000)
        (folder / "lock").touch()
    young = built.releases / ".draft-young"
    young.mkdir()
    os.utime(young, (LATER.timestamp(),) * 2)
    held = os.open(quarantine / ".spill-alive" / "lock", os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        assert prune(built.config, dry_run=True).kinds["spill"].n == 2
        found = prune(built.config)
    finally:
        os.close(held)
    assert found.kinds["spill"].as_json() == {
        "older_than": "30d", "n": 2, "bytes": None, "names": None,
    }  # fmt: skip
    assert [path.exists() for path in left] == [False, False]
    assert young.exists()
    assert (quarantine / ".spill-alive" / "rows.arrow").exists()


def _die(*_: object, **__: object) -> Any:
    raise KeyboardInterrupt


STEPS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "before it is noted": lambda p: p.setattr(Account, "note_pruned", _die),
    "once it is noted": lambda p: _die_at_second(p, Account, "settle"),
    "before the series": lambda p: p.setattr(Account, "renew_series", _die),
    "before the first file": lambda p: p.setattr(page, "folder_lock", _die),
    "after the first file": lambda p: _die_at_second(p, Path, "unlink"),
    "after the last file": lambda p: p.setattr(page, "sync_directory", _die),
}


def _die_at_second(patched: pytest.MonkeyPatch, owner: type, name: str) -> None:
    act, calls = getattr(owner, name), []

    def counted(*given: Any, **named: Any) -> Any:
        is_ours = owner is not Path or str(given[0]).endswith(".r1.duckdb")
        calls.append(1) if is_ours else None
        return _die() if len(calls) == 2 and is_ours else act(*given, **named)

    patched.setattr(owner, name, counted)


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("step", STEPS)
def test_what_a_killed_prune_left_the_next_one_finishes(experiment: Builder, step: str) -> None:
    built = an_experiment(experiment)
    before = released(built.releases / "series.duckdb", "cumulative")
    with pytest.MonkeyPatch.context() as patched:
        STEPS[step](patched)
        with pytest.raises(KeyboardInterrupt):
            prune(built.config)
    assert set(states(built).values()) <= {"published", "pruned"}
    assert built.run("c").status == "unchanged"  # a release between the two
    prune(built.config)
    assert files(built.releases) == KEPT
    assert released(built.releases / "series.duckdb", "cumulative").equals(before)
    assert states(built) == {"a": "pruned", "b": "pruned", "c": "published"}


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("name", ["sync_directory", "folder_lock"])
def test_a_folder_that_lets_nothing_be_removed_is_named(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    built = an_experiment(experiment)
    with monkeypatch.context() as patched:
        patched.setattr(page, name, _full)
        with pytest.raises(InputError, match=r"trial: cannot remove files here \(No space left"):
            prune(built.config)
    prune(built.config)
    assert files(built.releases) == KEPT


def _full(_: Path) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_without_a_section_it_says_so(experiment: Builder) -> None:
    built = experiment(a_log(160), privacy=LIGHT)
    with pytest.raises(ConfigError, match="retention: missing in"):
        clusterdp.prune(built.config)


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({}, "retention"),
        ({"releases": "30"}, "retention.releases"),
        ({"quarantine": "12h"}, "retention.quarantine"),
        ({"spill": "-3d"}, "retention.spill"),
        ({"rosters": "30d"}, "retention.rosters"),
        ({"prefect": 30}, "retention.prefect"),
    ],
)
def test_a_section_that_means_nothing_is_refused_by_its_key(
    experiment: Builder, section: dict[str, Any], key: str
) -> None:
    built = experiment(a_log(160), privacy=LIGHT, retention=section)
    with pytest.raises(ConfigError) as failure:
        prune(built.config)
    assert failure.value.key == key


def test_lengths_are_those_of_the_schedule(experiment: Builder) -> None:
    built = experiment(a_log(160), privacy=LIGHT, retention={"releases": "365d", "spill": "24h"})
    section = load(built.config).retention
    assert section is not None
    assert section.lengths == {"releases": timedelta(days=365), "spill": timedelta(days=1)}


@pytest.mark.parametrize("url", [None, "https://user:secret@prefect.invalid/api"])
def test_prefect_s_history_is_prefect_s_and_stops_no_prune(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch, url: str | None
) -> None:
    built = an_experiment(experiment, prefect="30d", releases="30d")
    home = built.folder / ".clusterdp"
    home.mkdir()
    (home / "prefect.db").write_bytes(b"theirs")
    if url is not None:
        monkeypatch.setenv("PREFECT_API_URL", url)
    monkeypatch.setattr(clock, "now", lambda: LATER)
    result = prune(built.config)
    assert result.as_json()["prefect"] == {
        "older_than": "30d", "n": 0, "bytes": None, "names": None,
    }  # fmt: skip
    assert result.kinds["releases"].n == 2
    (told,) = result.warnings
    assert told.startswith("retention.prefect: nothing is removed")
    assert "VACUUM_ENABLED=true" in told
    assert "VACUUM_RETENTION_PERIOD=2592000 (seconds)" in told
    assert "secret" not in told
    assert [(path.name, path.read_bytes()) for path in home.iterdir()] == [
        ("prefect.db", b"theirs")
    ]
