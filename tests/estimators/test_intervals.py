"""Intervals, tests, power and ratios, against scipy's distributions and a numeric root search."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm
from scipy.stats import t as student

from estimators.intervals import (
    MIN_CONTROL_ERRORS,
    holm,
    minimum_detectable_effect,
    quantile,
    relative_effect,
    t_interval,
)
from schemas.arrays import Floats

# Two implementations of the same quantile, each good to about 1e-12 in the body of Student's t.
QUANTILE_TOLERANCE = 1e-9


def one(value: float) -> Floats:
    return np.array([value])


def reach_of(degrees: float, level: float) -> float:
    return float(quantile(one(degrees), level)[0])


@settings(max_examples=100, deadline=None)
@given(st.floats(1, 1e6), st.floats(0.5, 0.999))
def test_the_quantile_is_students(degrees: float, level: float) -> None:
    expected = student.ppf((1 + level) / 2, degrees)
    assert reach_of(degrees, level) == pytest.approx(expected, rel=QUANTILE_TOLERANCE, abs=0)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_infinitely_many_degrees_of_freedom_give_the_normal_quantile(level: float) -> None:
    expected = norm.ppf((1 + level) / 2)
    assert reach_of(math.inf, level) == pytest.approx(expected, rel=QUANTILE_TOLERANCE, abs=0)


numbers = st.tuples(st.floats(-1e3, 1e3), st.floats(1e-6, 1e6), st.floats(1, 1e4))


@settings(max_examples=100, deadline=None)
@given(st.lists(numbers, min_size=1, max_size=5), st.sampled_from([0.8, 0.95]))
def test_intervals_are_students(rows: list[tuple[float, float, float]], level: float) -> None:
    estimate, variance, degrees = np.array(rows).T
    found = t_interval(estimate, variance, degrees, level)
    error = np.sqrt(variance)
    lower, upper = student.interval(level, degrees, loc=estimate, scale=error)
    p_value = 2 * student.sf(np.abs(estimate) / error, degrees)
    reach = QUANTILE_TOLERANCE * (np.abs(estimate) + error) * quantile(degrees, level)
    assert found.std_error.tolist() == error.tolist()
    assert (np.abs(found.lower - lower) <= reach).all()
    assert (np.abs(found.upper - upper) <= reach).all()
    # The relative error far out in the tail.
    np.testing.assert_allclose(found.p_value, p_value, rtol=1e-7, atol=0)


def test_an_interval_shuts_out_zero_exactly_where_the_p_value_is_small() -> None:
    found = t_interval(np.array([2.2, 2.0]), np.ones(2), np.full(2, 15.0), 0.95)
    assert found.lower[0] > 0 > found.lower[1]  # the quantile is 2.13
    assert found.p_value[0] < 0.05 < found.p_value[1]


def test_without_a_variance_nothing_is_known_of_the_error() -> None:
    found = t_interval(np.full(3, 1.5), np.array([0.0, -0.0, 1.0]), np.full(3, np.inf), 0.95)
    assert found.std_error.tolist() == [0.0, 0.0, 1.0]
    for part in (found.lower, found.upper, found.p_value):
        assert np.isnan(part).tolist() == [True, True, False]


def test_what_cannot_be_had_stays_so_and_touches_nothing_else() -> None:
    nothing = np.array([np.nan, 1.0])
    found = t_interval(nothing, nothing, nothing, 0.95)
    for part in (found.std_error, found.lower, found.upper, found.p_value):
        assert np.isnan(part).tolist() == [True, False]
    assert np.isnan(minimum_detectable_effect(nothing, nothing, 0.95)).tolist() == [True, False]


# power: the shifted Student approximation, not the noncentral t (no closed inverse)


def power_of(effect: Floats, std_error: Floats, degrees_of_freedom: Floats, level: float) -> Floats:
    """Return the probability that a true ``effect`` is found at 1 − ``level``, in its direction.

    P(T > t_{(1+level)/2} − |effect|/std_error), the inverse of :func:`minimum_detectable_effect`.
    """
    shift = np.abs(effect) / std_error - quantile(degrees_of_freedom, level)
    return np.asarray(student.cdf(shift, degrees_of_freedom), dtype=np.float64)


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-3, 1e3), st.floats(3, 1e5), st.floats(0.5, 0.99), st.floats(0.55, 0.99))
def test_power_is_the_inverse_of_the_minimum_detectable_effect(
    error: float, degrees: float, level: float, power: float
) -> None:
    least = minimum_detectable_effect(one(error), one(degrees), level, power)
    assert least == pytest.approx(
        (student.ppf((1 + level) / 2, degrees) + student.ppf(power, degrees)) * error,
        rel=QUANTILE_TOLERANCE,
    )
    for effect in (least, -least):
        found = power_of(effect, one(error), one(degrees), level)
        assert found == pytest.approx(power, abs=QUANTILE_TOLERANCE)


def test_the_default_power_is_eighty_per_cent() -> None:
    least = minimum_detectable_effect(one(2.0), one(math.inf), 0.95)
    assert least == pytest.approx(2 * (1.959963985 + 0.841621234), rel=1e-9)  # digits given


@pytest.mark.parametrize("degrees", [5.0, 20.0, 200.0])
def test_power_is_nearly_that_of_the_noncentral_t(degrees: float) -> None:
    """The power of the t-test where estimate and variance are independent, in its direction.

    By drawing, as T = (δ + Z)/√(χ²/df): the approximation is within 8 points at 5 degrees of
    freedom, and 1.2 from 20. A fixed stream: this can never fail by chance.
    """
    generator = np.random.default_rng(1)
    normal, chi = generator.normal(size=400_000), generator.chisquare(degrees, 400_000)
    for shift in (1.0, 2.0, 3.0, 4.0):
        drawn = (shift + normal) / np.sqrt(chi / degrees)
        expected = (drawn > reach_of(degrees, 0.95)).mean()
        found = power_of(one(shift), one(1.0), one(degrees), 0.95)[0]
        assert abs(found - expected) < (0.08 if degrees < 20 else 0.012)


def test_more_effect_has_more_power_and_none_has_the_error_of_one_side() -> None:
    found = power_of(np.linspace(0, 6, 20), np.ones(20), np.full(20, 30.0), 0.95)
    assert (np.diff(found) > 0).all()
    assert found[0] == pytest.approx(0.025, rel=1e-9)


def test_without_an_error_no_effect_is_said_to_be_detectable() -> None:
    assert np.isnan(minimum_detectable_effect(one(0.0), one(math.inf), 0.95)).all()


# Holm


def holm_by_hand(p_values: list[float]) -> list[float]:
    """Each is the largest, over hypotheses no likelier, of p times how many are not before it."""
    known = sorted(p for p in p_values if not math.isnan(p))
    adjusted = {
        p: min(1.0, max((len(known) - i) * q for i, q in enumerate(known) if q <= p)) for p in known
    }
    return [adjusted.get(p, math.nan) for p in p_values]


p_lists = st.lists(
    st.one_of(st.floats(0, 1), st.sampled_from([0.01, 0.02, 0.5, math.nan])), min_size=1, max_size=6
)


@settings(max_examples=200, deadline=None)
@given(p_lists)
def test_holm_is_its_transcription(p_values: list[float]) -> None:
    found = holm(np.array(p_values))
    np.testing.assert_allclose(found, holm_by_hand(p_values), rtol=1e-12, atol=0)


def test_holm_on_an_example_from_the_literature() -> None:
    """Holm's steps: 4, 3, 2 and 1 times; the last is lifted to the one before it."""
    found = holm(np.array([0.02, 0.005, 0.03, 0.01]))
    np.testing.assert_allclose(found, [0.04, 0.02, 0.04, 0.03], rtol=1e-12)


