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
    """Independent trials: whether the event of each happened, and how likely it was; shape [n]."""

    happened: Bools
    chance: Floats

    def at(self, rows: Integers) -> "Trials":
        """Some of them."""
        return Trials(self.happened[rows], self.chance[rows])

    def both(self, other: "Trials") -> "Trials":
        """Whether this and another, which is independent, happened together."""
        return Trials(self.happened & other.happened, self.chance * other.chance)

    def by(self, group: Ints, names: Sequence[str]) -> Events:
        """How often it happened in each of the groups, which are given by number; shape [n]."""
        happened, expected, trials = (
            np.bincount(group, weights, len(names)).astype(np.float64)
            for weights in (self.happened, self.chance, None)
        )
        return Events(tuple(names), happened, expected, trials)

    def in_all(self, name: str) -> Events:
        """How often it happened."""
        return self.by(np.zeros(len(self.chance), dtype=np.int64), [name])


Kinds = Mapping[str, Trials]
"""Several kinds of event of the same draws, by what is said of a draw."""


def at(kinds: Kinds, rows: Integers) -> Kinds:
    """Those of some of the draws."""
    return {name: trials.at(rows) for name, trials in kinds.items()}


def joined(parts: Sequence[Kinds]) -> Kinds:
    """Those of several sequences of draws, one after the other."""
    return {
        name: Trials(
            np.concatenate([part[name].happened for part in parts]),
            np.concatenate([part[name].chance for part in parts]),
        )
        for name in parts[0]
    }


def paired(first: Kinds, second: Kinds) -> dict[str, Trials]:
    """Whether of two independent draws each is of a kind; kinds go together by their order."""
    both = zip(first.items(), second.values(), strict=False)
    return {name: one.both(other) for (name, one), other in both}


def counted(kinds: Kinds, whose: str) -> list[Events]:
    """How often each kind happened."""
    return [trials.in_all(f"{whose} {name}") for name, trials in kinds.items()]


def counted_by(kinds: Kinds, group: Ints, whose: Sequence[str]) -> list[Events]:
    """How often each kind happened in each of the groups, ``whose`` draws they are by number."""
    return [trials.by(group, [f"{one} {name}" for one in whose]) for name, trials in kinds.items()]


