"""The law of an estimate's error, and intervals, tests and power by it.

All arrays of a call have one shape. NaN stands for a number that does not exist.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from estimators.special import betaln, ndtri, stdtr, stdtridf, stdtrit
from schemas.arrays import Bools, Floats

MIN_CONTROL_ERRORS = 3.0
"""A ratio is refused where the control mean is closer to zero than this many standard errors."""

POWER = 0.8
"""The probability with which a minimum detectable effect is found."""

PLACES = np.array(
    [
        *(0.1157221173580207, 0.6117574845151307, 1.512610269776419, 2.833751337743507),
        *(4.599227639418348, 6.844525453115177, 9.621316842456867, 13.00605499330635),
        *(17.11685518746226, 22.15109037939701, 28.487967250984, 37.09912104446692),
    ]
)
WEIGHTS = np.array(
    [
        *(0.2647313710554432, 0.377759275873138, 0.2440820113198776, 0.09044922221168093),
        *(0.0201023811546341, 0.002663973541865316, 0.0002032315926629994, 8.365055856819799e-6),
        *(1.66849387654091e-7, 1.342391030515004e-9, 3.061601635035021e-12, 8.148077467426242e-16),
    ]
)
"""Values of E in :class:`Law`, with their probabilities: Gauss's and Laguerre's.

Probabilities of |T| above 1e-6 are within 0.3 % of themselves of those with an exponential E. As
numbers, because they stand in the macros of released files, which are the same everywhere.
"""

LEAST_P_VALUE = 1e-300
"""What is less is none that doubles can tell."""

_STEPS, _CLOSE = 8, 1e-4  # 1 to 4 are needed; what is off then is some cube of the last step
_NORMAL = 1e8
"""Degrees of freedom from which slopes are a normal law's."""


@dataclass(frozen=True)
class Law:
    """The law of an error over its standard error: T = t_ν √(1 − ρ + ρE), ρ = √(κ/3).

    t_ν is Student's, E exponential of mean 1 and independent of it. Where variances are known
    (ν = ∞), T is a normal number plus a Laplace one, of variance 1 together: whatever is about
    normal in an estimate, and the noise of published statistics, which gives it the excess kurtosis
    κ. Of several noises the law of one with their κ is taken. Without any T is t_ν.
    """

    degrees_of_freedom: Floats
    """ν, from 1 up; infinite where variances are known."""
    kurtosis: Floats = field(default_factory=lambda: np.zeros(()))
    """κ, from 0 to 3."""

    @classmethod
    def of(cls, laws: Sequence["Law"]) -> "Law":
        """Return the laws of single errors as one of many, shape [n]."""
        return cls(
            np.array([one.degrees_of_freedom for one in laws], dtype=np.float64),
            np.array([one.kurtosis for one in laws], dtype=np.float64),
        )

    def p_value(self, distance: Floats) -> Floats:
        """Return P(|T| ≥ |``distance``|), above 0: a mixture of Student's over values of E."""
        place = -np.abs(distance)[..., np.newaxis] / self._scale()
        below = stdtr(np.asarray(self.degrees_of_freedom)[..., np.newaxis], place)
        found: Floats = np.maximum(2.0 * (below * WEIGHTS).sum(axis=-1), LEAST_P_VALUE)
        return found

    def quantile(self, level: float) -> Floats:
        """Return x with P(|T| ≥ x) = 1 − ``level``: Halley's steps of ln P over ln x."""
        tail = 1.0 - level
        student = -np.asarray(stdtrit(self.degrees_of_freedom, tail / 2.0), dtype=np.float64)
        if not np.any(np.asarray(self.kurtosis) > 0.0):
            return student
        laws = np.broadcast_arrays(self.degrees_of_freedom, self.kurtosis, student)
        degrees, kurtosis, found = (np.array(one).ravel() for one in laws)
        left = np.arange(len(found))
        with np.errstate(invalid="ignore", divide="ignore"):
            for _ in range(_STEPS):
                step = Law(degrees[left], kurtosis[left])._step(found[left], tail)
                found[left] *= np.exp(step)
                left = left[np.abs(step) > _CLOSE]
                if not len(left):
                    break
        quantile: Floats = found.reshape(laws[0].shape)[()]
        return quantile

    def _step(self, place: Floats, tail: float) -> Floats:
        """Return how far ln x is from where P is ``tail``, to its third order."""
        likely = self.p_value(place)
        degrees = np.minimum(self.degrees_of_freedom, _NORMAL)[:, np.newaxis]
        square = (place[:, np.newaxis] / self._scale()) ** 2
        powers = (degrees + 1.0) / 2.0 * np.log1p(square / degrees)
        known = np.log(degrees) / 2.0 + betaln(0.5, degrees / 2.0)
        parts = 2.0 * WEIGHTS * np.sqrt(square) * np.exp(-powers - known)  # of −P', times x
        slope = -parts.sum(axis=-1) / likely
        bent = (parts * (degrees + 1.0) * square / (degrees + square)).sum(axis=-1) / likely
        newton = np.log(likely / tail) / slope
        step: Floats = -newton / (1.0 - newton * (1.0 - slope + bent / slope) / 2.0)
        return step

    def _scale(self) -> Floats:
        """Return √(1 − ρ + ρE) for the values of E, the last axis."""
        share = np.sqrt(np.asarray(self.kurtosis) / 3.0)
        scale: Floats = np.sqrt(1.0 + share[..., np.newaxis] * (PLACES - 1.0))
        return scale


