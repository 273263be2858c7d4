"""What the private steps are given of a log: outcomes as numbers, whatever they are in files."""

import polars as pl
import pytest

from schemas.errors import InputError
from tests.conftest import EXACT, Builder, a_log, released

TEXTS = {0.0: "never", 1.0: " rarely", 2.0: "often", 3.0: "Often"}
OFTEN = {"values": ["never", "rarely", "often"], "scores": [0, 1, 5], "missing": "rarely"}
AS_NUMBERS = {0.0: 0.0, 1.0: 1.0, 2.0: 5.0, 3.0: 1.0}


def with_texts() -> pl.DataFrame:
    texts = pl.col("clicks").replace_strict(TEXTS, return_dtype=pl.String)
    return a_log().with_columns(texts)


def meant() -> list[float]:
    return a_log()["clicks"].replace_strict(AS_NUMBERS).to_list()


@pytest.mark.parametrize("file", ["log.parquet", "log.csv", "log.csv.gz", "log.jsonl"])
def test_texts_are_numbers_in_every_format(experiment: Builder, file: str) -> None:
    assert experiment(with_texts(), file, outcome=OFTEN).read()["outcome"].to_list() == meant()


def test_coded_texts_are_too(experiment: Builder) -> None:
    log = with_texts().with_columns(pl.col("clicks").cast(pl.Categorical))
    assert experiment(log, outcome=OFTEN).read()["outcome"].to_list() == meant()


@pytest.mark.parametrize("file", ["log.parquet", "log.csv", "log.jsonl"])
def test_truth_values_are_too(experiment: Builder, file: str) -> None:
    log = a_log().with_columns(pl.col("clicks") > 1)
    built = experiment(log, file, outcome={"values": ["false", "true"]})
    assert built.read()["outcome"].to_list() == log["clicks"].cast(pl.Float64).to_list()


def test_numbers_are_none_of_the_texts(experiment: Builder) -> None:
    """Nor a reason to fail: one unit's outcome may decide the type of the column."""
    assert experiment(outcome=OFTEN).read()["outcome"].unique().to_list() == [1.0]


@pytest.mark.parametrize(
    ("aggregate", "value"), [("any", 1.0), ("count", 2.0), ("sum", 4.0), ("max", 3.0)]
)
def test_events_come_to_the_aggregate_of_their_numbers(
    experiment: Builder, aggregate: str, value: float
) -> None:
    """Of one unit: a day's "rarely", a day's "often", and what is none of the texts."""
    at = "2026-11-21T00:00:00"
    exposures = a_log(40).drop("clicks").with_columns(pl.lit("2026-11-20T00:00:00").alias("ts"))
    said = ["rarely", "often", "always"]
    events = pl.DataFrame({"customer": "c00003", "ts": at, "clicks": said})
    built = experiment(
        {"log.csv": exposures, "events.csv": events},
        source={"path": "log.csv", "grain": "event", "outcomes_path": "events.csv"},
        columns={"time": "ts"},
        outcome={
            "values": ["never", "rarely", "now and then", "often", "daily"],
            "scores": [0, 1, 2, 3, 4],
            "aggregate": aggregate,
        },
        privacy=EXACT,
    )
    found = released(built.run().path, "units")
    outcomes = dict(found.select("unit_id", "outcome_randomised").iter_rows())
    assert outcomes.pop("c00003") == value
    assert set(outcomes.values()) == {0.0}


def test_a_column_of_several_outcomes_that_is_not_there_is_told_by_its_key(
    experiment: Builder,
) -> None:
    outcomes = [
        {"name": "clicks", "column": "clicks", "values": [0, 1]},
        {"name": "spend", "column": "spent", "values": [0, 1]},
    ]
    built = experiment(a_log(8), columns={"outcome": None}, outcome=None, outcomes=outcomes)
    with pytest.raises(InputError, match="no column 'spent'") as caught:
        built.check()
    assert caught.value.key == "outcomes[1].column"
