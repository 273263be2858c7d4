"""Pooled effects against their definitions, and the always-valid interval against its formula."""

import math

import numpy as np
import pytest
from scipy.stats import norm, t

from estimators.intervals import interval_degrees
from estimators.operate.people import CrossTerms
from estimators.operate.series import PeriodEffects, always_valid, pool
from schemas.arrays import Floats


def column(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)[:, np.newaxis]


THREE = PeriodEffects(
    estimate=column(1.0, 2.0, 4.0),
    variance=column(0.25, 0.5, 1.0),
    noise_variance=column(0.1, 0.2, 0.3),
    degrees_of_freedom=column(10.0, 20.0, math.inf),
    n_units=column(100.0, 200.0, 300.0),
)


def test_disjoint_periods_are_weighted_by_their_size() -> None:
    pooled = pool(THREE)
    assert pooled.estimate[:, 0] == pytest.approx([1.0, 5 / 3, (1 + 4 + 12) / 6])
    assert pooled.variance[1, 0] == pytest.approx(0.25 / 9 + 4 * 0.5 / 9)
    assert pooled.noise_variance[2, 0] == pytest.approx((0.1 + 4 * 0.2 + 9 * 0.3) / 36)
    parts = np.array([0.25, 4 * 0.5, 9 * 1.0]) / 36
    df = parts.sum() ** 2 / (parts[0] ** 2 / 12 + parts[1] ** 2 / 22) - 2
    assert pooled.degrees_of_freedom[2, 0] == pytest.approx(df)
    assert pooled.n_units[:, 0].tolist() == [100, 300, 600]
    assert pooled.n_releases[:, 0].tolist() == [1, 2, 3]


def test_the_first_period_alone_is_itself() -> None:
    pooled = pool(THREE)
    assert pooled.variance[0, 0] == 0.25
    assert pooled.degrees_of_freedom[0, 0] == pytest.approx(10.0)


def test_a_period_without_the_effect_has_no_weight() -> None:
    nan = float("nan")
    gap = PeriodEffects(
        column(nan, 2.0, nan), column(nan, 0.5, nan), column(nan, 0.2, nan),
        column(nan, 20.0, nan), column(0.0, 200.0, 50.0),
    )  # fmt: skip
    pooled = pool(gap)
    assert math.isnan(pooled.estimate[0, 0])
    assert math.isnan(pooled.variance[0, 0])
    assert pooled.estimate[1:, 0].tolist() == [2.0, 2.0]
    assert pooled.degrees_of_freedom[2, 0] == pytest.approx(20.0)
    assert pooled.n_releases[:, 0].tolist() == [0, 1, 1]


def test_no_correlation_exceeds_the_bound() -> None:
    pooled = pool(THREE, are_new=np.array([True, False, False]))
    errors = 100 * 0.5, 200 * math.sqrt(0.5), 300 * 1.0
    assert pooled.variance[2, 0] == pytest.approx((sum(errors) / 600) ** 2)
    doubt = 100 * math.sqrt(0.25 / 12) + 200 * math.sqrt(0.5 / 22)
    assert pooled.degrees_of_freedom[2, 0] == pytest.approx((sum(errors) / doubt) ** 2 - 2)


def test_where_all_are_new_the_bound_is_the_variance() -> None:
    new, disjoint = pool(THREE, are_new=np.array([True] * 3)), pool(THREE)
    np.testing.assert_allclose(new.variance, disjoint.variance)
    np.testing.assert_allclose(new.degrees_of_freedom, disjoint.degrees_of_freedom)


def crossed(*total: float, scatter: float = 0.0) -> CrossTerms:
    return CrossTerms(column(*total), column(0.0, 0.0, scatter))


def test_cross_terms_are_added_from_their_period_on() -> None:
    pooled, disjoint = pool(THREE, cross=crossed(0.0, 9000.0, -6000.0)), pool(THREE)
    added = (pooled.variance - disjoint.variance)[:, 0]
    assert added == pytest.approx([0.0, 9000 / 300**2, 3000 / 600**2])


def test_cross_terms_leave_at_least_the_noise_and_at_most_the_bound() -> None:
    bound = pool(THREE, are_new=np.array([True, False, False]))
    assert pool(THREE, cross=crossed(0, 0, 1e9)).variance[2, 0] == pytest.approx(
        bound.variance[2, 0]
    )
    least = pool(THREE, cross=crossed(0, 0, -1e9))
    assert least.variance[2, 0] == pytest.approx(least.noise_variance[2, 0])


def test_uncertain_cross_terms_cost_degrees_of_freedom() -> None:
    sure, unsure = (
        pool(THREE, cross=crossed(0, 0, 0)),
        pool(THREE, cross=crossed(0, 0, 0, scatter=1e9)),
    )
    assert unsure.degrees_of_freedom[2, 0] < sure.degrees_of_freedom[2, 0] / 2


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_degrees_of_freedom_are_read_off_an_interval(level: float) -> None:
    df = np.array([1.0, 2.5, 12.0, 400.0, math.inf])
    half = np.asarray(t.ppf((1 + level) / 2, df) * 0.3)
    assert interval_degrees(half, np.full(5, 0.3), level) == pytest.approx(df, rel=1e-6)
    nothing = interval_degrees(np.array([np.nan, 0.0]), np.array([0.3, 0.0]), level)
    assert nothing.tolist() == [1.0, math.inf]


def test_the_always_valid_interval_is_its_formula() -> None:
    pooled = pool(THREE)
    lower, upper = always_valid(
        pooled, np.array([0.6]), np.array([100.0]), 0.95, n_arms=2, looks=14
    )
    alpha = 0.05 / 2
    log = -2 * math.log(alpha)
    phi = 14 * 100**2 * 0.6**2 / (log + math.log(log) + 1)
    df = pooled.degrees_of_freedom[2, 0]
    v = pooled.variance[2, 0] * 600**2 * (t.ppf(1 - alpha / 2, df) / norm.ppf(1 - alpha / 2)) ** 2
    half = math.sqrt(2 * (v + phi) * math.log(math.sqrt((v + phi) / phi) / alpha)) / 600
    assert (lower[2, 0], upper[2, 0]) == pytest.approx(
        (pooled.estimate[2, 0] - half, pooled.estimate[2, 0] + half)
    )


@pytest.mark.parametrize("planned", [0.0, float("nan")])
def test_without_a_plan_no_interval_is_always_valid(planned: float) -> None:
    ends = always_valid(pool(THREE), np.array([planned]), np.array([100.0]), 0.95)
    assert np.isnan(ends).all()


def test_of_an_error_of_zero_nothing_is_known() -> None:
    sure = PeriodEffects(column(1.0), column(0.0), column(0.0), column(math.inf), column(100.0))
    ends = always_valid(pool(sure), np.array([0.6]), np.array([100.0]), 0.95)
    assert np.isnan(ends).all()
