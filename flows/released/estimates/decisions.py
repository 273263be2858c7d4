"""What a release says of its arms by the rule that was declared for it beforehand."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from estimators.arm_effects import Estimate
from estimators.decisions import ROLES, Decision, Goal, Rule, arms_to_keep, decide
from estimators.means import SHARPEST_FIRST
from schemas.released import Manifest, Metric, Ratio


@dataclass(frozen=True)
class Decisions:
    """The verdict on every arm by every metric that decides, and what they say together."""

    rule: Rule
    """Of primary metrics; "all" where there are none."""
    rows: tuple[Decision, ...]
    """Metric by metric, in the order of the release."""

    @property
    def keep(self) -> dict[str, bool]:
        """Whether each arm gains and holds all guardrails: estimators.decisions.arms_to_keep."""
        return arms_to_keep(self.rows, self.rule)

    @property
    def has_primary(self) -> bool:
        """Whether an arm is to gain in something, beside guardrails."""
        return any(one.role == "primary" for one in self.rows)

    @property
    def in_words(self) -> str:
        """What is asked of an arm, as a sentence."""
        asked = []
        primary = list(dict.fromkeys(one.metric for one in self.rows if one.role == "primary"))
        if len(primary) == 1:
            asked.append(f"gain in {primary[0]}")
        elif primary:
            how = "each of " if self.rule == "all" else "one of "
            asked.append(f"gain in {how}{', '.join(primary)}")
        guards = list(dict.fromkeys(one.metric for one in self.rows if one.role == "guardrail"))
        if guards:
            each = "" if len(guards) == 1 else "each of "
            asked.append(f"harm {each}{', '.join(guards)} by no more than its margin")
        return f"Declared beforehand: an arm is to {' and '.join(asked)}."

    def as_json(self) -> dict[str, Any]:
        """The fields ``decisions`` and ``decision`` of ``clusterdp estimate --json``."""
        return {
            "decisions": [vars(one) for one in self.rows],
            "decision": {"primary": self.rule if self.has_primary else None, "keep": self.keep},
        }


def decisions_of(manifest: Manifest, estimates: Sequence[Estimate]) -> Decisions | None:
    """What the declared rule says of the effects on everybody; None where nothing was declared.

    Of each metric the estimator goes that uses the most of the release, whatever it says of the
    arms. ``estimates`` are those of every metric that decides, at one level; where one of these
    lacks estimates there is no decision either, as it could not be by the rule: None.
    """
    goals = {one.metric: _goal(one) for one in manifest.metrics}
    deciding = [name for name, goal in goals.items() if goal.role in ROLES]
    chosen = [one for name in deciding for one in _sharpest(estimates, name)]
    if not chosen or {one.metric for one in chosen} != set(deciding):
        return None
    rule = cast("Rule", manifest.decision or "all")
    return Decisions(rule, tuple(decide(chosen, goals, rule)))


def _goal(metric: Metric | Ratio) -> Goal:
    """What is declared of a metric; the values were checked when the file was opened."""
    if metric.role is None:
        return Goal()
    stated: dict[str, Any] = {"role": metric.role, "direction": metric.direction}
    return Goal(**stated, margin=metric.margin)


def _sharpest(estimates: Sequence[Estimate], metric: str) -> list[Estimate]:
    """The estimates of a metric by the sharpest estimator there is; one an arm."""
    own = [one for one in estimates if one.metric == metric]
    there = {one.estimator for one in own}
    best = next((name for name in SHARPEST_FIRST if name in there), None)
    return [one for one in own if one.estimator == best]
