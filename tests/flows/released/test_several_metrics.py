"""Releases of several outcomes: read, estimated, sliced, refused, each as if it were alone."""

import re
import shutil
from dataclasses import asdict
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pytest

import clusterdp
from estimators.arm_effects import Estimate
from flows.cli.show.estimates import decided_text
from flows.effects.released.from_release import effects_from_release
from flows.operate.series.estimates import estimate_series
from flows.released.estimates.covariates import estimate_covariates
from flows.released.estimates.release import estimate_file, estimate_release
from flows.released.estimates.segments import estimate_segments
from flows.released.estimates.stated import read_checked
from flows.released.file.read import read_release
from flows.released.report import report
from schemas.errors import ConfigError, InputError
from schemas.released import TABLES
from tests.conftest import Section, a_log, build_experiment, released
from tests.flows.operate.series.nights_made import nights
from tests.support.contents import read_contents
from tests.support.own_schema import alter
from tests.support.remade import remake_macros

OUTCOMES: list[Section] = [
    {"name": "visit", "column": "visited", "values": [0, 1]},
    {"name": "clicks", "column": "clicks", "values": [0, 1, 2, 3], "label": "Clicks a week"},
    {"name": "spend", "column": "spent", "low": 0, "high": 50, "levels": 6, "measured_in": "EUR"},
]
NAMES = ["visit", "clicks", "spend"]
NUMBERS = ["estimate", "std_error", "privacy_std_error", "coverage", "n_units", "n_segment"]
NEAR = ["ci_lower", "ci_upper", "p_value", "p_value_holm"]
COUNTRIES = ["de", "ch", None, "at"]


