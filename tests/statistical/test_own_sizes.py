"""Small clusters that share a pool and count by their arms' own units: right over assignments.

In every release everybody is assigned anew, so many of all to each arm, whatever their cluster;
noise is from the operating system. Outcomes differ by cluster and go with its size, and the effect
is none. What is expected is no bias, a ratio of variances of 1.00 and a coverage of 0.950, and in
two of the cases an error that is 0.8 and 0.9 of what it is by all arms' units alone. In
``N_RELEASES`` the ratio has a standard error of 3.2 %, the coverage one of 0.5 %: bounds lie 4.4 of
them away.
"""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from estimators.arm_effects import Contrasts, contrasts
from estimators.response.pool_statistics import ResponseNoise
from estimators.strata.shares import own_sizes
from privatizers.domain.strata import clusters_together
from privatizers.lab.simulation.trial import Trial
from privatizers.planning.design import Request, StatisticName, design
from privatizers.planning.forecast import forecast
from privatizers.planning.question import Question
from schemas.arrays import Floats, Ints
from tests.statistical.found import Found, assert_coverage, assert_ratio, assert_unbiased

N_RELEASES = 2_000
RATIOS, COVERAGES = (0.86, 1.14), (0.928, 0.972)


@dataclass(frozen=True)
class Case:
    """Clusters of several sizes, so many of everybody in treatment; what is published."""

    n_clusters: int
    n_outcomes: int
    treated: float
    statistic: StatisticName
    epsilon: float
    min_stratum: int = 1000
    """Of 1000 all clusters share one pool, of 10 some do, by what they get."""

    @property
    def asked(self) -> Request:
        return Request(
            "uniform-prior-dp",
            self.n_outcomes,
            self.statistic,
            epsilon=self.epsilon,
            statistic_share=0.5,
        )

    def people(self) -> tuple[Ints, Ints]:
        """The cluster of everybody, and their outcomes."""
        random, k = np.random.default_rng(5), self.n_outcomes
        size = np.resize([12, 16, 20, 28, 40, 60], self.n_clusters)
        cluster = np.repeat(np.arange(self.n_clusters), size)
        usual = np.clip(0.2 + size / 100 + 0.15 * random.standard_normal(len(size)), 0.05, 0.95)
        return cluster, random.binomial(k - 1, usual[cluster])

    @property
    def guess(self) -> Floats:
        """A right guess at outcomes."""
        _, outcome = self.people()
        return np.bincount(outcome, minlength=self.n_outcomes) / len(outcome)


CASES = {
    "two outcomes": Case(40, 2, 0.7, "counts", 1.0),
    "four": Case(30, 4, 0.5, "counts", 2.0),
    "pools by what clusters get": Case(60, 2, 0.75, "counts", 2.0, min_stratum=10),
    "no statistic": Case(40, 2, 0.5, "none", 1.0),
}


def drawn_sizes(case: Case, cluster: Ints, random: np.random.Generator) -> Ints:
    """Units by cluster and arm where everybody is assigned, whatever their cluster."""
    treated = np.zeros(len(cluster), dtype=np.int64)
    treated[random.permutation(len(cluster))[: round(case.treated * len(cluster))]] = 1
    inside = np.bincount(cluster, weights=treated).astype(np.int64)
    return np.stack([np.bincount(cluster) - inside, inside], axis=1)


@cache
def found(name: str) -> dict[str, Found]:
    """What ``combined`` says with its s, and with an s of 0."""
    case, random = CASES[name], np.random.default_rng(11)
    cluster, outcome = case.people()
    grid, mechanism = np.arange(float(case.n_outcomes)), design(case.asked).mechanism
    answers: dict[str, list[Contrasts]] = {"own": [], "everyone's": []}
    guess, noise = case.guess, _declared_noise(case, grid)
    for _ in range(N_RELEASES):
        sizes = drawn_sizes(case, cluster, random)
        levels = np.stack([outcome, outcome])
        trial = Trial(grid, sizes, levels, mechanism, min_stratum=case.min_stratum, guess=guess)
        evidence = trial.release(trial.assign(1, random)).evidence(None)
        together = clusters_together(sizes, case.min_stratum, mechanism.pool_of)
        s = own_sizes(sizes, 0, together, noise)
        for whose, own in (("own", s[evidence.slices.cluster]), ("everyone's", None)):
            given = replace(evidence, slices=replace(evidence.slices, own_sizes=own))
            answers[whose].append(contrasts(given, "combined", 1, 0, 1, same_shares=True))
    return {whose: Found.joined(parts, 0.0) for whose, parts in answers.items()}


def _declared_noise(case: Case, grid: Floats) -> Floats:
    mechanism, guess = design(case.asked).mechanism, case.guess
    rate = mechanism.parameters.resampling_probability
    noise = ResponseNoise.of_prior(grid, guess, mechanism.expected_prior(guess), rate)
    return np.array([noise.of_mean / (guess @ (grid - guess @ grid) ** 2)])


every_case = pytest.mark.parametrize("name", CASES, scope="module")


@every_case
def test_effects_are_unbiased_over_assignments(name: str) -> None:
    assert_unbiased(found(name)["own"], 4.4)


@every_case
def test_errors_and_intervals_are_what_they_say(name: str) -> None:
    one = found(name)["own"]
    assert_ratio(one, RATIOS)
    assert_coverage(one, COVERAGES)


@every_case
def test_they_are_sharper_than_by_all_arms_units(name: str) -> None:
    """And hardly less sharp where clusters differ by more than is taken to be likely."""
    own, other = (float(found(name)[whose].estimate.std()) for whose in ("own", "everyone's"))
    assert own < (0.95 if name in ("two outcomes", "four") else 1.06) * other


@every_case
def test_the_plan_foresees_them(name: str) -> None:
    """Sizes are those of one assignment."""
    case = CASES[name]
    cluster, _ = case.people()
    grid = np.arange(float(case.n_outcomes))
    question = Question(
        epsilon=case.epsilon,
        delta=0.0,
        values=grid,
        guess=case.guess,
        grids=(tuple(grid.tolist()),),
        statistics=(case.statistic,),
        sizes=drawn_sizes(case, cluster, np.random.default_rng(3)),
        min_stratum=case.min_stratum,
        same_shares=True,
    )
    (planned,) = forecast(question, tuple(grid.tolist()), design(case.asked).mechanism)
    spread = float(found(name)["own"].estimate.std())
    assert planned.std_error == pytest.approx(spread, rel=0.12)
