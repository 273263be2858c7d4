"""Choosing a design before any data is read: grid, statistic of the strata, and how ε is split.

The planner minimises Σ ln W² over the effects that matter (of every arm on everybody, and on
segments of the declared shares). W is the width of the interval, predicted from public sizes of
strata and a guess at the outcomes (`predicted_variance`): the declared guess, and a pessimistic
one, by which outcomes have a tenth of that variance. If they do, a release that says little about
the variance of outcomes has sharp estimates and useless intervals, whatever the guess. A limit on
the standard error by the declared guess comes on top: at most 1.5 times the least possible.

It chooses among uniform priors: at a given pure ε no prior that gives every outcome at least γ has
less noise than the one with γ = 1/K, for any outcomes (docs/method.md). Or among tables of the
optimal randomiser, or among both (`table_choice`). Nothing here reads an outcome, and the same
question always has the same answer.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from privatizers.domain.lattice import lattice_of
from privatizers.domain.strata import Strata, lay_out, small_clusters_share
from privatizers.planning.design import Design, Request, StatisticName, design
from privatizers.planning.grids import drawn_share, pessimistic, project_guess, rounding_variance
from privatizers.planning.noise.response_noise import Informed, Splits, prior_noise, table_noise
from privatizers.planning.noise.statistic_noise import squares_noise, statistic_noise
from privatizers.planning.optimal_design import (
    LearnFrom,
    OptimalDesign,
    OptimalRequest,
    optimal_design,
)
from privatizers.planning.predicted_variance import (
    ContrastWeights,
    SquareVariance,
    UnitVariance,
    contrast_weights,
    segment_weights,
)
from privatizers.planning.predictions import PredictedEffect, Prediction, effects_of, predictions
from privatizers.planning.table_choice import (
    PlannedMechanism,
    choice_reason,
    no_tables,
    simpler_first,
    try_tables,
)
from privatizers.planning.thinned_sizes import leaves_few
from privatizers.planning.tried_shares import shares_to_try
from schemas.arrays import Floats, Ints
from schemas.errors import ConfigError

MOST_ERROR = 1.5
"""The standard error chosen is at most this times the least possible one."""


@dataclass(frozen=True)
class Question:
    """The request and the public facts; nothing else enters a plan."""

    epsilon: float
    delta: float
    values: Floats
    """The values that outcomes may have, increasing, the ends of the range included; shape [V]."""
    guess: Floats
    """The declared guess at the distribution of outcomes, adding up to one; shape [V]."""
    grids: tuple[tuple[float, ...], ...]
    """Grids to choose from, each with the ends of ``values``."""
    statistics: tuple[StatisticName, ...]
    """Statistics of the strata to choose from: ``counts``, ``means``, ``none``."""
    sizes: Ints
    """Units, shape [clusters, arms], control first."""
    min_stratum: int = 10
    same_shares: bool = False
    segment_shares: tuple[float, ...] = ()
    overall: bool = True
    """Whether the effect on everybody matters too; it is predicted in any case."""
    mechanism: PlannedMechanism | Literal["auto"] = "uniform-prior-dp"
    """What to plan for; "auto": whichever of them tells more."""
    table_grids: tuple[tuple[float, ...], ...] = ()
    """Grids to choose from for tables, where ``mechanism`` is "auto"; else all are ``grids``."""
    learn_from: LearnFrom = "auto"
    """Where tables of the optimal randomiser may be learnt from; ``auto``: what predicts best."""

    def alone(self, mechanism: PlannedMechanism) -> "Question":
        """Return the question for one of the mechanisms of "auto"."""
        own = self.mechanism == "auto" and mechanism == "cluster-optimal-dp"
        return replace(self, mechanism=mechanism, grids=self.table_grids if own else self.grids)

    @cached_property
    def no_tables(self) -> str | None:
        """Why "auto" has no tables to choose; None where it has, and where they are named."""
        return no_tables(self) if self.mechanism == "auto" else None

    @cached_property
    def contrast_weights(self) -> list[ContrastWeights | None]:
        """The weights of every treatment arm, where small clusters share a pool."""
        return self.contrast_weights_in(small_clusters_share(self.sizes, self.min_stratum))

    @cached_property
    def segment_weights(self) -> dict[float, list[ContrastWeights | None]]:
        """The same within segments of the shares that leave few units in an arm of a cluster."""
        return self.segment_weights_in(small_clusters_share(self.sizes, self.min_stratum))

    def contrast_weights_in(self, pool_of: Ints) -> list[ContrastWeights | None]:
        """Return those of every treatment arm, for the pools of a mechanism, shape [clusters]."""
        return contrast_weights(self._strata(pool_of), same_shares=self.same_shares)

    def segment_weights_in(self, pool_of: Ints) -> dict[float, list[ContrastWeights | None]]:
        """Return those within segments likewise, by the share of the segment."""
        return {
            share: segment_weights(self._strata(pool_of), share, same_shares=self.same_shares)
            for share in self.segment_shares
            if leaves_few(self.sizes, share)
        }

    def _strata(self, pool_of: Ints) -> Strata:
        clusters = [str(nth) for nth in range(len(self.sizes))]
        arms = [str(nth) for nth in range(self.sizes.shape[1])]
        return lay_out(clusters, arms, self.sizes, pool_of)

    @property
    def shares(self) -> tuple[float, ...]:
        """The shares of units whose effects are predicted; 1 for everybody."""
        return (1.0, *self.segment_shares)


@dataclass(frozen=True)
class Option:
    """A grid and a statistic, with the best split of ε for them."""

    grid: tuple[float, ...]
    strata_statistic: StatisticName
    statistic_share: float
    """The part of ε that pays for the statistic."""
    square_share: float
    """The part of ε that pays for arms' sums of squares."""
    predicted: tuple[Prediction, ...]
    score: float
    """Σ ln W² by the declared guess and by the pessimistic one; infinite for too great an error."""
    mechanism: PlannedMechanism
    noise_share: float
    """The part of each V that is not sampling's, added up likewise."""
    n_widths: int
    """How many W² the score has."""
    arms_share: float = 0.0
    """The part of ε that pays for noisy counts of arms, which tables are learnt from."""


