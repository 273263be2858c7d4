"""What every user-level mechanism is: a pooling rule, a prior, and a guarantee."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from privatizers.accounting.accountant import pure_epsilon
from privatizers.accounting.events import event_of
from privatizers.accounting.rounding import UNIT, realised_rate, realised_threshold
from privatizers.domain.lattice import Lattice
from privatizers.mechanisms.noisy_counts import NoisyCounts
from privatizers.mechanisms.noisy_squares import NoisySquares, is_even, square_steps
from privatizers.mechanisms.noisy_sums import NoisySums
from privatizers.mechanisms.randomised_response import RandomisedResponse
from privatizers.noise.geometric_digits import digits_of


class StrataStatistic:
    """What is published of each stratum, as the parameters of a mechanism say it."""

    n_outcomes: int
    noise_scale: float | None
    lattice: Lattice | None
    squares: NoisySquares | None
    """What is published of arms' squares, beside means; None where nothing is."""

    @property
    def counts(self) -> NoisyCounts | None:
        """The noisy counts that are published, if any."""
        if self.noise_scale is None or self.lattice is not None:
            return None
        return NoisyCounts(self.n_outcomes, self.noise_scale)

    @property
    def sums(self) -> NoisySums | None:
        """The noisy sums that are published, if any."""
        if self.noise_scale is None or self.lattice is None:
            return None
        return NoisySums(self.lattice, self.noise_scale)

    @property
    def strata_statistic(self) -> str:
        """What is published of each stratum: ``means``, ``none``, or a kind of counts."""
        if self.noise_scale is None:
            return "none"
        return "means" if self.counts is None else self.counts.statistic


def check_squares(parameters: StrataStatistic, *, with_means: bool) -> None:
    """Raise ValueError for sums of squares beside counts, or of another grid.

    And for those ``with_means`` of a grid whose mean is not its middle: no estimate is made so.
    """
    squares, lattice = parameters.squares, parameters.lattice
    if squares is None:
        return
    if lattice is None or square_steps(lattice) != squares.steps:
        msg = "sums of squares go with means on the lattice that they are of"
        raise ValueError(msg)
    if with_means and not is_even(lattice):
        msg = "sums of squares go with means on a lattice whose mean is its middle"
        raise ValueError(msg)


@dataclass(frozen=True)
class Parameters(StrataStatistic):
    """λ, γ and σ of a user-level mechanism, as realised, and K.

    ``resampling_probability`` and ``truncation_threshold`` are multiples of 2⁻⁵³ (use
    :meth:`of` to round toward privacy); ``noise_scale`` is None where nothing is published of the
    strata: it is in units for counts, in grid steps for sums.
    """

    n_outcomes: int
    resampling_probability: float
    truncation_threshold: float
    noise_scale: float | None
    lattice: Lattice | None = None
    """Of the grid, where sums are published; None for counts."""
    squares: NoisySquares | None = None

    def __post_init__(self) -> None:
        """Refuse parameters that have not been rounded: a claim would not hold exactly."""
        for value in (self.resampling_probability, self.truncation_threshold):
            if not (0 < value < 1 and (value * UNIT).is_integer()):
                msg = f"{value!r} is not a multiple of 2⁻⁵³ between 0 and 1; use Parameters.of"
                raise ValueError(msg)
        if round(self.truncation_threshold * UNIT) * self.n_outcomes > UNIT:
            msg = f"γ = {self.truncation_threshold!r} is more than 1/{self.n_outcomes}"
            raise ValueError(msg)
        if self.lattice is not None and len(self.lattice.steps) != self.n_outcomes:
            msg = f"a lattice of {len(self.lattice.steps)} points for {self.n_outcomes} outcomes"
            raise ValueError(msg)
        if self.noise_scale is not None:
            digits_of(self.noise_scale)  # refuses a scale that no noise can be drawn of
        check_squares(self, with_means=True)

    @classmethod
    def of(
        cls,
        n_outcomes: int,
        resampling_probability: float,
        truncation_threshold: float,
        noise_scale: float | None,
        lattice: Lattice | None = None,
    ) -> "Parameters":
        """Round λ up and γ to what a prior can hold, both toward privacy where possible."""
        return cls(
            n_outcomes,
            realised_rate(resampling_probability),
            realised_threshold(truncation_threshold, n_outcomes),
            noise_scale,
            lattice,
        )


@dataclass(frozen=True)
class StrataRelease:
    """What a mechanism publishes of the strata, and draws each unit's outcome with."""

    noisy_counts: NDArray[np.int64] | None
    """Ñ, shape [S, K]; None where none are published."""
    response: RandomisedResponse
    noisy_sums: NDArray[np.int64] | None = None
    """S̃ in grid steps, shape [S]; None where none are published."""


class Mechanism(Protocol):
    """A user-level mechanism; a stratum here is a (pool, arm)."""

    name: ClassVar[str]

    @property
    def parameters(self) -> Parameters:
        """λ, γ, σ and K, as realised."""
        ...

    def pool_of(self, sizes: NDArray[np.int64], min_stratum: int) -> NDArray[np.int64]:
        """Assign clusters to pools from public ``sizes`` [clusters, arms]; pools count from 0."""
        ...

    def strata(self, counts: NDArray[np.int64]) -> StrataRelease:
        """Draw what is published of the strata from raw ``counts`` of shape [S, K], n ≥ 1 each."""
        ...

    def expected_prior(self, guess: NDArray[np.float64]) -> NDArray[np.float64]:
        """The prior, about, of a large stratum whose outcomes follow ``guess``; shape [K] both."""
        ...


def guarantee(mechanism: Mechanism) -> float:
    """The pure ε of everything that one release publishes together, rounded up to a double.

    ε_stat + ε_squares + ln(1 + (1 − λ)/(λ γ)): `cluster_dp.md` has the proof, and `noisy_squares`
    that of the second term. Over disjoint strata it is the maximum, hence the same for one stratum
    and for a million.
    """
    return pure_epsilon(event_of(mechanism.parameters))
