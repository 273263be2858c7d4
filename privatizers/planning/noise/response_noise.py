"""What randomising outcomes adds to a unit's variance under many splits of ε; for planning."""

from dataclasses import dataclass

import numpy as np

from estimators.response.pool_statistics import unit_noise
from privatizers.domain.lattice import lattice_of
from privatizers.optimal_response.learnt_guess import LEAST_KNOWN, SOLVED_IN
from privatizers.planning.design import StatisticName
from privatizers.planning.noise.approximate_rate import StatisticShift, approximate_odds
from privatizers.planning.noise.optimal_noise import learnt_guess, optimal_noise
from privatizers.planning.optimal_design import LearnFrom
from schemas.arrays import Floats, Ints

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
