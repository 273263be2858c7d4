"""The noise of outcomes and statistics of strata under many splits of ε; for planning alone.

What randomising outcomes adds to a unit's variance, and the noise of what is published of strata.

A release never uses these numbers: its parameters are calibrated, and its tables solved, exactly.

Tables are solved at a few values of ε, the same for every question, and noise is interpolated
between them: ln of N (2 sinh(ε/2))² linearly in ε. That is nearly straight, and known at ε → 0
without a programme, where the best table rounds to the ends of the grid at random and keeps or
flips the end: N (2 sinh(ε/2))² → R². Where randomised response is less noisy than what is
interpolated, it is taken in its place: its noise is known at every ε. Grids are moved to 0 … 1
first, so that grids of one shape are solved for once in a process.
"""

from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from math import exp
from typing import Self

import numpy as np

from estimators.response.pool_statistics import (
    Cumulants,
    MeansStatisticNoise,
    PoolCountsNoise,
    discrete_laplace_cumulants,
    square_noise,
    unit_noise,
)
from estimators.response.response_tables import SingularTableError, output_functions
from privatizers.accounting.accountant import SUM_ATOMS
from privatizers.domain.lattice import Lattice, lattice_of
from privatizers.mechanisms.statistics.noisy_counts import NoisyCounts, moved_cells
from privatizers.optimal_response.learnt_guess import LEAST_KNOWN, SOLVED_IN
from privatizers.optimal_response.linear_programme import UnsolvedError
from privatizers.optimal_response.programme import Randomiser, even_columns, solve
from privatizers.planning.design import StatisticName
from privatizers.planning.optimal_design import LearnFrom
from schemas.arrays import Floats, Ints

_LEAST_PART = np.exp(-20.0)
"""Of the odds that a pure ε allows: what a δ allows is not less."""

_MOST_EXPONENT = 700.0  # a double holds e^709