@dataclass(frozen=True)
class Plan:
    """The design chosen, and the other options."""

    design: Design | OptimalDesign
    option: Option
    guess: tuple[float, ...]
    """The declared guess, brought onto the chosen grid."""
    runners_up: tuple[Option, ...]
    """The next best, best first; each differs in its mechanism, grid or statistic."""
    reason: str | None = None
    """Why "auto" chose this mechanism; None where it was named."""


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


def _design(question: Question, best: Option, guess: tuple[float, ...]) -> Design | OptimalDesign:
    if best.mechanism == "cluster-optimal-dp":
        return optimal_design(
            OptimalRequest(
                best.grid,
                guess,
                epsilon=question.epsilon,
                delta=question.delta,
                strata_statistic=best.strata_statistic,
                lattice=lattice_of(best.grid),
                statistic_share=best.statistic_share,
                square_share=best.square_share,
                learn_from=_learns_from(question, best),
                arms_share=best.arms_share,
            )
        )
    return design(
        Request(
            best.mechanism,
            len(best.grid),
            best.strata_statistic,
            epsilon=question.epsilon,
            delta=question.delta,
            lattice=lattice_of(best.grid),
            statistic_share=best.statistic_share,
            square_share=best.square_share,
        )
    )


def _learns_from(question: Question, best: Option) -> LearnFrom:
    if best.arms_share > 0:
        return "arms"
    if question.learn_from == "nothing" or best.strata_statistic != "counts":
        return "nothing"
    return "strata"


def with_more(question: Question, epsilon: float) -> Option:
    """Return the option that would be chosen with ``epsilon`` more."""
    return rank_options(replace(question, epsilon=question.epsilon + epsilon))[0]


def rank_options(question: Question) -> list[Option]:
    """Return the best option of every grid and statistic, best first; errors as in :func:`plan`."""
    if all(weights is None for weights in question.contrast_weights):
        raise ConfigError(
            "privacy.mechanism",
            "there is nothing to plan for: no cluster has 2 units of a treatment arm and of "
            "control (with arms.same_shares = true small clusters are compared together)",
        )
    tried: list[_Splits] = []
    if question.mechanism != "cluster-optimal-dp":
        for grid in question.grids:
            tried += _try_statistics(question, "uniform-prior-dp", grid)
    if question.mechanism != "uniform-prior-dp" and question.no_tables is None:
        own = question.grids if question.mechanism == "cluster-optimal-dp" else question.table_grids
        tried += try_tables(own, lambda grid: _try_statistics(question, "cluster-optimal-dp", grid))
    least = min(float(splits.errors.min()) for splits in tried)
    allowed = least + tried[0].n_widths * np.log(MOST_ERROR)
    options = [_best_split(splits, allowed) for splits in tried]
    ranked = sorted(options, key=lambda option: (round(option.score, 9), len(option.grid)))
    return simpler_first(ranked)


def _try_statistics(
    question: Question, mechanism: PlannedMechanism, grid: tuple[float, ...]
) -> list["_Splits"]:
    return [
        _try_splits(question, mechanism, grid, statistic)
        for statistic in question.statistics
        if statistic != "means" or lattice_of(grid) is not None
    ]


@dataclass(frozen=True)
class _Splits:
    """Every split of ε that was tried on a grid with a statistic; shape [J] each."""

    mechanism: PlannedMechanism
    grid: tuple[float, ...]
    statistic: StatisticName
    shares: Floats
    square_shares: Floats
    arms_shares: Floats
    effects: list[tuple[int, float, PredictedEffect]]
    errors: Floats
    """Σ ln V by the declared guess."""
    scores: Floats
    noise_shares: Floats
    n_widths: int


