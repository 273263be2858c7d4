"""How columns of a log become those that the steps use."""

from pathlib import Path

import polars as pl
import pytest

from flows.raw.reading.columns import outcome, text_outcome
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


DATES = (
    pl.Series([1]).cast(pl.Date),
    pl.Series([1]).cast(pl.Time),
    pl.Series([1]).cast(pl.Datetime),
)


@pytest.mark.parametrize("column", [pl.Series([1]), pl.Series([1.5]), *DATES])
def test_among_numbers_and_dates_no_text_is_found(column: pl.Series) -> None:
    """A program that infers types may have them from one person's outcome: it stops nothing."""
    assert numbers(column) == [None]


@pytest.mark.parametrize("column", DATES)
def test_among_dates_no_number_is_found(column: pl.Series) -> None:
    frame = pl.DataFrame({"bought": column})
    assert frame.select(outcome(frame, FILE, "bought")).to_series().is_nan().all()


@pytest.mark.parametrize("column", [pl.Series([["no"]]), pl.Series([b"no"])])
def test_another_type_is_refused_without_a_value(column: pl.Series) -> None:
    """What lies in nested values could stop the reading of some and not of others."""
    with pytest.raises(InputError) as caught:
        numbers(column)
    assert str(caught.value) == (
        f"log.parquet: column 'bought' (outcome) is {column.dtype.base_type()}, and "
        "outcome.values are texts; name numbers there"
    )


@pytest.mark.parametrize("kind", [pl.String, pl.Categorical])
def test_numbers_in_text_have_the_declared_mark_alone(kind: type[pl.DataType]) -> None:
    texts = ["3,50", " -3,0 ", "3", "1e2", "3.50", "1.234,5", "1,234,5", "", "true", None]
    frame = pl.DataFrame({"spend": pl.Series(texts, dtype=kind)})

    def read(decimal: str) -> list[float | None]:
        found = frame.select(outcome(frame, FILE, "spend", decimal)).to_series()
        return found.fill_nan(None).to_list()

    assert read(",") == [3.5, -3.0, 3.0, 100.0, None, None, None, None, 1.0, None]
    assert read(".") == [None, None, 3.0, 100.0, 3.5, None, None, None, 1.0, None]


def test_marks_do_not_matter_to_columns_of_numbers() -> None:
    frame = pl.DataFrame({"spend": [1.5, None, float("nan")]})
    found = frame.select(outcome(frame, FILE, "spend", ",")).to_series()
    assert found.fill_nan(None).to_list() == [1.5, None, None]
