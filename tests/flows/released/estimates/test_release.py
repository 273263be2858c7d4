"""Effects from the released file alone, checked against plain arithmetic on the raw log."""

import math
import shutil
from dataclasses import asdict
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from scipy import stats

from estimators.arm_effects import Estimate
from flows.released.estimates.release import estimate_file
from flows.released.file.read import read_release
from schemas.errors import InputError
from schemas.released import SCHEMA_VERSION, TABLES
from tests.conftest import EXACT, Builder, a_log, build_experiment, released, rows
from tests.estimators.reference import contrast, quantile
from tests.estimators.told_release import Cell, Told, Unit, laplace_cumulants
from tests.support.distances import assert_between
from tests.support.own_schema import alter


def stratified(
    log: pl.DataFrame, arm: str, clusters: list[str] | None = None
) -> tuple[float, float, float]:
    """τ̂, its Neyman error and Welch's degrees of freedom, over clusters with 2 units an arm."""
    parts = []
    for cluster in clusters or log["region"].unique().to_list():
        within = log.filter(pl.col("region") == cluster)
        by_arm = [within.filter(pl.col("variant") == name)["clicks"] for name in (arm, "none")]
        parts.append((len(within), [values.to_numpy() for values in by_arm]))
    total = sum(n for n, _ in parts)
    effect = sum(n / total * (y[0].mean() - y[1].mean()) for n, y in parts)
    spreads = [
        (n / total) ** 2 * values.var(ddof=1) / len(values) for n, y in parts for values in y
    ]
    sizes = [len(values) for _, y in parts for values in y]
    scatter = sum(s**2 / (n + 1) for s, n in zip(spreads, sizes, strict=True))
    variance = sum(spreads)
    freedom = max(variance**2 / scatter - 2, 1.0) if scatter else math.inf
    return effect, math.sqrt(variance), freedom


def assert_is(found: Estimate, expected: tuple[float, float, float], n_units: int) -> None:
    """The estimate is this one; EXACT leaves 10⁻¹² of outcomes to chance."""
    effect, error, freedom = expected
    assert found.estimate == pytest.approx(effect, abs=1e-9)
    assert found.std_error == pytest.approx(error, abs=1e-9)
    assert found.privacy_std_error == pytest.approx(0, abs=1e-4)
    assert found.n_units == n_units
    if error > 0:
        reach = stats.t.ppf((1 + found.confidence_level) / 2, freedom) * error
        assert found.ci_lower == pytest.approx(effect - reach, abs=1e-6)
        assert found.ci_upper == pytest.approx(effect + reach, abs=1e-6)
        assert found.p_value == pytest.approx(
            2 * stats.t.sf(abs(effect) / error, freedom), rel=1e-6
        )


def test_without_noise_the_estimate_is_the_stratified_difference(experiment: Builder) -> None:
    log = a_log(301, clusters=("east", "west", "north")).filter(pl.int_range(pl.len()) % 7 != 3)
    result = experiment(log, privacy=EXACT).run()
    assert_is(result.estimates[0], stratified(log, "mail"), len(log))


def test_every_treatment_is_compared_with_control(experiment: Builder) -> None:
    log = a_log(300, arms=("none", "mail", "call"))
    built = experiment(log, arms={"treatments": ["mail", "call"]}, privacy=EXACT)
    found = {one.arm: one for one in built.run().estimates}
    assert set(found) == {"mail", "call"}
    for arm, one in found.items():
        assert one.control == "none"
        assert_is(one, stratified(log, arm), 300)


@pytest.mark.parametrize("arms", [("zebra", "ant"), ("ant", "zebra"), ("1", "10")])
def test_arms_are_told_apart_whatever_their_names(
    experiment: Builder, arms: tuple[str, str]
) -> None:
    control, treatment = arms
    log = rows(
        *[(f"c{i}", control, "east", 0.0) for i in range(10)],
        *[(f"t{i}", treatment, "east", 3.0) for i in range(8)],
    )
    built = experiment(log, arms={"control": control, "treatments": [treatment]}, privacy=EXACT)
    assert built.run().estimates[0].estimate == pytest.approx(3)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.99])
def test_the_level_moves_the_interval_alone(experiment: Builder, level: float) -> None:
    path = experiment(privacy=EXACT).run().path
    (usual,) = estimate_file(path)  # without counts there is τ̂_Q alone
    (other,) = estimate_file(path, level)
    assert_is(other, stratified(a_log(), "mail"), 240)
    moved = {name for name, value in asdict(other).items() if asdict(usual)[name] != value}
    assert moved <= {
        "ci_lower", "ci_upper", "confidence_level", "relative_ci_lower", "relative_ci_upper",
        "minimum_detectable_effect",
    }  # fmt: skip
    assert other.confidence_level == level