@dataclass(frozen=True)
class StatisticShift:
    """How one substitution changes the statistic that is published of a stratum."""

    most: int
    """Cells that change by one, or steps that a sum changes by; pure ε is ``most``/σ."""
    one_sum: bool

    @classmethod
    def of(cls, n_outcomes: int, lattice: Lattice | None) -> Self:
        """Return the shift of sums on a lattice; without a lattice, of counts."""
        if lattice is not None:
            return cls(lattice.most, one_sum=True)
        return cls(moved_cells(n_outcomes), one_sum=False)

    def losses(self, loss: Floats) -> tuple[Floats, Floats]:
        """Return the values of the privacy loss, in order, and their masses; [J, atoms] each.

        ``loss`` is 1/σ. Values are those of ``accountant.delta_at``, with the same ones merged on
        wide grids.
        """
        u = loss[:, np.newaxis]
        a = np.exp(-u)
        if self.one_sum:
            width = -(-self.most // SUM_ATOMS)
            k = np.append(np.arange(0, self.most, width), self.most)
            mass = np.exp(-k * u)
            mass[:, :-1] *= -np.expm1(-np.diff(k) * u)
            mass[:, :1] += a
            return (self.most - 2 * k) * u, mass / (1.0 + a)
        k = np.arange(self.most + 1)
        binomial = np.array([1.0, 1.0] if self.most == 1 else [1.0, 2.0, 1.0])
        return (self.most - 2 * k) * u, binomial * a**k / (1.0 + a) ** self.most


def approximate_odds(
    epsilon: float,
    delta: float,
    shares: Floats,
    least_probability: float,
    shift: StatisticShift | None,
    square_shares: Floats | float = 0.0,
) -> Floats:
    """Return the r = λ/(1 − λ) for (ε, δ) in all, where ``shares`` of ε pay for the strata.

    r = 1/(γ (e^(ε (1 − share)) − 1)) for δ = 0. γ is ``least_probability``; ``shift`` is None where
    no statistic of strata is published. ``square_shares`` of ε pay for arms' sums of squares. Shape
    [J].

    Otherwise: let the statistic have the privacy loss v with mass m_v, and g_v = e^(ε − v) − 1,
    which is positive, for v ≤ ε · share. Then δ(ε) = Σ_v m_v max(1 − r γ g_v, 0)/(1 + r), the
    greatest of what subsets of the v add up to, so it is at most δ where

        r ≥ (M − δ)/(γ G + δ),  M = Σ m_v and G = Σ m_v g_v over the subset,

    for each. The subset that asks for most has the greatest v: r is the maximum over these alone.
    """
    gamma = least_probability
    pure: Floats = 1.0 / (gamma * np.expm1(epsilon * (1.0 - shares - square_shares)))
    if delta == 0:
        return pure
    values, mass = np.zeros((len(shares), 1)), np.ones((len(shares), 1))
    if shift is not None:
        values, mass = shift.losses(epsilon * shares / shift.most)
    if np.any(square_shares):
        loss = epsilon * np.broadcast_to(square_shares, shares.shape)[:, np.newaxis]
        over = 1.0 / (1.0 + np.exp(-loss))
        values = np.concatenate([values + loss, values - loss], axis=1)
        mass = np.concatenate([mass * over, mass * (1.0 - over)], axis=1)
    order = np.argsort(-values, axis=1)
    values, mass = (np.take_along_axis(part, order, axis=1) for part in (values, mass))
    gain = np.expm1(np.minimum(epsilon - values, _MOST_EXPONENT))
    total, gains = np.cumsum(mass, axis=1), np.cumsum(mass * gain, axis=1)
    odds: Floats = np.max((total - delta) / (gamma * gains + delta), axis=1)
    return np.clip(odds, pure * _LEAST_PART, pure)


_LOW = 5.0
_LOW_NODES = (1.0, 2.0, 3.0, 4.0, _LOW)
_HIGH_NODES = (2.0, 4.0, 6.5, 8.0, 10.0, 12.0)
"""The same where more is asked for: then little is worth spending on anything but outcomes."""
_MANY_LEVELS = 16
"""Grids of more points are solved at the two values of ε around the greatest that is asked for."""
_GAP = 0.02
"""What an answer may be above the least noise: less precise than a release's, and quicker."""
_DOUBT = 1e-3  # of a guess, where squares are debiased: as in a release
_KNOWN_PART = 0.98
"""The part of outcomes in a guess that counts are taken to tell; the rest is even."""


@dataclass(frozen=True)
class OptimalNoise:
    """What tables add to the variance of a unit, at J values of ε; shape [J] each."""

    of_mean: Floats
    """Of the debiased outcome."""
    of_square: Floats
    """Of the debiased square about the grid's mean."""


def optimal_noise(
    grid: Floats, guess: Floats, outcomes: Floats, epsilons: Floats, *, at_most: bool = False
) -> OptimalNoise:
    """Return the noise of tables for ``guess`` where outcomes are spread like ``outcomes``.

    Args:
        grid: y, increasing, shape [K].
        guess: What tables are solved for, or even response where that is better by it; [K].
        outcomes: How outcomes are spread, shape [K].
        epsilons: What tables keep, shape [J]; greater than 0, at most 12.
        at_most: Whether only what is kept by the greatest of them is to be told well.
    """
    wide = float(grid[-1] - grid[0])
    points, known = np.round((grid - grid[0]) / wide, 12), np.round(guess, 12)
    even = _even(points, outcomes, epsilons)
    noise, worse = even, np.ones(len(epsilons), dtype=np.bool_)
    if len(grid) > 2:  # of two, randomised response is the best table
        few = at_most or len(grid) > _MANY_LEVELS
        greatest = float(epsilons.max())
        nodes = _LOW_NODES if greatest <= _LOW else _HIGH_NODES
        end = bisect_left(nodes, greatest) + 1
        at = nodes[max(end - 2, 0) if few else 0 : end]
        asked = (tuple(points.tolist()), tuple(known.tolist()))
        solved = np.array([_at(*asked, at[: end + 1]) for end in range(len(at))])
        noise = _between(outcomes @ solved, np.array(at), epsilons)
        by_guess = _between(known @ solved, np.array(at), epsilons)
        worse = by_guess[0] >= _even(points, known, epsilons)[0]
    mean, square = np.where(worse, even, noise)
    return OptimalNoise(mean * wide**2, square * wide**4)


def learnt_guess(guess: Floats) -> Floats:
    """Return the guess that counts are taken to tell where outcomes are spread like ``guess``."""
    return _KNOWN_PART * guess + (1.0 - _KNOWN_PART) / len(guess)


def _between(noise: Floats, nodes: Floats, epsilons: Floats) -> Floats:
    """Interpolate N of means and squares, shape [nodes, 2], of outcomes between 0 and 1; [2, J]."""
    unit = [4.0 * np.sinh(one / 2.0) ** 2 for one in (nodes, epsilons)]
    mean, square = np.log(np.maximum(noise.T, 1e-300) * unit[0])
    lines = (
        np.interp(epsilons, np.append(0.0, nodes), np.append(0.0, mean)),
        np.interp(epsilons, nodes, square),
    )
    return np.exp(lines) / unit[1]


def _even(grid: Floats, outcomes: Floats, epsilons: Floats) -> Floats:
    """The noise of randomised response, of means and of squares, shape [2, J]."""
    k = len(grid)
    rate, uniform = k / (np.exp(epsilons) + k - 1.0), np.full(k, 1.0 / k)
    values = (grid, (grid - grid.mean()) ** 2)
    return np.array([unit_noise(one, outcomes, uniform, rate) for one in values])


@lru_cache(maxsize=4096)  # questions at other ε, and of other outcomes, ask the same
def _at(shape: tuple[float, ...], guess: tuple[float, ...], nodes: tuple[float, ...]) -> Floats:
    """The noise of each outcome and of its square, shape [K, 2], at the last ε of ``nodes``."""
    grid, known, epsilon = np.array(shape), np.array(guess), nodes[-1]
    found = _solved(shape, guess, nodes)
    if found is not None:
        with suppress(SingularTableError):
            return _noise(found.probabilities, found.values, grid, known)
    outputs, favoured = even_columns(grid, exp(epsilon))
    weights = np.where(favoured, exp(epsilon), 1.0)
    return _noise(weights, outputs, grid, np.full(len(grid), 1.0 / len(grid)))


@lru_cache(maxsize=4096)
def _solved(
    shape: tuple[float, ...], guess: tuple[float, ...], nodes: tuple[float, ...]
) -> Randomiser | None:
    known = np.array(guess)
    start = _solved(shape, guess, nodes[:-1]) if len(nodes) > 1 else None
    try:
        return solve(np.array(shape), known / known.sum(), nodes[-1], _GAP, start)
    except UnsolvedError:
        return None


def _noise(weights: Floats, values: Floats, grid: Floats, guess: Floats) -> Floats:
    """Return the same of a table with these weights, shape [K, J], solved for ``guess``."""
    table = weights / weights.sum(axis=1, keepdims=True)
    likely = ((1.0 - _DOUBT) * guess + _DOUBT / len(guess)) @ table
    functions = output_functions(table[np.newaxis], values[np.newaxis], grid, likely[np.newaxis])
    noises = (functions.noise[0], functions.square_noise[0])
    return np.column_stack([table @ noise for noise in noises])


_TELLING = 1.5
"""The power of units times ε of counts, for each outcome, with which what they leave falls."""
_LEAST = 4.0
"""The same product from which learning is expected to gain anything: below, tables may be worse."""
_OF_OWN = 0.3
"""What tables of strata's own are taken to gain more, as a part of what learning gains.

Nobody knows beforehand how much clusters differ: on Experiment 1 it is 0.6, of the customers of
Hillstrom nothing."""

Noises = tuple[Floats, Floats]
"""Of a unit's debiased outcome, and of its debiased square about the grid's mean; [J] each."""


@dataclass(frozen=True)
class DividedEpsilon:
    """J ways to divide ε: what pays for the statistic and for squares, shape [J] each."""

    epsilon: float
    delta: float
    statistic: StatisticName
    shares: Floats
    square_shares: Floats
    arms_shares: Floats
    """What pays for noisy counts of arms, which tables alone learn from; shape [J]."""


def prior_noise(
    divided: DividedEpsilon, grid: Floats, guess: Floats, outcomes: Floats
) -> tuple[Noises, Noises]:
    """Return the noise of the uniform prior where outcomes follow ``guess``, and ``outcomes``."""
    k = len(grid)
    lattice = lattice_of(grid.tolist()) if divided.statistic == "means" else None
    shift = None if divided.statistic == "none" else StatisticShift.of(k, lattice)
    odds = approximate_odds(
        divided.epsilon, divided.delta, divided.shares, 1.0 / k, shift, divided.square_shares
    )
    uniform, rate = np.full(k, 1.0 / k), odds / (1.0 + odds)
    squares = (grid - grid.mean()) ** 2
    by_guess, by_outcomes = (
        (unit_noise(grid, one, uniform, rate), unit_noise(squares, one, uniform, rate))
        for one in (guess, outcomes)
    )
    return by_guess, by_outcomes


@dataclass(frozen=True)
class Informed:
    """How much noisy counts tell of arms' outcomes: times the ε of the counts, what is known.

    Arms are known together, as their guesses are made: n/√A for n units in A arms.
    """

    by_strata: float
    """By counts of m strata an arm: n/√(A m); 0 where tables may not be learnt from these."""
    by_arms: float
    by_each: float = 0.0
    """By the counts of a stratum alone: the units of the one that a unit is in, on average."""

    @classmethod
    def of(cls, sizes: Ints, learn_from: LearnFrom) -> "Informed":
        """Return what there is in ``sizes``, units by cluster and arm."""
        n_clusters, n_arms = sizes.shape
        by_arms = float(sizes.sum() / n_arms**0.5)
        if learn_from == "nothing":
            return cls(0.0, by_arms)
        by_each = float(np.sum(sizes.astype(np.float64) ** 2) / sizes.sum())
        return cls(by_arms / n_clusters**0.5, by_arms, by_each)


def table_noise(
    divided: DividedEpsilon, grid: Floats, guess: Floats, outcomes: Floats, informed: Informed
) -> tuple[Noises, Noises]:
    """Return the same of tables of the optimal randomiser.

    Tables are between that for the guess and those of who knows how outcomes are spread: the
    nearer to these, the more units times ε counts have for each outcome (:func:`left_unknown`).
    Counts of arms count where they are paid for, else those of strata. Where strata are large
    enough for tables of their own, these are taken to gain a little more. What a δ allows beyond a
    pure ε is left out: it is little.
    """
    left = divided.epsilon * (1.0 - divided.shares - divided.square_shares - divided.arms_shares)
    declared = optimal_noise(grid, guess, guess, left)
    by_guess = (declared.of_mean, declared.of_square)
    if np.array_equal(outcomes, guess):
        return by_guess, by_guess
    found = optimal_noise(grid, guess, outcomes, left)
    by_outcomes = (found.of_mean, found.of_square)
    by_strata = informed.by_strata * divided.shares * (divided.statistic == "counts")
    known = np.where(divided.arms_shares > 0, informed.by_arms * divided.arms_shares, by_strata)
    known *= divided.epsilon / len(grid)
    if not known.any():
        return by_guess, by_outcomes
    learnt = optimal_noise(grid, learnt_guess(outcomes), outcomes, left, at_most=True)
    by_each = informed.by_each * divided.shares * divided.epsilon / len(grid)
    own = np.full(len(left), divided.statistic == "counts" and len(grid) <= SOLVED_IN)
    own &= by_each >= LEAST_KNOWN
    more = np.where(own, _OF_OWN * (1.0 - left_unknown(by_each, left)), 0.0)
    better = (known >= _LEAST) & (learnt.of_mean < found.of_mean)
    gained = np.where(better, (1.0 - left_unknown(known, left)) * (1.0 + more), 0.0)
    return by_guess, (
        found.of_mean - gained * (found.of_mean - learnt.of_mean),
        found.of_square - gained * (found.of_square - learnt.of_square),
    )


def left_unknown(known: Floats, epsilon: Floats) -> Floats:
    """Return the part of what learning can gain that stays away, where counts are noisy; [J].

    1/(1 + (x/a)^1.5) with a = 2 + ε³/128, of x = ``known``, units times the ε of their counts for
    each outcome: fitted to tables of 12 and 16 outcomes, learnt from counts of arms at ε = 2, 4, 8
    (within 0.1 from x = 4).
    """
    return 1.0 / (1.0 + (known / (2.0 + epsilon**3 / 128.0)) ** _TELLING)


def statistic_noise(
    grid: Floats,
    values: Floats,
    lattice: Lattice | None,
    statistic: StatisticName,
    epsilons: Floats,
) -> tuple[Floats, Floats]:
    """Return variance and fourth cumulant of the noise of a pool's sum of ``values``, shape [J].

    ``values`` are those of the points of ``grid``: these themselves for means. ``epsilons`` pay
    for the statistic.
    """
    if statistic == "none":
        return np.full(len(epsilons), np.inf), np.zeros(len(epsilons))
    one, k = Cumulants(1.0, 1.0), len(grid)
    if lattice is not None:
        of_one = MeansStatisticNoise(one, lattice.step_of(grid.tolist())).of_outcomes
        second, fourth = discrete_laplace_cumulants(lattice.most / epsilons)
    else:
        complement = NoisyCounts(k, 1.0).statistic == "count-and-complement"
        of_one = PoolCountsNoise(one, complement).of_sum(values)
        second, fourth = discrete_laplace_cumulants(moved_cells(k) / epsilons)
    return second * of_one.second, fourth * of_one.fourth


def squares_noise(
    grid: Floats, statistic: StatisticName, epsilons: Floats, square_epsilons: Floats
) -> Floats:
    """Return the noise variance of sums of squares: of pools by counts, or of arms.

    ``epsilons`` pay for the statistic, ``square_epsilons`` for arms' sums. Infinite where nothing
    tells squares; shape [J].
    """
    variance = np.full(len(epsilons), np.inf)
    if statistic == "counts":
        squares = (grid - grid.mean()) ** 2
        with np.errstate(over="ignore"):  # of the fourth cumulant, which nobody asks for here
            variance, _ = statistic_noise(grid, squares, None, statistic, epsilons)
    paid = square_epsilons > 0
    if paid.any():
        centred = (grid - (grid[0] + grid[-1]) / 2.0) ** 2
        width = centred.max() - centred.min()
        variance[paid] = square_noise(width / square_epsilons[paid])
    return variance
