"""A run that makes an effect model: its file, its charge, bad input, and that no row shows."""

import json
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

import numpy as np
import polars as pl
import pytest

from flows.cli.main import run
from flows.config.load import load
from flows.effects.released.model_file import read_model
from flows.ledger.account import Account
from flows.operate.restore import restore
from flows.operate.series.estimates import estimate_series
from privatizers.effects.models.moments import stand_in
from privatizers.effects.models.rows import EffectRows
from schemas.effects.model import EffectDesign, NoisySums
from schemas.errors import (
    BudgetError,
    ClusterdpError,
    ConfigError,
    ConflictError,
    InputError,
    StepError,
)
from tests.boundary.canary import Canary, Explosive, Secret, leaks_into, marked
from tests.conftest import Builder, write_content
from tests.effect_logs import AtHome, Campaign, campaign, people

__all__ = ["campaign"]  # a fixture

pytestmark = pytest.mark.release

ROOT = Path(__file__).parents[3]
DRAW = "flows.effects.raw.draw.meta.draw_sums"


# what a run makes


def test_a_run_says_what_it_made(campaign: Campaign) -> None:
    built = campaign(privacy="budget_epsilon = 10\nbudget_delta = 1e-5")
    result = built.run("2026-11-20")
    path = built.models / "mail+cate.2026-11-20.r1.json"
    assert (result.path, result.status) == (path, "published")
    assert stat.S_IMODE(path.stat().st_mode) == 0o444
    read = read_model(path)
    assert read.head == result.file.head
    assert read.model.ate == result.file.model.ate
    document = result.as_json()
    json.dumps(document, allow_nan=False)
    assert set(document) >= {
        "learner", "epsilon", "delta", "neighbours", "n_rows", "features", "model_path",
        "propensity", "degree", "ate", "subgroups", "importance",
    }  # fmt: skip
    assert (document["n_rows"], document["features"]) == (2_000, ["age", "sex"])
    assert (document["learner"], document["propensity"]) == ("moments", "value")
    assert document["ledger"]["spent_epsilon"] == 4.0
    assert built.paid == 4.0
    assert built.files == [
        "cate.toml",
        "ledger.sqlite",
        "log.parquet",
        "quarantine/digest.key",
        "quarantine/mail+cate/mail+cate.2026-11-20.r1.parquet",
        "releases/mail/mail+cate.2026-11-20.r1.json",
    ]


def test_it_finds_who_benefits(campaign: Campaign) -> None:
    """At an ε without noise to speak of: 0 at 20 years, 1 at 60, and no effect of the sex."""
    model = campaign(people(20_000), epsilon=200.0).run().file.model
    assert model.ate is not None
    assert model.ate.estimate == pytest.approx(0.5, abs=0.05)
    found = {each.level: each.effect for each in model.subgroups if each.name == "age group"}
    assert [*found] == ["under 40", "40 and more"]
    young, old = (each.estimate for each in found.values() if each is not None)
    assert young == pytest.approx(0.24, abs=0.06)
    assert old == pytest.approx(0.75, abs=0.06)
    assert model.importance[0][0] == "age"
    assert model.importance[1][1] < 0.01 * model.importance[0][1]


@pytest.mark.parametrize("propensity", ['column = "p"\nbound = 0.1', "learn = true"])
@pytest.mark.parametrize("neighbours", ["row", "outcome"])
def test_every_kind_of_model(campaign: Campaign, propensity: str, neighbours: str) -> None:
    log = people().with_columns(p=pl.lit(0.5))
    built = campaign(log, propensity=propensity, privacy=f'neighbours = "{neighbours}"')
    document = built.run().as_json()
    is_learnt = "learn" in propensity
    assert (document["ate"] is None) == is_learnt
    assert bool(document["no_intervals"]) == is_learnt
    assert read_model(Path(document["model_path"])).model.design.neighbours == neighbours


# one draw a model


def test_the_same_again_is_unchanged_and_free(campaign: Campaign) -> None:
    built = campaign()
    first = built.run()
    content, before = first.path.read_bytes(), built.files
    write_content(built.folder / "log.parquet", people().reverse())
    again = built.run()
    assert (first.status, again.status) == ("published", "unchanged")
    assert (again.path.read_bytes(), built.files) == (content, before)
    assert built.paid == 4.0
    assert again.as_json() == first.as_json() | {"status": "unchanged"}


