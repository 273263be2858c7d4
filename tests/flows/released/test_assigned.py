"""Errors of a release follow what was randomised: from the log with households to every answer."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

from estimators.arm_effects import Estimate, effects
from estimators.strata.assigned import parties_of
from flows.cli.main import run
from flows.cli.night.release import release_text
from flows.cli.night.released import inspect_text
from flows.cli.show.series import series_text
from flows.operate.series.estimates import estimate_series
from flows.released.estimates.by_attribute import estimate_by
from flows.released.estimates.covariates import estimate_covariates
from flows.released.estimates.release import estimate_file
from flows.released.estimates.segments import estimate_segments
from flows.released.file.evidence import Released, read_every, slices_of
from flows.released.file.read import open_release, read_manifest, read_release
from tests.conftest import EXACT, Section, build_experiment
from tests.support.tables import written

COUNTS: Section = {"mechanism": "uniform-prior-dp", "strata_statistic": "counts", "epsilon": 3.0}


def households(n: int, n_clusters: int, *, nested: bool = True, seed: int = 1) -> pl.DataFrame:
    """Households of 1 to 5, half of them in each arm, whose members click alike."""
    random = np.random.default_rng(seed)
    size = random.integers(1, 6, n)
    home = np.repeat(np.arange(n), size)
    region = (np.arange(n) // 2 % n_clusters)[home]
    if not nested:
        region = random.integers(0, n_clusters, len(home))
    mood = random.integers(0, 3, n)[home]
    clicks = np.clip(mood + random.integers(0, 2, len(home)) + home % 2, 0, 4)
    return pl.DataFrame(
        {
            "customer": [f"c{at:05d}" for at in range(len(home))],
            "variant": np.where(home % 2 == 1, "mail", "none"),
            "region": [f"r{at:03d}" for at in region],
            "clicks": clicks.astype(float),
            "home": home,
        }
    )


def released(
    folder: Path, log: pl.DataFrame, privacy: Section, arms: Section | None = None
) -> Path:
    return build_experiment(
        folder / "experiment",
        log,
        privacy=privacy,
        columns={"assigned_by": "home"},
        outcome={"values": [0, 1, 2, 3, 4]},
        arms={"treatments": ["mail"], **(arms or {})},
    ).run().path  # fmt: skip


def read_of(path: Path) -> Released:
    with open_release(path) as connection:
        (found,) = read_every(connection, read_manifest(connection))
        return found


def told_one_by_one(path: Path, segments: pl.DataFrame | None = None) -> list[Estimate]:
    """The estimates from the file's units one by one, each in one segment or all in one."""
    release = read_of(path)
    units = rows_of(path, "FROM main.units ORDER BY unit_id")
    group = pl.lit(0)
    names: list[str | None] = [None]
    if segments is not None:
        units = units.join(segments, on="unit_id", how="inner")
        segment = units["segment"].unique().sort()
        names = [*segment]
        group = pl.col("segment").cast(pl.Enum(segment)).to_physical().cast(pl.Int64)
    d = pl.col("outcome_randomised") - release.grid.mean()
    units = units.with_columns(group.alias("group"), d.alias("d")).with_columns(
        pl.col("cluster", "arm").cast(pl.String)
    )
    rows = units.group_by("group", "cluster", "arm").agg(
        pl.len().alias("n"),
        pl.col("d").mean().alias("mean"),
        pl.col("d").var().fill_null(0.0).alias("variance"),
        (pl.col("d") ** 4).mean().alias("fourth"),
    ).sort("group", "cluster", "arm")  # fmt: skip
    coded = rows.join(release.places, on=["cluster", "arm"], maintain_order="left")
    slices = slices_of(coded)
    keyed = units.join(
        rows.with_row_index("slice").select("slice", "group", "cluster", "arm"),
        on=["group", "cluster", "arm"],
        how="left",
    ).join(release.places, on=["cluster", "arm"], how="left")
    who, arm, value = (
        keyed["assigned_to"].to_numpy()
        ^ (keyed["group"].to_numpy().astype(np.uint64) << np.uint64(8)),
        keyed["arm_code"].to_numpy().astype(np.int64),
        keyed["outcome_debiased"].to_numpy(),
    )
    of_slices = parties_of(keyed["slice"].to_numpy().astype(np.int64), who, arm, value, len(rows))
    of_pools = parties_of(
        keyed["pool_code"].to_numpy().astype(np.int64), who, arm, value, len(release.pools.pool)
    )
    evidence = replace(release.evidence(slices, of_slices), pool_parties=of_pools)
    same_shares = release.manifest.same_shares
    return effects(evidence, release.arms, release.manifest.control, names, same_shares=same_shares)


