"""`clusterdp backup` and `clusterdp restore`, from the command line and from Python."""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import clusterdp
from flows.cli.main import run
from flows.released.file.draft import workplace
from schemas.errors import ConfigError, ConflictError, InputError
from tests.conftest import Builder, Experiment, a_log, build_experiment
from tests.support.modes import mode
from tests.support.surroundings import Command

LIGHT = {"mechanism": "uniform-prior-dp", "strata_statistic": "none"}


def an_experiment(experiment: Builder, **sections: Any) -> Experiment:
    return experiment(a_log(160), privacy=LIGHT, **sections)


def lose(built: Experiment) -> None:
    """Lose the ledger and all keys."""
    (built.folder / "ledger.sqlite").unlink()
    shutil.rmtree(built.folder / "ledger.sqlite.accounts")
    for key in ("account.key", "quarantine/digest.key"):
        (built.folder / key).unlink()


def spent(built: Experiment) -> float:
    from flows.ledger.account import Account  # noqa: PLC0415 - as in conftest

    return Account.of(built.load()).statement(exact=True).spent.epsilon


@pytest.mark.release
def test_a_ledger_that_was_lost_is_put_back_and_nights_go_on(
    experiment: Builder, command: Command, tmp_path: Path
) -> None:
    built, folder = an_experiment(experiment), tmp_path / "backup"
    built.run("a")
    done = command("backup", built.config, "-o", folder, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["path"], told["experiments"], told["n_registers"]) == (str(folder), ["trial"], 1)
    assert told["keys"] == ["ledger.key_file", "quarantine.directory"]
    assert (told["lost"], told["unnamed"]) == ([], [])
    built.run("b")
    lose(built)

    refused = command("restore", folder, built.config)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--complete: nothing was changed yet" in refused.stderr
    assert str(built.releases) in refused.stderr
    assert not (built.folder / "ledger.sqlite").exists()
    done = command("restore", folder, built.config, "--complete", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["status"] == "restored"
    assert told["charged_to_everybody"] == ["trial.b.r1"]
    assert (told["published"], told["lost"], told["without_file"]) == ([], [], [])
    assert told["populations"] == [
        {"population": "trial", "spent_epsilon": 4.0, "spent_delta": 0.0}
    ]
    assert {one["status"] for one in told["keys"]} == {"restored"}
    assert "everybody in its population pays for it" in done.stderr
    for one in told["keys"]:
        assert mode(Path(one["path"])) == 0o600
    assert mode(built.folder / "ledger.sqlite") == 0o600

    assert built.run("a").status == "unchanged"  # its rows are known again
    assert built.run("c").status == "published"
    assert spent(built) == 6.0
    again = clusterdp.restore(folder, built.config, complete=True)
    assert again.as_json()["status"] == "there already"
    assert spent(built) == 6.0


@pytest.mark.release
def test_without_a_backup_what_is_there_is_charged_when_that_is_asked_for(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    built = an_experiment(experiment)
    built.run("a")
    lose(built)
    assert run(["restore", str(built.config)]) == 2
    assert "CONFIG: missing" in capsys.readouterr().err
    asked = ["restore", "--without-backup", str(built.config), "--lost", "trial.b.r1"]
    assert run(asked) == 2
    assert "--complete: nothing was changed yet" in capsys.readouterr().err
    assert not (built.folder / "ledger.sqlite").exists()
    assert run([*asked, "--complete", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["charged_to_everybody"], told["lost"]) == (["trial.a.r1"], ["trial.b.r1"])
    assert (told["made_at"], spent(built)) == (None, 4.0)
    assert run(["restore", "--without-backup", str(built.config), "--complete"]) == 0
    assert "charged for what it did not know, 0 of the files" in capsys.readouterr().out
    assert built.run("c").status == "published"
    (built.releases / "trial.b.r1.duckdb").write_bytes(b"found again")  # by whom?
    assert run(["status", str(built.config)]) == 4


@pytest.mark.release
def test_people_read_what_was_copied_and_put_back(
    experiment: Builder, command: Command, tmp_path: Path
) -> None:
    built, folder = an_experiment(experiment), tmp_path / "backup"
    built.run("a")
    done = command("backup", built.config, "-o", folder)
    assert "lists of units  1" in done.stdout
    lose(built)
    done = command("restore", folder, built.config, "--complete")
    assert "spent by trial" in done.stdout
    assert "epsilon 2" in done.stdout
    done = command("restore", folder, built.config, "--complete")
    assert "was there already, with all charges of the backup" in done.stdout
    assert command("backup", built.config, "-o", folder).returncode == 2


@pytest.mark.release
def test_days_that_were_due_since_are_named_before_anything_is_put_back(
    experiment: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["2026-11-18", "2026-11-19", "2026-11-20"]
    logs = {f"{day}.parquet": a_log(160) for day in names}
    built = experiment(
        logs,
        source={"path": "{period}.parquet"},
        privacy=LIGHT,
        schedule={"since": names[0]},
    )
    now = datetime(2026, 11, 21, 3, tzinfo=UTC)
    monkeypatch.setattr("flows.runtime.clock.now", lambda: now)
    built.run(names[0])
    clusterdp.backup(built.config, output=tmp_path / "backup")
    built.run(names[1])
    built.run(names[2])
    lose(built)
    (built.releases / f"trial.{names[1]}.r1.duckdb").unlink()
    lost = f"trial.{names[1]}.r1"
    with pytest.raises(InputError, match=f"SHA256SUMS: names 'trial.{names[1]}.r1.duckdb'"):
        clusterdp.restore(tmp_path / "backup", built.config)
    (built.releases / "SHA256SUMS").unlink()
    with pytest.raises(ConfigError, match=f"Due, and neither charged nor there: {lost}. Name"):
        clusterdp.restore(tmp_path / "backup", built.config)
    found = clusterdp.restore(tmp_path / "backup", built.config, lost=[lost], complete=True)
    assert found.as_json()["lost"] == [lost]
    assert spent(built) == 6.0
    (state,) = {one.state for one in clusterdp.status(built.config).experiments[0].periods[1:2]}
    assert state == "lost"  # and is not drawn anew without a person


@pytest.mark.release
def test_no_ledger_is_put_back_while_a_run_is_at_work(experiment: Builder, tmp_path: Path) -> None:
    built = an_experiment(experiment)
    built.run("a")
    clusterdp.backup(built.config, output=tmp_path / "backup")
    lose(built)
    with workplace(built.releases), pytest.raises(ConflictError, match="is at work"):
        clusterdp.restore(tmp_path / "backup", built.config, complete=True)
    assert not (built.folder / "ledger.sqlite").exists()


# keys


@pytest.mark.release
def test_a_key_that_is_there_is_never_overwritten(experiment: Builder, tmp_path: Path) -> None:
    built = an_experiment(experiment)
    built.run("a")
    clusterdp.backup(built.config, output=tmp_path / "backup")
    lose(built)
    (built.folder / "account.key").write_bytes(b"another" * 4 + b"key!")
    with pytest.raises(ConflictError, match=r"ledger\.key_file.*account\.key is there"):
        clusterdp.restore(tmp_path / "backup", built.config, complete=True)
    assert (built.folder / "account.key").read_bytes() == b"another" * 4 + b"key!"
    assert not (built.folder / "ledger.sqlite").exists()
    assert not (built.folder / "quarantine" / "digest.key").exists()


@pytest.mark.release
def test_a_backup_without_the_key_of_its_accounts_is_none(
    experiment: Builder, tmp_path: Path
) -> None:
    built = an_experiment(experiment)
    built.run("a")
    key = built.folder / "account.key"
    key.write_bytes(b"x" * 32)
    with pytest.raises(ConfigError, match=r"ledger\.key_file: .* begun with is another"):
        clusterdp.backup(built.config, output=tmp_path / "backup")
    key.unlink()
    with pytest.raises(ConfigError, match=r"ledger\.key_file: .* begun with is missing"):
        clusterdp.backup(built.config, output=tmp_path / "backup")
    assert [path.name for path in tmp_path.iterdir()] == ["experiment"]


@pytest.mark.release
def test_keys_that_a_configuration_names_go_where_the_new_one_says(
    experiment: Builder, tmp_path: Path
) -> None:
    publish = {"unit_id": "keyed-hash", "key_file": "ids.key"}
    built = an_experiment(experiment, publish=publish)
    with pytest.raises(ConfigError, match=r"publish\.key_file"):
        built.run("a")
    (built.folder / "ids.key").write_text("0123456789abcdef" * 2)
    built.run("a")
    clusterdp.backup(built.config, output=tmp_path / "backup")

    elsewhere = build_experiment(
        tmp_path / "elsewhere",
        a_log(160),
        privacy=LIGHT,
        publish={"unit_id": "keyed-hash", "key_file": "keys/of-units"},
        ledger={"url": "sqlite:///kept/new.sqlite", "key_file": "keys/of-accounts"},
    )
    clusterdp.restore(tmp_path / "backup", elsewhere.config, complete=True)
    there = elsewhere.folder
    assert (there / "keys" / "of-units").read_text() == "0123456789abcdef" * 2
    assert (there / "keys" / "of-accounts").read_bytes() == (
        built.folder / "account.key"
    ).read_bytes()
    assert mode(there / "keys") == 0o700
    assert elsewhere.run("b").statement.spent.epsilon == 4.0


@pytest.mark.release
def test_several_experiments_on_one_ledger_go_together(tmp_path: Path, command: Command) -> None:
    shared = {"ledger": {"url": f"sqlite:///{tmp_path}/ledger.sqlite"}}
    one = build_experiment(tmp_path / "one", a_log(160), privacy=LIGHT, **shared)
    two = build_experiment(tmp_path / "two", a_log(160), privacy=LIGHT, **shared)
    two.config.write_text(two.config.read_text().replace('"trial"', '"winter"', 1))
    one.run("a")
    two.run("a")
    done = command("backup", one.config, "-o", tmp_path / "half")
    assert "the ledger has charges of winter, whose CONFIG was not named" in done.stderr
    clusterdp.backup([one.config, two.config], output=tmp_path / "backup")
    (tmp_path / "ledger.sqlite").unlink()
    told = command("restore", tmp_path / "backup", one.config)
    assert "the backup has charges of 'winter', whose CONFIG was not named" in told.stderr
    result = clusterdp.restore(tmp_path / "backup", [one.config, two.config], complete=True)
    assert {name: each.epsilon for name, each in result.spent.items()} == {
        "trial": 2.0,
        "winter": 2.0,
    }

    apart = build_experiment(tmp_path / "apart", a_log(160), privacy=LIGHT)
    with pytest.raises(ConfigError, match="several ledgers; take a backup of each"):
        clusterdp.backup([one.config, apart.config], output=tmp_path / "another")
    with pytest.raises(ConfigError, match="several ledgers; restore each"):
        clusterdp.restore(tmp_path / "backup", [one.config, apart.config])


def test_there_is_nothing_to_copy_before_the_first_release(
    experiment: Builder, tmp_path: Path
) -> None:
    built = an_experiment(experiment)
    with pytest.raises(InputError, match="there is none yet"):
        clusterdp.backup(built.config, output=tmp_path / "backup")
    assert [path.name for path in tmp_path.iterdir()] == ["experiment"]


@pytest.mark.parametrize("given", ["trial", "trial.a", "trial.a.r0", "../trial.a.r1"])
def test_what_is_no_release_id_cannot_be_lost(
    experiment: Builder, tmp_path: Path, given: str
) -> None:
    built = an_experiment(experiment)
    with pytest.raises(InputError, match="no such folder"):
        clusterdp.restore(tmp_path / "none", built.config)
    built.run("a")
    clusterdp.backup(built.config, output=tmp_path / "backup")
    with pytest.raises(ConfigError, match="is no release id"):
        clusterdp.restore(tmp_path / "backup", built.config, lost=[given])