def excess_kurtosis(variance: Floats, fourth: Floats) -> Floats:
    """Return κ of an estimate whose noise has the fourth cumulant ``fourth``: at most Laplace's 3.

    0 without noise, and where the variance is 0: nothing depends on it there.
    """
    nothing = np.where(np.isnan(variance), np.nan, 0.0)
    has_any = (fourth > 0) & (variance > 0)
    return np.minimum(np.divide(fourth, variance**2, out=nothing, where=has_any), 3.0)


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


def interval_of(estimate: Floats, variance: Floats, law: Law, level: float) -> Interval:
    """Return estimate ± x · √variance, x the law's quantile, and the p-value of no effect.

    ``level`` lies in (0, 1). The p-value is below 1 − ``level`` where the interval leaves out zero.
    """
    error = np.sqrt(variance)
    positive = np.where(variance > 0, error, np.nan)
    half_width = law.quantile(level) * positive
    p_value = law.p_value(estimate / positive)
    return Interval(error, estimate - half_width, estimate + half_width, p_value)


def minimum_detectable_effect(
    std_error: Floats, law: Law, level: float, power: float = POWER
) -> Floats:
    """Return the effect that a test at 1 − ``level`` finds with probability ``power``, from 1/2 on.

    The quantiles (1 + level)/2 and ``power`` of the law, added up, times std_error; NaN where that
    is 0, as nothing is known about the error then.
    """
    positive = np.where(std_error > 0, std_error, np.nan)
    return (law.quantile(level) + law.quantile(2.0 * power - 1.0)) * positive


def holm(p_values: Floats, asked: Bools) -> Floats:
    """Return p-values adjusted for the number of hypotheses, the first axis (Holm 1979).

    The i-th smallest of m p-values is multiplied by m − i + 1. No adjusted p-value is below that of
    a smaller one, or above 1. ``asked``, of the same shape, says which are hypotheses, by what is
    known before anything is drawn: one without a p-value, NaN, which stays so, counts all the same.
    """
    order = np.argsort(p_values, axis=0)  # NaN last
    sorted_values = np.take_along_axis(p_values, order, axis=0)
    rank = np.arange(p_values.shape[0]).reshape(-1, *[1] * (p_values.ndim - 1))
    left = asked.sum(axis=0) - rank
    raised = np.minimum(np.maximum.accumulate(sorted_values * left, axis=0), 1.0)
    result = np.empty_like(p_values)
    np.put_along_axis(result, order, raised, axis=0)
    return result


def relative_effect(
    treated: tuple[Floats, Floats, Floats],
    control: tuple[Floats, Floats, Floats],
    degrees_of_freedom: Floats,
    level: float,
) -> RatioEstimate:
    """Return the lift μ₁/μ₀ − 1 with Fieller's interval.

    ``treated`` and ``control`` are (mean, variance, fourth cumulant of noise), independent of each
    other; the law is that of μ̂₁ − ρ̂ μ̂₀. All NaN where |μ̂₀| is under three standard errors, or where
    Fieller's set is no interval.
    """
    (mean_1, var_1, fourth_1), (mean_0, var_0, fourth_0) = treated, control
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        lift = mean_1 / mean_0
        kurtosis = excess_kurtosis(var_1 + lift**2 * var_0, fourth_1 + lift**4 * fourth_0)
        square = Law(degrees_of_freedom, kurtosis).quantile(level) ** 2
        a = mean_0**2 - square * var_0
        half_b = mean_1 * mean_0
        discriminant = half_b**2 - a * (mean_1**2 - square * var_1)
        kept = (var_0 > 0) & (var_1 > 0) & (a > 0) & (discriminant >= 0)
        kept &= np.abs(mean_0) >= MIN_CONTROL_ERRORS * np.sqrt(var_0)
        root = np.sqrt(discriminant)
        parts = (lift - 1.0, (half_b - root) / a - 1.0, (half_b + root) / a - 1.0)
    return RatioEstimate(*(np.where(kept, part, np.nan) for part in parts))


def interval_degrees(half_width: Floats, std_error: Floats, level: float) -> Floats:
    """Return the degrees of freedom of intervals: those df for which t_{(1+level)/2, df} = h/se.

    h is ``half_width`` and se ``std_error``, of one shape. Infinite where h/se is the normal
    quantile or, for rounding, less; and where se is NaN or 0, as nothing depends on them there. 1
    where an error has no interval: nothing tells how outcomes vary.
    """
    known = (half_width > 0) & (std_error > 0)
    ratio = np.divide(half_width, std_error, out=np.zeros_like(half_width), where=known)
    is_student = ratio > ndtri((1.0 + level) / 2.0) * (1.0 + 1e-9)
    found = np.where(np.isnan(half_width) & (std_error > 0), 1.0, np.inf)
    found[is_student] = stdtridf((1.0 + level) / 2.0, ratio[is_student])
    return np.maximum(found, 1.0)