def rows_of(path: Path, query: str) -> pl.DataFrame:
    with duckdb.connect(str(path), read_only=True) as connection:
        found = pl.from_arrow(connection.sql(query).to_arrow_table())
    assert isinstance(found, pl.DataFrame)
    return found


def assert_same(found: list[Estimate], expected: list[Estimate]) -> None:
    assert [(one.estimator, one.segment) for one in found] == [
        (one.estimator, one.segment) for one in expected
    ]
    for one, other in zip(found, expected, strict=True):
        for name in NUMBERS:
            assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-9), name


NUMBERS = ("estimate", "std_error", "privacy_std_error", "ci_lower", "ci_upper", "p_value")
SHARED: Section = {"same_shares": True}
CASES: dict[str, tuple[int, bool, Section, Section]] = {
    "one cluster": (1, True, EXACT, SHARED),
    "nested": (4, True, COUNTS, {}),
    "spanning": (4, False, COUNTS, SHARED),
    "merged": (40, False, COUNTS, SHARED),
    "few households": (25, True, EXACT, {}),
}


@pytest.fixture(scope="module", params=CASES)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    n_clusters, nested, privacy, arms = CASES[request.param]
    log = households(80, n_clusters, nested=nested)
    return released(tmp_path_factory.mktemp("assigned"), log, privacy, arms)


def test_errors_of_a_file_are_those_of_its_units_one_by_one(path: Path) -> None:
    assert_same(estimate_file(path), told_one_by_one(path))


def test_errors_in_segments_are_those_of_their_units_one_by_one(path: Path, tmp_path: Path) -> None:
    """A household may be in several segments: each has the members it has."""
    ids = rows_of(path, "SELECT unit_id FROM main.units ORDER BY 1")
    table = ids.with_columns((pl.int_range(pl.len()) * 7 % 3).cast(pl.String).alias("segment"))
    found = estimate_segments(path, written(table, tmp_path / "s.parquet")).estimates
    assert_same(found, told_one_by_one(path, table))


def test_households_are_counted_as_one(path: Path) -> None:
    """Nobody would believe what the same units say when each counts by itself."""
    release = read_of(path)
    assert release.parties is not None
    arms, control = release.arms, release.manifest.control
    alone = effects(
        replace(release.whole, parties=None, pool_parties=None),
        arms,
        control,
        [None],
        same_shares=release.manifest.same_shares,
    )
    for one, other in zip(estimate_file(path), alone, strict=True):
        assert one.estimate == other.estimate
        assert one.std_error is not None
        assert other.std_error is not None
        is_exact = (one.privacy_std_error or 0.0) < 1e-3
        assert one.std_error >= (1.1 if is_exact else 1.0) * other.std_error


def test_the_macro_says_what_the_command_says(path: Path, tmp_path: Path) -> None:
    ids = rows_of(path, "SELECT unit_id FROM main.units ORDER BY 1")
    table = ids.with_columns((pl.int_range(pl.len()) * 7 % 3).cast(pl.String).alias("segment"))
    file = written(table, tmp_path / "s.parquet")
    query = f"CREATE TEMP TABLE mine AS FROM '{file}'"
    with duckdb.connect(str(path), read_only=True) as connection:
        connection.execute(query)
        found = connection.sql("FROM ate_by_segment('mine')").pl()
    rows = {(row["estimator"], row["segment"]): row for row in found.to_dicts()}
    estimates = estimate_segments(path, file).estimates
    assert len(rows) == len(estimates)
    for one in estimates:
        row = rows[one.estimator, one.segment or ""]
        for name in ("estimate", "std_error", "n_units"):
            assert row[name] == pytest.approx(getattr(one, name), rel=1e-9), name
        for name in ("ci_lower", "ci_upper", "p_value"):
            assert row[name] == pytest.approx(getattr(one, name), rel=1e-6, abs=1e-9), name


