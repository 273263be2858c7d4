"""Bounds on ε from samples: right as often as they say, and near what samples can show."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from privatizers.lab.audit.lower_bounds import epsilons, lower_bound
from schemas.arrays import Floats

pytestmark = pytest.mark.statistical


@pytest.mark.parametrize("size", [1, 7, 400])
@pytest.mark.parametrize("error", [0.05, 1e-5])
def test_bounds_on_probabilities_are_those_of_exact_tests(size: int, error: float) -> None:
    """By definition: at the bounds, what happened or more (or less) has half of the error."""
    happened = np.unique(np.array([0, 1, size // 2, size]))
    for rare in happened.tolist():
        found = epsilons(
            np.append(happened, size), np.array([rare] * len(happened) + [size]), 0, error
        )
        high = at(rare, size, error) if rare < size else 1.0
        for k, epsilon in zip(happened.tolist(), found, strict=False):
            low = 1.0 - at(size - k, size, error) if k > 0 else 0.0
            assert epsilon == pytest.approx(math.log(max(low / high, 1.0)), abs=1e-6)


def at(happened: int, size: int, error: float) -> float:
    """The probability at which so much or less happens with half of the error."""

    def above(p: float) -> float:
        return float(stats.binom.cdf(happened, size, p)) - error / 2

    return float(optimize.brentq(above, 0.0, 1.0, xtol=1e-15))


def made_up(generator: np.random.Generator, size: int, shift: float, many: int = 1) -> Floats:
    """Values that tell ``shift``, each of which is one of ``many`` that tell no more and tempt."""
    likely = 1 / (1 + math.exp(-shift))
    draw = np.where(generator.random(size) < likely, 0.0, 1.0)
    return many * draw + generator.integers(0, many, size)


def test_a_bound_is_above_the_truth_no_more_often_than_stated() -> None:
    """60 repetitions, error 0.2: more than 27 wrong ones have a probability of 5e-6.

    The events on offer are many and chosen by how much they seem to tell, so that bounding them
    on the samples that chose them is wrong more often than not: the negative control.
    """
    generator, truth, error = np.random.default_rng(7), 0.5, 0.2
    wrong = tempted = 0
    for _ in range(60):
        here, there = (made_up(generator, 400, sign * truth, 40) for sign in (1, -1))
        wrong += lower_bound(here, there, 0.0, error) > truth
        tempted += lower_bound(repeated(here), repeated(there), 0.0, error) > truth
    assert wrong <= 27
    assert tempted > 27


def repeated(sample: Floats) -> Floats:
    """The first half of a sample, as both of its halves."""
    return np.tile(sample[: len(sample) // 2], 2)


def test_a_bound_has_power() -> None:
    generator = np.random.default_rng(11)
    here, there = (made_up(generator, 100_000, sign * 0.5) for sign in (1, -1))
    assert 0.45 < lower_bound(here, there, 0.0, 1e-5) <= 0.5
    # With a δ there is less left to explain: P − e^ε Q = δ at ε = ln((0.6225 − 0.1)/0.3775).
    assert 0.25 < lower_bound(here, there, 0.1, 1e-5) <= math.log(0.5225 / 0.3775)
