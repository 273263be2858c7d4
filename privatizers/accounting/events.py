"""What was done to people's outcomes, as frozen events that say nothing of its price.

`accountant` prices them: the same event has a pure ε, an ε at a given δ, and a part in what many
releases cost together. An event tells parameters, which are public, and never data.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CountsNoise:
    """Counts of a stratum were published with discrete Laplace noise, P(Z = k) ∝ e^(−|k|/σ)."""

    noise_scale: float
    """σ, in units."""
    moved_cells: int
    """How many noised cells one substitution moves by one: 2, or 1 for a count and complement."""

    def __post_init__(self) -> None:
        """Refuse what no sampler could have done."""
        _require(0 < self.noise_scale < math.inf, f"noise_scale {self.noise_scale!r}: above 0")
        _require(self.moved_cells >= 1, f"moved_cells {self.moved_cells!r}: at least 1")


@dataclass(frozen=True, slots=True)
class SumNoise:
    """The sum of a stratum's outcomes was published in whole steps with discrete Laplace noise."""

    noise_scale: float
    """σ, in steps."""
    most_steps: int
    """How far one substitution moves the sum at most, in steps."""

    def __post_init__(self) -> None:
        """Refuse what no sampler could have done."""
        _require(0 < self.noise_scale < math.inf, f"noise_scale {self.noise_scale!r}: above 0")
        _require(self.most_steps >= 1, f"most_steps {self.most_steps!r}: at least 1")


@dataclass(frozen=True, slots=True)
class SquareNoise:
    """An arm's sum of squares was published in whole steps with discrete Laplace noise."""

    noise_scale: float
    """σ, in steps."""
    most_steps: int
    """How far one substitution moves the sum at most, in steps."""

    def __post_init__(self) -> None:
        """Refuse what no sampler could have done."""
        _require(0 < self.noise_scale < math.inf, f"noise_scale {self.noise_scale!r}: above 0")
        _require(self.most_steps >= 1, f"most_steps {self.most_steps!r}: at least 1")


StratumNoise = CountsNoise | SumNoise
"""What may be published of a stratum beside its units."""


@dataclass(frozen=True, slots=True)
class Response:
    """Outcomes were kept with probability 1 − λ, else drawn from a prior of at least γ a cell."""

    resampling_probability: float
    """λ."""
    least_probability: float
    """γ: the least probability that any prior gives any outcome, whatever the data."""

    def __post_init__(self) -> None:
        """Refuse what is not a probability; two outcomes at least leave γ at most a half."""
        rate, least = self.resampling_probability, self.least_probability
        _require(0 < rate < 1, f"resampling_probability {rate!r}: strictly between 0 and 1")
        _require(0 < least <= 0.5, f"least_probability {least!r}: above 0, at most 1/2")


@dataclass(frozen=True, slots=True)
class Together:
    """Everything in ``parts`` was done to the same people: prices add up (sequential)."""

    parts: "tuple[Event, ...]"


@dataclass(frozen=True, slots=True)
class Disjoint:
    """Each of ``parts`` was done to other people: the dearest is the price (parallel).

    One person's outcome is then in one part alone; strata are disjoint, and so are arms.
    """

    parts: "tuple[Event, ...]"


@dataclass(frozen=True, slots=True)
class Unprotected:
    """Something was published without protection: the price is infinite, and has a name."""


Event = CountsNoise | SumNoise | SquareNoise | Response | Together | Disjoint | Unprotected
Step = CountsNoise | SumNoise | SquareNoise | Response | Unprotected
"""What is not made of other events."""


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise ValueError(f"no such event: {rule}")