def test_a_household_comes_back_in_another_member(tmp_path: Path) -> None:
    """No unit is in two nights, yet the nights share all of their households."""
    log = households(60, 1, seed=4)
    half = pl.int_range(pl.len()) % 2 == 0
    days = ("2026-11-01", "2026-11-02")
    logs = {
        f"logs/{days[0]}.parquet": log.filter(half),
        f"logs/{days[1]}.parquet": log.filter(~half),
    }
    built = build_experiment(
        tmp_path / "experiment",
        logs,
        source={"path": "logs/{period}.parquet"},
        privacy=EXACT,
        columns={"assigned_by": "home"},
        outcome={"values": [0, 1, 2, 3, 4]},
        arms={"treatments": ["mail"]},
    )
    paths = [built.run(day).path for day in days]
    found = estimate_series(paths)
    assert found.people.kind == "returning"
    both = set(log.filter(half)["home"]) & set(log.filter(~half)["home"])
    assert len(found.people.shared) == len(both)
    (pooled,) = [one for one in found.pooled if one.estimator == "tau_q"]
    told = estimate_series(paths, told="disjoint")
    (apart,) = [one for one in told.pooled if one.estimator == "tau_q"]
    assert pooled.estimate == apart.estimate
    assert pooled.std_error is not None
    assert apart.std_error is not None
    assert pooled.std_error > 1.15 * apart.std_error


