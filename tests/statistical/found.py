"""What many releases say of one effect, and how that fits the truth."""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from schemas.arrays import Floats


def errors_off(estimates: Floats, truth: float) -> float:
    """How many standard errors the mean of the estimates is away from the truth."""
    error = estimates.std(ddof=1) / np.sqrt(len(estimates))
    return float(abs(estimates.mean() - truth) / error)


@dataclass(frozen=True)
class Found:
    """What every release says of one estimand, shape [releases], and the truth."""

    estimate: Floats
    variance: Floats
    degrees_of_freedom: Floats
    truth: float

    @property
    def errors_off(self) -> float:
        return errors_off(self.estimate, self.truth)

    @property
    def ratio(self) -> float:
        return float(self.variance.mean() / self.estimate.var(ddof=1))

    @property
    def coverage(self) -> float:
        reach = -stdtrit(self.degrees_of_freedom, 0.025) * np.sqrt(self.variance)
        return float((np.abs(self.estimate - self.truth) <= reach).mean())
