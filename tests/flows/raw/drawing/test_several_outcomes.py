"""Several outcomes in one release: read, mapped, drawn and written together."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

from flows.config.model.experiment import Config
from flows.config.resolve import ResolvedRelease, resolve_release
from flows.raw.ingest import ingest, ingest_without_outcomes
from flows.raw.privatize import privatize
from flows.raw.spill.workspace import open_workspace
from flows.raw.units.private_clusters import known_sizes
from flows.raw.validate import validate
from flows.released.publish import new_draft, publish
from schemas.names import ReleaseName
from schemas.released import ReleaseTables
from tests.conftest import EXACT, Builder, Content, Experiment, Section, a_log, made_units
from tests.support.distances import assert_near
from tests.support.whole_log import whole_log

Log = Content | Mapping[str, Content]

NAME = ReleaseName("trial", "once", 1)
OUTCOMES: tuple[Section, ...] = (
    {"name": "clicks", "column": "clicks", "values": [0, 1, 2, 3], "label": "Clicks in a week"},
    {"name": "spend", "column": "spent", "low": 0, "high": 50, "levels": 6, "measured_in": "EUR"},
    {"name": "buyer", "column": "spent", "values": [0, 1], "rounding": "nearest"},
)


def the_log(n_units: int = 240) -> pl.DataFrame:
    unit = np.arange(n_units)
    return a_log(n_units).with_columns(spent=pl.Series(unit % 7 * 10.0).replace(60.0, None))


def several(experiment: Builder, log: Log | None = None, *rest: Any, **sections: Any) -> Experiment:
    columns = {"outcome": None, **sections.pop("columns", {})}
    outcomes = sections.pop("outcomes", OUTCOMES)
    content = the_log() if log is None else log
    return experiment(content, *rest, outcome=None, outcomes=outcomes, columns=columns, **sections)


def tables_of(config: Config) -> tuple[ReleaseTables, ResolvedRelease]:
    with open_workspace(config.spill) as workspace:
        rows, _, _ = validate(config.log_facts, ingest(config.log_source, "once"), workspace)
        chosen = resolve_release(config, known_sizes(config.log_facts, rows))
        return privatize(chosen.config, rows, chosen.designs, NAME), chosen


def test_each_column_is_read_by_its_own_rule(experiment: Builder) -> None:
    found = several(experiment).read()
    spent = the_log()["spent"].fill_null(0.0).to_list()
    assert found["outcome"].to_list() == the_log()["clicks"].to_list()
    assert found["outcome 2"].to_list() == spent
    assert found["outcome 3"].to_list() == [min(value, 1.0) for value in spent]


FILES = ["log.csv", "log.jsonl", "log.parquet", "log.csv.gz"]


@pytest.mark.parametrize("file", FILES)
def test_no_value_of_any_of_them_can_make_reading_fail(experiment: Builder, file: str) -> None:
    texts = ["true", "x" * 50, "", "1e999", "-3", "NaN", None, " 2 "]
    log = a_log(8).with_columns(clicks=pl.Series(texts), spent=pl.Series(texts[::-1]))
    found = several(experiment, log, file).read()
    assert found["outcome"].to_list() == [1.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 2.0]
    assert found["outcome 2"].to_list() == [2.0, 0.0, 0.0, 0.0, 50.0, 0.0, 0.0, 1.0]


def test_a_plan_sees_none_of_them(experiment: Builder) -> None:
    log = a_log().drop("clicks")
    frame = whole_log(
        ingest_without_outcomes(several(experiment, log).load().log_source, "once").open()
    )
    assert frame.select("outcome", "outcome 2", "outcome 3").n_unique() == 1


def test_all_are_in_the_tables(experiment: Builder) -> None:
    config = several(experiment).load()
    tables, chosen = tables_of(config)
    manifest = tables.manifest
    assert (manifest.epsilon, manifest.delta) == (2.0, 0.0)
    assert [one.metric for one in manifest.outcomes] == ["clicks", "spend", "buyer"]
    assert [one.epsilon for one in manifest.outcomes] == [0.6666666666666666] * 3
    assert [one.n_outcomes for one in manifest.outcomes] == [4, 6, 2]
    assert [one.label for one in manifest.outcomes] == ["Clicks in a week", None, None]
    assert [one.measured_in for one in manifest.outcomes] == [None, "EUR", None]
    assert [one.design.mechanism.name for one in chosen.outcomes] == ["cluster-dp"] * 3
    rows = {"outcomes": 1, "pools": 4, "debias": 4, "counts": 4}
    for name, times in rows.items():
        frame = tables.frames()[name]
        sizes = dict(frame.group_by("metric", maintain_order=True).len().iter_rows())
        k = {"clicks": 4, "spend": 6, "buyer": 2}
        assert sizes == {one: times * (1 if name == "pools" else k[one]) for one in k}, name
    assert tables.strata.height == 4
    units = made_units(tables)
    assert units.columns == [
        *("unit_id", "cluster", "arm", "clicks_randomised", "clicks_debiased"),
        *("spend_randomised", "spend_debiased", "buyer_randomised", "buyer_debiased"),
    ]
    for metric in chosen.outcomes:
        (outcome,) = metric.config.outcomes
        weights = tables.debias.filter(pl.col("metric") == outcome.name)
        pools = tables.strata.select("cluster", "arm", "pool")
        there = units.join(pools, on=["cluster", "arm"]).join(
            weights.with_columns(pl.col("pool", "arm").cast(pl.String)),
            left_on=["pool", "arm", f"{outcome.name}_randomised"],
            right_on=["pool", "arm", "outcome"],
        )
        assert there.height == units.height
        assert (there["weight"] == there[f"{outcome.name}_debiased"]).all()


def test_what_is_hardly_noised_comes_out_as_it_went_in(experiment: Builder) -> None:
    tables, _ = tables_of(several(experiment, privacy=EXACT).load())
    units = made_units(tables).sort("unit_id")
    spent = the_log()["spent"].fill_null(0.0)
    assert units["clicks_randomised"].to_list() == the_log()["clicks"].to_list()
    assert units["spend_randomised"].to_list() == spent.to_list()
    assert units["buyer_randomised"].to_list() == [min(value, 1.0) for value in spent]


def test_no_two_outcomes_share_a_random_number(experiment: Builder) -> None:
    """False alarms: fewer than 1 in 10⁹ (z = 6.2), of four outcomes of one column."""
    outcomes = [{"name": f"y{n}", "column": "spent", "values": [0, 1]} for n in range(4)]
    built = several(
        experiment,
        the_log(20_000),
        outcomes=outcomes,
        privacy={**EXACT, "resampling_probability": 0.5},
    )
    units = made_units(tables_of(built.load())[0])
    truth = the_log(20_000)["spent"].fill_null(0.0).to_numpy() > 0
    drawn = [units[f"y{n}_randomised"].to_numpy() > 0 for n in range(4)]
    kept = np.stack([each == truth for each in drawn]).astype(float)
    correlation = np.corrcoef(kept)[np.triu_indices(4, 1)]
    assert_near(correlation, 0.0, 1 / math.sqrt(units.height), 6.2)


@pytest.mark.parametrize("unit_id", ["plain", "keyed-hash"])
def test_they_are_written_in_columns_of_their_own(
    experiment: Builder, tmp_path: Path, unit_id: str
) -> None:
    publish_keys: Section = {"unit_id": unit_id}
    if unit_id == "keyed-hash":
        publish_keys = {**publish_keys, "key_file": "ids.key"}
    built = several(experiment, privacy=EXACT, publish=publish_keys)
    (built.folder / "ids.key").write_bytes(b"k" * 32)
    config, path = built.load(), tmp_path / "release.duckdb"
    with open_workspace(config.spill) as workspace:
        rows, _, _ = validate(config.log_facts, ingest(config.log_source, "once"), workspace)
        chosen = resolve_release(config, known_sizes(config.log_facts, rows))
        with new_draft(path) as draft:
            publish(privatize(chosen.config, rows, chosen.designs, NAME, workspace), draft)
    with duckdb.connect(str(path), read_only=True) as connection:
        metrics = connection.sql("SELECT metric, kind, label, measured_in FROM metrics").fetchall()
        totals = connection.sql(
            "SELECT count(*), sum(clicks_randomised), sum(spend_randomised), "
            "sum(buyer_randomised) FROM units"
        ).fetchall()
    assert metrics == [
        ("clicks", "outcome", "Clicks in a week", None),
        ("spend", "outcome", None, "EUR"),
        ("buyer", "outcome", None, None),
    ]
    spent = the_log()["spent"].fill_null(0.0)
    assert totals == [(240, the_log()["clicks"].sum(), spent.sum(), float((spent > 0).sum()))]


@pytest.mark.parametrize("mechanism", ["noisy-histogram", "noisy-horvitz-thompson"])
def test_statistics_alone_are_published_of_each(experiment: Builder, mechanism: str) -> None:
    built = several(experiment, privacy={"mechanism": mechanism, "min_stratum": 1})
    tables, _ = tables_of(built.load())
    assert tables.manifest.epsilon == 2.0
    assert [one.epsilon for one in tables.manifest.outcomes] == [0.6666666666666666] * 3
    assert tables.pools["metric"].unique(maintain_order=True).to_list() == [
        *("clicks", "spend", "buyer"),
    ]
    assert (tables.counts.height > 0) == (mechanism == "noisy-histogram")
    assert "spend_debiased" in made_units(tables).columns


def test_clusters_are_randomised_once_for_all(experiment: Builder) -> None:
    built = several(
        experiment,
        arms={"same_shares": True},
        private_clusters={"epsilon": 0.5, "labels": ["east", "west"]},
    )
    tables, _ = tables_of(built.load())
    assert (tables.manifest.epsilon, tables.manifest.cluster_epsilon) == (2.0, 0.5)
    assert [one.epsilon for one in tables.manifest.outcomes] == [0.5] * 3
    assert tables.strata["n_units"].sum() == made_units(tables).height


def test_planned_outcomes_have_designs_and_shares_of_their_own(experiment: Builder) -> None:
    outcomes = [{**one, "share": "auto"} for one in OUTCOMES]
    built = several(experiment, the_log(2_000), outcomes=outcomes, privacy={"mechanism": "auto"})
    tables, chosen = tables_of(built.load())
    shares = [one.share for one in chosen.config.named_outcomes]
    assert sum(map(float, shares)) == 1.0  # type: ignore[arg-type] # they are numbers now
    assert tables.manifest.epsilon == 2.0
    assert len({one.epsilon for one in tables.manifest.outcomes}) > 1


# events


TENS: Section = {"low": 0, "high": 100, "levels": 11}
EVENTS = (
    "customer,ts,clicks,spent\n"
    "c00000,2026-01-01T10:00:00,1,10\n"
    "c00000,2026-01-01T11:00:00,2,\n"
    "c00001,2026-01-01T12:00:00,,30\n"
    "c00001,2026-01-01T13:00:00,,40\n"
    "c00001,2026-02-01T13:00:00,3,50\n"  # after the window
    "c00002,2026-01-01T13:00:00,x,y\n"
)


def test_events_come_to_each_outcome_by_its_own_aggregate(experiment: Builder) -> None:
    log = a_log(8).drop("clicks").with_columns(ts=pl.lit("2026-01-01T09:00:00"))
    outcomes = [
        {"name": "n", "values": list(range(9)), "aggregate": "count"},
        {"name": "total", "column": "spent", **TENS, "aggregate": "sum"},
        {"name": "capped", "column": "spent", **TENS, "aggregate": "sum", "cap": 20.0},
        {"name": "most", "column": "clicks", "values": [0, 1, 2, 3], "aggregate": "max"},
        {"name": "buyer", "column": "spent", "values": [0, 1], "aggregate": "any"},
    ]
    built = several(
        experiment,
        {"log.csv": log.write_csv(), "events.csv": EVENTS},
        "log.csv",
        outcomes=outcomes,
        columns={"time": "ts"},
        source={"grain": "event", "outcomes_path": "events.csv", "window": "7d"},
        privacy=EXACT,
    )
    config = built.load()
    with open_workspace(config.spill) as workspace:
        rows, _, _ = validate(config.log_facts, ingest(config.log_source, "once"), workspace)
        frame = pl.concat(rows.open().frames()).sort("unit")
    found = {name: frame[name].to_list()[:3] for name in frame.columns if "outcome" in name}
    assert found == {
        "outcome": [2.0, 2.0, 1.0],
        "outcome 2": [10.0, 70.0, 0.0],
        "outcome 3": [10.0, 20.0, 0.0],
        "outcome 4": [2.0, 0.0, 0.0],
        "outcome 5": [1.0, 1.0, 0.0],
    }
