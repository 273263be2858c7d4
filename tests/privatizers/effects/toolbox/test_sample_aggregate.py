"""Sample and aggregate: who is in which chunk, and what the function cannot do."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from privatizers.effects.toolbox.bounded_mean import Bounds
from privatizers.effects.toolbox.sample_aggregate import (
    SampleAggregate,
    chunks_by_id,
    chunks_by_position,
)
from tests.support.distances import assert_near

UNIT = Bounds(0.0, 1.0)


def test_chunks_by_position_are_disjoint_whole_and_even() -> None:
    chunk = chunks_by_position(32_561, 6_000)
    sizes = np.bincount(chunk, minlength=6_000)
    assert len(sizes) == 6_000
    assert set(sizes.tolist()) == {5, 6}
    assert sizes.sum() == 32_561


@pytest.mark.parametrize("kind", ["text", "int64", "uint64", "int32"])
def test_a_persons_chunk_depends_on_their_id_alone(kind: str) -> None:
    numbers = np.random.default_rng(3).permutation(20_000)[:5_000]
    ids = numbers.astype(str) if kind == "text" else numbers.astype(kind)
    chunk = chunks_by_id(ids, 40)
    some = np.arange(0, 5_000, 7)
    assert np.array_equal(chunks_by_id(ids[some], 40), chunk[some])
    assert np.array_equal(chunks_by_id(ids[::-1], 40), chunk[::-1])
    twice = np.concatenate([ids, ids])
    assert np.array_equal(chunks_by_id(twice, 40), np.tile(chunk, 2))


def test_a_long_id_elsewhere_moves_nobody() -> None:
    """NumPy pads text to the longest: padding must not count."""
    ids = np.array(["ann", "bob", "é", ""])
    longer = np.append(ids, "x" * 500)
    assert np.array_equal(chunks_by_id(longer, 1009)[:4], chunks_by_id(ids, 1009))


@pytest.mark.parametrize("text", [False, True])
def test_the_hash_spreads_ids(text: bool) -> None:
    """Fixed ids, so no chance: χ² of 50 chunks of about 1,000 is ordinary."""
    numbers = np.arange(50_000)
    ids = np.char.add("user-", numbers.astype(str)) if text else numbers
    sizes = np.bincount(chunks_by_id(ids, 50), minlength=50)
    assert 10 < ((sizes - 1000) ** 2 / 1000).sum() < 120


def test_ids_of_another_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="text or whole"):
        chunks_by_id(np.array([0.5]), 3)


def test_the_function_sees_each_chunk_alone_and_whole() -> None:
    made = SampleAggregate(Bounds(0.0, 100.0), 3, 1.0)
    seen: list[list[int]] = []

    def look(rows: NDArray[np.int64]) -> float:
        seen.append(rows[:, 1].tolist())
        return float(rows[:, 1].sum())

    rows = np.stack([np.zeros(7, dtype=np.int64), np.arange(7)], axis=1)
    answers = made.answers(look, rows, np.array([2, 0, 2, 0, 2, 0, 2]))
    assert seen == [[1, 3, 5], [0, 2, 4, 6]]
    assert answers.tolist() == [9.0, pytest.approx(50.0, abs=1e-3), 12.0]


def test_one_row_moves_one_answer_whatever_the_function() -> None:
    made = SampleAggregate(UNIT, 5, 1.0)
    rows = np.random.default_rng(1).normal(size=53)
    other = rows.copy()
    other[17] = 1e12
    chunk = chunks_by_position(53, 5)
    for f in (np.max, np.mean, np.ptp, np.median, lambda x: float(np.prod(x))):
        one, two = (made.answers(f, x, chunk) for x in (rows, other))
        assert np.count_nonzero(one != two) <= 1


def test_what_fails_or_is_no_number_is_a_constant() -> None:
    """Whether a release succeeds may not depend on anybody's row."""
    made = SampleAggregate(UNIT, 2, 1e9)

    def fails(rows: NDArray[np.float64]) -> float:
        raise RuntimeError(str(rows))

    rows, chunk = np.arange(6.0), chunks_by_position(6, 2)
    for f in (fails, lambda _: math.nan):
        assert made.release(f, rows, chunk) == pytest.approx(0.5, abs=1e-5)
    assert made.release(lambda _: math.inf, rows, chunk) == pytest.approx(1.0, abs=1e-5)


def test_empty_chunks_count() -> None:
    """Two of three are empty, and they are not left out of the average."""
    made = SampleAggregate(UNIT, 3, 1e9)
    found = made.release(np.mean, np.ones(4), np.zeros(4, dtype=np.int64))
    assert found == pytest.approx((1.0 + 0.5 + 0.5) / 3, abs=1e-5)


@pytest.mark.statistical
def test_the_noise_is_of_the_chunks_there_are() -> None:
    """Mean |Z| = (u − l)/(k ε); 6 standard errors of 2,500 draws are 12 %, fails with 1e-8."""
    made = SampleAggregate(UNIT, 10, 0.5)
    rows, chunk = np.full(40, 0.25), chunks_by_position(40, 10)
    off = [abs(made.release(np.mean, rows, chunk) - 0.25) for _ in range(2_500)]
    assert_near(float(np.mean(off)) / (1 / (10 * 0.5)), 1.0, 1 / math.sqrt(2_500), 6.0)


@pytest.mark.parametrize("chunk", [[0, 1], [0, 1, 2], [0, -1, 1]])
def test_chunks_that_do_not_fit_are_refused(chunk: list[int]) -> None:
    made = SampleAggregate(UNIT, 2, 1.0)
    with pytest.raises(ValueError, match="chunk"):
        made.release(np.mean, np.arange(3.0), np.array(chunk))


@pytest.mark.parametrize(("n_chunks", "epsilon"), [(0, 1.0), (3, 0.0), (3, math.inf)])
def test_impossible_numbers_are_refused(n_chunks: int, epsilon: float) -> None:
    with pytest.raises(ValueError, match="chunk"):
        SampleAggregate(UNIT, n_chunks, epsilon)
