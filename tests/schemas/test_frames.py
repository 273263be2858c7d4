"""Pandera judges what crosses the boundary: every kind of broken frame, told without a value."""

from collections.abc import Callable
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pandera.errors import SchemaErrors

from schemas.errors import InputError
from schemas.frames import judge, judge_of_units
from schemas.raw import ARM, CLUSTER, OUTCOME, UNIT, Values
from schemas.raw_frame import broken, fits, fits_model
from schemas.released import no_rows
from schemas.tables import SCHEMA
from tests.conftest import Builder, a_log, build_experiment

SECRET = 987_654.25


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    """The tables of a sound release, as they were judged."""
    built = build_experiment(tmp_path_factory.mktemp("frames"), a_log(240))
    with duckdb.connect(str(built.run().path), read_only=True) as connection:
        return {
            name: connection.sql(f"FROM {name}").pl().cast(dict(no_rows(name).schema))
            for name in SCHEMA
            if name != "units"
        }


def test_a_sound_release_passes(published: dict[str, pl.DataFrame]) -> None:
    for name, frame in published.items():
        judge(name, frame)


def value(column: str, new: object) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """The first row with another value."""

    def broken(frame: pl.DataFrame) -> pl.DataFrame:
        kind = frame.schema[column]
        first = pl.int_range(pl.len()) == 0
        return frame.with_columns(
            pl.when(first).then(pl.lit(new, dtype=kind)).otherwise(pl.col(column)).alias(column)
        )

    return broken


BROKEN: list[tuple[str, Callable[[pl.DataFrame], pl.DataFrame], str]] = [
    ("release", value("epsilon", -SECRET), "epsilon: from 0"),
    ("release", value("epsilon", float("nan")), "epsilon: from 0"),
    ("release", value("delta", SECRET), "delta: from 0 to 1"),
    ("release", value("n_units", -1), "n_units: from 0"),
    ("release", value("control", None), "control: is there"),
    ("release", lambda frame: frame.drop("neighbours"), "column_not_in_dataframe"),
    ("release", lambda frame: frame.with_columns(raw=pl.lit(SECRET)), "column_not_in_schema"),
    ("release", lambda frame: frame.select(*reversed(frame.columns)), "column_not_ordered"),
    ("metrics", value("metric", ""), "metric: is not empty"),
    ("metrics", value("resampling_probability", 1.5), "resampling_probability: from 0 to 1"),
    ("metrics", value("noise_scale", -1.0), "noise_scale: from 0"),
    ("outcomes", value("outcome", float("nan")), "outcome: is a number"),
    ("outcomes", value("outcome", None), "outcome: is a number"),
    ("pools", value("n_units", -3), "n_units: from 0"),
    ("pools", value("pool", ""), "pool: is not empty"),
    ("pools", lambda frame: frame.cast({"n_units": pl.Float64}), "n_units: wrong_datatype"),
    ("strata", value("cluster", None), "cluster: is not empty"),
    ("strata", value("n_units", None), "n_units: from 0"),
    ("debias", value("probability", 1.01), "probability: from 0 to 1"),
    ("debias", value("weight", float("nan")), "weight: is a number"),
    ("counts", value("noisy_count", None), "noisy_count: is there"),
    ("estimates", value("p_value", SECRET), "p_value: from 0 to 1"),
    ("estimates", value("std_error", -SECRET), "std_error: from 0"),
    ("estimates", value("estimate", None), "estimate: is a number"),
    ("means", value("arm", None), "arm: is not empty"),
    ("ends", value("share", float("nan")), "share: is a number"),
]


