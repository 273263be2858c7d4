"""A guess that was learnt gains where it is right, and loses a bounded part where it is wrong."""

from dataclasses import replace

import numpy as np
import pytest

from estimators.published_guess import evened
from privatizers.planning import guarded
from privatizers.planning.forecast import forecast, forecast_range
from privatizers.planning.guarded import MOST_VARIANCE, guarded_plan
from privatizers.planning.planner import Plan, plan
from privatizers.planning.question import GuessesWithin, Question
from schemas.arrays import Floats

VALUES = tuple(map(float, range(6)))
EVEN = np.full(6, 1 / 6)
ZEROS = np.array([0.97, *[0.006] * 5])
DOWN, ONE, ENDS = ZEROS[::-1], np.eye(6)[2], np.array([0.5, 0, 0, 0, 0, 0.5])


def question(guess: Floats, epsilon: float, even_part: float | None) -> Question:
    return Question(
        epsilon=epsilon,
        delta=0.0,
        values=np.array(VALUES),
        guess=guess,
        grids=((0.0, 5.0), VALUES),
        table_grids=(VALUES,),
        statistics=("counts", "means", "none"),
        sizes=np.full((4, 2), 200),
        segment_shares=(0.1,),
        mechanism="auto",
        even_part=even_part,
    )


def variance(guess: Floats, chosen: Plan, truth: Floats, epsilon: float) -> float:
    """The geometric mean of the variances of effects; weights are those of the plan's guess."""
    return variance_of(question(guess, epsilon, None), chosen, truth)


def variance_of(asked: Question, chosen: Plan, truth: Floats) -> float:
    asked = asked.with_part(chosen.even_part or 0.0)
    found = forecast(asked, chosen.option.grid, chosen.design.mechanism, evened(truth, 1e-3))
    return float(np.exp(np.mean([2 * np.log(one.std_error) for one in found])))


