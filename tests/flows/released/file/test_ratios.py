"""Ratios in a released file: the same numbers from its rows, its macros and the engine."""

import re
import warnings
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

import clusterdp
from estimators.arm_effects import Estimate
from flows.released.estimates.by_attribute import estimate_by
from flows.released.estimates.release import estimate_file, estimate_release
from flows.released.estimates.segments import estimate_segments
from flows.released.estimates.stated import read_checked
from flows.released.file.read import open_release, read_manifest
from schemas.errors import ConfigError
from schemas.released import Ratio
from tests.conftest import Section, build_experiment, released

pytestmark = pytest.mark.release

N_UNITS = 3_000
NUMBERS = ("estimate", "std_error", "privacy_std_error")
NEAR = ("ci_lower", "ci_upper", "p_value", "p_value_holm")
RATIOS: tuple[Section, ...] = (
    {
        "name": "clicks_per_view",
        "numerator": "click",
        "denominator": "view",
        "label": "Clicks per view",
        "measured_in": "share",
    },
    {"name": "views_per_buy", "numerator": "view", "denominator": "buy"},
    {"name": "per_zero", "numerator": "view", "denominator": "zero"},
)
HARD: Section = {"mechanism": "uniform-prior-dp", "strata_statistic": "counts"}
CASES: dict[str, tuple[int, Section]] = {
    "counts": (5, {**HARD, "epsilon": 8.0}),
    "means": (3, {**HARD, "strata_statistic": "means", "epsilon": 5.0}),
    "tiny clusters": (1_200, {**HARD, "epsilon": 16.0}),
    "tiny clusters, no statistic": (1_200, {**HARD, "strata_statistic": "none", "epsilon": 24.0}),
    "priors of clusters": (4, {**HARD, "mechanism": "cluster-dp", "epsilon": 12.0}),
    "tables": (5, {**HARD, "mechanism": "cluster-optimal-dp", "epsilon": 8.0}),
    "planned": (5, {"mechanism": "auto", "strata_statistic": None, "epsilon": 8.0}),
}
every_case = pytest.mark.parametrize("name", CASES)
HOUSEHOLDS: dict[str, tuple[int, bool, Section]] = {
    "within clusters": (5, True, {**HARD, "epsilon": 8.0}),
    "across clusters": (4, False, {**HARD, "strata_statistic": "means", "epsilon": 5.0}),
    "across tiny clusters": (700, False, {**HARD, "epsilon": 16.0}),
    "tables": (5, False, {**HARD, "mechanism": "cluster-optimal-dp", "epsilon": 8.0}),
    "no statistic": (3, True, {**HARD, "strata_statistic": "none", "epsilon": 24.0}),
}
"""Clusters, whether a household is in one of them, and privacy."""
every_household = pytest.mark.parametrize("name", HOUSEHOLDS)


def the_log(n_clusters: int) -> pl.DataFrame:
    random = np.random.default_rng(3)
    arm = random.integers(0, 3, N_UNITS)
    view = random.binomial(5, 0.5, N_UNITS)
    return pl.DataFrame(
        {
            "customer": np.arange(N_UNITS),
            "variant": np.array(["none", "mail", "call"])[arm],
            "region": [f"r{at}" for at in random.integers(0, n_clusters, N_UNITS)],
            "views": view,
            "clicks": random.binomial(view, 0.4 + 0.1 * (arm == 1)),
            "bought": (random.random(N_UNITS) < 0.05 * view).astype(int),
            "nothing": np.zeros(N_UNITS, dtype=int),
            "plan": np.array(["gold", "tin", None])[np.arange(N_UNITS) % 7 % 3],
        }
    )


@cache
def release(name: str) -> Path:
    n_clusters, privacy = CASES[name]
    count = [0, 1, 2, 3, 4, 5]
    experiment = build_experiment(
        Path(mkdtemp(prefix="ratios-")),
        the_log(n_clusters),
        outcome=None,
        columns={"outcome": None, "attributes": ["plan"]},
        arms={"treatments": ["mail", "call"], "same_shares": True},
        outcomes=(
            {"name": "view", "column": "views", "values": count},
            {"name": "click", "column": "clicks", "values": count},
            {"name": "buy", "column": "bought", "values": [0, 1]},
            {"name": "zero", "column": "nothing", "values": [0, 1]},
        ),
        ratios=RATIOS,
        privacy=privacy,
    )
    return experiment.run().path


