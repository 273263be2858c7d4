"""Forecasts average over even points; they lie as near the truth as many more draws would."""

import numpy as np
import pytest

from privatizers.mechanisms.prior import truncated_prior
from privatizers.planning.forecast import _SCENARIOS, _scenarios
from schemas.arrays import Floats

SCALE, THRESHOLD, RATE = 3.0, 0.02, 0.4


def response(guess: Floats, n: float, counts: Floats, noise: Floats) -> Floats:
    """What a unit's variance gains by the priors that such counts give, shape [scenarios]."""
    grid = np.arange(len(guess), dtype=np.float64)
    released = n * guess + np.sqrt(n) * counts + noise
    prior = truncated_prior(released, np.full(len(counts), n), THRESHOLD)
    odds, mean = RATE / (1.0 - RATE), prior @ grid
    about = (mean - guess @ grid) ** 2 + guess @ (grid - guess @ grid) ** 2
    found: Floats = odds * about + odds * (1.0 + odds) * (prior @ grid**2 - mean**2)
    return found


@pytest.mark.parametrize("k", [2, 5, 12, 40])
@pytest.mark.parametrize("n", [5.0, 200.0, 20_000.0])
def test_averages_lie_within_the_error_of_as_many_draws(k: int, n: float) -> None:
    """Beside 40,000 draws of counts and noise; the standard error of 512 is allowed."""
    generator = np.random.default_rng([k, int(n)])
    guess = np.exp(-np.arange(k) / 4.0)
    guess /= guess.sum()
    root, normal = np.sqrt(guess), generator.standard_normal((40_000, k))
    noise = generator.laplace(0.0, SCALE, (40_000, k))
    if k == 2:
        noise[:, 0] = -noise[:, 1]
    drawn = response(guess, n, root * normal - guess * (normal @ root)[:, np.newaxis], noise)
    average = response(guess, n, *_scenarios(guess, SCALE)).mean()
    spread = drawn.std() / np.sqrt(_SCENARIOS)
    assert abs(average - drawn.mean()) < spread
