"""Attributes from the log to the opened file: types, nulls, files that differ, orders of rows."""

import datetime

import duckdb
import polars as pl
import pytest

from flows.cli.night.released import inspect_text
from flows.released.estimates.by_attribute import estimate_by
from flows.released.estimates.release import estimate_file
from flows.released.export import export
from flows.released.file.read import read_release
from schemas.errors import InputError
from tests.conftest import Builder, Content, Section, a_log, released
from tests.flows.test_init import spoil

KEYED: Section = {"columns": {"attributes": ["country", "age"]}}


def with_facts(n_units: int = 240) -> pl.DataFrame:
    """A log with attributes of every type, some of them missing."""
    log = a_log(n_units)
    place = pl.int_range(n_units)
    return log.with_columns(
        pl.when(place % 7 != 0).then(pl.concat_str(pl.lit("land "), place % 5)).alias("country"),
        pl.when(place % 11 != 0).then(place % 90).cast(pl.Int16).alias("age"),
        pl.when(place % 3 != 0).then(place / 8).otherwise(float("nan")).alias("score"),
        (place % 2 == 0).alias("app"),
        pl.lit(datetime.date(2026, 11, 1)).dt.offset_by("2d").alias("since"),
        (place.cast(pl.UInt64) + 2**63).alias("number"),
    )


NAMES = ["country", "age", "score", "app", "since", "number"]
KINDS = ["VARCHAR", "BIGINT", "DOUBLE", "BOOLEAN", "DATE", "UBIGINT"]


def test_attributes_are_published_as_they_are(experiment: Builder) -> None:
    log = with_facts()
    built = experiment(log, columns={"attributes": NAMES})
    path = built.run().path
    found = released(path, "units").sort("unit_id")
    of_outcome = ["outcome", "outcome_randomised", "outcome_debiased", "weight"]
    assert found.columns[3:] == [*of_outcome, *NAMES]
    expected = log.sort("customer").with_columns(pl.col("score").fill_nan(None))
    assert found.select(NAMES).equals(expected.with_columns(pl.col("age").cast(pl.Int64))[NAMES])
    manifest = read_release(path).manifest
    assert (manifest.attributes, manifest.assigned) == (tuple(NAMES), False)
    with duckdb.connect(str(path), read_only=True) as connection:
        columns = connection.sql(
            "SELECT column_name, data_type, comment FROM duckdb_columns() "
            "WHERE table_name = 'units' AND schema_name = 'main' ORDER BY column_index"
        ).fetchall()
    assert [kind for _, kind, _ in columns[7:]] == KINDS
    assert all("public fact" in comment for *_, comment in columns[7:])
    assert built.run().status == "unchanged"


@pytest.mark.parametrize("file", ["log.parquet", "log.csv", "log.jsonl"])
def test_an_attribute_is_published_under_a_name_of_its_own(experiment: Builder, file: str) -> None:
    log = a_log(60).with_columns(pl.Series("Back After 7d", ["yes", "no", None] * 20), age="region")
    named = {"back": "Back After 7d", "where": "region", "age": "age"}
    built = experiment(log, file, columns={"attributes": named, "cluster": None})
    path = built.run().path
    found = released(path, "units").sort("unit_id")
    assert found.columns[-3:] == ["back", "where", "age"]
    assert found["back"].equals(log.sort("customer")["Back After 7d"], check_names=False)
    assert found["where"].equals(log.sort("customer")["region"], check_names=False)
    assert read_release(path).manifest.attributes == ("back", "where", "age")
    by_value = estimate_by(path, "back").estimates
    assert {one.segment for one in by_value} == {"yes", "no", "(none)"}
    with duckdb.connect(str(path), read_only=True) as connection:
        assert len(connection.sql("FROM ate_by('back')").fetchall()) == len(by_value)
    assert built.run().status == "unchanged"


def test_the_column_of_an_attribute_that_is_not_there_is_named(experiment: Builder) -> None:
    built = experiment(a_log(), columns={"attributes": {"back": "Back After 7d"}})
    with pytest.raises(InputError, match="'Back After 7d'") as caught:
        built.run()
    assert caught.value.key == "columns.attributes"


