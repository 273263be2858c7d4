"""Releases by response tables, public and learnt, by good guesses and wrong ones: are they right?

Assignment is drawn anew for every release from a fixed seed, noise from the operating system.
Effects are the same for everybody, so that Neyman's variance has no excess to hide behind. What is
expected is no bias, a ratio of variances of 1.00 and a coverage of 0.950, for everybody and in a
segment of some 30 units an arm (``make soak`` repeats it in 20,000 releases with the bounds that
are promised). Here the bounds are 5 standard errors of a normal estimate each (√(2/n) of the ratio,
√(0.0475/n) of the coverage): 6e-7 for each of 3 numbers, 3e-5 for a run of this file.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from estimators.means import EstimatorName
from privatizers.lab.simulation.simulate import EstimateSample, simulate
from privatizers.lab.simulation.trial import Trial
from privatizers.planning.design import StatisticName
from privatizers.planning.optimal_design import LearnFrom, OptimalRequest, optimal_design
from schemas.arrays import Bools, Floats, Ints
from tests.support.distances import assert_near, distance, share_error

pytestmark = pytest.mark.statistical

RELEASES: dict[LearnFrom, int] = {"nothing": 4_000, "arms": 500, "strata": 500}
"""By where tables are learnt from; where they are, each release takes programmes of its own."""
MANY = 20_000
PROMISED_RATIOS, PROMISED_COVERAGES = (0.97, 1.05), (0.94, 0.96)
GUESSES = {
    "even": (0.25, 0.25, 0.25, 0.25),
    "right": (0.45, 0.32, 0.18, 0.05),
    "mirrored": (0.05, 0.18, 0.32, 0.45),
    "far": (0.0, 0.0, 0.0, 1.0),
}


@dataclass(frozen=True)
class Case:
    """Where tables are learnt from, the declared guess, and on whom the effect is estimated."""

    learns: LearnFrom
    guess: str
    in_segment: bool
    estimator: EstimatorName

    def trial(self) -> Trial:
        """Ten clusters of 100 units at ε = 4; the treatment moves everybody by a level."""
        random, guess = np.random.default_rng(7), GUESSES[self.guess]
        sizes: Ints = np.full((10, 2), 50)
        control = random.choice(3, 1_000, p=[0.8, 0.1, 0.1])
        statistic: StatisticName = "counts" if self.learns == "strata" else "none"
        grid = (0.0, 1.0, 2.0, 3.0)
        asked = OptimalRequest(grid, guess, 4.0, 0.0, statistic, learn_from=self.learns)
        return Trial(
            np.arange(4.0),
            sizes,
            np.stack([control, control + 1]),
            optimal_design(asked).mechanism,
            guess=np.array(guess),
        )

    @property
    def inside(self) -> Bools | None:
        """Six units of each cluster."""
        return np.arange(1_000) % 100 < 6 if self.in_segment else None


CASES = (
    *(Case("nothing", guess, False, "tau_q") for guess in ("even", "far")),
    *(Case("nothing", guess, True, "tau_q") for guess in ("even", "mirrored")),
    Case("arms", "far", False, "tau_q"),
    Case("arms", "mirrored", True, "tau_q"),
    Case("strata", "far", True, "combined"),
)
MORE = (
    *(Case("arms", guess, False, "tau_q") for guess in ("even", "right")),
    *(Case("arms", guess, True, "tau_q") for guess in ("right", "far")),
    *(Case("strata", guess, False, "combined") for guess in GUESSES),
    *(Case("strata", guess, True, "combined") for guess in ("even", "mirrored")),
)
every_case = pytest.mark.parametrize("case", CASES, ids=str, scope="module")
"""One worker has all tests of a case, and simulates it once."""


@cache
def found(case: Case, n_releases: int | None = None) -> EstimateSample:
    releases = n_releases or RELEASES[case.learns]
    made = simulate(case.trial(), releases, np.random.default_rng(11), inside=case.inside)
    return made.of(case.estimator)


def ratio(one: EstimateSample) -> float:
    return float(one.variance.mean()) / one.std_dev**2


def numbers(one: EstimateSample, factor: float = 1.0) -> tuple[Floats, Floats, Floats]:
    """Mean, ratio times ``factor`` and coverage; what is expected; standard errors."""
    n = len(one.estimate)
    found = np.array([one.mean, factor * ratio(one), one.coverage])
    errors = np.array([one.mean_error, np.sqrt(2.0 / n), share_error(0.95, n)])
    return found, np.array([one.truth, 1.0, 0.95]), errors


@every_case
def test_estimates_are_unbiased_and_say_how_far_off_they_are(case: Case) -> None:
    assert_near(*numbers(found(case)), 5.0)


@every_case
def test_a_variance_twice_as_great_would_be_caught(case: Case) -> None:
    """Negative control; the ratio of 500 releases would have to be 5 errors too small."""
    assert abs(distance(*numbers(found(case), factor=2.0))).max() > 5.0


@pytest.mark.soak
@pytest.mark.parametrize("case", [*CASES, *MORE], ids=str)
def test_the_promise_holds(case: Case) -> None:
    """Bounds are those promised and 3 standard errors: 0.1 % each where the truth is on one."""
    one = found(case, MANY)
    assert_near(one.mean, one.truth, one.mean_error, 4.5)
    assert_near(ratio(one), PROMISED_RATIOS, np.sqrt(2.0 / MANY), 3.0)
    assert_near(one.coverage, PROMISED_COVERAGES, share_error(0.95, MANY), 3.0)