@pytest.mark.parametrize(("epsilon", "most"), [(2.0, 0.9), (4.0, 0.67)])
def test_a_right_guess_gains(epsilon: float, most: float) -> None:
    right, even = guarded_plan(question(ZEROS, epsilon, 0.003)), plan(question(EVEN, epsilon, None))
    of_even = variance(EVEN, even, ZEROS, epsilon)
    assert variance(ZEROS, right, ZEROS, epsilon) < most * of_even
    assert right.option.arms_share == 0.0  # what earlier nights tell is not paid for again


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("n_clusters", [4, 40])
def test_a_right_guess_never_costs(n_clusters: int, epsilon: float) -> None:
    """Geometric outcomes are far from even, and yet at ε = 1 there is nothing to gain from that."""
    truth, values = 0.5 ** np.arange(12), tuple(map(float, range(12)))
    asked = replace(
        question(truth / truth.sum(), epsilon, 0.003),
        values=np.array(values),
        grids=((0.0, 11.0), values),
        table_grids=(values,),
        sizes=np.full((n_clusters, 2), 800 // n_clusters),
    )
    even = replace(asked, guess=np.full(12, 1 / 12), even_part=None)
    of_even = variance_of(even, plan(even), asked.guess)
    assert variance_of(asked, guarded_plan(asked), asked.guess) <= 1.02 * of_even


def test_a_pessimistic_guess_is_asked_beside_a_declared_one_alone() -> None:
    """Where nobody doubts how outcomes vary no part of ε is kept for sums of squares."""
    declared, learnt = (plan(question(ZEROS, 2.0, part)).option for part in (None, 0.0))
    assert declared.square_share > 0.0 == learnt.square_share
    assert declared.n_widths == 2 * learnt.n_widths
    assert plan(question(ZEROS, 2.0, 0.5).with_part(1.0)) == plan(question(EVEN, 2.0, None))


@pytest.mark.parametrize(("epsilon", "guess"), [(0.5, ONE), (4.0, ONE), (2.0, ENDS), (4.0, DOWN)])
def test_the_worst_guess_loses_what_the_guard_allows(epsilon: float, guess: Floats) -> None:
    chosen = guarded_plan(question(guess, epsilon, 0.003))
    even = plan(question(EVEN, epsilon, None))
    most = max(variance(EVEN, even, truth, epsilon) for truth in np.eye(6))
    for truth in (*np.eye(6), EVEN, ZEROS):  # what outcomes' own spread adds is the same in both
        bound = max(MOST_VARIANCE * most, MOST_VARIANCE * variance(EVEN, even, truth, epsilon))
        assert variance(guess, chosen, truth, epsilon) <= bound
    assert {VALUES[0], VALUES[-1]} <= set(chosen.option.grid)


STRATA = (np.eye(6)[[0, 5, 2, 3]], np.eye(6)[[5, 5, 0, 0]], np.array([ENDS, DOWN, ZEROS, ONE]))


@pytest.mark.parametrize("strata", STRATA)
def test_the_worst_guesses_of_strata_lose_what_the_guard_allows(strata: Floats) -> None:
    within = GuessesWithin(strata, np.full(4, 400))
    asked = replace(question(strata.mean(axis=0), 4.0, 0.003), within=within)
    chosen, even = guarded_plan(asked), plan(question(EVEN, 4.0, None))
    most = max(variance(EVEN, even, truth, 4.0) for truth in np.eye(6))
    asked = asked.with_part(chosen.even_part or 0.0)
    for truth in np.eye(6):
        found = forecast(asked, chosen.option.grid, chosen.design.mechanism, evened(truth, 1e-3))
        loss = float(np.exp(np.mean([2 * np.log(one.std_error) for one in found])))
        assert loss <= MOST_VARIANCE * most


def test_what_strata_differ_by_is_not_forecast_as_noise() -> None:
    """Where all of a stratum are alike, what sampling leaves is what rounding and η add."""
    strata = evened(np.eye(6)[[0, 5]], 0.01)
    asked = question(strata.mean(axis=0), 4.0, 0.01)
    apart = replace(asked, within=GuessesWithin(strata, np.full(2, 800)))
    of_all, own = guarded_plan(asked), guarded_plan(apart)
    together, each = (
        forecast(one, found.option.grid, found.design.mechanism)
        for one, found in ((asked, of_all), (apart, own))
    )
    for one, other in zip(together, each, strict=True):
        assert other.sampling_std_error < 0.3 * one.sampling_std_error
        assert other.std_error < one.std_error


def test_without_the_guard_a_guess_of_one_point_costs_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, even = question(ONE, 4.0, 0.003), plan(question(EVEN, 4.0, None))
    held = guarded_plan(asked)
    monkeypatch.setattr(guarded, "MOST_TABLE_NOISE", np.inf)
    monkeypatch.setattr(guarded, "MOST_VARIANCE", np.inf)
    free = guarded_plan(asked)
    assert (held.even_part or 0.0) > (free.even_part or 0.0) == 0.003
    most = max(variance(EVEN, even, one, 4.0) for one in np.eye(6))
    assert max(variance(ONE, free, one, 4.0) for one in np.eye(6)) > MOST_VARIANCE * most


def test_a_declared_guess_is_taken_as_it_is() -> None:
    asked = question(ONE, 4.0, None)
    assert guarded_plan(asked) == plan(asked)


@pytest.mark.parametrize("truth", [ZEROS, DOWN, ENDS, np.eye(6)[3] * 0.9 + EVEN * 0.1])
def test_the_range_of_a_first_forecast_holds_what_it_comes_to(truth: Floats) -> None:
    asked = question(EVEN, 2.0, None)
    chosen = plan(asked)
    grid, mechanism = chosen.option.grid, chosen.design.mechanism
    for one, (least, most) in zip(
        forecast(asked, grid, mechanism, truth),
        forecast_range(asked, grid, mechanism, lambda predicted, _: predicted),
        strict=True,
    ):
        assert least <= one.std_error <= most * (1 + 1e-12)
        assert least < 0.8 * most
