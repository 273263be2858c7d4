"""Which table each stratum gets: learnt from noisy counts, which post-processing may read freely.

A table is solved for a guess at how outcomes are spread. Noisy counts, paid for and published, give
one for every stratum and for every group of strata (an arm, say), whose counts are their sums. All
tables keep the same ε, whatever the counts are; so which of them a stratum gets, and for which
guess they were solved, costs nothing beyond the counts. A wrong guess costs noise, never bias.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from estimators.published_guess import LADDER, evened
from privatizers.optimal_response.linear_programme import UnsolvedError
from privatizers.optimal_response.programme import Randomiser, solve
from privatizers.optimal_response.response import OptimalResponse
from privatizers.optimal_response.whole_numbers import (
    MOST_EPSILON,
    ResponseTable,
    even_table,
    table_of,
)
from schemas.arrays import Floats, Ints

_MOST_MIXED, _LEAST_MIXED = 0.1, 0.003
"""The part of another guess that is mixed into a learnt one: for few people, for many."""
SOLVED_IN = 13
"""Outcomes up to which a table is solved in some tenths of a second, so that strata have own ones.
"""
MOST_OWN, MOST_GROUPS = 48, 16
"""Strata, and groups, that have tables of their own at most, so that a run takes seconds."""
LEAST_KNOWN = 1.5
"""Units times ε of the counts, for each outcome, from which counts are looked at.

