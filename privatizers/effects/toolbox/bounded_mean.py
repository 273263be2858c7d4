"""Means of values with declared bounds: the acts, and what they cost. Proofs are in `toolbox.md`.

Who is a neighbour decides. Where one person's value is replaced and n is public, the mean moves by
(u − l)/n wherever the data are: nothing about it is local. Where a person comes or goes it moves by
(u − l)/n at most, and n is private: either the sum and the count get noise (pure ε), or the local
sensitivity is used (`smooth_sensitivity`, `propose_test_release`).
"""

import math
from dataclasses import dataclass

import numpy as np

from privatizers.noise.lattice_laplace import power_of_two_step
from privatizers.noise.randomness import discrete_laplace
from schemas.arrays import Floats, Ints

_RELATIVE = 2.0**-50
"""What turning a whole number of steps into a mean can lose, in parts of the greatest bound."""


@dataclass(frozen=True)
class Bounds:
    """Declared bounds [l, u], and the lattice that values are put on.

    Steps h are a power of two, by default 2²⁰ to 2²¹ of them between the bounds, so that sums are
    whole numbers and exact: nothing is left to floating point.
    """

    lower: float
    upper: float
    part: float = 2.0**-20
    """The greatest that h may be, in parts of u − l; it is more than half of that."""

    def __post_init__(self) -> None:
        """Refuse what are no bounds."""
        if not (-math.inf < self.lower < self.upper < math.inf):
            raise ValueError(
                f"bounds are two numbers, the lower first, not {self.lower!r} and {self.upper!r}"
            )
        _ = self.step

    @property
    def step(self) -> float:
        """The step h."""
        return power_of_two_step(self.upper - self.lower, self.part)

    @property
    def width(self) -> int:
        """M = ⌊(u − l)/h⌋, in steps."""
        return math.floor((self.upper - self.lower) / self.step)

    @property
    def middle(self) -> float:
        """The mean of no values, by declaration."""
        return self.value_at(self.width / 2.0)

    def whole(self, values: Floats) -> Ints:
        """Return every value clipped and in steps above l, 0 … M; what is no number counts as l.

        A value is looked at alone, and every one is kept.
        """
        clipped = np.clip(np.nan_to_num(values, nan=self.lower), self.lower, self.upper)
        steps: Ints = np.rint((clipped - self.lower) / self.step).astype(np.int64)
        return np.clip(steps, 0, self.width)

    def value_at(self, steps: float) -> float:
        """Return l + h · ``steps``, a value in its own unit."""
        return self.lower + self.step * steps


def mean_of_fixed_size(values: Floats, bounds: Bounds, epsilon: float) -> float:
    """Return l + h (S + Z)/n: the mean of n values, n public, S their sum in steps.

    Guarantee: ε-DP where one value is replaced: S moves by M at most; Z discrete Laplace of scale
    M/ε, so about (u − l)/(n ε) in the mean. Not for people who come or go: it takes n as it is.
    Raises ValueError for an impossible ε. No values have the middle as their mean.
    """
    if len(values) == 0:
        return bounds.middle
    noisy = int(bounds.whole(values).sum()) + _noise(bounds.width, epsilon)
    return bounds.value_at(noisy / len(values))


def mean_by_sum_and_count(
    values: Floats, bounds: Bounds, epsilon: float, about: float | None = None
) -> float:
    """Return the mean as a noisy sum over a noisy count, ε/2 each, within the bounds.

        l + h (a + S̃/max(Ñ, 1)),   S̃ = Σ (k_i − a) + Z₁,   Ñ = n + Z₂

    Guarantee: ε-DP where a person comes or goes: the sum moves by m = max(|M − a|, |a|) at most,
    the count by 1; scales m/(ε/2) and 2/ε.

    where k_i are the values in steps above l and a is ``about`` in steps, public. The middle of the
    bounds, the default, halves the noise of sums about 0 that start at 0. Raises ValueError.
    """
    origin = bounds.middle if about is None else about
    a = round((origin - bounds.lower) / bounds.step)
    moved = max(abs(bounds.width - a), abs(a))
    total = int((bounds.whole(values) - a).sum()) + _noise(moved, epsilon / 2.0)
    count = len(values) + _noise(1, epsilon / 2.0)
    mean = bounds.value_at(a + total / max(count, 1))
    return min(max(mean, bounds.lower), bounds.upper)


@dataclass(frozen=True)
class AddRemoveMean:
    """The mean of values within bounds, with its local sensitivity where people come or go.

    A(k) = (u − l)/max(n − k, 1) for every k: removals make n small, and the worst of them moves the
    mean by (u − l)/n. (u − l)/(n + 1) is what additions can do. The chapter's u/(n + 1) of Near and
    Abuah covers additions of values from 0 on alone: x = (1, 0, 0, 0) moves by 1/4 if the 1 goes,
    and they have 1/5. Holds S, n; unprotected.
    """

    bounds: Bounds
    total: int
    """S, in steps."""
    count: int
    """n."""

    @classmethod
    def of(cls, values: Floats, bounds: Bounds) -> "AddRemoveMean":
        """Return the mean of ``values``, shape [n]."""
        return cls(bounds, int(bounds.whole(values).sum()), len(values))

    @property
    def value(self) -> float:
        """The mean, l + h S/n, or the middle where there are no values."""
        if self.count == 0:
            return self.bounds.middle
        return self.bounds.value_at(self.total / self.count)

    @property
    def global_bound(self) -> float:
        """Return u − l, and what rounding can do."""
        return self.bounds.width * self.bounds.step + self._rounding

    def upto(self, farthest: int) -> Floats:
        """Return A(0), …, A(farthest), rounding included."""
        left = np.maximum(self.count - np.arange(farthest + 1), 1)
        levels: Floats = self.bounds.width * self.bounds.step / left + self._rounding
        return levels

    @property
    def _rounding(self) -> float:
        return _RELATIVE * max(abs(self.bounds.lower), abs(self.bounds.upper))


def _noise(moved: int, epsilon: float) -> int:
    """One draw for a whole number that moves by ``moved`` at most, at ``epsilon``."""
    if not (0.0 < epsilon < math.inf):
        raise ValueError(f"noise costs an epsilon above 0, not {epsilon!r}")
    return int(discrete_laplace(1, math.nextafter(moved / epsilon, math.inf))[0])
