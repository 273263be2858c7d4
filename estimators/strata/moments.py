"""Moments of the outcomes in each stratum, from how often each value stands there."""

from dataclasses import dataclass

import numpy as np

from schemas.arrays import Floats, Ints


@dataclass(frozen=True)
class Moments:
    """Moments by stratum; all arrays have the shape [S]."""

    n_units: Floats
    mean: Floats
    variance: Floats
    """The sample variance (divisor n − 1); 0 where n = 1."""
    fourth: Floats
    """Mean of the fourth powers."""


def moments_of_counts(values: Floats, counts: Ints) -> Moments:
    """Return the moments of strata in which value y_k of ``values`` stands ``counts[s, k]`` times.

    n_s = Σ_k n_sk, μ_s = Σ_k n_sk y_k / n_s, Σ_k n_sk (y_k − μ_s)²/(n_s − 1), Σ_k n_sk y_k⁴ / n_s,
    where ``values`` have the shape [K] and ``counts`` [S, K]. Every stratum has a unit.
    """
    n_units = counts.sum(axis=1).astype(np.float64)
    mean = (counts * values).sum(axis=1) / n_units
    apart = values - mean[:, np.newaxis]
    return Moments(
        n_units=n_units,
        mean=mean,
        variance=(counts * apart**2).sum(axis=1) / np.maximum(n_units - 1.0, 1.0),
        fourth=(counts * values**4).sum(axis=1) / n_units,
    )