def test_one_hypothesis_is_not_adjusted_and_ties_stay_ties() -> None:
    assert holm(one(0.03)).tolist() == [0.03]
    assert holm(np.array([0.2, np.nan])).tolist()[0] == 0.2
    assert holm(np.array([0.01, 0.01, 0.01])).tolist() == [0.03] * 3


def test_no_adjusted_p_value_is_more_than_one() -> None:
    assert holm(np.array([0.6, 0.7, 0.8])).tolist() == [1.0] * 3


def test_holm_works_along_the_first_axis() -> None:
    columns = np.array([[0.01, 0.4, np.nan], [0.04, 0.01, 0.2], [0.03, np.nan, np.nan]])
    found = holm(columns)
    for column in range(3):
        own = holm(columns[:, column])
        assert np.array_equal(found[:, column], own, equal_nan=True)


# ratios


def ratio_of(
    treated: tuple[float, float], control: tuple[float, float], degrees: float
) -> tuple[float, float, float]:
    found = relative_effect(
        (one(treated[0]), one(treated[1])), (one(control[0]), one(control[1])), one(degrees), 0.95
    )
    return float(found.estimate[0]), float(found.lower[0]), float(found.upper[0])


def is_refused(ratio: tuple[float, float, float]) -> bool:
    assert len({math.isnan(part) for part in ratio}) == 1, "refused in part"
    return math.isnan(ratio[0])


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
    reach = reach_of(degrees, 0.95)
    # Well inside the refusals, where the search runs to very large ratios.
    assume(abs(mean_0) > 1.05 * max(reach, MIN_CONTROL_ERRORS) * math.sqrt(var_0))
    estimate, low, high = ratio_of((mean_1, var_1), (mean_0, var_0), degrees)
    lower, upper = fieller_by_search((mean_1, var_1), (mean_0, var_0), reach)
    assert estimate == pytest.approx(mean_1 / mean_0 - 1, rel=1e-12, abs=1e-12)
    # The search stops at 1e-14; near a refusal the ends feel the doubles' last digits 1e3-fold.
    assert low == pytest.approx(lower - 1, rel=1e-8, abs=1e-8)
    assert high == pytest.approx(upper - 1, rel=1e-8, abs=1e-8)


