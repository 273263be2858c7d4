"""The stated laws of draws and roundings, as events with known frequencies, for made-up outcomes.

A unit's outcome is drawn with the published λ and q̃, or from the published table, independently of
all others; so is every rounding. Pairs of draws show whether randomness is shared.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from privatizers.lab.audit.checks import Events
from privatizers.lab.audit.noise_laws import firsts
from schemas.arrays import Bools, Floats, Integers, Ints

_LAGS = (1, 2, 3)
_MOST_LEVELS = 24
_MOST_TABLES = 32
_PIECE = 1 << 18  # bounds memory
_MOST_PRIORS = 1 << 23  # entries of priors that pairs of draws need: bounds time


@dataclass(frozen=True, repr=False)
class Responses:
    """The draws of randomised response for units whose outcomes are made up; shape [n]."""

    levels: Ints
    strata: Ints
    drawn: Ints
    rate: float
    """λ."""
    prior: Floats
    """q̃, shape [S, K]."""

    @property
    def kept(self) -> Bools:
        """Whether a unit's outcome stayed the same."""
        same: Bools = self.drawn == self.levels
        return same

    @property
    def keeping(self) -> Floats:
        """The probability that it stays the same, 1 − λ + λ q̃_y."""
        keeping: Floats = 1.0 - self.rate + self.rate * self.prior[self.strata, self.levels]
        return keeping

    @property
    def n_strata(self) -> int:
        """S."""
        return len(self.prior)

    @property
    def n_outputs(self) -> int:
        """K."""
        return int(self.prior.shape[1])

    def part(self, rows: Integers) -> "Responses":
        """Return the responses of some of the units."""
        return Responses(
            self.levels[rows], self.strata[rows], self.drawn[rows], self.rate, self.prior
        )

    def transitions(self, whose: str) -> list[Events]:
        """Count, for every two outcomes, how often the one became the other."""
        prior, rate, k = self.prior, self.rate, self.n_outputs
        if k > _MOST_LEVELS:
            return []
        cells = np.bincount(self.strata * k + self.levels, minlength=prior.size)
        raw = cells.reshape(-1, k).astype(np.float64)
        expected = rate * raw.T @ prior + (1.0 - rate) * np.diag(raw.sum(axis=0))
        times = np.bincount(self.levels * k + self.drawn, minlength=k * k)
        names = [f"{whose} {i} became {j}" for i in range(k) for j in range(k)]
        return _of_cells(names, times, expected.ravel(), np.repeat(raw.sum(axis=0), k))

    def agreements(self, first: Integers, second: Integers) -> float:
        """Return the sum of P(ỹ = ỹ′) over pairs of these units, for independent draws."""
        here, there, rate = self.part(first), self.part(second), self.rate
        alike = (1.0 - rate) ** 2 * np.count_nonzero(here.levels == there.levels)
        crossed = there.prior[there.strata, here.levels] + here.prior[here.strata, there.levels]
        fresh = np.einsum("nk,nk->n", here.prior[here.strata], there.prior[there.strata])
        return alike + rate * (1.0 - rate) * float(crossed.sum()) + rate**2 * float(fresh.sum())


