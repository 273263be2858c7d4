"""Choosing a design before any data is read: grid, statistic of the strata, and how ε is split.

The planner minimises Σ ln W² over the effects that matter (of every arm on everybody, and on
segments of the declared shares). W is the width of the interval, predicted from public sizes of
strata and a guess at the outcomes (`predicted_variance`): the guess, and, unless it was learnt from
earlier releases, a pessimistic one, by which outcomes have a tenth of that variance. If they do, a
release that says little about the variance of outcomes has sharp estimates and useless intervals,
whatever the guess. Where nothing is known, and the guess is even, a skewed one comes beside them:
an even guess is what learning would bring nothing for. A limit on the standard error by the guess
comes on top: at most 1.5 times the least possible.

It chooses among uniform priors: at a given pure ε no prior that gives every outcome at least γ has
less noise than the one with γ = 1/K, for any outcomes (docs/method.md). Or among tables of the
optimal randomiser, or among both (`table_choice`). Nothing here reads an outcome, and the same
question always has the same answer.
"""

from dataclasses import dataclass, replace

import numpy as np

from privatizers.domain.lattice import lattice_of
from privatizers.mechanisms.statistics.noisy_squares import is_even, square_steps
from privatizers.planning.design import Design, Request, StatisticName, design
from privatizers.planning.grids import drawn_share, other_guesses, project_guess, rounding_variance
from privatizers.planning.noise.response_noise import (
    DividedEpsilon,
    Informed,
    prior_noise,
    squares_noise,
    statistic_noise,
    table_noise,
)
from privatizers.planning.optimal_design import (
    LearnFrom,
    OptimalDesign,
    OptimalRequest,
    optimal_design,
)
from privatizers.planning.predicted_variance import SquareVariance, UnitVariance
from privatizers.planning.predictions import effects_of, predictions
from privatizers.planning.question import Option, PlannedMechanism, Question
from privatizers.planning.table_choice import Splits, choice_reason, simpler_first, try_tables
from schemas.arrays import Floats
from schemas.documents import taken
from schemas.errors import ConfigError

MOST_ERROR = 1.5
"""The standard error chosen is at most this times the least possible one."""

SHARES: Floats = np.round(1.0 / (1.0 + np.exp(-np.linspace(-4.6, 4.6, 93))), 4)
"""Parts of ε that are tried for the statistic of the strata: from 1 % to 99 %."""

SQUARE_SHARES = (0.0, 0.05, 0.075, 0.1)
"""Parts of ε that are tried for arms' sums of squares, where means are published."""

ARMS_SHARES = (0.0, 0.005, 0.01, 0.02, 0.03)
"""Parts of ε that are tried for noisy counts of arms, where tables may learn from them."""


@dataclass(frozen=True)
class Plan:
    """The design chosen, and the other options."""

    design: Design | OptimalDesign
    option: Option
    guess: tuple[float, ...]
    runners_up: tuple[Option, ...]
    """The next best, best first; each differs in its mechanism, grid or statistic."""
    reason: str | None = None
    """Why "auto" chose this mechanism; None where it was named."""
    even_part: float | None = None
    """The part of an even distribution in a guess that was learnt; None for a declared guess."""


def plan(question: Question) -> Plan:
    """Choose the design with the least Σ ln W².

    Raises:
        ConfigError: No arm can be compared with control.
    """
    options = rank_options(question)
    best = options[0]
    guess = tuple(project_guess(question.values, question.guess, np.array(best.grid)).tolist())
    why = choice_reason(options, question.no_tables) if question.mechanism == "auto" else None
    return Plan(_design(question, best, guess), best, guess, tuple(options[1:]), why)


def with_margins(question: Question, chosen: Plan, kept: float) -> Plan:
    """Return a plan as it is where margins have their shares of ε, too.

    What pays for the statistic of strata is ``kept`` times what it was, of what margins leave; at 0
    there is none.
    """
    option, statistic = chosen.option, chosen.option.strata_statistic if kept > 0 else "none"
    parts = {name: kept * getattr(option, name) for name in ("statistic_share", "square_share")}
    option = replace(option, strata_statistic=statistic, **parts)
    return replace(chosen, design=_design(question, option, chosen.guess), option=option)


