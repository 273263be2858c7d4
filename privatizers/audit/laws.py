"""The laws that a mechanism states of what it draws, as events that should be so and so frequent.

Noise is discrete Laplace of the stated scale and shared by nothing; a unit's outcome is drawn with
the published λ and q̃, and by itself; roundings are drawn one by one. For made-up data, of which
everything is known. Sums and differences of two noises, and pairs of draws, tell of what is shared.
"""

import math
from dataclasses import dataclass

import numpy as np

from privatizers.audit.checks import Events
from schemas.arrays import Bools, Floats, Integers, Ints

_FRACTIONS = (0.25, 0.7, 1.5, 3.0)
"""Of the scale: where tails of noise are counted."""
_LAGS = (1, 2, 3)
_MOST_LEVELS = 24
_PIECE = 1 << 18  # bounds memory
_MOST_PRIORS = 1 << 25  # entries that pairs are compared by: bounds time


# noise


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
        """P(Z ≥ t) = a^t/(1 + a), t ≥ 1."""
        return math.exp(-least / self.scale) / (1.0 + self.a)

    @property
    def odd(self) -> float:
        """P(Z odd) = 2a/(1 + a)²."""
        return 2.0 * self.a / (1.0 + self.a) ** 2

    @property
    def _grown(self) -> float:
        """(1 + a²)/(1 − a²): P(Z + Z′ = k) is P(Z = 0)² a^|k| times |k| and this."""
        return 1.0 / math.tanh(1.0 / self.scale)

    @property
    def sum_zero(self) -> float:
        """P(Z + Z′ = 0)."""
        return self.zero**2 * self._grown

    def sum_above(self, least: int) -> float:
        """P(Z + Z′ ≥ t) = P(Z = 0)² a^t ((t + g)/(1 − a) + a/(1 − a)²), t ≥ 1."""
        left = -math.expm1(-1.0 / self.scale)
        told = (least + self._grown) / left + self.a / left**2
        return self.zero**2 * math.exp(-least / self.scale) * told

    @property
    def tails(self) -> list[int]:
        """Where tails are counted."""
        return sorted({max(1, round(part * self.scale)) for part in _FRACTIONS})


def noise_events(noise: Ints, scale: float, whose: str) -> list[Events]:
    """How often noise, i.i.d. discrete Laplace of ``scale``, is 0, odd, and beyond thresholds."""
    law, n = Laplace(scale), len(noise)
    if n == 0:
        return []
    found = [
        Events.one(f"{whose} is 0", np.count_nonzero(noise == 0), n * law.zero, n),
        Events.one(f"{whose} is odd", np.count_nonzero(noise & 1), n * law.odd, n),
        Events.one(f"{whose} is above 0", np.count_nonzero(noise > 0), n * law.above(1), n),
    ]
    for tail in law.tails:
        beyond = np.count_nonzero(np.abs(noise) >= tail)
        found.append(Events.one(f"{whose} is {tail} or more", beyond, 2 * n * law.above(tail), n))
    return found


def pair_events(one: Ints, other: Ints, scale: float, whose: str) -> list[Events]:
    """How often noises of pairs cancel, agree and are far apart, as independent ones would."""
    law, n = Laplace(scale), len(one)
    if n == 0:
        return []
    found = []
    for word, both in (("sum", one + other), ("difference", one - other)):
        name = f"the {word} of {whose}"
        found.append(Events.one(f"{name} is 0", np.count_nonzero(both == 0), n * law.sum_zero, n))
        for tail in law.tails:
            times = np.count_nonzero(np.abs(both) >= tail)
            expected = 2 * n * law.sum_above(tail)
            found.append(Events.one(f"{name} is {tail} or more", times, expected, n))
    return found


def lagged_noise(noise: Ints, scale: float, whose: str) -> list[Events]:
    """Pairs that lie 1, 2 and 3 apart, none of them in two pairs; ``noise`` of shape [n]."""
    found = []
    for lag in _LAGS:
        first = _firsts(len(noise), lag)
        found += pair_events(noise[first], noise[first + lag], scale, f"{whose} {lag} apart")
    return found


