"""The interface of user-level mechanisms: a pooling rule and a prior."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from privatizers.domain.strata import small_clusters_share
from privatizers.mechanisms.parameters import Parameters
from privatizers.mechanisms.randomised_response import RandomisedResponse
from schemas.arrays import Floats, Ints


@dataclass(frozen=True)
class StrataRelease:
    """The published statistic of the strata, and the response that draws units' outcomes."""

    noisy_counts: Ints | None
    """Ñ, shape [S, K]; None where none are published."""
    response: RandomisedResponse
    noisy_sums: Ints | None = None
    """S̃ in grid steps, shape [S]; None where none are published."""


class OwnPools:
    """A mechanism's pools, where each is one cluster and small clusters share one."""

    def pool_of(self, sizes: Ints, min_stratum: int) -> Ints:
        """Give each cluster a pool; those with an arm under ``min_stratum`` units share one."""
        return small_clusters_share(sizes, min_stratum)


class Mechanism(Protocol):
    """A user-level mechanism; a stratum here is a (pool, arm)."""

    name: ClassVar[str]

    @property
    def parameters(self) -> Parameters:
        """λ, γ, σ and K, as realised."""

    def pool_of(self, sizes: Ints, min_stratum: int) -> Ints:
        """Assign clusters to pools from public ``sizes`` [clusters, arms]; pools count from 0."""

    def strata(self, counts: Ints) -> StrataRelease:
        """Draw the strata's statistic and prior from raw ``counts`` of shape [S, K], n ≥ 1 each."""

    def expected_prior(self, guess: Floats) -> Floats:
        """Return about the prior of a large stratum with outcomes like ``guess``; [K] each."""