@dataclass(frozen=True, repr=False)
class TableResponses:
    """The draws from tables of outputs for units whose outcomes are made up; shape [n]."""

    levels: Ints
    strata: Ints
    drawn: Ints
    """Numbers of outputs."""
    probabilities: Floats
    """Q, shape [T, K, J]."""
    table_of: Ints
    """The table of each stratum, shape [S]."""

    @cached_property
    def _rows(self) -> Ints:
        """Tables and outcomes of units, as rows of Q; shape [n]."""
        rows: Ints = self.table_of[self.strata] * self.probabilities.shape[1] + self.levels
        return rows

    @cached_property
    def _favoured(self) -> Bools:
        """The outputs that an outcome has more often than most others have, as rows of Q."""
        q = self.probabilities
        middle = (q.max(axis=1, keepdims=True) + q.min(axis=1, keepdims=True)) / 2.0
        favoured: Bools = (q > middle).reshape(-1, self.n_outputs)
        return favoured

    @property
    def n_strata(self) -> int:
        """S."""
        return len(self.table_of)

    @property
    def n_outputs(self) -> int:
        """J."""
        return int(self.probabilities.shape[2])

    @property
    def kept(self) -> Bools:
        """Whether the output is one that tells of the unit's outcome."""
        telling: Bools = self._favoured[self._rows, self.drawn]
        return telling

    @property
    def keeping(self) -> Floats:
        """The probability that it is."""
        of_row = np.sum(self.probabilities.reshape(self._favoured.shape) * self._favoured, axis=1)
        keeping: Floats = of_row[self._rows]
        return keeping

    def part(self, rows: Integers) -> "TableResponses":
        """Return the responses of some of the units."""
        return replace(
            self, levels=self.levels[rows], strata=self.strata[rows], drawn=self.drawn[rows]
        )

    def transitions(self, whose: str) -> list[Events]:
        """Count, for every table, outcome and output, how often the one became the other."""
        n_tables, k, n_outputs = self.probabilities.shape
        if n_tables > _MOST_TABLES:
            return [self.likeliest(whose)]
        times = np.bincount(self._rows * n_outputs + self.drawn, minlength=self.probabilities.size)
        units = np.repeat(np.bincount(self._rows, minlength=n_tables * k), n_outputs)
        names = [
            f"{whose} {i} became output {j} of table {table + 1}"
            for table in range(n_tables)
            for i in range(k)
            for j in range(n_outputs)
        ]
        trials = units.astype(np.float64)
        return [
            *_of_cells(names, times, self.probabilities.ravel() * trials, trials),
            self.likeliest(whose),
        ]

    def likeliest(self, whose: str) -> Events:
        """Count how often the output is the likeliest of those that tell of the unit's outcome."""
        q = self.probabilities.reshape(self._favoured.shape)
        telling = np.where(self._favoured, q, 0.0)
        most = np.count_nonzero(self.drawn == telling.argmax(axis=1)[self._rows])
        expected = float(telling.max(axis=1)[self._rows].sum())
        what = f"{whose} became its outcome's likeliest output"
        return Events.one(what, most, expected, len(self.drawn))

    def agreements(self, first: Integers, second: Integers) -> float:
        """Return the sum of P(same output) over pairs of these units, for independent draws."""
        rows = self.probabilities.reshape(-1, self.n_outputs)
        here, there = rows[self._rows[first]], rows[self._rows[second]]
        return float(np.einsum("nj,nj->", here, there))


AnyResponses = Responses | TableResponses


def joined(parts: Sequence[AnyResponses]) -> AnyResponses | None:
    """The draws of several releases as those of one, whose strata are those of all."""
    if not parts:
        return None
    starts = np.cumsum([0, *(part.n_strata for part in parts)])
    levels, drawn = (
        np.concatenate(of_all)
        for of_all in ([part.levels for part in parts], [part.drawn for part in parts])
    )
    strata = np.concatenate([one.strata + at for one, at in zip(parts, starts, strict=False)])
    priors = [part for part in parts if isinstance(part, Responses)]
    if priors:
        prior = np.concatenate([part.prior for part in priors])
        return Responses(levels, strata, drawn, priors[0].rate, prior)
    tables = [part for part in parts if isinstance(part, TableResponses)]
    most = max(part.n_outputs for part in tables)
    every = [
        np.pad(part.probabilities, ((0, 0), (0, 0), (0, most - part.n_outputs))) for part in tables
    ]
    shape = every[0].shape[1:]
    of_all = np.concatenate([q[part.table_of] for q, part in zip(every, tables, strict=True)])
    found, table_of = np.unique(of_all.reshape(len(of_all), -1), axis=0, return_inverse=True)
    q = found.reshape(-1, *shape)
    return TableResponses(levels, strata, drawn, q, table_of.reshape(-1))


def _of_cells(names: list[str], times: Ints, expected: Floats, trials: Floats) -> list[Events]:
    """Return the events that had any trial."""
    seen = trials > 0
    what = tuple(name for name, here in zip(names, seen, strict=True) if here)
    return [Events(what, times[seen].astype(np.float64), expected[seen], trials[seen])]


def response_events(responses: AnyResponses, whose: str) -> list[Events]:
    """Count how often each outcome became another, and was kept, in all and within batches.

    Of tables: how often it became each output, and one that is likelier for it than for others.
    """
    kept, keeping, n = responses.kept, responses.keeping, len(responses.levels)
    if n == 0:
        return []
    return [
        Events.one(f"{whose} is kept", np.count_nonzero(kept), float(keeping.sum()), n),
        *responses.transitions(whose),
        *_batch_events(kept, keeping, whose),
        *_draw_pairs(responses, whose),
    ]