@pytest.mark.parametrize("mechanism", ["cluster-dp", "cluster-optimal-dp"])
def test_the_file_holds_the_estimates_that_it_gives(experiment: Builder, mechanism: str) -> None:
    """A run reads its tables as it has written them, others sort what they do not know."""
    privacy = {"mechanism": mechanism, "epsilon": 1.0, "strata_statistic": "counts"}
    result = experiment(a_log(300, arms=("none", "mail")), privacy=privacy).run()
    assert estimate_file(result.path) == result.estimates
    stored = released(result.path, "estimates").to_dicts()
    wanted = list(TABLES["estimates"])
    assert stored == [{name: asdict(one)[name] for name in wanted} for one in result.estimates]


def test_estimating_reads_and_writes_nothing_else(experiment: Builder, tmp_path: Path) -> None:
    built = experiment()
    alone = tmp_path / "alone.duckdb"
    shutil.copy(built.run().path, alone)
    before, content = built.entries, alone.read_bytes()
    estimate_file(alone)
    assert built.entries == before
    assert alone.read_bytes() == content


# logs that are odd but not wrong


def odd(*extra: tuple[Any, Any, Any, Any]) -> pl.DataFrame:
    return pl.concat([a_log(80), rows(*extra)])


ONE_UNIT = odd(("x", "mail", "north", 3.0))
ONE_ARM = odd(*[(f"x{i}", "mail", "north", 3.0) for i in range(5)])


@pytest.mark.parametrize("log", [ONE_UNIT, ONE_ARM], ids=["one unit", "one arm"])
def test_a_cluster_that_cannot_be_compared_is_left_out(
    experiment: Builder, log: pl.DataFrame
) -> None:
    result = experiment(log, privacy=EXACT).run()
    assert_is(result.estimates[0], stratified(log, "mail", ["east", "west"]), 80)
    assert result.roster.n_units == len(log)
    assert released(result.path, "units").height == len(log)


def test_with_same_shares_lone_clusters_are_compared_together(experiment: Builder) -> None:
    log = odd(
        ("a", "mail", "n1", 3.0), ("b", "mail", "n2", 2.0), ("c", "mail", "n3", 1.0),
        ("d", "none", "n4", 0.0), ("e", "none", "n5", 1.0), ("f", "none", "n6", 1.0),
    )  # fmt: skip
    result = experiment(log, arms={"same_shares": True}, privacy=EXACT).run()
    lone = pl.col("region").str.starts_with("n")
    merged = log.with_columns(pl.when(lone).then(pl.lit("n")).otherwise("region").alias("region"))
    effect, error, freedom = stratified(merged, "mail")
    # The variance of the merged clusters is that of the pairs (n4, n5), (n6, n1), (n2, n3), in
    # place of 4/9: with z = 2/9, −1/9 | −1/9, 3/9 | 0, −3/9 it is (9 + 16 + 9)/81 · (2/3)/(16/27),
    # with (16/27)²/(2 (6/27)² + (4/27)²) degrees of freedom in place of the two of each arm.
    share, own, paired = 6 / 86, 1 / 3 + 1 / 9, 17 / 36
    variance = error**2 + share**2 * (paired - own)
    scatter = error**4 / freedom - share**4 * (1 / 9 + 1 / 81) / 2
    scatter += share**4 * paired**2 * 88 / 256
    (found,) = (one for one in result.estimates if one.estimator == "tau_q")
    assert_is(found, (effect, math.sqrt(variance), variance**2 / scatter), 86)


def test_where_no_cluster_can_be_compared_there_is_no_number(experiment: Builder) -> None:
    log = rows(*[(f"c{i}", arm, arm, 1.0) for i, arm in enumerate(["none", "mail"] * 5)])
    result = experiment(log).run()
    # Two pools of one cluster each, and no cluster with both arms: no histogram either.
    assert [one.estimator for one in result.estimates] == ["combined", "tau_q"]
    for one in result.estimates:
        assert (one.estimate, one.std_error, one.ci_lower, one.n_units) == (None, None, None, 0)
    assert released(result.path, "estimates").is_empty()


@pytest.mark.parametrize("missing", [None, 2])
def test_missing_outcomes_count_as_declared(experiment: Builder, missing: int | None) -> None:
    log = a_log(80).with_columns(clicks=pl.when(pl.int_range(80) % 3 > 0).then("clicks"))
    result = experiment(log, outcome={"missing": missing}, privacy=EXACT).run()
    filled = log.with_columns(pl.col("clicks").fill_null(missing or 0))
    assert_is(result.estimates[0], stratified(filled, "mail"), 80)


