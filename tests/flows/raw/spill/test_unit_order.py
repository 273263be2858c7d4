"""Rows come into the order of their units: that of UTF-8 bytes, or that of integers."""

from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from flows.raw.spill import unit_order as order
from flows.raw.spill.unit_order import rises, sort_rows, text_keys

texts = st.lists(
    st.one_of(
        st.text(st.sampled_from("ab\0é\U0001f600"), max_size=12),  # many agree in eight bytes
        st.text(max_size=12),
    ),
    max_size=40,
)
prefixes = st.sampled_from(["", "c", "customer-", "\0", "é" * 5])


def by_bytes(units: list[str]) -> list[str]:
    return sorted(units, key=str.encode)


def ordered(units: list[str]) -> list[str]:
    return sort_rows(pl.DataFrame({"unit": pl.Series(units, dtype=pl.String)}))["unit"].to_list()


@settings(deadline=None)
@given(prefixes, texts)
@example("", [])
@example("", [""])
@example("", ["", ""])
@example("same", ["", "", ""])
@example("", ["a\0", "a", "", "\0", "a\0\0\0\0\0\0\0\0", "a"])  # the same keys
@example("", ["12345678b", "12345678a", "12345678", "1234567"])  # ties in eight bytes
@example("prefix", ["12345678b", "12345678a", "", "12345678"])  # and behind a common prefix
@example("", ["\uffff", "\U00010000", "\ud7ff"])  # UTF-16 has another order
@example("é", ["\xe9", "\xe8", "e"])  # texts that differ within a character
def test_texts_stand_in_the_order_of_their_bytes(prefix: str, units: list[str]) -> None:
    given_texts = [prefix + unit for unit in units]
    assert ordered(given_texts) == by_bytes(given_texts)


@settings(deadline=None)
@given(prefixes, texts)
def test_keys_never_contradict_the_order(prefix: str, units: list[str]) -> None:
    given_texts = by_bytes([prefix + unit for unit in units])
    keys = text_keys(pl.Series(given_texts, dtype=pl.String))
    assert (keys[1:] >= keys[:-1]).all()


TIED = [f"{number % 7}-before{'x' * (60 - number)}" for number in range(60)]


def with_the_next(units: pl.Series, skipped: int) -> NDArray[np.uint64]:
    """Keys with the bytes of the next text left in them."""
    joined = b"".join(unit.encode() for unit in units) + b"\xff" * 16
    starts = np.cumsum([0, *(len(unit.encode()) for unit in units)])[:-1] + skipped
    return np.array([int.from_bytes(joined[start : start + 8]) for start in starts], np.uint64)


def test_broken_orders_are_found() -> None:
    short = ["b", "a", "", "ab", "b"]
    assert ordered(short) == by_bytes(short)
    with patch.object(order, "_keys_of", with_the_next):
        assert ordered(short) != by_bytes(short)
    assert ordered(TIED) == by_bytes(TIED)
    keys_alone = pl.Series(TIED)[pl.Series(text_keys(pl.Series(TIED))).arg_sort()].to_list()
    assert keys_alone != by_bytes(TIED)  # without the second look at those that agree


def test_the_order_is_the_same_however_many_texts_are_looked_at_at_once() -> None:
    units = [f"c{number * 7919 % 1009:05d}" for number in range(1009)]
    with patch.object(order, "_PIECE", 10):
        assert ordered(units) == by_bytes(units)


@pytest.mark.parametrize("cut", [slice(3, 9), slice(0, 0), slice(5, None)])
def test_texts_that_are_a_stretch_of_others_are_ordered_alike(cut: slice) -> None:
    whole = pl.DataFrame({"unit": ["z", "", "longer than eight", "b", "é", "", "a" * 9, "a" * 10]})
    some = pl.concat([whole[cut], whole[:2]], rechunk=False)
    assert sort_rows(some)["unit"].to_list() == by_bytes(some["unit"].to_list())


@pytest.mark.parametrize(
    ("kind", "least", "greatest"),
    [(pl.Int64, -(2**63), 2**63 - 1), (pl.UInt64, 0, 2**64 - 1)],
)
def test_integers_stand_in_their_order(kind: pl.DataType, least: int, greatest: int) -> None:
    units = [greatest, least, 5, 2**62, greatest - 1, 10, 9, 5, least + 1]
    frame = pl.DataFrame({"unit": pl.Series(units, dtype=kind)})
    assert sort_rows(frame)["unit"].to_list() == sorted(units)
    assert sort_rows(frame)["unit"].to_list() != sorted(units, key=str)


def test_whole_rows_are_moved_by_the_column_that_is_named() -> None:
    units = [f"c{number * 7919 % 101:03d}" for number in range(101)]
    frame = pl.DataFrame({"unit": units, "place": range(101)})
    expected = sorted(zip(units, range(101), strict=True))
    assert sort_rows(frame).rows() == expected
    pieces = pl.concat([frame[60:], frame[:60]], rechunk=False)
    assert sort_rows(pieces, "place").rows() == frame.rows()


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        ([], True),
        (["a"], True),
        (["", "a", "a\0", "b"], True),
        (["a", "a"], False),
        (["a", "b", "b", "c"], False),
        (["b", "a"], False),
        ([1, 2, 10], True),
        ([1, 10, 2], False),
        ([2**64 - 2, 2**64 - 1], True),
    ],
)
def test_units_rise_where_none_stands_twice(units: list[str | int], *, expected: bool) -> None:
    kind = pl.UInt64 if units and isinstance(units[0], int) else pl.String
    assert rises(pl.Series(units, dtype=kind)) == expected
