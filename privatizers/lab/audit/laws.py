"""The stated laws of noise, draws and roundings, as events with known chances, on made-up data.

Outcomes are known there, so all noise is: discrete Laplace of the published scale. A unit's outcome
is drawn with the published λ and q̃, or from the published table. Everything is independent of
everything else, and pairs show whether randomness is shared.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from privatizers.lab.audit.checks import Events
from schemas.arrays import Bools, Floats, Integers, Ints

_TAILS = (0.25, 0.7, 1.5, 3.0)
"""Multiples of the scale from which tails of noise are counted."""
_LAGS = (1, 2, 3)
_MOST_LEVELS = 24


@dataclass(frozen=True, repr=False)
class Trials:
    """Independent trials, and events of several kinds: which happened, how likely they were."""

    kinds: tuple[str, ...]
    happened: Bools
    """Shape [kinds, n]."""
    chance: Floats
    """In the same shape."""

    @classmethod
    def of(cls, kinds: Mapping[str, tuple[Bools, Floats | float]]) -> "Trials":
        """Of each kind whether it happened, shape [n], and how likely it was."""
        rows = [np.broadcast_arrays(*kind) for kind in kinds.values()]
        return cls(tuple(kinds), np.stack([one for one, _ in rows]), np.stack([p for _, p in rows]))

    @classmethod
    def joined(cls, parts: Sequence["Trials"]) -> "Trials":
        """All of several sequences of trials, one after the other."""
        happened, chance = (
            np.concatenate(of_all, axis=1)
            for of_all in zip(*((part.happened, part.chance) for part in parts), strict=True)
        )
        return cls(parts[0].kinds, happened, chance)

    @property
    def size(self) -> int:
        """How many there are."""
        return int(self.happened.shape[1])

    def at(self, rows: Integers) -> "Trials":
        """Some of them."""
        return Trials(self.kinds, self.happened[:, rows], self.chance[:, rows])

    def first(self) -> "Trials":
        """The same of the first kind alone."""
        return Trials(self.kinds[:1], self.happened[:1], self.chance[:1])

    def both(self, other: "Trials") -> "Trials":
        """Whether of these and others, which are independent, both are of a kind.

        Kinds go together by their order.
        """
        k = min(len(self.kinds), len(other.kinds))
        happened = self.happened[:k] & other.happened[:k]
        return Trials(self.kinds[:k], happened, self.chance[:k] * other.chance[:k])

    def beside(self, other: "Trials") -> "Trials":
        """More kinds of events in the same trials."""
        happened, chance = (self.happened, other.happened), (self.chance, other.chance)
        kinds = self.kinds + other.kinds
        return Trials(kinds, np.concatenate(happened), np.concatenate(chance))

    def counted(self, whose: str) -> Events:
        """How often each kind happened."""
        return self.by(np.zeros(self.size, dtype=np.int64), [whose])

    def by(self, group: Ints, whose: Sequence[str]) -> Events:
        """How often each kind happened in each group; shape [n], a group ``whose`` by number."""
        happened, expected = (
            np.concatenate([np.bincount(group, row, len(whose)) for row in rows])
            for rows in (self.happened, self.chance)
        )
        n = np.bincount(group, minlength=len(whose)).astype(np.float64)
        trials = np.tile(n, len(self.kinds))
        names = (f"{one} {kind}" for kind in self.kinds for one in whose)
        return Events(tuple(names), happened, expected, trials)


def firsts(size: int, lag: int) -> Ints:
    """Return the first positions of disjoint pairs that lie ``lag`` apart."""
    position = np.arange(max(size - lag, 0))
    first: Ints = position[position // lag % 2 == 0]
    return first


def near(
    size: int, pair: Callable[[Ints, Ints], Trials], whose: str, lags: Sequence[int]
) -> list[Events]:
    """Count pairs of draws that lie ``lags`` apart; ``pair`` makes them by places of both."""
    events = []
    for lag in sorted(set(lags)):
        first = firsts(size, lag)
        events.append(pair(first, first + lag).counted(f"each of two of {whose}, {lag:,} apart,"))
    return events


def sequence_events(trials: Trials, whose: str) -> list[Events]:
    """Count kinds of a sequence of draws: in all, in pairs, and at the ends of batches.

    Pairs lie near each other, or half the sequence apart. Batches are of any power of two.
    """
    n, first = trials.size, trials.first()
    lags = (*_LAGS, max(n // 2, 1))
    pairs = near(n, lambda one, two: trials.at(one).both(trials.at(two)), whose, lags)
    return [trials.counted(whose), *pairs] + [
        first.at(np.arange(shift, n, size)).counted(f"{whose}, {which} of {size},")
        for size in (1 << power for power in range(4, n.bit_length() - 1))
        for shift, which in ((0, "first"), (size - 1, "last"))
    ]


# noise


@dataclass(frozen=True)
class Laplace:
    """Discrete Laplace of scale σ, and how often two of them are equal."""

    scale: float

    @property
    def zero(self) -> float:
        """P(Z = 0) = (1 − a)/(1 + a), a = e^(−1/σ)."""
        return math.tanh(0.5 / self.scale)

    def above(self, least: int) -> float:
        """Return P(Z ≥ t) = a^t/(1 + a), t ≥ 1."""
        return math.exp(-least / self.scale) / (1.0 + math.exp(-1.0 / self.scale))

    @property
    def odd(self) -> float:
        """P(Z odd) = 2a/(1 + a)² = (1 − P(Z = 0)²)/2."""
        return (1.0 - self.zero**2) / 2.0

    @property
    def equal(self) -> float:
        """P(Z = Z′) = P(Z = −Z′) = P(Z = 0)² (1 + a²)/(1 − a²)."""
        return self.zero**2 / math.tanh(1.0 / self.scale)

    def trials(self, noise: Ints) -> Trials:
        """Whether each is 0, odd, positive or in a tail; ``noise`` has the shape [n]."""
        tails = {part: max(1, round(part * self.scale)) for part in _TAILS}
        return Trials.of(
            {
                "is positive": (noise > 0, self.above(1)),
                "is 0": (noise == 0, self.zero),
                "is odd": (noise & 1 == 1, self.odd),
                **{
                    f"is {part:g} scales or more": (np.abs(noise) >= tail, 2.0 * self.above(tail))
                    for part, tail in tails.items()
                },
            }
        )


def noise_pairs(one: Ints, scale: float, other: Ints, other_scale: float) -> Trials:
    """Whether two noises are of a kind, shape [n] each; at one scale, whether they are equal."""
    law = Laplace(scale)
    both = law.trials(one).both(Laplace(other_scale).trials(other))
    if scale != other_scale:
        return both
    equal = {
        "is the other": (one == other, law.equal),
        "is its negative": (one == -other, law.equal),
    }
    return both.beside(Trials.of(equal))


def sizes(noise: Ints, scale: float, whose: Sequence[str]) -> Events:
    """Add up noise without its signs; ``noise`` has the shape [rows, n], a row ``whose``."""
    n = np.full(len(noise), float(noise.shape[1]))
    total = np.abs(noise).sum(axis=1).astype(np.float64)
    return Events(tuple(whose), total, n / math.sinh(1.0 / scale), n, scale)


def noise_events(noise: Ints, scale: float, whose: str, cells: Sequence[str]) -> list[Events]:
    """Count kinds of noise and of pairs; ``noise`` has the shape [runs, cells, numbers].

    All together, by cell, and in pairs of neighbouring cells; pairs lie near each other, or half of
    all apart, by numbers, cells and runs.
    """
    if not noise.size:
        return []
    law, by_cell = Laplace(scale), np.moveaxis(noise, 1, 0).reshape(len(cells), -1)
    cell = np.repeat(np.arange(len(cells)), by_cell.shape[1])
    every = law.trials(by_cell.ravel())
    beside = noise_pairs(by_cell[:-1].ravel(), scale, by_cell[1:].ravel(), scale)
    pairs = [f"{one}, and of the next, each" for one in cells[:-1]]
    events = [
        sizes(noise.reshape(1, -1), scale, (whose,)),
        sizes(by_cell, scale, cells),
        every.counted(whose),
        every.by(cell, cells),
        beside.by(cell[: by_cell[:-1].size], pairs),
    ]
    for axis, name in enumerate(("runs", "pools and arms", "numbers")):
        z = np.moveaxis(noise, axis, -1).ravel()

        def pair(first: Ints, second: Ints, z: Ints = z) -> Trials:
            return noise_pairs(z[first], scale, z[second], scale)

        events += near(z.size, pair, f"{whose} by {name}", (*_LAGS, max(z.size // 2, 1)))
    return events


# draws of units


@dataclass(frozen=True, repr=False)
class Responses:
    """The draws of units whose outcomes are made up; shape [n]."""

    cells: Ints
    trials: Trials
    """The first kind: whether an output is one that tells of the unit's outcome."""
    became: Floats
    """How often each outcome became each output, should have and could have, shape [3, K, J]."""
    chance: Floats
    """How likely each unit's output was."""


