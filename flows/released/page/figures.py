"""The report's figures: drawn by matplotlib, handed over as SVG to stand within an HTML page.

Colours are variables of the page, so that figures follow its light, dark and printed looks; text
stays text, in the page's typeface. The same numbers give the same bytes: nothing is taken from
the reader's matplotlib settings, and marks are named by a hash with a fixed salt.
"""

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from flows.released.page.svg import embedded
from flows.released.page.words import clean, short, shown
from flows.runtime.plots import plain_matplotlib
from schemas.arrays import Floats

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType


WIDTH = 360.0
"""Of every figure, in its own units: as many as a narrow phone has pixels."""

# Each stands for a variable of the page, and is replaced by it.
INK, MUTED, RULE, ACCENT, SOFT = "#010101", "#020202", "#030303", "#040404", "#050505"
PAPER = "#0a0a0a"
ARMS = ("#060606", "#070707", "#080808", "#090909")
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    RULE: "--rule",
    ACCENT: "--accent",
    SOFT: "--soft",
    PAPER: "--paper",
    **{colour: f"--arm-{position}" for position, colour in enumerate(ARMS)},
}

_SETTINGS: dict["RcKeyType", Any] = {
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "axes.unicode_minus": True,
    "font.size": 12.5,
    "axes.labelsize": 12.5,
    "xtick.labelsize": 12.0,
    "ytick.labelsize": 12.0,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "axes.edgecolor": RULE,
    "grid.color": RULE,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "lines.solid_capstyle": "butt",  # intervals end where they end
    "figure.constrained_layout.use": True,
}
BEHIND = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.5}
"""What keeps lines from crossing a text."""
DOT: dict[str, Any] = {"markersize": 8.0, "markeredgewidth": 1.8, "markeredgecolor": PAPER}
"""A dot with a rim, so that it stands out from the bar below it."""


@dataclass(frozen=True)
class Drawing:
    """What a figure is called, and what it shows to whoever cannot see it."""

    anchor: str
    title: str
    description: str

    def svg(self, height: float, draw: Callable[[Figure], None]) -> str:
        """Draw a figure of this ``height``, in the units of :data:`WIDTH`."""
        with plain_matplotlib(_SETTINGS | {"svg.hashsalt": self.anchor}):
            figure = Figure(figsize=(WIDTH / 72, height / 72))
            draw(figure)
            for text in figure.findobj(Text):
                text.set_text(clean(text.get_text()))  # no character that SVG may not hold
            stream = io.BytesIO()
            figure.savefig(stream, format="svg")
        return embedded(
            stream.getvalue(), self.anchor, clean(self.title), clean(self.description), VARIABLES
        )


# effects


@dataclass(frozen=True)
class ForestLine:
    """One line of the forest plot."""

    arm: str
    """What stands over it and its neighbours, an arm mostly; empty for nothing."""
    label: str
    numbers: str
    """The estimate, or in words why there is none."""
    estimate: float | None
    lower: float | None
    upper: float | None
    unprotected: float
    """Which share of the interval's width would remain without the noise of privacy."""


def forest(
    drawing: Drawing,
    effects: Sequence[ForestLine],
    axis: str,
    reach: tuple[float, float] | None = None,
) -> str:
    """Draw every effect with its interval; within it, bold, what would remain without privacy.

    ``reach`` is the axis; arrows show where an interval goes on beyond it. None: all are within.
    """
    ends = reach_of(effects, np.inf) if reach is None else reach
    arms = list(dict.fromkeys(one.arm for one in effects))
    rows = len(effects) + 0.8 * sum(arm != "" for arm in arms)

    def draw(figure: Figure) -> None:
        axes = row_axes(figure, axis, rows - 0.1, ends)
        place = 0.0
        for arm in arms:
            if arm:
                left(axes, place + 0.1, short(arm, 34), weight="bold", color=INK)
                place += 0.75
            for one in (one for one in effects if one.arm == arm):
                _forest_row(axes, place, one, ends)
                place += 1
            place += 0.05 * (arm != "")

    return drawing.svg(38.0 * rows + 52, draw)


