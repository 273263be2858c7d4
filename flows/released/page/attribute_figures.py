"""The forest plot of effects by an attribute: each as it is, and shrunken below it."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from flows.released.estimates.by_attribute import AttributeEstimate
from flows.released.page.figures import (
    ACCENT,
    INK,
    MUTED,
    PAPER,
    SOFT,
    Drawing,
    bar,
    left,
    plain_x_axis,
    right,
)
from flows.released.page.words import short, shown

MOST_SEGMENTS = 30
"""Segments that one plot has room for; of more the largest are drawn."""

Rows = Sequence[AttributeEstimate]

_FARTHEST = 1.5  # times the width of the middle interval that the axis goes beyond the effects
_RAW, _SHRUNKEN = 0.40, 0.66  # where they stand below a segment's name


def drawn_segments(rows: Rows) -> Rows:
    """Leave out the smallest segments, where there are more than a plot has room for."""
    by_size = sorted(range(len(rows)), key=lambda at: (-rows[at].n_segment, at))
    return [rows[at] for at in sorted(by_size[:MOST_SEGMENTS])]


def forest_by(drawing: Drawing, rows: Rows, axis: str) -> str:
    """Draw the effects of one arm by one estimator, a row a segment; ``axis`` names what they are.

    Above with a hollow dot the effect as it is, below with a full one the shrunken effect, both
    with their intervals; arrows show where an interval goes on beyond the axis. A segment where
    nothing can be compared says so. The numbers are the effects, as they are and shrunken.
    """
    reach = _reach(rows)
    height = len(rows) + 0.1

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        plain_x_axis(axes, axis)
        axes.set_ylim(height, -0.35)
        axes.set_xlim(*reach)
        axes.axvline(0, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        for place, one in enumerate(rows):
            _draw_row(axes, float(place), one, reach)
        figure.legend(
            handles=_legend(), loc="outside upper left", ncols=2, frameon=False, handlelength=1.6,
            labelcolor=INK,
        )  # fmt: skip

    return drawing.svg(40.0 * height + 82, draw)


def _draw_row(
    axes: Axes,
    place: float,
    one: AttributeEstimate,
    reach: tuple[float, float],
) -> None:
    left(axes, place, short(one.segment or "", 26), color=INK)
    if one.estimate is not None:
        numbers = shown(one.estimate, 3)
    else:
        numbers = "near zero below" if one.n_units else "too few units"
    if one.shrunken is not None:
        numbers = f"{numbers} → {shown(one.shrunken, 3)}"
    right(axes, place, numbers, MUTED)
    raw = (one.estimate, one.ci_lower, one.ci_upper)
    shrunken = (one.shrunken, one.shrunken_ci_lower, one.shrunken_ci_upper)
    _interval(axes, place + _RAW, raw, reach, SOFT, PAPER)
    _interval(axes, place + _SHRUNKEN, shrunken, reach, ACCENT, INK)


def _interval(
    axes: Axes,
    line: float,
    numbers: tuple[float | None, float | None, float | None],
    reach: tuple[float, float],
    colour: str,
    face: str,
) -> None:
    estimate, lower, upper = numbers
    if lower is not None and upper is not None:
        bar(axes, line, (lower, upper), reach, colour, 5)
    if estimate is not None and reach[0] <= estimate <= reach[1]:
        axes.plot(
            [estimate], [line], "o", color=INK, markerfacecolor=face, markersize=6,
            markeredgewidth=1.4,
        )  # fmt: skip


def _legend() -> list[Line2D]:
    kinds = (("as it is", SOFT, PAPER), ("shrunken", ACCENT, INK))
    return [
        Line2D(
            [], [], color=colour, linewidth=5, marker="o", markersize=6, markeredgewidth=1.4,
            markeredgecolor=INK, markerfacecolor=face, label=label,
        )
        for label, colour, face in kinds
    ]  # fmt: skip


def _reach(rows: Rows) -> tuple[float, float]:
    """The axis: all shrunken effects, and of the rest as much as leaves room for other segments."""
    effects = [0.0]
    for one in rows:
        best = one.estimate if one.shrunken is None else one.shrunken
        effects += [] if best is None else [best]
    ends = [
        (one.ci_lower, one.ci_upper)
        for one in rows
        if one.ci_lower is not None and one.ci_upper is not None
    ]
    widths = sorted(upper - lower for lower, upper in ends)
    most = _FARTHEST * widths[len(widths) // 2] if widths else 0.0
    low = max(min([*effects, *(lower for lower, _ in ends)]), min(effects) - most)
    high = min(max([*effects, *(upper for _, upper in ends)]), max(effects) + most)
    margin = 0.05 * (high - low) or 1.0
    return low - margin, high + margin
