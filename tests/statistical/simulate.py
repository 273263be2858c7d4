"""What statistical tests share: moments of strata, Pearson's test, and where real data lie."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from estimators.debias import prior_moments, response_noise_variance
from estimators.effects import StratumMeans

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LEAST_EXPECTED = 10.0
"""Draws a cell of Pearson's test has to expect for χ² to be its distribution far out."""


def pearson(observed: NDArray[np.integer], probabilities: Floats) -> float:
    """p-value of Pearson's test that every row of ``observed`` was drawn from its probabilities.

    Both have the shape [rows, cells]; rows are independent, and their statistics add up.
    """
    expected = observed.sum(axis=1, keepdims=True) * probabilities
    if expected.min() < LEAST_EXPECTED:
        msg = f"a cell expects {expected.min():.1f} draws: too few for this test"
        raise ValueError(msg)
    statistic = ((observed - expected) ** 2 / expected).sum()
    degrees = observed.shape[0] * (observed.shape[1] - 1)
    return float(chi2.sf(statistic, degrees))


@dataclass(frozen=True)
class Moments:
    """Units, mean and sample variance of strata.

    Without units, mean and variance are NaN; of one unit the variance is 0.
    """

    n_units: Floats
    mean: Floats
    variance: Floats


def moments(values: Floats, stratum: Ints, shape: tuple[int, ...]) -> Moments:
    """Moments of ``values``, shape [n], by flat ``stratum``, brought into ``shape``."""
    size = int(np.prod(shape))
    n = np.bincount(stratum, minlength=size).astype(np.float64)
    total = np.bincount(stratum, values, minlength=size)
    mean = np.divide(total, n, out=np.full(size, np.nan), where=n > 0)
    square = np.bincount(stratum, (values - mean[stratum]) ** 2, minlength=size)
    variance = np.divide(square, n - 1, out=np.where(n > 0, 0.0, np.nan), where=n > 1)
    return Moments(*(part.reshape(shape) for part in (n, mean, variance)))


def without_privacy(own: Moments) -> StratumMeans:
    """Strata of outcomes as they are, for the estimators."""
    return StratumMeans(own.n_units, own.mean, own.variance, np.zeros_like(own.mean))


def debiased(randomised: Moments, grid: Floats, prior: Floats, rate: float) -> StratumMeans:
    """Strata of debiased outcomes from the moments of randomised ones, as from a release.

    ``prior`` has the shape of the strata and an axis over the ``grid``.
    """
    mean, variance = prior_moments(grid, prior)
    n = randomised.n_units
    return StratumMeans(
        n_units=n,
        mean=(randomised.mean - rate * mean) / (1 - rate),
        variance=randomised.variance / (1 - rate) ** 2,
        noise_variance=response_noise_variance(
            n, randomised.mean, randomised.variance, mean, variance, rate
        ),
    )


def real_data(name: str) -> Path:
    """A file of the real experiments; the test that asks for one that is not there is skipped."""
    root = Path(__file__).resolve().parents[2]
    folder = Path(os.environ.get("CLUSTERDP_TEST_DATA", root.parent / "shared" / "data"))
    path = folder / name
    if not path.is_file():
        pytest.skip(f"no {name} in {folder}: set CLUSTERDP_TEST_DATA to the folder of the data")
    return path