@pytest.mark.parametrize("file", ["log.csv", "log.jsonl", "log.csv.gz"])
def test_text_formats_give_text(experiment: Builder, file: str) -> None:
    log = with_facts().drop("since", "number", "score")
    built = experiment(log, file, columns={"attributes": ["age", "country", "app"]})
    found = released(built.run().path, "units").sort("unit_id")
    expected = log.sort("customer").with_columns(pl.col("age", "app").cast(pl.String))
    assert found.select("age", "country", "app").equals(expected.select("age", "country", "app"))


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        (pl.Int32, pl.Int64, "BIGINT"),
        (pl.UInt8, pl.Int64, "BIGINT"),
        (pl.Int64, pl.Float32, "DOUBLE"),
        (pl.Int64, pl.Decimal(38, 2), "DOUBLE"),
        (pl.Int64, pl.String, "VARCHAR"),
        (pl.Boolean, pl.Int64, "VARCHAR"),
        (pl.UInt64, pl.Int64, "VARCHAR"),
        (pl.Categorical, pl.String, "VARCHAR"),
        (pl.Int64, pl.Null, "BIGINT"),
        (pl.Null, pl.Null, "VARCHAR"),
    ],
)
def test_files_that_differ_have_one_type(
    experiment: Builder, one: pl.DataType, other: pl.DataType, kind: str
) -> None:
    log = a_log(80)
    ones = pl.Series("size", [1] * 40)
    files: dict[str, Content] = {}
    for name, rows, dtype in (("1", log[:40], one), ("2", log[40:], other)):
        values = ones.cast(pl.String) if dtype == pl.Categorical else ones
        column = pl.Series("size", [None] * 40) if dtype == pl.Null else values.cast(dtype)
        files[f"log/{name}.parquet"] = rows.with_columns(column)
    built = experiment(files, source={"path": "log/*.parquet"}, columns={"attributes": ["size"]})
    path = built.run().path
    with duckdb.connect(str(path), read_only=True) as connection:
        assert str(connection.sql("SELECT size FROM units").types[0]) == kind
    n_null = 40 * (one, other).count(pl.Null)
    assert released(path, "units")["size"].null_count() == n_null


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pl.Series([[1]] * 8), "List"),
        (pl.Series([{"a": 1}] * 8), "Struct"),
        (pl.Series([b"x"] * 8), "Binary"),
        (pl.Series([datetime.datetime(2026, 1, 1)] * 8), "Datetime"),
        (pl.Series([datetime.time(1)] * 8), "Time"),
    ],
)
def test_other_types_are_refused_by_name(experiment: Builder, column: pl.Series, kind: str) -> None:
    built = experiment(a_log(8).with_columns(column.alias("x")), columns={"attributes": ["x"]})
    with pytest.raises(InputError, match=rf"'x' \(columns.attributes\) is {kind}") as caught:
        built.run()
    assert (caught.value.key, caught.value.exit_code) == ("columns.attributes", 2)


@pytest.mark.parametrize("file", ["log.parquet", "log.csv"])
@pytest.mark.parametrize("key", ["attributes", "assigned_by"])
def test_a_missing_column_is_named_with_its_key(experiment: Builder, file: str, key: str) -> None:
    columns = {key: ["country"] if key == "attributes" else "country"}
    built = experiment(a_log(8), file, columns=columns)
    with pytest.raises(InputError, match=rf"no column 'country' \(columns.{key}\)") as caught:
        built.check()
    assert caught.value.key == f"columns.{key}"


# columns that were not named


def test_a_column_that_was_not_named_is_never_read(experiment: Builder) -> None:
    log = with_facts().with_columns(pl.lit("secret").alias("income"))
    built = experiment(log, **KEYED)
    spoil(built.folder / "log.parquet", "income")
    found = released(built.run().path, "units")
    assert found.columns[-2:] == ["country", "age"]
    named = experiment(log, columns={"attributes": ["country", "income"]})
    spoil(named.folder / "log.parquet", "income")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        named.run()


def test_no_outcome_takes_part_in_types(experiment: Builder) -> None:
    log = with_facts()
    units = []
    for file in ("log.csv", "log.jsonl"):
        for clicks in (pl.lit("1"), pl.lit('x,y\n"z'), pl.lit(None, pl.String)):
            built = experiment(log.with_columns(clicks=clicks), file, **KEYED)
            units.append(released(built.run(revise=True).path, "units"))
    facts = [one.sort("unit_id").select("unit_id", "country", "age") for one in units]
    assert all(one.equals(facts[0]) for one in facts)


def test_a_million_values_of_an_attribute(experiment: Builder) -> None:
    n = 1_000_000
    place = pl.int_range(n)
    log = pl.DataFrame({"customer": range(n)}).with_columns(
        pl.when(place % 2 == 0).then(pl.lit("none")).otherwise(pl.lit("mail")).alias("variant"),
        pl.lit("east").alias("region"),
        (place % 4).cast(pl.Float64).alias("clicks"),
        pl.concat_str(pl.lit("value number "), n - place).alias("country"),
        place.alias("age"),
    )
    built = experiment(log, **KEYED, run={"memory_limit": "100MB"})
    query = """
        SELECT count(*) AS n, count(DISTINCT country) AS n_values, bool_and(
            country = 'value number ' || (1_000_000 - unit_id) AND age = unit_id
        ) AS sound FROM units"""
    (row,) = released(built.run().path, query).to_dicts()
    assert row == {"n": n, "n_values": n, "sound": True}


