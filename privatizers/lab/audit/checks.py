"""Whether events in made-up data happened as often as they should, with a bound on false alarms.

A check looks at many events at once. In independent trials with probabilities p_1 … p_n, p their
mean, an event happens h times or more, h ≥ n p, with a probability of at most e^(−n D(h/n, p)),

    D(x, p) = x ln(x/p) + (1 − x) ln((1 − x)/(1 − p)),

and h times or less, h ≤ n p, with the same bound (Hoeffding 1963, Theorem 1). This holds exactly
for any n and any probabilities. A check fails where the bound of any event is under its share of
the check's error; so sound code fails it with a probability of at most ``error``.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import rel_entr

from schemas.arrays import Bools, Floats, Integers, Ints

_TOLD = 4  # problems


@dataclass(frozen=True)
class Check:
    """The result of one check of an audit: whether a statement, its name, holds."""

    name: str
    holds: bool
    evidence: str


@dataclass(frozen=True)
class Events:
    """Events of one kind: how often each happened, in how many trials, and how often it should.

    With a ``scale`` σ they are sizes of discrete Laplace noise: ``happened`` is Σ|Z| over n
    ``trials``. By Chernoff it is as far from n E|Z|, or further on that side, with a probability of
    at most e^(−n I(x)), x its mean, a = e^(−1/σ) and u = a e^t = (√(1 + x²) − 1)/x:

        I(x) = t x − ln M(t),    M(t) = (1 − a)(1 + u)/((1 + a)(1 − u)).
    """

    what: tuple[str, ...]
    happened: Floats
    expected: Floats
    """The sum of the trials' probabilities."""
    trials: Floats
    scale: float | None = None

    @property
    def surprise(self) -> Floats:
        """Return n D(h/n, p), or n I(x), of each; ∞ where an impossible event happened."""
        n = np.maximum(self.trials, 1.0)
        x, p = self.happened / n, self.expected / n
        if self.scale is None:
            x, p = np.clip(x, 0.0, 1.0), np.clip(p, 0.0, 1.0)
            return n * (rel_entr(x, p) + rel_entr(1.0 - x, 1.0 - p))
        a, u = math.exp(-1.0 / self.scale), x / (np.sqrt(1.0 + x**2) + 1.0)
        moment = np.log1p(-a) - math.log1p(a) + np.log1p(u) - np.log1p(-u)
        surprise: Floats = self.trials * (rel_entr(x, x * a / np.where(u > 0, u, 1.0)) - moment)
        return surprise

    def told(self, place: int) -> str:
        """What was seen of one event, and what should have been."""
        how = "times" if self.scale is None else "noises, added up without signs"
        seen, trials = f"{self.happened[place]:,.0f}", f"{self.trials[place]:,.0f}"
        return f"{self.what[place]}: {seen} of {trials} {how}, expected {self.expected[place]:,.1f}"


Findings = Iterable[str | Events]
"""Problems, which sound code never has, and events."""


def judge(
    name: str,
    found: Findings,
    error: float = 1e-4,
    seen: str = "nothing of the kind is published",
) -> Check:
    """Check a statement by all that was ``found`` of it: problems, as texts, and events.

    Events are looked at together, and fail sound code with a probability of at most ``error``.
    Where there are none of both, the evidence is what was ``seen``.
    """
    findings = list(found)
    problems = [one for one in findings if isinstance(one, str)]
    kinds = [one for one in findings if isinstance(one, Events) and one.what]
    if problems or not kinds:
        return Check(name, not problems, "; ".join(problems[:_TOLD]) or seen)
    number = sum(len(events.what) for events in kinds)
    surprises = [events.surprise for events in kinds]
    worst = int(np.argmax([float(surprise.max()) for surprise in surprises]))
    if surprises[worst].max() > math.log(2.0 * number / error):
        return Check(name, holds=False, evidence=kinds[worst].told(int(surprises[worst].argmax())))
    trials = int(max(float(events.trials.max()) for events in kinds))
    return Check(name, holds=True, evidence=f"{number:,} kinds of event in up to {trials:,} trials")


_TAILS = (0.25, 0.7, 1.5, 3.0)  # multiples of the scale from which noise is counted
_LAGS = (1, 2, 3)
_MOST_BECAME = 4096  # pairs of an outcome and an output that are counted one by one

Kinds = dict[str, tuple[Bools, Floats | float]]
"""Of each kind of event whether it happened, shape [n], and how likely it was."""


