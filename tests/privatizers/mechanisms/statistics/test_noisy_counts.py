"""Noisy counts: which cells carry noise, and what that costs."""

import numpy as np
import pytest

from privatizers.mechanisms.statistics.noisy_counts import NoisyCounts, moved_cells

# At σ = 1000 two draws agree with probability under 1/2000: a cell of 40 strata that seems to
# carry no noise, or the noise of another cell, does so by chance with probability under 1e-130.
WIDE = 1000.0


@pytest.mark.parametrize(("n_outcomes", "moved"), [(2, 1), (3, 2), (5, 2), (12, 2)])
def test_one_substitution_moves_two_noised_cells_but_one_where_the_other_is_its_complement(
    n_outcomes: int, moved: int
) -> None:
    assert moved_cells(n_outcomes) == moved


def test_what_is_published_is_named() -> None:
    assert NoisyCounts(2, 1.0).statistic == "count-and-complement"
    assert NoisyCounts(3, 1.0).statistic == "counts"


def test_two_outcomes_share_one_noise_and_add_up_to_the_stratum() -> None:
    counts = np.tile(np.array([[30, 12]]), (40, 1))
    noisy = NoisyCounts(2, WIDE).noised(counts)
    assert (noisy.sum(axis=1) == 42).all()
    assert len(np.unique(noisy[:, 1])) > 1


@pytest.mark.parametrize("n_outcomes", [3, 12])
def test_more_outcomes_carry_a_noise_each(n_outcomes: int) -> None:
    counts = np.full((40, n_outcomes), 5)
    noisy = NoisyCounts(n_outcomes, WIDE).noised(counts)
    assert all(len(np.unique(column)) > 1 for column in noisy.T)
    assert len(np.unique(noisy, axis=1).T) == n_outcomes  # no two cells share their noise
    assert len(np.unique(noisy.sum(axis=1))) > 1  # nor does any undo the others'


def test_negative_counts_stay_as_they_are() -> None:
    noisy = NoisyCounts(4, WIDE).noised(np.zeros((40, 4), dtype=np.int64))
    assert (noisy < 0).any()  # not by chance: each is with probability close to 1/2


@pytest.mark.parametrize("n_outcomes", [2, 3])
def test_counts_stay_whole_numbers_in_their_shape(n_outcomes: int) -> None:
    counts = np.ones((7, n_outcomes), dtype=np.int64)
    before = counts.copy()
    noisy = NoisyCounts(n_outcomes, WIDE).noised(counts)
    assert noisy.dtype == np.int64
    assert noisy.shape == counts.shape
    assert (counts == before).all()  # raw counts are not written over


@pytest.mark.parametrize("n_outcomes", [2, 3])
def test_hardly_any_noise_leaves_the_counts(n_outcomes: int) -> None:
    counts = np.arange(5 * n_outcomes).reshape(5, n_outcomes)
    # At σ = 1/200 a draw is not zero with probability 2 e⁻²⁰⁰.
    assert (NoisyCounts(n_outcomes, 0.005).noised(counts) == counts).all()


def test_no_strata_need_no_noise() -> None:
    assert NoisyCounts(3, 1.0).noised(np.empty((0, 3), dtype=np.int64)).shape == (0, 3)
