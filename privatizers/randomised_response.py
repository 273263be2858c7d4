"""Randomised response with a prior: the draw for every unit, and what it costs.

Each unit keeps its outcome with probability 1 − λ, else draws from q̃ of its stratum
(Algorithms 1 and 2 of Javanmard, Mirrokni and Pouget-Abadie 2025).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privatizers.accounting import UNIT
from privatizers.randomness import random_words

Indices = NDArray[np.integer]

_BATCH = 1 << 18  # words, thresholds and indices of a batch stay in the processor's cache


@dataclass(frozen=True)
class RandomisedResponse:
    """Randomised response over strata with a prior each.

    ``resampling_probability`` λ and every entry of ``prior`` q̃ (shape [S, K], rows adding up to
    one) are multiples of 2⁻⁵³, so the comparisons below realise exactly what is published.

    Guarantee: ln(1 + (1 − λ)/(λ γ)), γ the least entry any prior may have (Theorem 3.1's second
    term).
    """

    resampling_probability: float
    prior: NDArray[np.float64]

    def draw(self, levels: Indices, strata: Indices) -> NDArray[np.int64]:
        """Return the randomised level of every unit.

        P(ỹ = j | y = i) = (1 − λ)·1{i = j} + λ q̃_j,

        where ``levels`` are positions on the grid (0 … K − 1) and ``strata`` rows of q̃, both of
        shape [n]. Two 53-bit words a unit are compared with whole thresholds: the first decides
        whether to resample, the second where the draw falls.
        """
        thresholds = self._thresholds()
        rate = np.uint64(round(self.resampling_probability * UNIT))
        drawn = np.empty(len(levels), dtype=np.int64)
        for start in range(0, len(levels), _BATCH):
            part = slice(start, start + _BATCH)
            rows = strata[part]
            resample = random_words(len(rows)) < rate
            words = random_words(len(rows))
            fresh = np.zeros(len(rows), dtype=np.int64)
            for bound in thresholds:  # one pass an outcome, none over units
                fresh += words >= bound[rows]
            drawn[part] = np.where(resample, fresh, levels[part])
        return drawn

    def _thresholds(self) -> NDArray[np.uint64]:
        """Cumulative sums of q̃ in steps of 2⁻⁵³, the last left out: shape [K − 1, S]."""
        steps = np.rint(self.prior * UNIT).astype(np.uint64)
        return np.ascontiguousarray(np.cumsum(steps, axis=1)[:, :-1].T)
