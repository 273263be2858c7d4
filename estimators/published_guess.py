"""What outcomes are like, learnt from what earlier nights of an experiment have published.

A guess costs nothing here. G_t = g(F_{t-1}, public facts): it is a function of the bytes of files
that were published before night t was planned, and of nothing else, so that night t is one
ε_t-private mechanism for every value of G_t, and adaptive composition charges whoever is in several
nights the sum, as it would without (METHOD §12 A). A wrong guess costs variance, and never bias:
each night's draws are fresh, and its estimators are unbiased for any table, grid and weights that
were fixed before them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from schemas.arrays import Floats, Ints

STEPS = 150
"""Of expectation and maximisation."""

ARM_COUNTS = 3.0
"""Units at an even distribution that are thought of beside those of an arm."""

STRATUM_COUNTS = 30.0
"""Units like those of its arm that are thought of beside those of a stratum."""

LEAST_PART, MOST_PART = 0.003, 0.1
"""The part of an even distribution in a guess: where much is known, and where little is."""

LADDER = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Parts that are tried, one after the other, until a wrong guess could not cost too much."""

MOST_CELLS = 1 << 21
"""Values times outputs that are looked at: the latest nights that fit."""

MOST_WITHIN = 1 << 19
"""The same of strata, each of which has its own."""

MOST_CLUSTERS = 64
"""Clusters that have guesses of their own at most: those of most units."""

MOST_VALUES = 1 << 14
"""Strata times values of their guesses at most, which a file has a row for each."""


@dataclass(frozen=True)
class Outputs:
    """The outputs of one night and outcome, counted by arm, with the table that each came from."""

    grid: Floats
    """The night's grid, increasing; shape [K]."""
    chances: Floats
    """Q(j|x), shape [T, K, J]."""
    arm: Ints
    """The arm of each row of ``counts``, shape [R]."""
    table: Ints
    """Its table, shape [R]."""
    counts: Ints
    """How many units had each output, shape [R, J]."""
    cluster: tuple[str, ...] = ()
    """The cluster of each of the first rows; the others are of clusters that nobody asks for."""


