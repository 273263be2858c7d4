"""Outcome events become one outcome a unit, whatever their order, copies and faults."""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from polars.testing import assert_frame_equal

from flows.raw.units.attribution import Aggregate, attributed

AGGREGATES: tuple[Aggregate, ...] = ("count", "sum", "max", "any")
VALUES = (0.0, -0.0, 1.0, 1.0, 2.5, -3.0, 0.1, 1e17, math.inf, -math.inf, math.nan)
N_UNITS = 3000

Event = tuple[int, float, int | None]
"""Time, value, id."""


def a_log(rng: np.random.Generator, *, spread: int = 1) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Thousands of small logs at once, one a unit; some units are never exposed."""
    n_events = 4 * N_UNITS
    exposures = pl.DataFrame(
        {
            "unit": np.flatnonzero(rng.random(N_UNITS) < 0.9),
        }
    ).with_columns(pl.lit(0).alias("time"))
    exposures = exposures.with_columns(
        time=pl.Series(rng.integers(0, 4, exposures.height) * spread)
    )
    events = pl.DataFrame(
        {
            "unit": rng.integers(0, N_UNITS, n_events),
            "time": rng.integers(0, 8, n_events) * spread,
            "value": rng.choice(VALUES, n_events),
            "event": rng.integers(0, 3, n_events),
        }
    ).with_columns(
        pl.when(pl.Series(rng.random(n_events) < 0.95)).then("time"),
        pl.when(pl.Series(rng.random(n_events) < 0.9)).then("event"),
    )
    return events, exposures


def slowly(
    events: pl.DataFrame,
    exposures: pl.DataFrame,
    aggregate: Aggregate,
    window: int | None,
    cap: float | None,
    *,
    ids: bool,
    broken: str = "",
) -> NDArray[np.float64]:
    """The rules as they are written, a unit at a time; or with one of them ``broken``."""
    by_unit: dict[Any, list[Event]] = defaultdict(list)
    for unit, time, value, event in events.select("unit", "time", "value", "event").rows():
        if isinstance(time, int) and (broken == "keeps NaN" or not math.isnan(value)):
            by_unit[unit].append((time, value, event if ids else None))
    found = []
    for unit, exposed in exposures.select("unit", "time").rows():
        copies: dict[object, list[tuple[int, float]]] = defaultdict(list)
        for number, (time, value, event) in enumerate(by_unit[unit]):
            which: object = (time, value) if event is None else event
            copies[(number,) if broken == "counts copies" else which].append((time, value))
        pick: Callable[[list[tuple[int, float]]], tuple[int, float]]
        pick = max if broken == "takes the last copy" else min
        once = sorted(pick(one) for one in copies.values())
        end = math.inf if window is None else exposed + window
        inside = [
            value
            for time, value in once
            if (exposed <= time or broken == "counts the past")
            and (time < end or (broken == "closes the window" and time == end))
        ]
        found.append(_aggregate(inside, aggregate, None if broken == "has no cap" else cap))
    return np.array(found, dtype=np.float64)


def _aggregate(values: list[float], aggregate: Aggregate, cap: float | None) -> float:
    if not values:
        return math.nan
    if aggregate == "count":
        outcome = float(len(values))
    elif aggregate == "sum":
        outcome = 0.0
        for value in values:
            outcome += value
    elif aggregate == "max":
        outcome = max(values)
    else:
        outcome = float(any(value != 0 for value in values))
    if cap is None or math.isnan(outcome):
        return outcome
    return min(max(outcome, -cap), cap)


def fast(
    events: pl.DataFrame,
    exposures: pl.DataFrame,
    aggregate: Aggregate = "sum",
    window: int | None = None,
    cap: float | None = None,
    *,
    ids: bool = False,
) -> NDArray[np.float64]:
    given_events = events if ids else events.drop("event", strict=False)
    return attributed(given_events, exposures, aggregate=aggregate, window=window, cap=cap)


def same(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    """Bit for bit, but for the sign of zero and kinds of NaN."""
    return np.array_equal(one, other, equal_nan=True)


SETTINGS = list(itertools.product(AGGREGATES, (None, 1, 3), (None, 2.0), (False, True)))


@pytest.mark.parametrize(("aggregate", "window", "cap", "ids"), SETTINGS)
def test_every_small_log_gives_what_the_rules_say(
    aggregate: Aggregate, window: int | None, cap: float | None, *, ids: bool
) -> None:
    events, exposures = a_log(np.random.default_rng(1))
    expected = slowly(events, exposures, aggregate, window, cap, ids=ids)
    assert same(fast(events, exposures, aggregate, window, cap, ids=ids), expected)
    assert 0 < np.isnan(expected).sum() < len(expected)


@pytest.mark.parametrize(
    ("broken", "aggregate"),
    [
        ("counts copies", "count"),
        ("counts copies", "sum"),
        ("takes the last copy", "sum"),
        ("takes the last copy", "max"),
        ("closes the window", "count"),
        ("counts the past", "any"),
        ("keeps NaN", "count"),
        ("has no cap", "max"),
    ],
)
def test_the_comparison_notices_a_broken_rule(broken: str, aggregate: Aggregate) -> None:
    """Negative control of the test above."""
    events, exposures = a_log(np.random.default_rng(1))
    wrong = slowly(events, exposures, aggregate, 3, 2.0, ids=True, broken=broken)
    assert not same(fast(events, exposures, aggregate, 3, 2.0, ids=True), wrong)


@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("spread", [10**9 + 7, 2**58 - 1])
def test_times_far_apart_are_told_apart_to_the_microsecond(spread: int, *, ids: bool) -> None:
    """Here unit and time do not fit into one integer, and are sorted in two steps."""
    rng = np.random.default_rng(2)
    events, exposures = a_log(rng, spread=spread)
    nudged = events.with_columns(pl.col("time") + pl.Series(rng.integers(0, 3, events.height)))
    for aggregate in AGGREGATES:
        expected = slowly(nudged, exposures, aggregate, None, None, ids=ids)
        assert same(fast(nudged, exposures, aggregate, ids=ids), expected)


@pytest.mark.parametrize("kind", ["text", "sparse", "negative", "unsigned"])
@pytest.mark.parametrize("ids", [False, True])
def test_units_may_be_any_ids(kind: str, *, ids: bool) -> None:
    events, exposures = a_log(np.random.default_rng(3))
    naming = {
        "text": pl.format("customer {}", "unit"),
        "sparse": pl.col("unit") * (2**50 + 1) - 2**60,
        "negative": pl.col("unit") - (2**63 - 1),
        "unsigned": pl.col("unit").cast(pl.UInt64) + pl.lit(2**64 - 2 * N_UNITS, pl.UInt64),
    }[kind]
    expected = fast(events, exposures, window=3, ids=ids)
    events, exposures = events.with_columns(unit=naming), exposures.with_columns(unit=naming)
    assert same(fast(events, exposures, window=3, ids=ids), expected)


@pytest.mark.parametrize("unit", [pl.Int64, pl.UInt64, pl.String])
def test_an_event_of_nobody_is_nobodys(unit: type[pl.DataType]) -> None:
    exposures = pl.DataFrame({"unit": [0, 1], "time": 0}).with_columns(pl.col("unit").cast(unit))
    events = pl.DataFrame({"unit": [None, 1, None, 9], "time": 1, "value": [1.0, 2.0, 4.0, 8.0]})
    found = fast(events.with_columns(pl.col("unit").cast(unit)), exposures)
    assert same(found, np.array([math.nan, 2.0]))


def test_event_ids_may_be_text() -> None:
    events, exposures = a_log(np.random.default_rng(4))
    named = events.with_columns(pl.col("event").cast(pl.String) + "x")
    for aggregate in AGGREGATES:
        expected = fast(events, exposures, aggregate, 3, ids=True)
        assert same(fast(named, exposures, aggregate, 3, ids=True), expected)


@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_order_copies_and_parts_change_nothing(aggregate: Aggregate, *, ids: bool) -> None:
    """Values are not exact in binary, so that sums in another order would differ."""
    rng = np.random.default_rng(5)
    events, exposures = a_log(rng)
    values = pl.Series(rng.normal(size=events.height) * 10.0 ** rng.integers(-9, 9, events.height))
    events = events.with_columns(value=values)
    expected = fast(events, exposures, aggregate, 4, ids=ids)
    for _ in range(5):
        copies = events.sample(
            events.height // 2, with_replacement=True, seed=int(rng.integers(99))
        )
        many = pl.concat([events, copies]).sample(
            fraction=1.0, shuffle=True, seed=int(rng.integers(99))
        )
        assert same(fast(many, exposures, aggregate, 4, ids=ids), expected)
        part = rng.integers(0, 5, N_UNITS)
        found = np.full(len(expected), 17.0)
        for number in range(5):
            ours = part[exposures["unit"].to_numpy()] == number
            theirs = pl.Series(part[many["unit"].to_numpy()] == number)
            few = exposures.filter(pl.Series(ours))
            found[ours] = fast(many.filter(theirs), few, aggregate, 4, ids=ids)
        assert same(found, expected)


def test_sums_in_the_order_of_rows_would_differ() -> None:
    """Negative control of the test above: its values have what it takes."""
    rng = np.random.default_rng(5)
    values = rng.normal(size=400) * 10.0 ** rng.integers(-9, 9, 400)
    # One addition after another, as sum() was before Python 3.12.
    assert len({reduce(add, rng.permutation(values[:8]).tolist()) for _ in range(50)}) > 1


def test_ten_copies_of_an_event_between_others_at_its_time_are_one() -> None:
    exposures = pl.DataFrame({"unit": [7], "time": [0]})
    events = pl.DataFrame({"unit": 7, "time": 5, "value": [3.0, 1.0, 2.0, 1.0] * 10})
    assert fast(events, exposures).tolist() == [6.0]
    assert fast(events, exposures, "count").tolist() == [3.0]


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [("count", [2.0, math.nan]), ("sum", [2.0, math.nan]), ("any", [1.0, math.nan])],
)
def test_events_without_values_are_worth_one(aggregate: Aggregate, expected: list[float]) -> None:
    exposures = pl.DataFrame({"unit": [1, 2], "time": [10, 10]})
    events = pl.DataFrame({"unit": [1, 1, 1, 3], "time": [10, 11, 11, 12]})
    assert same(fast(events, exposures, aggregate), np.array(expected))


def test_any_is_of_values_that_are_not_zero() -> None:
    exposures = pl.DataFrame({"unit": [1, 2, 3], "time": 0})
    events = pl.DataFrame({"unit": [1, 2, 2, 3], "time": 1, "value": [0.0, 0.0, -2.0, math.nan]})
    assert same(fast(events, exposures, "any"), np.array([0.0, 1.0, math.nan]))


def test_a_late_copy_of_an_event_before_the_exposure_does_not_count() -> None:
    exposures = pl.DataFrame({"unit": [1], "time": [10]})
    events = pl.DataFrame(
        {"unit": [1, 1], "time": [12, 9], "value": [1.0, 1.0], "event": ["a"] * 2}
    )
    assert math.isnan(fast(events, exposures, ids=True)[0])
    assert fast(events, exposures)[0] == 1.0


def test_events_at_one_time_count_each_where_they_have_ids() -> None:
    exposures = pl.DataFrame({"unit": [1], "time": [0]})
    events = pl.DataFrame(
        {"unit": 1, "time": 0, "value": 5.0, "event": ["a", "b", "b", None, None]}
    )
    assert fast(events, exposures, ids=True).tolist() == [15.0]
    assert fast(events, exposures, ids=False).tolist() == [5.0]


def test_an_id_belongs_to_its_unit() -> None:
    exposures = pl.DataFrame({"unit": [1, 2], "time": 0})
    events = pl.DataFrame({"unit": [1, 2], "time": 1, "value": [5.0, 6.0], "event": "a"})
    assert fast(events, exposures, ids=True).tolist() == [5.0, 6.0]


def test_infinities_add_up_or_are_missing() -> None:
    exposures = pl.DataFrame({"unit": [1, 2], "time": 0})
    values = [math.inf, 1.0, math.inf, -math.inf]
    events = pl.DataFrame({"unit": [1, 1, 2, 2], "time": 1, "value": values})
    assert same(fast(events, exposures), np.array([math.inf, math.nan]))
    assert same(fast(events, exposures, cap=4.0), np.array([4.0, math.nan]))
    assert same(fast(events, exposures, "max", cap=4.0), np.array([4.0, 4.0]))


@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("unit", [pl.Int64, pl.String])
def test_without_events_or_exposures_there_is_nothing_or_nothing_known(
    unit: type[pl.DataType], aggregate: Aggregate, *, ids: bool
) -> None:
    events = pl.DataFrame({"unit": ["1"], "time": [1], "value": [1.0], "event": [1]}).with_columns(
        pl.col("unit").cast(unit)
    )
    exposures = pl.DataFrame({"unit": ["2"], "time": [0]}).with_columns(pl.col("unit").cast(unit))
    for none in (events, events.clear(), events.with_columns(time=pl.lit(None, pl.Int64))):
        assert np.isnan(fast(none, exposures, aggregate, 5, ids=ids)).tolist() == [True]
        assert fast(none, exposures.clear(), aggregate, ids=ids).shape == (0,)


@pytest.mark.process
def test_whatever_the_events_are_the_exposures_stay_as_they_are() -> None:
    """Nothing fails, one outcome a unit, and a unit's events change no other unit's outcome."""
    exposures = pl.DataFrame({"unit": ["b", "a", "c"], "time": [5, 0, -(2**61)]})
    others = pl.DataFrame(
        {"unit": ["a", "c"], "time": [3, 3], "value": [2.0, 4.0], "event": ["x", "y"]}
    )
    moment = st.none() | st.integers(0, 9) | st.integers(-(2**62), 2**62)
    an_event = st.tuples(moment, st.none() | st.floats(), st.sampled_from(["x", "y", "", None]))
    schema = {"time": pl.Int64, "value": pl.Float64, "event": pl.String}

    @settings(max_examples=150, deadline=None)  # the first example imports and compiles
    @given(
        st.lists(an_event, max_size=8),
        st.sampled_from(AGGREGATES),
        st.none() | st.integers(1, 10),
        st.booleans(),
    )
    def holds(
        lines: list[tuple[int | None, float | None, str | None]],
        aggregate: Aggregate,
        window: int | None,
        ids: bool,
    ) -> None:
        own = pl.DataFrame(lines, schema, orient="row").select(pl.lit("b").alias("unit"), pl.all())
        before = exposures.clone()
        found = fast(pl.concat([own, others]), exposures, aggregate, window, ids=ids)
        alone = fast(others, exposures, aggregate, window, ids=ids)
        assert found.shape == (3,)
        assert same(found[1:], alone[1:])
        assert_frame_equal(exposures, before)

    holds()
