"""Events: frozen facts about what was done to people's outcomes, without its price.

`accountant` prices them: the same event has a pure ε, an ε at a given δ, and a part in the price of
many releases together. An event holds parameters, which are public, and never data.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CountsNoise:
    """Counts of a stratum were published with discrete Laplace noise, P(Z = k) ∝ e^(−|k|/σ)."""

    noise_scale: float
    """σ, in units."""
    moved_cells: int
    """Noised cells that one substitution changes by one: 2, or 1 for a count and complement."""

    def __post_init__(self) -> None:
        """Refuse parameters that no sampler could have used."""
        _require(0 < self.noise_scale < math.inf, f"noise_scale {self.noise_scale!r}: above 0")
        _require(self.moved_cells >= 1, f"moved_cells {self.moved_cells!r}: at least 1")


@dataclass(frozen=True, slots=True)
class _StepNoise:
    noise_scale: float
    """σ, in steps."""
    most_steps: int
    """The most that one substitution changes the sum by, in steps."""

    def __post_init__(self) -> None:
        """Refuse parameters that no sampler could have used."""
        _require(0 < self.noise_scale < math.inf, f"noise_scale {self.noise_scale!r}: above 0")
        _require(self.most_steps >= 1, f"most_steps {self.most_steps!r}: at least 1")


@dataclass(frozen=True, slots=True)
class SumNoise(_StepNoise):
    """The sum of a stratum's outcomes was published in whole steps with discrete Laplace noise."""


@dataclass(frozen=True, slots=True)
class SquareNoise(_StepNoise):
    """An arm's sum of squares was published in whole steps with discrete Laplace noise."""


@dataclass(frozen=True, slots=True)
class MarginNoise:
    """Sums over the cells of J margins were published in whole steps with discrete Laplace noise.

    A unit is in one cell of each margin.
    """

    noise_scales: tuple[float, ...]
    """σ of each margin, in steps; shape [J]."""
    most_steps: int
    """The most that one substitution changes a sum by, in steps."""

    def __post_init__(self) -> None:
        """Refuse parameters that no sampler could have used."""
        _require(len(self.parts) > 0, "no margin")

    @property
    def parts(self) -> tuple[SumNoise, ...]:
        """What was published of each margin."""
        return tuple(SumNoise(scale, self.most_steps) for scale in self.noise_scales)


StratumNoise = CountsNoise | SumNoise
"""Noise on the statistic of a stratum."""


@dataclass(frozen=True, slots=True)
class Response:
    """Outcomes were kept with probability 1 − λ, else drawn from a prior of at least γ a cell."""

    resampling_probability: float
    """λ."""
    least_probability: float
    """γ: the least probability that any prior gives any outcome, whatever the data."""

    def __post_init__(self) -> None:
        """Refuse what is not a probability; with two outcomes or more γ is at most a half."""
        rate, least = self.resampling_probability, self.least_probability
        _require(0 < rate < 1, f"resampling_probability {rate!r}: strictly between 0 and 1")
        _require(0 < least <= 0.5, f"least_probability {least!r}: above 0, at most 1/2")


@dataclass(frozen=True, slots=True)
class BoundedResponse:
    """Outcomes were released by tables in which no output tells two of them further apart than ε.

    P(output | outcome) ≤ e^ε P(output | other outcome), whatever the outputs are.
    """

    epsilon: float
    """ε."""

    def __post_init__(self) -> None:
        """Refuse what no table can keep."""
        _require(0 < self.epsilon < math.inf, f"epsilon {self.epsilon!r}: above 0")


@dataclass(frozen=True, slots=True)
class ConcentratedNoise:
    """Sums were published with discrete Gaussian noise: vectors of any length, chosen in turn.

    The price is that of ρ-zCDP, which adds up over queries; it has no pure ε.
    """

    rho: float
    """ρ: Σ Δ²/(2σ²) over the queries that one person is in."""

    def __post_init__(self) -> None:
        """Refuse parameters that no sampler could have used."""
        _require(0 < self.rho < math.inf, f"rho {self.rho!r}: above 0")


@dataclass(frozen=True, slots=True)
class Together:
    """Everything in ``parts`` was done to the same people: prices add up (sequential)."""

    parts: "tuple[Event, ...]"


@dataclass(frozen=True, slots=True)
class Disjoint:
    """Each of ``parts`` was done to other people: the price is the highest one (parallel).

    One person's outcome is in one part only: strata are disjoint, and so are arms.
    """

    parts: "tuple[Event, ...]"


@dataclass(frozen=True, slots=True)
class Unprotected:
    """Something was published without protection: the price is infinite."""


Step = (
    CountsNoise
    | SumNoise
    | SquareNoise
    | MarginNoise
    | Response
    | BoundedResponse
    | ConcentratedNoise
    | Unprotected
)
"""An event that is not made of other events."""
Event = Step | Together | Disjoint


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise ValueError(f"no such event: {rule}")