def row_axes(figure: Figure, label: str, height: float, reach: tuple[float, float]) -> Axes:
    """Axes with rows from 0 down to ``height``, over an axis of effects; none is dashed."""
    axes = figure.add_subplot()
    plain_x_axis(axes, label)
    axes.set_ylim(height, -0.35)
    axes.set_xlim(*reach)
    axes.axvline(0, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    return axes


def _forest_row(axes: Axes, place: float, one: ForestLine, reach: tuple[float, float]) -> None:
    left(axes, place, short(one.label, 34), color=MUTED if one.arm else INK)
    right(axes, place, one.numbers, INK)
    line = place + 0.42
    if one.estimate is None:
        return
    if one.lower is not None and one.upper is not None:
        bar(axes, line, (one.lower, one.upper), reach, SOFT, 7)
        inner = one.estimate + one.unprotected * np.array(
            [one.lower - one.estimate, one.upper - one.estimate]
        )
        axes.plot(inner, [line, line], color=ACCENT, linewidth=7)
    axes.plot([one.estimate], [line], "o", color=INK, **DOT)


def cut_off(
    lower: float, upper: float, reach: tuple[float, float], marks: str
) -> list[tuple[float, str]]:
    """The ends of an axis that an interval goes beyond, with the first or second of ``marks``."""
    beyond = (lower < reach[0], upper > reach[1])
    return [(end, mark) for end, mark, is_cut in zip(reach, marks, beyond, strict=True) if is_cut]


def bar(
    axes: Axes,
    line: float,
    ends: tuple[float, float],
    reach: tuple[float, float],
    color: str,
    width: float,
) -> None:
    """Draw an interval, with arrows where it goes on beyond the axis ``reach``."""
    axes.plot(ends, [line, line], color=color, linewidth=width)
    for end, mark in cut_off(*ends, reach, "<>"):
        axes.plot([end], [line], mark, color=INK, clip_on=False, markersize=max(width, 6))


def is_cut(effects: Sequence[ForestLine], reach: tuple[float, float]) -> bool:
    """Return whether an interval goes on beyond the axis ``reach``."""
    return any(
        one.lower is not None
        and one.upper is not None
        and cut_off(one.lower, one.upper, reach, "<>")
        for one in effects
    )


def reach_of(effects: Sequence[ForestLine], times: float = 3.0) -> tuple[float, float]:
    """Return an axis that holds every estimate, and intervals up to ``times`` as far from zero."""
    most = max((abs(one.estimate) for one in effects if one.estimate is not None), default=0.0)
    numbers = (number for one in effects for number in (one.estimate, one.lower, one.upper))
    ends = [0.0, *(number for number in numbers if number is not None)]
    farthest = times * most if most > 0 else np.inf
    low, high = max(min(ends), -farthest), min(max(ends), farthest)
    margin = 0.05 * (high - low) or 1.0
    return low - margin, high + margin


def left(
    axes: Axes, place: float, text: str, color: str, weight: str = "normal", end: int = 0
) -> None:
    """Write at the left end of a line, where numbers go down; at the right one if ``end`` is 1."""
    axes.text(
        end, place, text, transform=axes.get_yaxis_transform(), ha=("left", "right")[end],
        va="center", color=color, weight=weight, bbox=BEHIND,
    )  # fmt: skip


def right(axes: Axes, place: float, text: str, color: str) -> None:
    """Write at the right end of a line."""
    left(axes, place, text, color, end=1)


def plain_x_axis(axes: Axes, label: str) -> None:
    """An axis below, with light lines up from it; none at the left."""
    axes.set_xlabel(label)
    axes.set_yticks([])
    axes.grid(axis="x", linewidth=0.6)
    axes.tick_params(axis="x", length=3)
    axes.locator_params(axis="x", nbins=5)


# what epsilon means


def suspicion(drawing: Drawing, prior: Floats, least: Floats, most: Floats) -> str:
    """Draw how far a suspicion can move: from ``prior`` to between ``least`` and ``most``."""
    rows = len(prior)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        plain_x_axis(axes, "probability in the mind of whoever suspects (%)")
        axes.set_xlim(-2, 102)
        axes.set_ylim(rows - 0.15, -0.35)
        for place in range(rows):
            left(axes, place, f"before: {100 * prior[place]:g} %", color=MUTED)
            line = place + 0.42
            reach = [100 * least[place], 100 * most[place]]
            axes.plot(reach, [line, line], color=SOFT, linewidth=7)
            axes.plot(reach, [line, line], "|", color=ACCENT, markersize=13, markeredgewidth=2.5)
            axes.plot([100 * prior[place]], [line], "o", color=INK, **DOT)

    return drawing.svg(38.0 * rows + 52, draw)


# outcomes


@dataclass(frozen=True)
class Shares:
    """The distribution of outcomes in an arm, shape [K]."""

    arm: str
    share: Floats
    error: Floats
    """Standard error that the noise of privacy gives each share; NaN where not known."""


def distributions(
    drawing: Drawing, outcomes: Sequence[str], arms: Sequence[Shares], axis: str = "outcome"
) -> str:
    """Draw the distribution of outcomes in each arm; ticks show the first arm's beside others."""
    position = np.arange(len(outcomes), dtype=np.float64)
    n_ticks = max(2, int(44 / (2 + max(map(len, outcomes)))))  # as many as fit beside one another
    every = math.ceil(len(outcomes) / n_ticks)
    reach = [
        100 * (one.share + sign * 2 * np.nan_to_num(one.error)) for one in arms for sign in (-1, 1)
    ]
    low, high = min(0.0, *map(np.min, reach)), max(map(np.max, reach))

    def draw(figure: Figure) -> None:
        panels = figure.subplots(len(arms), 1, sharex=True, squeeze=False)[:, 0]
        for number, (axes, one) in enumerate(zip(panels, arms, strict=True)):
            _bars(axes, position, one, ARMS[0] if number == 0 else ARMS[1])
            if number:
                axes.plot(
                    position, 100 * arms[0].share, "_", color=INK, markeredgewidth=2,
                    markersize=max(4.0, 150 / len(outcomes)) if len(outcomes) > 3 else 50.0,
                )  # fmt: skip
            axes.set_ylim(low - 0.06 * (high - low) * (low < 0), high + 0.08 * (high - low))
            axes.set_xlim(-0.65, len(outcomes) - 0.35)
        panels[-1].set_xticks(position[::every], outcomes[::every])
        panels[-1].set_xlabel(axis)

    return drawing.svg(118.0 * len(arms) + 46, draw)


def yes_no(drawing: Drawing, arms: Sequence[Shares], axis: str) -> str:
    """Draw the share of outcome 1 in each arm: all arms in one panel, control first."""
    share = np.array([100 * one.share[1] for one in arms])
    reach = np.array([200 * np.nan_to_num(one.error[1]) for one in arms])
    low, high = min(0.0, (share - reach).min()), max((share + reach).max(), 0.0)
    margin = 0.05 * (high - low) or 1.0

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        plain_x_axis(axes, axis)
        axes.set_ylim(len(arms) - 0.1, -0.35)
        axes.set_xlim(low - margin * (low < 0), high + margin)
        axes.axvline(0, color=MUTED, linewidth=1)
        for place, one in enumerate(arms):
            left(axes, place, short(one.arm, 34), color=INK)
            line = place + 0.42
            axes.barh(line, share[place], height=0.3, color=ARMS[0 if place == 0 else 1])
            ends = [share[place] - reach[place], share[place] + reach[place]]
            axes.plot(ends, [line, line], color=INK, linewidth=1.3)
            right(axes, place, f"{shown(share[place], 3)} %", INK)

    return drawing.svg(38.0 * len(arms) + 52, draw)


def _bars(axes: Axes, position: Floats, one: Shares, colour: str) -> None:
    axes.bar(position, 100 * one.share, width=0.72, color=colour)
    known = np.isfinite(one.error)
    axes.errorbar(
        position[known], 100 * one.share[known], yerr=200 * one.error[known], fmt="none",
        ecolor=INK, elinewidth=1.3,
    )  # fmt: skip
    axes.axhline(0, color=MUTED, linewidth=0.8)
    axes.set_title(short(one.arm, 34), loc="left", fontsize=12.5, weight="bold", color=INK)
    axes.set_ylabel("share (%)")
    axes.grid(axis="y", linewidth=0.6)
    axes.tick_params(axis="both", length=0)
    axes.locator_params(axis="y", nbins=4)


# debias vectors


@dataclass(frozen=True)
class Weights:
    """The debias vector of a (pool, arm), shape [K]."""

    arm: str
    weight: Floats


def debias(
    drawing: Drawing, outcomes: Floats, arms: Sequence[str], found: Sequence[Weights]
) -> str:
    """Draw what each released outcome counts for; dashed, what it would without randomisation."""
    drawn = {one.arm for one in found}
    named = [arm for arm in arms if arm in drawn]
    columns = 2 if max((len(short(arm)) for arm in named), default=0) <= 16 else 1

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.plot(outcomes, outcomes, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        styles = {arm: _style(place) for place, arm in enumerate(named)}
        for one in found:
            axes.plot(outcomes, one.weight, **styles[one.arm])
        axes.set_xlabel("released outcome")
        axes.set_ylabel("counts as")
        axes.grid(linewidth=0.6)
        axes.tick_params(axis="both", length=0)
        axes.locator_params(nbins=6)
        lines = [Line2D([], [], label=short(arm), **styles[arm]) for arm in named]
        figure.legend(
            handles=lines, loc="outside upper left", ncols=columns, frameon=False,
            handlelength=1.6, labelcolor=INK,
        )  # fmt: skip

    return drawing.svg(212.0 + 20.0 * math.ceil(len(named) / columns), draw)


def _style(place: int) -> dict[str, Any]:
    """How the lines of an arm look: sixteen ways, the first to be seen below others."""
    return {
        "color": ARMS[place % 4],
        "marker": ("o", "s", "^", "D")[(place + place // 4) % 4],
        "linewidth": 3.2 if place == 0 else 1.2,
        "markersize": 8.0 if place == 0 else 5.0,
        "zorder": 2 + place / 100,
    }
