"""The stated law of noise, as events with known frequencies: on made-up data all noise is known.

Every noise is discrete Laplace of the published scale and independent of all others. Sums and
differences of two noises show whether randomness is shared.
"""

import math
from dataclasses import dataclass

import numpy as np

from privatizers.lab.audit.checks import Events, Magnitudes
from schemas.arrays import Ints

_FRACTIONS = (0.25, 0.7, 1.5, 3.0)
"""Multiples of the scale from which tails of noise are counted."""
_LAGS = (1, 2, 3)


@dataclass(frozen=True)
class Laplace:
    """Discrete Laplace of scale σ, and the law of the sum of two of them."""

    scale: float

    @property
    def a(self) -> float:
        """e^(−1/σ)."""
        return math.exp(-1.0 / self.scale)

    @property
    def zero(self) -> float:
        """P(Z = 0) = (1 − a)/(1 + a)."""
        return math.tanh(0.5 / self.scale)

    def above(self, least: int) -> float:
        """Return P(Z ≥ t) = a^t/(1 + a), t ≥ 1."""
        return math.exp(-least / self.scale) / (1.0 + self.a)

    @property
    def odd(self) -> float:
        """P(Z odd) = 2a/(1 + a)²."""
        return 2.0 * self.a / (1.0 + self.a) ** 2

    @property
    def _sum_factor(self) -> float:
        """G = (1 + a²)/(1 − a²): P(Z + Z′ = k) is P(Z = 0)² a^|k| (|k| + g)."""
        return 1.0 / math.tanh(1.0 / self.scale)

    @property
    def sum_zero(self) -> float:
        """P(Z + Z′ = 0)."""
        return self.zero**2 * self._sum_factor

    def sum_above(self, least: int) -> float:
        """Return P(Z + Z′ ≥ t) = P(Z = 0)² a^t ((t + g)/(1 − a) + a/(1 − a)²), t ≥ 1."""
        gap = -math.expm1(-1.0 / self.scale)
        factor = (least + self._sum_factor) / gap + self.a / gap**2
        return self.zero**2 * math.exp(-least / self.scale) * factor

    @property
    def tails(self) -> list[int]:
        """The values from which tails are counted."""
        return sorted({max(1, round(part * self.scale)) for part in _FRACTIONS})


def noise_events(noise: Ints, scale: float, whose: str) -> list[Events]:
    """Count how often noise, i.i.d. discrete Laplace of ``scale``, is 0, odd or in a tail."""
    law, n = Laplace(scale), len(noise)
    if n == 0:
        return []
    events: list[Events] = [
        Events.one(f"{whose} is 0", np.count_nonzero(noise == 0), n * law.zero, n),
        Events.one(f"{whose} is odd", np.count_nonzero(noise & 1), n * law.odd, n),
        Events.one(f"{whose} is above 0", np.count_nonzero(noise > 0), n * law.above(1), n),
    ]
    events.append(Magnitudes.of([whose], noise[np.newaxis], scale))
    for tail in law.tails:
        beyond = np.count_nonzero(np.abs(noise) >= tail)
        events.append(Events.one(f"{whose} is {tail} or more", beyond, 2 * n * law.above(tail), n))
    return events


def pair_events(first: Ints, second: Ints, scale: float, whose: str) -> list[Events]:
    """Count how often pairs of independent noises cancel, agree and are far apart."""
    law, n = Laplace(scale), len(first)
    if n == 0:
        return []
    events = []
    for word, both in (("sum", first + second), ("difference", first - second)):
        name = f"the {word} of {whose}"
        events.append(Events.one(f"{name} is 0", np.count_nonzero(both == 0), n * law.sum_zero, n))
        for tail in law.tails:
            times = np.count_nonzero(np.abs(both) >= tail)
            expected = 2 * n * law.sum_above(tail)
            events.append(Events.one(f"{name} is {tail} or more", times, expected, n))
    return events


def lagged_noise(noise: Ints, scale: float, whose: str) -> list[Events]:
    """Count events of disjoint pairs that lie 1, 2 and 3 apart; ``noise`` has the shape [n]."""
    events = []
    for lag in _LAGS:
        first = firsts(len(noise), lag)
        events += pair_events(noise[first], noise[first + lag], scale, f"{whose} {lag} apart")
    return events


def firsts(size: int, lag: int) -> Ints:
    """Return the first positions of disjoint pairs that lie ``lag`` apart."""
    position = np.arange(max(size - lag, 0))
    first: Ints = position[position // lag % 2 == 0]
    return first


def noise_laws(noises: list[Ints], scale: float) -> list[Events]:
    """Return events of single noises and of pairs, for the ``noises`` of two calls.

    Pairs are of one stratum, of strata that lie 1, 2, 3 or half of all strata apart, and of two
    calls.
    """
    first, second = noises
    if first.size == 0:
        return []
    half = len(first) // 2
    by_stratum, by_cell = first.ravel(), first.T.ravel()
    return [
        *noise_events(by_stratum, scale, "noise"),
        *lagged_noise(by_stratum, scale, "noises of a stratum"),
        *lagged_noise(by_cell, scale, "noises of strata"),
        *pair_events(
            first[:half].ravel(), first[half : 2 * half].ravel(), scale, "noises of far strata"
        ),
        *pair_events(first.ravel(), second.ravel(), scale, "noises of two calls"),
    ]


def noise_pairs(first: tuple[Ints, float], second: tuple[Ints, float], whose: str) -> list[Events]:
    """Count how often two noises of any scales are both above 0, on both sides, odd and equal to 0.

    Each is given with its scale; values that stand at the same place are of the same cell. They are
    independent.
    """
    (one, scale), (other, other_scale) = first, second
    n = min(len(one), len(other))
    if n == 0:
        return []
    one, other = one[:n], other[:n]
    law, other_law = Laplace(scale), Laplace(other_scale)
    above, other_above = law.above(1), other_law.above(1)
    happened = {
        "both above 0": ((one > 0) & (other > 0), above * other_above),
        "above and below 0": ((one > 0) & (other < 0), above * other_above),
        "both odd": ((one & 1 == 1) & (other & 1 == 1), law.odd * other_law.odd),
        "both 0": ((one == 0) & (other == 0), law.zero * other_law.zero),
        "far from 0": (
            (np.abs(one) >= law.tails[-1]) & (np.abs(other) >= other_law.tails[-1]),
            4.0 * law.above(law.tails[-1]) * other_law.above(other_law.tails[-1]),
        ),
    }
    return [
        Events.one(f"{whose} are {what}", np.count_nonzero(seen), n * chance, n)
        for what, (seen, chance) in happened.items()
    ]