def _design(question: Question, best: Option, guess: tuple[float, ...]) -> Design | OptimalDesign:
    lattice, left = lattice_of(best.grid), 1.0 - sum(question.margin_shares)
    shares = ("statistic_share", "square_share", "arms_share")  # of what margins leave
    best = replace(best, **{name: left * getattr(best, name) for name in shares})
    if best.mechanism == "uniform-prior-dp":
        return design(taken(Request, best, question, n_outcomes=len(best.grid), lattice=lattice))
    learns: LearnFrom = "arms" if best.arms_share > 0 else "strata"
    if learns == "strata" and (
        question.learn_from == "nothing" or best.strata_statistic != "counts"
    ):
        learns = "nothing"
    own = {"guess": guess, "lattice": lattice, "learn_from": learns}
    return optimal_design(taken(OptimalRequest, best, question, **own))


def with_more(question: Question, epsilon: float) -> Option:
    """Return the option that would be chosen with ``epsilon`` more."""
    return rank_options(replace(question, epsilon=question.epsilon + epsilon))[0]


def rank_options(question: Question) -> list[Option]:
    """Return the best option of every grid and statistic, best first; errors as in :func:`plan`.

    Its shares are of what margins leave of ε.
    """
    question = question.beside_margins
    if all(weights is None for weights in question.contrast_weights):
        raise ConfigError(
            "privacy.mechanism",
            "there is nothing to plan for: no cluster has 2 units of a treatment arm and of "
            "control (with arms.same_shares = true small clusters are compared together)",
        )
    tried: list[Splits] = []
    if question.mechanism != "cluster-optimal-dp":
        for grid in question.grids:
            tried += _try_statistics(question, "uniform-prior-dp", grid)
    if question.mechanism != "uniform-prior-dp" and question.no_tables is None:
        own = question.grids if question.mechanism == "cluster-optimal-dp" else question.table_grids
        tried += try_tables(own, lambda grid: _try_statistics(question, "cluster-optimal-dp", grid))
    least = min(float(splits.errors.min()) for splits in tried)
    matter = [share for _, share, _ in tried[0].effects if question.overall or share < 1.0]
    allowed = least + 2 * len(matter) * np.log(MOST_ERROR)
    options = [_best_split(splits, allowed) for splits in tried]
    ranked = sorted(options, key=lambda option: (round(option.score, 9), len(option.grid)))
    return simpler_first(ranked)


def _try_statistics(
    question: Question, mechanism: PlannedMechanism, grid: tuple[float, ...]
) -> list[Splits]:
    return [
        _try_splits(question, mechanism, grid, statistic)
        for statistic in question.statistics
        if statistic != "means" or lattice_of(grid) is not None
    ]


def _try_splits(
    question: Question,
    mechanism: PlannedMechanism,
    grid: tuple[float, ...],
    statistic: StatisticName,
) -> Splits:
    points = np.array(grid)
    learn_from = question.learn_from if mechanism == "cluster-optimal-dp" else "nothing"
    shares = _shares_to_try(points, statistic, learn_from)
    divided = DividedEpsilon(question.epsilon, question.delta, statistic, *shares)
    guesses = [question.guess]
    if question.even_part is None:  # declared, and not learnt
        guesses += other_guesses(question.values, question.guess)
    by_guess = [
        effects_of(
            question.shares,
            question.contrast_weights,
            _unit_variance(question, points, divided, guess, mechanism),
            question.segment_weights,
        )
        for guess in guesses
    ]
    matter = [
        [effect for _, share, effect in effects if question.overall or share < 1.0]
        for effects in by_guess
    ]
    errors = np.sum([np.log(effect.variance) for effect in matter[0]], axis=0)
    widths = [effect.half_widths for effects in matter for effect in effects]
    drawn = [drawn_share(question.values, guess, points) for guess in guesses]
    noise_shares: Floats = np.sum(
        [
            1.0 - share * effect.sampling / effect.variance
            for share, effects in zip(drawn, matter, strict=True)
            for effect in effects
        ],
        axis=0,
    )
    return Splits(mechanism, grid, divided, by_guess[0], errors, widths, noise_shares)


