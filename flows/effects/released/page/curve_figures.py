"""The figures of an effect model: curves with subgroups on them, bars, and the gain of targeting.

Effects are drawn in the outcomes' unit; see :mod:`flows.released.page.figures` for what figures of
a page have in common.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from flows.released.page.figures import (
    ACCENT,
    BEHIND,
    DOT,
    INK,
    MUTED,
    SOFT,
    Drawing,
    cut_off,
    left,
    plain_x_axis,
)
from flows.released.page.words import short
from schemas.arrays import Floats

_ROW = 38.0
_ZERO: dict[str, Any] = {"color": MUTED, "linewidth": 1.0, "linestyle": (0, (4, 3))}
_LEGEND_ROW = 20.0
_WIDE = 4.0
"""Times the usual width: an interval that is wider may be cut off."""


@dataclass(frozen=True)
class Point:
    """The effect in a subgroup, with its interval; ``start`` to ``end`` is what it covers."""

    estimate: float
    lower: float
    upper: float
    start: float = 0.0
    end: float = 0.0


@dataclass(frozen=True)
class BandedCurve:
    """A curve, and half the width of its band; shape [m] each, NaN where there is no band."""

    effects: Floats
    reach: Floats

    def ends(self) -> list[float]:
        """Where it goes, its band with it."""
        found = np.concatenate([self.effects, self.effects - self.reach, self.effects + self.reach])
        return [float(one) for one in found[np.isfinite(found)]]

    @property
    def has_band(self) -> bool:
        """Whether there is a band."""
        return bool(np.isfinite(self.reach).any())


def common_limits(intervals: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """From where to where an axis of effects goes, so that no single wide interval rules it.

    Intervals of more than four times the usual width may go on beyond its ends.
    """
    width = [upper - lower for lower, upper in intervals]
    most = _WIDE * float(np.median(width)) if width else 0.0
    usual = [one for one, wide in zip(intervals, width, strict=True) if wide <= most]
    return limits([end for one in usual for end in one])


def limits(values: Sequence[float]) -> tuple[float, float]:
    """From where to where an axis of effects goes, zero and all ``values`` within."""
    low, high = min([0.0, *values]), max([0.0, *values])
    margin = 0.05 * (high - low) or 1.0
    return low - margin, high + margin


def along_number(
    drawing: Drawing,
    at: Floats,
    track: BandedCurve,
    points: Sequence[Point],
    reach: tuple[float, float],
    *,
    name: str,
    level: str,
    log: bool,
) -> str:
    """Draw the effect along a number, ``at`` of shape [m], with subgroups on top.

    ``reach`` is the axis of effects, ``level`` names the intervals' confidence level.
    """
    handles = _handles(track, points, level)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        if log:
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0), numticks=6))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlim(float(at[0]), float(at[-1]))
        axes.axhline(0, **_ZERO)
        if track.has_band:
            low, high = track.effects - track.reach, track.effects + track.reach
            axes.fill_between(at, low, high, color=SOFT, linewidth=0)
        axes.plot(at, track.effects, color=ACCENT, linewidth=2.4)
        for one in points:
            middle = float(np.sqrt(one.start * one.end)) if log else (one.start + one.end) / 2
            axes.plot([one.start, one.end], [one.estimate] * 2, color=INK, linewidth=1.0)
            axes.plot([middle] * 2, [one.lower, one.upper], color=INK, linewidth=1.8)
            if reach[0] <= one.estimate <= reach[1]:
                axes.plot([middle], [one.estimate], "o", color=INK, clip_on=False, **DOT)
            for end, mark in cut_off(one.lower, one.upper, reach, "v^"):
                axes.plot([middle], [end], mark, color=INK, clip_on=False, markersize=7)
        axes.set_ylim(*reach)
        axes.set_xlabel(short(name, 40))
        axes.set_ylabel("effect")
        axes.grid(axis="y", linewidth=0.6)
        axes.tick_params(axis="both", length=0)
        axes.locator_params(axis="y", nbins=6)
        if not log:
            axes.locator_params(axis="x", nbins=5)
        _legend(figure, handles)

    return drawing.svg(230.0 + _LEGEND_ROW * len(handles), draw)


def along_levels(
    drawing: Drawing,
    levels: Sequence[str],
    track: BandedCurve,
    points: Sequence[Point | None],
    reach: tuple[float, float],
    *,
    level: str,
) -> str:
    """Draw the effect at each of some levels, a line each, with subgroups below; shape [m]."""
    handles = _handles(track, [one for one in points if one], level)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        plain_x_axis(axes, "effect")
        axes.set_ylim(len(levels) - 0.1, -0.35)
        axes.set_xlim(*reach)
        axes.axvline(0, **_ZERO)
        for place, name in enumerate(levels):
            left(axes, place, short(name, 40), color=MUTED)
            line, effect, noise = place + 0.36, track.effects[place], track.reach[place]
            if np.isfinite(noise):
                axes.plot([effect - noise, effect + noise], [line] * 2, color=SOFT, linewidth=8)
            axes.plot([effect], [line], "|", color=ACCENT, markersize=12, markeredgewidth=3.0)
            one = points[place]
            if one is not None:
                below = place + 0.56
                axes.plot([one.lower, one.upper], [below] * 2, color=INK, linewidth=1.8)
                axes.plot([one.estimate], [below], "o", color=INK, **DOT)
                for end, mark in cut_off(one.lower, one.upper, reach, "<>"):
                    axes.plot([end], [below], mark, color=INK, clip_on=False, markersize=7)
        _legend(figure, handles)

    return drawing.svg(_ROW * len(levels) + 52 + _LEGEND_ROW * len(handles), draw)


def bars(drawing: Drawing, rows: Sequence[tuple[str, float, str]], axis: str) -> str:
    """Draw a bar for each (label, length, number in words), from zero on."""
    longest = max((length for _, length, _ in rows), default=0.0)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        plain_x_axis(axes, axis)
        axes.set_ylim(len(rows) - 0.15, -0.35)
        axes.set_xlim(0, 1.02 * longest or 1.0)
        for place, (label, length, told) in enumerate(rows):
            left(axes, place, short(label, 36), color=MUTED)
            axes.text(
                1, place, told, transform=axes.get_yaxis_transform(), ha="right", va="center",
                color=INK, bbox=BEHIND,
            )  # fmt: skip
            axes.plot([0, length], [place + 0.42] * 2, color=ACCENT, linewidth=9)

    return drawing.svg(_ROW * len(rows) + 52, draw)


def gain(drawing: Drawing, share: Floats, track: BandedCurve, level: str, by_chance: float) -> str:
    """Draw the gain by the ``share`` of people treated, in [0, 1], shape [m], from (0, 0) on.

    Dashed: the gain of treating as many who are chosen by chance, ``by_chance`` at the last share;
    NaN where it is not known.
    """
    percent = 100 * share
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=ACCENT, linewidth=2.4, label="the gain"),
        Patch(facecolor=SOFT, label=f"its {level} interval"),
    ]
    if np.isfinite(by_chance):
        handles.append(Line2D([], [], label="as many, chosen by chance", **_ZERO))

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.axhline(0, color=MUTED, linewidth=0.8)
        low, high = track.effects - track.reach, track.effects + track.reach
        axes.fill_between(percent, low, high, color=SOFT, linewidth=0)
        if np.isfinite(by_chance):
            axes.plot(percent[[0, -1]], [0.0, by_chance], **_ZERO)
        axes.plot(percent, track.effects, color=ACCENT, linewidth=2.4)
        axes.plot(percent[1:], track.effects[1:], "o", color=INK, clip_on=False, **DOT)
        axes.set_xlim(0, 100)
        axes.set_ylim(*limits(track.ends()))
        axes.set_xlabel("treated, the greatest predicted effect first (%)")
        axes.set_ylabel("gain for each of all")
        axes.grid(linewidth=0.6)
        axes.tick_params(axis="both", length=0)
        axes.locator_params(axis="y", nbins=6)
        _legend(figure, handles)

    return drawing.svg(240.0 + _LEGEND_ROW * len(handles), draw)


def _handles(track: BandedCurve, points: Sequence[Point], level: str) -> list[Line2D | Patch]:
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=ACCENT, linewidth=2.4, label="the curve of the model")
    ]
    if track.has_band:
        handles.append(Patch(facecolor=SOFT, label="noise only, not whether the curve fits"))
    if points:
        told = f"subgroups, {level} intervals"
        handles.append(Line2D([], [], color=INK, marker="o", linewidth=1.8, label=told, **DOT))
    return handles


def _legend(figure: Figure, handles: list[Line2D | Patch]) -> None:
    figure.legend(
        handles=handles, loc="outside upper left", frameon=False, handlelength=1.6, labelcolor=INK
    )
