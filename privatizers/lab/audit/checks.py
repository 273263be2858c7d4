"""Whether events in made-up data happened as often as they should, with a bound on false alarms.

A check looks at many events at once. In independent trials with probabilities p_1 … p_n, p their
mean, an event happens h times or more, h ≥ n p, with a probability of at most e^(−n D(h/n, p)),

    D(x, p) = x ln(x/p) + (1 − x) ln((1 − x)/(1 − p)),

and h times or less, h ≤ n p, with the same bound (Hoeffding 1963, Theorem 1). This holds exactly
for any n and any probabilities. A check fails where the bound of any event is under its share of
the check's error; so sound code fails it with a probability of at most ``error``.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from schemas.arrays import Floats

_TOLD = 4  # problems


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
    """Events of one kind: how often each happened, in how many trials, and how often it should.

    With a ``scale`` σ they are no events but sizes of discrete Laplace noise, which tell its scale
    best: ``happened`` is Σ|Z| over n ``trials``. By Chernoff it is as far from n E|Z|, or further
    on that side, with a probability of at most e^(−n I(x)), x its mean, a = e^(−1/σ) and u = a e^t
    = (√(1 + x²) − 1)/x:

        I(x) = t x − ln M(t),    M(t) = (1 − a)(1 + u)/((1 + a)(1 − u)).
    """

    what: tuple[str, ...]
    """Descriptions of the events."""
    happened: Floats
    expected: Floats
    """The sum of the trials' probabilities."""
    trials: Floats
    scale: float | None = None

    @property
    def surprise(self) -> Floats:
        """Return n D(h/n, p), or n I(x), of each; ∞ where an impossible event happened."""
        n = np.maximum(self.trials, 1.0)
        if self.scale is None:
            x, p = (np.clip(times / n, 0.0, 1.0) for times in (self.happened, self.expected))
            return n * (_divergence(x, p) + _divergence(1.0 - x, 1.0 - p))
        x, a = self.happened / n, math.exp(-1.0 / self.scale)
        u = x / (np.sqrt(1.0 + x**2) + 1.0)
        moment = np.log1p(-a) - math.log1p(a) + np.log1p(u) - np.log1p(-u)
        surprise: Floats = self.trials * (_divergence(x, x * a / np.where(u > 0, u, 1.0)) - moment)
        return surprise

    def told(self, place: int) -> str:
        """What was seen of one event, and what should have been."""
        how, of = ("", " times") if self.scale is None else (" in all, without signs", "")
        return (
            f"{self.what[place]}: {self.happened[place]:,.0f}{how} of {self.trials[place]:,.0f}{of}"
            f", expected {self.expected[place]:,.1f}"
        )


def _divergence(x: Floats, p: Floats) -> Floats:
    """Return x ln(x/p), 0 for x = 0 and ∞ for p = 0 < x."""
    with np.errstate(divide="ignore", invalid="ignore"):
        divergence: Floats = np.where(x > 0.0, x * np.log(x / p), 0.0)
    return divergence


Findings = Iterable[str | Events]
"""Problems, which sound code never has, and events."""


def judge(
    name: str,
    found: Findings,
    error: float = 1e-4,
    seen: str = "nothing of the kind is published",
) -> Check:
    """Check a statement by all that was ``found`` of it: problems, as texts, and events.

    Sound code never has a problem, and fails by its events, which are looked at together, with a
    probability of at most ``error``. Where there are none of both, the evidence is what was
    ``seen``.
    """
    problems, kinds = list[str](), list[Events]()
    for one in found:
        if isinstance(one, str):
            problems.append(one)
        elif one.what:
            kinds.append(one)
    if problems or not kinds:
        return Check(name, not problems, "; ".join(problems[:_TOLD]) or seen)
    number = sum(len(events.what) for events in kinds)
    surprises = [events.surprise for events in kinds]
    worst = int(np.argmax([float(surprise.max()) for surprise in surprises]))
    if surprises[worst].max() > math.log(2.0 * number / error):
        return Check(name, holds=False, evidence=kinds[worst].told(int(surprises[worst].argmax())))
    trials = int(max(float(events.trials.max()) for events in kinds))
    return Check(name, holds=True, evidence=f"{number:,} kinds of event in up to {trials:,} trials")
