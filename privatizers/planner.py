"""Choosing a design before any data is read: grid, statistic of the strata, and how ε is split.

The planner minimises Σ ln V over the effects that matter (of every arm on everybody, and on
segments of the declared shares), V predicted from public sizes of strata and a declared guess at
the outcomes (`prediction`). It chooses among uniform priors: at a given pure ε no prior that gives
every outcome at least γ has less noise than the one with γ = 1/K, for any outcomes (README,
"Which mechanism?"). Nothing here reads an outcome, and the same question has the same answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from estimators.combining import Cumulants, MeansNoise, counts_noise, unit_noise
from privatizers.counts import NoisyCounts, moved_cells
from privatizers.design import Design, Request, StatisticName, design
from privatizers.lattice import Lattice, lattice_of
from privatizers.odds import Moves, odds_at
from privatizers.prediction import Reach, UnitVariance, reaches
from privatizers.strata import lay_out, small_clusters_share
from schemas.errors import ConfigError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SHARES: Floats = np.round(1.0 / (1.0 + np.exp(-np.linspace(-4.6, 4.6, 93))), 4)
"""Parts of ε that are tried for the statistic of the strata: from 1 % to 99 %."""

LEAST_DEGREES = 12.0
"""Degrees of freedom that an interval should have. Means say nothing of how outcomes vary, so the
randomised outcomes have to; with too little of ε left they cannot, and intervals become ten times
too wide, or wrong."""

MORE_LEVELS = (*range(2, 17), 20, 24, 32, 48, 64)
"""Levels that are tried where outcomes are continuous."""


@dataclass(frozen=True)
class Question:
    """What is asked for, and what is publicly known; nothing else enters a plan."""

    epsilon: float
    delta: float
    values: Floats
    """Where outcomes may lie, increasing, the ends of the range included; shape [V]."""
    guess: Floats
    """The declared guess at their distribution, adding up to one; shape [V]."""
    grids: tuple[tuple[float, ...], ...]
    """Grids to choose from, each with the ends of ``values``."""
    statistics: tuple[StatisticName, ...]
    """Of the strata, to choose from: ``counts``, ``means``, ``none``."""
    sizes: Ints
    """Units, shape [clusters, arms], control first."""
    min_stratum: int = 10
    same_shares: bool = False
    segment_shares: tuple[float, ...] = ()
    overall: bool = True
    """Whether the effect on everybody matters, too; it is predicted in any case."""

    @cached_property
    def reaches(self) -> list[Reach | None]:
        """Of every treatment arm, where small clusters share a pool."""
        return self.reaches_in(small_clusters_share(self.sizes, self.min_stratum))

    def reaches_in(self, pool_of: Ints) -> list[Reach | None]:
        """Of every treatment arm, for the pools of a mechanism, shape [clusters]."""
        clusters = [str(nth) for nth in range(len(self.sizes))]
        arms = [str(nth) for nth in range(self.sizes.shape[1])]
        strata = lay_out(clusters, arms, self.sizes, pool_of)
        return reaches(strata, same_shares=self.same_shares)

    @property
    def shares(self) -> tuple[float, ...]:
        """Shares of the effects that are predicted; 1 for everybody."""
        return (1.0, *self.segment_shares)


@dataclass(frozen=True)
class Prediction:
    """The standard error that a design is predicted to have for one effect."""

    arm: int
    """Position of the treatment arm, control being 0."""
    segment_share: float | None
    """None for the effect on everybody."""
    std_error: float


@dataclass(frozen=True)
class Option:
    """A design that was considered, at its best split of ε."""

    grid: tuple[float, ...]
    strata_statistic: StatisticName
    statistic_share: float
    """The part of ε that pays for the statistic."""
    predicted: tuple[Prediction, ...]
    score: float
    """Σ ln V."""


@dataclass(frozen=True)
class Plan:
    """The design chosen, and what was not."""

    design: Design
    option: Option
    guess: tuple[float, ...]
    """The declared guess, brought onto the chosen grid."""
    runners_up: tuple[Option, ...]
    """The next best, best first; each differs in its grid or statistic."""


def plan(question: Question) -> Plan:
    """Choose the design with the least Σ ln V; raises ConfigError where there is none."""
    options = considered(question)
    best = options[0]
    request = Request(
        "uniform-prior-dp",
        len(best.grid),
        best.strata_statistic,
        epsilon=question.epsilon,
        delta=question.delta,
        lattice=lattice_of(best.grid),
        statistic_share=best.statistic_share,
    )
    chosen = design(request)
    guess = projected(question.values, question.guess, np.array(best.grid))
    return Plan(chosen, best, tuple(guess.tolist()), tuple(options[1:]))


def with_more(question: Question, epsilon: float) -> Option:
    """Return what would be chosen with ``epsilon`` more."""
    return considered(replace(question, epsilon=question.epsilon + epsilon))[0]


def considered(question: Question) -> list[Option]:
    """Return the best option of every grid and statistic, best first."""
    if all(one is None for one in question.reaches):
        raise ConfigError(
            "privacy.mechanism",
            '"auto" has nothing to plan for: no cluster has 2 units of a treatment arm and of '
            "control (with arms.same_shares = true small clusters are compared together)",
        )
    options = [
        _best_split(question, grid, statistic)
        for grid in question.grids
        for statistic in question.statistics
        if statistic != "means" or lattice_of(grid) is not None
    ]
    return sorted(options, key=lambda one: (round(one.score, 9), len(one.grid)))


def grids_of(values: Sequence[float], *, continuous: bool) -> tuple[tuple[float, ...], ...]:
    """Return grids to choose from for outcomes on ``values``: evenly spaced, with the same ends.

    Where outcomes lie on the values alone, coarser grids and the values themselves.
    """
    low, high = values[0], values[-1]
    levels = MORE_LEVELS if continuous else tuple(n for n in MORE_LEVELS if n < len(values))
    even = tuple(even_grid(low, high, n) for n in levels)
    return even if continuous else (*even, tuple(values))


def even_grid(low: float, high: float, levels: int) -> tuple[float, ...]:
    """``levels`` points from ``low`` to ``high``, evenly spaced."""
    inner = (low + (high - low) * (step / (levels - 1)) for step in range(1, levels - 1))
    return (low, *inner, high)


def projected(values: Floats, guess: Floats, grid: Floats) -> Floats:
    """Bring a distribution over ``values`` onto ``grid`` by stochastic rounding, mean kept.

    p_g = Σ_y p_y P(y goes to g), P linear between the two points around y; shape [K].
    """
    lower, share = _between(values, grid)
    found: Floats = np.bincount(lower, guess * (1.0 - share), len(grid)).astype(np.float64)
    found += np.bincount(lower + 1, guess * share, len(grid))
    return found


def rounding_variance(values: Floats, guess: Floats, grid: Floats) -> float:
    """V_round = E (g₊ − y)(y − g₋), what stochastic rounding adds to the variance a unit."""
    lower, _ = _between(values, grid)
    return float(guess @ ((grid[lower + 1] - values) * (values - grid[lower])))


def _between(values: Floats, grid: Floats) -> tuple[Ints, Floats]:
    """Position of the grid point below each value, and how far it is to the next."""
    lower = np.clip(np.searchsorted(grid, values, side="right") - 1, 0, len(grid) - 2)
    share = np.clip((values - grid[lower]) / (grid[lower + 1] - grid[lower]), 0.0, 1.0)
    return lower.astype(np.int64), share


def _best_split(question: Question, grid: tuple[float, ...], statistic: StatisticName) -> Option:
    """Try every part of ε for the statistic; all at once."""
    shares = np.zeros(1) if statistic == "none" else SHARES
    unit = unit_variance(question, np.array(grid), statistic, shares)
    found = variances(question, question.reaches, unit)
    score = np.sum(
        [np.log(variance) for _, share, variance in found if question.overall or share < 1.0],
        axis=0,
    )
    if statistic == "means":
        enough = degrees_left(question, np.array(grid), shares, unit) >= LEAST_DEGREES
        enough[np.argmin(shares)] = True  # the best there is, if none is enough
        score = np.where(enough, score, np.inf)
    at = int(np.argmin(np.round(score, 9)))
    predicted = predictions(found, at)
    return Option(grid, statistic, float(shares[at]), predicted, float(score[at]))


def degrees_left(question: Question, grid: Floats, shares: Floats, unit: UnitVariance) -> Floats:
    """Degrees of freedom of the overall effect where squares are known from units alone.

    V² / (v_f/2 Σ_s b_s⁴/n_s³), the least over arms, where v_f is what randomised response adds to
    the variance of a debiased f = (y − ȳ)², with ``shares`` of ε gone for means; shape [J].
    """
    k, moves = len(grid), Moves.of(len(grid), lattice_of(grid.tolist()))
    odds = odds_at(question.epsilon, question.delta, shares, 1.0 / k, moves)
    on_grid, uniform = projected(question.values, question.guess, grid), np.full(k, 1.0 / k)
    noise = unit_noise((grid - grid.mean()) ** 2, on_grid, uniform, odds / (1.0 + odds))
    found = np.full(len(shares), np.inf)
    for reach in question.reaches:
        if reach is not None:
            with np.errstate(divide="ignore", over="ignore"):  # two outcomes have one square
                own = reach.variance(unit) ** 2 / (noise * reach.doubt / 2.0)
            found = np.minimum(found, own)
    return found


def variances(
    question: Question, among: list[Reach | None], unit: UnitVariance
) -> list[tuple[int, float, Floats]]:
    """V of every effect: its arm, its share, and V under every design, shape [J]."""
    return [
        (arm, share, reach.variance(unit, share))
        for arm, reach in enumerate(among, start=1)
        if reach is not None
        for share in question.shares
    ]


def predictions(found: list[tuple[int, float, Floats]], at: int) -> tuple[Prediction, ...]:
    """The standard errors of one design."""
    return tuple(
        Prediction(arm, None if share == 1.0 else share, float(np.sqrt(variance[at])))
        for arm, share, variance in found
    )


def unit_variance(
    question: Question, grid: Floats, statistic: StatisticName, shares: Floats
) -> UnitVariance:
    """Variances a unit where ``shares`` of ε, shape [J], pay for ``statistic``, on ``grid``."""
    k, values, guess = len(grid), question.values, question.guess
    lattice = lattice_of(grid.tolist()) if statistic == "means" else None
    moves = None if statistic == "none" else Moves.of(k, lattice)
    odds = odds_at(question.epsilon, question.delta, shares, 1.0 / k, moves)
    on_grid, uniform = projected(values, guess, grid), np.full(k, 1.0 / k)
    response = unit_noise(grid, on_grid, uniform, odds / (1.0 + odds))
    sampling = sampling_variance(question, grid)
    noise = [
        statistic_variance(grid, lattice, statistic, question.epsilon * share) for share in shares
    ]
    return UnitVariance(sampling, response[:, np.newaxis], response, np.array(noise))


def sampling_variance(question: Question, grid: Floats) -> float:
    """V_s + V_round by the guess: what an outcome on ``grid`` varies by without any privacy."""
    values, guess = question.values, question.guess
    apart = values - float(guess @ values)
    return float(guess @ apart**2) + rounding_variance(values, guess, grid)


def statistic_variance(
    grid: Floats, lattice: Lattice | None, statistic: StatisticName, epsilon: float
) -> float:
    """Return the noise variance of the sum over a pool by its statistic, paid with ``epsilon``."""
    if statistic == "none":
        return float("inf")
    if lattice is not None:
        noise = Cumulants.of_discrete_laplace(lattice.most / epsilon)
        return MeansNoise(noise, lattice.step_of(grid.tolist())).of_outcomes.second
    counts = NoisyCounts(len(grid), moved_cells(len(grid)) / epsilon)
    return counts_noise(counts.noise_scale, counts.statistic).of_sum(grid).second
