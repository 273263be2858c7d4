"""Noisy histogram: the counts of every pool and arm, with all of ε, and nothing else.

Algorithm 4 of Javanmard, Mirrokni and Pouget-Abadie (2025), with twice its noise: their Laplace
scale of 1/(n ε) for a share is for one changed cell, but a substitution changes two (Proposition
A.3 corrected; `aggregates.md`). σ = 2/ε in units is a scale of 2/(n ε) for a share; σ = 1/ε for
K = 2, where one noisy count and its complement are published.
"""

from dataclasses import dataclass
from typing import ClassVar

from privatizers.mechanisms.aggregate_mechanism import AggregateMechanism, AggregateRelease
from schemas.arrays import Ints


@dataclass(frozen=True)
class NoisyHistogram(AggregateMechanism):
    """Noisy counts per pool and arm. Guarantee: ε = 2/σ, or 1/σ for K = 2, δ = 0."""

    name: ClassVar[str] = "noisy-histogram"

    def statistics(self, counts: Ints, cell_of: Ints) -> AggregateRelease:  # noqa: ARG002 - no arms are compared here
        """Add noise to every count; for K = 2 the lower count is n less the upper one."""
        noise = self.parameters.counts
        if noise is None:
            raise ValueError("a histogram is made of counts, not of sums on a lattice")
        return AggregateRelease(noisy_counts=noise.noised(counts))