def the_log(n_units: int = 480) -> pl.DataFrame:
    random = np.random.default_rng(3)
    clicks = random.integers(0, 4, n_units).astype(float)
    return a_log(n_units).with_columns(
        clicks=clicks,
        visited=(clicks > 0).astype(float),
        spent=clicks * random.integers(0, 17, n_units),
        country=pl.Series([COUNTRIES[unit % 7 % 4] for unit in range(n_units)]),
        plan=pl.Series([["gold", "tin"][unit // 3 % 2] for unit in range(n_units)]),
        age=pl.Series(random.integers(18, 80, n_units).astype(float)),
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = build_experiment(
        tmp_path_factory.mktemp("several") / "experiment",
        the_log(),
        outcome=None,
        outcomes=OUTCOMES,
        columns={"outcome": None, "attributes": ["country", "plan"]},
        privacy={"epsilon": 6.0},
    )
    return built.run().path


def alone(path: Path, folder: Path, metric: str) -> Path:
    """A release of one of the outcomes alone, with the same draws: made of the file by DuckDB."""
    file = folder / "trial.once.r1.duckdb"
    file.write_bytes(path.read_bytes())
    file.chmod(0o644)
    with duckdb.connect(str(file)) as connection:
        tables = [name for name, columns in TABLES.items() if "metric" in columns]
        for table in tables:
            connection.execute(f"DELETE FROM {table} WHERE metric <> $1", [metric])
    remake_macros(file)
    return file


def test_each_metric_is_estimated_as_if_it_were_alone(path: Path, tmp_path: Path) -> None:
    found = estimate_file(path)
    assert list(dict.fromkeys(one.metric for one in found)) == NAMES
    for metric in NAMES:
        assert estimate_file(path, metrics=[metric]) == [
            one for one in found if one.metric == metric
        ]
        ours = [one for one in found if one.metric == metric]
        theirs = estimate_file(alone(path, tmp_path, metric))
        for one, other in zip(ours, theirs, strict=True):
            for name, value in asdict(one).items():
                same = pytest.approx(value, rel=1e-12) if isinstance(value, float) else value
                assert getattr(other, name) == same, name


def test_what_the_file_states_is_what_it_gives(path: Path) -> None:
    read_checked(path)
    stated = released(path, "SELECT metric, arm, estimator, estimate FROM estimates ORDER BY rowid")
    found = estimate_file(path)
    assert stated.rows() == [(one.metric, one.arm, one.estimator, one.estimate) for one in found]
    means = released(path, "SELECT DISTINCT metric FROM means")
    assert set(means["metric"]) == set(NAMES)
    assert all(one.planned_std_error for one in estimate_file(path) if one.estimator == "combined")


def by_macro(path: Path, query: str, table: pl.DataFrame | None = None) -> pl.DataFrame:
    with duckdb.connect(str(path), read_only=True) as connection:
        if table is not None:
            connection.register("mine", table.to_arrow())
        found: pl.DataFrame = connection.sql(query).pl()
    return found


def assert_same(found: pl.DataFrame, expected: pl.DataFrame) -> None:
    keys = ["metric", "segment", "arm", "estimator"]
    both = found.join(expected, on=keys, how="full", nulls_equal=True, suffix="_engine")
    assert len(both) == len(found) == len(expected)
    for name in NUMBERS + NEAR:
        ours, theirs = both[name].to_numpy(), both[f"{name}_engine"].to_numpy()
        close = {"rtol": 1e-9, "atol": 1e-12} if name in NUMBERS else {"rtol": 1e-6, "atol": 1e-6}
        assert np.allclose(ours.astype(float), theirs.astype(float), equal_nan=True, **close), name


def engine(path: Path, table: pl.DataFrame) -> pl.DataFrame:
    found = estimate_segments(path, Path("mine"), frame=table).estimates
    return frame_of(found)


def frame_of(found: list[Estimate]) -> pl.DataFrame:
    return pl.DataFrame([asdict(one) for one in found], schema_overrides={"segment": pl.String})


def test_the_macro_gives_the_numbers_of_the_command(path: Path) -> None:
    log = the_log()
    parts = {"everybody": log, "odd": log[::2], "few": log[:5], "north": log.head(200)}
    table = pl.concat(
        rows.select(unit_id="customer", segment=pl.lit(name)) for name, rows in parts.items()
    )
    found = by_macro(path, "FROM ate_by_segment('mine')", table)
    assert_same(found, engine(path, table))
    assert found.columns[:6] == ["metric", "segment", "arm", "estimate", "ci_lower", "ci_upper"]
    assert found["metric"].unique(maintain_order=True).to_list() == NAMES
    of_one = found.filter(pl.col("metric") == "visit")["estimator"].unique(maintain_order=True)
    assert of_one.to_list() == ["combined", "tau_q"]


def test_the_whole_in_the_order_of_the_file(path: Path) -> None:
    found = by_macro(path, "FROM ate()")
    assert found["metric"].unique(maintain_order=True).to_list() == NAMES
    assert (
        found.group_by("metric", maintain_order=True).first()["estimator"].to_list()
        == ["combined"] * 3
    )
    assert_same(found, frame_of(estimate_file(path)))


@pytest.mark.parametrize("attribute", ["country", "plan", "PLAN"])
def test_by_an_attribute_as_by_a_table_of_it(path: Path, attribute: str) -> None:
    table = the_log().select(
        unit_id="customer", segment=pl.col(attribute.lower()).fill_null("(none)")
    )
    found = by_macro(path, f"FROM ate_by('{attribute}')")
    assert_same(found, engine(path, table))
    assert ("(none)" in found["segment"].to_list()) is (attribute == "country")


def test_by_an_attribute_of_a_release_that_is_attached(path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{path}' AS rel (READ_ONLY)")
        attached = connection.sql("FROM rel.ate_by('country', 'rel')").pl()
    assert attached.equals(by_macro(path, "FROM ate_by('country')"))


def test_an_attribute_that_is_not_there_is_an_error_that_names_those_there_are(path: Path) -> None:
    for asked in ("'shoe size'", "'clicks'", "NULL"):
        with pytest.raises(duckdb.Error, match=r"no attribute of .*country, plan"):
            by_macro(path, f"FROM ate_by({asked})")


def test_without_attributes_it_says_so(path: Path, tmp_path: Path) -> None:
    build = build_experiment(tmp_path / "experiment", a_log(240))
    with pytest.raises(duckdb.Error, match="publishes no attribute of units"):
        by_macro(build.run().path, "FROM ate_by('country')")


def test_covariates_adjust_every_metric(path: Path) -> None:
    table = the_log().select("age", unit_id="customer")
    found = estimate_covariates(path, Path("x"), frame=table).estimates
    assert list(dict.fromkeys(one.metric for one in found)) == NAMES
    for metric in NAMES:
        own = estimate_covariates(path, Path("x"), frame=table, metrics=[metric]).estimates
        assert own == [one for one in found if one.metric == metric]
        assert {"regression", "tau_q"} <= {one.estimator for one in own}


def test_who_benefits_is_asked_of_one_metric(path: Path) -> None:
    table = the_log().select("age", unit_id="customer")
    with pytest.raises(ConfigError, match="several outcomes, 'visit', 'clicks', 'spend'"):
        effects_from_release(path, Path("x"), frame=table)
    found = effects_from_release(path, Path("x"), frame=table, metric="spend")
    (best,) = [
        one
        for one in estimate_file(path, metrics=["spend"])
        if one.estimator == "combined" and one.arm == found.arm
    ]
    assert found.ate is not None
    assert found.ate.estimate == best.estimate
    assert (found.design.low, found.design.high) == (0.0, 50.0)


def test_a_metric_that_is_not_there_is_an_error(path: Path) -> None:
    with pytest.raises(ConfigError, match="'x' is no metric of the release; it has 'visit'"):
        estimate_release(path, metrics=["visit", "x"])


def test_the_front_door(path: Path) -> None:
    rel = clusterdp.open(path)
    assert rel.ate()["metric"].unique(maintain_order=True).to_list() == NAMES
    assert set(rel.ate(metric="clicks")["metric"]) == {"clicks"}
    table = the_log().select("age", unit_id="customer")
    assert rel.effects(covariates=table, metric="visit").ate is not None
    assert read_release(path).manifest.outcomes[1].label == "Clicks a week"


def test_the_page_and_the_terminal_show_every_metric(path: Path) -> None:
    page = report(read_contents(path))
    found = re.findall(r'<th class="m"[^>]*><bdi>(.*?)</bdi> <span>', page)
    assert found[:3] == ["visit", "Clicks a week", "spend"]
    lines = decided_text(estimate_file(path)).splitlines()
    assert [one for one in lines if one.startswith("effect of each arm against 'none' on")] == [
        f"effect of each arm against 'none' on {name!r}" for name in NAMES
    ]


BROKEN: dict[str, list[str]] = {
    "of clicks, outcomes: each stands once": [
        "DELETE FROM outcomes WHERE metric = 'clicks' AND outcome = 3"
    ],
    "of visit, debias: each pool and arm": [
        "UPDATE debias SET metric = 'clicks' WHERE metric = 'visit' AND outcome = 1",
    ],
    "of spend, debias: weights": ["UPDATE debias SET weight = 2 * weight WHERE metric = 'spend'"],
    "of spend, counts: each pool and arm": ["DELETE FROM counts WHERE metric = 'spend'"],
    "of clicks, units: each has an id": [
        "UPDATE $own.drawn SET clicks_randomised = 1.5 WHERE rowid = 3",
        "UPDATE $own.unit_facts SET base1 = 0 WHERE rowid = 3",
        "UPDATE $own.drawn SET clicks_randomised = NULL WHERE rowid = 3",
    ],
    "metrics: epsilons add up": ["UPDATE metrics SET epsilon = 2.1"],
    "metrics: units are published of all": [
        "DELETE FROM debias WHERE metric = 'spend'; UPDATE metrics SET "
        "resampling_probability = NULL, truncation_threshold = NULL WHERE metric = 'spend'"
    ],
    "pools: they are the same": [
        "DELETE FROM pools WHERE metric = 'spend' AND pool = (SELECT min(pool) FROM pools)",
        "UPDATE pools SET n_units = n_units + 1 WHERE metric = 'spend'",
    ],
    "estimates: each arm": ["UPDATE estimates SET metric = 'clicks'"],
    "means: every row is about": ["UPDATE means SET metric = 'x'"],
    "the columns of table units": [
        "ALTER TABLE $own.drawn DROP COLUMN spend_randomised",
        "ALTER TABLE $own.drawn RENAME COLUMN spend_randomised TO spent",
        "ALTER TABLE $own.unit_facts DROP COLUMN factor2",
        "UPDATE metrics SET metric = CASE metric WHEN 'visit' THEN 'clicks' WHEN 'clicks' THEN "
        "'visit' ELSE metric END",
    ],
    "a name in its table metrics": [
        "UPDATE metrics SET metric = 'visit_debiased' WHERE metric = 'spend'"
    ],
}


@pytest.mark.parametrize(
    ("rule", "change"), [(rule, change) for rule, changes in BROKEN.items() for change in changes]
)
def test_a_file_that_contradicts_itself_is_refused(
    path: Path, tmp_path: Path, rule: str, change: str
) -> None:
    file = tmp_path / path.name
    file.write_bytes(path.read_bytes())
    file.chmod(0o644)
    with duckdb.connect(str(file)) as connection:
        alter(connection, change)
    with pytest.raises(InputError, match=re.escape(rule)):
        read_release(file)


@pytest.mark.parametrize("table", ["debias", "counts", "pools", "outcomes"])
def test_the_order_of_rows_makes_no_difference(path: Path, tmp_path: Path, table: str) -> None:
    file = tmp_path / path.name
    file.write_bytes(path.read_bytes())
    file.chmod(0o644)
    with duckdb.connect(str(file)) as connection:
        connection.execute(
            f"CREATE TEMP TABLE mixed AS FROM {table} ORDER BY hash(rowid); "
            f"DELETE FROM {table}; INSERT INTO {table} FROM mixed"
        )
    for one, other in zip(estimate_file(path), estimate_file(file), strict=True):
        assert (one.metric, one.arm, one.estimator) == (other.metric, other.arm, other.estimator)
        assert other.estimate == pytest.approx(one.estimate, rel=1e-12)
        assert other.ci_lower == pytest.approx(one.ci_lower, rel=1e-9)


TWO: list[Section] = [
    {"name": "clicks", "column": "clicks", "values": [0, 1, 2, 3]},
    {"name": "any_click", "column": "clicks", "values": [0, 1]},
]


@pytest.mark.parametrize("step", [240, 120], ids=["new people", "who come back"])
def test_a_series_is_pooled_metric_by_metric(tmp_path: Path, step: int) -> None:
    built = nights(
        tmp_path, step=step, outcome=None, outcomes=TWO, columns={"outcome": None},
        privacy={"epsilon": 4.0},
    )  # fmt: skip
    folder = built.load().releases
    found = estimate_series([folder], told="returning" if step < 240 else "disjoint").pooled
    assert list(dict.fromkeys(one.metric for one in found)) == ["clicks", "any_click"]
    for metric in ("clicks", "any_click"):
        own = estimate_series(
            [folder], told="returning" if step < 240 else "disjoint", metrics=[metric]
        ).pooled
        assert own == [one for one in found if one.metric == metric]
    series = released(folder / "series.duckdb", "SELECT DISTINCT metric FROM cumulative")
    assert set(series["metric"]) == {"clicks", "any_click"}
    shutil.copy(folder / "trial.2026-11-01.r1.duckdb", tmp_path / "mixed.duckdb")
    one = build_experiment(tmp_path / "one", a_log(240)).run().path
    with pytest.raises(InputError, match="cannot be put together"):
        estimate_series([tmp_path / "mixed.duckdb", one])