def by_priors(levels: Ints, cells: Ints, drawn: Ints, rate: float, prior: Floats) -> Responses:
    """Draws of outcomes kept, or redrawn at ``rate`` λ from q̃, the ``prior``; shape [S, K]."""
    k, keep = prior.shape[1], 1.0 - rate

    def among(outputs: Bools) -> tuple[Bools, Floats]:
        return outputs[drawn], keep * outputs[levels] + rate * (prior @ outputs)[cells]

    became = np.zeros((3, 0, 0))
    if k <= _MOST_LEVELS:
        times = np.bincount(levels * k + drawn, minlength=k * k).reshape(k, k)
        raw = np.bincount(cells * k + levels, minlength=prior.size).reshape(-1, k)
        n = raw.sum(axis=0)
        became = np.stack([times, rate * raw.T @ prior + keep * np.diag(n), _wide(n, k)])
    kept = drawn == levels
    trials = {"is kept": (kept, keep + rate * prior[cells, levels]), **_in_halves(k, among)}
    return Responses(cells, Trials.of(trials), became, keep * kept + rate * prior[cells, drawn])


def by_tables(levels: Ints, cells: Ints, drawn: Ints, q: Floats, table_of: Ints) -> Responses:
    """Draws of outputs from tables Q, ``q``, shape [T, K, J]; ``table_of`` cells has shape [S].

    An output tells of an outcome that has it more often than most others have.
    """
    n_outcomes, n_outputs = q.shape[1:]
    rows = q.reshape(-1, n_outputs)
    row = table_of[cells] * n_outcomes + levels
    middle = (q.max(axis=1, keepdims=True) + q.min(axis=1, keepdims=True)) / 2.0
    telling = np.where(q > middle, q, 0.0).reshape(rows.shape)
    best = telling.argmax(axis=1)

    def among(outputs: Bools) -> tuple[Bools, Floats]:
        return outputs[drawn], (rows @ outputs)[row]

    trials = {
        "is kept": (telling[row, drawn] > 0.0, telling.sum(axis=1)[row]),
        **_in_halves(n_outputs, among),
        "is its outcome's likeliest": (best[row] == drawn, telling.max(axis=1)[row]),
    }
    times = np.bincount(levels * n_outputs + drawn, minlength=n_outcomes * n_outputs)
    n = np.bincount(row, minlength=len(rows)).reshape(q.shape[:2])
    expected = np.einsum("tk,tkj->kj", n, q)
    became = np.stack([times.reshape(q.shape[1:]), expected, _wide(n.sum(axis=0), n_outputs)])
    return Responses(cells, Trials.of(trials), became, rows[row, drawn])


