"""The standard errors that a given mechanism is predicted to have.

For a mechanism whose prior is made of noisy counts the noise depends on the values of the counts.
It is averaged over 512 of their possible values, spread evenly, because a plan has to be the same
whenever it is made. Nothing is drawn.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from estimators.horvitz_thompson import difference_statistic
from estimators.published_guess import evened, rounding
from estimators.response.pool_statistics import (
    Cumulants,
    MeansStatisticNoise,
    PoolCountsNoise,
    ResponseNoise,
)
from estimators.special import ndtri
from estimators.strata.contrast_strata import MIN_UNITS
from privatizers.domain.strata import lay_out
from privatizers.mechanisms.aggregate_mechanism import AggregateMechanism
from privatizers.mechanisms.cluster_dp import ClusterDP
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.mechanisms.mechanism import Mechanism
from privatizers.mechanisms.parameters import AggregateParameters, Parameters, StrataStatistic
from privatizers.mechanisms.prior import truncated_prior
from privatizers.planning.grids import project_guess
from privatizers.planning.planner import sampling_variance
from privatizers.planning.predicted_variance import (
    ContrastWeights,
    SquareVariance,
    UnitVariance,
    contrast_weights,
)
from privatizers.planning.predictions import Prediction, effects_of, predictions
from privatizers.planning.question import GuessesWithin, Question
from privatizers.planning.thinned_sizes import even_points
from schemas.arrays import Floats, Ints

_SCENARIOS = 512
"""Possible values of counts and noise that are averaged over."""

_ALIKE_AT = 7
"""Values, spread evenly, that nearly all outcomes may have."""

_NOT_ALIKE = 0.01
"""The part of people that are spread evenly where outcomes are nearly all alike."""

_MOST_SIZES = 40
"""Sizes of pools that noise is computed for; between them it is interpolated."""


def forecast(
    question: Question,
    grid: tuple[float, ...],
    mechanism: Mechanism | ClusterOptimalDP | AggregateMechanism,
    truth: Floats | None = None,
) -> tuple[Prediction, ...]:
    """Predict the standard error of every effect that matters from a release on ``grid``.

    Where units are published, half of the interval is predicted too. With a right guess at outcomes
    the prediction is right to about 10 %; with the uniform guess for skewed outcomes it is too
    great, up to 14 times. Tables that are learnt from counts are taken to be as noisy as that for
    the declared guess. An arm that cannot be compared has no prediction, and no error is raised;
    segments have none where no units are published. Outcomes follow ``truth``, shape [V], if that
    is given; weights are computed from the guess.
    """
    points = np.array(grid)
    if isinstance(mechanism, AggregateMechanism):
        outcomes = question.guess if truth is None else truth
        return _forecast_aggregates(replace(question, guess=outcomes), points, mechanism)
    pool_of = mechanism.pool_of
    by_arm, within = question.contrast_weights_in(pool_of), question.segment_weights_in(pool_of)
    guess = project_guess(question.values, question.guess, points)
    effects = []
    for arm, weights in enumerate(by_arm, start=1):
        if weights is not None:
            unit = _unit_variance(question, points, guess, mechanism, weights, truth)
            others: list[ContrastWeights | None] = [None] * (arm - 1)
            effects += effects_of(question.shares, [*others, weights], unit, within)
    return predictions(effects, 0)


def forecast_range(
    question: Question,
    grid: tuple[float, ...],
    mechanism: Mechanism | ClusterOptimalDP | AggregateMechanism,
    with_sums: Callable[[tuple[Prediction, ...], Question], tuple[Prediction, ...]],
) -> tuple[tuple[float, float], ...]:
    """Predict the least and the greatest standard error of every effect, where nothing is known.

    They are of outcomes that are nearly all alike, at one of a few values between the ends, and of
    outcomes that are half at one end and half at the other, beside those that are spread like the
    guess. In the order of :func:`forecast`. ``with_sums`` gives predictions as they are with sums
    of margins, by the outcomes that are the guess of a question.
    """
    size = len(question.values)
    ends = np.zeros(size)
    ends[[0, -1]] = 0.5
    at = np.unique(np.linspace(0, size - 1, _ALIKE_AT).round().astype(np.int64))
    alike = evened(np.eye(size)[at], _NOT_ALIKE)
    found = [
        with_sums(forecast(question, grid, mechanism, truth), replace(question, guess=truth))
        for truth in (*alike, ends, question.guess)
    ]
    errors = zip(*([one.std_error for one in predicted] for predicted in found), strict=True)
    return tuple((min(of_each), max(of_each)) for of_each in errors)


def _forecast_aggregates(
    question: Question, grid: Floats, mechanism: AggregateMechanism
) -> tuple[Prediction, ...]:
    """Predict without randomised response, from the statistic alone.

    V = V_s Σ b²/n + Σ T_p² V_stat/N_p². Strata are whole pools; those of several clusters count
    only where all were randomised with the same arm shares. The standard error that a release of
    means or differences states is greater: V_s is not known to it, so it takes the greatest that
    the grid allows.
    """
    parameters = mechanism.parameters
    sampling = sampling_variance(question, grid)
    pool_of = mechanism.pool_of(question.sizes, question.min_stratum)
    members = np.bincount(pool_of)
    pools = np.zeros((len(members), question.sizes.shape[1]), dtype=np.int64)
    np.add.at(pools, pool_of, question.sizes)
    sizes = pools[(members == 1) | question.same_shares]
    if len(sizes) == 0:
        return ()
    if parameters.differences:
        variances = [_difference_variances(sizes, sampling, grid, parameters)]
    else:
        strata = lay_out([], [], sizes, np.arange(len(sizes)))
        by_arm = contrast_weights(strata, same_shares=question.same_shares)
        statistic = statistic_noise_of(grid, parameters).second
        variances = [
            (0.0, 0.0)
            if weights is None
            else (
                float(weights.sampling) * sampling,
                statistic * float(weights.pool_shares @ weights.pool_units**-2.0),
            )
            for weights in by_arm
        ]
    return tuple(
        Prediction(
            arm, None, float(np.sqrt(of_units + noise)), sampling_std_error=float(np.sqrt(of_units))
        )
        for arm, (of_units, noise) in enumerate(variances, start=1)
        if of_units + noise > 0.0
    )


def _difference_variances(
    sizes: Ints, sampling: float, grid: Floats, parameters: AggregateParameters
) -> tuple[float, float]:
    """Return Σ_p b_p² (V_s/n_0 + V_s/n_1) and Σ_p b_p² V_D.

    Both are 0 where no pool has two units of both arms.
    """
    used = sizes[(sizes >= MIN_UNITS).all(axis=1)]
    if len(used) == 0 or parameters.lattice is None:
        return 0.0, 0.0
    share = used.sum(axis=1) / used.sum()
    control, treated = used.T
    step = parameters.lattice.step_of(grid.tolist())
    noise = difference_statistic(share, treated, control, parameters.noise_scale, step).variance
    of_units = np.sum(share**2 * (sampling / control + sampling / treated))
    return float(of_units), float(np.sum(share**2 * noise))


def planned_noise(
    mechanism: Mechanism | ClusterOptimalDP, grid: Floats, guess: Floats
) -> ResponseNoise:
    """Return what the response adds to a unit's variance by a guess, never by what was drawn."""
    if isinstance(mechanism, ClusterOptimalDP):
        return mechanism.response_noise(guess)
    rate = mechanism.parameters.resampling_probability
    return ResponseNoise.of_prior(grid, guess, mechanism.expected_prior(guess), rate)