def other_rows(built: AtHome) -> None:
    write_content(built.folder / "log.parquet", people().with_columns(age=pl.lit(33.0)))


def other_settings(built: AtHome) -> None:
    built.edit("edges = [40]", "edges = [41]")


@pytest.mark.parametrize("change", [other_rows, other_settings])
def test_another_draw_has_to_be_asked_for(
    campaign: Campaign, change: Callable[[AtHome], None]
) -> None:
    built = campaign()
    built.run()
    change(built)
    with pytest.raises(ConflictError, match=r"mail\+cate.once.r1.*--revise"):
        built.run()
    assert built.paid == 4.0
    assert built.run(revise=True).path.name == "mail+cate.once.r2.json"
    assert built.paid == 8.0


def test_who_cannot_pay_is_refused_before_the_log_is_read(campaign: Campaign) -> None:
    built = campaign("not a log", privacy="budget_epsilon = 3")
    with pytest.raises(BudgetError, match=r"refused: this release costs epsilon 4, and of the 3"):
        built.run()
    assert not built.models.exists()


def test_releases_and_models_of_an_experiment_share_budget_and_folder(
    experiment: Builder, campaign: Campaign
) -> None:
    """Everybody pays for a model, and what reads releases passes it over."""
    trial = experiment(privacy={"epsilon": 2.0, "budget_epsilon": 7.0, "account": "population"})
    released = trial.run("2026-11-20")
    built = campaign()
    folder = trial.folder
    built.edit('experiment = "mail"', 'experiment = "trial"')
    built.edit("epsilon = 4.0", "epsilon = 4.0\nbudget_epsilon = 7\nbudget_delta = 1e-3")
    write_content(folder / "people.parquet", people())
    built.edit("log.parquet", "people.parquet")
    config = folder / "cate.toml"
    config.write_bytes(built.config.read_bytes())
    model = AtHome(config).run("2026-11-20")
    assert model.path.parent == released.path.parent
    assert model.statement.spent.epsilon == 6.0
    entries = Account.of(load(trial.config)).statement().entries
    assert [entry.as_json()["kind"] for entry in entries] == ["release", "cate"]
    with pytest.raises(BudgetError, match="and of the 7 that population 'trial' may pay 1 is left"):
        trial.run("2026-11-21")
    assert AtHome(config).run("2026-11-20").status == "unchanged"
    assert trial.run("2026-11-20").status == "unchanged"
    found = estimate_series([released.path.parent], 0.95)
    assert [one.night.manifest.period for one in found.periods] == ["2026-11-20"]


def test_a_model_the_ledger_does_not_know_is_charged_when_asked(campaign: Campaign) -> None:
    built = campaign()
    built.run("one")
    (built.folder / "ledger.sqlite").unlink()
    with pytest.raises(ConflictError, match="the ledger knows nothing of this file"):
        built.run("two")
    restore(None, [built.config], complete=True)
    built.run("two")
    assert built.paid == 8.0


# what goes wrong


def fails(*_: object) -> NoReturn:
    raise ClusterdpError("no more")


