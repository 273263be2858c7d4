"""Means, variances and coverage of every estimator over designs of many kinds.

Each design is released thousands of times, assignment drawn anew from a fixed seed and privacy
randomness from the operating system. Effects are the same for everybody, or there is no excess in
Neyman's variance to hide behind.

False alarms: a mean is off by ``ERRORS`` = 5 standard errors once in 1.7 million. Ratios and
coverages are held against fixed bounds; how often each design is released is chosen so that what
was found in 20,000 releases lies at least 3.9 standard errors inside them (nearest are the ratio of
``50 of 10 in a pool``, 1.11, and those of ``3 large``, 0.98): 3e-4 a run for all of them together.
"""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from estimators.arm_effects import Contrasts, contrasts
from estimators.means import EstimatorName
from estimators.strata.evidence import Evidence
from privatizers.domain.lattice import lattice_of
from privatizers.planning.design import Request, StatisticName, design
from schemas.arrays import Ints
from tests.statistical.found import Found, assert_coverage, assert_ratio, assert_unbiased
from tests.statistical.simulate import Releases, Trial

ERRORS = 5.0
LEAST_COVERAGE, MOST_COVERAGE = 0.935, 0.975
LEAST_RATIO, MOST_RATIO = 0.93, 1.15
OF_RATIO = (0.98, 1.11)
LEAST_OF_TINY = 0.9157
"""For four units an arm and two outcomes, where the squares are known and the means tell all.

V̂ of `combined` is right on average there (0.98 of the variance), and if it were constant would
cover 94.9 %; but it is smallest where the mean is far off (correlation with the error −0.5, as of
any p̂ ± t·√(p̂(1 − p̂)/n) of few units), which leaves 92.27 % (28 runs of 37,500: ± 0.02). The bound
lies five standard errors of one run below; where it lay two and a half, one run in 150 failed. It
was 93 % while every stratum's share was pushed up to zero or more by itself; many strata were then
too wide by a fifth (:mod:`tests.statistical.test_small_strata`).
"""
OF_TINY = {
    ("2 of 8, K = 2", 0.5): (LEAST_OF_TINY, 0.9227),
    ("2 of 8, K = 2", 2.0): (LEAST_OF_TINY, 0.9227),
    ("2 of 8, K = 2", 4.0): (0.884, 0.8926),
    ("2 of 4", 4.0): (0.918, 0.927),
}
"""Least coverage of all estimators and what is expected (six runs, ± 0.0003), for 16 units and 8.

At ε = 4 there is less noise to make up for that. Welch's degrees of freedom are right on average
for many strata, where Satterthwaite's intervals were up to a fifth too wide; for these few both
are too many (with his: 0.916 and 0.935). docs/method.md tells users.
"""
UNITS_AT_A_TIME = 200_000

ESTIMATORS: tuple[EstimatorName, ...] = ("tau_q", "histogram", "combined")


@dataclass(frozen=True)
class Design:
    """Sizes of strata, levels, whether small clusters share a pool, and how often to release."""

    sizes: Ints
    n_outcomes: int
    n_releases: int
    min_stratum: int = 0
    segments: bool = False
    statistic: StatisticName = "counts"

    def trial(self, epsilon: float) -> Trial:
        """Clusters that differ a little in skewed outcomes; treatments move everybody by a step."""
        k, n_arms = self.n_outcomes, self.sizes.shape[1]
        random = np.random.default_rng(7)
        cluster = np.repeat(np.arange(len(self.sizes)), self.sizes.sum(axis=1))
        top = k if k == 2 else k - 1  # no effect of two outcomes is the same for everybody
        odds = 0.75 ** np.arange(top) * (1 + 0.5 * random.random((len(self.sizes), top)))
        below = np.cumsum(odds / odds.sum(axis=1, keepdims=True), axis=1)[cluster]
        control = (random.random((len(cluster), 1)) > below[:, :-1]).sum(axis=1)
        levels = np.stack([control] + [control + (k > 2)] * (n_arms - 1))
        grid = np.arange(k, dtype=np.float64) - (5.0 if k > 4 else 0.0)
        lattice = lattice_of(grid.tolist())
        asked = Request("uniform-prior-dp", k, self.statistic, epsilon=epsilon, lattice=lattice)
        return Trial(grid, self.sizes, levels, design(asked).mechanism, self.min_stratum)


