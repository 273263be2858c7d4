"""Confidence intervals, tests and power, from estimates, variances and degrees of freedom.

All arrays of a call have one shape. NaN stands for a number that does not exist.
"""

from dataclasses import dataclass

import numpy as np

from schemas.arrays import Floats

MIN_CONTROL_ERRORS = 3.0
"""A ratio is refused where the control mean is closer to zero than this many standard errors."""

POWER = 0.8
"""The probability with which a minimum detectable effect is found."""


@dataclass(frozen=True)
class Interval:
    """Standard errors, bounds and two-sided p-values against zero.

    Bounds and p-value are NaN where the variance is zero: nothing is known about the error then.
    """

    std_error: Floats
    lower: Floats
    upper: Floats
    p_value: Floats


@dataclass(frozen=True)
class RatioEstimate:
    """Relative effects and their bounds; all NaN where no interval exists."""

    estimate: Floats
    lower: Floats
    upper: Floats


def t_interval(
    estimate: Floats, variance: Floats, degrees_of_freedom: Floats, level: float
) -> Interval:
    """Return estimate ± t_{(1+level)/2, df} · √variance and the p-value of no effect.

    ``level`` lies in (0, 1); infinite ``degrees_of_freedom`` give the normal interval.
    """
    from scipy.special import stdtr  # noqa: PLC0415 - takes a quarter of a second

    error = np.sqrt(variance)
    positive = np.where(variance > 0, error, np.nan)
    half_width = quantile(degrees_of_freedom, level) * positive
    p_value = 2.0 * stdtr(degrees_of_freedom, -np.abs(estimate) / positive)
    return Interval(error, estimate - half_width, estimate + half_width, p_value)


def quantile(degrees_of_freedom: Floats, level: float) -> Floats:
    """Return the two-sided Student quantile t_{(1+level)/2}."""
    from scipy.special import stdtrit  # noqa: PLC0415 - takes a quarter of a second

    return np.asarray(-stdtrit(degrees_of_freedom, (1.0 - level) / 2.0), dtype=np.float64)


def minimum_detectable_effect(
    std_error: Floats, degrees_of_freedom: Floats, level: float, power: float = POWER
) -> Floats:
    """Return the effect that a test at 1 − ``level`` finds with probability ``power``.

    (t_{(1+level)/2} + t_{power}) · std_error, both quantiles with the same degrees of freedom; NaN
    where the standard error is 0, as nothing is known about the error then.
    """
    from scipy.special import stdtrit  # noqa: PLC0415 - takes a quarter of a second

    positive = np.where(std_error > 0, std_error, np.nan)
    of_power = np.asarray(stdtrit(degrees_of_freedom, power), dtype=np.float64)
    return (quantile(degrees_of_freedom, level) + of_power) * positive


def holm(p_values: Floats) -> Floats:
    """Return p-values adjusted for the number of hypotheses, the first axis (Holm 1979).

    The i-th smallest of m p-values is multiplied by m − i + 1. No adjusted p-value is below that of
    a smaller one, or above 1. NaN is no hypothesis, and stays NaN.
    """
    order = np.argsort(p_values, axis=0)  # NaN last
    sorted_values = np.take_along_axis(p_values, order, axis=0)
    rank = np.arange(p_values.shape[0]).reshape(-1, *[1] * (p_values.ndim - 1))
    left = (~np.isnan(p_values)).sum(axis=0) - rank
    raised = np.minimum(np.maximum.accumulate(sorted_values * left, axis=0), 1.0)
    result = np.empty_like(p_values)
    np.put_along_axis(result, order, raised, axis=0)
    return result


def relative_effect(
    treated: tuple[Floats, Floats],
    control: tuple[Floats, Floats],
    degrees_of_freedom: Floats,
    level: float,
) -> RatioEstimate:
    """Return the lift μ₁/μ₀ − 1 with Fieller's interval.

    ``treated`` and ``control`` are (mean, variance) pairs, independent of each other. All NaN
    where |μ̂₀| is under three standard errors, or where Fieller's set is no interval.
    """
    (mean_1, var_1), (mean_0, var_0) = treated, control
    square = quantile(degrees_of_freedom, level) ** 2
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        a = mean_0**2 - square * var_0
        half_b = mean_1 * mean_0
        discriminant = half_b**2 - a * (mean_1**2 - square * var_1)
        kept = (var_0 > 0) & (var_1 > 0) & (a > 0) & (discriminant >= 0)
        kept &= np.abs(mean_0) >= MIN_CONTROL_ERRORS * np.sqrt(var_0)
        root = np.sqrt(discriminant)
        parts = (mean_1 / mean_0 - 1.0, (half_b - root) / a - 1.0, (half_b + root) / a - 1.0)
    return RatioEstimate(*(np.where(kept, part, np.nan) for part in parts))


def interval_degrees(half_width: Floats, std_error: Floats, level: float) -> Floats:
    """Return the degrees of freedom of intervals: those df for which t_{(1+level)/2, df} = h/se.

    h is ``half_width`` and se ``std_error``, of one shape. Infinite where h/se is the normal
    quantile or, for rounding, less; and where se is NaN or 0, as nothing depends on them there. 1
    where an error has no interval: nothing tells how outcomes vary.
    """
    from scipy.special import ndtri, stdtridf  # noqa: PLC0415 - takes a quarter of a second

    known = (half_width > 0) & (std_error > 0)
    ratio = np.divide(half_width, std_error, out=np.zeros_like(half_width), where=known)
    is_student = ratio > ndtri((1.0 + level) / 2.0) * (1.0 + 1e-9)
    found = np.where(np.isnan(half_width) & (std_error > 0), 1.0, np.inf)
    found[is_student] = stdtridf((1.0 + level) / 2.0, ratio[is_student])
    return np.maximum(found, 1.0)