They are shrunk toward what is known without them, so that noise alone rarely makes a table."""
_PATIENCE = 6
"""Strata in turn, the least like their group first, whose own tables are not worth it; then no more
are solved for. Where clusters are alike, most of them would be solved for in vain."""
MOST_TABLE_NOISE = 4.0
"""The noise of a table for the outcome it suits least, over that of the table for an even guess,
where its guess was published by earlier releases."""
MOST_PUBLISHED = 16
"""Tables for guesses that were published at most: later nights read each of them every night."""
WORTH = 0.97
"""The noise that a stratum's own table must have at most, as a part of its group's."""


@dataclass(frozen=True)
class GroupCounts:
    """Noisy counts of whole groups, with noise of their own and a price of their own."""

    noisy_counts: Ints
    """Ñ of the groups, shape [G, K]."""
    epsilon: float
    """What they have cost; it says how noisy they are."""


def public_response(grid: Floats, guess: Floats, epsilon: float, n_strata: int) -> OptimalResponse:
    """Return the table for a public ``guess``, shape [K], or even response where that is better."""
    tables = (solved(grid, guess, epsilon), _evened(tuple(grid.tolist()), epsilon))
    best = int(np.argmin([guess @ table.noise for table in tables]))
    return OptimalResponse((tables[best],), np.zeros(n_strata, dtype=np.int64))


def published_response(
    grid: Floats, guess: Floats, guesses: Floats, epsilon: float, n_units: Ints
) -> OptimalResponse:
    """Return a table for every stratum by guesses of its own that were published before, [S, K].

    A stratum has the table of :func:`public_response` unless its own has at most :data:`WORTH` of
    its noise by its own guess. Own tables have those whose units times distance from ``guess`` are
    most, :data:`MOST_PUBLISHED` at most, on grids up to :data:`SOLVED_IN`; of a guess that might be
    too wrong with as much of an even one (:data:`LADDER`) as :data:`MOST_TABLE_NOISE` asks for.
    ``n_units`` are public sizes, shape [S].
    """
    if len(grid) > SOLVED_IN:
        return public_response(grid, guess, epsilon, len(guesses))
    common = public_response(grid, guess, epsilon, 1).tables_used[0]
    tables, even = [common], np.full(len(grid), 1.0 / len(grid))
    chosen = np.zeros(len(guesses), dtype=np.int64)
    apart, of_stratum = np.unique(np.round(guesses, 12), axis=0, return_inverse=True)
    of_stratum = of_stratum.ravel()
    differ = np.bincount(of_stratum, n_units) * np.abs(apart - guess).sum(axis=1)
    limit = MOST_TABLE_NOISE * solved(grid, even, epsilon).noise.max()
    for nth in np.argsort(-differ, kind="stable")[:MOST_PUBLISHED].tolist():
        own = apart[nth] / apart[nth].sum()
        safe = (
            table
            for part in (0.0, *LADDER)
            if (table := solved(grid, evened(own, part), epsilon, guess)).noise.max() <= limit
        )
        table = next(safe)
        if own @ table.noise < WORTH * (own @ common.noise):
            chosen[of_stratum == nth] = len(tables)
            tables.append(table)
    used, table_of_stratum = np.unique(chosen, return_inverse=True)
    return OptimalResponse(tuple(tables[at] for at in used.tolist()), table_of_stratum)


def learnt_response(
    grid: Floats,
    guess: Floats,
    epsilon: float,
    noisy_counts: Ints | None,
    n_units: Ints,
    counts_epsilon: float,
    group: Ints,
    own: GroupCounts | None = None,
) -> OptimalResponse:
    """Return a table for every stratum, all at ``epsilon``: the best by the noisy counts.

    Args:
        grid: y, shape [K].
        guess: The public guess, shape [K].
        epsilon: What every table keeps.
        noisy_counts: Ñ of the strata, shape [S, K]; None where none are published.
        n_units: Public sizes, shape [S].
        counts_epsilon: What those counts have cost; it says how noisy they are.
        group: The group of each stratum, from 0; shape [S].
        own: Counts of the groups with noise of their own. Without them a group's counts are the
            sums of its strata's, with the noise of all of these.

    Candidates are the table of the stratum's own counts (of the largest strata alone), that of its
    group's, that of the public guess, and even response. Each is judged by the most particular
    guess that tells enough. Of strata the least like their group come first, and where several in
    turn are not worth a table, no more are solved for. Nothing but the arguments decides: neither
    time nor memory.
    """
    n_groups = int(group.max()) + 1
    sizes = np.bincount(group, n_units, n_groups).astype(np.float64)
    of_groups, known = _of_groups(noisy_counts, counts_epsilon, group, sizes, len(grid), own)
    group_guesses = _group_guesses(of_groups, sizes, known, guess)
    tables = [solved(grid, guess, epsilon), _evened(tuple(grid.tolist()), epsilon)]
    own_table = np.zeros(n_groups, dtype=np.int64)  # the public guess's where it has none
    if n_groups <= MOST_GROUPS:
        for at in np.flatnonzero(known >= LEAST_KNOWN * len(grid)).tolist():
            own_table[at] = len(tables)
            tables.append(solved(grid, group_guesses[at], epsilon, guess))
    expected = group_guesses @ np.stack([table.noise for table in tables]).T
    position = np.arange(len(tables))
    of_another = (position > 1) & (position != own_table[:, np.newaxis])
    best_of_group = np.argmin(np.where(of_another, np.inf, expected), axis=1)
    chosen: Ints = best_of_group[group]
    failed = 0
    for stratum, alone in _own_guesses(noisy_counts, n_units, counts_epsilon, group_guesses[group]):
        table = solved(grid, alone, epsilon, guess, group_guesses[group[stratum]])
        if alone @ table.noise < WORTH * (alone @ tables[chosen[stratum]].noise):
            chosen[stratum] = len(tables)
            tables.append(table)
            failed = 0
            continue
        failed += 1
        if failed == _PATIENCE:
            break
    used, table_of_stratum = np.unique(chosen, return_inverse=True)
    return OptimalResponse(tuple(tables[at] for at in used.tolist()), table_of_stratum)


def _own_guesses(
    noisy_counts: Ints | None, n_units: Ints, counts_epsilon: float, of_groups: Floats
) -> list[tuple[int, Floats]]:
    """The largest strata with guesses of their own, those least like their group's first.

    ``of_groups`` has the guess of each stratum's group, shape [S, K]. A part of it is mixed in: it
    has an even part itself, of what the whole group's counts leave. With an even part of what one
    stratum's leave, the group's table would look bad for its rare outcomes.
    """
    if noisy_counts is None or noisy_counts.shape[1] > SOLVED_IN:
        return []
    enough = np.flatnonzero(n_units * counts_epsilon >= LEAST_KNOWN * noisy_counts.shape[1])
    at = enough[np.argsort(-n_units[enough], kind="stable")][:MOST_OWN]
    sizes = n_units[at].astype(np.float64)
    known, near = sizes * counts_epsilon, of_groups[at]
    own = mixed(on_simplex(_nearer(noisy_counts[at], sizes, known, near)), known, near)
    apart = np.abs(own - of_groups[at]).sum(axis=1)
    order = np.argsort(-apart, kind="stable")
    return [(int(at[nth]), own[nth]) for nth in order]


def _of_groups(
    noisy_counts: Ints | None,
    counts_epsilon: float,
    group: Ints,
    sizes: Floats,
    n_outcomes: int,
    own: GroupCounts | None,
) -> tuple[Floats, Floats]:
    """Return noisy counts of the groups, shape [G, K], and their units times ε, as noise has it."""
    n_groups = len(sizes)
    of_groups = np.zeros((n_groups, n_outcomes))
    if own is not None:
        of_groups += own.noisy_counts[:n_groups]
        return of_groups, sizes * own.epsilon
    if noisy_counts is None:
        return of_groups, np.zeros(n_groups)
    np.add.at(of_groups, group, noisy_counts)
    # The noise on a sum of m counts is √m times as great.
    n_strata = np.maximum(np.bincount(group, minlength=n_groups), 1)
    return of_groups, sizes * counts_epsilon / np.sqrt(n_strata)


def _group_guesses(noisy_counts: Floats, sizes: Floats, known: Floats, guess: Floats) -> Floats:
    """Return a guess for each group, shape [G, K], between its counts and those of all together.

    Arms differ little as a rule, and all together say much more than one: with the noise of groups
    that are ``known``, units times ε, they are known like Σ n/√(Σ (n/known)²). What they say is
    moved toward the public ``guess`` likewise. Groups that are too many to have tables of their own
    are looked at one by one.
    """
    told = known > 0
    if not told.any() or len(sizes) > MOST_GROUPS:
        return shrunk(noisy_counts, sizes, known, np.broadcast_to(guess, noisy_counts.shape))
    n_units = sizes[told].sum(keepdims=True)
    of_all = n_units / np.sqrt(np.sum((sizes[told] / known[told]) ** 2))
    counts = noisy_counts[told].sum(axis=0, keepdims=True)
    together = on_simplex(_nearer(counts, n_units, of_all, guess[np.newaxis]))
    return shrunk(noisy_counts, sizes, known, np.broadcast_to(together, noisy_counts.shape))


def shrunk(noisy_counts: Ints | Floats, n_units: Floats, known: Floats, prior: Floats) -> Floats:
    """Return guesses at shares, shape [S, K], between noisy ones and ``prior``, shape [S, K].

    Noisy shares are moved toward the prior as far as noise alone would explain how far they are
    from it, and a little more (the positive part of James and Stein's estimator, with √K for the
    chance in K squares); then they are :func:`mixed` with an even guess. A share's noise has the
    variance 8/``known``².
    """
    shares = on_simplex(_nearer(noisy_counts, n_units, known, prior))
    return mixed(shares, known, np.full(shares.shape, 1.0 / shares.shape[1]))


def _nearer(noisy_counts: Ints | Floats, n_units: Floats, known: Floats, prior: Floats) -> Floats:
    """Return the same before they are mixed; they add up to one, or nearly, and may be below 0."""
    k = noisy_counts.shape[1]
    sizes = np.maximum(n_units, 1.0)[:, np.newaxis]
    apart = noisy_counts / sizes - prior
    told = known**2 * np.sum(apart**2, axis=1)
    kept = np.maximum(1.0 - 8.0 * (k + k**0.5) / np.maximum(told, 1e-300), 0.0)
    shares: Floats = prior + kept[:, np.newaxis] * apart
    return shares


def mixed(shares: Floats, known: Floats, others: Floats) -> Floats:
    """Return guesses, shape [S, K], with a part of ``others``, for shares that noise may have made.

    The part is K/``known``, from 0.003 to 0.1; ``known``, [S], is n times the ε of the counts.
    """
    part = np.clip(shares.shape[1] / np.maximum(known, 1e-300), _LEAST_MIXED, _MOST_MIXED)
    guess: Floats = (1.0 - part[:, np.newaxis]) * shares + part[:, np.newaxis] * others
    return guess


def on_simplex(shares: Floats) -> Floats:
    """Return the nearest points that are not negative and add up to one; rows of shape [S, K]."""
    ordered = -np.sort(-shares, axis=1)
    excess = (np.cumsum(ordered, axis=1) - 1.0) / np.arange(1, shares.shape[1] + 1)
    size = np.sum(ordered > excess, axis=1)
    shift = excess[np.arange(len(shares)), size - 1]
    found = np.maximum(shares - shift[:, np.newaxis], 0.0)
    whole: Floats = found / found.sum(axis=1, keepdims=True)
    return whole


def solved(grid: Floats, guess: Floats, epsilon: float, *near: Floats) -> ResponseTable:
    """Return the table for a guess; even response where it cannot be solved.

    Of guesses that are ``near``, each nearer than the one before, the tables' outputs are tried
    first: that is quicker, and what is found may differ within the gap.
    """
    chain = (*near, guess)
    return _solved(tuple(grid.tolist()), tuple(tuple(one.tolist()) for one in chain), epsilon)


_Guesses = tuple[tuple[float, ...], ...]


@lru_cache(maxsize=256)  # a design, its forecast and its release ask the same
def _solved(grid: tuple[float, ...], guesses: _Guesses, epsilon: float) -> ResponseTable:
    found = _programme(grid, guesses, epsilon) if epsilon <= MOST_EPSILON else None
    if found is None:
        return _evened(grid, epsilon)
    return table_of(np.array(grid), np.array(guesses[-1]), epsilon, found)


@lru_cache(maxsize=256)
def _programme(grid: tuple[float, ...], guesses: _Guesses, epsilon: float) -> Randomiser | None:
    """The solution for the last of the guesses, from that for those before it; None if it fails."""
    start = _programme(grid, guesses[:-1], epsilon) if len(guesses) > 1 else None
    try:
        return solve(np.array(grid), np.array(guesses[-1]), epsilon, start=start)
    except UnsolvedError:
        return None


@lru_cache(maxsize=64)
def _evened(grid: tuple[float, ...], epsilon: float) -> ResponseTable:
    return even_table(np.array(grid), epsilon)
