"""A row reaches one stage: whatever the sizes, batches and order of the stages."""

from collections.abc import Callable, Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privatizers.effects.models.meta import PartUsedError, RowPart, part_sizes, partition
from privatizers.effects.models.rows import Batches, EffectRows
from schemas.arrays import Floats
from tests.support.distances import assert_near, share_error

pytestmark = pytest.mark.statistical

SHARES = {"first": 0.25, "second": 0.25, "last": 0.5}


def _batches(n: int, size: int, propensity: bool = False) -> Batches:
    """Rows that can be told apart: their outcome is their position."""

    def read() -> Iterable[EffectRows]:
        for start in range(0, n, size):
            place = np.arange(start, min(start + size, n), dtype=np.float64)
            yield EffectRows(
                features=np.stack([place, -place], axis=1),
                treated=place % 2 == 0,
                outcome=place,
                propensity=place / n if propensity else None,
                complete=place % 3 != 0,
            )

    return read


def _outcomes(part: RowPart) -> Floats:
    return np.concatenate([np.empty(0), *(rows.outcome for rows in part.take().batches())])


@st.composite
def shares(draw: Callable[..., list[int]]) -> dict[str, float]:
    weights = draw(st.lists(st.integers(1, 9), min_size=1, max_size=6))
    return {f"stage {place}": weight / sum(weights) for place, weight in enumerate(weights)}


@given(n=st.integers(0, 200), size=st.integers(1, 70), shares=shares())
def test_each_row_reaches_exactly_one_stage(n: int, size: int, shares: dict[str, float]) -> None:
    parts = partition(n, _batches(n, size), shares)
    assert list(parts) == list(shares)
    sizes = part_sizes(n, shares)
    seen = [_outcomes(part) for part in parts.values()]
    assert [len(one) for one in seen] == list(sizes.values())
    assert sorted(np.concatenate(seen).tolist()) == list(range(n))
    for part in parts.values():
        with pytest.raises(PartUsedError, match=part.name):
            part.take()


@given(n=st.integers(1, 120), size=st.integers(1, 50))
def test_whole_rows_stay_together_and_in_their_order(n: int, size: int) -> None:
    parts = partition(n, _batches(n, size, propensity=True), SHARES)
    for part in parts.values():
        opened = part.take()
        first = list(opened.batches())
        for rows, again in zip(first, opened.batches(), strict=True):
            place = rows.outcome
            assert np.array_equal(place, again.outcome)
            assert np.array_equal(rows.features, np.stack([place, -place], axis=1))
            assert np.array_equal(rows.treated, place % 2 == 0)
            assert np.array_equal(rows.complete, place % 3 != 0)
            assert rows.propensity is not None
            assert np.array_equal(rows.propensity, place / n)
            assert (np.diff(place) > 0).all()


@given(n=st.integers(1, 60), where=st.data())
def test_a_row_replaced_is_one_row_replaced_in_one_part(n: int, where: st.DataObject) -> None:
    """The same partition over neighbours: read both through the readers of one of them."""
    place = where.draw(st.integers(0, n - 1))
    other = [False]

    def read() -> Iterable[EffectRows]:
        for rows in _batches(n, 7)():
            outcome = np.where(other[0] & (rows.outcome == place), -1.0, rows.outcome)
            yield EffectRows(rows.features, rows.treated, outcome, None, rows.complete)

    opened = [part.take() for part in partition(n, read, SHARES).values()]
    before = [np.concatenate([r.outcome for r in one.batches()]) for one in opened]
    other[0] = True
    after = [np.concatenate([r.outcome for r in one.batches()]) for one in opened]
    assert [len(one) for one in before] == [len(one) for one in after]
    assert sum(int(np.sum(x != y)) for x, y in zip(before, after, strict=True)) == 1


def test_every_row_is_as_likely_in_a_part() -> None:
    """2,000 partitions of 20 rows: a share is 1/2 within 6 of its standard errors of 0.011.

    For all of 20 rows: fails by chance less than once in 10⁷ runs. A partition by order fails.
    """
    counts = np.zeros(20)
    for _ in range(2_000):
        counts[_outcomes(partition(20, _batches(20, 20), SHARES)["last"]).astype(np.int64)] += 1
    assert_near(counts / 2_000, 0.5, share_error(0.5, 2_000), 6.0)


def test_rows_that_come_or_go_are_noticed() -> None:
    for n, said in ((9, "fewer"), (11, "more"), (12, "more"), (20, "more")):
        opened = partition(10, _batches(n, 5), SHARES)["first"].take()
        with pytest.raises(ValueError, match=f"{said} than the 10 rows"):
            list(opened.batches())


@pytest.mark.parametrize("shares", [{}, {"a": 0.5}, {"a": 1.2, "b": -0.2}, {"a": 1.0, "b": 0.0}])
def test_shares_that_are_none_are_refused(shares: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="sum to 1"):
        part_sizes(10, shares)


def test_a_part_prints_no_row() -> None:
    (part,) = partition(3, _batches(3, 3), {"all": 1.0}).values()
    assert repr(part) == "<part all, 3 rows>"
    assert "0x" not in repr(part.take())