def _noise_within(
    question: Question,
    within: GuessesWithin,
    grid: Floats,
    mechanism: ClusterOptimalDP,
    truth: Floats | None,
) -> tuple[ResponseNoise, ResponseNoise] | None:
    """Return a unit's noise by the guesses of strata and by the truth; None by a table for all."""
    if not mechanism.has_published_tables:
        return None
    onto_grid = rounding(question.values, grid, nearest=False)
    guesses = evened(within.guesses, question.even_part or 0.0) @ onto_grid
    outcomes = within.guesses if truth is None else np.broadcast_to(truth, within.guesses.shape)
    by_guess, by_truth = (
        mechanism.noise_within(guesses, one, within.n_units)
        for one in (guesses, outcomes @ onto_grid)
    )
    noise, found = (
        ResponseNoise(within.mean(one.of_mean), within.mean(one.of_square))
        for one in (by_guess, by_truth)
    )
    return noise, found


def _unit_variance(
    question: Question,
    grid: Floats,
    guess: Floats,
    mechanism: Mechanism | ClusterOptimalDP,
    weights: ContrastWeights,
    truth: Floats | None,
) -> UnitVariance:
    parameters, noise = mechanism.parameters, planned_noise(mechanism, grid, guess)
    outcomes = guess if truth is None else project_guess(question.values, truth, grid)
    found = noise if truth is None else planned_noise(mechanism, grid, outcomes)
    within = question.within
    if within is not None and isinstance(mechanism, ClusterOptimalDP):
        noise, found = _noise_within(question, within, grid, mechanism, truth) or (noise, found)
    response = np.array([[found.of_mean]])
    if isinstance(mechanism, ClusterDP):
        response = _own_prior_noise(grid, outcomes, mechanism.parameters, weights.pool_units)
        response = response[np.newaxis]
    statistic = statistic_noise_of(grid, parameters)
    return UnitVariance(
        spread=float(guess @ (grid - guess @ grid) ** 2),
        sampling=sampling_variance(question, grid, truth),
        response=response,
        declared=np.array([noise.of_mean]),
        statistic=np.array([statistic.second]),
        fourth=np.array([statistic.fourth]),
        square=SquareVariance(
            response=np.array([found.of_square]),
            declared=np.array([noise.of_square]),
            statistic=np.array([_square_variance(grid, parameters)]),
            by_arm=parameters.squares is not None,
            widest=float(((grid[-1] - grid[0]) / 2.0) ** 2),
        ),
    )


