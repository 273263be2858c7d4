"""Plans of Cluster-Optimal-DP: at the price asked for, and as good as claimed."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from estimators.intervals import Law
from privatizers.accounting.accountant import delta_at
from privatizers.domain.lattice import lattice_of
from privatizers.lab.simulation.simulate import simulate
from privatizers.lab.simulation.trial import Trial
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.mechanisms.parameters import event_of
from privatizers.optimal_response.programme import MOST_INPUTS
from privatizers.planning.design import StatisticName
from privatizers.planning.forecast import forecast
from privatizers.planning.grids import even_grid, grids_of, optimal_grids_of, project_guess
from privatizers.planning.noise.response_noise import DividedEpsilon
from privatizers.planning.optimal_design import (
    ARMS_SHARE,
    COUNTS_SHARE,
    OptimalDesign,
    OptimalRequest,
    optimal_design,
)
from privatizers.planning.outcome_shares import plan_shares
from privatizers.planning.planner import Plan, plan, rank_options, with_more
from privatizers.planning.predicted_variance import LEAST_QUANTILE, HalfWidths
from privatizers.planning.question import PlannedMechanism, Question
from privatizers.planning.table_choice import LEAST_GAIN, Splits, try_tables
from schemas.arrays import Floats
from schemas.errors import ConfigError

EVERY: tuple[StatisticName, ...] = ("counts", "means", "none")
KINDS: tuple[PlannedMechanism, ...] = ("cluster-optimal-dp", "uniform-prior-dp")
SIZES = np.array([[250, 250], [500, 500]])


def question(
    epsilon: float,
    levels: int = 6,
    statistics: tuple[StatisticName, ...] = EVERY,
    guess: Floats | None = None,
    *,
    coarser: bool = True,
    segments: tuple[float, ...] = (0.5,),
    delta: float = 0.0,
) -> Question:
    values = np.arange(float(levels))
    grids = optimal_grids_of(values.tolist(), continuous=False)
    return Question(
        epsilon,
        delta,
        values,
        np.full(levels, 1.0 / levels) if guess is None else guess,
        grids if coarser else (tuple(values.tolist()),),
        statistics,
        SIZES,
        segment_shares=segments,
        mechanism="cluster-optimal-dp",
    )


def test_what_no_table_keeps_is_refused_before_any_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts that are drawn and paid for, with no table to go with them, would be lost."""
    asked = OptimalRequest((0.0, 1.0, 2.0), (0.5, 0.3, 0.2), 1.0)
    assert optimal_design(asked).epsilon == 1.0

    def refusing(*_: object) -> None:
        raise ValueError

    monkeypatch.setattr("privatizers.planning.optimal_design.even_table", refusing)
    with pytest.raises(ConfigError, match="no table keeps"):
        optimal_design(asked)


@pytest.mark.parametrize("start", [0.0, 1.7e9])
def test_the_least_epsilon_that_is_taken_has_tables_wherever_the_grid_is(start: float) -> None:
    """A plan may give 99 % of ε = 0.001 to what is published of strata."""
    grid = tuple(start + level for level in range(6))
    asked = OptimalRequest(
        grid, (1 / 6,) * 6, 1e-3, strata_statistic="counts", statistic_share=0.99
    )
    mechanism = optimal_design(asked).mechanism
    assert mechanism.parameters.response_epsilon < 1.1e-5
    release = mechanism.strata(np.array([[3, 0, 2, 1, 0, 4]]))
    assert release.response.functions.noise.any()


def auto(asked: Question) -> Question:
    """The same question, of both kinds of mechanism."""
    grids = grids_of(asked.values.tolist(), continuous=False)
    return replace(asked, mechanism="auto", grids=grids, table_grids=asked.grids)


