"""A lower bound on the ε of a mechanism, from samples of two neighbouring data sets.

If a mechanism is (ε, δ)-DP, every event A has P(A) ≤ e^ε Q(A) + δ. An event that tells D from D′ is
chosen with one half of the samples. With the other half, which the choice does not depend on, P(A)
is bounded from below and Q(A) from above (Clopper and Pearson), and so is ε.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from schemas.arrays import Floats, Ints

_CAUTION = 1e-3  # among so many events some seem to tell D from D′ by chance


@dataclass(frozen=True)
class Bound:
    """A lower bound on ε."""

    epsilon: float
    evidence: str
    """What gave it, or why there is none."""
    n_samples: int = 0


def lower_bound(here: Floats, there: Floats, delta: float, error: float) -> float:
    """Return ε̲ = ln((P̲(A) − δ)/Q̄(A)) ≤ ε, wrong with a probability of at most ``error``.

    ``here`` are independent replicates of what is published under D, ``there`` under D′, shape [R],
    with few values; P̲ and Q̄ are Clopper and Pearson's bounds, each wrong with half of ``error``.
    The event is one of some values, those that are most typical of D. This is one direction; the
    samples in the other order give the other.
    """
    halves = [half for sample in (here, there) for half in np.array_split(sample, 2)]
    edges = np.unique(np.concatenate(halves[::2]))[1:]  # where values begin, but for the first
    counts = [
        np.bincount(np.searchsorted(edges, half, side="right"), minlength=len(edges) + 1)
        for half in halves
    ]
    typical = np.argsort(-(counts[0] + 0.5) / (counts[2] + 0.5), kind="stable")
    p, p_rest, q, q_rest = (np.cumsum(half[typical]) for half in counts)
    event = int(epsilons(p, q, delta, _CAUTION * error).argmax())
    return float(epsilons(p_rest, q_rest, delta, error)[event])


def epsilons(p: Ints, q: Ints, delta: float, error: float) -> Floats:
    """Return ε̲ of growing events that happened so often, the last of them always; at least 0.

    Bounds on each probability are quantiles of beta distributions, exact for any (Clopper and
    Pearson 1934).
    """
    low = np.where(p == 0, 0.0, stats.beta.ppf(error / 2, p, p[-1] - p + 1))
    high = np.where(q == q[-1], 1.0, stats.beta.isf(error / 2, q + 1, q[-1] - q))
    found: Floats = np.log(np.maximum((low - delta) / high, 1.0))
    return found
