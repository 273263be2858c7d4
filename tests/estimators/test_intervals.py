"""Intervals, tests, power and ratios, against scipy's distributions and a numeric root search."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.polynomial.laguerre import laggauss
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm
from scipy.stats import t as student

from estimators.intervals import (
    MIN_CONTROL_ERRORS,
    PLACES,
    WEIGHTS,
    Law,
    excess_kurtosis,
    holm,
    interval_of,
    minimum_detectable_effect,
    relative_effect,
)
from estimators.response.pool_statistics import discrete_laplace_cumulants
from schemas.arrays import Floats
from tests.estimators.reference import p_value, quantile

# Two implementations of the same quantile, each good to about 1e-12 in the body of Student's t.
QUANTILE_TOLERANCE = 1e-9


def one(value: float) -> Floats:
    return np.array([value])


def reach_of(degrees: float, level: float) -> float:
    return float(Law(one(degrees)).quantile(level)[0])


@settings(max_examples=100, deadline=None)
@given(st.floats(1, 1e6), st.floats(0.5, 0.999))
def test_without_kurtosis_the_quantile_is_students(degrees: float, level: float) -> None:
    expected = student.ppf((1 + level) / 2, degrees)
    assert reach_of(degrees, level) == pytest.approx(expected, rel=QUANTILE_TOLERANCE, abs=0)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_infinitely_many_degrees_of_freedom_give_the_normal_quantile(level: float) -> None:
    expected = norm.ppf((1 + level) / 2)
    assert reach_of(math.inf, level) == pytest.approx(expected, rel=QUANTILE_TOLERANCE, abs=0)


laws = st.tuples(st.floats(1, 1e4), st.floats(0, 3))


@settings(max_examples=100, deadline=None)
@given(laws, st.floats(0.01, 0.9999), st.floats(0, 30))
def test_the_law_is_its_transcription(
    law: tuple[float, float], level: float, distance: float
) -> None:
    found = Law(*map(one, law))
    assert found.p_value(one(-distance)) == pytest.approx(p_value(distance, *law), rel=1e-7)
    # scipy's own survival function of Student's t is good to 1e-8 for one degree of freedom
    assert found.quantile(level) == pytest.approx(quantile(level, *law), rel=1e-7)


def test_the_values_of_the_mixture_are_gausses_and_laguerres() -> None:
    places, weights = laggauss(12)
    np.testing.assert_allclose(PLACES, places, rtol=1e-12)
    np.testing.assert_allclose(WEIGHTS, weights, rtol=1e-9)


@pytest.mark.parametrize("tail", [0.1, 0.05, 0.025, 0.01, 1e-3, 1e-6])
def test_a_kurtosis_of_three_is_laplaces(tail: float) -> None:
    reach = -math.log(tail) / math.sqrt(2)
    (found,) = Law(one(math.inf), one(3.0)).p_value(one(reach))
    assert found == pytest.approx(tail, rel=3e-3)


@pytest.mark.parametrize("kurtosis", [0.05, 0.5, 1.5, 2.5])
@pytest.mark.parametrize("distance", [0.5, 2.0, 3.0, 5.0])
def test_between_normal_and_laplace_is_a_sum_of_both(kurtosis: float, distance: float) -> None:
    """P(|√(1 − ρ) N + √(ρ/2) L| ≥ x), L with the density e^{−|l|}/2, by quadrature over L."""
    rho = math.sqrt(kurtosis / 3)

    def beyond(place: float) -> float:
        ends = (
            (x - place * math.sqrt(rho / 2)) / math.sqrt(1 - rho) for x in (distance, -distance)
        )
        return float((norm.sf(next(ends)) + norm.cdf(next(ends))) * math.exp(-abs(place)) / 2)

    expected = quad(beyond, -40, 40, points=[0.0], limit=400)[0]
    (found,) = Law(one(math.inf), one(kurtosis)).p_value(one(distance))
    assert found == pytest.approx(expected, rel=2e-3)


def test_p_values_and_intervals_agree_and_no_p_value_is_zero() -> None:
    """10,000 at random: p is below 1 − level where zero is outside, whatever the law and level."""
    random = np.random.default_rng(3)
    law = Law(1 / random.random(10_000), 3 * random.random(10_000) ** 2)
    estimate = random.standard_cauchy(10_000)
    for level in (0.5, 0.9, 0.95, 0.975, 0.99, 0.9999):
        found = interval_of(estimate, np.ones(10_000), law, level)
        outside = (found.lower > 0) | (found.upper < 0)
        assert 0.001 < outside.mean() < 0.999
        assert np.array_equal(found.p_value < 1 - level, outside)
    surely = law.p_value(np.full(10_000, 1e200))
    assert surely.min() > 0
    assert law.p_value(np.zeros(10_000)) == pytest.approx(np.ones(10_000))


def covered(reach: float, weights: Floats, scale: float, variance: float) -> float:
    """P(|G + Σ w Z| ≤ reach) of normal G and discrete Laplace Z, by its characteristic function.

    The normal part counts as at least 1e-3 of the variance, and the sum has a period of 20 standard
    deviations.
    """
    a = math.exp(-1 / scale)
    whole = variance + float(np.sum(weights**2)) * 2 * a / (1 - a) ** 2
    normal = max(variance, 1e-3 * whole)
    step = math.pi / (10 * math.sqrt(whole))
    place = np.arange(1, int(16 / math.sqrt(normal / whole)) + 1) * step
    noise = (1 - a) ** 2 / (1 - 2 * a * np.cos(np.outer(place, weights)) + a * a)
    parts = np.sin(place * reach) / place * np.exp(-normal * place**2 / 2) * noise.prod(axis=1)
    return step / math.pi * (reach + 2 * float(parts.sum()))


NOISES = {
    (k, sizes): np.concatenate([(np.arange(k) - (k - 1) / 2 if k > 2 else np.ones(1)) / n
                                for n in sizes])
    for k in (2, 6, 12) for sizes in ((500, 500), (100, 1000))
}  # fmt: skip
"""What noise on every count of two arms counts for, by levels and units of the arms."""


@pytest.mark.parametrize("level", [0.9, 0.95, 0.975, 0.99, 0.999])
@pytest.mark.parametrize("share", [0.02, 0.2, 0.4, 0.6, 0.95])
@pytest.mark.parametrize(("k", "sizes"), NOISES)
def test_a_law_of_one_noise_is_nearly_that_of_all(
    k: int, sizes: tuple[int, int], share: float, level: float
) -> None:
    """Coverage by the exact law of what is published: within 0.36 points, at 95 % within 0.26.

    ``share`` is that of sampling in the variance. Farthest is the sum of two equal noises. Nothing
    is drawn here. Student's with the same kurtosis covered 95.0 to 96.9 % in place of 95 %.
    """
    weights, scale = NOISES[k, sizes], 2.0
    second, fourth = (float(one) for one in discrete_laplace_cumulants(scale))
    noise = second * float(np.sum(weights**2))
    variance = noise / (1 - share)
    kurtosis = min(3.0, fourth * float(np.sum(weights**4)) / variance**2)
    reach = math.sqrt(variance) * Law(one(math.inf), one(kurtosis)).quantile(level)
    found = covered(float(reach[0]), weights, scale, share * variance)
    assert -0.0036 < found - level < 0.0003
    assert found - level > -0.0026 or level < 0.95


numbers = st.tuples(st.floats(-1e3, 1e3), st.floats(1e-6, 1e6), st.floats(1, 1e4))


@settings(max_examples=100, deadline=None)
@given(st.lists(numbers, min_size=1, max_size=5), st.sampled_from([0.8, 0.95]))
def test_without_noise_intervals_are_students(
    rows: list[tuple[float, float, float]], level: float
) -> None:
    estimate, variance, degrees = np.array(rows).T
    found = interval_of(estimate, variance, Law(degrees), level)
    error = np.sqrt(variance)
    lower, upper = student.interval(level, degrees, loc=estimate, scale=error)
    p_value = 2 * student.sf(np.abs(estimate) / error, degrees)
    reach = QUANTILE_TOLERANCE * (np.abs(estimate) + error) * Law(degrees).quantile(level)
    assert found.std_error.tolist() == error.tolist()
    assert (np.abs(found.lower - lower) <= reach).all()
    assert (np.abs(found.upper - upper) <= reach).all()
    # The relative error far out in the tail.
    np.testing.assert_allclose(found.p_value, np.maximum(p_value, 1e-300), rtol=1e-7, atol=0)


def test_an_interval_shuts_out_zero_exactly_where_the_p_value_is_small() -> None:
    found = interval_of(np.array([2.2, 2.0]), np.ones(2), Law(np.full(2, 15.0)), 0.95)
    assert found.lower[0] > 0 > found.lower[1]  # the quantile is 2.13
    assert found.p_value[0] < 0.05 < found.p_value[1]


def test_without_a_variance_nothing_is_known_of_the_error() -> None:
    law = Law(np.full(3, np.inf), np.full(3, 1.0))
    found = interval_of(np.full(3, 1.5), np.array([0.0, -0.0, 1.0]), law, 0.95)
    assert found.std_error.tolist() == [0.0, 0.0, 1.0]
    for part in (found.lower, found.upper, found.p_value):
        assert np.isnan(part).tolist() == [True, True, False]


def test_what_cannot_be_had_stays_so_and_touches_nothing_else() -> None:
    nothing = np.array([np.nan, 1.0])
    found = interval_of(nothing, nothing, Law(nothing, nothing), 0.95)
    for part in (found.std_error, found.lower, found.upper, found.p_value):
        assert np.isnan(part).tolist() == [True, False]
    least = minimum_detectable_effect(nothing, Law(nothing), 0.95)
    assert np.isnan(least).tolist() == [True, False]


def test_the_kurtosis_of_noise_is_at_most_laplaces_and_zero_where_nothing_is_known() -> None:
    found = excess_kurtosis(np.array([2.0, 2.0, 0.0, 2.0]), np.array([4.0, 60.0, 1.0, 0.0]))
    assert found.tolist() == [1.0, 3.0, 0.0, 0.0]
    assert np.isnan(excess_kurtosis(one(np.nan), one(1.0)))[0]


# power: the shifted Student approximation, not the noncentral t (no closed inverse)


def power_of(effect: Floats, std_error: Floats, degrees_of_freedom: Floats, level: float) -> Floats:
    """Return the probability that a true ``effect`` is found at 1 − ``level``, in its direction.

    P(T > t_{(1+level)/2} − |effect|/std_error), the inverse of :func:`minimum_detectable_effect`.
    """
    shift = np.abs(effect) / std_error - Law(degrees_of_freedom).quantile(level)
    return np.asarray(student.cdf(shift, degrees_of_freedom), dtype=np.float64)


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-3, 1e3), st.floats(3, 1e5), st.floats(0.5, 0.99), st.floats(0.55, 0.99))
def test_power_is_the_inverse_of_the_minimum_detectable_effect(
    error: float, degrees: float, level: float, power: float
) -> None:
    least = minimum_detectable_effect(one(error), Law(one(degrees)), level, power)
    assert least == pytest.approx(
        (student.ppf((1 + level) / 2, degrees) + student.ppf(power, degrees)) * error,
        rel=QUANTILE_TOLERANCE,
    )
    for effect in (least, -least):
        found = power_of(effect, one(error), one(degrees), level)
        assert found == pytest.approx(power, abs=QUANTILE_TOLERANCE)


def test_the_default_power_is_eighty_per_cent() -> None:
    least = minimum_detectable_effect(one(2.0), Law(one(math.inf)), 0.95)
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
    assert np.isnan(minimum_detectable_effect(one(0.0), Law(one(math.inf)), 0.95)).all()


# Holm


def of_all(p_values: Floats) -> Floats:
    return holm(p_values, np.ones(p_values.shape, dtype=np.bool_))


def holm_by_hand(p_values: list[float]) -> list[float]:
    """Each is the largest, over hypotheses no likelier, of p times how many are not before it."""
    known, n = sorted(p for p in p_values if not math.isnan(p)), len(p_values)
    adjusted = {p: min(1.0, max((n - i) * q for i, q in enumerate(known) if q <= p)) for p in known}
    return [adjusted.get(p, math.nan) for p in p_values]


p_lists = st.lists(
    st.one_of(st.floats(0, 1), st.sampled_from([0.01, 0.02, 0.5, math.nan])), min_size=1, max_size=6
)


@settings(max_examples=200, deadline=None)
@given(p_lists)
def test_holm_is_its_transcription(p_values: list[float]) -> None:
    found = of_all(np.array(p_values))
    np.testing.assert_allclose(found, holm_by_hand(p_values), rtol=1e-12, atol=0)


def test_holm_on_an_example_from_the_literature() -> None:
    """Holm's steps: 4, 3, 2 and 1 times; the last is lifted to the one before it."""
    found = of_all(np.array([0.02, 0.005, 0.03, 0.01]))
    np.testing.assert_allclose(found, [0.04, 0.02, 0.04, 0.03], rtol=1e-12)