@pytest.mark.parametrize("statistic", EVERY)
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_a_plan_is_a_design_at_the_price_asked_for(statistic: StatisticName, delta: float) -> None:
    asked = question(2.0, statistics=(statistic,), delta=delta)
    found = plan(asked)
    design, option = found.design, found.option
    assert isinstance(design, OptimalDesign)
    parameters = design.mechanism.parameters
    assert (design.epsilon, design.delta) == (2.0, delta)
    assert delta_at(event_of(parameters), 2.0) <= delta
    assert (parameters.grid, parameters.guess) == (option.grid, found.guess)
    assert parameters.strata_statistic in (statistic, "count-and-complement")
    assert parameters.statistic_epsilon == pytest.approx(2.0 * option.statistic_share)
    assert parameters.arm_counts_epsilon == pytest.approx(2.0 * option.arms_share)
    assert 0 < parameters.response_epsilon <= 2.0 * (1.0 + delta)  # δ may buy a hair
    if delta == 0.0:
        spent = option.statistic_share + option.square_share + option.arms_share
        assert parameters.response_epsilon == pytest.approx(2.0 * (1.0 - spent), rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
def test_no_plan_among_uniform_priors_is_predicted_to_be_better(epsilon: float) -> None:
    asked = question(epsilon, segments=(0.1, 0.5))
    grids = grids_of(asked.values.tolist(), continuous=False)
    other = replace(asked, mechanism="uniform-prior-dp", grids=grids)
    assert rank_options(asked)[0].score < rank_options(other)[0].score + 0.02


@pytest.mark.parametrize("statistic", EVERY)
def test_a_forecast_is_that_of_the_plan(statistic: StatisticName) -> None:
    """The one by the table that a release has, the other interpolated between a few values of ε."""
    asked = question(3.0, statistics=(statistic,), guess=np.array([0.4, 0.3, 0.1, 0.1, 0.05, 0.05]))
    found = plan(asked)
    told = forecast(asked, found.option.grid, found.design.mechanism)
    for one, other in zip(found.option.predicted, told, strict=True):
        assert one.std_error == pytest.approx(other.std_error, rel=0.04)
        assert one.half_width == pytest.approx(other.half_width, rel=0.08)


def test_a_plan_is_the_same_whenever_it_is_made() -> None:
    assert plan(question(1.3)) == plan(question(1.3))


def test_more_epsilon_is_predicted_to_tell_more() -> None:
    asked = question(2.0)
    now, more = rank_options(asked)[0], with_more(asked, 1.0)
    for one, other in zip(now.predicted, more.predicted, strict=True):
        assert other.std_error < one.std_error


def test_several_outcomes_share_epsilon() -> None:
    shares = plan_shares([question(2.0, 4), question(2.0, 4, guess=np.array([1.0, 0, 0, 0]))])
    assert sum(shares) == 1.0
    assert min(shares) >= 1 / 32


@pytest.mark.parametrize("epsilon", [0.3, 2.0, 4.0, 9.0])
def test_auto_takes_tables_only_where_they_gain(epsilon: float) -> None:
    """By the same scores as the two have alone; and the best of the other kind is told."""
    guess = np.array([0.6, 0.2, 0.1, 0.05, 0.05])
    asked = auto(question(epsilon, 5, guess=guess))
    chosen = plan(asked)
    tables, uniform = (rank_options(asked.alone(one))[0] for one in KINDS)
    gain = uniform.score - tables.score
    wanted = tables if gain > LEAST_GAIN * uniform.noise_share else uniform
    assert (chosen.option.mechanism, chosen.option.grid) == (wanted.mechanism, wanted.grid)
    assert chosen.design.mechanism.name == wanted.mechanism
    assert chosen.option.score <= uniform.score
    assert {one.mechanism for one in chosen.runners_up} == set(KINDS)
    assert epsilon < 9.0 or wanted is uniform
    assert epsilon != 2.0 or wanted is tables


def test_auto_has_tables_where_they_can_be_had() -> None:
    asked = auto(question(2.0, 5))
    for refused in (
        replace(asked, epsilon=12.5),
        replace(asked, epsilon=9e-4),
        replace(asked, table_grids=(even_grid(0.0, 4.0, 26),)),
        auto(question(2.0, 2)),
    ):
        assert {one.mechanism for one in rank_options(refused)} == {"uniform-prior-dp"}
        assert refused.no_tables is not None
        assert refused.no_tables in (plan(refused).reason or "")
    assert plan(asked.alone("uniform-prior-dp")).reason is None


def zeros(levels: int, share: float) -> Floats:
    """So many outcomes are 0, the others geometric."""
    others = 0.6 ** np.arange(levels - 1)
    return np.append(share, (1.0 - share) * others / others.sum())


MANY_SMALL, FEW, MANY_LARGE = np.full((40, 2), 25), np.full((10, 2), 250), np.full((9, 3), 7_000)
TEN = [
    (MANY_SMALL, 1.0, np.full(6, 1 / 6)),
    (MANY_SMALL, 2.0, zeros(8, 0.9)),
    (MANY_SMALL, 4.0, zeros(6, 0.5)),
    (FEW, 0.5, zeros(6, 0.97)),
    (FEW, 1.0, np.array([0.05, 0.25, 0.4, 0.25, 0.05])),
    (FEW, 2.0, zeros(8, 0.97)),
    (FEW, 4.0, zeros(6, 0.6)),
    (MANY_LARGE, 1.0, zeros(6, 0.9)),
    (MANY_LARGE, 2.0, zeros(8, 0.5)),
    (MANY_LARGE, 8.0, np.array([0.4, 0.1, 0.1, 0.4])),
]
"""Sizes, ε, and how outcomes are spread, as earlier releases have told."""


@pytest.mark.statistical  # a second each: tables are solved for every candidate
@pytest.mark.parametrize("nth", range(len(TEN)))
def test_auto_is_as_good_as_the_best_of_its_candidates(nth: int) -> None:
    """Of each mechanism, grid and statistic alone, by the tables that a release would have.

    What auto takes has at most 1.03 times the least variance, in the geometric mean over everybody
    and a tenth. Nothing is paid to learn what is known.
    """
    sizes, epsilon, truth = TEN[nth]
    values = np.arange(float(len(truth)))
    asked = auto(question(epsilon, len(truth), guess=0.99 * truth + 0.01 / len(truth)))
    three = even_grid(0.0, values[-1], 3)
    grids = tuple(dict.fromkeys((three, *asked.grids)))
    asked = replace(asked, sizes=sizes, grids=grids, segment_shares=(0.1,), even_part=0.0)

    def variance(asked: Question) -> tuple[float, Plan]:
        made = plan(asked)
        told = forecast(asked, made.option.grid, made.design.mechanism, truth)
        return float(np.exp(np.mean([2.0 * np.log(one.std_error) for one in told]))), made

    found, made = variance(asked)
    assert made.option.arms_share == 0.0
    candidates = []
    for mechanism in KINDS:
        alone = asked.alone(mechanism)
        for grid in alone.grids:
            for statistic in EVERY:
                one = replace(alone, grids=(grid,), statistics=(statistic,))
                candidates.append(variance(one)[0])
    assert found <= 1.03 * min(candidates)
    assert found < 0.9 * max(candidates)  # which it is matters


def test_what_is_learnt_counts_where_nothing_is_known() -> None:
    """An even guess alone has nothing to learn: it would take the finest grid, and pay nothing."""
    asked = replace(auto(question(2.0, 12)), sizes=MANY_SMALL, segment_shares=(0.1,))
    unknown, told = plan(asked), plan(replace(asked, even_part=0.0))
    assert (len(told.option.grid), told.option.arms_share) == (12, 0.0)
    assert (len(unknown.option.grid), unknown.option.arms_share) != (12, 0.0)


@pytest.mark.parametrize(
    ("scores", "tried"),
    [
        ([5.0, 3.0, 2.0, 1.0, 0.5], 5),
        ([5.0, 3.0, 2.0, 2.5, 0.5], 5),
        ([5.0, 3.0, 3.5, 1.0, 0.5], 3),
        ([5.0, 6.0, 7.0, 1.0, 0.5], 3),
    ],
)
def test_fine_grids_are_tried_where_the_last_coarse_one_was_worth_it(
    scores: list[float], tried: int
) -> None:
    grids = [even_grid(0.0, 1.0, points) for points in (4, 8, 12, 16, 20)]
    told = dict(zip(map(len, grids), scores, strict=True))

    nothing = np.zeros(1)
    divided = DividedEpsilon(1.0, 0.0, "none", nothing, nothing, nothing)

    def attempt(grid: tuple[float, ...]) -> list[Splits]:
        score, normal = np.array([told[len(grid)]]), np.full(1, np.inf)
        width = HalfWidths(np.exp(score), normal, nothing)
        return [Splits("cluster-optimal-dp", grid, divided, [], nothing, [width], np.ones(1))]

    assert len(try_tables([*reversed(grids), even_grid(0.0, 1.0, 30)], attempt)) == tried


def test_no_law_has_narrower_intervals_than_a_normal_one() -> None:
    """Or the planner would leave out what is best."""
    laws = np.meshgrid([1.0, 2.0, 5.0, 30.0, 1e3, 1e6, np.inf], np.linspace(0.0, 3.0, 301))
    assert Law(*laws).quantile(0.95).min() > LEAST_QUANTILE


@pytest.mark.parametrize("seed", range(20))
def test_the_best_split_is_the_best_of_all_scores(seed: int) -> None:
    random, n = np.random.default_rng(seed), 300
    widths = [
        HalfWidths(random.uniform(0.9, 1.1, n), 10 ** random.uniform(0.0, 5.0, n), kurtosis)
        for kurtosis in (np.zeros(n), random.uniform(0.0, 3.0, n))
    ]
    divided = DividedEpsilon(1.0, 0.0, "none", *np.zeros((3, n)))
    splits = Splits("cluster-optimal-dp", (0.0, 1.0), divided, [], np.ones(n), widths, np.ones(n))
    every = np.sum([np.log(one.at(np.arange(n)) ** 2) for one in widths], axis=0)
    among = np.flatnonzero(random.random(n) < 0.3)
    at, score = splits.best(among)
    assert at == among[np.argmin(every[among])]
    assert score == pytest.approx(every[among].min())
    assert splits.least == pytest.approx(every.min())


def test_where_nothing_can_be_compared_nothing_is_planned() -> None:
    with pytest.raises(ConfigError, match="nothing to plan for"):
        plan(replace(question(1.0), sizes=np.array([[5, 0]])))


def test_grids_to_choose_from_have_tables() -> None:
    for values, continuous in ((even_grid(0.0, 9.0, 501), True), (tuple(range(40)), False)):
        grids = optimal_grids_of(values, continuous=continuous)
        assert max(map(len, grids)) <= MOST_INPUTS
        assert all((grid[0], grid[-1]) == (values[0], values[-1]) for grid in grids)
    assert tuple(map(float, range(7))) in optimal_grids_of(
        list(map(float, range(7))), continuous=False
    )


@pytest.mark.statistical
@pytest.mark.parametrize(("values", "continuous"), [(201, True), (25, False)])
def test_a_plan_is_made_for_as_many_points(values: int, continuous: bool) -> None:
    grid = even_grid(0.0, 100.0, values)
    asked = replace(
        question(8.0),
        values=np.array(grid),
        guess=np.full(values, 1.0 / values),
        grids=optimal_grids_of(grid, continuous=continuous),
        segment_shares=(0.1, 0.5),
    )
    assert plan(asked).option.grid


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("epsilon", "statistic"),
    [
        (1.0, "means"),
        (4.0, "none"),
        *(pytest.param(one, "counts", marks=pytest.mark.soak) for one in (2.0, 0.5)),  # long
    ],
)
def test_what_is_predicted_comes_true(epsilon: float, statistic: StatisticName) -> None:
    """With a right guess, which the learnt tables are near: see the docstring of the forecast."""
    guess = np.array([0.5, 0.25, 0.15, 0.1])
    asked = question(epsilon, 4, (statistic,), guess, segments=())
    found = plan(asked)
    assert isinstance(found.design.mechanism, ClusterOptimalDP)
    grid = np.array(found.option.grid)
    assert project_guess(asked.values, guess, grid) == pytest.approx(found.guess)
    people = np.random.default_rng(5)
    levels = people.choice(len(grid), SIZES.sum(), p=found.guess)
    trial = Trial(grid, SIZES, np.stack([levels, levels]), found.design.mechanism)
    seen = simulate(trial, 300, np.random.default_rng(6))
    sample = seen.of("tau_q" if statistic == "none" else "combined")
    (told,) = forecast(asked, found.option.grid, found.design.mechanism)
    assert sample.std_dev == pytest.approx(told.std_error, rel=0.15)