def test_a_ratio_is_refused_where_the_control_mean_is_within_three_errors_of_zero() -> None:
    for mean in (0.0, 2.99, -2.99):
        assert is_refused(ratio_of((5.0, 1.0), (mean, 1.0), math.inf))
    for mean in (3.0, -3.0):
        assert not is_refused(ratio_of((5.0, 1.0), (mean, 1.0), math.inf))


def test_a_ratio_is_refused_where_fiellers_set_is_no_interval() -> None:
    few = 2.0  # degrees of freedom: the quantile is 4.3, over three errors
    assert reach_of(few, 0.95) > 4.0
    assert is_refused(ratio_of((5.0, 1.0), (4.0, 1.0), few))


@pytest.mark.parametrize(
    ("var_1", "var_0"), [(0.0, 1.0), (1.0, 0.0), (math.nan, 1.0), (1.0, math.nan)]
)
def test_a_ratio_is_refused_where_a_variance_is_unknown(var_1: float, var_0: float) -> None:
    assert is_refused(ratio_of((5.0, var_1), (40.0, var_0), 10.0))


def test_a_refused_ratio_leaves_its_neighbours() -> None:
    found = relative_effect(
        (np.full(3, 5.0), np.ones(3)),
        (np.array([40.0, 0.0, np.nan]), np.ones(3)),
        np.full(3, 10.0),
        0.95,
    )
    assert np.isnan(found.estimate).tolist() == [False, True, True]
    assert found.estimate[0] == ratio_of((5.0, 1.0), (40.0, 1.0), 10.0)[0]
