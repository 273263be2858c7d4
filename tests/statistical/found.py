"""What many releases say of one effect, and how that fits the truth."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from estimators.intervals import Law
from schemas.arrays import Floats
from tests.support.distances import (
    Expected,
    assert_between,
    assert_mean,
    distance,
    mean_error,
    share_error,
)


class Sample(Protocol):
    """What every release says of one estimand, shape [releases], and the truth."""

    @property
    def estimate(self) -> Floats: ...
    @property
    def variance(self) -> Floats: ...
    @property
    def truth(self) -> float: ...
    @property
    def coverage(self) -> float: ...


@dataclass(frozen=True)
class Found:
    """A sample whose intervals are those of 95 %."""

    estimate: Floats
    variance: Floats
    degrees_of_freedom: Floats
    kurtosis: Floats
    truth: float

    @property
    def errors_off(self) -> float:
        return errors_off(self.estimate, self.truth)

    @property
    def ratio(self) -> float:
        return ratio(self.estimate, self.variance)

    @property
    def coverage(self) -> float:
        return self.coverage_at(0.95)

    def coverage_at(self, level: float) -> float:
        reach = Law(self.degrees_of_freedom, self.kurtosis).quantile(level)
        return float((np.abs(self.estimate - self.truth) <= reach * np.sqrt(self.variance)).mean())

    @classmethod
    def joined(cls, parts: Sequence[Any], truth: float) -> "Found":
        """What releases say that were simulated in several parts."""
        names = ("estimate", "variance", "degrees_of_freedom", "kurtosis")
        estimate, variance, degrees, kurtosis = (
            np.concatenate([getattr(one, name) for one in parts]) for name in names
        )
        return cls(estimate, variance, degrees, kurtosis, truth)


def errors_off(estimates: Floats, truth: float) -> float:
    """How many standard errors the mean of the estimates is away from the truth."""
    return float(abs(distance(float(estimates.mean()), truth, mean_error(estimates))))


def ratio(estimate: Floats, variance: Floats) -> float:
    """The mean of V̂ to the variance of the estimates."""
    return float(variance.mean() / estimate.var(ddof=1))


def ratio_error(estimate: Floats, variance: Floats) -> float:
    """Its standard error, r √(Var(V̂/E V̂ − (τ̂ − E τ̂)²/Var τ̂)/n): both vary, and together."""
    square = (estimate - estimate.mean()) ** 2
    relative = variance / variance.mean() - square / square.mean()
    return ratio(estimate, variance) * mean_error(relative)


def assert_unbiased(one: Sample, within: float) -> None:
    assert_mean(one.estimate, one.truth, within)


def assert_ratio(one: Sample, bounds: tuple[float, float], expected: Expected = 1.0) -> None:
    found, error = ratio(one.estimate, one.variance), ratio_error(one.estimate, one.variance)
    assert_between(found, bounds, expected, error)


def assert_coverage(one: Sample, bounds: tuple[float, float], expected: Expected = 0.95) -> None:
    assert_between(one.coverage, bounds, expected, share_error(0.95, len(one.estimate)))