def statistic_noise_of(grid: Floats, parameters: StrataStatistic) -> Cumulants:
    """Return the noise of a pool's sum by the statistic that these parameters publish."""
    noise = parameters.noise_on(grid)
    if noise is None:
        return Cumulants(float("inf"), 0.0)
    return noise.of_outcomes if isinstance(noise, MeansStatisticNoise) else noise.of_sum(grid)


def _square_variance(grid: Floats, parameters: StrataStatistic) -> float:
    """Return the noise variance of squares: an arm's sums, or a pool's by counts; else infinite."""
    if parameters.squares is not None:
        return parameters.squares.variance(grid.tolist())
    noise = parameters.noise_on(grid)
    if not isinstance(noise, PoolCountsNoise):
        return float("inf")
    return noise.of_sum((grid - grid.mean()) ** 2).second


def _own_prior_noise(
    grid: Floats, guess: Floats, parameters: Parameters, pool_units: Floats
) -> Floats:
    """Return the noise v of every pool, [U], averaged over the priors that noisy counts give."""
    if parameters.noise_scale is None:
        raise ValueError("a prior of noisy counts needs a noise scale")
    at = np.unique(np.quantile(pool_units, np.linspace(0, 1, _MOST_SIZES), method="nearest"))
    n = np.repeat(at, _SCENARIOS)[:, np.newaxis]
    counts, noise = _scenarios(guess, parameters.noise_scale)
    released = n * guess + np.sqrt(n) * np.tile(counts, (len(at), 1))
    released += np.tile(noise, (len(at), 1))
    prior = truncated_prior(released, n[:, 0], parameters.truncation_threshold)
    rate = parameters.resampling_probability
    odds = rate / (1.0 - rate)
    mean = prior @ grid
    about_mean = (mean - guess @ grid) ** 2 + guess @ (grid - guess @ grid) ** 2
    spread = prior @ grid**2 - mean**2
    response = odds * about_mean + odds * (1.0 + odds) * spread
    average = response.reshape(len(at), _SCENARIOS).mean(axis=1)
    noise_of_sizes: Floats = np.interp(pool_units, at, average)
    return noise_of_sizes


def _scenarios(guess: Floats, noise_scale: float) -> tuple[Floats, Floats]:
    """Return possible values of counts and noise, all about equally likely; [scenarios, K] each.

    Counts are given as (N − n p)/√n, by the normal limit of their law; noise by the continuous
    Laplace law, once with either sign where there is one noisy count and its complement (K = 2).
    """
    k = len(guess)
    even = even_points(_SCENARIOS, 2 * k, shift=0.5)
    normal, root = ndtri(even[:, :k]), np.sqrt(guess)
    counts = root * normal - guess * (normal @ root)[:, np.newaxis]
    side = even[:, k:] - 0.5
    noise = -noise_scale * np.sign(side) * np.log1p(-2.0 * np.abs(side))
    if k == 2:
        noise[:, 0] = -noise[:, 1]
    return counts, noise
