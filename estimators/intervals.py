"""Confidence intervals from a point, a variance and its degrees of freedom."""

import math
from dataclasses import dataclass

from scipy.special import stdtr, stdtrit

MIN_CONTROL_ERRORS = 3.0
"""A ratio is refused where the control mean is closer to zero than this many standard errors."""


@dataclass(frozen=True)
class Interval:
    """Standard error, bounds and two-sided p-value against zero.

    Bounds and p-value are None where the variance is zero: nothing is known of the error then.
    """

    std_error: float
    lower: float | None
    upper: float | None
    p_value: float | None


@dataclass(frozen=True)
class Ratio:
    """A relative effect and its bounds; all None where it is refused."""

    estimate: float | None
    lower: float | None
    upper: float | None


def t_interval(
    estimate: float, variance: float, degrees_of_freedom: float, level: float
) -> Interval:
    """Return estimate ± t_{(1+level)/2, df} · √variance and the p-value of no effect.

    ``level`` lies in (0, 1); an infinite ``degrees_of_freedom`` gives the normal interval.
    """
    if not variance > 0:
        return Interval(0.0, None, None, None)
    error = math.sqrt(variance)
    reach = quantile(degrees_of_freedom, level) * error
    p_value = 2.0 * float(stdtr(degrees_of_freedom, -abs(estimate) / error))
    return Interval(error, estimate - reach, estimate + reach, p_value)


def quantile(degrees_of_freedom: float, level: float) -> float:
    """The two-sided Student quantile t_{(1+level)/2}."""
    return -float(stdtrit(degrees_of_freedom, (1.0 - level) / 2.0))


def relative_effect(
    treated: tuple[float, float],
    control: tuple[float, float],
    degrees_of_freedom: float,
    level: float,
) -> Ratio:
    """Return the lift μ₁/μ₀ − 1 with Fieller's interval.

    ``treated`` and ``control`` are (mean, variance) pairs, independent of each other. Refused
    (all None) where |μ̂₀| is under three standard errors, or where Fieller's set is no interval.
    """
    (mean_1, var_1), (mean_0, var_0) = treated, control
    if not (var_0 > 0 and var_1 > 0) or abs(mean_0) < MIN_CONTROL_ERRORS * math.sqrt(var_0):
        return Ratio(None, None, None)
    square = quantile(degrees_of_freedom, level) ** 2
    a = mean_0**2 - square * var_0
    half_b = mean_1 * mean_0
    c = mean_1**2 - square * var_1
    discriminant = half_b**2 - a * c
    if a <= 0 or discriminant < 0:
        return Ratio(None, None, None)
    root = math.sqrt(discriminant)
    return Ratio(mean_1 / mean_0 - 1.0, (half_b - root) / a - 1.0, (half_b + root) / a - 1.0)