def _firsts(size: int, lag: int) -> Ints:
    """The first of each of the disjoint pairs that lie ``lag`` apart."""
    place = np.arange(max(size - lag, 0))
    first: Ints = place[place // lag % 2 == 0]
    return first


# randomised response


@dataclass(frozen=True, repr=False)
class Responses:
    """What came out of randomised response for units whose outcomes are made up; shape [n]."""

    levels: Ints
    strata: Ints
    drawn: Ints
    rate: float
    """λ."""
    prior: Floats
    """q̃, shape [S, K]."""

    @property
    def kept(self) -> Bools:
        """Whether a unit's outcome came out as it went in."""
        same: Bools = self.drawn == self.levels
        return same

    @property
    def keeping(self) -> Floats:
        """The probability of that: 1 − λ + λ q̃_y."""
        own: Floats = 1.0 - self.rate + self.rate * self.prior[self.strata, self.levels]
        return own

    def part(self, place: Integers) -> "Responses":
        """Some of the units."""
        return Responses(
            self.levels[place], self.strata[place], self.drawn[place], self.rate, self.prior
        )


def response_events(found: Responses, whose: str) -> list[Events]:
    """How often each outcome became which, and outcomes were kept, in all and at special places."""
    kept, keeping, n = found.kept, found.keeping, len(found.levels)
    if n == 0:
        return []
    return [
        Events.one(f"{whose} is kept", np.count_nonzero(kept), float(keeping.sum()), n),
        *_transitions(found, whose),
        *_places(kept, keeping, whose),
        *_draw_pairs(found, whose),
    ]


def _transitions(found: Responses, whose: str) -> list[Events]:
    """Of every two outcomes, how often the one became the other."""
    k = found.prior.shape[1]
    if k > _MOST_LEVELS:
        return []
    cells = np.bincount(found.strata * k + found.levels, minlength=found.prior.size)
    raw = cells.reshape(-1, k).astype(np.float64)
    expected = found.rate * raw.T @ found.prior + (1.0 - found.rate) * np.diag(raw.sum(axis=0))
    times = np.bincount(found.levels * k + found.drawn, minlength=k * k).astype(np.float64)
    trials = np.repeat(raw.sum(axis=0), k)
    seen = trials > 0
    names = [f"{whose} {i} became {j}" for i in range(k) for j in range(k)]
    what = tuple(name for name, here in zip(names, seen, strict=True) if here)
    return [Events(what, times[seen], expected.ravel()[seen], trials[seen])]


def _places(kept: Bools, keeping: Floats, whose: str) -> list[Events]:
    """Whether those at the first and the last places of batches of any size are like the others."""
    found = []
    for power in range(4, len(kept).bit_length() - 1):
        for shift, which in ((0, "first"), (-1, "last")):
            place = np.arange(shift % (1 << power), len(kept), 1 << power)
            found.append(
                Events.one(
                    f"{whose}, {which} of {1 << power}, is kept",
                    np.count_nonzero(kept[place]),
                    float(keeping[place].sum()),
                    len(place),
                )
            )
    return found


def _draw_pairs(found: Responses, whose: str) -> list[Events]:
    """Whether two units near each other, or half the table apart, are drawn independently."""
    n, events = len(found.levels), []
    for lag in sorted({*_LAGS, max(n // 2, 1)}):
        first = _firsts(n, lag)[: _MOST_PRIORS // found.prior.shape[1]]
        if len(first) == 0:
            continue
        one, other = found.part(first), found.part(first + lag)
        both = np.count_nonzero(one.kept & other.kept)
        expected = float((one.keeping * other.keeping).sum())
        same = np.count_nonzero(one.drawn == other.drawn)
        pairs = f"two of {whose}, {lag:,} apart,"
        events += [
            Events.one(f"{pairs} are kept", both, expected, len(first)),
            Events.one(f"{pairs} come out alike", same, _alike(one, other), len(first)),
        ]
    return events


def _alike(one: Responses, other: Responses) -> float:
    """The sum over pairs of P(ỹ = ỹ′) of independent draws."""
    rate, total = one.rate, 0.0
    step = max(1, (_PIECE << 2) // one.prior.shape[1])
    for start in range(0, len(one.levels), step):
        piece = np.arange(start, min(start + step, len(one.levels)))
        here, there = one.part(piece), other.part(piece)
        alike = (1.0 - rate) ** 2 * np.count_nonzero(here.levels == there.levels)
        crossed = there.prior[there.strata, here.levels] + here.prior[here.strata, there.levels]
        fresh = np.einsum("nk,nk->n", here.prior[here.strata], there.prior[there.strata])
        total += alike + rate * (1.0 - rate) * float(crossed.sum()) + rate**2 * float(fresh.sum())
    return total


# rounding


def rounding_events(levels: Ints, values: Floats, grid: Floats, whose: str) -> list[Events]:
    """How often values between two grid points went to the upper one, alone and in pairs.

    By stochastic rounding that has the probability (y − g₋)/(g₊ − g₋), for each by itself.
    """
    lower = np.clip(np.searchsorted(grid, values, side="right") - 1, 0, len(grid) - 2)
    share = (values - grid[lower]) / (grid[lower + 1] - grid[lower])
    up = levels == lower + 1
    found = []
    for number, part in enumerate(np.array_split(np.argsort(share, kind="stable"), 5)):
        name = f"{whose} is rounded up, fifth {number + 1} of shares"
        happened = np.count_nonzero(up[part])
        found.append(Events.one(name, happened, float(share[part].sum()), len(part)))
    found += _places(up, share, whose)
    for lag in _LAGS:
        first = _firsts(len(up), lag)
        both = np.count_nonzero(up[first] & up[first + lag])
        expected = float((share[first] * share[first + lag]).sum())
        name = f"two of {whose}, {lag} apart, are rounded up"
        found.append(Events.one(name, both, expected, len(first)))
    return found


def not_around(levels: Ints, values: Floats, grid: Floats) -> int:
    """How many values came to a level that is none of the two around them."""
    lower = np.clip(np.searchsorted(grid, values, side="right") - 1, 0, len(grid) - 2)
    return int(np.count_nonzero((levels != lower) & (levels != lower + 1)))


def not_nearest(levels: Ints, values: Floats, grid: Floats) -> int:
    """How many values came to another level than that of the nearest grid point, the lower of two.

    By all distances, of shape [n, K] piece by piece.
    """
    wrong, piece = 0, max(1, _PIECE // len(grid))
    for start in range(0, len(values), piece):
        part = slice(start, start + piece)
        nearest = np.abs(values[part, np.newaxis] - grid).argmin(axis=1)
        wrong += int(np.count_nonzero(nearest != levels[part]))
    return wrong
