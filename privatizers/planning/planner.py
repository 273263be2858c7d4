"""Choosing a design before any data is read: grid, statistic of the strata, and how ε is split.

The planner minimises Σ ln W² over the effects that matter (of every arm on everybody, and on
segments of the declared shares), W the width of the interval, predicted from public sizes of strata
and a guess at the outcomes (`prediction`): the declared one, and a pessimistic one, by which
outcomes vary by a tenth of that. Where they do, a release that says little of how outcomes vary has
sharp estimates and useless intervals, whatever the guess. The standard error by the declared guess
has the second word: what is chosen has at most 1.5 times the least that is to be had.

It chooses among uniform priors: at a given pure ε no prior that gives every outcome at least γ has
less noise than the one with γ = 1/K, for any outcomes (docs/method.md). Nothing here
reads an outcome, and the same question has the same answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from estimators.pool_statistics import Cumulants, MeansNoise, counts_noise, square_noise, unit_noise
from privatizers.domain.lattice import Lattice, lattice_of
from privatizers.domain.strata import lay_out, small_clusters_share
from privatizers.mechanisms.noisy_counts import NoisyCounts, moved_cells
from privatizers.mechanisms.noisy_squares import is_even, square_steps
from privatizers.planning.approximate_rate import Moves, odds_at
from privatizers.planning.design import Design, Request, StatisticName, design
from privatizers.planning.predicted_variance import Reach, SquareVariance, UnitVariance, reaches
from schemas.arrays import Floats, Ints
from schemas.errors import ConfigError

SHARES: Floats = np.round(1.0 / (1.0 + np.exp(-np.linspace(-4.6, 4.6, 93))), 4)
"""Parts of ε that are tried for the statistic of the strata: from 1 % to 99 %."""

SQUARE_SHARES = (0.0, 0.05, 0.075, 0.1)
"""Parts of ε that are tried for arms' sums of squares, beside means."""

PESSIMISM = 10.0
"""How many times less outcomes vary by the pessimistic guess than by the declared one."""

MOST_ERROR = 1.5
"""Times the least standard error to be had: no interval is worth more than that."""

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
    half_width: float | None = None
    """Half of the 95 % interval that is expected; None where nothing is forecast."""


@dataclass(frozen=True)
class Option:
    """A design that was considered, at its best split of ε."""

    grid: tuple[float, ...]
    strata_statistic: StatisticName
    statistic_share: float
    """The part of ε that pays for the statistic."""
    square_share: float
    """The part of ε that pays for arms' sums of squares."""
    predicted: tuple[Prediction, ...]
    score: float
    """Σ ln W², by the declared guess and by the pessimistic one; infinite for too great errors."""


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
    """Choose the design with the least Σ ln W²; raises ConfigError where there is none."""
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
        square_share=best.square_share,
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
    tried = [
        _tried(question, grid, statistic)
        for grid in question.grids
        for statistic in question.statistics
        if statistic != "means" or lattice_of(grid) is not None
    ]
    n_effects = sum(question.overall or share < 1.0 for _, share, _ in tried[0].found)
    allowed = min(float(one.errors.min()) for one in tried) + 2.0 * n_effects * np.log(MOST_ERROR)
    options = [_best_split(one, allowed) for one in tried]
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


@dataclass(frozen=True)
class _Tried:
    """Every split of ε that was tried on a grid with a statistic; shape [J] each."""

    grid: tuple[float, ...]
    statistic: StatisticName
    shares: Floats
    square_shares: Floats
    found: list[tuple[int, float, "Effect"]]
    errors: Floats
    """Σ ln V by the declared guess."""
    scores: Floats


def _tried(question: Question, grid: tuple[float, ...], statistic: StatisticName) -> _Tried:
    """Try every part of ε for the statistic and for sums of squares; all at once."""
    points = np.array(grid)
    shares, square_shares = _splits(points, statistic)
    by_guess = [
        effects_of(
            question,
            question.reaches,
            unit_variance(question, points, statistic, shares, square_shares, guess),
        )
        for guess in (question.guess, pessimistic(question.values, question.guess))
    ]
    matter = [
        [one for _, share, one in found if question.overall or share < 1.0] for found in by_guess
    ]
    errors = np.sum([np.log(one.variance) for one in matter[0]], axis=0)
    widths = [np.log(one.half_width**2) for found in matter for one in found]
    scores: Floats = np.sum(widths, axis=0)
    return _Tried(grid, statistic, shares, square_shares, by_guess[0], errors, scores)


def _splits(grid: Floats, statistic: StatisticName) -> tuple[Floats, Floats]:
    """Parts of ε for the statistic and for squares; shape [J] both.

    Squares are bought beside means alone: counts tell squares, and without any statistic τ̂_Q asks
    for none. Where the grid's mean is not its middle they would not be those that are estimated.
    """
    if statistic == "none":
        return np.zeros(1), np.zeros(1)
    lattice = lattice_of(grid.tolist())
    steps = None if lattice is None or statistic != "means" else square_steps(lattice)
    if steps is None or lattice is None or not is_even(lattice):
        return SHARES, np.zeros(len(SHARES))
    shares, squares = (part.ravel() for part in np.meshgrid(SHARES, np.array(SQUARE_SHARES)))
    left = shares + squares < 1.0 - 1e-3
    return shares[left], squares[left]


