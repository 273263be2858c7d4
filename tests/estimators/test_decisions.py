"""Decisions: non-inferiority against the textbook, one rule for several primary outcomes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import t as student

from estimators.arm_effects import Estimate
from estimators.decisions import (
    Goal,
    Rule,
    arms_to_keep,
    decide,
    non_inferiority,
)
from estimators.intervals import Law, interval_of
from tests.support.distances import assert_near, share_error

GAIN, LOSS = Goal("primary"), Goal("primary", "decrease")
GUARD = Goal("guardrail", "increase", 0.5)


def estimate(
    metric: str, effect: float, error: float = 1.0, *, arm: str = "mail", df: float = 30.0
) -> Estimate:
    """An effect with the interval that the estimators give it."""
    found = interval_of(np.array(effect), np.array(error**2), Law(np.array(df)), 0.95)
    missing: dict[str, Any] = dict.fromkeys(
        (
            *("privacy_std_error", "p_value_holm", "minimum_detectable_effect"),
            *("relative", "relative_ci_lower", "relative_ci_upper"),
        )
    )
    return Estimate(
        **missing,
        metric=metric,
        arm=arm,
        control="none",
        segment=None,
        estimator="combined",
        estimate=effect,
        std_error=error,
        ci_lower=float(found.lower),
        ci_upper=float(found.upper),
        p_value=float(found.p_value),
        confidence_level=0.95,
        n_units=100,
        n_segment=100,
        coverage=1.0,
        degrees_of_freedom=df,
    )


def test_the_test_is_that_of_the_textbook() -> None:
    benefit, error, df = (
        np.array([0.2, -0.4, -3.0]),
        np.array([0.3, 0.1, 0.5]),
        np.array([5, 50, 9.0]),
    )
    margin = np.array([0.5, 0.5, 1.0])
    least_benefit, p_value = non_inferiority(benefit, error, Law(df), margin, 0.9)
    assert p_value == pytest.approx(student.sf((benefit + margin) / error, df), rel=1e-12)
    assert least_benefit == pytest.approx(benefit + student.ppf(0.05, df) * error, rel=1e-12)
    # The test and the bound say the same.
    assert ((p_value < 0.05) == (least_benefit > -margin)).all()


@pytest.mark.parametrize(
    ("effect", "direction", "verdict"),
    [
        (0.0, "increase", "not worse than the margin"),
        (-0.25, "increase", "not worse than the margin"),
        (-0.35, "increase", "undecided"),
        (-0.65, "increase", "undecided"),
        (-0.75, "increase", "worse"),
        (0.75, "decrease", "worse"),
        (0.35, "decrease", "undecided"),
        (0.25, "decrease", "not worse than the margin"),
        (-9.0, "decrease", "not worse than the margin"),
    ],
)
def test_a_guardrail_is_judged_by_its_margin(effect: float, direction: Any, verdict: str) -> None:
    """With a standard error of 0.1 the interval reaches 0.204 to either side."""
    goal = Goal("guardrail", direction, 0.5)
    (found,) = decide([estimate("latency", effect, 0.1)], {"latency": goal})
    assert found.verdict == verdict
    assert found.p_value_adjusted == found.p_value
    assert found.least_benefit == pytest.approx(goal.sign * effect - student.ppf(0.975, 30) * 0.1)


def test_what_has_no_error_is_undecided() -> None:
    known = estimate("latency", 5.0, 0.1)
    for unknown in (
        replace(known, std_error=0.0, ci_lower=None, ci_upper=None, p_value=None),
        replace(known, estimate=None, std_error=None, ci_lower=None, ci_upper=None, p_value=None),
    ):
        for goal in (GUARD, GAIN):
            (found,) = decide([unknown], {"latency": goal})
            assert (found.verdict, found.p_value) == ("undecided", None)


@pytest.mark.parametrize("goal", [GUARD, GAIN, LOSS])
def test_an_interval_that_may_not_hold_decides_nothing(goal: Goal) -> None:
    for effect in (-5.0, 5.0):
        known = estimate("latency", effect, 0.1)
        (found,) = decide([known], {"latency": goal})
        assert found.verdict != "undecided"
        (found,) = decide([replace(known, skewness=-0.4)], {"latency": goal})
        assert found.verdict == "undecided"


def of_two_arms() -> list[Estimate]:
    """Two-sided p-values 0.02 and 0.30 of mail, 0.04 and 0.03 of fax."""
    effects = {("mail", "a"): 0.02, ("mail", "b"): 0.3, ("fax", "a"): 0.04, ("fax", "b"): 0.03}
    return [
        estimate(metric, float(student.isf(p / 2, 30)), arm=arm)
        for (arm, metric), p in effects.items()
    ]


def test_all_asks_each_at_the_level_and_any_adjusts_for_all() -> None:
    goals = {"a": GAIN, "b": GAIN}
    strict = decide(of_two_arms(), goals, "all")
    assert [one.verdict for one in strict] == ["better", "undecided", "better", "better"]
    assert arms_to_keep(strict, "all") == {"mail": False, "fax": True}
    loose = decide(of_two_arms(), goals, "any")
    adjusted = [one.p_value_adjusted for one in loose]
    assert adjusted == pytest.approx([0.08, 0.3, 0.09, 0.09])
    assert arms_to_keep(loose, "any") == {"mail": False, "fax": False}
    assert [one.p_value for one in loose] == pytest.approx([0.02, 0.3, 0.04, 0.03])


def test_what_has_no_estimate_counts_among_those_that_are_adjusted() -> None:
    refused: dict[str, Any] = {
        "estimate": None,
        "std_error": None,
        "ci_lower": None,
        "ci_upper": None,
    }
    mail, *others = of_two_arms()
    without = [mail, *(replace(one, p_value=None, **refused) for one in others)]
    found = decide(without, {"a": GAIN, "b": GAIN}, "any")
    assert found[0].p_value_adjusted == pytest.approx(0.08)
    assert [one.p_value_adjusted for one in found[1:]] == [None] * 3


def test_guardrails_are_not_among_those_that_are_adjusted() -> None:
    estimates = [*of_two_arms(), estimate("g", 1.0, arm="mail"), estimate("g", 9.0, arm="fax")]
    alone = decide(of_two_arms(), {"a": GAIN, "b": GAIN}, "any")
    beside = decide(estimates, {"a": GAIN, "b": GAIN, "g": GUARD}, "any")
    assert beside[:4] == alone
    assert [one.verdict for one in beside[4:]] == ["undecided", "not worse than the margin"]


@pytest.mark.parametrize("rule", ["all", "any"])
def test_an_arm_is_kept_only_if_its_guardrails_hold(rule: Rule) -> None:
    goals = {"sales": GAIN, "returns": Goal("guardrail", "decrease", 1.0), "clicks": Goal()}
    good = [estimate("sales", 5.0), estimate("clicks", -9.0), estimate("returns", 0.1, 0.1)]
    assert arms_to_keep(decide(good, goals, rule), rule) == {"mail": True}
    assert {one.metric for one in decide(good, goals, rule)} == {"sales", "returns"}
    bad = [*good[:2], estimate("returns", 0.9, 0.1)]
    assert arms_to_keep(decide(bad, goals, rule), rule) == {"mail": False}


def test_a_decrease_is_better_where_it_is_good() -> None:
    (found,) = decide([estimate("complaints", -5.0)], {"complaints": LOSS})
    assert found.verdict == "better"
    (found,) = decide([estimate("complaints", 5.0)], {"complaints": LOSS})
    assert found.verdict == "worse"


def test_what_cannot_be_decided_is_refused() -> None:
    one = estimate("a", 1.0)
    assert decide([], {}) == decide([one], {}) == []
    with pytest.raises(ValueError, match="one estimate for each"):
        decide([one, one], {"a": GAIN})
    with pytest.raises(ValueError, match="different confidence levels"):
        decide([one, replace(one, arm="fax", confidence_level=0.9)], {"a": GAIN})
    for wrong in (("guardrail", None), ("primary", 0.1), ("guardrail", 0.0), ("guardrail", -1.0)):
        with pytest.raises(ValueError, match="margin"):
            Goal(wrong[0], "increase", wrong[1])


@pytest.mark.statistical
@pytest.mark.parametrize("rule", ["all", "any"])
def test_errors_are_as_rare_as_declared(rule: Rule) -> None:
    """At the border of every hypothesis, over 20,000 experiments of made-up effects.

    A guardrail exactly at its margin passes in 2.5 % of them; no primary outcome has an effect, and
    "any" finds a gain or loss in at most 5 %, "all" keeps an arm in far less. A rate passes within
    5 standard errors of its own: a false alarm in under one of 10⁶ runs. A margin that is 30 % off
    passes in 8 % or more, and two outcomes without Holm are found in about 10 %.
    """
    random, n = np.random.default_rng(1), 20_000
    error, df = 0.2, 12.0
    drawn = student.rvs(df, size=(n, 3), random_state=random) * error
    _, broken = non_inferiority(
        drawn[:, 0] - 0.5, np.full(n, error), Law(np.full(n, df)), np.full(n, 0.65), 0.95
    )
    _, at_margin = non_inferiority(
        drawn[:, 0] - 0.5, np.full(n, error), Law(np.full(n, df)), np.full(n, 0.5), 0.95
    )
    passes = float((at_margin < 0.025).mean())
    assert_near(passes, 0.025, share_error(0.025, n), 5.0)
    assert (broken < 0.025).mean() > 0.06
    n_found, n_kept, m = 0, 0, 2_000
    for effects in drawn[:m, 1:]:
        estimates = [
            estimate(name, float(effect), error, df=df)
            for name, effect in zip("ab", effects, strict=True)
        ]
        decisions = decide(estimates, {"a": GAIN, "b": GAIN}, rule)
        n_found += any(one.verdict != "undecided" for one in decisions)
        n_kept += arms_to_keep(decisions, rule)["mail"]
    spread = share_error(0.05, m)
    if rule == "any":
        assert_near(n_found / m, 0.05, spread, 5.0)
    else:
        assert n_found / m > 0.05 + 5 * spread * 0.5  # each at the level: one of two is found often
        assert n_kept / m < 0.01


@pytest.mark.parametrize(("direction", "least"), [("increase", -0.9), ("decrease", -0.6)])
def test_an_interval_that_leans_counts_as_it_is(direction: Any, least: float) -> None:
    """The harm that is possible is the interval's own end, and p says the same as that end."""
    leaning = replace(estimate("rate", 0.1), ci_lower=-0.9, ci_upper=0.6)
    for margin, holds in ((-least - 0.01, False), (-least + 0.01, True)):
        (found,) = decide([leaning], {"rate": Goal("guardrail", direction, margin)})
        assert found.least_benefit == pytest.approx(least)
        assert found.p_value is not None
        assert (found.p_value < 0.025) == holds
        assert (found.verdict == "not worse than the margin") == holds
    (worse,) = decide(
        [replace(leaning, estimate=-2.0, ci_lower=-4.0, ci_upper=-0.6)],
        {"rate": Goal("guardrail", "increase", 0.5)},
    )
    assert worse.verdict == "worse"
