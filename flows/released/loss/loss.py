"""What a file costs, as it was worked out from the file alone."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from schemas.documents import fields_of

How = Literal["exact", "bound", "least", "stated"]
"""Neighbours differ by so much; by no more; by so much at least, as the file does not tell more; or
by the file's word alone."""

_LARGEST_EXPONENT = 700.0  # whose exponential is a double


@dataclass(frozen=True)
class Part:
    """One of the things that are published of a unit, or of all units together."""

    metric: str | None
    """The outcome that it is of; None where it is of no one of several."""
    name: str
    epsilon: float
    """Of it alone."""
    delta: float
    how: How


@dataclass(frozen=True)
class MetricLoss:
    """What everything that is published of one outcome costs."""

    metric: str
    epsilon: float
    """The least at the stated δ; what two outcomes share counts for both."""
    delta: float
    """The least at the stated ε."""


@dataclass(frozen=True)
class Loss:
    """What a file costs a unit: what it states, and what its tables and scales come to."""

    path: Path
    release_id: str
    """Of a release, a model or a site's report."""
    stated_epsilon: float
    stated_delta: float
    epsilon: float
    """Of everything together, with ``stated_delta`` (each outcome with its own); rounded up."""
    delta: float
    """Of everything together, with ``stated_epsilon`` (each outcome with its own); rounded up."""
    rows_each: int
    """How many units whoever pays may have, a household say."""
    metrics: tuple[MetricLoss, ...]
    parts: tuple[Part, ...]
    trusted: tuple[str, ...]
    """What a file cannot show, in sentences."""
    broken: tuple[str, ...]
    """Every rule that does not hold, with its table; empty where the loss is what is stated."""

    @property
    def holds(self) -> bool:
        """Whether the file costs no more than it states."""
        return not self.broken

    @property
    def household(self) -> tuple[float, float]:
        """ε and δ of m = ``rows_each`` units whose outcomes may all differ, of a pair that holds.

        Group privacy of ``epsilon`` and ``stated_delta``: mε, δ (e^(mε) − 1)/(e^ε − 1).
        """
        epsilon, delta, times = self.epsilon, self.stated_delta, self.rows_each
        if delta == 0.0 or times == 1:
            return times * epsilon, delta
        if times * epsilon > _LARGEST_EXPONENT:
            return times * epsilon, 1.0
        factor = math.expm1(times * epsilon) / math.expm1(epsilon) if epsilon else float(times)
        return times * epsilon, min(1.0, delta * factor)

    def as_json(self) -> dict[str, Any]:
        """One of the ``releases`` of ``clusterdp verify --loss --json``."""
        household_epsilon, household_delta = self.household
        return {
            "release_id": self.release_id,
            "path": str(self.path),
            "stated_epsilon": self.stated_epsilon,
            "stated_delta": self.stated_delta,
            "recomputed_epsilon": _finite(self.epsilon),
            "recomputed_delta": self.delta,
            "holds": self.holds,
            "rows_each": self.rows_each,
            "household_epsilon": _finite(household_epsilon),
            "household_delta": household_delta,
            "metrics": list(map(_json, self.metrics)),
            "parts": list(map(_json, self.parts)),
            "broken": list(self.broken),
            "trusted": list(self.trusted),
        }


def _json(one: Part | MetricLoss) -> dict[str, Any]:
    return fields_of(one) | {"epsilon": _finite(one.epsilon)}


def _finite(value: float) -> float | None:
    """A number as JSON has it; None where the loss has no bound."""
    return value if math.isfinite(value) else None
