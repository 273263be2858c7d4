"""Uniform-Prior-DP: classical randomised response over the grid, with or without a statistic.

Algorithm 1 of Javanmard, Mirrokni and Pouget-Abadie (2025). The prior is 1/K and uses no data, so
γ = 1/K, and without counts the release is locally private: ε = ln(1 + K (1 − λ)/λ), δ = 0. Counts
published beside it cost 2/σ more (1/σ for K = 2), and noisy sums M/σ. The prior uses neither, but
a reader sees them too.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privatizers.mechanisms.mechanism import OwnPools, StrataRelease
from privatizers.mechanisms.parameters import Parameters
from privatizers.mechanisms.prior import realised_prior, uniform_prior
from privatizers.mechanisms.randomised_response import RandomisedResponse
from schemas.arrays import Floats, Ints


@dataclass(frozen=True)
class UniformPriorDP(OwnPools):
    """The prior 1/K everywhere; counts or sums, where requested, per pool and arm."""

    name: ClassVar[str] = "uniform-prior-dp"
    parameters: Parameters

    def expected_prior(self, guess: Floats) -> Floats:
        """Return 1/K, for any guess."""
        prior: Floats = uniform_prior(1, len(guess))[0]
        return prior

    def strata(self, counts: Ints) -> StrataRelease:
        """Add noise to the counts or their sums if published; the prior uses neither."""
        parameters = self.parameters
        n_strata, n_outcomes = counts.shape
        one = realised_prior(uniform_prior(1, n_outcomes), parameters.truncation_threshold)
        prior = np.repeat(one, n_strata, axis=0)
        noisy = None if parameters.counts is None else parameters.counts.noised(counts)
        sums = None if parameters.sums is None else parameters.sums.noised(counts)
        response = RandomisedResponse(parameters.resampling_probability, prior)
        return StrataRelease(noisy, response, sums)
