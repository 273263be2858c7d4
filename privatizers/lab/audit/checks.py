"""Whether events in made-up data happened as often as they should, with a bound on false alarms.

A check looks at many events at once. In independent trials with probabilities p_1 … p_n, p their
mean, an event happens h times or more, h ≥ n p, with a probability of at most e^(−n D(h/n, p)),

    D(x, p) = x ln(x/p) + (1 − x) ln((1 − x)/(1 − p)),

and h times or less, h ≤ n p, with the same bound (Hoeffding 1963, Theorem 1). This holds exactly
for any n and any probabilities. A check fails where the bound of any event is under its share of
the check's error; so sound code fails it with a probability of at most ``error``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from schemas.arrays import Floats, Ints

_TOLD = 4  # problems
Number = float | np.integer[Any]


@dataclass(frozen=True)
class Check:
    """The result of one check of an audit."""

    name: str
    """The statement that should hold."""
    holds: bool
    evidence: str
    """The observation behind the result, from made-up data."""


@dataclass(frozen=True)
class Events:
    """Events of one kind: how often each happened, in how many trials, and how often it should."""

    what: tuple[str, ...]
    """Descriptions of the events."""
    happened: Floats
    expected: Floats
    """The sum of the trials' probabilities."""
    trials: Floats

    @classmethod
    def one(cls, what: str, happened: Number, expected: float, trials: int) -> "Events":
        """Return a single event."""
        return cls((what,), *(np.array([float(v)]) for v in (happened, expected, trials)))

    @property
    def surprise(self) -> Floats:
        """Return n D(h/n, p) of each event; ∞ where an impossible event happened."""
        n = np.maximum(self.trials, 1.0)
        x = np.clip(self.happened / n, 0.0, 1.0)
        p = np.clip(self.expected / n, 0.0, 1.0)
        return n * (_divergence(x, p) + _divergence(1.0 - x, 1.0 - p))

    def told(self, place: int) -> str:
        """What was seen of one event, and what should have been."""
        return (
            f"{self.what[place]}: {self.happened[place]:,.0f} of {self.trials[place]:,.0f} times, "
            f"expected {self.expected[place]:,.1f}"
        )


@dataclass(frozen=True)
class Magnitudes(Events):
    """How much noise of a known scale adds up to, without signs: what tells its scale best.

    ``happened`` is Σ|Z| over n ``trials`` of discrete Laplace noise, a = e^(−1/σ). By Chernoff it
    is as far from n E|Z|, or further on that side, with a probability of at most e^(−n I(x)), x its
    mean and u = a e^t = (√(1 + x²) − 1)/x:

        I(x) = t x − ln M(t),    M(t) = (1 − a)(1 + u)/((1 + a)(1 − u)).
    """

    scale: float = 1.0

    @classmethod
    def of(cls, what: Sequence[str], noise: Ints, scale: float) -> "Magnitudes":
        """Return the events of rows of ``noise``, shape [events, n]."""
        happened, n = np.abs(noise).sum(axis=1).astype(np.float64), noise.shape[1]
        expected = np.full(len(noise), n / math.sinh(1.0 / scale))
        return cls(tuple(what), happened, expected, np.full(len(noise), float(n)), scale)

    @property
    def surprise(self) -> Floats:
        """Return n I(x) of each event."""
        a = math.exp(-1.0 / self.scale)
        x = self.happened / np.maximum(self.trials, 1.0)
        u = x / (np.sqrt(1.0 + x**2) + 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            tilted = np.where(x > 0.0, x * (np.log(u) + 1.0 / self.scale), 0.0)
        moment = np.log1p(-a) - math.log1p(a) + np.log1p(u) - np.log1p(-u)
        surprise: Floats = self.trials * (tilted - moment)
        return surprise

    def told(self, place: int) -> str:
        """What noise added up to, and what it should have."""
        return (
            f"{self.what[place]}: {self.trials[place]:,.0f} of them add up to "
            f"{self.happened[place]:,.0f} without signs, expected {self.expected[place]:,.1f}"
        )


def _divergence(x: Floats, p: Floats) -> Floats:
    """Return x ln(x/p), 0 for x = 0 and ∞ for p = 0 < x."""
    with np.errstate(divide="ignore", invalid="ignore"):
        divergence: Floats = np.where(x > 0.0, x * np.log(x / p), 0.0)
    return divergence


def judge_events(name: str, kinds: Sequence[Events], error: float) -> Check:
    """Check events together; sound code fails with a probability of at most ``error``."""
    number = sum(len(events.what) for events in kinds)
    if number == 0:
        return Check(name, holds=True, evidence="nothing of the kind is published")
    limit = math.log(2.0 * number / error)
    events, surprise = max(
        ((events, events.surprise) for events in kinds if events.what),
        key=lambda pair: float(pair[1].max()),
    )
    worst = int(surprise.argmax())
    holds = bool(surprise[worst] <= limit)
    trials = int(max(float(events.trials.max()) for events in kinds if events.what))
    if holds:
        return Check(name, holds, f"{number:,} kinds of event in up to {trials:,} trials")
    return Check(name, holds, events.told(worst))


def exactly(name: str, problems: Sequence[str], seen: str) -> Check:
    """Check a statement that always holds in sound code: there are no false alarms."""
    return Check(name, holds=not problems, evidence="; ".join(problems[:_TOLD]) or seen)


def together(name: str, checks: Sequence[Check]) -> Check:
    """Join checks of one kind into one, with the evidence of the first that fails."""
    failed = [check for check in checks if not check.holds]
    return Check(name, not failed, (failed or list(checks))[0].evidence)
