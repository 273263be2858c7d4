"""Curves over nights, numbers and shares of people, with bands and marks; see ``chart.html``.

Everything is placed in per cent of a box, so that a chart fills any width and texts keep their
size.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

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
    span: tuple[float, float] | None = None


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

    def line(self, x: Floats, y: Floats) -> str:
        """Return the points of a line; numbers that are not known are left out."""
        known = np.isfinite(y)
        places = zip(self.across(x[known]), self.down(y[known]), strict=True)
        return " ".join(f"{right:.2f},{below:.2f}" for right, below in places)

    def band(self, x: Floats, low: Floats, high: Floats) -> str:
        """Return the points around a band."""
        return self.line(np.append(x, x[::-1]), np.append(high, low[::-1]))


def limits(values: Iterable[float]) -> tuple[float, float]:
    """From where to where an axis of effects goes, zero and all ``values`` within."""
    every = [0.0, *values]
    low, high = min(every), max(every)
    margin = 0.05 * (high - low) or 1.0
    return low - margin, high + margin


def chart(
    named: tuple[str, str, str],
    frame: Frame,
    labels: Sequence[tuple[float, str]],
    shapes: Sequence[tuple[Kind, str]],
    marks: Sequence[Mark] = (),
) -> dict[str, Any]:
    """Draw ``shapes``, in their order, and ``marks``; ``named`` is anchor, title and description.

    ``labels`` stand below, at places along the axis.
    """
    places = frame.across(np.array([x for x, _ in labels], dtype=np.float64))
    align = ["start", *["middle"] * (len(labels) - 2), "end"] if len(labels) > 1 else ["middle"]
    rows = nice(frame.low, frame.high, _ROOM)
    heights = frame.down(np.array([y for y, _ in rows]))
    return {
        **dict(zip(("anchor", "title", "description"), named, strict=True)),
        "rows": [(f"{y:.1f}", text) for y, (_, text) in zip(heights, rows, strict=True)],
        "columns": [
            (f"{x:.2f}", text, how) for x, (_, text), how in zip(places, labels, align, strict=True)
        ],
        "shapes": [(kind, points) for kind, points in shapes if points],
        "marks": [_mark(frame, one) for one in marks],
    }


def _mark(frame: Frame, one: Mark) -> dict[str, object]:
    across = frame.across(np.array([one.at, *(one.span or ())]))
    down = frame.down(np.array([one.estimate, one.low, one.high]))
    x, *span = (f"{place:.2f}" for place in across)
    return {
        "x": x,
        "span": span,
        **{key: f"{y:.2f}" for key, y in zip(("y", "low", "high"), down, strict=True)},
        "is_within": frame.low <= one.estimate <= frame.high,
        "cut": ["down"] * int(one.low < frame.low) + ["up"] * int(one.high > frame.high),
    }
