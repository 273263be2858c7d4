"""The interface of aggregate mechanisms: noise on statistics of strata, and no units.

Baselines of Javanmard, Mirrokni and Pouget-Abadie (2025), Algorithms 3 and 4, with the sensitivity
that holds for them (`aggregates.md`). A whole release is one noisy statistic of each (pool, arm):
there is no response and no prior, hence no λ and γ, and all of ε pays for the statistic.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from privatizers.mechanisms.mechanism import OwnPools
from privatizers.mechanisms.parameters import AggregateParameters
from schemas.arrays import Ints


@dataclass(frozen=True)
class NoisyDifferences:
    """Differences between the arm means of pools that have both arms; shape [D] each."""

    pool: Ints
    """Position of the pool."""
    noisy: Ints
    """D̃, a whole number."""
    divisor: Ints
    """lcm(n_0, n_1): D̃ divided by it is the difference in grid steps."""


@dataclass(frozen=True)
class AggregateRelease:
    """The statistic that an aggregate mechanism publishes; the other fields are None."""

    noisy_counts: Ints | None = None
    """Ñ, shape [S, K]."""
    noisy_sums: Ints | None = None
    """S̃ in grid steps, shape [S]."""
    noisy_differences: NoisyDifferences | None = None


@dataclass(frozen=True)
class AggregateMechanism(OwnPools, ABC):
    """An aggregate mechanism; a stratum here is a (pool, arm)."""

    name: ClassVar[str]
    parameters: AggregateParameters

    def check_sizes(self, sizes: Ints, min_stratum: int, *, exact: bool = True) -> None:
        """Raise ConfigError for public sizes too large for the arithmetic; before the first draw.

        ``sizes`` has the shape [clusters, arms]. Without ``exact``, the units of an arm may be
        spread over clusters in any other way (as private clusters are). Most accept every size.
        """

    @abstractmethod
    def statistics(self, counts: Ints, cell_of: Ints) -> AggregateRelease:
        """Draw everything that is published from raw ``counts`` of shape [S, K], n ≥ 1 each.

        ``cell_of`` [pools, arms] has the row of each (pool, arm) in ``counts``, −1 where it has no
        units (:attr:`privatizers.domain.strata.Strata.cell_of`).
        """