def _in_halves(
    n_outputs: int, among: Callable[[Bools], tuple[Bools, Floats]]
) -> dict[str, tuple[Bools, Floats]]:
    """Two ways to halve outputs: by them two draws are alike more often where one is the other."""
    place = np.arange(n_outputs)
    return {"is low": among(place < n_outputs // 2), "is odd": among(place % 2 == 1)}


def _wide(n: Ints, width: int) -> Ints:
    return np.repeat(n[:, np.newaxis], width, axis=1)


def response_events(
    parts: Sequence[Responses], whose: str, groups: Sequence[tuple[Ints, Sequence[str]]] = ()
) -> list[Events]:
    """Count kinds of draws, all ``parts`` one after the other, and what each outcome became.

    Of each way to put them in ``groups``, by number, with names, how often they tell of outcomes.
    """
    width = max(part.became.shape[2] for part in parts)
    became = np.zeros((*parts[0].became.shape[:2], width))
    for part in parts:
        became[:, :, : part.became.shape[2]] += part.became
    seen = became[2] > 0
    what = tuple(f"{whose} {i} became {j}" for i, j in np.argwhere(seen).tolist())
    trials = Trials.joined([part.trials for part in parts])
    return [
        *sequence_events(trials, whose),
        Events(what, *(one[seen] for one in became)),
        *(trials.first().by(group, names) for group, names in groups),
    ]


# rounding


def rounding_events(levels: Ints, values: Floats, grid: Floats, whose: str) -> list[Events]:
    """Count how often values between two grid points went to the upper one, alone and in pairs.

    By stochastic rounding this has the probability (y − g₋)/(g₊ − g₋), independently for each.
    """
    lower = _lower(values, grid)
    share = (values - grid[lower]) / (grid[lower + 1] - grid[lower])
    trials = Trials.of({"is rounded up": (levels == lower + 1, share)})
    fifth = np.minimum((share * 5).astype(np.int64), 4)
    names = [f"{whose}, fifth {number + 1} of shares," for number in range(5)]
    return [*sequence_events(trials, whose), trials.by(fifth, names)]


def misplaced(levels: Ints, values: Floats, grid: Floats, *, nearest: bool) -> int:
    """Count the values whose level is neither of the two around them; or not the nearest of all.

    Of two nearest the lower counts.
    """
    lower = _lower(values, grid)
    up = levels - lower
    if not nearest:
        return int(np.count_nonzero((up != 0) & (up != 1)))
    return int(np.count_nonzero(up != (grid[lower + 1] - values < values - grid[lower])))


def _lower(values: Floats, grid: Floats) -> Ints:
    return np.clip(np.searchsorted(grid, values, side="right") - 1, 0, len(grid) - 2)
