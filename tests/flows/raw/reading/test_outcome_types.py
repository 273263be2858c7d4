"""Types of outcomes' columns that Parquet declares: what fits is not told of."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.config.model.sections import NamedOutcome
from flows.raw.reading.column_types import type_warnings

TEXT, DATE = pl.String(), pl.Date()


def told(folder: Path, *kinds: pl.DataType, **keys: Any) -> list[str]:
    """What is told of a column of these types, a file each."""
    one = NamedOutcome(**{"name": "bought", "column": "b", "values": (0.0, 1.0)} | keys)
    files = []
    for number, kind in enumerate(kinds):
        files.append(folder / f"{number}.parquet")
        pl.DataFrame({"b": pl.Series([None], dtype=kind)}).write_parquet(files[-1])
    return list(type_warnings([one], files))


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (pl.Int8(), {}),
        (pl.Float64(), {}),
        (pl.Boolean(), {}),
        (pl.Null(), {}),
        (TEXT, {"decimal": ","}),
        (TEXT, {"decimal": "."}),
        (TEXT, {"values": ("no", "yes")}),
        (pl.Categorical(), {"values": ("no", "yes")}),
        (pl.Boolean(), {"values": ("false", "true")}),
        (DATE, {"column": "absent"}),
    ],
)
def test_nothing_is_told_of_what_fits(
    tmp_path: Path, kind: pl.DataType, keys: dict[str, Any]
) -> None:
    assert told(tmp_path, kind, **keys) == []


@pytest.mark.parametrize(
    ("kind", "keys", "cure"),
    [
        (TEXT, {}, 'values = ["no", "yes"]'),
        (pl.Categorical(), {}, 'decimal = ","'),
        (DATE, {}, "Name another column"),
        (DATE, {"decimal": ","}, "Name another column"),
        (pl.Datetime("us"), {}, "is Datetime, and the grid is of numbers"),
        (pl.List(pl.Float64()), {}, "is List, "),
        (pl.Int64(), {"values": ("no", "yes")}, "Name numbers in values"),
        (DATE, {"values": ("no", "yes")}, "Name numbers in values"),
    ],
)
def test_what_does_not_fit_is_told_of_once_with_its_cure(
    tmp_path: Path, kind: pl.DataType, keys: dict[str, Any], cure: str
) -> None:
    (warning,) = told(tmp_path, pl.Null(), kind, kind, **keys)
    assert str(tmp_path / "1.parquet") in warning
    assert "column 'b' (outcome) is " in warning
    assert cure in warning


def test_other_formats_and_what_cannot_be_read_are_left_to_the_reading(tmp_path: Path) -> None:
    one = NamedOutcome(name="bought", column="b", values=(0.0, 1.0))
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1")
    text = tmp_path / "log.csv"
    text.write_text("b\nyes\n", encoding="utf-8")
    assert list(type_warnings([one], [broken, text])) == []