DESIGNS = {
    "3 large": Design(np.array([[250, 250], [500, 500], [1000, 1000]]), 12, 12_000),
    "20 of 20": Design(np.full((20, 2), 10), 4, 12_000),
    "20 of 20, K = 2": Design(np.full((20, 2), 10), 2, 20_000),
    "50 of 10 in a pool": Design(np.full((50, 2), 5), 12, 40_000, min_stratum=10),
    "2 of 8, K = 2": Design(np.full((2, 2), 4), 2, 40_000),
    "2 of 4": Design(np.full((2, 2), 2), 4, 20_000),
    "3 uneven arms": Design(np.array([[10, 30, 20], [100, 50, 60], [12, 12, 12]]), 4, 20_000),
    "20 of 20, means": Design(np.full((20, 2), 10), 4, 12_000, statistic="means"),
    "200 of 8, four arms": Design(np.full((200, 4), 2), 4, 12_000),
    "200 of 40, four arms": Design(np.full((200, 4), 10), 4, 12_000),
    "segments": Design(np.array([[60, 60], [90, 60], [100, 120]]), 4, 20_000, segments=True),
}
EPSILONS: dict[str, float | None] = {
    "3 large": 2.0,
    "20 of 20": 0.5,
    "20 of 20, K = 2": 2.0,
    "50 of 10 in a pool": 4.0,
    "2 of 8, K = 2": 2.0,
    "2 of 4": 2.0,
    "3 uneven arms": 4.0,
    "20 of 20, means": 2.0,
    "200 of 8, four arms": None,  # these two under soak alone: minutes each
    "200 of 40, four arms": None,
    "segments": 2.0,
}
CASES = [
    pytest.param(
        name,
        epsilon,
        id=f"{name}-{epsilon}",
        marks=() if EPSILONS[name] == epsilon else pytest.mark.soak,
    )
    for name in DESIGNS
    for epsilon in (0.5, 2.0, 4.0)
]
every_case = pytest.mark.parametrize(("name", "epsilon"), CASES, scope="module")
"""Tests of one case stand together, so one worker has them all and simulates it once."""


def slices_of_interest(trial: Trial) -> dict[str, NDArray[np.bool_] | None]:
    """The whole, a random half, and those who would do well without treatment."""
    half = np.random.default_rng(3).random(len(trial.cluster)) < 0.5
    return {"whole": None, "half": half, "outcome-related": trial.levels[0] >= 1}


def of_whole_pools(evidence: Evidence, releases: Releases) -> Evidence:
    """Slices that are pools, for a histogram where clusters share them; as ``by_pool`` does."""
    strata = releases.trial.strata
    places = replace(releases.positions, cluster=strata.pool_of[releases.positions.cluster])
    own = replace(releases, positions=places)
    return Evidence.of(
        own.slices(releases.randomised),
        evidence.slices,
        evidence.pools,
        evidence.rate,
        releases.trial.grid,
    )


@cache
def found(name: str, epsilon: float) -> dict[tuple[str, EstimatorName, int], Found]:
    """By slice, estimator and arm."""
    plan = DESIGNS[name]
    trial = plan.trial(epsilon)
    n = len(trial.cluster)
    generator = np.random.default_rng(42)
    chunk = min(plan.n_releases, max(1, UNITS_AT_A_TIME // n))
    parts: dict[tuple[str, EstimatorName, int], list[Contrasts]] = {}
    for _ in range(plan.n_releases // chunk):
        releases = trial.release(trial.assign(chunk, generator))
        for part, inside in slices_of_interest(trial).items():
            if part != "whole" and not plan.segments:
                continue
            evidence = releases.evidence(inside)
            for estimator in ESTIMATORS if part == "whole" else ("tau_q", "combined"):
                pooled = estimator == "histogram"
                used = of_whole_pools(evidence, releases) if pooled else evidence
                for arm in range(1, plan.sizes.shape[1]):
                    one = contrasts(used, estimator, arm, 0, chunk, same_shares=False)
                    parts.setdefault((part, estimator, arm), []).append(one)
    return {
        key: Found.joined(ones, trial.truth(key[2], slices_of_interest(trial)[key[0]]))
        for key, ones in parts.items()
    }


@every_case
def test_every_estimate_is_right_on_average(name: str, epsilon: float) -> None:
    for one in found(name, epsilon).values():
        assert_unbiased(one, ERRORS)


@every_case
def test_every_variance_is_about_right_on_average(name: str, epsilon: float) -> None:
    # What the grid allows is no bound for the variance of so few.
    most, expected = (MOST_RATIO, OF_RATIO) if name != "2 of 4" else (np.inf, (0.98, np.inf))
    for one in found(name, epsilon).values():
        assert_ratio(one, (LEAST_RATIO, most), expected)


@every_case
def test_intervals_cover_the_truth_as_often_as_they_say(name: str, epsilon: float) -> None:
    least, least_expected = OF_TINY.get((name, epsilon), (LEAST_COVERAGE, 0.943))
    most = MOST_COVERAGE if DESIGNS[name].sizes.min() >= 10 else np.inf
    for one in found(name, epsilon).values():
        assert_coverage(one, (least, most), (least_expected, min(most, 1.0)))


def test_a_variance_without_the_noise_of_the_counts_would_be_caught() -> None:
    trial = DESIGNS["3 uneven arms"].trial(2.0)
    releases = trial.release(trial.assign(4_000, np.random.default_rng(1)))
    pools = releases.pools
    silent = replace(pools.of_mean, variance=np.zeros_like(pools.of_mean.variance))
    forgotten = replace(releases, pools=replace(pools, of_mean=silent))
    coverage = []
    for one in (releases, forgotten):
        own = contrasts(one.evidence(), "histogram", 1, 0, 4_000, same_shares=False)
        tried = Found.joined([own], trial.truth())
        coverage.append(tried.coverage)
    assert coverage[1] < LEAST_COVERAGE - 0.1 < LEAST_COVERAGE < coverage[0], coverage
