"""Who benefits, from a release and a table of the analyst's: through the program and Python."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import clusterdp
from flows.cli.main import run
from flows.effects.released.features import MAX_TERMS
from flows.effects.released.from_release import (
    TOO_FEW,
    TOO_WIDE,
    ReleaseEffects,
    effects_from_release,
)
from flows.released.estimates.release import estimate_file
from flows.released.estimates.segments import estimate_segments
from schemas.effects.model import LevelFeature, NumberFeature
from schemas.errors import ClusterdpError, ConfigError, InputError
from tests.conftest import EXACT, SENTINEL, Builder, a_log, build_experiment
from tests.support.tables import written

N = 1_200
LOG = a_log(N, arms=("none", "mail", "post"))
RANDOM = np.random.default_rng(3)
AGE = RANDOM.integers(18, 80, N)
PLAN = RANDOM.choice(["basic", "gold", "silver"], N)
TABLE = pl.DataFrame({"unit_id": LOG["customer"], "age": AGE, "plan": PLAN})
ARMS = {"treatments": ["mail", "post"]}
EVIL = "<img src=x onerror=alert(1)> $x$"

Printed = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release with noise and counts."""
    folder = tmp_path_factory.mktemp("noisy") / "experiment"
    return build_experiment(folder, LOG, arms=ARMS, privacy={"epsilon": 2.0}).run().path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return written(TABLE, tmp_path / "x.csv")


def cells(found: ReleaseEffects, name: str) -> dict[str, float | None]:
    return {
        one.level: None if one.effect is None else one.effect.estimate
        for one in found.subgroups
        if one.name == name
    }


def test_the_average_effect_is_that_of_estimate(path: Path, table: Path) -> None:
    for arm in ("mail", "post"):
        found = effects_from_release(path, table, arm=arm, level=0.9)
        stated = [
            one for one in estimate_file(path, 0.9) if (one.arm, one.estimator) == (arm, "combined")
        ]
        assert found.ate is not None
        assert (found.ate.estimate, found.ate.ci_lower, found.ate.ci_upper) == (
            stated[0].estimate, stated[0].ci_lower, stated[0].ci_upper
        )  # fmt: skip
    assert found.arms == ("mail", "post")
    assert effects_from_release(path, table).arm == "mail"


def test_subgroups_are_segments_by_the_tables_columns(path: Path, table: Path) -> None:
    found = effects_from_release(path, table)
    segments = TABLE.select("unit_id", segment="plan")
    by_plan = {
        one.segment: one.estimate
        for one in estimate_segments(path, Path("x"), frame=segments).estimates
        if (one.arm, one.estimator) == ("mail", "combined")
    }
    assert cells(found, "plan") == by_plan
    edges = next(one.edges for one in found.design.subgroups if one.name == "age")
    assert edges is not None
    assert np.abs(np.array(edges) - np.quantile(AGE, [0.25, 0.5, 0.75])).max() < 0.51
    youngest = TABLE.filter(pl.col("age") < edges[0]).select("unit_id", segment=pl.lit("young"))
    alone = estimate_segments(path, Path("x"), frame=youngest).estimates
    expected = [one.estimate for one in alone if (one.arm, one.estimator) == ("mail", "combined")]
    assert cells(found, "age")[f"under {edges[0]:g}"] == expected[0]


def test_curves_go_through_the_average_that_the_release_tells_best(path: Path, table: Path) -> None:
    found = effects_from_release(path, table)
    assert found.ate is not None
    fit = found.fitted
    average = fit.average @ fit.fitted.mean * found.design.half
    assert average == pytest.approx(found.ate.estimate)
    assert found.n_rows == 2 * N / 3
    assert found.degree == 2


def test_features_are_declared_by_the_table_alone(path: Path, tmp_path: Path) -> None:
    rows = TABLE.with_columns(
        same=pl.lit(1.5), one=pl.lit("x"), seldom=pl.Series(np.arange(N) % 50 == 0).cast(pl.Int8),
        new=pl.Series(AGE > 40),
    ).vstack(
        pl.DataFrame(
            {"unit_id": ["nobody"], "age": [1_000], "plan": ["none of these"], "same": [2.5],
             "one": ["y"], "seldom": [1], "new": [True]},
            schema_overrides={"seldom": pl.Int8, "age": pl.Int64},
        )
    )  # fmt: skip
    found = effects_from_release(path, written(rows, tmp_path / "x.parquet"))
    age, plan, seldom, new = found.design.features
    assert age == NumberFeature("age", float(AGE.min()), float(AGE.max()))
    assert plan == LevelFeature("plan", ("basic", "gold", "silver"))
    assert seldom == NumberFeature("seldom", 0.0, 1.0)
    assert new == LevelFeature("new", ("false", "true"))
    assert list(cells(found, "seldom")) == ["under 1", "1 and more"]
    assert len(cells(found, "plan")) == 3
    assert found.warnings == (
        "1 units of the table are not in the release",
        "column 'same' is not used: it does not vary among the units of the release",
        "column 'one' is not used: it does not vary among the units of the release",
    )


