"""Rows come into the order of their units: that of UTF-8 bytes, or that of integers."""

from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flows.raw.spill import unit_order as order
from flows.raw.spill.unit_order import order_units, rises, sort_rows, unit_keys

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


@pytest.mark.statistical  # a law over many instances
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


@pytest.mark.statistical  # a law over many instances
@settings(deadline=None)
@given(prefixes, texts, st.integers(1, 64))
def test_keys_never_contradict_the_order(prefix: str, units: list[str], bits: int) -> None:
    given_texts = by_bytes([prefix + unit for unit in units])
    keys = unit_keys(pl.Series(given_texts, dtype=pl.String), bits)
    assert (keys.words[1:] >= keys.words[:-1]).all()
    assert not len(keys.words) or int(keys.words.max()) < 1 << bits
    if keys.are_exact:
        assert len(set(keys.words.tolist())) == len(set(given_texts))


@pytest.mark.statistical  # a law over many instances
@settings(deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30), st.integers(1, 64))
@example([2**63 - 1, -(2**63)], 64)
@example([2**63 - 1, -(2**63), 0], 3)
def test_keys_of_integers_never_contradict_their_order(units: list[int], bits: int) -> None:
    keys = unit_keys(pl.Series(sorted(units), dtype=pl.Int64), bits)
    assert (keys.words[1:] >= keys.words[:-1]).all()
    assert not len(keys.words) or int(keys.words.max()) < 1 << bits
    if keys.are_exact:
        assert len(set(keys.words.tolist())) == len(set(units))


@pytest.mark.parametrize(
    ("of", "held"),
    [
        (lambda number: f"customer-{number * 7919 % 10**6:09d}", 40),
        (lambda number: f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}", 32),
        (lambda number: f"0b6e{number * 0x9E3779B9 % 2**32:08x}-4a0c", 32),
    ],
)
def test_keys_hold_what_tells_units_apart(of: Callable[[int], str], held: int) -> None:
    """Decimal digits take 3.5 bits, hexadecimal ones 4.1, and what all texts have takes none."""
    units = pl.Series([of(number) for number in range(5_000)])
    assert len(set(unit_keys(units, held).words.tolist())) == 5_000


def test_a_byte_that_no_sampled_text_has_is_found() -> None:
    units = [f"{number:05d}" for number in range(50_000)]
    units[31_337], units[31_338] = "3133:", "~"
    assert ordered(units) == by_bytes(units)
    with patch.object(order, "_note_unexpected", lambda *_: None):
        assert ordered(units) != by_bytes(units)


TIED = [f"{number % 7}-{'x' * 300}{number}" for number in range(60)]
"""Texts that agree in all bytes that keys are made of."""


def test_units_whose_keys_agree_are_compared_in_full() -> None:
    units = [*TIED, TIED[3], TIED[3], TIED[59], "7", "7"]
    assert ordered(units) == by_bytes(units)
    with patch.object(order, "_settle", lambda *_: np.zeros(0, np.int64)):
        assert ordered(units) != by_bytes(units)


@pytest.mark.statistical  # a law over many instances
@settings(deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "ab", "a\0", "", *TIED[:9]]), max_size=30))
def test_repeated_units_are_known_and_stay_in_their_order(units: list[str]) -> None:
    found = order_units(pl.Series(units, dtype=pl.String))
    in_order = sorted(range(len(units)), key=lambda at: (units[at].encode(), at))
    assert found.positions.tolist() == in_order
    expected = [
        place > 0 and units[at] == units[in_order[place - 1]] for place, at in enumerate(in_order)
    ]
    assert found.repeats.tolist() == expected


@pytest.mark.statistical  # a law over many instances
@settings(deadline=None)
@given(st.lists(st.sampled_from([0, 1, 2**62, 2**62 + 1, -(2**62), 2**63 - 1]), max_size=30))
def test_repeated_integers_are_known_and_stay_in_their_order(units: list[int]) -> None:
    found = order_units(pl.Series(units, dtype=pl.Int64))
    in_order = sorted(range(len(units)), key=lambda at: (units[at], at))
    assert found.positions.tolist() == in_order
    expected = [
        place > 0 and units[at] == units[in_order[place - 1]] for place, at in enumerate(in_order)
    ]
    assert found.repeats.tolist() == expected


def test_groups_of_equal_keys_are_found() -> None:
    tied = np.array([0, 1, 1, 0, 0, 1, 0, 0, 1, 1, 1, 1], dtype=np.bool_)
    places = np.array([1, 2, 5, 9, 11])
    begins, ends = order._groups_around(places, tied)
    assert (begins.tolist(), ends.tolist()) == ([0, 4, 7], [3, 6, 12])


@pytest.mark.parametrize("kind", [pl.Int64, pl.UInt64])
def test_integers_whose_keys_agree_are_put_into_their_order_in_full(kind: pl.DataType) -> None:
    """Keys leave out the last bits of numbers that lie far apart, as those of events do."""
    numbers = [place * 2**61 + low for place in range(4) for low in (7, 0, 3, 3, 1, 0)] * 5
    units = pl.Series("unit", numbers, dtype=kind)

    found = order_units(units)
    assert not order.unit_keys(units, 64 - 7).are_exact
    assert found.units.dtype == units.dtype
    assert found.units.to_list() == sorted(numbers)
    in_order = sorted(range(len(numbers)), key=lambda at: (numbers[at], at))
    assert found.positions.tolist() == in_order
    steps = zip(sorted(numbers), sorted(numbers)[1:], strict=False)
    assert found.repeats.tolist() == [False, *(one == other for one, other in steps)]
    with patch.object(order, "_settle", lambda *_: np.zeros(0, np.int64)):
        assert order_units(units).units.to_list() != sorted(numbers)


def test_the_order_is_the_same_however_many_texts_are_looked_at_at_once() -> None:
    units = [f"c{number * 7919 % 1009:05d}" for number in range(1009)]
    with patch.object(order, "_PIECE", 10):
        assert ordered(units) == by_bytes(units)


@pytest.mark.parametrize("units", [["b", "a", "é", ""], ["22", "11", "22", "aé"[:2]], ["", ""]])
def test_texts_in_order_lie_one_after_the_other(units: list[str]) -> None:
    """Whether all are of one length, in bytes, or not."""
    found = order_units(pl.Series("unit", units)).units
    assert found.to_list() == by_bytes(units)
    _, _, content = found.to_arrow(compat_level=pl.CompatLevel.oldest()).buffers()
    assert (bytes(content) if content else b"") == "".join(by_bytes(units)).encode()


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