@dataclass(frozen=True, repr=False)
class Trials:
    """Independent trials, and events of several kinds: which happened, how likely they were.

    Both have the shape [kinds, n].
    """

    kinds: tuple[str, ...]
    happened: Bools
    chance: Floats
    noise: Ints | None = None
    """The noise that was drawn, shape [n], from a law that does not know its sign."""
    equal: float = 0.0
    """How likely two noises of this law are equal."""

    @classmethod
    def of(cls, kinds: Kinds, noise: Ints | None = None, equal: float = 0.0) -> "Trials":
        """Trials with these kinds of events."""
        rows = [np.broadcast_arrays(*kind) for kind in kinds.values()]
        happened, chance = (np.stack(of_all) for of_all in zip(*rows, strict=True))
        return cls(tuple(kinds), happened, chance, noise, equal)

    @classmethod
    def joined(cls, parts: Sequence["Trials"]) -> "Trials":
        """All of several sequences of trials, one after the other; noise is left out."""
        happened, chance = (
            np.concatenate(of_all, axis=1)
            for of_all in zip(*((part.happened, part.chance) for part in parts), strict=True)
        )
        return cls(parts[0].kinds, happened, chance)

    def at(self, rows: Integers) -> "Trials":
        """Some of them."""
        noise = None if self.noise is None else self.noise[rows]
        return Trials(self.kinds, self.happened[:, rows], self.chance[:, rows], noise, self.equal)

    def both(self, other: "Trials") -> "Trials":
        """Whether of these and others, which are independent, both are of a kind.

        Kinds go together by their order. Of noise of one law also whether one is the other.
        """
        kinds: Kinds = {
            kind: (self.happened[row] & other.happened[row], self.chance[row] * other.chance[row])
            for row, kind in enumerate(self.kinds[: len(other.kinds)])
        }
        if self.noise is not None and other.noise is not None and self.equal == other.equal:
            kinds["is the other"] = self.noise == other.noise, self.equal
            kinds["is its negative"] = self.noise == -other.noise, self.equal
        return Trials.of(kinds)

    def counted(self, *whose: str, group: Ints | None = None, kinds: int | None = None) -> Events:
        """How often each of the first ``kinds`` happened: in all, or by ``group``, shape [n]."""
        group = np.zeros(self.happened.shape[1], dtype=np.int64) if group is None else group
        happened, expected = (
            np.concatenate([np.bincount(group, row, len(whose)) for row in rows[:kinds]])
            for rows in (self.happened, self.chance)
        )
        n = np.bincount(group, minlength=len(whose)).astype(np.float64)
        names = tuple(f"{one} {kind}" for kind in self.kinds[:kinds] for one in whose)
        return Events(names, happened, expected, np.tile(n, len(self.kinds[:kinds])))

    def near(self, whose: str) -> Iterator[Events]:
        """Count disjoint pairs: of those near each other, and of those half of all apart."""
        n = self.happened.shape[1]
        for lag in sorted({*_LAGS, max(n // 2, 1)}):
            position = np.arange(max(n - lag, 0))
            first = position[position // lag % 2 == 0]
            pairs = self.at(first).both(self.at(first + lag))
            yield pairs.counted(f"each of two of {whose}, {lag:,} apart,")

    def in_sequence(self, whose: str) -> Iterator[Events]:
        """Count them in all, in pairs, and at the ends of batches of any power of two."""
        n = self.happened.shape[1]
        yield self.counted(whose)
        yield from self.near(whose)
        for size in (1 << power for power in range(4, n.bit_length() - 1)):
            for shift, which in ((0, "first"), (size - 1, "last")):
                ends = self.at(np.arange(shift, n, size))
                yield ends.counted(f"{whose}, {which} of {size},", kinds=1)


def laplace(noise: Ints, scale: float) -> Trials:
    """Whether each of discrete Laplace noise Z is 0, odd, positive or in a tail; shape [n].

    With a = e^(−1/σ): P(Z ≥ t) = a^t/(1 + a) for t ≥ 1, P(Z = 0) = (1 − a)/(1 + a), P(Z odd) =
    (1 − P(Z = 0)²)/2, and of two P(Z = Z′) = P(Z = −Z′) = P(Z = 0)² (1 + a²)/(1 − a²).
    """
    a, zero = math.exp(-1.0 / scale), math.tanh(0.5 / scale)
    kinds: Kinds = {
        "is positive": (noise > 0, a / (1.0 + a)),
        "is 0": (noise == 0, zero),
        "is odd": (noise & 1 == 1, (1.0 - zero**2) / 2.0),
    }
    for part in _TAILS:
        tail = max(1, round(part * scale))
        chance = 2.0 * math.exp(-tail / scale) / (1.0 + a)
        kinds[f"is {part:g} scales or more"] = np.abs(noise) >= tail, chance
    return Trials.of(kinds, noise, zero**2 / math.tanh(1.0 / scale))


def sizes(noise: Ints, scale: float, whose: Sequence[str]) -> Events:
    """Add up noise without its signs; ``noise`` has the shape [rows, n], a row ``whose``."""
    n = np.full(len(noise), float(noise.shape[1]))
    total = np.abs(noise).sum(axis=1).astype(np.float64)
    return Events(tuple(whose), total, n / math.sinh(1.0 / scale), n, scale)


def noise_events(noise: Ints, scale: float, whose: str, cells: Sequence[str]) -> Iterator[Events]:
    """Count kinds of noise and of pairs; ``noise`` has the shape [runs, cells, numbers]."""
    if not noise.size:
        return
    of_cells = np.moveaxis(noise, 1, 0).reshape(len(cells), -1)
    cell, every = np.indices(of_cells.shape)[0].ravel(), laplace(of_cells.ravel(), scale)
    one, other = (laplace(half.ravel(), scale) for half in (of_cells[:-1], of_cells[1:]))
    pairs = [f"{name}, and of the next, each" for name in cells[:-1]]
    yield sizes(noise.reshape(1, -1), scale, (whose,))
    yield sizes(of_cells, scale, cells)
    yield every.counted(whose)
    yield every.counted(*cells, group=cell)
    yield one.both(other).counted(*pairs, group=cell[: one.happened.shape[1]])
    for axis, name in enumerate(("runs", "pools and arms", "numbers")):
        in_order = laplace(np.moveaxis(noise, axis, -1).ravel(), scale)
        yield from in_order.near(f"{whose} by {name}")


@dataclass(frozen=True, repr=False)
class Responses:
    """The draws of units whose outcomes are made up; shape [n]."""

    cells: Ints
    trials: Trials
    """The first kind: whether an output is one that tells of the unit's outcome."""
    became: Floats
    """How often each outcome became each output, should have and could have, shape [3, K, J]."""


def responses(
    levels: Ints, cells: Ints, drawn: Ints, q: Floats, table_of: Ints, rate: float = 1.0
) -> Responses:
    """Draws of outcomes kept, or drawn at a ``rate`` λ from Q, ``q``, shape [T, K, J].

    ``table_of`` cells has the shape [S]. An output tells of an outcome that it is, or, of tables
    without anything kept, that has it more often than most others have. Outputs are halved in two
    ways: by them two draws are alike more often where one is the other.
    """
    keep, table, shape, output = 1.0 - rate, table_of[cells], q.shape[1:], np.arange(q.shape[2])
    telling = np.broadcast_to(np.eye(*shape), q.shape)
    if not keep:
        telling = q > (q.max(axis=1, keepdims=True) + q.min(axis=1, keepdims=True)) / 2.0
    chance = keep + rate * np.einsum("tkj,tkj->tk", q, telling)[table, levels]
    kinds: Kinds = {"is kept": (telling[table, levels, drawn] > 0, chance)}
    if not keep:
        own = np.where(telling, q, 0.0)
        likeliest = own.argmax(axis=2)[table, levels] == drawn
        kinds["is its outcome's likeliest"] = likeliest, own.max(axis=2)[table, levels]
    for name, half in (("is low", output < len(output) // 2), ("is odd", output % 2 == 1)):
        kept = keep * half[levels] if keep else 0.0
        kinds[name] = half[drawn], kept + rate * np.einsum("tkj,j->tk", q, half)[table, levels]
    became = np.zeros((3, *shape) if math.prod(shape) <= _MOST_BECAME else (3, shape[0], 0))
    if became.size:
        n = np.zeros(q.shape[:2])
        np.add.at(n, (table, levels), 1.0)
        np.add.at(became[0], (levels, drawn), 1.0)
        became[2] = n.sum(axis=0)[:, np.newaxis]
        became[1] = rate * np.einsum("tk,tkj->kj", n, q) + keep * np.eye(*shape) * became[2]
    return Responses(cells, Trials.of(kinds), became)


def response_events(
    parts: Sequence[Responses], whose: str, groups: Sequence[tuple[Ints, Sequence[str]]] = ()
) -> Iterator[Events]:
    """Count kinds of draws, all ``parts`` one after the other, and what each outcome became.

    Of each way to put them in ``groups``, by number, with names, how often they tell of outcomes.
    """
    trials = Trials.joined([part.trials for part in parts])
    yield from trials.in_sequence(whose)
    yield from (trials.counted(*names, group=group, kinds=1) for group, names in groups)
    became = np.zeros((*parts[0].became.shape[:2], max(part.became.shape[2] for part in parts)))
    for part in parts:
        became[:, :, : part.became.shape[2]] += part.became
    seen = became[2] > 0
    what = tuple(f"{whose} {i} became {j}" for i, j in np.argwhere(seen).tolist())
    yield Events(what, *(one[seen] for one in became))


def rounding_events(
    levels: Ints, values: Floats, grid: Floats, whose: str, *, nearest: bool = False
) -> list[Events]:
    """Count how often values went where they may; between two points to the upper one.

    By stochastic rounding that has the probability (y − g₋)/(g₊ − g₋), independently for each; it
    is looked at alone and in pairs. To the ``nearest`` they go always, of two to the lower.
    """
    lower = np.clip(np.searchsorted(grid, values, side="right") - 1, 0, len(grid) - 2)
    below, above, up = values - grid[lower], grid[lower + 1] - values, levels - lower
    if nearest:
        return [Trials.of({"is the nearest point": (up == (above < below), 1.0)}).counted(whose)]
    share = below / (grid[lower + 1] - grid[lower])
    trials = Trials.of(
        {"is rounded up": (up == 1, share), "is a point beside it": ((up == 0) | (up == 1), 1.0)}
    )
    fifth = np.minimum((share * 5).astype(np.int64), 4)
    names = [f"{whose}, fifth {number + 1} of shares," for number in range(5)]
    return [*trials.in_sequence(whose), trials.counted(*names, group=fifth)]
