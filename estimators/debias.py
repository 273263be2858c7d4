"""Undoing randomised response on average: the debias vector yᵀQ⁻¹ and its noise.

Formulae of Javanmard, Mirrokni and Pouget-Abadie (2025), §3.2, brought to O(K): Q is a scaled
identity plus a matrix of rank one, so no matrix is inverted.
"""

import numpy as np
from numpy.typing import NDArray


def debias_vector(
    outcomes: NDArray[np.float64],
    prior: NDArray[np.float64],
    resampling_probability: float,
) -> NDArray[np.float64]:
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
    return (outcomes - rate * mean[..., np.newaxis]) / (1.0 - rate)


def prior_moments(
    outcomes: NDArray[np.float64], prior: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and variance of an outcome drawn from q̃, each of shape [...].

    ``outcomes`` has shape [K], ``prior`` [..., K]. The variance is taken about the mean, so it
    does not cancel where outcomes are large.
    """
    mean = prior @ outcomes
    deviation = outcomes - mean[..., np.newaxis]
    return mean, np.sum(prior * deviation**2, axis=-1)


def response_noise_variance(
    n_units: NDArray[np.float64],
    outcome_mean: NDArray[np.float64],
    outcome_variance: NDArray[np.float64],
    prior_mean: NDArray[np.float64],
    prior_variance: NDArray[np.float64],
    resampling_probability: float,
) -> NDArray[np.float64]:
    """Estimate what randomised response adds to the variance of a stratum's debiased mean.

    V̂_RR = r (1 + r) [ mean (ỹ − m)² + (1 − λ) Var_q̃(y) ] / n,  r = λ / (1 − λ),

    where

    - n is ``n_units``,
    - mean (ỹ − m)² comes from ``outcome_mean`` and ``outcome_variance``: the mean and the *sample*
      variance (divisor n − 1; 0 where n = 1) of the randomised outcomes of the stratum,
    - m and Var_q̃ are ``prior_mean`` and ``prior_variance`` (:func:`prior_moments`),
    - λ is ``resampling_probability``.

    Unbiased given q̃, and never negative. All arrays share one shape; the unit is that of the
    outcome, squared. A stratum without units gives NaN.
    """
    rate = resampling_probability
    odds = rate / (1.0 - rate)
    with np.errstate(invalid="ignore", divide="ignore"):
        second_moment = (
            outcome_variance * (n_units - 1.0) / n_units + (outcome_mean - prior_mean) ** 2
        )
        return odds * (1.0 + odds) * (second_moment + (1.0 - rate) * prior_variance) / n_units
