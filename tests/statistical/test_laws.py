"""Intervals where the noise of published counts is most of the error: 90, 95 and 99 % of releases.

Outcomes are the same in all releases of a case and effects the same for everybody; assignment is
drawn from a fixed seed and noise by the operating system. What is expected is what the law of one
noise with the kurtosis of all comes to under their own law: 0.36 points too little at the most
(:mod:`tests.estimators.test_intervals`, where nothing is drawn). A share passes within 5 standard
errors of that: a false alarm in under one of 10⁶ for each of the twelve.
"""

from functools import cache

import numpy as np
import pytest

from estimators.intervals import Law
from privatizers.domain.lattice import lattice_of
from privatizers.lab.simulation.simulate import EstimateSample, simulate
from privatizers.lab.simulation.trial import Trial
from privatizers.planning.design import Request, design
from schemas.arrays import Floats
from tests.support.distances import assert_near, share_error

N_RELEASES = 20_000
CASES = {  # levels of the grid, units of the arms, ε, and about the kurtosis
    "one noise": (2, (300, 30), 0.15, 2.9),
    "two alike": (2, (150, 150), 0.15, 1.5),
    "six levels": (6, (300, 30), 0.8, 0.83),
    "twelve levels": (12, (150, 150), 1.2, 0.22),
}
every_case = pytest.mark.parametrize("name", CASES, scope="module")
"""One worker has all tests of a case, and simulates it once."""


@cache
def found(name: str) -> EstimateSample:
    k, sizes, epsilon, _ = CASES[name]
    random, grid = np.random.default_rng(7), np.arange(float(k))
    shares = 0.6 ** np.arange(max(k - 1, 2))
    control = random.choice(len(shares), sum(sizes), p=shares / shares.sum())
    levels = np.stack([control, control + (k > 2)])
    asked = Request(
        "uniform-prior-dp", k, "counts", epsilon=epsilon, lattice=lattice_of(grid.tolist())
    )
    trial = Trial(grid, np.array([sizes]), levels, design(asked).mechanism, min_stratum=2)
    return simulate(trial, N_RELEASES, np.random.default_rng(11)).of("histogram")


def covered(name: str, law: Law, level: float) -> float:
    own = found(name)
    reach: Floats = law.quantile(level) * np.sqrt(own.variance)
    return float((np.abs(own.estimate - own.truth) <= reach).mean())


@every_case
@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_intervals_cover_what_they_say(name: str, level: float) -> None:
    own = found(name)
    assert np.median(own.kurtosis) == pytest.approx(CASES[name][3], rel=0.1)
    share = covered(name, Law(own.degrees_of_freedom, own.kurtosis), level)
    error = share_error(level, N_RELEASES)
    assert_near(share, (level - 0.0036, level + 0.0003), error, within=5.0)


@every_case
def test_students_t_of_the_same_kurtosis_covers_too_often(name: str) -> None:
    """Negative control, and the reason for the law: 95.7 to 97 % in place of 95 %.

    By what it covers of the same releases and the law does not, 0.7 to 1.9 points: it is within
    half of the least of these, 0.06 being its standard error there, in under one of 10⁸ runs.
    """
    own = found(name)
    law = covered(name, Law(own.degrees_of_freedom, own.kurtosis), 0.95)
    assert covered(name, Law(4 + 6 / own.kurtosis), 0.95) - law > 0.0035