def test_what_can_fail_is_tried_before_the_draw(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = campaign()
    drawn: list[object] = []
    monkeypatch.setattr(DRAW, lambda *given: drawn.append(given))
    monkeypatch.setattr("flows.effects.released.model_file.to_text", fails)
    with pytest.raises(ClusterdpError, match="no more"):
        built.run()
    assert drawn == []
    assert built.paid == 0.0
    assert not built.models.exists()


def test_a_draw_that_fails_gives_the_charge_back(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = campaign()
    with monkeypatch.context() as failing:
        failing.setattr(DRAW, fails)
        with pytest.raises(ClusterdpError, match="no more"):
            built.run()
    assert built.paid == 0.0
    assert built.run().path.name == "mail+cate.once.r1.json"


@pytest.mark.parametrize(
    ("log", "file", "message"),
    [
        ("id,arm\nx,none\n", "log.csv", "there is no column 'spend'"),
        ("id,arm,spend,age,sex\n", "log.csv", "the log is empty"),
        ("a" * 100, "log.parquet", "cannot be read as Parquet"),
    ],
)
def test_a_log_that_cannot_be_read_costs_nothing(
    campaign: Campaign, log: str, file: str, message: str
) -> None:
    built = campaign(log, file)
    with pytest.raises(InputError, match=message):
        built.run()
    assert built.paid == 0.0
    assert not built.models.exists()


KILLED = """
import os, signal, sys
from unittest.mock import patch
from flows.effects.cate import fit_period

def dies(*_):
    os.kill(os.getpid(), signal.SIGKILL)

with patch("flows.effects.raw.draw.meta.draw_sums", dies):
    fit_period(sys.argv[1])
"""


@pytest.mark.process
def test_a_run_that_is_killed_leaves_nothing_to_the_next(campaign: Campaign) -> None:
    built = campaign(people(9_000), more='[run]\nmemory_limit = "400KB"')
    done = subprocess.run([sys.executable, "-c", KILLED, built.config], check=False, cwd=ROOT)
    assert done.returncode == -9
    rows = list(built.folder.rglob("*.arrow"))
    assert rows
    for path in rows:
        folder = path.parent
        assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(folder.stat().st_mode)) == (
            0o600,
            0o700,
        )
    assert built.paid == 4.0  # nobody knows yet that it will never be published
    assert built.run().path.name == "mail+cate.once.r1.json"
    assert built.paid == 4.0
    assert built.files == [
        "cate.toml",
        "ledger.sqlite",
        "log.parquet",
        "quarantine/digest.key",
        "quarantine/mail+cate/mail+cate.once.r1.parquet",
        "releases/mail/mail+cate.once.r1.json",
    ]


# nothing but noisy sums shows


def no_sums(
    _learner: str, design: EffectDesign, n_rows: int, batches: Callable[[], Iterable[EffectRows]]
) -> tuple[NoisySums, ...]:
    """Read all rows as a draw does, and draw nothing of them."""
    for _ in range(4):
        assert sum(len(batch.complete) for batch in batches()) == n_rows
    return stand_in(design, n_rows)


def everything_shown(
    built: AtHome, arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the command, but for times and places."""
    code = run(["cate", str(built.config), *arguments])
    shown = capfd.readouterr()
    out, err = (
        re.sub(r"\d+\.\d\d s", "", text.replace(str(built.folder), "FOLDER"))
        for text in (shown.out, shown.err)
    )
    return code, out, err


ROWS: dict[str, dict[str, object]] = {
    "another arm": {"arm": "none"},
    "no arm": {"arm": None},
    "a third arm": {"arm": "call"},
    "another feature": {"age": 59.0, "sex": "m"},
    "no feature": {"age": None},
    "an unknown level": {"sex": "z"},
    "another outcome": {"spend": 2.5},
    "an outcome out of bounds": {"spend": 1e300},
    "nothing": {"arm": None, "age": None, "sex": None, "spend": None},
}


def with_row(change: dict[str, object], rows: pl.Expr) -> pl.DataFrame:
    """The log with other values in some rows."""
    return people(400).with_columns(
        pl.when(rows).then(pl.lit(value)).otherwise(name).alias(name)
        for name, value in change.items()
    )


@pytest.mark.parametrize("arguments", [[], ["--json"]], ids=["people", "programs"])
@pytest.mark.parametrize("file", ["log.parquet", "log.csv", "log.jsonl"])
@pytest.mark.parametrize("rows", ["one", "all"])
def test_what_is_shown_does_not_depend_on_rows(
    campaign: Campaign,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    arguments: list[str],
    file: str,
    rows: str,
) -> None:
    """Two logs that differ in rows' arms, features and outcomes, where nothing is drawn of them."""
    monkeypatch.setattr(DRAW, no_sums)
    caplog.set_level("DEBUG")
    which = pl.int_range(400) == 7 if rows == "one" else pl.lit(value=True)
    logs = {"as it is": people(400)} | {
        name: with_row(change, which) for name, change in ROWS.items()
    }
    found = {}
    for number, (name, log) in enumerate(logs.items()):
        caplog.clear()
        built = campaign(log, file, name=f"home{number}")
        shown = everything_shown(built, arguments, capfd)
        # A thread of Prefect's, which a flow of another test left, tells by the clock what it sent.
        own = re.sub(r"(?m)^DEBUG +prefect\.events\.clients:.*\n", "", caplog.text)
        logged = re.sub(r"\d+\.\d\d s|home\d+", "", own)
        found[name] = (
            *shown,
            logged,
            [path.replace(built.folder.name, "") for path in built.files],
        )
    usual = found["as it is"]
    assert usual[0] == 0
    differing = {
        name: [(one, other) for one, other in zip(usual, shown, strict=True) if one != other]
        for name, shown in found.items()
        if shown != usual
    }
    assert differing == {}


def test_rows_with_faults_do_not_change_n(campaign: Campaign) -> None:
    whole = campaign(people(500)).run()
    log = people(500).with_columns(
        arm=pl.when(pl.int_range(500) < 250).then(None).otherwise("arm"),
        age=pl.when(pl.int_range(500) % 3 == 0).then(None).otherwise("age"),
    )
    faulty = campaign(log, name="faulty").run()
    assert faulty.as_json()["n_rows"] == whole.as_json()["n_rows"] == 500
    nobody = campaign(people(500).with_columns(arm=pl.lit("call")), name="nobody").run()
    assert nobody.as_json()["n_rows"] == 500
    constant = campaign(people(500).with_columns(age=pl.lit(30.0), sex=pl.lit("f")), name="same")
    assert constant.run().status == "published"


def test_rows_with_faults_are_kept_for_the_operator_alone(campaign: Campaign) -> None:
    """A person of a third arm has none."""
    log = people(400).with_columns(
        pl.when(pl.col("id") == "p000007")
        .then(pl.lit(""))
        .when(pl.col("id") == "p000008")
        .then(pl.lit("call"))
        .otherwise("arm")
        .alias("arm"),
        pl.when(pl.col("id").is_in(["p000008", "p000009"]))
        .then(None)
        .otherwise("age")
        .alias("age"),
        pl.when(pl.col("id") == "p000011").then(pl.lit("?")).otherwise("sex").alias("sex"),
    )
    built = campaign(log)
    built.run()
    path = built.folder / "quarantine" / "mail+cate" / "mail+cate.once.r1.parquet"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    kept = pl.read_parquet(path)
    assert kept.columns == ["rule", "unit", "source_file", "source_row"]
    assert kept.select("rule", "unit").rows() == [
        ("arm_missing", "p000007"),
        ("feature_missing", "p000009"),
        ("feature_missing", "p000011"),
    ]
    sound = campaign(people(400), name="sound")
    sound.run()
    same = sound.folder / "quarantine" / "mail+cate" / "mail+cate.once.r1.parquet"
    assert pl.read_parquet(same).height == 0


def test_a_run_does_not_fail_by_what_its_faulty_rows_take(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("flows.raw.quarantine._write", full)
    log = people(400).with_columns(arm=pl.lit("other"))
    assert campaign(log).run().status == "published"


def test_of_many_faulty_rows_the_first_are_kept(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.effects.raw.units._MOST_FAULTY", 7)
    built = campaign(people(400).with_columns(arm=pl.lit("")))
    built.run()
    path = built.folder / "quarantine" / "mail+cate" / "mail+cate.once.r1.parquet"
    assert pl.read_parquet(path)["source_row"].to_list() == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("learner", ["dr", "r", "s"])
def test_learners_of_algorithm_1(campaign: Campaign, learner: str) -> None:
    built = campaign(people(3_000), privacy=f'learner = "{learner}"', epsilon=50.0)
    built.edit('[[subgroups]]\nname = "age group"\nfeature = "age"\nedges = [40]\n', "")
    result = built.run()
    document = result.as_json()
    assert (document["learner"], document["ate"]) == (learner, None)
    assert "Algorithm 1" in document["no_intervals"]
    again = read_model(result.path)
    assert (again.model.coefficients == result.file.model.coefficients).all()
    assert again.model.predict(np.array([[0.5, 0.0]]))[1] is None
    assert built.run().status == "unchanged"


def test_learners_of_algorithm_1_have_no_subgroups(campaign: Campaign) -> None:
    with pytest.raises(ConfigError, match=r"^subgroups: "):
        campaign(privacy='learner = "dr"').run()


# canaries


def planted(campaign: Campaign, file: str) -> tuple[AtHome, list[Secret]]:
    """An outcome, an arm, a number and a level that nobody else has, in two rows that count."""
    outcome, age = Canary.hatch("outcome"), Canary.hatch("covariate")
    arm, level, unit = Canary.hatch("outcome"), Canary.hatch("covariate"), Canary.hatch("unit")
    first, second = pl.int_range(2_000) == 3, pl.int_range(2_000) == 4
    log = people().with_columns(
        spend=pl.when(first).then(outcome.value).otherwise("spend"),
        age=pl.when(first).then(age.value).otherwise("age"),
        arm=pl.when(second).then(pl.lit(arm.word)).otherwise("arm"),
        sex=pl.when(second).then(pl.lit(level.word)).otherwise("sex"),
        id=pl.when(first).then(pl.lit(unit.word)).otherwise("id"),
    )
    built = campaign(log, file, name=f"home-{file}")
    built.edit("high = 3.0", "high = 1e6")
    built.edit("high = 60", "high = 1e6")
    secrets = [
        outcome.secret("outcome"),
        age.secret("number"),
        marked("arm", arm.word.encode()),
        marked("level", level.word.encode()),
        unit.secret("unit"),
    ]
    return built, secrets


def leaks(built: AtHome, secrets: list[Secret], *heard: str) -> list[str]:
    for log in built.folder.glob("log.*"):
        log.unlink()
    found = leaks_into(built.folder, *secrets)
    text = "\n".join(heard)
    return found + [f"{secret.name} was heard" for secret in secrets if secret.is_in(text)]


@pytest.mark.parametrize("file", ["log.parquet", "log.csv", "log.jsonl"])
def test_nothing_of_a_row_is_left_anywhere(
    campaign: Campaign,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    file: str,
) -> None:
    caplog.set_level("DEBUG")
    built, secrets = planted(campaign, file)
    assert run(["cate", str(built.config)]) == 0
    assert run(["cate", str(built.config), "--json"]) == 0
    assert leaks(built, secrets, *capfd.readouterr(), caplog.text) == []


IN_HAND = {
    "flows.effects.raw.columns.EffectColumns._outcomes": {"outcome"},
    "flows.effects.raw.columns._feature": {"number"},
    "flows.effects.raw.columns.EffectColumns.mapped": {"outcome", "number", "arm", "unit"},
    "flows.effects.raw.units._Ordering.add": {"unit"},
    "flows.effects.raw.draw.digested": {"unit"},
}


@pytest.mark.parametrize("target", IN_HAND)
@pytest.mark.parametrize("file", ["log.parquet", "log.csv"])
def test_a_private_step_that_fails_tells_nothing(
    campaign: Campaign,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    target: str,
    file: str,
) -> None:
    def fail(row: str) -> NoReturn:
        raise ValueError(row)

    caplog.set_level("DEBUG")
    built, secrets = planted(campaign, file)
    explosive = Explosive(fail)
    with monkeypatch.context() as failing:
        failing.setattr(target, explosive)
        with pytest.raises(StepError) as caught:
            built.run()
    at_stake = {secret.name for secret in secrets if secret.is_in(explosive.said)}
    if "digested" not in target:  # which is handed the rows unread
        assert at_stake >= IN_HAND[target]
    error = caught.value
    assert (error.__cause__, error.__context__) == (None, None)
    assert built.paid == 0.0
    assert leaks(built, secrets, str(error), *capfd.readouterr(), caplog.text) == []


# as a Prefect flow


@pytest.mark.prefect
def test_nothing_of_a_row_is_in_prefect(
    campaign: Campaign, prefect_harness: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from flows.deployed import cate  # noqa: PLC0415 - Prefect reads its surroundings then

    built, secrets = planted(campaign, "log.csv")
    result = cate(str(built.config))
    assert result.status == "published"
    assert cate.name == "clusterdp-cate"
    assert leaks_into(prefect_harness, *secrets) == []
    assert leaks(built, secrets, *capfd.readouterr(), json.dumps(result.as_json())) == []