@dataclass(frozen=True)
class PublishedGuess:
    """A distribution of outcomes for every arm, and the releases that it was learnt from."""

    values: tuple[float, ...]
    """Increasing; V of them."""
    of_arms: tuple[tuple[float, ...], ...]
    """p, each adding up to one; shape [A, V], in the order of ``arms``."""
    arms: tuple[str, ...]
    even_part: float
    """η, the part of an even distribution that plans are made with; 0 where it is in ``of_arms``
    already, as in what a release has recorded."""
    guess_from: str
    """The releases that taught it, each with the SHA-256 of its file."""
    of_clusters: tuple[tuple[str, tuple[tuple[float, ...], ...]], ...] = ()
    """p of arms in clusters that have told enough, by name, each like ``of_arms``."""
    clusters: tuple[str, ...] | None = None
    """The clusters that a plan is made for, in order; None where there are none to be told apart.
    """

    def on(self, values: Floats) -> Floats:
        """Return p of all arms, which count alike, on other values; shape [V]."""
        on_values: Floats = np.array(self.of_arms).mean(axis=0) @ rounding(
            np.array(self.values), values, nearest=False
        )
        return on_values

    def of_strata(self, clusters: Sequence[str | None], values: Floats) -> tuple[Floats, Ints]:
        """Return p of arms on other values, shape [P, A, V], and which of the P a cluster has, [C].

        The first is that of arms, which clusters have that have told nothing of themselves.
        """
        place = {name: at for at, (name, _) in enumerate(self.of_clusters, start=1)}
        shares = np.array([self.of_arms, *(of_arms for _, of_arms in self.of_clusters)])
        on_values = shares @ rounding(np.array(self.values), values, nearest=False)
        return on_values, np.array([0 if one is None else place.get(one, 0) for one in clusters])

    def mixed_with(self, even_part: float) -> "PublishedGuess":
        """The same with η in it: G = (1 − η) p + η/V."""

        def mixed(rows: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
            return as_rows(evened(np.array(rows), even_part))

        of_clusters = tuple((name, mixed(rows)) for name, rows in self.of_clusters)
        own = mixed(self.of_arms)
        return replace(self, of_arms=own, of_clusters=of_clusters, even_part=0.0)

    @property
    def mixed(self) -> "PublishedGuess":
        """The same with its own η in it."""
        return self.mixed_with(self.even_part)


def as_rows(shares: Floats) -> tuple[tuple[float, ...], ...]:
    """Return shares, shape [A, V], as a guess has them."""
    return tuple(map(tuple, shares.tolist()))


def evened(shares: Floats, part: float) -> Floats:
    """Return shares, shape [..., V], with a ``part`` of an even distribution in them."""
    mixed: Floats = (1.0 - part) * shares + part / shares.shape[-1]
    return mixed


def even_part(known: float) -> float:
    """Return η = clip(1.5/√known, .003, .1); Σ N_r min(1, ε_r²) is ``known`` of N_r units each."""
    return float(np.clip(1.5 / np.sqrt(max(known, 1.0)), LEAST_PART, MOST_PART))


def latest(nights: Sequence[Outputs], n_values: int, n_strata: int | None = None) -> int:
    """Return how many of the nights, the last ones, are looked at: enough, and in little time.

    Of arms every night counts with all of its tables, of ``n_strata`` with one for each of them.
    """
    most = MOST_CELLS if n_strata is None else MOST_WITHIN
    sizes = [
        n_values * (n_strata or one.chances.shape[0]) * one.chances.shape[2]
        for one in reversed(nights)
    ]
    return max(int(np.searchsorted(np.cumsum(sizes), most, side="right")), 1)


def learnt(nights: Sequence[Outputs], values: Floats, n_arms: int, *, nearest: bool) -> Floats:
    """Return the likeliest distribution of outcomes on ``values`` of each arm, shape [A, V].

    Where R_rj units of night r had output j of a table Q_r, and outcomes are rounded to its grid by
    P_r, A_r = P_r Q_r is the chance of an output. p is the greatest of

        Σ_r Σ_j R_rj ln (p A_r)_j + Σ_x m₀/V ln p_x,

    with m₀ = :data:`ARM_COUNTS`, found in :data:`STEPS` steps of expectation and maximisation,
    p_x ∝ m₀/V + Σ_r Σ_j R_rj p_x A_r(x, j)/(p A_r)_j.

    Args:
        nights: Those that teach: one at least.
        values: Increasing; shape [V].
        n_arms: A.
        nearest: Whether outcomes are rounded to the nearest point of a grid, and not at random.
    """
    chances: list[Floats] = []
    counts: list[Floats] = []
    for night in nights:
        n_tables, _, n_outputs = night.chances.shape
        of_values = rounding(values, night.grid, nearest=nearest) @ night.chances
        chances.append(np.moveaxis(of_values, 0, 1).reshape(len(values), -1))
        found = np.zeros((n_arms, n_tables, n_outputs))
        np.add.at(found, (night.arm, night.table), night.counts)
        counts.append(found.reshape(n_arms, -1))
    even = np.full((n_arms, len(values)), ARM_COUNTS / len(values))
    return likeliest(np.hstack(chances), np.hstack(counts), even)


def learnt_within(
    nights: Sequence[Outputs], values: Floats, of_arms: Floats, *, nearest: bool
) -> dict[str, Floats]:
    """Return the same of arms in clusters, by name, each of shape [A, V], like :func:`learnt`.

    Beside the units of a stratum are thought m₁ = :data:`STRATUM_COUNTS` like those of its arm, so
    that one of which little is known has its arm's distribution: p of a stratum is the greatest of

        Σ_r Σ_j R_rj ln (p A_r)_j + Σ_x m₁ p_x(arm) ln p_x.

    They are the clusters with the most units in all nights, :data:`MOST_CLUSTERS` at most, and as
    many as there is room for. ``of_arms`` is p of the arms, shape [A, V].
    """
    n_arms, n_values = of_arms.shape
    units: dict[str, int] = {}
    for night in nights:
        for name, n in zip(night.cluster, night.counts.sum(axis=1).tolist(), strict=False):
            units[name] = units.get(name, 0) + n
    most = min(MOST_CLUSTERS, MOST_VALUES // of_arms.size)
    names = sorted(sorted(units, key=lambda name: (-units[name], name))[:most])
    if not names:
        return {}
    place = {name: at for at, name in enumerate(names)}
    n_strata = len(names) * n_arms
    chances: list[Floats] = []
    counts: list[Floats] = []
    for night in nights[-latest(nights, n_values, n_strata) :]:
        of_rows = np.array([place.get(name, -1) for name in night.cluster], dtype=np.int64)
        rows = np.flatnonzero(of_rows >= 0)
        stratum = of_rows[rows] * n_arms + night.arm[rows]
        table = np.zeros(n_strata, dtype=np.int64)
        table[stratum] = night.table[rows]  # of one stratum all units are drawn by one
        found = np.zeros((n_strata, night.counts.shape[1]))
        found[stratum] = night.counts[rows]
        of_values = rounding(values, night.grid, nearest=nearest) @ night.chances
        chances.append(of_values[table])
        counts.append(found)
    beside = STRATUM_COUNTS * np.tile(of_arms, (len(names), 1))
    shares = likeliest(
        np.concatenate(chances, axis=2), np.hstack(counts)[:, np.newaxis], beside[:, np.newaxis]
    )
    return dict(zip(names, shares.reshape(len(names), n_arms, n_values), strict=True))


def likeliest(chances: Floats, counts: Floats, beside: Floats, steps: int = STEPS) -> Floats:
    """Return p of each group by expectation and maximisation, shape [G, V].

    ``chances`` of outputs have the shape [V, M], ``counts`` of them [G, M], and ``beside``, what is
    thought of at every value, [G, V]. Before these, all three may have one axis more, the first:
    of groups whose chances differ.
    """
    seen = counts.reshape(-1, counts.shape[-1]).sum(axis=0) > 0
    chances, counts = chances[..., seen], counts[..., seen]
    shares: Floats = beside / beside.sum(axis=-1, keepdims=True)
    for _ in range(steps):
        expected = shares @ chances
        told = np.divide(counts, expected, out=np.zeros_like(counts), where=expected > 0)
        found = beside + shares * (told @ np.swapaxes(chances, -1, -2))
        shares = found / found.sum(axis=-1, keepdims=True)
    return shares


def rounding(values: Floats, grid: Floats, *, nearest: bool) -> Floats:
    """Return P(value → point of the grid), shape [V, K]: beyond its ends, to the end."""
    inside = np.clip(values, grid[0], grid[-1])
    lower = np.clip(np.searchsorted(grid, inside, side="right") - 1, 0, len(grid) - 2)
    share = (inside - grid[lower]) / (grid[lower + 1] - grid[lower])
    if nearest:
        share = (share >= 0.5).astype(np.float64)
    rounded = np.zeros((len(values), len(grid)))
    rows = np.arange(len(values))
    rounded[rows, lower] = 1.0 - share
    rounded[rows, lower + 1] += share
    return rounded
