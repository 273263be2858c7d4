"""From effects to decisions: primary outcomes by one declared rule, guardrails by non-inferiority.

A guardrail is an outcome that must not get worse by more than a margin m > 0, in its own unit. With
b = s·τ the benefit of an effect τ (s = 1 where an increase is good, −1 where a decrease is), the
hypothesis of harm is H₀: b ≤ −m. It is rejected, and the arm is "not worse than the margin", where
the interval of the effect lies wholly on the good side of −m:

    b̂ − x_L · se > −m,   or   P(T > (b̂ + m)/se) < (1 − L)/2

with T by the law of b̂'s error (:class:`estimators.intervals.Law`), x_L its quantile and L the
confidence level: a one-sided test at 2.5 % where L is 0.95 (the rule of trials, ICH E9 §3.3.2). An
interval that leans, of a ratio near a small denominator say, counts as it is: the error is then
that of its bad side, by the normal distribution. Guardrails are not adjusted for their number: an
arm has to hold all of them, and the test of "all hold" by tests at α each has level α
(intersection-union; Berger 1982).

Of several primary outcomes the rule is declared before anything is seen. "all": an arm has to gain
in each of them; each is tested at the level, by the same argument. "any": a gain in one of them
will do; p-values are adjusted by Holm (1979) for all primary outcomes and arms together, those too
that have no estimate, whatever their dependence. Effects of one release share its noise and its
people, so nothing here needs them to be independent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from estimators.arm_effects import Estimate
from estimators.coverage import is_skew
from estimators.intervals import Law, holm
from schemas.arrays import Floats

Role = Literal["primary", "guardrail", "secondary"]
Direction = Literal["increase", "decrease"]
"""The way that is good."""
Rule = Literal["all", "any"]
Verdict = Literal["better", "worse", "not worse than the margin", "undecided"]

ROLES: tuple[Role, ...] = ("primary", "guardrail")
"""Those that decide; a secondary outcome is shown and decides nothing."""


@dataclass(frozen=True)
class Goal:
    """What was declared of an outcome before the experiment."""

    role: Role = "secondary"
    direction: Direction = "increase"
    margin: float | None = None
    """Of a guardrail: the greatest harm that is acceptable, above 0, in the outcome's unit."""

    def __post_init__(self) -> None:
        """Refuse a guardrail without a margin, and a margin of anything else."""
        has_margin = self.margin is not None
        if has_margin != (self.role == "guardrail"):
            raise ValueError("a guardrail has a margin, and no other outcome has")
        if self.margin is not None and not 0 < self.margin < float("inf"):
            raise ValueError("a margin is a finite number above 0")

    @property
    def sign(self) -> float:
        """1 where an increase is good, else −1."""
        return 1.0 if self.direction == "increase" else -1.0


@dataclass(frozen=True)
class Decision:
    """What one outcome says of one arm."""

    metric: str
    arm: str
    role: Role
    direction: Direction
    margin: float | None
    estimator: str
    estimate: float | None
    least_benefit: float | None
    """The least benefit that the interval allows: the effect's bound on the bad side, turned so
    that more is better."""
    p_value: float | None
    """Two-sided of no effect, of a primary outcome; one-sided of harm beyond the margin, of a
    guardrail."""
    p_value_adjusted: float | None
    """What the verdict goes by: by Holm, of primary outcomes under the rule "any"."""
    verdict: Verdict


def non_inferiority(
    benefit: Floats, std_error: Floats, law: Law, margin: Floats, level: float
) -> tuple[Floats, Floats]:
    """Return least benefits and p-values of benefits against margins; all arrays have one shape.

    The lower bound of b, one-sided at (1 + level)/2, and the one-sided p-value of H₀: b ≤ −margin;
    NaN where an effect has no standard error above 0.

    Args:
        benefit: b̂ = s·τ̂, in the outcome's unit.
        std_error: That of τ̂.
        law: Of its error.
        margin: m, the greatest harm that is acceptable, above 0.
        level: L, the two-sided confidence level; the test has level (1 − L)/2.
    """
    positive = np.where(std_error > 0, std_error, np.nan)
    place = (benefit + margin) / positive
    beyond = law.p_value(place) / 2.0
    p_value = np.where(place > 0, beyond, 1.0 - beyond)
    return benefit - law.quantile(level) * positive, p_value


