"""Curves over nights, numbers and shares of people, with bands and marks; see ``chart.html``.

Everything is placed in per cent of a box, so that a chart fills any width and texts keep their
size.
"""

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
    span: tuple[float, float] | None = None


@dataclass(frozen=True)
class Chart:
    """A drawing for ``chart.html``: places are in per cent, from the left and from above."""

    anchor: str
    title: str
    description: str
    rows: Sequence[tuple[str, str]]
    """Height and label of each line across; that at zero is called 0."""
    columns: Sequence[tuple[str, str, str]]
    """Place, label and alignment of what stands below."""
    shapes: Sequence[tuple[Kind, str]]
    """Bands and lines, in the order in which they are drawn."""
    marks: Sequence[dict[str, object]]


@dataclass(frozen=True)
class Frame:
    """From where to where both axes go."""

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
) -> Chart:
    """Draw ``shapes`` and ``marks``; ``named`` is anchor, title and description.

    ``labels`` stand below, at places along the axis.
    """
    places = frame.across(np.array([x for x, _ in labels], dtype=np.float64))
    align = ["start", *["middle"] * (len(labels) - 2), "end"] if len(labels) > 1 else ["middle"]
    rows = [(y, text) for y, text in nice(frame.low, frame.high, _ROOM)]
    heights = frame.down(np.array([y for y, _ in rows]))
    return Chart(
        *named,
        rows=[(f"{y:.1f}", text) for y, (_, text) in zip(heights, rows, strict=True)],
        columns=[
            (f"{x:.2f}", text, how)
            for x, (_, text), how in zip(places, labels, align[: len(labels)], strict=True)
        ],
        shapes=[(kind, points) for kind, points in shapes if points],
        marks=[_mark(frame, one) for one in marks],
    )


def _mark(frame: Frame, one: Mark) -> dict[str, object]:
    def across(x: float) -> str:
        return f"{float(frame.across(np.array(x))):.2f}"

    def down(y: float) -> str:
        return f"{float(frame.down(np.array(y))):.2f}"

    return {
        "x": across(one.at),
        "y": down(one.estimate),
        "is_within": frame.low <= one.estimate <= frame.high,
        "low": down(one.low),
        "high": down(one.high),
        "cut": ["down"] * int(one.low < frame.low) + ["up"] * int(one.high > frame.high),
        "span": one.span and [across(end) for end in one.span],
    }