def test_commands_say_how_many_groups_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = households(80, 1).with_columns((pl.int_range(pl.len()) % 2).alias("plan"))
    made = build_experiment(
        tmp_path / "experiment",
        log,
        privacy=COUNTS,
        columns={"assigned_by": "home", "attributes": ["plan"]},
        outcome={"values": [0, 1, 2, 3, 4]},
        arms={"treatments": ["mail"]},
    ).run()
    told = "by assigned_to: 80 groups of units that were assigned together (none 40, mail 40)"
    assert told in flat(release_text(made))
    assert told in flat(inspect_text(read_release(made.path)))
    path = str(made.path)
    for asked in ([], ["--by", "plan"], ["--adjust", "plan"]):
        assert run(["estimate", path, *asked]) == 0
        assert told in flat(capsys.readouterr().out)
        assert run(["estimate", path, *asked, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["n_assigned"] == 80
    assert run(["inspect", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_assigned"] == 80


def test_nothing_is_said_of_groups_where_each_unit_was_by_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = build_experiment(tmp_path / "experiment").run().path
    assert run(["estimate", str(path)]) == 0
    assert "assigned" not in capsys.readouterr().out
    assert run(["estimate", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_assigned"] is None


def flat(shown: str) -> str:
    return " ".join(shown.split())


def test_adjusted_effects_count_households_as_one(tmp_path: Path) -> None:
    """A covariate that says nothing changes little: errors are those of households still."""
    path = released(tmp_path, households(120, 1), EXACT)
    ids = rows_of(path, "SELECT unit_id FROM main.units ORDER BY 1")
    random = np.random.default_rng(2)
    table = ids.with_columns(pl.Series("nothing", random.normal(size=ids.height)))
    found = estimate_covariates(path, written(table, tmp_path / "x.parquet")).estimates
    errors = {one.estimator: one.std_error for one in found}
    assert errors["regression"] == pytest.approx(errors["tau_q"], rel=0.05)
    assert errors["cuped"] == pytest.approx(errors["tau_q"], rel=0.05)


def test_one_household_an_arm_has_an_effect_and_no_error(tmp_path: Path) -> None:
    log = households(2, 1, seed=3)
    log = pl.concat([log, log, log]).with_columns(
        pl.format("c{}", pl.int_range(pl.len())).alias("customer")
    )
    path = released(tmp_path, log, EXACT)
    (tau_q,) = estimate_file(path)
    assert tau_q.estimate is not None
    assert tau_q.std_error is tau_q.ci_lower is tau_q.p_value is None
    assert "errors" in inspect_text(read_release(path))


def test_effects_by_an_attribute_are_those_of_its_segments(tmp_path: Path) -> None:
    log = households(80, 4).with_columns((pl.int_range(pl.len()) % 3).alias("plan"))
    path = build_experiment(
        tmp_path / "experiment",
        log,
        privacy=COUNTS,
        columns={"assigned_by": "home", "attributes": ["plan"]},
        outcome={"values": [0, 1, 2, 3, 4]},
        arms={"treatments": ["mail"]},
    ).run().path  # fmt: skip
    table = rows_of(path, "SELECT unit_id, plan::VARCHAR AS segment FROM main.units ORDER BY 1")
    expected = estimate_segments(path, written(table, tmp_path / "s.parquet")).estimates
    found = estimate_by(path, "plan").estimates
    errors = {(one.estimator, one.segment): one.std_error for one in found}
    assert errors == {
        (one.estimator, one.segment): pytest.approx(one.std_error, rel=1e-9) for one in expected
    }
    with duckdb.connect(str(path), read_only=True) as connection:
        rows = connection.sql("SELECT estimator, segment, std_error FROM ate_by('plan')").fetchall()
    assert {(name, segment): error for name, segment, error in rows} == {
        key: pytest.approx(error, rel=1e-9) for key, error in errors.items()
    }


def test_ratios_count_households_as_one(tmp_path: Path) -> None:
    """Products of two outcomes that lie in one slice are read as sums: those of the cells."""
    log = households(80, 4).with_columns((1 + pl.col("home") % 3).cast(pl.Float64).alias("views"))
    values = [0, 1, 2, 3, 4]
    path = build_experiment(
        tmp_path / "experiment",
        log,
        privacy=EXACT,
        columns={"assigned_by": "home", "outcome": None},
        outcome=None,
        arms={"treatments": ["mail"]},
        outcomes=[{"name": name, "column": name, "values": values} for name in ("clicks", "views")],
        ratios=[{"name": "rate", "numerator": "clicks", "denominator": "views"}],
    ).run().path  # fmt: skip
    found = [one for one in estimate_file(path) if one.metric == "rate"]
    ids = rows_of(path, "SELECT unit_id, 'all' AS segment FROM main.units ORDER BY 1")
    table = written(ids, tmp_path / "s.parquet")
    in_segment = [one for one in estimate_segments(path, table).estimates if one.metric == "rate"]
    of_units = {f"{name}_randomised": name for name in ("clicks", "views")}
    units = rows_of(path, "FROM main.units").drop("clicks", "views").rename(of_units)
    assert found[0].std_error == pytest.approx(in_segment[0].std_error, rel=1e-9)
    assert found[0].std_error is not None
    expected = 0.0
    total = units.height
    means = {"mail": found[0].control_mean + found[0].estimate, "none": found[0].control_mean}  # type: ignore[operator] # numbers
    for arm, ratio in means.items():
        own = units.filter(pl.col("arm").cast(pl.String) == arm)
        weights = units.group_by("cluster").len("everyone")
        own = own.join(weights, on="cluster")
        below = (
            own.group_by("cluster")
            .agg((pl.col("views").mean() * pl.col("everyone").first() / total).alias("part"))[
                "part"
            ]
            .sum()
        )
        linear = (pl.col("clicks") - ratio * pl.col("views")) / below
        scored = own.with_columns((linear - linear.mean().over("cluster")).alias("l"))
        parties = scored.group_by("cluster", "assigned_to").agg(
            pl.col("l").sum(), pl.len().alias("m"), pl.col("everyone").first()
        ).with_columns(pl.col("m").sum().over("cluster").alias("n"))  # fmt: skip
        score = pl.col("everyone") / total * pl.col("l") / pl.col("n")
        expected += parties.select((score**2 / (1 - pl.col("m") / pl.col("n"))).sum()).item()
    assert found[0].std_error ** 2 == pytest.approx(expected, rel=1e-6)


def two_nights(folder: Path, first: pl.DataFrame, second: pl.DataFrame, **given: Any) -> list[Path]:
    days = ("2026-11-01", "2026-11-02")
    logs = {f"logs/{day}.parquet": log for day, log in zip(days, (first, second), strict=True)}
    sections: dict[str, Any] = {
        "source": {"path": "logs/{period}.parquet"},
        "arms": {"treatments": ["mail"]},
    }
    built = build_experiment(folder / "experiment", logs, privacy=EXACT, **sections, **given)
    return [built.run(day).path for day in days]


def test_shops_of_matched_pairs_that_come_back_are_the_same_shops(tmp_path: Path) -> None:
    """Other customers who do the same tell nothing new: two nights are as good as one.

    In its pair a shop is the whole arm, so only pairs together tell how shops differ.
    """
    random = np.random.default_rng(6)
    shop = np.repeat(np.arange(24), 10)
    mood = random.integers(0, 4, 24)[shop]
    log = pl.DataFrame(
        {
            "customer": [f"c{at:05d}" for at in range(len(shop))],
            "variant": np.where(shop % 2 == 1, "mail", "none"),
            "region": [f"r{at:03d}" for at in shop // 2],
            "clicks": (mood + random.integers(0, 2, len(shop))).astype(float),
            "shop": shop,
        }
    )
    others = log.with_columns(pl.format("d{}", "customer").alias("customer"))
    paths = two_nights(
        tmp_path,
        log,
        others,
        columns={"assigned_by": "shop"},
        outcome={"values": [0, 1, 2, 3, 4]},
    )
    found = estimate_series(paths)
    assert found.people.kind == "returning"
    assert len(found.people.shared) == 24
    assert found.people.because == "24 groups are in more than one release"
    assert "errors by assigned_to" in flat(series_text(found))
    (pooled,) = [one for one in found.pooled if one.estimator == "tau_q"]
    (once,) = [one for one in estimate_file(paths[0]) if one.estimator == "tau_q"]
    assert pooled.std_error == pytest.approx(once.std_error, rel=1e-3)


def scores_of_ratio(path: Path, rate: Estimate) -> pl.DataFrame:
    """What each household contributes to a difference of ratios, in one cluster: from its units."""
    assert rate.control_mean is not None
    assert rate.estimate is not None
    parts = []
    units = rows_of(path, "FROM main.units").with_columns(pl.col("arm").cast(pl.String))
    for arm, sign, ratio in (
        ("mail", 1.0, rate.control_mean + rate.estimate),
        ("none", -1.0, rate.control_mean),
    ):
        own = units.filter(arm=arm)
        linear = pl.col("clicks_debiased") - ratio * pl.col("views_debiased")
        scored = own.with_columns((linear / pl.col("views_debiased").mean()).alias("l"))
        homes = scored.group_by("assigned_to").agg(
            (pl.col("l") - scored["l"].mean()).sum().alias("total"), pl.len().alias("m")
        )
        left = (1.0 - pl.col("m") / own.height).sqrt()
        score = (sign * pl.col("total") / own.height / left).alias("score")
        parts.append(homes.select("assigned_to", score))
    return pl.concat(parts)


def test_ratios_over_nights_count_a_household_that_comes_back_as_one(tmp_path: Path) -> None:
    """V = Σ w² V + 2 w w Σ_g ψ_g ψ_g, ψ of a household from the columns of both files."""
    log = households(60, 1, seed=4).with_columns(
        (1 + pl.col("home") % 3).cast(pl.Float64).alias("views")
    )
    half = pl.int_range(pl.len()) % 2 == 0
    values = [0, 1, 2, 3, 4]
    paths = two_nights(
        tmp_path,
        log.filter(half),
        log.filter(~half),
        columns={"assigned_by": "home", "outcome": None},
        outcome=None,
        outcomes=[{"name": name, "column": name, "values": values} for name in ("clicks", "views")],
        ratios=[{"name": "rate", "numerator": "clicks", "denominator": "views"}],
    )
    found = [one for one in estimate_series(paths).pooled if one.metric == "rate"]
    (pooled,) = [one for one in found if one.estimator == "tau_q"]
    rates = [
        one
        for path in paths
        for one in estimate_file(path)
        if (one.metric, one.estimator) == ("rate", "tau_q")
    ]
    first, second = map(scores_of_ratio, paths, rates)
    errors = [one.std_error or 0.0 for one in rates]
    for scores, error in zip((first, second), errors, strict=True):
        assert scores.select((pl.col("score") ** 2).sum()).item() == pytest.approx(error**2)
    share = rates[0].n_units / (rates[0].n_units + rates[1].n_units)
    both = first.join(second, on="assigned_to")
    product = both.select((pl.col("score") * pl.col("score_right")).sum()).item()
    plain = (share * errors[0]) ** 2 + ((1.0 - share) * errors[1]) ** 2
    expected = plain + 2.0 * share * (1.0 - share) * product
    assert pooled.std_error == pytest.approx(expected**0.5, rel=1e-9)
    assert expected > 1.3 * plain
