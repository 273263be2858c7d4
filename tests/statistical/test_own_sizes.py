"""Small clusters that share a pool and count by their arms' own units: right over assignments.

In every release everybody is assigned anew, so many of all to each arm, whatever their cluster;
noise is from the operating system. Outcomes differ by cluster and go with its size, and the effect
is none. What is expected is no bias, a ratio of variances of 1.00 and a coverage of 0.950, and in
three of the cases an error that is 0.5 to 0.9 of what it is by all arms' units alone. In
``N_RELEASES`` the ratio has a standard error of 3.2 %, the coverage one of 0.5 %: bounds lie 4.4 of
them away.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

import numpy as np
import polars as pl
import pytest

from estimators.arm_effects import Contrasts, contrasts
from estimators.operate.people import Returners, contributions
from estimators.response.pool_statistics import ResponseNoise
from estimators.strata.evidence import Evidence, Pools, Slices
from estimators.strata.shares import own_sizes
from flows.demo import _log
from privatizers.domain.strata import clusters_together
from privatizers.lab.simulation.trial import Trial
from privatizers.planning.design import Request, StatisticName, design
from privatizers.planning.forecast import forecast
from privatizers.planning.planner import rank_options
from privatizers.planning.question import Question
from schemas.arrays import Floats, Ints
from tests.statistical.found import Found, assert_coverage, assert_ratio, assert_unbiased
from tests.support.distances import assert_between

N_RELEASES, AT_ONCE = 2_000, 100
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
    sizes: tuple[int, ...] = (12, 16, 20, 28, 40, 60)
    statistic_share: float = 0.5

    @property
    def asked(self) -> Request:
        return Request(
            "uniform-prior-dp",
            self.n_outcomes,
            self.statistic,
            epsilon=self.epsilon,
            statistic_share=self.statistic_share,
        )

    def people(self) -> tuple[Ints, Ints]:
        """The cluster of everybody, and their outcomes."""
        random, k = np.random.default_rng(5), self.n_outcomes
        size = np.resize(self.sizes, self.n_clusters)
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
    # One in thirty has hardly anybody of an arm, and is in the pool all the same.
    "some without an arm": Case(40, 2, 0.5, "counts", 1.0, sizes=(8, 9, 10, 12)),
    # A unit's noise is thousands of times the variance of outcomes.
    "loud units": Case(40, 2, 0.5, "counts", 2.0, 10, (14, 18, 24, 30), statistic_share=0.98),
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
    for _ in range(0, N_RELEASES, AT_ONCE):
        parts = []
        for _ in range(AT_ONCE):
            sizes = drawn_sizes(case, cluster, random)
            levels = np.stack([outcome, outcome])
            trial = Trial(grid, sizes, levels, mechanism, min_stratum=case.min_stratum, guess=guess)
            release = trial.release(trial.assign(1, random))
            together = clusters_together(sizes, case.min_stratum, mechanism.pool_of)
            s = own_sizes(sizes, 0, together, noise)
            slices = release.slices(release.randomised)
            parts.append((replace(slices, own_sizes=s[slices.cluster]), release.pools))
        own = side_by_side(parts, mechanism.parameters.resampling_probability or 0.0, grid)
        everyone = replace(own, slices=replace(own.slices, own_sizes=None))
        for whose, given in (("own", own), ("everyone's", everyone)):
            answers[whose].append(contrasts(given, "combined", 1, 0, AT_ONCE, same_shares=True))
    return {whose: Found.joined(parts, 0.0) for whose, parts in answers.items()}


def side_by_side(parts: Sequence[tuple[Slices, Pools]], rate: float, grid: Floats) -> Evidence:
    """The evidence of several releases, each a group with pools of its own."""
    places = np.cumsum([0, *(len(pools.pool) for _, pools in parts)])
    slices = stacked(
        [
            replace(one, group=one.group + nth, pool=one.pool + place)
            for nth, ((one, _), place) in enumerate(zip(parts, places, strict=False))
        ]
    )
    pools = stacked(
        [replace(one, pool=one.pool + at) for (_, one), at in zip(parts, places, strict=False)]
    )
    assert pools.square_cell is None  # each has a row of its own
    return Evidence.of(slices, slices, pools, rate, grid)


def stacked(records: Sequence[Any]) -> Any:
    """Records of arrays, or of such records, as one whose arrays have the rows of all."""
    if records[0] is None:
        return None
    if isinstance(records[0], np.ndarray):
        return np.concatenate(records)
    names = [one.name for one in fields(records[0])]
    columns = {name: stacked([getattr(one, name) for one in records]) for name in names}
    return replace(records[0], **columns)


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


def test_stated_errors_of_loud_units_are_those_of_all_outcomes_together() -> None:
    """By means of clusters from units alone they would be anything from a fifth to twice that."""
    spread = np.sqrt(found("loud units")["own"].variance)
    assert np.quantile(spread, 0.05) > 0.85 * np.quantile(spread, 0.95)


@every_case
def test_they_are_sharper_than_by_all_arms_units(name: str) -> None:
    """And hardly less sharp where clusters differ by more than is taken to be likely."""
    own, other = (float(found(name)[whose].estimate.std()) for whose in ("own", "everyone's"))
    at_most = {"two outcomes": 0.95, "four": 0.95, "some without an arm": 0.65}
    assert own < at_most.get(name, 1.06) * other


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


def test_the_demo_planned_for_everybody_is_as_sharp_as_its_sizes_allow() -> None:
    """Without privacy, by the guess, it would be 0.0227; by all arms' units alone 0.0329."""
    log = _log().drop_nulls().with_columns(pl.col("village").rank("dense") - 1)
    sizes = np.zeros((log["village"].n_unique(), 2), dtype=np.int64)
    treated = (log["incentive"] == "cash").to_numpy().astype(np.int64)
    np.add.at(sizes, (log["village"].to_numpy().astype(np.int64), treated), 1)
    grid = np.array([0.0, 1.0])
    question = Question(
        epsilon=2.0,
        delta=0.0,
        values=grid,
        guess=np.array([0.5, 0.5]),
        grids=((0.0, 1.0),),
        statistics=("counts", "means", "none"),
        sizes=sizes,
        min_stratum=10,
        same_shares=True,
    )
    planned = [
        rank_options(replace(question, one_by_one=one_by_one, min_stratum=few))[0].predicted[0]
        for one_by_one, few in ((True, 10), (False, 10), (True, 1000), (False, 1000))
    ]
    found = [one.std_error for one in planned]
    assert found == pytest.approx([0.0232, 0.0329, 0.0227, 0.0309], abs=1e-4)