@pytest.mark.parametrize(
    ("table", "broken", "says"), BROKEN, ids=[f"{a}: {c}" for a, _, c in BROKEN]
)
def test_a_broken_frame_is_refused_by_table_and_rule_without_a_value(
    published: dict[str, pl.DataFrame],
    table: str,
    broken: Callable[[pl.DataFrame], pl.DataFrame],
    says: str,
) -> None:
    with pytest.raises(InputError) as refused:
        judge(table, broken(published[table]))
    said = str(refused.value)
    assert said.startswith(f"{table}: what is to be published breaks its schema: ")
    assert says in said
    assert "987" not in said


def randomiser(*probabilities: float) -> pl.DataFrame:
    rows = [
        {"metric": "m", "table": 0, "outcome": 0.0, "output": float(at), "probability": one}
        for at, one in enumerate(probabilities)
    ]
    return pl.DataFrame(rows, schema=no_rows("randomiser").schema)


@pytest.mark.parametrize("column", ["metric", "pool", "arm"])
@pytest.mark.parametrize("wrong", ["", None])
def test_labels_that_are_an_enum_are_judged_as_text_is(
    published: dict[str, pl.DataFrame], column: str, wrong: str | None
) -> None:
    """A run hands them over so; a label that no row has may be empty."""
    frame = published["counts"]
    kind = pl.Enum(["", *frame[column].unique().to_list()])
    coded = frame.with_columns(pl.col(column).cast(kind))
    judge("counts", coded)
    with pytest.raises(InputError, match=rf"counts: .*: {column}: is not empty \(1 rows"):
        judge("counts", value(column, wrong)(coded))


def test_rows_of_a_randomiser_add_up_to_one() -> None:
    judge("randomiser", randomiser(0.1, 0.2, 0.7))
    with pytest.raises(InputError, match=r"adds up to one \(2 rows do not\)"):
        judge("randomiser", randomiser(0.5, 0.5 + 1e-6))


# units, while they are written


def units(**other: Any) -> pa.RecordBatch:
    columns = {
        "unit_id": ["a", "b"], "_stratum": pa.array([0, 1], pa.uint32()),
        "spend_randomised": [0.0, 1.0],
    } | other  # fmt: skip
    return pa.record_batch(
        {
            name: values if isinstance(values, pa.Array) else pa.array(values)
            for name, values in columns.items()
        }
    )


def judged(batch: pa.RecordBatch, failures: list[BaseException]) -> pa.RecordBatch:
    return judge_of_units(batch["unit_id"].type, {"spend": (0.0, 1.0)}, failures)(batch)


def test_sound_units_are_passed_on_as_they_are() -> None:
    failures: list[BaseException] = []
    assert judged(units(), failures).equals(units())
    judged(units(unit_id=[1, 2]), failures)
    assert failures == []


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"unit_id": ["", "b"]}, "unit_id: is not empty (1 rows"),
        ({"unit_id": [None, 2]}, "unit_id: is there"),
        ({"_stratum": pa.array([0, None], pa.uint32())}, "_stratum: is there"),
        ({"_stratum": [0, 1]}, "_stratum: wrong_datatype"),
        ({"spend_randomised": [0.0, SECRET]}, "spend_randomised: from 0 to 1 (1 rows"),
        ({"spend_randomised": [0.0, None]}, "spend_randomised: from 0 to 1"),
        ({"spend_randomised": [0.0, float("nan")]}, "spend_randomised: from 0 to 1"),
        ({"spend_randomised": [0, 1]}, "spend_randomised: wrong_datatype"),
    ],
)
def test_broken_units_are_refused(other: dict[str, Any], says: str) -> None:
    failures: list[BaseException] = []
    with pytest.raises(InputError) as refused:
        judged(units(**other), failures)
    assert says in str(refused.value)
    assert "987" not in str(refused.value)
    assert failures == [refused.value]