@pytest.mark.parametrize("outcome", [None, 0.0, 2.0], ids=["missing", "zero", "two"])
@pytest.mark.parametrize("grid", [[0, 1, 2, 3], [0, 3]])
def test_outcomes_that_are_all_alike_have_no_effect(
    experiment: Builder, outcome: float | None, grid: list[int]
) -> None:
    log = a_log(80).with_columns(clicks=pl.lit(outcome, pl.Float64))
    privacy = {**EXACT, "strata_statistic": "counts", "noise_scale": 5.0}
    built = experiment(log, outcome={"values": grid, "rounding": "nearest"}, privacy=privacy)
    combined, tau_q, histogram = built.run().estimates
    assert (tau_q.std_error, tau_q.ci_lower) == (tau_q.privacy_std_error, None)  # no other is known
    for one in (tau_q, combined):
        assert one.estimate == pytest.approx(0, abs=1e-9)
        assert one.privacy_std_error == pytest.approx(0, abs=1e-4)
        assert one.n_units == 80
    assert histogram.privacy_std_error is not None
    assert histogram.privacy_std_error > 0.05  # it has nothing but the counts


def test_a_unit_that_stands_twice_is_left_out(experiment: Builder) -> None:
    log = a_log(80)
    twice = pl.concat([log, log[3:4].with_columns(clicks=99.0)])
    result = experiment(twice, privacy=EXACT).run()
    assert result.roster.quarantined_by_rule == {"unit_twice": 2}
    left = log.filter(pl.col("customer") != "c00003")
    assert_is(result.estimates[0], stratified(left, "mail"), 79)


def test_an_arm_that_is_not_declared_is_left_out(experiment: Builder) -> None:
    log = a_log(120, arms=("none", "mail", "fax"))
    result = experiment(log, privacy=EXACT).run()
    assert result.roster.quarantined_by_rule == {"arm_not_declared": 40}
    assert_is(result.estimates[0], stratified(log.filter(pl.col("variant") != "fax"), "mail"), 80)


def test_out_of_range_outcomes_are_clipped(experiment: Builder) -> None:
    log = a_log(80).with_columns(clicks=pl.col("clicks") * 1000 - 1000)
    result = experiment(log, privacy=EXACT).run()
    clipped = log.with_columns(pl.col("clicks").clip(0, 3))
    assert_is(result.estimates[0], stratified(clipped, "mail"), 80)


# against a transcription from the tables


def told(path: Path) -> tuple[Told, list[str]]:
    """A release as its tables tell it, and its arms, control first."""
    (manifest,), (metric,) = (released(path, one).to_dicts() for one in ("release", "metrics"))
    control = manifest["control"]
    units = released(path, "units")
    arms = [control, *sorted(set(units["arm"]) - {control})]
    places = released(path, "strata")
    clusters, pools = sorted(set(places["cluster"])), sorted(set(places["pool"]))
    grid = tuple(sorted(released(path, "outcomes")["outcome"].to_list()))
    cells = {}
    for row in released(path, "pools").to_dicts():
        there = f"WHERE pool = '{row['pool']}' AND arm = '{row['arm']}' ORDER BY outcome"
        own = released(path, f"FROM main.debias {there}")
        noisy = released(path, f"FROM main.counts {there}")["noisy_count"].to_list()
        cells[pools.index(row["pool"]), arms.index(row["arm"])] = Cell(
            tuple(own["probability"]),
            tuple(noisy) or None,
            row["mean_weight"] or 0.0,
            row["square_weight"] or 0.0,
        )
    return Told(
        grid,
        metric["resampling_probability"],
        tuple(
            Unit(clusters.index(row["cluster"]), arms.index(row["arm"]), row["outcome_randomised"])
            for row in units.to_dicts()
        ),
        {clusters.index(row["cluster"]): pools.index(row["pool"]) for row in places.to_dicts()},
        cells,
        metric["noise_scale"],
        {clusters.index(row["cluster"]): row["own_sizes"] for row in places.to_dicts()},
    ), arms