# events


def test_attributes_of_events_are_those_of_the_first_exposure(experiment: Builder) -> None:
    seen = pl.DataFrame(
        {
            "customer": ["a", "a", "b", "b", "c", "d", "d"],
            "variant": ["none", "none", "mail", "mail", "mail", "none", "none"],
            "region": ["east"] * 7,
            "ts": [f"2026-11-0{day}" for day in (2, 1, 1, 2, 1, 1, 2)],
            "country": ["late", "first", None, "late", "first", "same", "same"],
            "home": ["h2", "h1", "h3", "h3", "h3", "h1", "h1"],
        }
    )
    events = pl.DataFrame({"customer": ["a"], "ts": ["2026-11-03"], "clicks": [1.0]})
    built = experiment(
        {"seen.parquet": seen, "events.parquet": events},
        source={"path": "seen.parquet", "grain": "event", "outcomes_path": "events.parquet"},
        columns={"time": "ts", "attributes": ["country"], "assigned_by": "home"},
        outcome={"aggregate": "count"},
    )
    result = built.run()
    units = released(result.path, "units").sort("unit_id")
    assert units["country"].to_list() == ["first", None, "first", "same"]
    groups = units["assigned_to"].to_list()
    assert groups[0] == groups[3] != groups[1] == groups[2]
    assert result.roster.attribute_changed == 2
    assert result.as_json()["attribute_changed"] == 2
    assert any("attribute_changed: 2 unit(s)" in one for one in result.warnings)
    assert built.check().as_json()["attribute_changed"] == 2


# what reads releases

ODD = [
    *("pool", "metric", "n_units", "probability", "estimate", "estimator", "unit", "key"),
    *("u", "s", "d", "n", "m", "t", "r", "code", "stratum", "low", "high", "control", "kind"),
    *("mean", "effect", "order", "select", "position", "cells", "y", "a", "b", "c", "g"),
]
"""Columns of other tables, and names that queries use."""


def test_no_name_of_an_attribute_gets_in_the_way(experiment: Builder) -> None:
    log = a_log(400)
    facts = [pl.concat_str(pl.lit(f"{name} "), pl.int_range(400) % 3).alias(name) for name in ODD]
    path = experiment(log.with_columns(facts), columns={"attributes": ODD}).run().path
    stated = {(one.arm, one.estimator): one.estimate for one in estimate_file(path)}
    with duckdb.connect(str(path), read_only=True) as connection:
        connection.execute("CREATE TEMP TABLE mine AS SELECT unit_id, pool AS segment FROM units")
        shown = connection.sql("SELECT arm, estimator, estimate FROM ate()").fetchall()
        by_segment = "SELECT DISTINCT segment FROM ate_by_segment('mine') ORDER BY 1"
        segments = connection.sql(by_segment).fetchall()
    assert {(arm, name): value for arm, name, value in shown} == pytest.approx(stated)
    assert segments == [("pool 0",), ("pool 1",), ("pool 2",)]
    exported = path.parent / "units.parquet"
    assert export(path, exported).n_rows == 400
    assert pl.read_parquet(exported).columns[7:] == ODD
    assert "attributes (pool, metric" in " ".join(inspect_text(read_release(path)).split())


def test_attributes_follow_all_of_several_outcomes(experiment: Builder) -> None:
    log = a_log(400).with_columns(
        pl.lit("de").alias("country"),
        pl.concat_str(pl.col("variant"), pl.int_range(400) % 50).alias("home"),
    )
    columns = {"outcome": None, "attributes": ["country"], "assigned_by": "home"}
    built = experiment(log, columns=columns)
    written = built.config.read_text().replace("[outcome]\nvalues = [0, 1, 2, 3]\n", "")
    built.config.write_text(
        written
        + '[[outcomes]]\nname = "any"\ncolumn = "clicks"\nvalues = [0, 1]\n'
        + '[[outcomes]]\nname = "clicks"\ncolumn = "clicks"\nvalues = [0, 1, 2, 3]\n'
    )
    result = built.run()
    names = released(result.path, "units").columns
    assert names[3:] == [
        *("any", "any_randomised", "any_debiased"),
        *("clicks", "clicks_randomised", "clicks_debiased"),
        "weight",
        "country",
        "assigned_to",
    ]
    manifest = read_release(result.path).manifest
    assert (manifest.attributes, manifest.assigned) == (("country",), True)
