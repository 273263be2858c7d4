"""Effects by published attribute, for ``templates/attributes.html``: as they are, and shrunken."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import duckdb
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from estimators.coverage import is_skew
from estimators.means import SHARPEST_FIRST
from flows.released.estimates.by_attribute import AttributeEstimate, estimate_values
from flows.released.file.evidence import Released
from flows.released.page.figures import (
    ACCENT,
    INK,
    MUTED,
    PAPER,
    SOFT,
    Drawing,
    bar,
    left,
    right,
    row_axes,
)
from flows.released.page.scale import Scale
from flows.released.page.words import short, shown
from schemas.errors import InputError

Rows = Sequence[AttributeEstimate]
ByAttribute = dict[str, Rows]
"""Effects by the values of attributes, on all metrics; none where one has too many values."""

MOST_SEGMENTS = 30
"""Segments that one plot has room for; of more the largest are drawn."""

_FARTHEST = 1.5  # times the width of the middle interval that the axis goes beyond the effects
_RAW, _SHRUNKEN = 0.40, 0.66  # where they stand below a segment's name
MOST_ARMS: Final = 4
"""Arms that effects by an attribute are shown of."""
_SCALED: Final = (
    "estimate", "ci_lower", "ci_upper", "shrunken", "shrunken_ci_lower", "shrunken_ci_upper"
)  # fmt: skip


def read_by_attribute(
    connection: duckdb.DuckDBPyConnection, path: Path, every: Sequence[Released], level: float
) -> ByAttribute:
    """Estimate the effects by each attribute of the release at ``path``, which is open."""
    manifest = every[0].manifest
    effects: ByAttribute = {}
    for name in manifest.attributes:
        effects[name] = ()
        with suppress(InputError):  # it has too many values
            by = estimate_values(connection, path, name, level, every, manifest.metrics)
            effects[name] = by.estimates
    return effects


def attribute_facts(by: ByAttribute, metric: str, scale: Scale, mark: str) -> list[dict[str, Any]]:
    """What is shown of each attribute: for an arm after the other a forest plot and a table."""
    facts = []
    for at, (attribute, estimates) in enumerate(by.items(), start=1):
        rows = [one for one in estimates if one.metric == metric]
        if rows or not estimates:
            shown_rows = _facts(attribute, rows, scale, f"{mark}-{at}")
            facts.append({"is_first": at == 1, **shown_rows})
    return facts


def _facts(attribute: str, of_metric: Rows, scale: Scale, mark: str) -> dict[str, Any]:
    sharpest = next(
        (name for name in SHARPEST_FIRST if any(one.estimator == name for one in of_metric)), None
    )
    rows = [one for one in of_metric if one.estimator == sharpest]
    arms = list(dict.fromkeys(one.arm for one in rows))
    return {
        "attribute": attribute,
        "arms": [
            _of_arm(attribute, [one for one in rows if one.arm == arm], scale, f"{mark}-{at}")
            for at, arm in enumerate(arms[:MOST_ARMS], start=1)
        ],
        "n_segments": len({one.segment for one in rows}),
        "n_arms": len(arms),
        "is_shrunken": any(one.shrunken is not None for one in rows),
    }


def _of_arm(attribute: str, rows: Rows, scale: Scale, mark: str) -> dict[str, Any]:
    drawn = list(drawn_segments(rows))
    arm = rows[0].arm
    drawing = Drawing(
        f"figure-by{mark}",
        f"Effects of {arm} on {scale.label or 'the outcome'} by {attribute}",
        f"Forest plot of {len(drawn)} segments: each effect as it is, and below it shrunken. The "
        "table beside has the same numbers.",
    )
    axis = scale.heading(f"effect of {short(arm)}")
    return {
        "arm": arm,
        "mark": mark,
        "rows": drawn,
        "n_told": sum(_is_told(one) for one in rows),
        "skew": [one for one in drawn if is_skew(one.skewness)],
        "svg": forest_by(
            drawing, drawn_segments([_scaled(one, scale.factor) for one in rows]), axis
        ),
    }


def _scaled(one: AttributeEstimate, factor: float) -> AttributeEstimate:
    """The estimate as the axis has it."""
    numbers = ((name, getattr(one, name)) for name in _SCALED)
    changed: dict[str, Any] = {name: value * factor for name, value in numbers if value is not None}
    return replace(one, **changed)


def _is_told(one: AttributeEstimate) -> bool:
    """Whether the effect is told from none, allowing for the number of segments."""
    p_value = one.p_value_holm_segments
    return p_value is not None and p_value < 1 - one.confidence_level and not is_skew(one.skewness)


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
        axes = row_axes(figure, axis, height, reach)
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
    for of_effect, below, colour, face in (
        (raw, _RAW, SOFT, PAPER),
        (shrunken, _SHRUNKEN, ACCENT, INK),
    ):
        estimate, lower, upper = of_effect
        if lower is not None and upper is not None:
            bar(axes, place + below, (lower, upper), reach, colour, 5)
        if estimate is not None and reach[0] <= estimate <= reach[1]:
            axes.plot(
                [estimate], [place + below], "o", color=INK, markerfacecolor=face, markersize=6,
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