def test_what_is_missing_is_told_and_in_no_subgroup(path: Path, tmp_path: Path) -> None:
    rows = TABLE.with_columns(
        age=pl.when(pl.int_range(N) % 4 > 0).then("age"),
        plan=pl.when(pl.int_range(N) % 5 > 0).then("plan"),
    ).head(900)
    found = effects_from_release(path, written(rows, tmp_path / "x.csv"))
    assert found.warnings == (
        "300 units of the release are not in the table: curves and subgroups are without them, the "
        "average effect is of everybody",
        "225 units lack a value in column 'age': in its curve they count as average, and they are "
        "in none of its subgroups",
        "180 units lack a value in column 'plan': in its curve they count as average, and they are "
        "in none of its subgroups",
    )
    assert found.n_rows == 600
    assert np.isfinite(found.curves[0].effects).all()


def test_a_column_whose_curve_tells_nothing_is_told(path: Path, tmp_path: Path) -> None:
    rows = TABLE.with_columns(age=pl.when(pl.int_range(N) == 0).then(1e6).otherwise("age"))
    found = effects_from_release(path, written(rows, tmp_path / "x.csv"))
    assert [one for one in found.warnings if "small part of its range" in one]
    assert len(cells(found, "age")) >= 2


def test_numbers_that_lie_closer_than_digits_reach_are_parted(path: Path, tmp_path: Path) -> None:
    rows = TABLE.select("unit_id", age=pl.Series(np.where(AGE > 40, 5e-324, 0.0)))
    found = effects_from_release(path, written(rows, tmp_path / "x.csv"))
    assert len(cells(found, "age")) == 2


def test_too_few_units_are_refused_in_words(path: Path, tmp_path: Path) -> None:
    place = np.where(np.arange(N) < 6, "few", np.where(np.arange(N) == 7, "one", "many"))
    rows = TABLE.select("unit_id", place=pl.Series(place))
    found = effects_from_release(path, written(rows, tmp_path / "x.csv"))
    refused = {one.level: one.refused for one in found.subgroups}
    assert refused["many"] is None
    assert refused["one"] == TOO_FEW
    assert refused["few"] in (TOO_FEW, TOO_WIDE)


def test_the_same_question_has_the_same_answer(path: Path, table: Path, tmp_path: Path) -> None:
    shuffled = written(TABLE.sample(fraction=1.0, shuffle=True, seed=1), tmp_path / "y.csv")
    first, second = (effects_from_release(path, file).as_json() for file in (table, shuffled))
    assert first == second


def test_features_can_be_chosen(path: Path, table: Path) -> None:
    found = effects_from_release(path, table, features=["plan"])
    assert [one.name for one in found.design.features] == ["plan"]


