"""How far a changed record moves the matched effect and its variance: smooth bounds. Unprotected.

Neighbours differ in one unit's whole record (stratum, treatment, outcome), in its place; N is
public. With T treated and C control units in a stratum, M = max(T, C) and m = min(T, C), bounds
come from these sizes alone, over the whole declared domain: values that nobody has are strata with
M = m = 0. A^(k) is at least the local sensitivity of every data set k records away, and
A^(k)(D) ≤ A^(k+1)(D′) for neighbours, so that

    S = max_k e^(−kβ) min(G, A^(k)),   G the global sensitivity,

is a β-smooth bound. Proofs are in `sites.md`, which also says where we differ from the paper.

Only the largest M of each m can matter, at most about √(2N) pairs, and k runs no further than
e^(−kβ) G can exceed what was found.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from schemas.arrays import Floats, Ints

_BLOCK = 2**20  # numbers held at a time


@dataclass(frozen=True, eq=False, repr=False)
class WorstPairs:
    """The pairs (m, M) of a domain that bounds depend on, shape [P] each, and N."""

    least: Ints
    """m, increasing."""
    most: Ints
    """M, the largest for this m."""
    n_units: int

    @classmethod
    def of(cls, treated: Ints, control: Ints) -> "WorstPairs":
        """Return those of the numbers T and C in each stratum of the domain, shape [|X|] each."""
        least, most = np.minimum(treated, control), np.maximum(treated, control)
        distinct, which = np.unique(least, return_inverse=True)
        largest = np.zeros(len(distinct), dtype=np.int64)
        np.maximum.at(largest, which, most)
        return cls(distinct, largest, int(treated.sum() + control.sum()))


def effect_range(high: float, n_units: int) -> float:
    """Return G = B(1 + 1/N), which no substitution moves τ̂ beyond, B = ``high``.

    The paper has 2B, the width of the range of τ̂.
    """
    return high * (1.0 + 1.0 / n_units)


def variance_range(high: float, n_units: int) -> float:
    """Return B²(1 + 1/N + 2/N²)/2, B = ``high``: neither estimate of the variance is above it.

    The least is 0.
    """
    return high**2 * (1.0 + 1.0 / n_units + 2.0 / n_units**2) / 2.0


def effect_bound_at(pairs: WorstPairs, distance: Ints, high: float) -> Floats:
    """Return A^(k) = (2B/N)(1 + max_x ⌈(M + k)/max(m − k, 1)⌉), k = ``distance``, shape [d].

    Its square is the same for V̂ = ``variance_sum``/N² of
    :class:`privatizers.effects.sites.matching.Matched`.
    """
    reuse = reuse_at(pairs, distance, 0)
    bound: Floats = 2.0 * high / pairs.n_units * (1.0 + reuse.max(axis=1))
    return bound


def reuse_at(pairs: WorstPairs, distance: Ints, more: int) -> Ints:
    """Return ⌈(M + k + more)/max(m − k, 1)⌉, k = ``distance``, shape [d, P]."""
    k = distance[:, None]
    ceiling: Ints = -((pairs.most + k + more) // -np.maximum(pairs.least - k, 1))
    return ceiling


def smooth_effect_bound(treated: Ints, control: Ints, *, high: float, beta: float) -> float:
    """Return S, β-smooth and at least the local sensitivity of τ̂, in the unit of the outcomes.

    And S² is at least the local sensitivity of V̂, so that one private upper bound Ŝ serves both.

    where ``treated`` and ``control`` are T and C over the whole domain, shape [|X|], ``high`` is B.
    About half of the paper's Equation (1) made smooth. Raises ValueError unless β > 0, finite.
    """
    pairs = WorstPairs.of(treated, control)
    term = partial(effect_bound_at, pairs, high=high)
    return smoothed(term, pairs, beta, effect_range(high, pairs.n_units))


def smoothed(
    term: Callable[[Ints], Floats], pairs: WorstPairs, beta: float, largest: float
) -> float:
    """Return the maximum over k = 0 … N of e^(−kβ) min(``largest``, term(k)), while it can grow."""
    if not (0.0 < beta < math.inf):
        raise ValueError(f"need beta above 0, not {beta!r}")
    best, start = 0.0, 0
    block = 1
    last = 0
    while start <= last:
        distance = np.arange(start, min(start + block, last + 1), dtype=np.int64)
        terms = np.exp(-beta * distance) * np.minimum(largest, term(distance))
        best = max(best, float(terms.max()))
        start += len(distance)
        block = max(1, _BLOCK // len(pairs.least))
        last = min(pairs.n_units, math.ceil(math.log(largest / best) / beta))
    return best
