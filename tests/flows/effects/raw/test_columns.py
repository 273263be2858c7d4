"""Rows of a log as rows of a model: within bounds, or zeros; no value makes it fail."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from flows.effects.raw.units import EffectUnits, arrange, ingest_effects
from flows.raw.boundary.sealed import Sealed
from flows.raw.spill.workspace import open_workspace
from privatizers.effects.models.rows import EffectRows
from schemas.errors import InputError
from tests.effect_logs import AtHome, Campaign, campaign, people

__all__ = ["campaign"]  # a fixture


def read(built: AtHome) -> EffectRows:
    """All rows of a log, as one batch."""
    config = built.load()
    with open_workspace(config.spill) as workspace:
        units, _, _ = arrange(config, ingest_effects(config, config.log_source, "once"), workspace)
        (rows,) = opened(units).batches(10_000)
    return rows


def opened(units: Sealed[EffectUnits]) -> EffectUnits:
    return units.open()


def log(**columns: list[Any]) -> pl.DataFrame:
    """Rows without a fault but for the columns that are given."""
    n_rows = len(next(iter(columns.values())))
    sound = {
        "id": [f"u{row}" for row in range(n_rows)],
        "arm": ["none"] * n_rows,
        "spend": [1.0] * n_rows,
        "age": [30.0] * n_rows,
        "sex": ["f"] * n_rows,
    }
    return pl.DataFrame(sound | columns, strict=False)


AS_TEXT = pytest.mark.parametrize("file", ["log.parquet", "log.csv", "log.jsonl", "log.csv.gz"])


@AS_TEXT
def test_numbers_are_positions_between_bounds(campaign: Campaign, file: str) -> None:
    rows = read(campaign(log(age=[20.0, 30.0, 60.0, -5.0, 1e300, 59.5]), file))
    assert rows.complete.all()
    assert rows.features[:, 0].tolist() == [0.0, 0.25, 1.0, 0.0, 1.0, 39.5 / 40]


@AS_TEXT
def test_levels_are_their_numbers_and_others_a_fault(campaign: Campaign, file: str) -> None:
    rows = read(campaign(log(sex=["f", "m", "x", "", None, "F"]), file))
    assert rows.complete.tolist() == [True, True, False, False, False, False]
    assert rows.features[:, 1].tolist() == [0, 1, 0, 0, 0, 0]


@AS_TEXT
def test_outcomes_lie_between_minus_and_plus_one(campaign: Campaign, file: str) -> None:
    spends = [-1.0, 3.0, 1.0, 99.0, -1e300, None]
    rows = read(campaign(log(spend=spends), file))
    assert rows.complete.all()
    assert rows.outcome.tolist() == [-1.0, 1.0, 0.0, 1.0, -1.0, -1.0]


def test_a_missing_outcome_counts_as_declared(campaign: Campaign) -> None:
    built = campaign(log(spend=["nonsense", None, "nan", " 2 ", "true"]))
    built.edit("high = 3.0", "high = 3.0\nmissing = 3.0")
    assert read(built).outcome.tolist() == [1.0, 1.0, 1.0, 0.5, 0.0]


@AS_TEXT
def test_a_row_of_another_arm_is_all_zeros(campaign: Campaign, file: str) -> None:
    arms = ["none", "mail", "call", None, "", "Mail"]
    rows = read(campaign(log(arm=arms, spend=[3.0] * 6), file))
    assert rows.complete.tolist() == [True, True, False, False, False, False]
    assert rows.treated.tolist() == [False, True, False, False, False, False]
    assert rows.outcome.tolist() == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert not rows.features[2:].any()


def test_arms_and_levels_may_be_numbers(campaign: Campaign) -> None:
    built = campaign(log(arm=[0.0, 1.0, None, 0.5], sex=[1, 2, 1, 1]))
    built.edit('control = "none"\ntreatments = ["mail"]', 'control = "0"\ntreatments = ["1"]')
    built.edit('levels = ["f", "m"]', "levels = [1, 2]")
    rows = read(built)
    assert rows.complete.tolist() == [True, True, False, False]
    assert rows.features[:2, 1].tolist() == [0, 1]


def test_missing_and_other_values_count_as_declared(campaign: Campaign) -> None:
    built = campaign(log(age=["x", None, "30", "nan"], sex=["f", None, "other", ""]))
    built.edit("high = 60", "high = 60\nmissing = 40")
    built.edit('levels = ["f", "m"]', 'levels = ["f", "m"]\nother = "f"\nmissing = "m"')
    rows = read(built)
    assert rows.complete.all()
    assert rows.features.tolist() == [[0.5, 0], [0.5, 1], [0.25, 0], [0.5, 1]]
    built.edit('\nmissing = "m"', "")  # a missing value is no other value
    assert read(built).complete.tolist() == [True, False, True, False]


def test_a_missing_number_without_a_declared_value_is_a_fault(campaign: Campaign) -> None:
    rows = read(campaign(log(age=["x", None, "30", "inf", "-inf"])))
    assert rows.complete.tolist() == [False, False, True, True, True]
    assert rows.features[:, 0].tolist() == [0.0, 0.0, 0.25, 1.0, 0.0]


def test_a_column_of_propensities_is_clipped(campaign: Campaign) -> None:
    shares = [0.5, 0.0, 1.0, 7.0, None, "x"]
    built = campaign(
        log(age=[30.0] * 6).with_columns(p=pl.Series(shares, dtype=pl.String, strict=False)),
        propensity='column = "p"\nbound = 0.1',
    )
    rows = read(built)
    assert rows.propensity is not None
    assert rows.complete.tolist() == [True] * 4 + [False] * 2
    assert rows.propensity.tolist() == [0.5, 0.1, 0.9, 0.9, 0.0, 0.0]
    assert read(campaign(name="constant")).propensity is None


def test_the_logarithm_of_a_number(campaign: Campaign) -> None:
    built = campaign(log(age=[1.0, 10.0, 100.0, 0.0, -1.0]))
    built.edit("low = 20\nhigh = 60", 'low = 1\nhigh = 100\nscale = "log"')
    built.edit("edges = [40]", "edges = [10]")
    assert read(built).features[:, 0].tolist() == pytest.approx([0.0, 0.5, 1.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("arm", [[1]], "column 'arm' \\(arm\\) is List"),
        ("age", [[1.0]], "column 'age' \\(feature\\) is List"),
        ("sex", [["f"]], "column 'sex' \\(feature\\) is List"),
        ("spend", [[1.0]], "column 'spend' \\(outcome\\) is List"),
        ("id", [1.5], "column 'id' \\(unit\\) is Float64"),
    ],
)
def test_a_type_that_cannot_be_meant_is_refused(
    campaign: Campaign, column: str, values: list[Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read(campaign(log(**{column: values})))


def test_missing_columns_files_and_rows_are_refused(campaign: Campaign, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no column 'sex'"):
        read(campaign(people().drop("sex")))
    with pytest.raises(InputError, match="the log is empty: no row in "):
        read(campaign(people().clear(), name="empty"))
    gone = campaign(name="gone")
    (gone.folder / "log.parquet").unlink()
    with pytest.raises(InputError, match=r"source.path: no file matches"):
        read(gone)


def test_no_batch_has_a_nan_or_leaves_its_bounds(campaign: Campaign) -> None:
    odd = [math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -0.0]
    rows = read(campaign(log(age=odd, spend=odd)))
    for values in (rows.features, rows.outcome):
        assert np.isfinite(values).all()
    assert (np.abs(rows.outcome) <= 1).all()
    assert ((rows.features >= 0) & (rows.features <= 1)).all()