def test_one_hypothesis_is_not_adjusted_and_ties_stay_ties() -> None:
    assert of_all(one(0.03)).tolist() == [0.03]
    two = np.array([0.2, np.nan])
    assert holm(two, np.array([True, False]))[0] == 0.2
    assert of_all(two)[0] == 0.4  # what was drawn refused the other, which was asked
    assert of_all(np.array([0.01, 0.01, 0.01])).tolist() == [0.03] * 3


def test_no_adjusted_p_value_is_more_than_one() -> None:
    assert of_all(np.array([0.6, 0.7, 0.8])).tolist() == [1.0] * 3


def test_holm_works_along_the_first_axis() -> None:
    columns = np.array([[0.01, 0.4, np.nan], [0.04, 0.01, 0.2], [0.03, np.nan, np.nan]])
    found = of_all(columns)
    for column in range(3):
        own = of_all(columns[:, column])
        assert np.array_equal(found[:, column], own, equal_nan=True)


# ratios


def ratio_of(
    treated: tuple[float, float],
    control: tuple[float, float],
    degrees: float,
    fourth: float = 0.0,
) -> tuple[float, float, float]:
    above, below = (
        (one(mean), one(variance), one(fourth)) for mean, variance in (treated, control)
    )
    found = relative_effect(above, below, one(degrees), 0.95)
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
        (np.full(3, 5.0), np.ones(3), np.ones(3)),
        (np.array([40.0, 0.0, np.nan]), np.ones(3), np.ones(3)),
        np.full(3, 10.0),
        0.95,
    )
    assert np.isnan(found.estimate).tolist() == [False, True, True]
    assert found.estimate[0] == ratio_of((5.0, 1.0), (40.0, 1.0), 10.0)[0]


def test_a_ratio_takes_the_kurtosis_of_its_own_noise() -> None:
    """Of μ̂₁ − ρ̂μ̂₀: ρ̂ = 2 counts the noise below it sixteenfold, in a variance of five."""
    kurtosis = (1 + 16) * 1.5 / (1 + 4) ** 2
    reach = quantile(0.95, 50.0, kurtosis)
    found = ratio_of((40.0, 1.0), (20.0, 1.0), 50.0, fourth=1.5)
    lower, upper = fieller_by_search((40.0, 1.0), (20.0, 1.0), reach)
    assert found == pytest.approx((1.0, lower - 1, upper - 1), rel=1e-8)