def firsts(size: int, lag: int) -> Ints:
    """Return the first positions of disjoint pairs that lie ``lag`` apart."""
    position = np.arange(max(size - lag, 0))
    first: Ints = position[position // lag % 2 == 0]
    return first


def near(
    size: int, pair: Callable[[Ints, Ints], Kinds], whose: str, lags: Sequence[int]
) -> list[Events]:
    """Count pairs of draws that lie ``lags`` apart; ``pair`` makes them by places of both."""
    events: list[Events] = []
    for lag in sorted(set(lags)):
        first = firsts(size, lag)
        events += counted(pair(first, first + lag), f"each of two of {whose}, {lag:,} apart,")
    return events


def sequence_events(kinds: Kinds, whose: str) -> list[Events]:
    """Count kinds of a sequence of draws: in all, in pairs, and at the ends of batches.

    Pairs lie near each other, or half the sequence apart. Batches are of any power of two.
    """
    name, of_first = next(iter(kinds.items()))
    n = len(of_first.chance)
    lags = (*_LAGS, max(n // 2, 1))
    events = counted(kinds, whose)
    events += near(n, lambda one, two: paired(at(kinds, one), at(kinds, two)), whose, lags)
    for size in (1 << power for power in range(4, n.bit_length() - 1)):
        for shift, which in ((0, "first"), (size - 1, "last")):
            batch = of_first.at(np.arange(shift, n, size))
            events.append(batch.in_all(f"{whose}, {which} of {size}, {name}"))
    return events


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

    def kinds(self, noise: Ints) -> Kinds:
        """Whether each is 0, odd, positive or in a tail; ``noise`` has the shape [n]."""
        tails = [max(1, round(part * self.scale)) for part in _TAILS]
        size = np.abs(noise)
        found = {
            "is positive": (noise > 0, self.above(1)),
            "is 0": (noise == 0, self.zero),
            "is odd": (noise & 1 == 1, self.odd),
        } | {
            f"is {part:g} scales or more": (size >= tail, 2.0 * self.above(tail))
            for part, tail in zip(_TAILS, tails, strict=True)
        }
        return {
            name: Trials(happened, np.full(len(noise), chance))
            for name, (happened, chance) in found.items()
        }


def noise_pairs(one: Ints, scale: float, other: Ints, other_scale: float) -> Kinds:
    """Whether two noises are of a kind, shape [n] each; at one scale, whether they are equal."""
    law = Laplace(scale)
    kinds = paired(law.kinds(one), Laplace(other_scale).kinds(other))
    if scale == other_scale:
        chance = np.full(len(one), law.equal)
        kinds |= {"is the other": Trials(one == other, chance)}
        kinds |= {"is the other's negative": Trials(one == -other, chance)}
    return kinds


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
    kinds = law.kinds(by_cell.ravel())
    events = [sizes(noise.reshape(1, -1), scale, (whose,)), sizes(by_cell, scale, cells)]
    events += counted(kinds, whose) + counted_by(kinds, cell, cells)
    beside = noise_pairs(by_cell[:-1].ravel(), scale, by_cell[1:].ravel(), scale)
    pairs = [f"{one}, and of the next, each" for one in cells[:-1]]
    events += counted_by(beside, cell[: by_cell[:-1].size], pairs)
    for axis, name in enumerate(("runs", "pools and arms", "numbers")):
        every = np.moveaxis(noise, axis, -1).ravel()
        lags = (*_LAGS, max(every.size // 2, 1))

        def pair(first: Ints, second: Ints, every: Ints = every) -> Kinds:
            return noise_pairs(every[first], scale, every[second], scale)

        events += near(every.size, pair, f"{whose} by {name}", lags)
    return events


# draws of units


@dataclass(frozen=True, repr=False)
class Responses:
    """The draws of units whose outcomes are made up; shape [n]."""

    cells: Ints
    kinds: Kinds
    """The first: whether an output is one that tells of the unit's outcome."""
    became: Floats
    """How often each outcome became each output, should have and could have, shape [3, K, J]."""
    chance: Floats
    """How likely each unit's output was."""

    def at(self, rows: Integers) -> Kinds:
        """The kinds of some of the units."""
        return at(self.kinds, rows)


def by_priors(levels: Ints, cells: Ints, drawn: Ints, rate: float, prior: Floats) -> Responses:
    """Draws of outcomes kept, or redrawn at ``rate`` λ from q̃, the ``prior``; shape [S, K]."""
    k, keep = prior.shape[1], 1.0 - rate

    def among(outputs: Bools) -> Trials:
        return Trials(outputs[drawn], keep * outputs[levels] + rate * (prior @ outputs)[cells])

    became = np.zeros((3, 0, 0))
    if k <= _MOST_LEVELS:
        times = np.bincount(levels * k + drawn, minlength=k * k).reshape(k, k)
        raw = np.bincount(cells * k + levels, minlength=prior.size).reshape(-1, k)
        n = raw.sum(axis=0)
        became = np.stack([times, rate * raw.T @ prior + keep * np.diag(n), _wide(n, k)])
    kept = Trials(drawn == levels, keep + rate * prior[cells, levels])
    kinds = {"is kept": kept, **_in_halves(k, among)}
    return Responses(cells, kinds, became, keep * kept.happened + rate * prior[cells, drawn])


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

    def among(outputs: Bools) -> Trials:
        return Trials(outputs[drawn], (rows @ outputs)[row])

    kinds = {
        "is kept": Trials(telling[row, drawn] > 0.0, telling.sum(axis=1)[row]),
        **_in_halves(n_outputs, among),
        "is its outcome's likeliest": Trials(best[row] == drawn, telling.max(axis=1)[row]),
    }
    times = np.bincount(levels * n_outputs + drawn, minlength=n_outcomes * n_outputs)
    n = np.bincount(row, minlength=len(rows)).reshape(q.shape[:2])
    expected = np.einsum("tk,tkj->kj", n, q)
    became = np.stack([times.reshape(q.shape[1:]), expected, _wide(n.sum(axis=0), n_outputs)])
    return Responses(cells, kinds, became, rows[row, drawn])


def _in_halves(n_outputs: int, among: Callable[[Bools], Trials]) -> dict[str, Trials]:
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
    kinds = joined([part.kinds for part in parts])
    name, telling = next(iter(kinds.items()))
    return [
        *sequence_events(kinds, whose),
        Events(what, *(one[seen] for one in became)),
        *(telling.by(group, [f"{one} {name}" for one in names]) for group, names in groups),
    ]


# rounding


def rounding_events(levels: Ints, values: Floats, grid: Floats, whose: str) -> list[Events]:
    """Count how often values between two grid points went to the upper one, alone and in pairs.

    By stochastic rounding this has the probability (y − g₋)/(g₊ − g₋), independently for each.
    """
    lower = _lower(values, grid)
    share = (values - grid[lower]) / (grid[lower + 1] - grid[lower])
    kinds = {"is rounded up": Trials(levels == lower + 1, share)}
    fifth = np.minimum((share * 5).astype(np.int64), 4)
    names = [f"{whose}, fifth {number + 1} of shares," for number in range(5)]
    return [*sequence_events(kinds, whose), *counted_by(kinds, fifth, names)]


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
