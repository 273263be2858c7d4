"""Bounds on ε from samples: right as often as they say, and near what samples can show."""

import math

import numpy as np
import pytest
from scipy import stats

from privatizers.lab.audit.lower_bounds import clopper_pearson, lower_bound
from schemas.arrays import Floats

pytestmark = pytest.mark.statistical


@pytest.mark.parametrize("size", [1, 7, 400])
@pytest.mark.parametrize("error", [0.05, 1e-5])
def test_clopper_and_pearsons_bounds_are_those_of_exact_tests(size: int, error: float) -> None:
    happened = np.unique(np.array([0, 1, size // 2, size]))
    low, high = clopper_pearson(happened, size, error)
    for k, below, above in zip(happened.tolist(), low, high, strict=True):
        # By definition: at the bounds, what happened or more (or less) has just this probability.
        if k > 0:
            assert stats.binom.sf(k - 1, size, below) == pytest.approx(error, rel=1e-6)
        if k < size:
            assert stats.binom.cdf(k, size, above) == pytest.approx(error, rel=1e-6)
    assert low[0] == 0.0
    assert high[-1] == 1.0


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
