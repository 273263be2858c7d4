"""Curves over nights, numbers and shares of people, with bands and marks; see ``chart.html``.

Everything is placed in per cent of a box, so that a chart fills any width and texts keep their
size.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from flows.released.page.rows import nice
from schemas.arrays import Floats

_ROOM: Final = 260.0
"""How much room the numbers at the side have, were they beside one another."""
_LEFT, _RIGHT = 8.0, 97.0  # numbers stand before the first place

Kind = Literal["wide", "band", "line", "chance"]


@dataclass(frozen=True)
class Mark:
    """An effect with its interval, at a place along the axis or from one place to another."""

    at: float
    estimate: float
    low: float
    high: float
    span: tuple[float, ...] = ()


@dataclass(frozen=True)
class Frame:
    """From where to where both axes go; places are in per cent, from the left and from above."""

    left: float
    right: float
    low: float
    high: float

    def across(self, x: Floats) -> Floats:
        """Return places from the left."""
        width = self.right - self.left
        share = (x - self.left) / width if width > 0 else np.full_like(x, 0.5)
        return np.asarray(_LEFT + (_RIGHT - _LEFT) * share)

    def down(self, y: Floats) -> Floats:
        """Return places from above; what lies beyond is at the edge."""
        share = (self.high - np.clip(y, self.low, self.high)) / (self.high - self.low)
        return np.asarray(100.0 * share)

    def x(self, at: float) -> str:
        """Return the place of a number along the axis."""
        return f"{float(self.across(np.array(at))):.2f}"

    def y(self, effect: float) -> str:
        """Return the place of an effect."""
        return f"{float(self.down(np.array(effect))):.2f}"

    @property
    def ticks(self) -> list[tuple[str, str]]:
        """Places and labels of round effects."""
        found = nice(self.low, self.high, _ROOM)
        return [(f"{float(self.down(np.array(effect))):.1f}", label) for effect, label in found]

    def line(self, x: Floats, y: Floats) -> str:
        """Return the points of a line; numbers that are not known are left out."""
        known = np.isfinite(y)
        places = zip(self.across(x[known]), self.down(y[known]), strict=True)
        return " ".join(f"{right:.2f},{below:.2f}" for right, below in places)

    def band(self, x: Floats, low: Floats, high: Floats) -> str:
        """Return the points around a band."""
        return self.line(np.append(x, x[::-1]), np.append(high, low[::-1]))


def limits(values: Iterable[float]) -> tuple[float, float]:
    """From where to where an axis of effects goes, zero and all known ``values`` in it."""
    every = [0.0, *(one for one in values if math.isfinite(one))]
    low, high = min(every), max(every)
    margin = 0.05 * (high - low) or 1.0
    return low - margin, high + margin


@dataclass(frozen=True)
class Chart:
    """Shapes, in their order, and marks on them, for ``chart.html``."""

    anchor: str
    title: str
    description: str
    frame: Frame
    labels: Sequence[tuple[float, str]]
    """Texts below, and where along the axis they stand."""
    shapes: Sequence[tuple[Kind, str]]
    marks: Sequence[Mark] = ()
