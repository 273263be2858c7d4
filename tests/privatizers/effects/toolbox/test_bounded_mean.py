"""Means within bounds: exact but for their noise, which has the size that is claimed.

Statistical tests state the probability with which they fail although everything is right.
"""

import math

import numpy as np
import pytest

from privatizers.effects.toolbox.bounded_mean import (
    AddRemoveMean,
    Bounds,
    mean_by_sum_and_count,
    mean_of_fixed_size,
)
from tests.support.distances import assert_between, assert_near, mean_error

AGES = Bounds(0.0, 125.0)
HUGE = 1e9
"""An ε with which noise is a thousandth of a step or so."""


@pytest.mark.parametrize("bounds", [AGES, Bounds(-3.7, 1e-3), Bounds(1e6, 1e6 + 1), Bounds(0, 2e9)])
def test_values_are_clipped_and_put_on_a_fine_lattice(bounds: Bounds) -> None:
    spread = bounds.upper - bounds.lower
    assert 2**20 <= bounds.width <= 2**21
    assert bounds.width * bounds.step <= spread
    x = np.linspace(bounds.lower - spread, bounds.upper + spread, 1001)
    whole = bounds.whole(x)
    assert whole.min() == 0
    assert whole.max() == bounds.width
    back = bounds.lower + bounds.step * whole
    assert np.max(np.abs(back - x.clip(bounds.lower, bounds.upper))) <= bounds.step


def test_what_is_no_number_is_mapped_and_kept() -> None:
    x = np.array([math.nan, math.inf, -math.inf, 1e300])
    assert AGES.whole(x).tolist() == [0, AGES.width, 0, AGES.width]


@pytest.mark.parametrize(
    ("lower", "upper"), [(1.0, 1.0), (2.0, 1.0), (math.nan, 1.0), (0.0, math.inf), (-1e308, 1e308)]
)
def test_bounds_that_are_none_are_refused(lower: float, upper: float) -> None:
    with pytest.raises(ValueError, match=r"bounds|step"):
        Bounds(lower, upper)


@pytest.mark.parametrize("about", [None, 0.0, 125.0, 200.0])
def test_without_noise_they_are_the_mean(about: float | None) -> None:
    x = np.array([0.0, 20.0, 41.0, 90.0, 300.0])
    for found in (
        mean_of_fixed_size(x, AGES, HUGE),
        mean_by_sum_and_count(x, AGES, HUGE, about),
        AddRemoveMean.of(x, AGES).value,
    ):
        assert found == pytest.approx((20 + 41 + 90 + 125) / 5, abs=AGES.step)


def test_no_values_have_the_middle() -> None:
    none = np.empty(0)
    assert mean_of_fixed_size(none, AGES, 1.0) == pytest.approx(62.5, abs=AGES.step)
    assert AddRemoveMean.of(none, AGES).value == pytest.approx(62.5, abs=AGES.step)
    assert 0.0 <= mean_by_sum_and_count(none, AGES, 0.01) <= 125.0


def test_means_of_many_values_are_not_rounded_along_the_way() -> None:
    """Whole numbers add up exactly, in any order."""
    x = np.random.default_rng(4).uniform(0, 125, 100_000)
    found = {
        AddRemoveMean.of(x[order], AGES).total for order in (slice(None), slice(None, None, -1))
    }
    assert len(found) == 1


def laplace_size(errors: np.ndarray, scale: float) -> float:
    """Mean absolute error over the scale: 1, with a standard error of n^(−1/2)."""
    return float(np.mean(np.abs(errors)) / scale)


@pytest.mark.statistical
def test_the_noise_has_the_size_that_is_claimed() -> None:
    """6 standard errors of 2,500 draws are 12 %: fails with 1e-8; 30 % off is noticed."""
    x = np.full(1000, 40.0)
    errors = np.array([mean_of_fixed_size(x, AGES, 0.5) - 40.0 for _ in range(2_500)])
    assert_near(laplace_size(errors, 125 / (1000 * 0.5)), 1.0, 1 / math.sqrt(2_500), 6.0)
    assert abs(laplace_size(errors, 0.7 * 125 / (1000 * 0.5)) - 1) > 0.12


@pytest.mark.statistical
@pytest.mark.parametrize(("about", "moved"), [(None, 62.5), (0.0, 125.0)])
def test_the_noise_of_a_sum_over_a_count_has_its_size(about: float | None, moved: float) -> None:
    """About (m² + (mean − about)²) 2 (2/(n ε))²; ± 30 % is 6 standard errors.

    Fails with 1e-7, as squares are skew.
    """
    n, mean = 2_000, 40.0
    x = np.full(n, mean)
    errors = np.array([mean_by_sum_and_count(x, AGES, 1.0, about) - mean for _ in range(2_000)])
    off = mean - (62.5 if about is None else about)
    predicted = 2 * (2 / n) ** 2 * (moved**2 + off**2)
    ratio = float(np.mean(errors**2)) / predicted
    assert_between(ratio, (0.7, 1.3), 1.0, mean_error(errors**2) / predicted)


def test_local_sensitivity_is_of_the_size_of_the_data() -> None:
    query = AddRemoveMean(AGES, 0, 4)
    assert query.upto(6) == pytest.approx([125 / k for k in (4, 3, 2, 1, 1, 1, 1)], rel=1e-6)
    assert query.upto(0)[0] > 125 / 5  # additions alone, as the chapter has it


def test_rounding_is_in_the_local_sensitivity() -> None:
    """Far from 0 a mean has fewer digits than the bounds have width."""
    far = Bounds(1e15, 1e15 + 1)
    query = AddRemoveMean(far, 0, 10**9)
    assert query.upto(0)[0] > 0.5


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_an_impossible_epsilon_is_refused(epsilon: float) -> None:
    for mean in (mean_of_fixed_size, mean_by_sum_and_count):
        with pytest.raises(ValueError, match="epsilon"):
            mean(np.ones(3), AGES, epsilon)