def assert_is_told(
    path: Path, *, same_shares: bool, levels: tuple[float, ...] = (0.95,)
) -> list[Estimate]:
    """Every estimate of the file is its transcription, at each level; gives those at the first."""
    release, arms = told(path)
    by_level = [estimate_file(path, level) for level in levels]
    for ones in zip(*by_level, strict=True):
        estimator, arm = ones[0].estimator, ones[0].arm
        expected = contrast(release, estimator, arms.index(arm), same_shares=same_shares)
        assert expected is not None
        error = math.sqrt(expected.variance)
        for one, level in zip(ones, levels, strict=True):
            assert (one.estimator, one.arm) == (estimator, arm)
            law = expected.degrees_of_freedom, expected.kurtosis
            reach = quantile(level, *law) * error
            wanted = {
                "estimate": expected.estimate,
                "std_error": error,
                "privacy_std_error": math.sqrt(expected.noise_variance),
                "n_units": expected.n_units,
                "ci_lower": expected.estimate - reach,
                "ci_upper": expected.estimate + reach,
            }
            for name, number in wanted.items():
                assert getattr(one, name) == pytest.approx(number, rel=1e-9, abs=1e-9), name
    return by_level[0]


MECHANISMS = ["cluster-dp", "cluster-free-dp", "uniform-prior-dp"]


@pytest.mark.parametrize(
    ("mechanism", "values", "same_shares"),
    [
        (mechanism, values, (nth + grid) % 2 == 1)
        for nth, mechanism in enumerate(MECHANISMS)
        for grid, values in enumerate(([-1, 0, 1, 4], [0, 3]))
    ],
)
def test_every_estimate_is_its_transcription_from_the_tables(
    experiment: Builder, mechanism: str, values: list[float], same_shares: bool
) -> None:
    """Three arms; west and north are small and share a pool, where the mechanism has several.

    Any two of mechanism, grid and shares go together in a case; nothing hangs on all three.
    """
    log = a_log(330, arms=("none", "mail", "call"), clusters=("east", "west", "east", "north"))
    log = log.filter((pl.col("region") == "east") | (pl.int_range(pl.len()) % 5 == 0))
    path = (
        experiment(
            log,
            arms={"treatments": ["mail", "call"], "same_shares": same_shares},
            outcome={"values": values},
            privacy={"mechanism": mechanism, "epsilon": 3.0, "min_stratum": 20,
                     "strata_statistic": "counts"},
        )
        .run()
        .path
    )  # fmt: skip
    found = assert_is_told(path, same_shares=same_shares, levels=(0.95, 0.8))
    sizes = released(path, "SELECT pool, count(DISTINCT cluster) AS n FROM main.strata GROUP BY 1")
    lone = mechanism != "cluster-free-dp"
    assert sorted(sizes["n"]) == ([1, 2] if lone else [3])
    names = {one.estimator for one in found}
    assert names == {"tau_q", "combined"} | ({"histogram"} if lone or same_shares else set())
    covered = {one.n_units for one in found if one.estimator == "histogram"}
    whole = log.height if same_shares else log.filter(pl.col("region") == "east").height
    assert covered <= {whole}
    assert {one.n_units for one in found if one.estimator != "histogram"} == {log.height}


def test_weights_are_those_of_the_declared_guess(experiment: Builder) -> None:
    """Whatever the outcomes are, and by the formula: v n / (v n + s)."""
    privacy = {"mechanism": "uniform-prior-dp", "epsilon": 1.0, "strata_statistic": "counts"}
    guess, found = [0.7, 0.1, 0.1, 0.1], []
    for factor in (0.0, 1.0):
        built = build_experiment(
            experiment().folder.parent / f"guess {factor}",
            a_log().with_columns(pl.col("clicks") * factor),
            outcome={"guess": guess},
            privacy=privacy,
        )
        path = built.run().path
        found.append(released(path, "pools"))
        (metric,) = released(path, "metrics").to_dicts()
    assert found[0].equals(found[1])
    rate, (second, _) = (
        metric["resampling_probability"],
        laplace_cumulants(metric["noise_scale"]),
    )
    odds, steps = rate / (1 - rate), np.arange(4) - 1.5
    for column, of in (("mean_weight", steps), ("square_weight", steps**2)):
        unit = odds * (guess @ (of - of.mean()) ** 2) + odds * (1 + odds) * of.var()
        total = second * ((of - of.mean()) ** 2).sum()
        for n, weight in found[0].select("n_units", column).rows():
            assert weight == pytest.approx(unit * n / (unit * n + total), rel=1e-9)


def test_without_counts_there_is_tau_q_alone(experiment: Builder) -> None:
    privacy = {"mechanism": "uniform-prior-dp", "epsilon": 1.0, "strata_statistic": "none"}
    result = experiment(privacy=privacy).run()
    assert [one.estimator for one in assert_is_told(result.path, same_shares=False)] == ["tau_q"]
    pools = released(result.path, "pools")
    assert pools["mean_weight"].null_count() == pools["square_weight"].null_count() == len(pools)


