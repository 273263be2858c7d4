"""How columns of a log become those that the steps use."""

from pathlib import Path

import polars as pl
import pytest

from flows.raw.reading.columns import text_outcome
from schemas.errors import InputError

FILE = Path("log.parquet")
NUMBERS = {"no": 0.0, "yes": 2.5}


def numbers(column: pl.Series, texts: dict[str, float] | None = None) -> list[float | None]:
    frame = pl.DataFrame({"bought": column})
    found = frame.select(text_outcome(frame, FILE, "bought", texts or NUMBERS)).to_series()
    assert found.dtype == pl.Float64
    return found.fill_nan(None).to_list()


def test_a_text_is_matched_letter_for_letter_but_for_blanks() -> None:
    column = pl.Series(["yes", "no", " yes\t", "Yes", "yes!", "", "ye\ufffd", "2.5", None])
    assert numbers(column) == [2.5, 0.0, 2.5, None, None, None, None, None, None]


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["yes", "never", "no"])])
def test_coded_texts_are_texts(kind: pl.DataType) -> None:
    assert numbers(pl.Series(["no", "never", "yes", None], dtype=kind)) == [0.0, None, 2.5, None]


def test_truth_values_match_as_they_are_spelt() -> None:
    column = pl.Series([True, False, None])
    assert numbers(column, {"false": 0.0, "true": 1.0}) == [1.0, 0.0, None]
    assert numbers(column) == [None, None, None]


def test_a_column_of_nulls_is_missing() -> None:
    assert numbers(pl.Series([None, None])) == [None, None]


@pytest.mark.parametrize("column", [pl.Series([1]), pl.Series([1.5]), pl.Series([["no"]])])
def test_another_type_is_refused_without_a_value(column: pl.Series) -> None:
    with pytest.raises(InputError) as caught:
        numbers(column)
    assert str(caught.value) == (
        f"log.parquet: column 'bought' (outcome) is {column.dtype.base_type()}, and "
        "outcome.values are texts; name numbers there"
    )
