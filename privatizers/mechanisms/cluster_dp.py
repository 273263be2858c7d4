"""Cluster-DP: outcomes resampled from the noisy distribution of their cluster and arm.

Algorithm 2 of Javanmard, Mirrokni and Pouget-Abadie (2025). Guarantee, for counts and outcomes
published together: ε = 2/σ + ln(1 + (1 − λ)/(λ γ)), δ = 0 (1/σ for K = 2, one noise). Their
Theorem 3.1 has 1/σ, and a branch 2/γ; both do not hold for this release. `cluster_dp.md` has the
proof and the counterexample.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privatizers.mechanisms.mechanism import OwnPools, StrataRelease
from privatizers.mechanisms.parameters import Parameters
from privatizers.mechanisms.prior import realised_prior, truncated_prior
from privatizers.mechanisms.randomised_response import RandomisedResponse
from schemas.arrays import Floats, Ints

_SLAB = 1 << 16  # cells whose priors are computed at a time: they stay in the processor's cache


@dataclass(frozen=True)
class ClusterDP(OwnPools):
    """A prior per pool and arm, a pool being one cluster (small clusters share one)."""

    name: ClassVar[str] = "cluster-dp"
    parameters: Parameters

    def expected_prior(self, guess: Floats) -> Floats:
        """Return the guess, clipped to γ and renormalised: the prior of shares without noise."""
        gamma = self.parameters.truncation_threshold
        prior: Floats = truncated_prior(guess[np.newaxis], np.ones(1), gamma)[0]
        return prior

    def strata(self, counts: Ints) -> StrataRelease:
        """Add noise to the counts, and compute the prior from the noisy counts alone."""
        return noisy_prior(counts, self.parameters)


def noisy_prior(counts: Ints, parameters: Parameters) -> StrataRelease:
    """Draw Ñ = N + Z and q̃ = renormalised clip(Ñ/n, γ, 1), for ``counts`` of shape [S, K]."""
    if parameters.counts is None:
        raise ValueError("this mechanism's prior is made of noisy counts: it needs a noise scale")
    noisy = parameters.counts.noised(counts)
    gamma = parameters.truncation_threshold
    n_units, prior = counts.sum(axis=1), np.empty(counts.shape)
    step = max(1, _SLAB // counts.shape[1])
    for start in range(0, len(counts), step):
        part = slice(start, start + step)
        prior[part] = realised_prior(truncated_prior(noisy[part], n_units[part], gamma), gamma)
    return StrataRelease(noisy, RandomisedResponse(parameters.resampling_probability, prior))
