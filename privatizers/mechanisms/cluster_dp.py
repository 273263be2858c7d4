"""Cluster-DP: outcomes resampled from the noisy distribution of their cluster and arm.

Algorithm 2 of Javanmard, Mirrokni and Pouget-Abadie (2025). Guarantee, for counts and outcomes
published together: ε = 2/σ + ln(1 + (1 − λ)/(λ γ)), δ = 0 (1/σ for K = 2, one noise). Their
Theorem 3.1 has 1/σ, and a branch 2/γ, which do not hold for this release; `cluster_dp.md` has the
proof and the counterexample.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privatizers.domain.strata import small_clusters_share
from privatizers.mechanisms.mechanism import StrataRelease
from privatizers.mechanisms.parameters import Parameters
from privatizers.mechanisms.prior import realised_prior, truncated_prior
from privatizers.mechanisms.randomised_response import RandomisedResponse


@dataclass(frozen=True)
class ClusterDP:
    """A prior per pool and arm, a pool being one cluster (small clusters share one)."""

    name: ClassVar[str] = "cluster-dp"
    parameters: Parameters

    def pool_of(self, sizes: NDArray[np.int64], min_stratum: int) -> NDArray[np.int64]:
        """Each cluster its own pool; those with an arm under ``min_stratum`` units share one."""
        return small_clusters_share(sizes, min_stratum)

    def expected_prior(self, guess: NDArray[np.float64]) -> NDArray[np.float64]:
        """The guess, clipped to γ and renormalised."""
        return guessed_prior(guess, self.parameters)

    def strata(self, counts: NDArray[np.int64]) -> StrataRelease:
        """Noise the counts, and make the prior of the noisy counts alone."""
        return noisy_prior(counts, self.parameters)


def guessed_prior(guess: NDArray[np.float64], parameters: Parameters) -> NDArray[np.float64]:
    """Return the prior of shares that are known without noise, shape [K]."""
    prior: NDArray[np.float64] = truncated_prior(
        guess[np.newaxis], np.ones(1), parameters.truncation_threshold
    )[0]
    return prior


def noisy_prior(counts: NDArray[np.int64], parameters: Parameters) -> StrataRelease:
    """Ñ = N + Z and q̃ = renormalised clip(Ñ/n, γ, 1), for ``counts`` of shape [S, K]."""
    if parameters.counts is None:
        msg = "this mechanism's prior is made of noisy counts: it needs a noise scale"
        raise ValueError(msg)
    noisy = parameters.counts.noised(counts)
    gamma = parameters.truncation_threshold
    prior = realised_prior(truncated_prior(noisy, counts.sum(axis=1), gamma), gamma)
    return StrataRelease(noisy, RandomisedResponse(parameters.resampling_probability, prior))
