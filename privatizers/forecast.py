"""What a given mechanism is predicted to tell, beside what the planner would choose.

For a mechanism whose prior is made of noisy counts the noise depends on how the counts come out: it
is averaged over 512 ways for them to do so, spread evenly (Sobol's points), as a plan has to be the
same whenever it is made. Nothing is drawn.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import qmc

from estimators.combining import Cumulants, MeansNoise, counts_noise, unit_noise
from privatizers.mechanism import Mechanism, Parameters
from privatizers.planner import (
    Prediction,
    Question,
    predictions,
    projected,
    sampling_variance,
    variances,
)
from privatizers.prediction import Reach, UnitVariance
from privatizers.prior import truncated_prior

Floats = NDArray[np.float64]

_WAYS = 512
_MOST_SIZES = 40
"""Sizes of pools that are drawn for; between them the noise is interpolated."""


def forecast(
    question: Question, grid: tuple[float, ...], mechanism: Mechanism
) -> tuple[Prediction, ...]:
    """Predict the standard error of every effect that matters from a release on ``grid``.

    Raises no error where an arm cannot be compared: it has no prediction then.
    """
    points = np.array(grid)
    among = question.reaches_in(mechanism.pool_of(question.sizes, question.min_stratum))
    guess = projected(question.values, question.guess, points)
    found = []
    for arm, reach in enumerate(among, start=1):
        if reach is not None:
            unit = _unit_variance(question, points, guess, mechanism, reach)
            alone: list[Reach | None] = [None] * (arm - 1)
            found += variances(question, [*alone, reach], unit)
    return predictions(found, 0)


def _unit_variance(
    question: Question, grid: Floats, guess: Floats, mechanism: Mechanism, reach: Reach
) -> UnitVariance:
    parameters = mechanism.parameters
    rate, prior = parameters.resampling_probability, mechanism.expected_prior(guess)
    declared = unit_noise(grid, guess, prior, rate)
    response = np.array([[declared]])
    if mechanism.name != "uniform-prior-dp":
        response = _own_prior_noise(grid, guess, parameters, reach.pool_units)[np.newaxis]
    sampling = sampling_variance(question, grid)
    statistic = np.array([_statistic_variance(grid, parameters)])
    return UnitVariance(sampling, response, np.array([declared]), statistic)


def _statistic_variance(grid: Floats, parameters: Parameters) -> float:
    """V_stat of what a mechanism with these parameters publishes of a pool."""
    if parameters.noise_scale is None:
        return float("inf")
    if parameters.lattice is not None:
        noise = Cumulants.of_discrete_laplace(parameters.noise_scale)
        return MeansNoise(noise, parameters.lattice.step_of(grid.tolist())).of_outcomes.second
    return counts_noise(parameters.noise_scale, parameters.strata_statistic).of_sum(grid).second


def _own_prior_noise(
    grid: Floats, guess: Floats, parameters: Parameters, pool_units: Floats
) -> Floats:
    """Noise v, averaged over the priors that noisy counts make; for every pool, shape [U]."""
    if parameters.noise_scale is None:
        msg = "a prior of noisy counts needs a noise scale"
        raise ValueError(msg)
    at = np.unique(np.quantile(pool_units, np.linspace(0, 1, _MOST_SIZES), method="nearest"))
    n = np.repeat(at, _WAYS)[:, np.newaxis]
    counts, noise = _ways(guess, parameters.noise_scale)
    released = n * guess + np.sqrt(n) * np.tile(counts, (len(at), 1))
    released += np.tile(noise, (len(at), 1))
    prior = truncated_prior(released, n[:, 0], parameters.truncation_threshold)
    rate = parameters.resampling_probability
    odds = rate / (1.0 - rate)
    mean = prior @ grid
    about = (mean - guess @ grid) ** 2 + guess @ (grid - guess @ grid) ** 2
    spread = prior @ grid**2 - mean**2
    drawn = odds * about + odds * (1.0 + odds) * spread
    average = drawn.reshape(len(at), _WAYS).mean(axis=1)
    noise_of_sizes: Floats = np.interp(pool_units, at, average)
    return noise_of_sizes


def _ways(guess: Floats, noise_scale: float) -> tuple[Floats, Floats]:
    """Ways for counts and noise to come out, each about as likely as another; [ways, K] both.

    Counts as (N − n p)/√n, by the normal limit of their law; noise by the continuous Laplace law,
    and of both signs where there is one noisy count and its complement (K = 2).
    """
    k = len(guess)
    even = qmc.Sobol(2 * k, scramble=False).random(_WAYS) + 0.5 / _WAYS
    normal, root = ndtri(even[:, :k]), np.sqrt(guess)
    counts = root * normal - guess * (normal @ root)[:, np.newaxis]
    side = even[:, k:] - 0.5
    noise = -noise_scale * np.sign(side) * np.log1p(-2.0 * np.abs(side))
    if k == 2:
        noise[:, 0] = -noise[:, 1]
    return counts, noise
