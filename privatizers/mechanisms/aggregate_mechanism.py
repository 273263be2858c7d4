"""What every aggregate mechanism is: noise on statistics of strata, and no units.

Baselines of Javanmard, Mirrokni and Pouget-Abadie (2025), Algorithms 3 and 4, with the sensitivity
that holds for them (`aggregates.md`). A whole release is one noisy statistic of each (pool, arm):
there is no response and no prior, so there are no λ and γ, and all of ε pays for the statistic.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privatizers.domain.lattice import Lattice
from privatizers.domain.strata import small_clusters_share
from privatizers.mechanisms.mechanism import StrataStatistic, check_squares
from privatizers.mechanisms.noisy_squares import NoisySquares
from privatizers.mechanisms.noisy_sums import NoisySums
from privatizers.noise.geometric_digits import digits_of

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class AggregateParameters(StrataStatistic):
    """σ of an aggregate mechanism, and what it is the scale of; there are no λ and γ."""

    n_outcomes: int
    noise_scale: float
    """In units for counts, in grid steps for means and differences."""
    lattice: Lattice | None = None
    """Of the grid, where means or differences are published; None for counts."""
    differences: bool = False
    """Whether differences between two arms are published in place of either's mean."""
    squares: NoisySquares | None = None

    resampling_probability: ClassVar[None] = None
    truncation_threshold: ClassVar[None] = None

    def __post_init__(self) -> None:
        """Refuse what no mechanism publishes."""
        if self.differences and self.lattice is None:
            msg = "differences are published in whole steps of a lattice"
            raise ValueError(msg)
        if self.lattice is not None and len(self.lattice.steps) != self.n_outcomes:
            msg = f"a lattice of {len(self.lattice.steps)} points for {self.n_outcomes} outcomes"
            raise ValueError(msg)
        digits_of(self.noise_scale)  # refuses a scale that no noise can be drawn of
        check_squares(self, with_means=not self.differences)

    @property
    def sums(self) -> NoisySums | None:
        """The noisy sums, if they are what is published."""
        return None if self.differences else super().sums

    @property
    def strata_statistic(self) -> str:
        """What is published: ``differences``, ``means``, or a kind of counts."""
        return "differences" if self.differences else super().strata_statistic


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
    """What an aggregate mechanism publishes: one of these, the others are None."""

    noisy_counts: Ints | None = None
    """Ñ, shape [S, K]."""
    noisy_sums: Ints | None = None
    """S̃ in grid steps, shape [S]."""
    noisy_differences: NoisyDifferences | None = None


@dataclass(frozen=True)
class AggregateMechanism(ABC):
    """An aggregate mechanism; a stratum here is a (pool, arm)."""

    name: ClassVar[str]
    parameters: AggregateParameters

    def pool_of(self, sizes: Ints, min_stratum: int) -> Ints:
        """Each cluster its own pool; those with an arm under ``min_stratum`` units share one."""
        return small_clusters_share(sizes, min_stratum)

    def check_sizes(self, sizes: Ints, min_stratum: int, *, exact: bool = True) -> None:  # noqa: B027 - most hold any sizes
        """Raise ConfigError where arms of such public sizes are more than the arithmetic holds.

        ``sizes`` has the shape [clusters, arms]. It is for before the first draw; with ``exact``
        off, sizes may be shared out in any other way (as private clusters are). Most hold any.
        """

    @abstractmethod
    def statistics(self, counts: Ints, cell_of: Ints) -> AggregateRelease:
        """Draw all that is published, from raw ``counts`` of shape [S, K], n ≥ 1 each.

        ``cell_of`` [pools, arms] has the row of each (pool, arm) in ``counts``, −1 where it has no
        units (:attr:`privatizers.domain.strata.Strata.cell_of`).
        """