@pytest.mark.parametrize(
    ("asked", "published", "learnt_from", "prices"),
    [
        ({}, "none", "arms", (0.0, ARMS_SHARE)),
        ({"learn_from": "strata"}, "counts", "strata", (COUNTS_SHARE, 0.0)),
        ({"learn_from": "nothing"}, "none", "nothing", (0.0, 0.0)),
        ({"strata_statistic": "counts"}, "counts", "strata", (COUNTS_SHARE, 0.0)),
        (
            {"strata_statistic": "counts", "learn_from": "nothing"},
            "counts",
            "nothing",
            (COUNTS_SHARE, 0.0),
        ),
        (
            {"strata_statistic": "counts", "learn_from": "arms"},
            "counts",
            "arms",
            (COUNTS_SHARE, ARMS_SHARE),
        ),
        ({"strata_statistic": "means"}, "means", "arms", (COUNTS_SHARE, ARMS_SHARE)),
    ],
)
def test_one_can_be_designed_without_a_plan(
    asked: dict[str, Any], published: str, learnt_from: str, prices: tuple[float, float]
) -> None:
    grid = (0.0, 1.0, 2.0)
    request = OptimalRequest(grid, (0.5, 0.3, 0.2), 2.0, lattice=lattice_of(grid), **asked)
    parameters = optimal_design(request).mechanism.parameters
    assert (parameters.strata_statistic, parameters.learnt_from) == (published, learnt_from)
    found = (parameters.statistic_epsilon, parameters.arm_counts_epsilon)
    assert found == pytest.approx((2.0 * prices[0], 2.0 * prices[1]))
    assert delta_at(event_of(parameters), 2.0) == 0.0
    assert sum(found) + parameters.response_epsilon == pytest.approx(2.0, rel=1e-12)