def _batch_events(kept: Bools, keeping: Floats, whose: str) -> list[Events]:
    """Count how often the first and the last of batches of any size are kept."""
    events = []
    for power in range(4, len(kept).bit_length() - 1):
        for shift, which in ((0, "first"), (-1, "last")):
            rows = np.arange(shift % (1 << power), len(kept), 1 << power)
            events.append(
                Events.one(
                    f"{whose}, {which} of {1 << power}, is kept",
                    np.count_nonzero(kept[rows]),
                    float(keeping[rows].sum()),
                    len(rows),
                )
            )
    return events


def _draw_pairs(responses: AnyResponses, whose: str) -> list[Events]:
    """Count agreements of two units near each other, or half the table apart."""
    n, events = len(responses.levels), []
    for lag in sorted({*_LAGS, max(n // 2, 1)}):
        first = firsts(n, lag)[: _MOST_PRIORS // responses.n_outputs]
        if len(first) == 0:
            continue
        here, there = responses.part(first), responses.part(first + lag)
        both = np.count_nonzero(here.kept & there.kept)
        expected = float((here.keeping * there.keeping).sum())
        same = np.count_nonzero(here.drawn == there.drawn)
        pairs = f"two of {whose}, {lag:,} apart,"
        events += [
            Events.one(f"{pairs} are kept", both, expected, len(first)),
            Events.one(
                f"{pairs} come out alike",
                same,
                _agreements(responses, first, first + lag),
                len(first),
            ),
        ]
    return events


def _agreements(responses: AnyResponses, first: Ints, second: Ints) -> float:
    """Return the sum over pairs of P(ỹ = ỹ′), piece by piece."""
    step = max(1, (_PIECE << 2) // responses.n_outputs)
    return sum(
        responses.agreements(first[start : start + step], second[start : start + step])
        for start in range(0, len(first), step)
    )


# rounding


def rounding_events(levels: Ints, values: Floats, grid: Floats, whose: str) -> list[Events]:
    """Count how often values between two grid points went to the upper one, alone and in pairs.

    By stochastic rounding this has the probability (y − g₋)/(g₊ − g₋), independently for each.
    """
    lower = np.clip(np.searchsorted(grid, values, side="right") - 1, 0, len(grid) - 2)
    share = (values - grid[lower]) / (grid[lower + 1] - grid[lower])
    up = levels == lower + 1
    events = []
    for number, part in enumerate(np.array_split(np.argsort(share, kind="stable"), 5)):
        name = f"{whose} is rounded up, fifth {number + 1} of shares"
        happened = np.count_nonzero(up[part])
        events.append(Events.one(name, happened, float(share[part].sum()), len(part)))
    events += _batch_events(up, share, whose)
    for lag in _LAGS:
        first = firsts(len(up), lag)
        both = np.count_nonzero(up[first] & up[first + lag])
        expected = float((share[first] * share[first + lag]).sum())
        name = f"two of {whose}, {lag} apart, are rounded up"
        events.append(Events.one(name, both, expected, len(first)))
    return events


def not_around(levels: Ints, values: Floats, grid: Floats) -> int:
    """Count the values whose level is neither of the two around them."""
    lower = np.clip(np.searchsorted(grid, values, side="right") - 1, 0, len(grid) - 2)
    return int(np.count_nonzero((levels != lower) & (levels != lower + 1)))


def not_nearest(levels: Ints, values: Floats, grid: Floats) -> int:
    """Count the values whose level is not the nearest grid point, the lower one of two.

    Computes all distances, [n, K], piece by piece.
    """
    wrong, piece = 0, max(1, _PIECE // len(grid))
    for start in range(0, len(values), piece):
        part = slice(start, start + piece)
        nearest = np.abs(values[part, np.newaxis] - grid).argmin(axis=1)
        wrong += int(np.count_nonzero(nearest != levels[part]))
    return wrong


def response_pairs(first: AnyResponses, second: AnyResponses, whose: str) -> list[Events]:
    """Count how often the same unit's two outcomes are both kept, and both redrawn.

    Of tables: become outputs that tell of them, and others. They are independent. The units are
    the same, in the same order.
    """
    n = len(first.levels)
    if n == 0:
        return []
    both = float((first.keeping * second.keeping).sum())
    neither = float(((1.0 - first.keeping) * (1.0 - second.keeping)).sum())
    return [
        Events.one(f"{whose} are both kept", np.count_nonzero(first.kept & second.kept), both, n),
        Events.one(
            f"{whose} are both changed", np.count_nonzero(~first.kept & ~second.kept), neither, n
        ),
    ]