# with noise


def test_with_noise_the_estimates_scatter_about_the_truth(experiment: Builder) -> None:
    """Mean of 8 t-values: beyond 2 (5.6 standard errors) by chance with probability 2·10⁻⁸."""
    log = a_log(1000).with_columns(
        clicks=pl.when(pl.col("variant") == "mail").then(3.0).otherwise("clicks")
    )
    truth, _, _ = stratified(log, "mail")
    built = experiment(log, privacy={"epsilon": 1.0})
    found = [built.run(revise=True).estimates[0] for _ in range(8)]
    t_values = np.array([((one.estimate or 0) - truth) / (one.std_error or 0) for one in found])
    assert len({one.estimate for one in found}) == 8
    assert_between(float(t_values.mean()), (-2.0, 2.0), 0.0, 1 / np.sqrt(8))
    assert all(0 < (one.privacy_std_error or 0) <= 1.1 * (one.std_error or 0) for one in found)


# files that are no release


def refusal(path: Path) -> str:
    for read in (estimate_file, read_release):
        with pytest.raises(InputError) as caught:
            read(path)
        assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "there is no such file" in refusal(tmp_path / "none.duckdb")
    assert "is a folder, not a file" in refusal(tmp_path)


@pytest.mark.parametrize("content", [b"", b"garbage", b"PAR1" * 5000, bytes(20000)])
def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "some.duckdb").write_bytes(content)
    refusal(tmp_path / "some.duckdb")
    assert (tmp_path / "some.duckdb").read_bytes() == content


@pytest.mark.parametrize("kept", [0.1, 0.5])
def test_half_a_release(experiment: Builder, tmp_path: Path, kept: float) -> None:
    whole = experiment(a_log(4000)).run().path.read_bytes()
    (tmp_path / "half.duckdb").write_bytes(whole[: int(kept * len(whole))])
    refusal(tmp_path / "half.duckdb")


def changed(experiment: Builder, tmp_path: Path, *statements: str) -> Path:
    path = tmp_path / "changed.duckdb"
    shutil.copy(experiment().run().path, path)
    path.chmod(0o644)
    with duckdb.connect(str(path)) as connection:
        for statement in statements:
            alter(connection, statement)
    return path


@pytest.mark.parametrize("table", ["release", "units", "estimates"])
def test_a_database_without_our_tables(experiment: Builder, tmp_path: Path, table: str) -> None:
    kind = "VIEW" if table == "units" else "TABLE"
    path = changed(experiment, tmp_path, f"DROP {kind} {table}")
    assert f"not a clusterdp release (no table {table})" in refusal(path)


def test_a_database_with_tables_of_these_names_but_not_ours(
    experiment: Builder, tmp_path: Path
) -> None:
    path = changed(experiment, tmp_path, "CREATE OR REPLACE TABLE release (name VARCHAR)")
    refusal(path)


@pytest.mark.parametrize("version", [1, SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
def test_a_release_of_another_schema_version(
    experiment: Builder, tmp_path: Path, version: int
) -> None:
    path = changed(experiment, tmp_path, f"UPDATE release SET schema_version = {version}")
    said = refusal(path)
    assert f"has schema version {version}, this program reads {SCHEMA_VERSION}" in said
    assert f"the version of clusterdp that made it: {version_of('clusterdp')}" in said


def test_a_release_of_an_older_schema_that_lacks_tables_is_named_as_such(
    experiment: Builder, tmp_path: Path
) -> None:
    path = changed(
        experiment,
        tmp_path,
        "DROP TABLE metrics",
        "DROP TABLE counts",
        "UPDATE release SET schema_version = 3, package_version = '0.0.9'",
    )
    said = refusal(path)
    reads = f"this program reads {SCHEMA_VERSION}"
    assert f"schema version 3, {reads}; use the version of clusterdp that made it: 0.0.9" in said


def test_a_metric_without_its_columns_of_units_is_refused(
    experiment: Builder, tmp_path: Path
) -> None:
    second = "INSERT INTO metrics SELECT * REPLACE ('visits' AS metric) FROM metrics"
    said = refusal(changed(experiment, tmp_path, second))
    assert "the columns of table units are not a release's" in said


@pytest.mark.parametrize("change", ["DELETE FROM release", "INSERT INTO release FROM release"])
def test_a_release_without_its_one_row(experiment: Builder, tmp_path: Path, change: str) -> None:
    assert "not a complete clusterdp release" in refusal(changed(experiment, tmp_path, change))
