"""Cluster-Free-DP: Cluster-DP with one prior per arm, the same in all clusters.

The special case of Algorithm 2 of Javanmard, Mirrokni and Pouget-Abadie (2025) in which all units
share a cluster. The guarantee is Cluster-DP's: ε = 2/σ + ln(1 + (1 − λ)/(λ γ)), δ = 0 (1/σ for
K = 2). Arms are disjoint, so two priors cost as much as one. Estimates stay stratified by cluster:
that uses public facts alone.
"""

from dataclasses import dataclass
from typing import ClassVar

from privatizers.domain.strata import everyone_shares
from privatizers.mechanisms.cluster_dp import ClusterDP
from schemas.arrays import Ints


@dataclass(frozen=True)
class ClusterFreeDP(ClusterDP):
    """One prior per arm."""

    name: ClassVar[str] = "cluster-free-dp"

    def pool_of(self, sizes: Ints, min_stratum: int) -> Ints:  # noqa: ARG002 - the protocol's
        """Give all clusters one pool."""
        return everyone_shares(sizes)
