"""Local sensitivity at a distance, and the smooth bound that may be made of it.

How far one change moves a query from *this* data set tells of the data set, so noise of that size
is not private. What is private is made of how it grows with the distance from the data: by smooth
sensitivity (Nissim, Raskhodnikova and Smith 2007; `smooth_sensitivity`) and by propose-test-release
(Dwork and Lei 2009; `propose_test_release`). Proofs are in `toolbox.md`.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from schemas.arrays import Floats

LEAST = 2.0**-400
"""Smooth bounds are never under it, nor global bounds over its inverse: public ends."""

_FIRST = 1024


class LocalSensitivity(Protocol):
    """A query f of a data set x, and how far it can be from f of neighbours.

    Whoever writes one declares what neighbours are, and proves its numbers for the query as it is
    *computed*, rounding included.
    """

    @property
    def value(self) -> float:
        """f(x), not protected."""

    @property
    def global_bound(self) -> float:
        """G: at least the local sensitivity at any distance; public, finite."""

    def upto(self, farthest: int) -> Floats:
        """Return A(0), …, A(farthest), in f's unit, shape [farthest + 1].

        A(k) ≥ |f(y) − f(y′)| wherever y is k changes from x at most and y′ a neighbour of y; A does
        not decrease, and A(k) of x is at most A(k + 1) of x's neighbours. The exact maximum does
        all this; a bound of it has to be shown to.
        """


@dataclass(frozen=True)
class Tabulated:
    """A query whose A(0), A(1), … are listed; where the list ends it is ``global_bound``."""

    value: float
    at_distance: tuple[float, ...]
    global_bound: float

    def __post_init__(self) -> None:
        """Refuse what is no local sensitivity; the numbers, unprotected, are not told."""
        steps = np.array([0.0, *self.at_distance, self.global_bound])
        if not (np.all(np.diff(steps) >= 0.0) and math.isfinite(self.global_bound)):
            raise ValueError(
                "local sensitivities are numbers from 0 that do not decrease, up to a finite one"
            )

    def upto(self, farthest: int) -> Floats:
        """Return A(0), …, A(farthest)."""
        listed = np.array(self.at_distance[: farthest + 1], dtype=np.float64)
        beyond = np.full(farthest + 1 - len(listed), self.global_bound)
        return np.concatenate([listed, beyond])


def smooth_bound(query: LocalSensitivity, beta: float) -> float:
    """Return S = max over k ≥ 0 of e^(−βk) A(k), at least 2⁻⁴⁰⁰.

    S ≥ A(0), and S of neighbours is at most e^β times greater or less: A(k) of x is at most
    A(k + 1) of x′, so e^(−βk) A(k) ≤ e^β S(x′). The search runs to the first K after which nothing
    is greater: e^(−β(K + 1)) G ≤ the greatest so far, or A(K) = G, or e^(−β(K + 1)) G ≤ 2⁻⁴⁰⁰.
    Computed with a relative error far under 2⁻⁴⁰, which those who use it allow for.

    where ``beta`` is β > 0 and G the query's global bound. Raises ValueError for another β, and
    where G is not a number up to 2⁴⁰⁰. S is not protected. (The chapter of Near and Abuah starts at
    k = 1, which can be under A(0): for A = (1, 1, …) it gives e^(−β).)
    """
    if not (0.0 < beta < math.inf):
        raise ValueError(f"a smooth bound needs a beta above 0, not {beta!r}")
    farthest, most = _FIRST, query.global_bound
    if not (0.0 <= most <= 1.0 / LEAST):
        raise ValueError("a smooth bound needs a finite global bound of the local sensitivity")
    while True:
        levels = query.upto(farthest)
        best = float(np.max(np.exp(-beta * np.arange(farthest + 1)) * levels))
        left = math.exp(-beta * (farthest + 1)) * most
        if left <= max(best, LEAST) or levels[-1] >= most:
            return max(best, LEAST)
        farthest *= 2


def distance_to(query: LocalSensitivity, bound: float, farthest: int) -> int:
    """Return D = min{k : A(k) > ``bound``}, or ``farthest`` where that is less.

    One change to the data moves D by one at most: A(k) of x is at most A(k + 1) of x′. ``farthest``
    is public. D is not protected.
    """
    beyond = np.flatnonzero(query.upto(farthest) > bound)
    return int(beyond[0]) if len(beyond) else farthest
