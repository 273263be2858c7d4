"""What a figure of a replication shows, before anything draws it."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """A line of a panel: its label, places, heights and their standard errors."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float] | None = None
    is_reference: bool = False
    """Drawn thin and grey: what there is without privacy."""

    @classmethod
    def of(
        cls,
        label: str,
        x: Sequence[float],
        found: Sequence[tuple[float, float]],
        *,
        is_reference: bool = False,
    ) -> "Line":
        """``found`` has a height and its standard error for each place."""
        heights, errors = zip(*found, strict=True)
        return cls(label, x, heights, errors, is_reference)


@dataclass(frozen=True)
class Panel:
    """A part of a figure; ``across`` and ``up`` are the axes' names with units."""

    title: str
    across: str
    up: str
    lines: tuple[Line, ...]
    log: str = "y"
    """Which axes are logarithmic."""
