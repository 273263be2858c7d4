"""Very many replicates of one stratum, of which only what tells most is kept.

The strata of one call are replicates of an instance; of their units the changed one alone is drawn.
Each replicate falls into one of a few categories: the outcome that was drawn, whether the priors
concerned are at γ, and on whose side the noise is. That is what the greatest loss is made of, so a
set of categories reaches nearly the whole claim. Only the categories are counted, so millions of
replicates take no room.
"""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from scipy import stats

from privatizers.audit.lower_bounds import clopper_pearson
from privatizers.audit.neighbours import Instance
from privatizers.audit.sampling import Effort, kind_of, noised_cells, signature
from privatizers.mechanisms.mechanism import Mechanism
from schemas.arrays import Floats, Ints

_CELLS = 1 << 20  # noised at once: bounds memory
_CATEGORIES = 3 << 5
_TO_CHOOSE = 0.1  # of the replicates: what the event is chosen with
_NEAR = 0.035  # of what an event tells: how far under it a bound may be
_WIDE = 4.0  # scales of noise between a count and γ n: all but e⁻⁴ of it is at γ


@dataclass(frozen=True)
class Marked:
    """A lower bound on ε, the instance behind it, and the event, in the words of the audit."""

    epsilon: float
    instance: Instance
    evidence: str
    size: int
    """Replicates under D, and as many under D′."""


def telling_instance(mechanism: Mechanism) -> Instance:
    """The neighbours of which samples show nearly the whole claim.

    One unit has the outcome given up, none the one taken, and n is so large that both priors stay
    at γ wherever the noise shows the change: γ n is 2 + 4 σ. Without a prior of its own a mechanism
    treats all sizes alike.
    """
    parameters = mechanism.parameters
    k, scale = parameters.n_outcomes, parameters.noise_scale
    n = 2
    if scale is not None and mechanism.name != "uniform-prior-dp":
        n = math.ceil((2.0 + _WIDE * scale) / parameters.truncation_threshold)
    counts = [0] * k
    counts[0], counts[1] = 1, n - 1
    return Instance(tuple(counts), 0, k - 1)


def marked_size(mechanism: Mechanism, effort: Effort) -> int:
    """Return how many replicates of D, and as many of D′, an effort is enough for."""
    return max(min(effort.units // 2, effort.noised_cells // (2 * noised_cells(mechanism))), 10)


def marked_bound(
    mechanism: Mechanism, instance: Instance, most: int, delta: float, error: float
) -> Marked:
    """Return the greater lower bound of both directions, wrong with ``error`` at most.

    ``most`` replicates under D, and as many under D′, are drawn at most: a tenth to choose an event
    with, then so many as bring the bound within 3.5 % of what the event seems to tell.
    """
    to_choose = max(int(_TO_CHOOSE * most), 5)
    choosing = _neighbours(mechanism, instance, to_choose)
    most -= to_choose
    events = [
        _chosen(one, other, most, delta, error / 2) for one, other in (choosing, choosing[::-1])
    ]
    wanted = [
        _wanted(one[event].sum(), other[event].sum(), to_choose, error)
        for event, (one, other) in zip(events, (choosing, choosing[::-1]), strict=True)
    ]
    size = int(min(max(most, 5), max(wanted)))
    bounding = _neighbours(mechanism, instance, size)
    best, chosen = 0.0, events[0][:0]
    for event, (one, other) in zip(events, (bounding, bounding[::-1]), strict=True):
        low, _ = clopper_pearson(one[event].sum(keepdims=True), size, error / 4)
        _, high = clopper_pearson(other[event].sum(keepdims=True), size, error / 4)
        epsilon = math.log(max(1.0, float((low[0] - delta) / high[0])))
        if epsilon > best:
            best, chosen = epsilon, event
    return Marked(best, instance, _in_words(chosen), to_choose + size)


def _wanted(happened: int, there: int, size: int, error: float) -> float:
    """How many replicates bring a bound near what an event tells, by what it told so far.

    N with z (1/√(N p) + 1/√(N q)) = 0.035 ln(p/q).
    """
    p, q = (happened + 0.5) / (size + 1), (there + 0.5) / (size + 1)
    z = float(stats.norm.isf(error / 4))
    told = max(math.log(p / q), 1e-6)
    return float((z * (p**-0.5 + q**-0.5) / (_NEAR * told)) ** 2)


def _neighbours(mechanism: Mechanism, instance: Instance, size: int) -> list[Ints]:
    """Categories of ``size`` replicates under D, and of as many under D′, side by side."""
    sets = ((instance.counts, instance.from_cell), (instance.neighbour, instance.to_cell))
    with ThreadPoolExecutor(len(sets)) as workers:
        return list(
            workers.map(lambda one: _tally(mechanism, instance, one[0], one[1], size), sets)
        )


def _tally(
    mechanism: Mechanism, instance: Instance, counts: tuple[int, ...], level: int, size: int
) -> Ints:
    """How many replicates fall into each category, shape [C]."""
    found = np.zeros(_CATEGORIES, dtype=np.int64)
    step = max(1, _CELLS // instance.n_outcomes)
    for start in range(0, size, step):
        n = min(step, size - start)
        release = mechanism.strata(np.tile(np.array(counts, dtype=np.int64), (n, 1)))
        drawn = release.response.draw(np.full(n, level), np.arange(n))
        category = signature(mechanism, instance, release, kind_of(drawn, instance))
        found += np.bincount(category.astype(np.int64), minlength=_CATEGORIES)
    return found


def _chosen(here: Ints, there: Ints, size: int, delta: float, error: float) -> Ints:
    """The categories most typical of ``here``, so many that ``size`` replicates tell the most."""
    order = np.argsort(-(here + 0.5) / (there + 0.5), kind="stable")
    p: Floats = np.cumsum(here[order]) / here.sum()
    q: Floats = np.cumsum(there[order]) / there.sum()
    z = float(stats.norm.isf(error / 2))
    low = p - z * np.sqrt(p / size) - delta
    high = q + z * np.sqrt(q / size) + z**2 / size
    return order[: 1 + int(np.argmax(low / high))]


def _in_words(categories: Ints) -> str:
    """The draws of the event; that it speaks of priors and noise too."""
    words = ("the outcome given up", "the outcome taken", "another")
    drawn = sorted({int(category) % 3 for category in categories})
    if not drawn:
        return "none"
    said = " or ".join(words[one] for one in drawn)
    return f"the changed unit's draw is {said}, with priors and noise on that side"
