"""Learnt guesses follow counts as far as these tell more than noise, and no further."""

import numpy as np
import pytest

from privatizers.optimal_response.learnt_guess import learnt_response, public_response, shrunk
from schemas.arrays import Floats, Ints

GRID: Floats = np.arange(-5.0, 1.0)
EVEN: Floats = np.full(6, 1.0 / 6.0)
SKEWED: Floats = np.array([0.7, 0.2, 0.06, 0.02, 0.01, 0.01])


def one(noisy_counts: Floats, n_units: float, known: float, prior: Floats = EVEN) -> Floats:
    rows = (noisy_counts[np.newaxis], np.array([n_units]), np.array([known]))
    (guess,) = shrunk(*rows, prior[np.newaxis])
    return np.array(guess)


def test_a_guess_is_a_distribution_that_leaves_nothing_out() -> None:
    random = np.random.default_rng(1)
    for known in (0.01, 1.0, 50.0, 1e6):
        guess = one(random.normal(0, 1_000, 6), 100.0, known)
        assert guess.sum() == pytest.approx(1.0)
        assert guess.min() >= 0.003 / 6 - 1e-15


def test_counts_that_are_known_well_are_followed() -> None:
    guess = one(1e6 * SKEWED, 1e6, 1e6)
    np.testing.assert_allclose(guess, 0.997 * SKEWED + 0.003 / 6, atol=1e-9)


def test_counts_that_noise_explains_are_not_followed() -> None:
    """They are as far from the prior as noise alone would bring them, or less."""
    known = 20.0
    apart = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0]) * np.sqrt(8.0) / known
    prior = 0.5 * EVEN + 0.5 * SKEWED
    np.testing.assert_allclose(one(prior + apart, 1.0, known, prior), 0.9 * prior + 0.1 * EVEN)


def test_the_more_is_known_the_further_a_guess_goes() -> None:
    ways = [np.abs(one(SKEWED, 1.0, known) - EVEN).sum() for known in (5.0, 15.0, 40.0, 200.0)]
    assert all(np.diff(ways) > 0)


def noise_of(noisy: Ints, sizes: Ints, counts_epsilon: float, truth: Floats) -> float:
    """The noise of a unit by learnt tables at ε = 4, over that by the public guess's."""
    group = np.zeros(len(sizes), dtype=np.int64)
    learnt = learnt_response(GRID, EVEN, 4.0, noisy, sizes, counts_epsilon, group)
    noises = np.stack([table.noise for table in learnt.tables_used])[learnt.table_of]
    (public,) = public_response(GRID, EVEN, 4.0, 1).tables_used
    return float(sizes @ (noises @ truth) / sizes.sum() / (public.noise @ truth))


def test_noise_alone_makes_no_table_much_worse_than_the_public_one() -> None:
    """Many small strata: the noise of their sum is far more than there are units."""
    random = np.random.default_rng(3)
    sizes = np.full(80, 60)
    truth = np.array([0.05, 0.15, 0.3, 0.3, 0.15, 0.05])
    ratios = []
    for _ in range(8):
        up, down = random.geometric(-np.expm1(-0.02), (2, 80, 6))  # ε of counts: 0.04
        noisy = np.rint(60 * truth).astype(np.int64) + up - down
        ratios.append(noise_of(noisy, sizes, 0.04, truth))
    assert np.mean(ratios) < 1.03


def test_large_strata_take_a_third_of_the_noise_off_skewed_outcomes() -> None:
    sizes = np.array([20_000, 30_000])
    noisy = np.rint(sizes[:, np.newaxis] * SKEWED).astype(np.int64)
    assert noise_of(noisy, sizes, 0.04, SKEWED) < 0.67