def test_what_people_who_come_back_contribute_is_the_covariance_of_two_nights() -> None:
    """Everybody is in both, in one arm, without privacy; by tau_q's contributions it is 0.70.

    The covariance is of 4,000 assignments, which gives the ratio a standard error of 3 %.
    """
    random, n_releases = np.random.default_rng(17), 4_000
    cluster = np.repeat(np.arange(30), np.resize((20, 24, 32), 30))
    n_people = len(cluster)
    usual = random.uniform(0.1, 0.9, 30)[cluster]
    first = (random.random(n_people) < usual).astype(np.float64)
    second = np.where(random.random(n_people) < 0.5, first, random.random(n_people) < usual)
    s = np.full(n_people, 0.8)
    estimates, told = [], []
    for _ in range(n_releases):
        arm = np.zeros(n_people, dtype=np.int64)
        arm[random.permutation(n_people)[: n_people // 2]] = 1
        nights = [
            Returners(np.zeros_like(arm), cluster, arm, outcome, own_sizes=s)
            for outcome in (first, second)
        ]
        shares = [contributions(night, 1, 0, same_shares=True) / n_people for night in nights]
        told.append(float(shares[0] @ shares[1]))
        estimates.append([_by_own_sizes(night) for night in nights])
    one, other = np.array(estimates).T
    products = (one - one.mean()) * (other - other.mean())
    ratio = np.mean(told) / products.mean()
    error = ratio * products.std() / products.mean() / np.sqrt(n_releases)
    assert_between(float(ratio), (0.87, 1.13), 1.0, float(error))


def _by_own_sizes(night: Returners) -> float:
    """Σ k v̄ of the treated less that of control, where every cluster has both arms."""
    code = night.cluster * 2 + night.arm
    n = np.bincount(code, minlength=60).reshape(-1, 2)
    mean = np.bincount(code, night.debiased, 60).reshape(-1, 2) / n
    b, g, s = n.sum(axis=1, keepdims=True) / n.sum(), n / n.sum(axis=0), 0.8
    control, treated = (((1 - s) * b + s * g) * mean).sum(axis=0)
    return float(treated - control)
