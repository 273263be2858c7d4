"""The figures of a series: an effect after every period, and that of each period alone."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flows.released.page.figures import ACCENT, INK, MUTED, PAPER, SOFT, Drawing
from flows.released.page.words import short
from schemas.arrays import Floats

_HEIGHT = 230.0
_LABELS = 4


@dataclass(frozen=True)
class Track:
    """An effect by period, with an interval and a wider one, shape [T] each; NaN for none."""

    estimate: Floats
    lower: Floats
    upper: Floats
    lower_always: Floats
    upper_always: Floats


def cumulative(drawing: Drawing, periods: Sequence[str], track: Track, axis: str) -> str:
    """Draw the effect over all periods up to each one, with both intervals as bands."""
    place = np.arange(len(periods), dtype=np.float64)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for lower, upper, colour in (
            (track.lower_always, track.upper_always, SOFT),
            (track.lower, track.upper, ACCENT),
        ):
            if len(periods) > 1:
                axes.fill_between(place, lower, upper, color=colour, linewidth=0)
            else:
                axes.plot([0.0, 0.0], [lower[0], upper[0]], color=colour, linewidth=9)
        axes.plot(place, track.estimate, color=PAPER, linewidth=2.2)
        axes.plot(
            place[-1:], track.estimate[-1:], "o", color=INK, markeredgecolor=PAPER, markersize=8
        )
        _finish(axes, periods, axis)

    return drawing.svg(_HEIGHT, draw)


def by_period(drawing: Drawing, periods: Sequence[str], track: Track, axis: str) -> str:
    """Draw the effect of each period alone, with its interval."""
    place = np.arange(len(periods), dtype=np.float64)
    width = min(7.0, 220.0 / max(len(periods), 1))

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for at, lower, upper in zip(place, track.lower, track.upper, strict=True):
            axes.plot([at, at], [lower, upper], color=SOFT, linewidth=width)
        axes.plot(
            place, track.estimate, "o", color=INK, markeredgecolor=PAPER, markersize=width + 1.0
        )
        _finish(axes, periods, axis)

    return drawing.svg(_HEIGHT, draw)


def _finish(axes: Axes, periods: Sequence[str], label: str) -> None:
    axes.axhline(0, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_xlim(-0.6, len(periods) - 0.4)
    at = np.unique(np.linspace(0, len(periods) - 1, _LABELS).round().astype(int))
    axes.set_xticks(at, [short(periods[one], 10) for one in at])
    axes.set_ylabel(label)
    axes.grid(axis="y", linewidth=0.6)
    axes.tick_params(axis="both", length=0)
    axes.locator_params(axis="y", nbins=6)