def _best_split(tried: Splits, allowed: float) -> Option:
    """Return the split with the least score among allowed errors, or with the least error."""
    among = np.flatnonzero(tried.errors <= allowed + 1e-9)
    least = int(np.argmin(np.round(tried.errors, 9)))
    at, score = tried.best(among) if among.size else (least, np.inf)
    return Option(
        tried.grid,
        tried.divided.statistic,
        float(tried.divided.shares[at]),
        float(tried.divided.square_shares[at]),
        predictions(tried.effects, at),
        score,
        tried.mechanism,
        float(tried.noise_shares[at]),
        len(tried.widths),
        float(tried.divided.arms_shares[at]),
    )


def _unit_variance(
    question: Question,
    grid: Floats,
    divided: DividedEpsilon,
    truth: Floats,
    mechanism: PlannedMechanism,
) -> UnitVariance:
    """Return a unit's variances on ``grid`` by each of the ways to divide ε.

    Outcomes follow ``truth``, shape [V], in place of the declared guess; weights are always
    computed from the declared guess.
    """
    lattice = lattice_of(grid.tolist()) if divided.statistic == "means" else None
    guess = project_guess(question.values, question.guess, grid)
    outcomes = project_guess(question.values, truth, grid)
    if mechanism == "cluster-optimal-dp":
        informed = Informed.of(question.sizes, question.learn_from)
        declared, response = table_noise(divided, grid, guess, outcomes, informed)
    else:
        declared, response = prior_noise(divided, grid, guess, outcomes)
    spent = question.epsilon * divided.shares
    second, fourth = statistic_noise(grid, grid, lattice, divided.statistic, spent)
    on_squares = question.epsilon * divided.square_shares
    return UnitVariance(
        spread=float(guess @ (grid - guess @ grid) ** 2),
        sampling=sampling_variance(question, grid, None if truth is question.guess else truth),
        response=response[0][:, np.newaxis],
        declared=declared[0],
        statistic=second,
        fourth=fourth,
        square=SquareVariance(
            response=response[1],
            declared=declared[1],
            statistic=squares_noise(grid, divided.statistic, spent, on_squares),
            by_arm=divided.statistic == "means",
            widest=float(((grid[-1] - grid[0]) / 2.0) ** 2),
        ),
    )


def sampling_variance(question: Question, grid: Floats, truth: Floats | None = None) -> float:
    """Return V_s + V_round, the variance of an outcome on ``grid``, by the guess or ``truth``.

    Where strata have guesses of their own, by these: what strata differ by is not in it.
    """
    values, guess, within = question.values, question.guess, question.within
    if truth is None and within is not None:
        alone = replace(question, within=None)
        return within.mean(np.array([sampling_variance(alone, grid, p) for p in within.guesses]))
    guess = guess if truth is None else truth
    deviation = values - float(guess @ values)
    return float(guess @ deviation**2) + rounding_variance(values, guess, grid)


def _shares_to_try(
    grid: Floats, statistic: StatisticName, learn_from: LearnFrom
) -> tuple[Floats, Floats, Floats]:
    """Return the parts of ε to try for the statistic, squares, and counts of arms; [J] each.

    Counts of arms are for learning alone, and of two outcomes the best table is known anyhow. Only
    beside means does a part of ε pay for squares: counts tell squares anyway, and τ̂_Q, alone where
    there is no statistic, needs none. Where the grid's mean is not its middle, the published
    squares would not be the ones that estimates need.
    """
    shares = np.zeros(1) if statistic == "none" else SHARES
    squares, lattice = np.zeros(len(shares)), lattice_of(grid.tolist())
    steps = square_steps(lattice) if statistic == "means" and lattice is not None else None
    if steps is not None and lattice is not None and is_even(lattice):
        both = np.meshgrid(SHARES, np.array(SQUARE_SHARES))
        shares, squares = (part.ravel() for part in both)
    tried: tuple[float, ...] = (0.0,)
    if learn_from == "arms" or (learn_from == "auto" and len(grid) > 2):
        tried = ARMS_SHARES[1:] if learn_from == "arms" else ARMS_SHARES
    of_arms = np.repeat(np.array(tried), len(shares))
    of_strata, of_squares = np.tile(shares, len(tried)), np.tile(squares, len(tried))
    left = of_strata + of_squares + of_arms < 1.0 - 1e-3
    return of_strata[left], of_squares[left], of_arms[left]
