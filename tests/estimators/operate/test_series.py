"""Pooled effects against their definitions, and the always-valid interval against its formula."""

import math
from statistics import fmean

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm, t

from estimators.intervals import interval_degrees
from estimators.operate.people import CrossTerms
from estimators.operate.series import (
    LOOKS,
    PeriodEffects,
    PooledEffects,
    always_valid,
    pool,
)
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


def test_with_one_scale_the_always_valid_interval_is_its_formula() -> None:
    pooled = pool(THREE)
    lower, upper = always_valid(
        pooled, np.array([0.6]), np.array([100.0]), 0.95, n_arms=2, looks=14, n_scales=1
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


def least_square(v: float, alpha: float, scales: list[float]) -> float:
    """x with the mean of √(φ/(v + φ)) e^{x/(2(v + φ))} over all φ at 1/α, searched."""

    def log_ratio(x: float) -> float:
        logs = [0.5 * math.log(p / (v + p)) + x / (2 * (v + p)) for p in scales]
        return max(logs) + math.log(fmean(math.exp(one - max(logs)) for one in logs) * alpha)

    return float(brentq(log_ratio, 0.0, 1e4 * (v + max(scales)), xtol=1e-12, rtol=1e-14))


def nights(variance: float, n: int = 100) -> PooledEffects:
    """Pooled effects of as many nights, of 10 people and known errors."""
    same = np.full((n, 1), variance)
    return pool(PeriodEffects(same, same, same, np.full((n, 1), math.inf), np.full((n, 1), 10.0)))


@pytest.mark.parametrize("off", [1e-3, 1 / 3, 1.0, 3.0, 1e3])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_an_always_valid_interval_solves_its_equation(off: float, level: float) -> None:
    """However wrong the plan is."""
    pooled, alpha = nights(2.0), 1 - level
    planned = off * math.sqrt(2.0)
    lower, upper = always_valid(pooled, np.array([planned]), np.array([10.0]), level)
    log = -2 * math.log(alpha)
    phi = LOOKS * 100 * planned**2 / (log + math.log(log) + 1)
    scales = [phi * 4.0**nth for nth in range(-2, 3)]
    for n in (1, 5, 14, 100):
        x = least_square(n * 200.0, alpha, scales)
        assert (upper - lower)[n - 1, 0] / 2 == pytest.approx(math.sqrt(x) / (10 * n), rel=1e-10)


WIDTHS = {  # at looks 1, 5, 14 and 30, over those of one scale with the right forecast
    1 / 3: (0.79, 1.03, 1.07, 1.07),
    1.0: (0.83, 1.04, 1.06, 1.05),
    3.0: (1.05, 1.12, 1.10, 1.07),
}


@pytest.mark.parametrize("off", WIDTHS)
def test_a_wrong_forecast_costs_little(off: float) -> None:
    """With one scale, three times too great made it 2.35, 1.58, 1.21 and 1.06 times as wide."""
    planned, n_first, pooled = np.ones(1), np.array([10.0]), nights(1.0)
    best = np.subtract(*always_valid(pooled, planned, n_first, 0.95, n_scales=1)[::-1])
    found = np.subtract(*always_valid(pooled, off * planned, n_first, 0.95)[::-1])
    ratio = (found / best)[[0, 4, 13, 29], 0]
    assert ratio == pytest.approx(WIDTHS[off], abs=0.006)
    assert ratio[2] < 1.12


@pytest.mark.parametrize("planned", [0.0, float("nan")])
def test_without_a_plan_no_interval_is_always_valid(planned: float) -> None:
    ends = always_valid(pool(THREE), np.array([planned]), np.array([100.0]), 0.95)
    assert np.isnan(ends).all()


def test_of_an_error_of_zero_nothing_is_known() -> None:
    sure = PeriodEffects(column(1.0), column(0.0), column(0.0), column(math.inf), column(100.0))
    ends = always_valid(pool(sure), np.array([0.6]), np.array([100.0]), 0.95)
    assert np.isnan(ends).all()
