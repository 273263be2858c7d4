"""Everyone once, and units that cannot pay: what is set aside by accounts, night after night."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from flows.raw.charge import BUDGET_SPENT, RELEASED_BEFORE
from flows.release import ReleaseResult
from schemas.errors import BudgetError, ConfigError, InputError
from tests.conftest import Builder, Experiment, Section, released

ONCE: Section = {"returning": "set_aside", "budget_epsilon": 2.0}


def log_of(people: Iterable[int], *, kind: type = str, swapped: bool = False) -> pl.DataFrame:
    """A log of these people; every other one is in one arm, or with ``swapped`` in the other."""
    named = list(people)
    return pl.DataFrame(
        {
            "customer": [kind(one) for one in named],
            "variant": [("none", "mail")[(one + swapped) % 2] for one in named],
            "region": [("east", "west")[one // 2 % 2] for one in named],
            "clicks": [float(one % 3) for one in named],
        }
    )


def nights(experiment: Builder, logs: dict[str, pl.DataFrame], **privacy: object) -> Experiment:
    files = {f"{name}.parquet": log for name, log in logs.items()}
    return experiment(files, source={"path": "{period}.parquet"}, privacy=privacy)


def units_of(result: ReleaseResult) -> set[int]:
    return {int(one) for one in released(result.path, "units")["unit_id"].to_list()}


@pytest.mark.usefixtures("way")
def test_everyone_is_released_on_the_night_they_first_appear(experiment: Builder) -> None:
    logs = {
        "n1": log_of(range(60)),
        "n2": log_of(range(40, 100)),
        "n3": log_of(range(80, 130), swapped=True),
    }
    built = nights(experiment, logs, **ONCE)
    results = [built.run(name) for name in logs]
    assert [units_of(one) for one in results] == [
        set(range(60)),
        set(range(60, 100)),
        set(range(100, 130)),
    ]
    rosters = [one.roster for one in results]
    assert [one.quarantined_by_rule for one in rosters] == [
        {},
        {RELEASED_BEFORE: 20},
        {RELEASED_BEFORE: 20},
    ]
    assert [(one.n_read, one.n_faulty) for one in rosters] == [(60, 0), (60, 0), (50, 0)]
    assert [(one.n_returning, one.n_arm_changed) for one in rosters] == [(0, 0), (20, 0), (20, 20)]
    assert all(one.statement.spent.epsilon == 2.0 for one in results)
    (row,) = released(results[2].path, "release").to_dicts()
    assert {
        name: row[name]
        for name in ("n_units", "n_set_aside", "n_returning", "n_arm_changed", "returning")
    } == {
        "n_units": 30,
        "n_set_aside": 20,
        "n_returning": 20,
        "n_arm_changed": 20,
        "returning": "set_aside",
    }
    for name, result in zip(logs, results, strict=True):
        again = built.run(name)
        assert (again.status, again.path) == ("unchanged", result.path)


def test_a_revision_has_the_people_of_its_period_again(experiment: Builder) -> None:
    logs = {"n1": log_of(range(60)), "n2": log_of(range(40, 100))}
    built = nights(experiment, logs, **{**ONCE, "budget_epsilon": 4.0})
    built.run("n1")
    built.run("n2")
    revised = built.run("n1", revise=True)
    assert units_of(revised) == set(range(60))
    assert revised.roster.n_returning == 0
    assert revised.statement.spent.epsilon == 4.0
    with pytest.raises(BudgetError, match="60 of its 60 units cannot pay"):
        built.run("n1", revise=True)


def test_units_that_cannot_pay_are_set_aside(experiment: Builder) -> None:
    logs = {"n1": log_of(range(60)), "n2": log_of(range(40, 100)), "n3": log_of(range(30, 70))}
    built = nights(experiment, logs, spent="set_aside", budget_epsilon=2.0)
    built.run("n1")
    second = built.run("n2")
    assert units_of(second) == set(range(60, 100))
    assert second.roster.quarantined_by_rule == {BUDGET_SPENT: 20}
    assert any("20 unit(s) that came back were set aside" in one for one in second.warnings)
    with pytest.raises(InputError, match="no row is left: all 40 were set aside"):
        built.run("n3")


def test_arms_that_differ_in_who_comes_back_are_told(experiment: Builder) -> None:
    logs = {"n1": log_of(range(200)), "n2": log_of([*range(0, 200, 2), *range(200, 400)])}
    built = nights(experiment, logs, spent="set_aside", budget_epsilon=2.0)
    built.run("n1")
    assert any("the arms differ in it" in one for one in built.run("n2").warnings)


def test_a_number_and_its_digits_are_one_unit_whatever_id_is_released(
    experiment: Builder, tmp_path: Path
) -> None:
    logs = {"n1": log_of(range(60), kind=int), "n2": log_of(range(40, 100))}
    built = nights(experiment, logs, **ONCE)
    built.run("n1")
    (built.folder / "ids.key").write_bytes(b"k" * 32)
    (built.folder / "ids.key").chmod(0o600)
    hashed = (
        built.config.read_text() + '\n[publish]\nunit_id = "keyed-hash"\nkey_file = "ids.key"\n'
    )
    built.config.write_text(hashed)
    result = built.run("n2")
    assert result.roster.quarantined_by_rule == {RELEASED_BEFORE: 20}


def test_rows_on_disk_are_set_aside_alike(experiment: Builder) -> None:
    logs = {"n1": log_of(range(3000)), "n2": log_of(range(1500, 5000))}
    files = {f"{name}.parquet": log for name, log in logs.items()}
    built = experiment(
        files,
        source={"path": "{period}.parquet"},
        privacy=ONCE,
        run={"memory_limit": "60KB"},
    )
    built.run("n1")
    assert units_of(built.run("n2")) == set(range(3000, 5000))


def test_a_dry_run_says_what_would_be_set_aside_and_changes_nothing(experiment: Builder) -> None:
    logs = {"n1": log_of(range(60)), "n2": log_of(range(40, 100))}
    built = nights(experiment, logs, **ONCE)
    assert built.check("n1").roster.quarantined_by_rule == {}
    built.run("n1")
    before = built.entries
    would = built.check("n2")
    assert would.roster.quarantined_by_rule == {RELEASED_BEFORE: 20}
    assert built.entries == before
    assert replace(would.roster, notes=()) == replace(built.run("n2").roster, notes=())


def test_a_lost_register_refuses_to_set_anybody_aside(experiment: Builder) -> None:
    logs = {"n1": log_of(range(60)), "n2": log_of(range(40, 100))}
    built = nights(experiment, logs, **ONCE)
    built.run("n1")
    (register,) = (built.folder / "ledger.sqlite.accounts").glob("*-1")
    content = register.read_bytes()
    register.unlink()
    before = built.entries
    with pytest.raises(InputError, match=r"trial\.n1\.r1.*nobody can tell who was released before"):
        built.run("n2")
    assert [one for one in built.entries if one != "x"] == list(before)
    register.write_bytes(content)
    assert units_of(built.run("n2")) == set(range(60, 100))


def test_a_lost_key_refuses(experiment: Builder) -> None:
    logs = {"n1": log_of(range(60)), "n2": log_of(range(40, 100))}
    built = nights(experiment, logs)
    built.run("n1")
    key = built.folder / "account.key"
    content = key.read_bytes()
    key.unlink()
    with pytest.raises(InputError, match=r"account\.key: there is no such file"):
        built.run("n2")
    assert not key.exists()
    key.write_bytes(content[::-1])
    with pytest.raises(ConfigError, match=r"ledger\.key_file: is not the key"):
        built.run("n2")
    key.write_bytes(content)
    assert built.run("n2").status == "published"


def test_a_missing_budget_is_said_at_every_release(experiment: Builder) -> None:
    logs = {"n1": log_of(range(60)), "n2": log_of(range(60, 100))}
    built = nights(experiment, logs, budget_epsilon=None)
    for name in logs:
        assert any("budget_epsilon is not set" in one for one in built.run(name).warnings)


@pytest.mark.parametrize("key", ["returning", "spent"])
def test_a_population_that_pays_together_sets_nobody_aside(experiment: Builder, key: str) -> None:
    with pytest.raises(ConfigError, match=f"privacy.{key}"):
        experiment(privacy={"account": "population", key: "set_aside"}).load()


def test_releases_that_have_no_list_leave_nobody_known(experiment: Builder) -> None:
    logs = {"n1": log_of(range(60)), "n2": log_of(range(40, 100)), "n3": log_of(range(90, 130))}
    built = nights(experiment, logs, account="population", budget_epsilon=20.0)
    built.run("n1")
    by_everybody = built.config.read_text()
    built.config.write_text(by_everybody.replace('account = "population"', 'account = "unit"'))
    second = built.run("n2")
    assert (second.roster.n_returning, second.roster.n_arm_changed) == (None, None)
    assert second.statement.spent.epsilon == 4.0
    once = by_everybody.replace('account = "population"', 'returning = "set_aside"')
    built.config.write_text(once)
    with pytest.raises(InputError, match=r"no list of the units in 1 .*\(trial\.n1\.r1\)"):
        built.run("n3")
