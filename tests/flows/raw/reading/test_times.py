"""Times are microseconds in UTC, whatever they are spelt as, and no value of a row can fail."""

from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.raw.reading.columns import microseconds
from schemas.errors import InputError

PATH = Path("/logs/a.parquet")
MOMENT = datetime(2026, 11, 20, 18, 30, 5, 250_000, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def of(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def read(values: pl.Series) -> list[int | None]:
    found = values.to_frame("ts").select(microseconds("ts", values.dtype, PATH)).to_series()
    assert found.dtype == pl.Int64
    return found.to_list()


@pytest.mark.parametrize("time_unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_timestamps_of_any_unit_and_zone(time_unit: Any, zone: str | None) -> None:
    moments = [MOMENT, EPOCH - timedelta(milliseconds=1), None]
    values = pl.Series(moments, dtype=pl.Datetime("us", "UTC"))
    values = values.cast(pl.Datetime(time_unit, "UTC"))
    values = (
        values.dt.replace_time_zone(None) if zone is None else values.dt.convert_time_zone(zone)
    )
    assert read(values) == [of(MOMENT), -1000, None]


def test_a_date_is_its_first_microsecond() -> None:
    days = pl.Series([date(2026, 11, 20), date(1, 1, 1), date(9999, 12, 31), None])
    assert read(days) == [
        of(datetime(2026, 11, 20, tzinfo=UTC)),
        of(datetime(1, 1, 1, tzinfo=UTC)),
        of(datetime(9999, 12, 31, tzinfo=UTC)),
        None,
    ]


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-20T18:30:05.25",
        "2026-11-20T18:30:05.250000",
        "2026-11-20T18:30:05.250000999",
        "2026-11-20 18:30:05.25",
        " 2026-11-20T18:30:05.25 ",
        "2026-11-20T18:30:05,25",
        "2026-11-20T18:30:05.25Z",
        "2026-11-20t18:30:05.25z",
        "2026-11-20 18:30:05.25 UTC",
        "2026-11-20T18:30:05.25+00:00",
        "2026-11-20T20:00:05.25+01:30",
        "2026-11-20 10:30:05.25-0800",
        "2026-11-21T00:30:05.25+06",
    ],
)
def test_one_moment_in_many_spellings(text: str) -> None:
    assert read(pl.Series([text])) == [of(MOMENT)]
    assert read(pl.Series([text], dtype=pl.Categorical)) == [of(MOMENT)]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-20", datetime(2026, 11, 20, tzinfo=UTC)),
        ("2026-11-20T18:30", datetime(2026, 11, 20, 18, 30, tzinfo=UTC)),
        ("2026-11-20 18:30", datetime(2026, 11, 20, 18, 30, tzinfo=UTC)),
        ("2026-11-20T18:30Z", datetime(2026, 11, 20, 18, 30, tzinfo=UTC)),
        ("2026-11-20T18:30+02:00", datetime(2026, 11, 20, 16, 30, tzinfo=UTC)),
        ("1969-12-31T23:59:59.999999", EPOCH - timedelta(microseconds=1)),
        ("2024-02-29T00:00:00", datetime(2024, 2, 29, tzinfo=UTC)),
    ],
)
def test_shorter_and_odder_moments(text: str, moment: datetime) -> None:
    assert read(pl.Series([text])) == [of(moment)]


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "now",
            "null",
            "nan",
            "1763663405",
            "1763663405000",
            "20261120",
            "20261120T183005",
        ),
        *("2026-02-30T00:00:00", "2025-02-29", "2026-13-01", "2026-11-20T24:30:00", "18:30:05"),
        *("20.11.2026", "11/20/2026", "2026-11-20T18:30:05 Europe/Berlin", "2026-11-20T18:30:05X"),
        *("-0001-01-01", "0000-01-01", "+12026-01-01T00:00:00", "99999-01-01", "2026-W47-5"),
        *("2026-11-20\x00", "\ufffd", "２０２６-11-20"),
    ],
)
def test_what_is_no_such_time_is_unreadable(text: str) -> None:
    assert read(pl.Series([text])) == [None]


def test_forms_may_be_mixed_and_do_not_depend_on_each_other() -> None:
    texts = [
        "2026-11-20",
        None,
        "x",
        "2026-11-20T18:30:05Z",
        "2026-11-20 18:30",
        "2026-11-20T18:30:05",
    ]
    whole = read(pl.Series(texts))
    assert whole == [*(one for text in texts for one in read(pl.Series([text], dtype=pl.String)))]
    assert [one is None for one in whole] == [False, True, True, False, False, False]


def test_times_of_no_year_of_ours_are_unreadable() -> None:
    ends = pl.Series([-(2**63) + 1, 2**63 - 1])
    for time_unit in ("ms", "us"):
        assert read(ends.cast(pl.Datetime(time_unit))) == [None, None]
    assert None not in read(ends.cast(pl.Datetime("ns")))
    assert read(pl.Series([-(2**31), 2**31 - 1], dtype=pl.Int32).cast(pl.Date)) == [None, None]


@pytest.mark.parametrize("dtype", [pl.String, pl.Null, pl.Datetime("us"), pl.Date])
def test_nothing_is_read_from_nothing(dtype: pl.DataType) -> None:
    assert read(pl.Series([], dtype=dtype)) == []
    assert read(pl.Series([None, None], dtype=dtype)) == [None, None]


@pytest.mark.parametrize(
    "dtype", [pl.Int64(), pl.Float64(), pl.Boolean(), pl.Time(), pl.Duration()]
)
def test_another_type_is_refused_by_name(dtype: pl.DataType) -> None:
    with pytest.raises(InputError) as caught:
        microseconds("ts", dtype, PATH, "outcome_time")
    assert str(caught.value).startswith(
        f"{PATH}: column 'ts' (outcome_time) is {dtype.base_type()}; "
    )
    assert "timestamp" in str(caught.value)


def test_the_expression_keeps_its_columns_name_and_runs_lazily() -> None:
    frame = pl.DataFrame({"ts": ["2026-11-20", "x"]}).lazy()
    found = frame.select(microseconds("ts", pl.String(), PATH)).collect(engine="streaming")
    assert found.columns == ["ts"]
    assert found["ts"].null_count() == 1


@pytest.mark.process
def test_what_python_writes_is_read_back() -> None:
    zones = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
    ends = datetime(2, 1, 1), datetime(9998, 12, 31)
    moments = st.datetimes(*ends) | st.datetimes(*ends, timezones=zones)

    @settings(max_examples=200, deadline=None)  # the first example compiles expressions
    @given(moments, st.sampled_from("T "))
    def holds(moment: datetime, separator: str) -> None:
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        assert read(pl.Series([moment.isoformat(separator)])) == [of(aware)]

    holds()


@pytest.mark.process
def test_no_text_fails() -> None:
    @settings(max_examples=200, deadline=None)  # the first example compiles expressions
    @given(st.lists(st.none() | st.text() | st.text("0123456789-T:Z+. ", max_size=30)))
    def holds(texts: list[str | None]) -> None:
        assert len(read(pl.Series(texts, dtype=pl.String))) == len(texts)

    holds()
