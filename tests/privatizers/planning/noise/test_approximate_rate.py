"""What a plan takes for the odds of resampling is what a release is calibrated to."""

import itertools

import numpy as np
import pytest

from privatizers.accounting.accountant import calibrate
from privatizers.accounting.events import CountsNoise, StratumNoise, SumNoise
from privatizers.accounting.rounding import realised_threshold
from privatizers.domain.lattice import Lattice
from privatizers.mechanisms.statistics.noisy_counts import moved_cells
from privatizers.planning.noise.response_noise import StatisticShift, approximate_odds

DELTAS = (0.0, 1e-9, 1e-5, 1e-2)


def calibrated(epsilon: float, delta: float, gamma: float, noise: StratumNoise | None) -> float:
    """r = λ/(1 − λ) of the exact calibration; near 1, λ is known to 2⁻⁵³ only."""
    rate = calibrate(epsilon, delta, realised_threshold(gamma, round(1 / gamma)), noise)
    return rate / (1 - rate)


@pytest.mark.parametrize(
    ("k", "epsilon", "delta"), list(itertools.product((2, 3, 12), (0.2, 1.0, 5.0), DELTAS))
)
def test_beside_counts(k: int, epsilon: float, delta: float) -> None:
    shares, moved = np.array([0.01, 0.3, 0.95]), moved_cells(k)
    found = approximate_odds(epsilon, delta, shares, 1 / k, StatisticShift.of(k, None))
    assert StatisticShift.of(k, None) == StatisticShift(1 if k == 2 else 2, one_sum=False)
    expected = [
        calibrated(epsilon, delta, 1 / k, CountsNoise(moved / (epsilon * share), moved))
        for share in shares
    ]
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("steps", "epsilon", "delta"),
    [
        *itertools.product([(0, 1), (0, 1, 2), (0, 1, 5, 11)], (0.2, 1.0, 5.0), DELTAS),
        ((0, 7, 255), 1.0, 1e-3),
        ((0, 7, 256), 1.0, 1e-3),
        ((0, 7, 257), 1.0, 1e-3),  # from here on atoms are put together, alike
        ((0, 1, 5_000), 2.0, 1e-2),
    ],
)
def test_beside_means(steps: tuple[int, ...], epsilon: float, delta: float) -> None:
    k, lattice, shares = len(steps), Lattice(steps), np.array([0.05, 0.8])
    found = approximate_odds(epsilon, delta, shares, 1 / k, StatisticShift.of(k, lattice))
    expected = [
        calibrated(epsilon, delta, 1 / k, SumNoise(lattice.most / (epsilon * share), lattice.most))
        for share in shares
    ]
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("k", "epsilon", "delta"), list(itertools.product((2, 5, 64), (0.1, 1.0, 8.0), DELTAS))
)
def test_alone(k: int, epsilon: float, delta: float) -> None:
    found = approximate_odds(epsilon, delta, np.zeros(1), 1 / k, None)
    assert found == pytest.approx([calibrated(epsilon, delta, 1 / k, None)], rel=1e-6)


def test_a_delta_and_a_smaller_share_leave_more_to_the_outcomes() -> None:
    shares = np.linspace(0.01, 0.99, 50)
    pure, relaxed = (
        approximate_odds(1.0, delta, shares, 0.2, StatisticShift.of(5, None)) for delta in (0, 1e-3)
    )
    assert (relaxed < pure).all()
    assert (np.diff(pure) > 0).all()
    assert (np.diff(relaxed) > 0).all()


def test_a_wide_grid_takes_no_more_memory() -> None:
    values, mass = StatisticShift.of(3, Lattice((0, 1, 100_000))).losses(np.array([1e-5, 1e-4]))
    assert values.shape == mass.shape == (2, 257)
    assert mass.sum(axis=1) == pytest.approx(1.0, abs=1e-12)