def test_a_draft_with_a_broken_table_does_not_become_public(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever step breaks it: here units, which are judged while DuckDB reads them."""
    built = experiment()
    first = built.run("first")
    released = built.entries

    def of_another(
        ids: pa.DataType, ranges: Any, failures: list[BaseException]
    ) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        return judge_of_units(ids, dict.fromkeys(ranges, (SECRET, SECRET)), failures)

    monkeypatch.setattr("schemas.frames.judge_of_units", of_another)
    with pytest.raises(InputError, match="units: what is to be published breaks its schema"):
        built.run("second")
    assert [path.name for path in built.releases.glob("*second*")] == []
    assert first.path.exists()
    assert len(built.entries) == len(released)


# rows of a log, inside the boundary


def kept(**other: pl.Series) -> pl.DataFrame:
    frame = pl.DataFrame(
        {
            UNIT: ["a", "b"],
            ARM: pl.Series(["x", "y"], dtype=pl.Enum(["x", "y"])),
            CLUSTER: pl.Series(["all", "all"], dtype=pl.Categorical),
            OUTCOME: [0.0, 1.0],
        }
    )
    return frame.with_columns(**other)


MODEL: dict[str, Values] = {"treated": pl.Boolean(), OUTCOME: (-1.0, 1.0), "feature_0": pl.UInt8()}


@pytest.mark.parametrize(
    ("other", "kind"),
    [
        ({UNIT: ["b", "a"]}, "DATAFRAME_CHECK"),
        ({UNIT: [None, "a"]}, "SERIES_CONTAINS_NULLS"),
        ({OUTCOME: [0.5, 1.5]}, "DATAFRAME_CHECK"),
        ({OUTCOME: [0.5, float("nan")]}, "DATAFRAME_CHECK"),
        ({"treated": [None, True]}, "SERIES_CONTAINS_NULLS"),
        ({"feature_0": [0.5, 1.0]}, "WRONG_DATATYPE"),
        ({"arm": ["x", "y"]}, "COLUMN_NOT_IN_SCHEMA"),
    ],
)
def test_rows_of_an_effect_model_are_told_by_kinds_of_rules(
    other: dict[str, Any], kind: str
) -> None:
    columns = {UNIT: ["a", "b"], "treated": [True, False], OUTCOME: [-1.0, 1.0]}
    sound = pl.DataFrame(columns).with_columns(feature_0=pl.Series([0, 1], dtype=pl.UInt8))
    assert broken(fits_model(MODEL, named=True), sound) == []
    assert broken(fits_model(MODEL, named=False), sound.drop(UNIT)) == []
    changed = sound.with_columns(**{name: pl.Series(values) for name, values in other.items()})
    assert kind in broken(fits_model(MODEL, named=True), changed)


@pytest.mark.parametrize(
    ("other", "rule"),
    [
        ({UNIT: pl.Series(["", "b"])}, "not empty"),
        ({UNIT: pl.Series(["b", "a"])}, "rises"),
        ({UNIT: pl.Series(["a", "a"])}, "rises"),
        ({UNIT: pl.Series(["a", None])}, "not_nullable"),
        ({ARM: pl.Series(["x", "z"], dtype=pl.Enum(["x", "z"]))}, "dtype"),
        ({CLUSTER: pl.Series(["all", None], dtype=pl.Categorical)}, "not_nullable"),
        ({OUTCOME: pl.Series([0.0, 1e9])}, "in_range"),
        ({OUTCOME: pl.Series([-0.5, 1.0])}, "in_range"),
        ({OUTCOME: pl.Series([0.0, None])}, "not_nullable"),
        ({OUTCOME: pl.Series([0.0, float("nan")])}, "in_range"),
        ({"more": pl.Series([1, 2])}, "column_in_schema"),
    ],
)
def test_rows_that_break_a_rule_are_refused(other: dict[str, pl.Series], rule: str) -> None:
    schema = fits(("x", "y"), ranges=[(0.0, 1.0)])
    schema.validate(kept(), lazy=True)
    with pytest.raises(SchemaErrors) as refused:
        schema.validate(kept(**other), lazy=True)
    assert any(rule in str(one.check) for one in refused.value.schema_errors)
