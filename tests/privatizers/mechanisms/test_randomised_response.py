"""Words are compared with whole numbers: word by word, a draw realises what is published.

That tables are exact is in test_alias_tables.py; how often the draws of real mechanisms fall where,
in tests/statistical/test_frequencies.py.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from privatizers.mechanisms import randomised_response
from privatizers.mechanisms.prior import realised_prior
from privatizers.mechanisms.randomised_response import RandomisedResponse
from privatizers.noise.randomness import UNIT
from tests.statistical.simulate import pearson
from tests.support.distances import assert_p_value

PRIOR = np.array([[0.125, 0.625, 0.25], [0.5, 0.25, 0.25]])
RATE = 0.75
ALWAYS, NEVER = (UNIT - 1) / UNIT, 1 / UNIT
"""The greatest and the least λ: off by 2⁻⁵³ a unit, that is never in these tests."""

APART = np.array([[UNIT - 2, 1, 1], [1, UNIT - 2, 1], [1, 1, UNIT - 2]]) / UNIT
"""A prior a stratum that tells which stratum a draw came from."""


def draw_with(
    monkeypatch: pytest.MonkeyPatch,
    first: list[int],
    second: list[int],
    levels: list[int],
    strata: list[int],
) -> list[int]:
    """Draw with given words instead of random ones."""
    words: Iterator[NDArray[np.uint64]] = iter(
        [np.array(first, dtype=np.uint64), np.array(second, dtype=np.uint64)]
    )
    monkeypatch.setattr(randomised_response, "random_words", lambda _: next(words))
    drawn = RandomisedResponse(RATE, PRIOR).draw(np.array(levels), np.array(strata))
    return [int(level) for level in drawn]


def test_an_outcome_is_resampled_for_exactly_lambda_of_the_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rate = int(RATE * UNIT)
    first = [0, rate - 1, rate, UNIT - 1]
    drawn = draw_with(monkeypatch, first, [0] * 4, levels=[2] * 4, strata=[0] * 4)
    assert drawn == [0, 0, 2, 2]  # word 0 falls on level 0; the others keep theirs


@pytest.mark.parametrize("stratum", [0, 1])
def test_a_resampled_outcome_falls_on_a_level_for_exactly_its_share_of_the_words(
    monkeypatch: pytest.MonkeyPatch, stratum: int
) -> None:
    """The prior is in eighths: all words of a 64th fall on one level, as its first and last do."""
    ends = [word for i in range(64) for word in (i * UNIT // 64, (i + 1) * UNIT // 64 - 1)]
    drawn = draw_with(monkeypatch, [0] * 128, ends, levels=[1] * 128, strata=[stratum] * 128)
    assert drawn[::2] == drawn[1::2]
    assert (np.bincount(drawn[::2], minlength=3) / 64 == PRIOR[stratum]).all()


@pytest.mark.parametrize("level_type", [np.uint8, np.uint16, np.int64])
@pytest.mark.parametrize("stratum_type", [np.uint8, np.uint32, np.int64])
def test_every_unit_draws_from_the_prior_of_its_own_stratum(
    level_type: type[np.integer], stratum_type: type[np.integer]
) -> None:
    strata = (np.arange(600) * 7 % 3).astype(stratum_type)
    levels = np.zeros(600, dtype=level_type)
    drawn = RandomisedResponse(ALWAYS, APART).draw(levels, strata)
    assert (drawn == strata).all()
    narrow = RandomisedResponse(ALWAYS, APART).tables().draw(levels, strata)
    assert (narrow == strata).all()
    assert drawn.dtype == np.int64
    assert narrow.dtype == np.uint8


def test_strata_before_the_first_that_occurs_are_left_out() -> None:
    strata = np.array([2, 1, 1, 2], dtype=np.uint32)
    drawn = RandomisedResponse(ALWAYS, APART).draw(np.zeros(4, dtype=int), strata)
    assert drawn.tolist() == [2, 1, 1, 2]
    assert strata.tolist() == [2, 1, 1, 2]


def test_levels_that_need_more_than_a_byte_are_kept_whole() -> None:
    k = 300
    prior = realised_prior(np.full((1, k), 1 / k), (UNIT // k) / UNIT)
    levels = np.arange(k)
    kept = RandomisedResponse(NEVER, prior).tables().draw(levels, np.zeros(k, dtype=int))
    fresh = RandomisedResponse(ALWAYS, prior).draw(
        np.zeros(9_000, dtype=int), np.zeros(9_000, dtype=int)
    )
    assert kept.dtype == np.uint16
    assert (kept == levels).all()
    assert fresh.max() > 255  # not by chance (256/300)^9000


def test_a_rate_of_hardly_anything_keeps_every_outcome() -> None:
    levels = np.arange(600) % 3
    drawn = RandomisedResponse(NEVER, PRIOR).draw(levels, np.zeros(600, dtype=np.int64))
    assert (drawn == levels).all()


def test_a_rate_of_nearly_one_forgets_every_outcome() -> None:
    drawn = RandomisedResponse(ALWAYS, APART).draw(np.arange(600) % 3, np.zeros(600, dtype=int))
    assert (drawn == 0).all()


@pytest.mark.parametrize("n_units", [0, 1, 6, 7, 8, 100])
def test_batches_keep_every_unit_in_its_place(
    monkeypatch: pytest.MonkeyPatch, n_units: int
) -> None:
    monkeypatch.setattr(randomised_response, "_BATCH", 7)
    levels = np.arange(n_units) % 3
    drawn = RandomisedResponse(NEVER, PRIOR).draw(levels, np.arange(n_units) % 2)
    assert (drawn == levels).all()
    assert drawn.shape == (n_units,)


def test_every_batch_draws_words_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(randomised_response, "_BATCH", 64)
    response = RandomisedResponse(ALWAYS, np.array([[0.5, 0.5]]))
    drawn = response.draw(np.zeros(128, dtype=int), np.zeros(128, dtype=int))
    assert (drawn[:64] != drawn[64:]).any()  # equal by chance with probability 2⁻⁶⁴


def test_tables_are_made_once_for_rows_that_come_batch_by_batch() -> None:
    tables = RandomisedResponse(ALWAYS, APART).tables()
    for stratum in (2, 0, 1):
        rows = np.full(50, stratum)
        assert (tables.draw(np.zeros(50, dtype=int), rows) == stratum).all()
    assert tables.draw(np.zeros(0, dtype=int), np.zeros(0, dtype=int)).shape == (0,)


def test_several_threads_may_draw_from_the_same_tables() -> None:
    """Each gets its own rows right; no two draw alike, but by chance with probability 2⁻²⁰⁰⁰."""
    own = RandomisedResponse(NEVER, APART).tables()
    fair = RandomisedResponse(ALWAYS, np.array([[0.5, 0.5]])).tables()

    def work(nth: int) -> tuple[bool, bytes]:
        levels = (np.arange(200_000) * (nth + 1)) % 3
        kept = own.draw(levels, levels)
        zeros = np.zeros(2_100, dtype=int)
        return bool((kept == levels).all()), fair.draw(zeros, zeros).tobytes()

    with ThreadPoolExecutor(4) as pool:
        right, drawn = zip(*pool.map(work, range(8)), strict=True)
    assert all(right)
    assert len(set(drawn)) == 8


@pytest.mark.parametrize(
    ("level", "stratum", "message"),
    [(3, 0, "grid"), (-1, 0, "grid"), (0, 2, "stratum"), (0, -1, "stratum")],
)
def test_what_no_table_has_a_place_for_is_refused(level: int, stratum: int, message: str) -> None:
    response = RandomisedResponse(RATE, PRIOR)
    levels, strata = np.array([0, level]), np.array([1, stratum])
    with pytest.raises(ValueError, match=message):
        response.draw(levels, strata)
    with pytest.raises(ValueError, match=message):
        response.tables().draw(levels, strata)


def test_a_prior_that_does_not_add_up_is_refused() -> None:
    with pytest.raises(ValueError, match="add up to one exactly"):
        RandomisedResponse(RATE, np.array([[0.5, 0.25]])).tables()


@pytest.mark.parametrize("k", [2, 5, 12, 16])
def test_draws_follow_the_probabilities_that_are_published(k: int) -> None:
    """Pearson's test against Q = (1 − λ)I + λ q̃; false alarm 1e-6 for each K.

    The same draws reject a λ 30 % off either way with a million times to spare.
    """
    rate, n_units = 0.5, 400_000
    shares = np.random.default_rng(k).dirichlet(np.ones(k), 3)
    gamma = round(UNIT / (2 * k)) / UNIT
    prior = realised_prior(gamma + (1 - k * gamma) * shares, gamma)
    levels, strata = np.arange(n_units) % k, np.arange(n_units) // (n_units // 3 + 1)
    drawn = RandomisedResponse(rate, prior).draw(levels, strata)
    cells = (strata * k + levels) * k + drawn
    observed = np.bincount(cells, minlength=3 * k * k).reshape(-1, k)

    def p_value(other: float) -> float:
        q = (1 - other) * np.eye(k) + other * prior[:, np.newaxis, :]
        return pearson(observed, q.reshape(-1, k))

    assert_p_value(p_value(rate), 1e-6)
    assert p_value(0.7 * rate) < 1e-12
    assert p_value(1.3 * rate) < 1e-12