def _best_split(tried: _Tried, allowed: float) -> Option:
    """The split with the least score among those with allowed errors; that of errors if none."""
    scores = np.where(tried.errors <= allowed + 1e-9, tried.scores, np.inf)
    at = int(np.argmin(np.round(scores, 9)))
    if np.isinf(scores[at]):
        at = int(np.argmin(np.round(tried.errors, 9)))
    return Option(
        tried.grid,
        tried.statistic,
        float(tried.shares[at]),
        float(tried.square_shares[at]),
        predictions(tried.found, at),
        float(scores[at]),
    )


def pessimistic(values: Floats, guess: Floats) -> Floats:
    """Return a guess with the mean of ``guess`` and a tenth of its variance, or near; shape [V].

    Outcomes are drawn in to the mean by √10 and put on ``values`` as if by stochastic rounding,
    which adds a little, and undoes it all where there are two values.
    """
    mean = float(guess @ values)
    nearer = mean + (values - mean) / np.sqrt(PESSIMISM)
    return projected(np.clip(nearer, values[0], values[-1]), guess, values)


@dataclass(frozen=True)
class Effect:
    """What designs are predicted to tell of an effect, shape [J] each."""

    variance: Floats
    half_width: Floats


def effects_of(
    question: Question, among: list[Reach | None], unit: UnitVariance
) -> list[tuple[int, float, Effect]]:
    """Every effect: its arm, its share, and what every design tells of it."""
    return [
        (arm, share, Effect(reach.variance(unit, share), reach.half_width(unit, share)))
        for arm, reach in enumerate(among, start=1)
        if reach is not None
        for share in question.shares
    ]


def predictions(found: list[tuple[int, float, Effect]], at: int) -> tuple[Prediction, ...]:
    """The standard errors and intervals of one design."""
    return tuple(
        Prediction(
            arm,
            None if share == 1.0 else share,
            float(np.sqrt(one.variance[at])),
            float(one.half_width[at]),
        )
        for arm, share, one in found
    )


def unit_variance(
    question: Question,
    grid: Floats,
    statistic: StatisticName,
    shares: Floats,
    square_shares: Floats | None = None,
    truth: Floats | None = None,
) -> UnitVariance:
    """Variances a unit where ``shares`` of ε, shape [J], pay for ``statistic``, on ``grid``.

    ``square_shares`` pay for arms' sums of squares. Outcomes follow ``truth``, shape [V], in place
    of the declared guess; weights are made of that in any case.
    """
    k, values = len(grid), question.values
    squared = np.zeros(len(shares)) if square_shares is None else square_shares
    lattice = lattice_of(grid.tolist()) if statistic == "means" else None
    moves = None if statistic == "none" else Moves.of(k, lattice)
    odds = odds_at(question.epsilon, question.delta, shares, 1.0 / k, moves, squared)
    guess = projected(values, question.guess, grid)
    own = guess if truth is None else projected(values, truth, grid)
    uniform, rate = np.full(k, 1.0 / k), odds / (1.0 + odds)
    noise = [
        statistic_noise_of(grid, lattice, statistic, question.epsilon * share) for share in shares
    ]
    squares = (grid - grid.mean()) ** 2
    return UnitVariance(
        sampling=sampling_variance(question, grid, truth),
        response=unit_noise(grid, own, uniform, rate)[:, np.newaxis],
        declared=unit_noise(grid, guess, uniform, rate),
        statistic=np.array([one.second for one in noise]),
        fourth=np.array([one.fourth for one in noise]),
        square=SquareVariance(
            response=unit_noise(squares, own, uniform, rate),
            declared=unit_noise(squares, guess, uniform, rate),
            statistic=_square_noise_of(question, grid, statistic, shares, squared),
            by_arm=statistic == "means",
            widest=float(((grid[-1] - grid[0]) / 2.0) ** 2),
        ),
    )


def _square_noise_of(
    question: Question, grid: Floats, statistic: StatisticName, shares: Floats, squared: Floats
) -> Floats:
    """Noise variance of sums of squares: of pools by counts, or of arms; infinite without any."""
    found = np.full(len(shares), np.inf)
    if statistic == "counts":
        k, squares = len(grid), (grid - grid.mean()) ** 2
        for at, share in enumerate(shares):
            counts = NoisyCounts(k, moved_cells(k) / (question.epsilon * share))
            found[at] = counts_noise(counts.noise_scale, counts.statistic).of_sum(squares).second
    paid = squared > 0
    if paid.any():
        about = (grid - (grid[0] + grid[-1]) / 2.0) ** 2
        found[paid] = square_noise((about.max() - about.min()) / (question.epsilon * squared[paid]))
    return found


def sampling_variance(question: Question, grid: Floats, truth: Floats | None = None) -> float:
    """V_s + V_round by the guess, or by ``truth``: what an outcome on ``grid`` varies by itself."""
    values, guess = question.values, question.guess if truth is None else truth
    apart = values - float(guess @ values)
    return float(guess @ apart**2) + rounding_variance(values, guess, grid)


def statistic_noise_of(
    grid: Floats, lattice: Lattice | None, statistic: StatisticName, epsilon: float
) -> Cumulants:
    """Return the noise of the sum over a pool by its statistic, paid with ``epsilon``."""
    if statistic == "none":
        return Cumulants(float("inf"), 0.0)
    if lattice is not None:
        noise = Cumulants.of_discrete_laplace(lattice.most / epsilon)
        return MeansNoise(noise, lattice.step_of(grid.tolist())).of_outcomes
    counts = NoisyCounts(len(grid), moved_cells(len(grid)) / epsilon)
    return counts_noise(counts.noise_scale, counts.statistic).of_sum(grid)