@cache
def release_of_households(name: str) -> Path:
    """Households of 1 to 5 who look at much the same, assigned as one."""
    n_clusters, nested, privacy = HOUSEHOLDS[name]
    random = np.random.default_rng(8)
    home = np.repeat(np.arange(N_UNITS), random.integers(1, 6, N_UNITS))[:N_UNITS]
    arm = random.integers(0, 3, N_UNITS)[home]
    view = np.clip(random.binomial(4, 0.5, N_UNITS)[home] + random.integers(0, 2, N_UNITS), 0, 5)
    taste = random.beta(2.0, 2.0, N_UNITS)[home]
    place = home if nested else np.arange(N_UNITS)
    log = pl.DataFrame(
        {
            "customer": np.arange(N_UNITS),
            "variant": np.array(["none", "mail", "call"])[arm],
            "region": [f"r{at}" for at in random.integers(0, n_clusters, N_UNITS)[place]],
            "views": view,
            "clicks": random.binomial(view, np.clip(taste + 0.1 * (arm == 1), 0, 1)),
            "nothing": (random.random(N_UNITS) < 0.02).astype(int),
            "home": home,
            "plan": random.choice(["free", "paid"], N_UNITS, p=[0.3, 0.7]),
        }
    )
    count = [0, 1, 2, 3, 4, 5]
    experiment = build_experiment(
        Path(mkdtemp(prefix="ratios-")),
        log,
        outcome=None,
        columns={"outcome": None, "assigned_by": "home", "attributes": ["plan"]},
        arms={"treatments": ["mail", "call"], "same_shares": True},
        outcomes=(
            {"name": "view", "column": "views", "values": count},
            {"name": "click", "column": "clicks", "values": count},
            {"name": "rare", "column": "nothing", "values": [0, 1]},
        ),
        ratios=(
            {"name": "clicks_per_view", "numerator": "click", "denominator": "view"},
            {"name": "per_rare", "numerator": "view", "denominator": "rare"},
        ),
        privacy=privacy,
    )
    return experiment.run().path


@cache
def segments() -> pl.DataFrame:
    random = np.random.default_rng(1)
    names = random.choice(["some", "most", "few"], N_UNITS, p=[0.38, 0.6, 0.02])
    return pl.concat(
        [
            pl.DataFrame({"unit_id": np.arange(N_UNITS), "segment": names}),
            pl.DataFrame({"unit_id": np.arange(0, N_UNITS, 3)}).with_columns(
                segment=pl.lit("every third")
            ),
            pl.DataFrame({"unit_id": [N_UNITS + 5], "segment": ["nobody"]}),
        ]
    )


def one_home(path: Path) -> pl.DataFrame:
    """A segment in which the most of a household who are in one cluster are all of their arm."""
    with duckdb.connect(str(path), read_only=True) as connection:
        units = connection.execute(
            """WITH home AS (
                SELECT cluster, assigned_to FROM units WHERE arm = 'mail' GROUP BY ALL
                ORDER BY count(*) DESC, cluster, assigned_to LIMIT 1
            ) SELECT unit_id FROM units JOIN home USING (cluster)
            WHERE arm <> 'mail' OR units.assigned_to = home.assigned_to"""
        ).fetchnumpy()["unit_id"]
    return pl.DataFrame({"unit_id": units}).with_columns(segment=pl.lit("one home"))


def assert_same(row: dict[str, Any], one: Estimate) -> None:
    assert (row["n_units"], row["n_segment"]) == (one.n_units, one.n_segment)
    for column in (*NUMBERS, *NEAR):
        mine, theirs = row[column], getattr(one, column)
        if theirs is None:
            assert mine is None, (one, column)
            continue
        tolerance = 1e-9 if column in NUMBERS else 1e-6
        size = 1.0  # doubles cancel in proportion to the means
        if not column.startswith("p_"):
            size = sum(map(abs, (theirs, one.std_error or 0.0, one.control_mean or 0.0)))
        assert mine == pytest.approx(theirs, rel=tolerance, abs=tolerance * size)


