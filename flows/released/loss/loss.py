"""What a file costs, as it was worked out from the file alone."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from schemas.documents import Document, fields_of

How = Literal["exact", "bound", "least", "stated"]
"""Neighbours differ by so much; by no more; by so much at least, as the file does not tell more; or
by the file's word alone."""

_LARGEST_EXPONENT = 700.0  # whose exponential is a double


@dataclass(frozen=True)
class MetricLoss(Document):
    """What everything that is published of one outcome costs."""

    metric: str | None
    """The outcome; None where it is of no one of several."""
    epsilon: float
    """The least at the stated δ; what two outcomes share counts for both."""
    delta: float
    """The least at the stated ε."""

    def as_json(self) -> dict[str, Any]:
        """The document; ε is None where it has no bound."""
        return fields_of(self) | {"epsilon": _finite(self.epsilon)}


@dataclass(frozen=True)
class Part(MetricLoss):
    """One of the things that are published of a unit, or of all units together, by itself."""

    name: str
    how: How


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
    parts: tuple[Part, ...]
    trusted: tuple[str, ...]
    """What a file cannot show, in sentences."""
    broken: tuple[str, ...]
    """Every rule that does not hold, with its table; empty where the loss is what is stated."""
    metrics: tuple[MetricLoss, ...] = ()
    rows_each: int = 1
    """How many units whoever pays may have, a household say."""

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
        told, (household_epsilon, household_delta) = fields_of(self), self.household
        return {
            "recomputed_epsilon": _finite(told.pop("epsilon")),
            "recomputed_delta": told.pop("delta"),
            "holds": self.holds,
            "household_epsilon": _finite(household_epsilon),
            "household_delta": household_delta,
            **told,
        }


def _finite(value: float) -> float | None:
    """A number as JSON has it; None where the loss has no bound."""
    return value if math.isfinite(value) else None
