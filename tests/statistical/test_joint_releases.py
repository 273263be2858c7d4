"""Many releases of two outcomes drawn together: means, their noise, and how they go together.

Each number is compared with its standard error; a sound one is beyond 5 of them with 6e-7.
"""

import numpy as np
import pytest

from privatizers.optimal_response.pair_table import pair_table
from privatizers.optimal_response.pairs import PairedGrid
from privatizers.optimal_response.response import OptimalResponse
from schemas.arrays import Floats
from tests.support.distances import assert_between, assert_near, mean_error, share_error

pytestmark = pytest.mark.statistical

FIRST = PairedGrid((0.0, 1.0), (0.8, 0.2), 0.5)
SECOND = PairedGrid((0.0, 1.0, 3.0), (0.6, 0.3, 0.1), 0.5)
TRUTH = (0.5, 0.05, 0.05, 0.1, 0.2, 0.1)
"""How often pairs occur: not as guessed, and the outcomes go together."""
RELEASES, UNITS, FAR = 5_000, 400, 5.0


def assert_mean(found: Floats, true: float) -> None:
    """The mean over releases is the truth; where all values are alike, but for rounding."""
    rounding = 1e-12 * float(np.abs(found).max())
    error = max(mean_error(found), rounding, float(np.finfo(float).tiny))
    assert_near(float(found.mean()), true, error, FAR)


def test_means_noise_squares_and_covariances_are_unbiased() -> None:
    table = pair_table(FIRST, SECOND)
    pairs = np.random.default_rng(5).choice(6, UNITS, p=TRUTH)
    responses = [OptimalResponse((side,), np.zeros(1, dtype=np.int64)) for side in table.sides]
    levels = np.tile(pairs, RELEASES)
    drawn = responses[0].draw(levels, np.zeros(len(levels), dtype=np.int64))
    drawn = drawn.reshape(RELEASES, UNITS)
    means, values = [], []
    for side, response in zip(table.sides, responses, strict=True):
        true, functions = side.inputs[pairs], response.functions
        values.append(side.values[drawn])
        mean, noise = values[-1].mean(axis=1), functions.noise[0][drawn].mean(axis=1) / UNITS
        means.append(mean)
        assert_mean(mean, float(true.mean()))
        # V̂ against the variance, whose own error is √(2/releases) of it for means of many units.
        off = float(noise.mean() / mean.var(ddof=1))
        assert_near(off, 1.0, np.sqrt(2.0 / RELEASES), FAR)
        squares = functions.square[0][drawn].mean(axis=1)
        assert_mean(squares, float(((true - side.inputs.mean()) ** 2).mean()))
        inside = np.abs(mean - true.mean()) < 1.96 * np.sqrt(noise)
        # 4.9 standard errors.
        assert_between(float(inside.mean()), (0.935, 0.965), 0.95, share_error(0.95, RELEASES))
    apart = [value - value.mean(axis=1, keepdims=True) for value in values]
    covariance = (apart[0] * apart[1]).sum(axis=1) / (UNITS - 1)
    first, second = (side.inputs[pairs] for side in table.sides)
    true_covariance = np.cov(first, second)[0, 1]
    assert true_covariance > 0.1
    assert_mean(covariance, float(true_covariance))
    assert_near(float(np.corrcoef(*means)[0, 1]), 0.0, 1.0 / np.sqrt(RELEASES), FAR)
