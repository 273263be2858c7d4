"""The prior q̃ that resampled outcomes are drawn from, computed from noisy counts.

Algorithm 2 of Javanmard, Mirrokni and Pouget-Abadie (2025), steps 2 and 3, then rounded to whole
multiples of 2⁻⁵³, so that the published probabilities are exactly those used.
"""

import numpy as np

from privatizers.noise.randomness import UNIT
from schemas.arrays import Floats, Ints


def truncated_prior(noisy_counts: Ints | Floats, n_units: Ints | Floats, gamma: float) -> Floats:
    """Clip noisy shares to [γ, 1] and renormalise them without going below γ.

    q_y = clip(Ñ_y / n, γ, 1);  ζ_y = q_y − γ where Σq > 1, else 1 − q_y;
    q̃_y = q_y + ζ_y / Σζ · (1 − Σq),

    where Ñ is ``noisy_counts``, shape [S, K], n is ``n_units``, shape [S], at least 1 each, and γ
    is ``gamma``, in (0, 1/K]. Returns q̃, shape [S, K]: q̃ ≥ γ and Σq̃ = 1 in exact arithmetic
    (:func:`realised_prior` makes it so in doubles). It is computed from the noisy counts and
    public numbers alone, so it costs nothing beyond them.
    """
    share = np.clip(noisy_counts / n_units[:, np.newaxis], gamma, 1.0)
    total = share.sum(axis=1, keepdims=True)
    slack = np.where(total > 1.0, share - gamma, 1.0 - share)
    whole = slack.sum(axis=1, keepdims=True)
    step = np.divide(slack, whole, out=np.zeros_like(slack), where=whole > 0)
    prior: Floats = share + step * (1.0 - total)
    return prior


def uniform_prior(n_strata: int, n_outcomes: int) -> Floats:
    """Return q̃ = 1/K for every stratum, shape [S, K]."""
    return np.full((n_strata, n_outcomes), 1.0 / n_outcomes)


def realised_prior(prior: Floats, gamma: float) -> Floats:
    """Round a prior to multiples of 2⁻⁵³ that are at least γ and add up to one, exactly.

    ``prior`` has the shape [S, K]; ``gamma`` is a multiple of 2⁻⁵³ with K γ ≤ 1. A cell moves by
    at most about K · 2⁻⁵³.
    """
    floor = round(gamma * UNIT)
    steps = np.maximum(np.floor(prior * UNIT).astype(np.int64), floor)
    over = np.maximum(steps.sum(axis=1, keepdims=True) - UNIT, 0)
    spare = steps - floor
    before = np.cumsum(spare, axis=1) - spare
    # The excess is taken from the first cells that are above the floor.
    steps -= np.clip(over - before, 0, spare)
    largest = steps.argmax(axis=1)
    steps[np.arange(len(steps)), largest] += UNIT - steps.sum(axis=1)
    return steps / UNIT
