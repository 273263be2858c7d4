"""Intervals and ratios, against scipy's distributions and a numeric root search."""

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm
from scipy.stats import t as student

from estimators.intervals import (
    MIN_CONTROL_ERRORS,
    Interval,
    Ratio,
    quantile,
    relative_effect,
    t_interval,
)

REFUSED = Ratio(None, None, None)

# Two implementations of the same quantile, each good to about 1e-12 in the body of Student's t.
QUANTILE_TOLERANCE = 1e-9


@settings(max_examples=100, deadline=None)
@given(st.floats(1, 1e6), st.floats(0.5, 0.999))
def test_the_quantile_is_students(degrees: float, level: float) -> None:
    expected = student.ppf((1 + level) / 2, degrees)
    assert quantile(degrees, level) == pytest.approx(expected, rel=QUANTILE_TOLERANCE, abs=0)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_infinitely_many_degrees_of_freedom_give_the_normal_quantile(level: float) -> None:
    expected = norm.ppf((1 + level) / 2)
    assert quantile(math.inf, level) == pytest.approx(expected, rel=QUANTILE_TOLERANCE, abs=0)


@settings(max_examples=100, deadline=None)
@given(st.floats(-1e3, 1e3), st.floats(1e-6, 1e6), st.floats(1, 1e4), st.sampled_from([0.8, 0.95]))
def test_an_interval_is_students(
    estimate: float, variance: float, degrees: float, level: float
) -> None:
    found = t_interval(estimate, variance, degrees, level)
    error = math.sqrt(variance)
    lower, upper = student.interval(level, degrees, loc=estimate, scale=error)
    p_value = 2 * student.sf(abs(estimate) / error, degrees)
    reach = QUANTILE_TOLERANCE * (abs(estimate) + error)
    assert found.std_error == error
    assert found.lower == pytest.approx(lower, abs=reach * quantile(degrees, level))
    assert found.upper == pytest.approx(upper, abs=reach * quantile(degrees, level))
    assert found.p_value == pytest.approx(
        p_value, rel=1e-7, abs=0
    )  # relative error far out in the tail


def test_an_interval_shuts_out_zero_exactly_where_the_p_value_is_small() -> None:
    shut_out = t_interval(2.2, 1.0, 15.0, 0.95)
    kept = t_interval(2.0, 1.0, 15.0, 0.95)  # the quantile is 2.13
    assert shut_out.lower is not None
    assert kept.lower is not None
    assert shut_out.p_value is not None
    assert kept.p_value is not None
    assert shut_out.lower > 0 > kept.lower
    assert shut_out.p_value < 0.05 < kept.p_value


@pytest.mark.parametrize("variance", [0.0, -0.0, math.nan])
def test_without_a_variance_nothing_is_known_of_the_error(variance: float) -> None:
    assert t_interval(1.5, variance, math.inf, 0.95) == Interval(0.0, None, None, None)


def fieller_by_search(
    treated: tuple[float, float], control: tuple[float, float], reach: float
) -> tuple[float, float]:
    """The ratios ρ that |m₁ − ρ m₀| ≤ t √(V₁ + ρ² V₀) does not reject: its two ends, searched."""

    def excess(ratio: float) -> float:
        spread = treated[1] + ratio**2 * control[1]
        return (treated[0] - ratio * control[0]) ** 2 - reach**2 * spread

    middle = treated[0] / control[0]
    ends = []
    for direction in (-1.0, 1.0):
        step = 1e-3
        while excess(middle + direction * step) <= 0:
            step *= 2
        ends.append(brentq(excess, middle, middle + direction * step, xtol=1e-14, rtol=1e-14))
    return ends[0], ends[1]


means = st.floats(-50, 50)
variances = st.floats(0.01, 4)


@settings(max_examples=150, deadline=None)
@given(means, variances, means, variances, st.floats(3, 500))
def test_fiellers_interval_holds_the_ratios_that_are_not_rejected(
    mean_1: float, var_1: float, mean_0: float, var_0: float, degrees: float
) -> None:
    reach = quantile(degrees, 0.95)
    # Well inside the refusals, where the search runs to very large ratios.
    assume(abs(mean_0) > 1.05 * max(reach, MIN_CONTROL_ERRORS) * math.sqrt(var_0))
    found = relative_effect((mean_1, var_1), (mean_0, var_0), degrees, 0.95)
    lower, upper = fieller_by_search((mean_1, var_1), (mean_0, var_0), reach)
    assert found.estimate is not None
    assert found.estimate == pytest.approx(mean_1 / mean_0 - 1, rel=1e-12, abs=1e-12)
    # The search stops at 1e-14; near a refusal the ends feel the doubles' last digits 1e3-fold.
    assert found.lower == pytest.approx(lower - 1, rel=1e-8, abs=1e-8)
    assert found.upper == pytest.approx(upper - 1, rel=1e-8, abs=1e-8)


def test_a_ratio_is_refused_where_the_control_mean_is_within_three_errors_of_zero() -> None:
    for mean in (0.0, 2.99, -2.99):
        assert relative_effect((5.0, 1.0), (mean, 1.0), math.inf, 0.95) == REFUSED
    for mean in (3.0, -3.0):
        assert relative_effect((5.0, 1.0), (mean, 1.0), math.inf, 0.95).estimate is not None


def test_a_ratio_is_refused_where_fiellers_set_is_no_interval() -> None:
    few = 2.0  # degrees of freedom: the quantile is 4.3, over three errors
    assert quantile(few, 0.95) > 4.0
    assert relative_effect((5.0, 1.0), (4.0, 1.0), few, 0.95) == REFUSED


@pytest.mark.parametrize(("var_1", "var_0"), [(0.0, 1.0), (1.0, 0.0), (math.nan, 1.0)])
def test_a_ratio_is_refused_where_a_variance_is_unknown(var_1: float, var_0: float) -> None:
    assert relative_effect((5.0, var_1), (40.0, var_0), 10.0, 0.95) == REFUSED