@every_case
def test_a_macro_gives_the_ratios_of_segments(name: str) -> None:
    path, table = release(name), segments()
    found = estimate_segments(path, Path("table"), frame=table).estimates
    with duckdb.connect(str(path), read_only=True) as connection:
        connection.register("mine", table.to_arrow())
        rows = pl.from_arrow(connection.sql("FROM ate_by_segment('mine')").to_arrow_table())
    assert isinstance(rows, pl.DataFrame)
    keys = ("metric", "segment", "arm", "estimator")
    by_key = {tuple(row[key] for key in keys): row for row in rows.to_dicts()}
    assert len(by_key) == len(found) == len(rows)
    for one in found:
        assert_same(by_key[one.metric, one.segment or "", one.arm, one.estimator], one)
    told = [one for one in found if one.metric == "clicks_per_view" and one.estimate is not None]
    assert len(told) >= 4
    hidden = [
        by_key["per_zero", one.segment or "", one.arm, one.estimator]["note"]
        for one in found
        if one.metric == "per_zero" and one.estimate is None and one.n_units > 0
    ]
    assert hidden
    assert all("not told from zero" in note for note in hidden)


def rows_by_key(found: duckdb.DuckDBPyRelation) -> dict[tuple[str, ...], dict[str, Any]]:
    rows = pl.from_arrow(found.to_arrow_table())
    assert isinstance(rows, pl.DataFrame)
    keys = ("metric", "segment", "arm", "estimator")
    by_key = {tuple(row[key] for key in keys): row for row in rows.to_dicts()}
    assert len(by_key) == len(rows)
    return by_key


@every_household
def test_macros_count_a_household_as_one_in_ratios(name: str) -> None:
    """In segments a household may be in several of, and in the values of an attribute."""
    path = release_of_households(name)
    table = pl.concat([segments(), one_home(path)])
    in_segments = estimate_segments(path, Path("table"), frame=table).estimates
    by_plan = estimate_by(path, "plan").estimates
    with duckdb.connect(str(path), read_only=True) as connection:
        connection.register("mine", table.to_arrow())
        of_segments = rows_by_key(connection.sql("FROM ate_by_segment('mine')"))
        of_plan = rows_by_key(connection.sql("FROM ate_by('plan')"))
    for rows, found in ((of_segments, in_segments), (of_plan, by_plan)):
        assert len(rows) == len(found)
        for one in found:
            assert_same(rows[one.metric, one.segment or "", one.arm, one.estimator], one)
        told = [one for one in found if one.metric == "clicks_per_view"]
        assert sum(one.std_error is not None for one in told) >= 4
    alone = [one for one in in_segments if one.segment == "one home" and one.arm == "mail"]
    assert {one.std_error for one in alone if one.n_units} == {None}  # nothing tells it