MANY = TABLE.select(
    "unit_id", *(pl.Series(f"x{one}", RANDOM.random(N)) for one in range(MAX_TERMS // 2 + 1))
)
WRONG: dict[str, tuple[pl.DataFrame, dict[str, Any], str]] = {
    "arm": (TABLE, {"arm": "none"}, "arm: 'none' is no treatment arm of the release; it has"),
    "column": (TABLE, {"features": ["age", "b"]}, "has no column 'b'; it has age, plan"),
    "level": (TABLE, {"level": 1.0}, "level: 1.0 is not strictly between 0 and 1"),
    "nothing": (TABLE.select("unit_id"), {}, "has no column besides 'unit_id'"),
    "constant": (TABLE.select("unit_id", x=pl.lit(1)), {}, "no column varies among the units"),
    "many": (MANY, {}, f"make {MAX_TERMS + 2} terms of a curve"),
    "texts": (TABLE.select("unit_id", x="unit_id"), {}, "1,200 different texts"),
    "others": (TABLE.with_columns(unit_id=pl.lit("x") + pl.col("unit_id")), {}, "none of its"),
    "one arm": (
        TABLE.filter(pl.Series(LOG["variant"] == "none")), {}, "has no units of both in clusters"
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_what_cannot_be_done_is_said_plainly(path: Path, tmp_path: Path, kind: str) -> None:
    rows, asked, words = WRONG[kind]
    with pytest.raises(ClusterdpError) as told:
        effects_from_release(path, written(rows, tmp_path / "x.csv"), **asked)
    assert words in str(told.value)
    assert isinstance(told.value, ConfigError if asked else InputError)


def test_a_release_without_units_is_refused_by_name(
    experiment: Builder, table: Path, tmp_path: Path
) -> None:
    release = experiment(LOG, arms=ARMS, privacy={"mechanism": "noisy-histogram"}).run().path
    with pytest.raises(InputError, match=f"{release.name}: publishes no units.*noisy-histogram"):
        effects_from_release(release, table)


def test_without_noise_the_effect_is_found(experiment: Builder, tmp_path: Path) -> None:
    """Those above 50 gain 2, and nobody else."""
    gain = 2.0 * ((AGE > 50) & (LOG["variant"] == "mail").to_numpy())
    log = LOG.with_columns(clicks=pl.Series(1.0 + gain))
    release = experiment(log, arms=ARMS, privacy=EXACT).run().path
    found = effects_from_release(release, written(TABLE, tmp_path / "x.csv"))
    truth = np.where(AGE > 50, 2.0, 0.0)
    assert found.ate is not None
    assert found.ate.estimate == pytest.approx(truth[np.arange(N) % 3 == 1].mean(), abs=0.02)
    (age, _) = found.curves
    assert age.effects[2] < 0.5
    assert age.effects[-3] > 1.5
    assert [name for name, _ in found.importance] == ["age", "plan"]


# the command


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    def call(*arguments: object) -> dict[str, Any]:
        assert run([*map(str, arguments), "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return call


def test_the_command_prints_one_document(path: Path, table: Path, printed: Printed) -> None:
    found = printed("effects", path, "--covariates", table, "--features", "plan, age")
    assert {
        "learner", "epsilon", "delta", "neighbours", "n_rows", "features", "model_path",
        "propensity", "degree", "ate", "subgroups", "importance",
    } <= set(found)  # fmt: skip
    assert (found["learner"], found["model_path"], found["epsilon"]) == ("moments", None, 2.0)
    assert found["features"] == ["plan", "age"]
    assert found["neighbours"] == "one unit's outcome (substitution)"
    assert set(found["subgroups"][0]) == {
        "name", "level", "estimate", "std_error", "privacy_std_error", "ci_lower", "ci_upper",
        "refused",
    }  # fmt: skip
    assert found["arms"] == ["mail", "post"]


def test_the_command_speaks_to_people(
    path: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "a.html"
    assert run(["effects", str(path), "--covariates", str(table), "-o", str(page)]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert "effect of 'mail' against 'none', from trial.once.r1" in told.out
    assert "other arms, with --arm: 'post'" in told.out
    assert "everybody" in told.out
    assert "believe the groups" in told.out
    assert told.out.endswith(f"{page}\n")
    assert "This page cost nothing more" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "--covariates: missing; give a table of yours"),
        (["--covariates", "x.csv", "--arm", "none"], "--arm: 'none' is no treatment arm"),
        (["--covariates", "x.csv", "--features", "b"], "--features: x.csv has no column 'b'"),
        (["--covariates", "x.csv", "--level", "2"], "--level: 2.0 is not strictly"),
        (["--covariates", "x.csv", "-o", "a.txt"], "give it a name ending in .html"),
        (["--covariates", "y.csv"], "y.csv: there is no such file"),
    ],
)
def test_the_command_refuses_plainly(
    path: Path,
    table: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(table.parent)
    assert run(["effects", str(path), *options]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert words in told.err
    assert len(told.err.splitlines()) == 1


def test_names_of_others_are_text(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = TABLE.rename({"age": EVIL}).with_columns(plan=pl.col("plan") + "\x1b[31m<b>")
    page = tmp_path / "a.html"
    file = written(rows, tmp_path / "x.csv")
    assert run(["effects", str(path), "--covariates", str(file), "-o", str(page)]) == 0
    assert "\x1b" not in capsys.readouterr().out
    source = page.read_text(encoding="utf-8")
    assert "<img" not in source
    assert "\x1b" not in source
    assert "gold\ufffd[31m&lt;b&gt;" in source


def test_no_unit_and_no_value_is_in_document_or_page(
    path: Path, tmp_path: Path, printed: Printed
) -> None:
    rows = TABLE.with_columns(secret=pl.Series(RANDOM.permutation(N) + SENTINEL))
    page = tmp_path / "a.html"
    file = written(rows, tmp_path / "x.csv")
    found = printed("effects", path, "--covariates", file, "-o", page)
    assert "c00007" not in json.dumps(found) + page.read_text(encoding="utf-8")


# Python


def test_python_answers_likewise(path: Path, table: Path, tmp_path: Path) -> None:
    rows = TABLE.with_columns(same=pl.lit(1))
    with pytest.warns(clusterdp.ClusterdpWarning, match="'same' is not used"):
        found = clusterdp.open(path).effects(covariates=rows, arm="post")
    expected = effects_from_release(path, table, arm="post")
    assert expected.ate is not None
    assert found.ate()["estimate"].to_list() == [expected.ate.estimate]
    groups = found.subgroups()
    assert groups["estimate"].to_list() == [
        one.effect and one.effect.estimate for one in expected.subgroups
    ]
    assert groups["level"].to_list() == [one.level for one in expected.subgroups]
    curves = found.curves()
    assert curves.filter(pl.col("feature") == "plan")["level"].to_list() == [
        "basic", "gold", "silver"
    ]  # fmt: skip
    assert curves["at"].null_count() == 3
    assert found.importance()["feature"].to_list() == [name for name, _ in expected.importance]
    assert found.as_json()["ate"] == expected.as_json()["ate"]
    assert found.report(tmp_path / "a.html") == tmp_path / "a.html"
    assert repr(found) == "<clusterdp effects of post by age, plan>"