def _try_splits(
    question: Question,
    mechanism: PlannedMechanism,
    grid: tuple[float, ...],
    statistic: StatisticName,
) -> _Splits:
    """Try every part of ε for the statistic and for sums of squares, all at once."""
    points = np.array(grid)
    learn_from = question.learn_from if mechanism == "cluster-optimal-dp" else "nothing"
    shares, square_shares, of_arms = shares_to_try(points, statistic, learn_from)
    split = (shares, square_shares, of_arms)
    guesses = (question.guess, pessimistic(question.values, question.guess))
    by_guess = [
        effects_of(
            question.shares,
            question.contrast_weights,
            unit_variance(question, points, statistic, *split, truth=guess, mechanism=mechanism),
            question.segment_weights,
        )
        for guess in guesses
    ]
    matter = [
        [effect for _, share, effect in effects if question.overall or share < 1.0]
        for effects in by_guess
    ]
    errors = np.sum([np.log(effect.variance) for effect in matter[0]], axis=0)
    widths = [np.log(effect.half_width**2) for effects in matter for effect in effects]
    scores: Floats = np.sum(widths, axis=0)
    drawn = [drawn_share(question.values, guess, points) for guess in guesses]
    noise_shares: Floats = np.sum(
        [
            1.0 - share * effect.sampling / effect.variance
            for share, effects in zip(drawn, matter, strict=True)
            for effect in effects
        ],
        axis=0,
    )
    return _Splits(
        mechanism,
        grid,
        statistic,
        *split,
        by_guess[0],
        errors,
        scores,
        noise_shares,
        len(widths),
    )


def _best_split(tried: _Splits, allowed: float) -> Option:
    """Return the split with the least score among allowed errors, or with the least error."""
    scores = np.where(tried.errors <= allowed + 1e-9, tried.scores, np.inf)
    at = int(np.argmin(np.round(scores, 9)))
    if np.isinf(scores[at]):
        at = int(np.argmin(np.round(tried.errors, 9)))
    return Option(
        tried.grid,
        tried.statistic,
        float(tried.shares[at]),
        float(tried.square_shares[at]),
        predictions(tried.effects, at),
        float(scores[at]),
        tried.mechanism,
        float(tried.noise_shares[at]),
        tried.n_widths,
        float(tried.arms_shares[at]),
    )


def unit_variance(
    question: Question,
    grid: Floats,
    statistic: StatisticName,
    shares: Floats,
    square_shares: Floats | None = None,
    arms_shares: Floats | None = None,
    truth: Floats | None = None,
    mechanism: PlannedMechanism | None = None,
) -> UnitVariance:
    """Return a unit's variances where ``shares`` of ε, [J], pay for ``statistic`` on ``grid``.

    ``square_shares`` pay for arms' sums of squares, ``arms_shares`` for arms' counts. Outcomes
    follow ``truth``, shape [V], in place of the declared guess; weights are always computed from
    the declared guess. ``mechanism`` is that of the question, where it is None.
    """
    squared = np.zeros(len(shares)) if square_shares is None else square_shares
    lattice = lattice_of(grid.tolist()) if statistic == "means" else None
    guess = project_guess(question.values, question.guess, grid)
    outcomes = guess if truth is None else project_guess(question.values, truth, grid)
    of_arms = np.zeros(len(shares)) if arms_shares is None else arms_shares
    splits = Splits(question.epsilon, question.delta, statistic, shares, squared, of_arms)
    if (mechanism or question.mechanism) == "cluster-optimal-dp":
        informed = Informed.of(question.sizes, question.learn_from)
        declared, response = table_noise(splits, grid, guess, outcomes, informed)
    else:
        declared, response = prior_noise(splits, grid, guess, outcomes)
    spent = question.epsilon * shares
    second, fourth = statistic_noise(grid, grid, lattice, statistic, spent)
    return UnitVariance(
        sampling=sampling_variance(question, grid, truth),
        response=response[0][:, np.newaxis],
        declared=declared[0],
        statistic=second,
        fourth=fourth,
        square=SquareVariance(
            response=response[1],
            declared=declared[1],
            statistic=squares_noise(grid, statistic, spent, question.epsilon * squared),
            by_arm=statistic == "means",
            widest=float(((grid[-1] - grid[0]) / 2.0) ** 2),
        ),
    )


def sampling_variance(question: Question, grid: Floats, truth: Floats | None = None) -> float:
    """Return V_s + V_round, the variance of an outcome on ``grid``, by the guess or ``truth``."""
    values, guess = question.values, question.guess if truth is None else truth
    deviation = values - float(guess @ values)
    return float(guess @ deviation**2) + rounding_variance(values, guess, grid)
