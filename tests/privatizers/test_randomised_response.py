"""The draw compares words with whole thresholds: word by word, it realises what is published.

How often real draws fall where is in tests/statistical/test_frequencies.py.
"""

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from privatizers import randomised_response
from privatizers.accounting import UNIT
from privatizers.randomised_response import RandomisedResponse

PRIOR = np.array([[0.125, 0.625, 0.25], [0.5, 0.25, 0.25]])
RATE = 0.75
ALWAYS, NEVER = (UNIT - 1) / UNIT, 1 / UNIT
"""The greatest and the least λ: off by 2⁻⁵³ a unit, that is never in these tests."""


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
    bounds = [0, *(int(bound * UNIT) for bound in np.cumsum(PRIOR[stratum]))]
    second = [word for level in range(3) for word in (bounds[level], bounds[level + 1] - 1)]
    drawn = draw_with(monkeypatch, [0] * 6, second, levels=[1] * 6, strata=[stratum] * 6)
    assert drawn == [0, 0, 1, 1, 2, 2]
    assert bounds[-1] == UNIT


def test_every_unit_draws_from_the_prior_of_its_own_stratum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    word = UNIT // 4  # on level 1 in the first stratum, on level 0 in the second
    drawn = draw_with(monkeypatch, [0] * 4, [word] * 4, levels=[2] * 4, strata=[0, 1, 1, 0])
    assert drawn == [1, 0, 0, 1]


def test_a_rate_of_hardly_anything_keeps_every_outcome() -> None:
    levels = np.arange(600) % 3
    drawn = RandomisedResponse(NEVER, PRIOR).draw(levels, np.zeros(600, dtype=np.int64))
    assert (drawn == levels).all()


def test_a_rate_of_nearly_one_forgets_every_outcome() -> None:
    steps = np.array([[UNIT - 2, 1, 1]]) / UNIT
    drawn = RandomisedResponse(ALWAYS, steps).draw(np.arange(600) % 3, np.zeros(600, dtype=int))
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