@every_case
def test_a_macro_gives_the_ratios_of_an_attribute(name: str) -> None:
    path = release(name)
    found = estimate_by(path, "plan", metrics=["clicks_per_view", "per_zero"])
    with duckdb.connect(str(path), read_only=True) as connection:
        rows = pl.from_arrow(connection.sql("FROM ate_by('plan')").to_arrow_table())
    assert isinstance(rows, pl.DataFrame)
    rows = rows.filter(pl.col("metric").is_in(["clicks_per_view", "per_zero"]))
    keys = ("metric", "segment", "arm", "estimator")
    by_key = {tuple(row[key] for key in keys): row for row in rows.to_dicts()}
    assert len(by_key) == len(found.estimates) == len(rows)
    for one in found.estimates:
        assert_same(by_key[one.metric, one.segment or "", one.arm, one.estimator], one)
    told = {one.segment for one in found.estimates if one.estimate is not None}
    assert told == {"gold", "tin", "(none)"}
    assert any(said.startswith("per_zero: no numbers") for said in found.warnings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", clusterdp.ClusterdpWarning)  # of few compared: asked above
        frame = clusterdp.open(path).ate(by="plan", metric="clicks_per_view")
    ours = [one for one in found.estimates if one.metric == "clicks_per_view"]
    assert sorted(frame["estimate"].drop_nulls()) == sorted(
        one.estimate for one in ours if one.estimate is not None
    )


@every_case
def test_a_file_states_the_ratios_that_its_units_give(name: str) -> None:
    path = release(name)
    read_checked(path)
    found = [one for one in estimate_file(path) if one.metric == "clicks_per_view"]
    by_key = {
        (row["arm"], row["estimator"]): row
        for row in released(path, "FROM ate() WHERE metric = 'clicks_per_view'").to_dicts()
    }
    assert len(found) == len(by_key) > 0
    for one in found:
        assert_same(by_key[one.arm, one.estimator], one)
        assert one.planned_std_error is None


@every_case
def test_arms_have_the_ratio_of_their_means(name: str) -> None:
    rows = released(release(name), "means").to_dicts()
    mean = {(row["metric"], row["arm"], row["estimator"]): row["mean"] for row in rows}
    mine = {key: value for key, value in mean.items() if key[0] == "clicks_per_view"}
    assert {arm for _, arm, _ in mine} == {"none", "mail", "call"}
    for (_, arm, estimator), value in mine.items():
        both = mean["click", arm, estimator] / mean["view", arm, estimator]
        assert value == pytest.approx(both, rel=1e-12)


def test_the_file_says_what_a_ratio_is_of() -> None:
    path = release("counts")
    with open_release(path) as connection:
        manifest = read_manifest(connection)
    assert [one.metric for one in manifest.metrics] == [
        *("view", "click", "buy", "zero"),
        *("clicks_per_view", "views_per_buy", "per_zero"),
    ]
    assert manifest.ratios[0] == Ratio(
        metric="clicks_per_view",
        numerator="click",
        denominator="view",
        label="Clicks per view",
        measured_in="share",
    )
    row = released(path, "FROM metrics WHERE metric = 'clicks_per_view'").to_dicts()[0]
    assert row["kind"] == "ratio"
    numbers = ("epsilon", "delta", "resampling_probability", "noise_scale", "n_outcomes")
    assert all(row[name] is None for name in numbers)
    assert sum(one.epsilon for one in manifest.outcomes) <= manifest.epsilon
    assert "clicks_per_view" not in released(path, "units").columns


def test_a_denominator_of_zeros_is_told_and_stated_nowhere() -> None:
    """One in 20 such arms would be told from zero by chance, and control besides: 5e-3 a run."""
    found = estimate_release(release("counts"), metrics=("per_zero",))
    assert {one.metric for one in found.estimates} == {"per_zero"}
    assert any(one.estimate is None for one in found.estimates)
    (warning,) = [one for one in found.warnings if one.startswith("per_zero")]
    assert "not told from zero" in warning
    stated = released(release("counts"), "estimates").filter(metric="per_zero")
    assert len(stated) < len(found.estimates)


def test_one_ratio_can_be_asked_for_by_name() -> None:
    path = release("counts")
    every = [one for one in estimate_file(path) if one.metric == "clicks_per_view"]
    assert estimate_file(path, metrics=("clicks_per_view",)) == every
    with pytest.raises(ConfigError, match="'clicks' is no metric of the release"):
        estimate_file(path, metrics=("clicks",))


def test_no_join_of_a_macro_puts_questions_beside_each_other(tmp_path: Path) -> None:
    n, clusters, values = 6_000, 30, 20
    random = np.random.default_rng(1)
    log = pl.DataFrame(
        {
            "customer": np.arange(n),
            "variant": np.array(["none", "mail"])[np.arange(n) % 2],
            "region": [f"r{at}" for at in random.integers(0, clusters, n)],
            "plan": [f"p{at}" for at in random.integers(0, values, n)],
            "views": random.integers(0, 3, n),
            "clicks": random.integers(0, 2, n),
        }
    )
    experiment = build_experiment(
        tmp_path,
        log,
        outcome=None,
        columns={"outcome": None, "attributes": ["plan"]},
        outcomes=(
            {"name": "view", "column": "views", "values": [0, 1, 2]},
            {"name": "click", "column": "clicks", "values": [0, 1]},
        ),
        ratios=RATIOS[:1],
        privacy={"mechanism": "auto", "strata_statistic": None, "epsilon": 6.0},
    )
    path = experiment.run().path
    with duckdb.connect(path, read_only=True) as connection:
        ((_, plan),) = connection.execute("EXPLAIN ANALYZE FROM ate_by('plan')").fetchall()
    most = max(int(rows.replace(",", "")) for rows in re.findall(r"([\d,]+) rows", plan))
    assert n <= most < 100 * clusters * values * 2  # of every pair of questions: 1.5 million