def decide(
    estimates: Sequence[Estimate], goals: Mapping[str, Goal], rule: Rule = "all"
) -> list[Decision]:
    """What the primary outcomes and guardrails say of every arm, in the order of ``estimates``.

    ``estimates`` are effects on everybody, one for each arm and outcome (the estimator that was
    declared, or the sharpest), all at one confidence level; ``goals`` are by the outcome's name.
    Outcomes without a goal, and secondary ones, have no row. An effect whose law is too skew for
    its interval (:func:`estimators.coverage.is_skew`) is undecided, whatever its p-value. Raises
    ValueError where an arm and outcome have two estimates, or confidence levels differ.
    """
    asked = [one for one in estimates if _goal(goals, one).role in ROLES]
    if len({(one.metric, one.arm) for one in asked}) < len(asked):
        raise ValueError("give one estimate for each arm and outcome")
    if not asked:
        return []
    if len({one.confidence_level for one in asked}) > 1:
        raise ValueError("the estimates have different confidence levels")
    level = asked[0].confidence_level
    declared = [_goal(goals, one) for one in asked]
    is_primary = np.array([goal.role == "primary" for goal in declared])
    sign = np.array([goal.sign for goal in declared])
    benefit = sign * _column([one.estimate for one in asked])
    error = _column([one.std_error for one in asked])
    lower, upper = (
        _column([getattr(one, key) for one in asked]) for key in ("ci_lower", "ci_upper")
    )
    margin = np.array([goal.margin or 0.0 for goal in declared])
    least, most = (np.where(sign > 0, *ends) for ends in ((lower, -upper), (upper, -lower)))
    below, above = benefit - least, most - benefit
    # Intervals of ratios near a small denominator lean: the error is that of the side that counts.
    leans = np.abs(above - below) > _CLOSE * (above + below)
    normal = Law(np.array(np.inf))
    pairs = zip(leans, asked, strict=True)
    law = Law.of([normal if leaning else one.law for leaning, one in pairs])
    reach = law.quantile(level)
    leans &= below < _MOST * reach  # of hardly any confidence an interval tells nothing
    error = np.divide(below, reach, out=error, where=leans)
    least_benefit, of_harm = non_inferiority(benefit, error, law, margin, level)
    p_value = np.where(is_primary, _column([one.p_value for one in asked]), of_harm)
    adjusted = p_value.copy()
    if rule == "any":
        # A ratio may be refused by what was drawn, and counts all the same.
        adjusted[is_primary] = holm(p_value[is_primary], is_primary[is_primary])
    return [
        Decision(
            metric=one.metric,
            arm=one.arm,
            role=goal.role,
            direction=goal.direction,
            margin=goal.margin,
            estimator=one.estimator,
            estimate=one.estimate,
            least_benefit=_known(least_benefit[place]),
            p_value=_known(p_value[place]),
            p_value_adjusted=_known(adjusted[place]),
            verdict="undecided"
            if is_skew(one.skewness)
            else _verdict(goal, benefit[place], most[place], adjusted[place], 1.0 - level),
        )
        for place, (one, goal) in enumerate(zip(asked, declared, strict=True))
    ]


def arms_to_keep(decisions: Sequence[Decision], rule: Rule = "all") -> dict[str, bool]:
    """Whether each arm is to be kept: its primary outcomes gain, and no guardrail may be broken.

    It gains where all primary outcomes are better, or with the rule "any" one of them is; where
    there is none, guardrails alone decide. A guardrail that is undecided does not hold.
    """
    kept = {}
    for arm in dict.fromkeys(one.arm for one in decisions):
        own = [one for one in decisions if one.arm == arm]
        gains = [one.verdict == "better" for one in own if one.role == "primary"]
        holds = [one.verdict == _HOLDS for one in own if one.role == "guardrail"]
        gained = not gains or (all(gains) if rule == "all" else any(gains))
        kept[arm] = gained and all(holds)
    return kept


_CLOSE = 1e-7
_MOST = 1e100
_HOLDS: Verdict = "not worse than the margin"
_NOTHING = Goal()


def _goal(goals: Mapping[str, Goal], estimate: Estimate) -> Goal:
    return goals.get(estimate.metric, _NOTHING)


def _column(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _verdict(goal: Goal, benefit: float, most: float, p_value: float, alpha: float) -> Verdict:
    """What a test says: p-values of primary outcomes are two-sided, of guardrails one-sided."""
    if goal.margin is None:
        if not p_value < alpha:
            return "undecided"
        return "better" if benefit > 0 else "worse"
    if p_value < alpha / 2.0:
        return _HOLDS
    return "worse" if most < -goal.margin else "undecided"