def test_two_outcomes_are_not_learnt() -> None:
    """Their table is the same whatever the guess."""
    parameters = optimal_design(OptimalRequest((0.0, 1.0), (0.5, 0.5), 1.0)).mechanism.parameters
    assert (parameters.learnt_from, parameters.response_epsilon) == ("nothing", 1.0)


def test_arms_are_learnt_where_their_counts_tell_much_of_many_strata() -> None:
    """1,000 clusters of 100: what strata tell of an arm is noise, and 1 % for arms is enough."""
    sizes = np.full((1_000, 2), 50)
    asked = replace(question(4.0, statistics=("none",)), sizes=sizes, overall=False)
    assert 0 < rank_options(asked)[0].arms_share <= 0.02
    few = replace(asked, sizes=np.full((10, 2), 5))
    assert rank_options(few)[0].arms_share == 0.0
    told_not_to = replace(asked, learn_from="nothing")
    assert rank_options(told_not_to)[0].arms_share == 0.0
    told_to = replace(few, learn_from="arms")
    assert rank_options(told_to)[0].arms_share > 0.0


@pytest.mark.statistical  # seconds: tables of 12 points are solved for
def test_few_large_clusters_are_learnt_one_by_one() -> None:
    """In Experiment 1 they differ, and what their own tables save is more than arms' would."""
    asked = replace(
        question(4.0, 12, segments=(0.5,), coarser=False),
        sizes=np.array([[250, 250], [500, 500], [1000, 1000]]),
        overall=False,
    )
    best = rank_options(asked)[0]
    assert (best.strata_statistic, best.arms_share) == ("counts", 0.0)


def test_counts_of_arms_go_beside_means_and_squares_of_many_steps() -> None:
    """The losses of all of them together are some three thousand numbers."""
    grid = (0.0, 1.0, 250.0, 499.0, 500.0)
    request = OptimalRequest(grid, (0.2,) * 5, 2.0, 1e-6, "means", lattice_of(grid), 0.3, 0.1)
    parameters = optimal_design(request).mechanism.parameters
    assert parameters.squares is not None
    assert parameters.learnt_from == "arms"
    assert delta_at(event_of(parameters), 2.0) <= 1e-6
