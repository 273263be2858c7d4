"""The front door in Python: what it answers, what it refuses, and what it never imports."""

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import clusterdp
from clusterdp import InputError
from tests.conftest import SENTINEL, Builder, a_log
from tests.conftest import released as asked
from tests.effect_logs import Campaign, campaign, people

__all__ = ["campaign"]  # a fixture

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> clusterdp.Release:
    """A release of 2,000 units and three arms, opened."""
    from tests.conftest import build_experiment  # noqa: PLC0415 - beside its one use

    log = a_log(2_000, arms=("none", "mail", "post"))
    arms = {"treatments": ["mail", "post"]}
    made = build_experiment(tmp_path_factory.mktemp("front") / "experiment", log, arms=arms)
    return clusterdp.open(clusterdp.release(made.config).path)


def sliced(release: clusterdp.Release) -> pl.DataFrame:
    """Segments of an analyst's own, with everybody of both arms in both."""
    number = pl.col("unit_id").str.slice(1).cast(pl.Int64)
    return release.units().select("unit_id", segment=number // 60 % 2 + 1)


def numbers(release: clusterdp.Release) -> pl.DataFrame:
    """A covariate, and a column that says what it is not."""
    number = pl.col("unit_id").str.slice(1).cast(pl.Int64)
    return release.units().select("unit_id", age=number % 61, region=pl.lit("x"))


# what it answers


def test_the_answer_is_that_of_sql(release: clusterdp.Release) -> None:
    """The same rows, columns and order; numbers as close as the macros promise."""
    found, sql = release.ate(), asked(release.path, "FROM ate()")
    assert found.height == 6  # two arms, by three estimators
    columns = [name for name in sql.columns if name not in {"segment", "effect", "note"}]
    assert_frame_equal(found.select(columns), sql.select(columns), check_exact=False, abs_tol=1e-6)
    assert found.columns[:5] == ["metric", "segment", "arm", "estimator", "estimate"]
    assert found["segment"].null_count() == found.height


def test_segments_are_answered_as_sql_answers_them(release: clusterdp.Release) -> None:
    members = sliced(release)
    found = release.ate(segments=members)
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{release.path}' AS rel (READ_ONLY)")
        connection.register("mine", members.to_arrow())
        sql = pl.DataFrame(
            pl.from_arrow(connection.sql("FROM rel.ate_by_segment('mine', 'rel')").to_arrow_table())
        )
    assert found["segment"].unique().sort().to_list() == ["1", "2"]
    order = ["estimator", "segment", "arm"]
    theirs = sql.drop("effect", "note").sort(order)
    ours = found.select(theirs.columns).sort(order)
    assert_frame_equal(ours, theirs, check_exact=False, abs_tol=1e-6)


def test_the_level_is_that_of_the_intervals(release: clusterdp.Release) -> None:
    wide, usual = release.ate(level=0.99), release.ate()
    assert set(wide["confidence_level"]) == {0.99}
    assert (wide["ci_upper"] > usual["ci_upper"]).all()
    assert_frame_equal(wide.select("estimate"), usual.select("estimate"))


def test_covariates_adjust(release: clusterdp.Release) -> None:
    with pytest.warns(clusterdp.ClusterdpWarning, match="'region' is not used"):
        found = release.ate(covariates=numbers(release))
    assert found["estimator"].to_list()[0] == "regression_combined"
    assert {"combined", "tau_q", "cuped", "regression"} <= set(found["estimator"])


def test_pandas_frames_are_answered_by_pandas_frames(release: clusterdp.Release) -> None:
    members = sliced(release)
    found = release.ate(segments=members.to_pandas())
    assert isinstance(found, pd.DataFrame)
    assert_frame_equal(
        pl.from_pandas(found).cast({"planned_std_error": pl.Float64}),
        release.ate(segments=members),
    )
    with pytest.warns(clusterdp.ClusterdpWarning):
        adjusted = release.ate(covariates=numbers(release).to_pandas())
    assert isinstance(adjusted, pd.DataFrame)


def test_it_says_what_a_release_is(release: clusterdp.Release) -> None:
    assert release.manifest.release_id == "trial.once.r1"
    assert release.manifest.epsilon == 2.0
    assert repr(release) == "<clusterdp release trial.once.r1: 2,000 units, cluster-dp, epsilon 2>"
    assert release.row_counts["units"] == 2_000
    assert release.path.is_absolute()


def test_units_and_tables_are_those_of_the_file(release: clusterdp.Release) -> None:
    units = release.units()
    of_outcome = ["outcome", "outcome_randomised", "outcome_debiased"]
    assert units.columns == ["unit_id", "cluster", "arm", *of_outcome, "weight"]
    as_text = "SELECT * REPLACE (cluster::VARCHAR AS cluster, arm::VARCHAR AS arm) FROM units"
    assert_frame_equal(units, asked(release.path, as_text))
    for name, n_rows in release.row_counts.items():
        assert release.table(name).height == n_rows
    release.row_counts.clear()  # a copy
    assert release.row_counts


def test_ids_may_be_integers_on_either_side(experiment: Builder) -> None:
    log = a_log(400).with_columns(pl.col("customer").str.slice(1).cast(pl.Int64))
    rel = clusterdp.open(clusterdp.release(experiment(log).config).path)
    members = rel.units().select("unit_id", segment=pl.lit("all"))
    assert members.schema["unit_id"] == pl.Int64
    expected = rel.ate(segments=members)
    assert expected["n_units"].to_list() == [400] * expected.height
    text = members.cast({"unit_id": pl.String})
    assert_frame_equal(rel.ate(segments=text), expected)


# what it refuses


def test_numbers_where_the_release_has_text_are_told_as_that(release: clusterdp.Release) -> None:
    members = sliced(release).with_columns(pl.col("unit_id").str.slice(1).cast(pl.Int64))
    with pytest.raises(clusterdp.InputError, match="ids are text, these are all numbers"):
        release.ate(segments=members)
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{release.path}' AS rel (READ_ONLY)")
        connection.register("mine", members.to_arrow())
        with pytest.raises(duckdb.Error, match="whose ids are text; yours are of the type BIGINT"):
            connection.sql("FROM rel.ate_by_segment('mine', 'rel')").fetchall()


def test_text_where_the_release_has_numbers_is_told_as_that(experiment: Builder) -> None:
    log = a_log(400).with_columns(pl.col("customer").str.slice(1).cast(pl.Int64))
    rel = clusterdp.open(clusterdp.release(experiment(log).config).path)
    padded = pl.lit("0") + pl.col("unit_id").cast(pl.String)
    members = rel.units().select(padded.alias("unit_id"), segment=pl.lit("all"))
    with pytest.raises(clusterdp.InputError, match="ids are whole numbers, none of these is one"):
        rel.ate(segments=members)
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{rel.path}' AS rel (READ_ONLY)")
        connection.register("mine", members.to_arrow())
        with pytest.raises(duckdb.Error, match="whose ids are whole numbers; yours are of"):
            connection.sql("FROM rel.ate_by_segment('mine', 'rel')").fetchall()


@pytest.mark.parametrize("level", [0.0, 1.0, float("nan"), 95.0])
def test_a_level_is_a_share(release: clusterdp.Release, level: float) -> None:
    with pytest.raises(clusterdp.ConfigError, match=r"^level: "):
        release.ate(level=level)


def test_segments_and_covariates_do_not_go_together(release: clusterdp.Release) -> None:
    table = sliced(release)
    with pytest.raises(clusterdp.ConfigError, match=r"^covariates: "):
        release.ate(segments=table, covariates=table)


def test_what_does_not_fit_is_said(release: clusterdp.Release) -> None:
    strangers = pl.DataFrame({"unit_id": ["c00001", "nobody"], "segment": ["a", "a"]})
    with (
        pytest.warns(clusterdp.ClusterdpWarning, match="1 units of the table are not in"),
        pytest.warns(clusterdp.ClusterdpWarning, match="2 of 2 effects compare less than 90 %"),
    ):
        release.ate(segments=strangers)
    with pytest.raises(clusterdp.InputError, match="segments: none of its 1 ids"):
        release.ate(segments=strangers.tail(1))
    with pytest.raises(clusterdp.InputError, match="segments: there is no column 'segment'"):
        release.ate(segments=strangers.drop("segment"))
    with pytest.raises(clusterdp.InputError, match="covariates: has no column besides"):
        release.ate(covariates=strangers.select("unit_id"))


def test_a_table_that_is_none_is_refused_without_its_values(release: clusterdp.Release) -> None:
    mixed = pd.DataFrame({"unit_id": ["c00001", SENTINEL], "segment": ["a", "b"]}, dtype=object)
    tables: list[Any] = [mixed, {"unit_id": ["c00001"], "segment": ["a"]}, "segments.csv"]
    for table in tables:
        with pytest.raises(clusterdp.InputError, match=r"^segments: neither") as caught:
            release.ate(segments=table)
        assert str(SENTINEL) not in str(caught.value)
        assert caught.value.__context__ is None


def test_there_is_no_such_table(release: clusterdp.Release) -> None:
    with pytest.raises(clusterdp.ConfigError, match="none of the tables"):
        release.table("release; DROP TABLE units")


def test_what_is_no_release_is_not_opened(tmp_path: Path) -> None:
    with pytest.raises(clusterdp.InputError, match="there is no such file"):
        clusterdp.open(tmp_path / "none.duckdb")
    (tmp_path / "text.duckdb").write_text("no database", encoding="utf-8")
    with pytest.raises(clusterdp.InputError, match="not a DuckDB file"):
        clusterdp.open(str(tmp_path / "text.duckdb"))


# making releases


def test_plan_check_and_release_are_those_of_the_commands(experiment: Builder) -> None:
    made = experiment(a_log(400), privacy={"mechanism": "auto", "budget_epsilon": 3.0})
    assert clusterdp.plan(made.config).as_json()["mechanism"] == "cluster-optimal-dp"
    assert clusterdp.check(str(made.config)).as_json()["n_units"] == 400
    assert not (made.folder / "releases").exists()
    first = clusterdp.release(made.config)
    again = clusterdp.release(str(made.config))
    assert (first.status, again.status) == ("published", "unchanged")
    assert again.path == first.path
    with pytest.raises(clusterdp.BudgetError):
        clusterdp.release(made.config, revise=True)
    made.config.write_text(made.config.read_text("utf-8").replace("epsilon = 2.0", "epsilon = 1.0"))
    with pytest.raises(clusterdp.ConflictError):
        clusterdp.release(made.config)
    with pytest.raises(clusterdp.ConfigError, match="period"):
        clusterdp.release(made.config, "../elsewhere")


# what it is


def test_opening_a_release_imports_nothing_from_inside_the_boundary(
    release: clusterdp.Release,
) -> None:
    script = """
import json, sys, clusterdp
import polars as pl
rel = clusterdp.open(sys.argv[1])
units = rel.units()
rel.ate()
rel.ate(segments=units.select("unit_id", segment=pl.lit("a")))
rel.ate(covariates=units.select("unit_id", x=pl.col("unit_id").str.slice(-1).cast(int)))
inside = ("privatizers", "flows.raw", "schemas.raw", "prefect", "flows.config", "flows.ledger")
print(json.dumps([name for name in sys.modules if name.startswith(inside)]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(release.path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=release.path.parent,
    )
    assert json.loads(done.stdout) == []


def test_opening_a_model_imports_nothing_from_inside_the_boundary(campaign: Campaign) -> None:
    script = """
import json, sys, clusterdp
import polars as pl
model = clusterdp.open_model(sys.argv[1])
model.ate(), model.subgroups(), model.curves(), model.guarantee
model.predict(pl.DataFrame({"age": [30], "sex": ["f"]}))
inside = ("privatizers", "flows.raw", "schemas.raw", "prefect", "flows.config", "flows.ledger")
print(json.dumps([name for name in sys.modules if name.startswith(inside)]))
"""
    path = campaign().run().path
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == []


def test_an_effect_model_is_made_opened_and_asked(campaign: Campaign) -> None:
    result = clusterdp.cate(campaign(people(6_000)).config)
    assert (result.status, result.as_json()["status"]) == ("published", "published")
    model = clusterdp.open_model(result.path)
    assert repr(model) == (
        "<clusterdp effect model mail+cate.once.r1: 6,000 units, epsilon 4, delta 1e-06>"
    )
    assert (model.model_id, model.n_rows) == ("mail+cate.once.r1", 6_000)
    assert "differential privacy" in model.guarantee
    assert isinstance(model.warnings, tuple)
    average, groups, curves = model.ate(), model.subgroups(), model.curves()
    assert average.columns[0] == "estimate"
    assert average.height == 1
    assert groups.columns[:2] == ["name", "level"]
    assert groups.height == 2 + 5
    assert set(curves["feature"]) == {"age", "sex"}
    assert curves["level"].drop_nulls().to_list() == ["f", "m"]
    table = people(30).select("id", "age", "sex")
    found = model.predict(table)
    assert found.columns == [*table.columns, "effect", "noise_std_error"]
    assert model.predict(table.to_pandas())["effect"].tolist() == found["effect"].to_list()
    with pytest.raises(InputError, match="features: there is no column 'age'"):
        model.predict(table.drop("age"))


def test_a_model_with_a_learnt_propensity_has_no_intervals(campaign: Campaign) -> None:
    path = clusterdp.cate(campaign(propensity="learn = true").config).path
    model = clusterdp.open_model(path)
    assert model.ate().height == model.subgroups().height == 0
    assert model.curves()["noise_std_error"].null_count() == model.curves().height


def test_every_name_is_explained() -> None:
    for name in clusterdp.__all__:
        assert inspect.getdoc(getattr(clusterdp, name)), name
    public = [one for one in vars(clusterdp.Release) if not one.startswith("_")]
    assert sorted(public) == [
        "ate", "decisions", "effects", "export", "manifest", "path", "row_counts", "table", "units",
        "withdrawn",
    ]  # fmt: skip
    for name in public:
        assert inspect.getdoc(getattr(clusterdp.Release, name)), name


def test_errors_are_of_one_family() -> None:
    kinds = ("BudgetError", "ConfigError", "ConflictError", "InputError", "StepError")
    for name in kinds:
        assert issubclass(getattr(clusterdp, name), clusterdp.ClusterdpError)


def test_commands_are_found_where_they_are_and_nothing_else_is() -> None:
    assert set(clusterdp.__all__) <= set(dir(clusterdp))
    assert clusterdp.verify_loss.__module__ == "flows.operate.verify"
    with pytest.raises(AttributeError, match="'clusterdp' has no attribute 'audit'"):
        getattr(clusterdp, "audit")  # noqa: B009 - no type checker knows it
