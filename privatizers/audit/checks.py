"""Whether made-up things happened as often as they should, at a stated rate of false alarms.

A check looks at many events at once. Of independent trials with probabilities p_1 … p_n, p their
mean, an event happens h times or more, h ≥ n p, with a probability of at most e^(−n D(h/n, p)),

    D(x, p) = x ln(x/p) + (1 − x) ln((1 − x)/(1 − p)),

and as rarely as h times with the same bound, h ≤ n p (Hoeffding 1963, Theorem 1). Nothing is
approximated, whatever n and the probabilities. A check fails where any event has a bound under its
share of the check's error; so sound code fails it with a probability of at most ``error``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from schemas.arrays import Floats

Number = float | np.integer[Any]


@dataclass(frozen=True)
class Check:
    """One thing that an audit looked at."""

    name: str
    """What should hold, in plain words."""
    holds: bool
    evidence: str
    """What was seen; it speaks of made-up data."""


@dataclass(frozen=True)
class Events:
    """Events of one kind: how often each happened, in how many trials, and how often it should."""

    what: tuple[str, ...]
    happened: Floats
    expected: Floats
    """The sum of the trials' probabilities."""
    trials: Floats

    @classmethod
    def one(cls, what: str, happened: Number, expected: float, trials: int) -> "Events":
        """A single event."""
        return cls((what,), *(np.array([float(v)]) for v in (happened, expected, trials)))

    @property
    def surprise(self) -> Floats:
        """Return n D(h/n, p) of each event, ∞ where what happened is impossible."""
        n = np.maximum(self.trials, 1.0)
        x = np.clip(self.happened / n, 0.0, 1.0)
        p = np.clip(self.expected / n, 0.0, 1.0)
        return n * (_divergence(x, p) + _divergence(1.0 - x, 1.0 - p))


def _divergence(x: Floats, p: Floats) -> Floats:
    """Return x ln(x/p), 0 for x = 0 and ∞ for p = 0 < x."""
    with np.errstate(divide="ignore", invalid="ignore"):
        told: Floats = np.where(x > 0.0, x * np.log(x / p), 0.0)
    return told


def judged(name: str, found: Sequence[Events], error: float) -> Check:
    """Judge events together; ``error`` is how often sound code may fail, at most."""
    many = sum(len(each.what) for each in found)
    if many == 0:
        return Check(name, holds=True, evidence="nothing of the kind is published")
    limit = math.log(2.0 * many / error)
    each, surprise = max(
        ((one, one.surprise) for one in found if one.what), key=lambda pair: float(pair[1].max())
    )
    worst = int(surprise.argmax())
    holds = bool(surprise[worst] <= limit)
    trials = int(max(float(one.trials.max()) for one in found if one.what))
    if holds:
        return Check(name, holds, f"{many:,} kinds of event in up to {trials:,} trials")
    return Check(
        name,
        holds,
        f"{each.what[worst]}: {each.happened[worst]:,.0f} of {each.trials[worst]:,.0f} times, "
        f"expected {each.expected[worst]:,.1f}",
    )


def exactly(name: str, problems: Sequence[str], seen: str) -> Check:
    """Judge what holds always or not at all: no false alarms."""
    return Check(name, holds=not problems, evidence=problems[0] if problems else seen)


def together(name: str, checks: Sequence[Check]) -> Check:
    """Put checks of one kind into one: the first that fails speaks for them."""
    failed = [check for check in checks if not check.holds]
    return Check(name, not failed, (failed or list(checks))[0].evidence)
