"""The debias vector yᵀQ⁻¹, which undoes randomised response on average, and its noise.

Formulas of Javanmard, Mirrokni and Pouget-Abadie (2025), §3.2, brought to O(K): Q is a scaled
identity plus a matrix of rank one, so no matrix is inverted.
"""

import numpy as np

from schemas.arrays import Floats

_BLOCK = 1 << 12
"""Rows that are worked on at once: what is made of them stays in the processor's cache."""


def debias_vector(outcomes: Floats, prior: Floats, resampling_probability: float) -> Floats:
    """Return yᵀQ⁻¹, the weight that makes each randomised outcome unbiased.

    v_j = (y_j − λ m) / (1 − λ), m = Σ_y y q̃_y,

    where Q[y′, y] = (1 − λ)·1{y′ = y} + λ q̃_{y′}, so that E[v(ỹ)] = y given q̃, and

    - y is ``outcomes``, shape [K]; any other function of the grid may stand in its place,
    - q̃ is ``prior``, shape [..., K], each row adding up to one,
    - λ is ``resampling_probability``, in (0, 1).

    The result has the shape [..., K] and the unit of ``outcomes``.
    """
    mean = prior @ outcomes
    rate = resampling_probability
    apart: Floats = outcomes - rate * mean[..., np.newaxis]
    return np.divide(apart, 1.0 - rate, out=apart)


def prior_moments(outcomes: Floats, prior: Floats) -> tuple[Floats, Floats]:
    """Return the mean and variance of an outcome drawn from q̃, each of shape [...].

    ``outcomes`` has shape [K], ``prior`` [..., K]. The variance is taken about the mean, so it
    does not cancel where outcomes are large.
    """
    mean = prior @ outcomes
    of_rows, rows = mean.reshape(-1), prior.reshape(-1, len(outcomes))
    variance = np.empty_like(of_rows)
    for start in range(0, len(rows), _BLOCK):
        block = slice(start, start + _BLOCK)
        square = outcomes - of_rows[block, np.newaxis]
        square *= square
        square *= rows[block]
        np.sum(square, axis=-1, out=variance[block])
    return mean, variance.reshape(mean.shape)


def noise_of_outcomes(outcomes: Floats, prior: Floats, resampling_probability: float) -> Floats:
    """Return û of each randomised outcome, shape [..., K]; arguments as :func:`debias_vector`.

    û(ỹ) = r (1 + r) [(ỹ − m)² + (1 − λ) Var_q̃], which is right on average for what the response
    adds to a unit's variance, whatever its outcome: Σ a² û is the noise of Σ a v(ỹ).
    """
    mean, variance = prior_moments(outcomes, prior)
    square = outcomes - mean[..., np.newaxis]
    square *= square
    one, spread = np.ones(1), variance[..., np.newaxis]
    return response_noise_variance(one, square, spread, resampling_probability, out=square)


def response_noise_variance(
    n_units: Floats,
    square_about_prior: Floats,
    prior_variance: Floats,
    resampling_probability: float,
    out: Floats | None = None,
) -> Floats:
    """Estimate the variance that randomised response adds to a debiased mean.

    V̂_RR = r (1 + r) [ mean (f(ỹ) − m)² + (1 − λ) Var_q̃(f) ] / n,  r = λ / (1 − λ),

    where

    - f is the function that is averaged: the outcome, or any function of it,
    - n is ``n_units``,
    - mean (f(ỹ) − m)² is ``square_about_prior``, over the randomised outcomes, m = E_q̃ f,
    - Var_q̃(f) is ``prior_variance`` (:func:`prior_moments`),
    - λ is ``resampling_probability``.

    Unbiased given q̃, and never negative. All arrays share one shape; the unit is that of f,
    squared. The result is put into ``out``, where that is given.
    """
    odds = resampling_probability / (1.0 - resampling_probability)
    added = (1.0 - resampling_probability) * prior_variance
    noise = np.add(square_about_prior, added, out=out)
    noise *= odds * (1.0 + odds)
    noise /= n_units
    return noise
