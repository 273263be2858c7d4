"""Very many replicates of one stratum, reduced to the categories that tell D from D′ best.

The strata of one call are replicates of an instance; of their units only the changed one is drawn.
Each replicate falls into one of a few categories: the outcome that was drawn, whether the two
changing outcomes' priors are at γ, and on which data set's side the noise is. These facts make the
greatest loss, so a set of categories shows nearly the whole claim. Only the categories are counted,
so millions of replicates need little memory.
"""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from scipy import stats

from privatizers.audit.lower_bounds import clopper_pearson
from privatizers.audit.neighbours import Instance
from privatizers.audit.sampling import (
    Effort,
    UnitMechanism,
    draw_strata,
    kind_of,
    noised_cells,
    signature,
)
from schemas.arrays import Floats, Ints

_CELLS = 1 << 16  # cells that get noise at once: they stay in the cache
_CATEGORIES = 3 << 5
_TO_CHOOSE = 0.1  # share of the replicates that the event is chosen with
_NEAR = 0.035  # how far a bound may be under the ε that an event shows, as a share of it
_WIDE = 4.0  # scales of noise between a count and γ n: all but e⁻⁴ of the noise stays at γ


@dataclass(frozen=True)
class Marked:
    """A lower bound on ε, the instance behind it, and the event, described for the audit."""

    epsilon: float
    instance: Instance
    evidence: str
    size: int
    """Replicates under D, and as many under D′."""


def telling_instance(mechanism: UnitMechanism) -> Instance:
    """Return neighbours for which samples show nearly the whole claim.

    One unit has the outcome given up, none the one taken, and n is so large that both priors stay
    at γ wherever the noise shows the change: γ n is 2 + 4 σ. A mechanism without a prior of its own
    treats all sizes alike, and Cluster-Optimal-DP small ones.
    """
    parameters = mechanism.parameters
    k, scale, gamma = parameters.n_outcomes, parameters.noise_scale, parameters.truncation_threshold
    n = 2
    if scale is not None and gamma is not None and mechanism.name != "uniform-prior-dp":
        n = math.ceil((2.0 + _WIDE * scale) / gamma)
    counts = [0] * k
    counts[0], counts[1] = 1, n - 1
    return Instance(tuple(counts), 0, k - 1)


def marked_size(mechanism: UnitMechanism, effort: Effort) -> int:
    """Return the number of replicates of D, and of D′, that an effort allows."""
    return max(min(effort.units // 2, effort.noised_cells // (2 * noised_cells(mechanism))), 10)


def marked_bound(
    mechanism: UnitMechanism, instance: Instance, most: int, delta: float, error: float
) -> Marked:
    """Return the greater lower bound of both directions, wrong with at most ``error``.

    At most ``most`` replicates under D, and as many under D′, are drawn: a tenth to choose an event
    with, then as many as bring the bound within 3.5 % of the ε that the event seems to show.
    """
    to_choose = max(int(_TO_CHOOSE * most), 5)
    choosing = _neighbours(mechanism, instance, to_choose)
    most -= to_choose
    events = [
        _choose_categories(here, there, most, delta, error / 2)
        for here, there in (choosing, choosing[::-1])
    ]
    wanted = [
        _size_needed(here[event].sum(), there[event].sum(), to_choose, error)
        for event, (here, there) in zip(events, (choosing, choosing[::-1]), strict=True)
    ]
    size = int(min(max(most, 5), max(wanted)))
    bounding = _neighbours(mechanism, instance, size)
    best, best_event = 0.0, events[0][:0]
    for event, (here, there) in zip(events, (bounding, bounding[::-1]), strict=True):
        low, _ = clopper_pearson(here[event].sum(keepdims=True), size, error / 4)
        _, high = clopper_pearson(there[event].sum(keepdims=True), size, error / 4)
        epsilon = math.log(max(1.0, float((low[0] - delta) / high[0])))
        if epsilon > best:
            best, best_event = epsilon, event
    return Marked(best, instance, _in_words(best_event), to_choose + size)


def _size_needed(happened: int, there: int, size: int, error: float) -> float:
    """Return how many replicates bring a bound near the ε that an event has shown so far.

    N with z (1/√(N p) + 1/√(N q)) = 0.035 ln(p/q).
    """
    p, q = (happened + 0.5) / (size + 1), (there + 0.5) / (size + 1)
    z = float(stats.norm.isf(error / 4))
    epsilon = max(math.log(p / q), 1e-6)
    return float((z * (p**-0.5 + q**-0.5) / (_NEAR * epsilon)) ** 2)


def _neighbours(mechanism: UnitMechanism, instance: Instance, size: int) -> list[Ints]:
    """Count categories of ``size`` replicates under D, and of as many under D′, in two threads."""
    sets = ((instance.counts, instance.from_cell), (instance.neighbour, instance.to_cell))
    with ThreadPoolExecutor(len(sets)) as workers:
        return list(
            workers.map(lambda data: _tally(mechanism, instance, data[0], data[1], size), sets)
        )


def _tally(
    mechanism: UnitMechanism, instance: Instance, counts: tuple[int, ...], level: int, size: int
) -> Ints:
    """Count the replicates that fall into each category, shape [C]."""
    tally = np.zeros(_CATEGORIES, dtype=np.int64)
    step = max(1, _CELLS // instance.n_outcomes)
    for start in range(0, size, step):
        n = min(step, size - start)
        release = draw_strata(mechanism, np.tile(np.array(counts, dtype=np.int64), (n, 1)))
        strata = np.arange(n)
        drawn = release.response.draw(np.full(n, level), strata)
        kinds = kind_of(drawn, strata, instance, release)
        category = signature(mechanism, instance, release, kinds)
        tally += np.bincount(category.astype(np.int64), minlength=_CATEGORIES)
    return tally


def _choose_categories(here: Ints, there: Ints, size: int, delta: float, error: float) -> Ints:
    """Return the categories most typical of ``here``, as many as give the greatest bound."""
    order = np.argsort(-(here + 0.5) / (there + 0.5), kind="stable")
    p: Floats = np.cumsum(here[order]) / here.sum()
    q: Floats = np.cumsum(there[order]) / there.sum()
    z = float(stats.norm.isf(error / 2))
    low = p - z * np.sqrt(p / size) - delta
    high = q + z * np.sqrt(q / size) + z**2 / size
    return order[: 1 + int(np.argmax(low / high))]


def _in_words(categories: Ints) -> str:
    """Describe the event by its draws; priors and noise are part of it too."""
    words = ("the outcome given up", "the outcome taken", "another")
    drawn = sorted({int(category) % 3 for category in categories})
    if not drawn:
        return "none"
    draws = " or ".join(words[kind] for kind in drawn)
    return f"the changed unit's draw is {draws}, with priors and noise on that side"
