"""The forest plot of a server: what each site reports, and below it every aggregate.

Drawn by matplotlib from reports alone. The same reports give the same bytes of SVG: nothing is
taken from the reader's matplotlib settings, and marks are named by a hash with a fixed salt.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from estimators.effects.site_aggregates import normal_interval
from flows.effects.released.site_aggregates import LEVEL, Combined
from flows.released.page.words import short
from flows.runtime.plots import plain_matplotlib, save_figure
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

FORMATS = (".svg", ".png")
MOST_SITES = 60
"""Sites that one plot has room for; of more the largest are drawn."""

INK, MUTED, RULE, SITE, TOTAL = "#1b1f24", "#57606a", "#c9d1d9", "#1f6feb", "#b35900"
"""Colours on white that differ in lightness too; text has a contrast of at least 4.5 to 1."""

_SETTINGS: dict["RcKeyType", Any] = {
    "svg.hashsalt": "clusterdp-forest",
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "axes.unicode_minus": True,
    "font.size": 11.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": MUTED,
    "axes.edgecolor": RULE,
    "grid.color": RULE,
    "figure.facecolor": "white",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "lines.solid_capstyle": "butt",
    "savefig.dpi": 150,
}
_ROW = 0.3  # inches
_MARGINS = 1.35  # inches, of title, axis and caption together
_WIDTH = 11.2
_PANEL = (0.21, 0.295)  # left edge and width of the axes, in parts of the figure
_LEFT, _RIGHT = -0.65, 2.62
"""Where texts begin and end, in widths of the axes: the longest have room beside each other."""
_NAMES = {
    "mvagg": "best set (mvagg)",
    "ivw": "by inverse variance (ivw)",
    "all": "all, by units (all)",
    "largest": "largest site (largest)",
}


@dataclass(frozen=True)
class _ForestRow:
    label: str
    note: str
    estimate: float
    variance: float
    weight: float
    """Of a site in ``mvagg``; sizes its square."""
    is_total: bool = False


def check_format(path: Path) -> None:
    """Raise ConfigError where a plot's name asks for no format that there is."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError("--plot", f"{path} must end in {' or '.join(FORMATS)}")


def write_forest(combined: Combined, path: Path) -> Path:
    """Draw every site with its interval and its weight, then the aggregates; the absolute path.

    ConfigError where the name asks for no format there is, InputError where it cannot be written.
    """
    check_format(path)
    target = path.absolute()
    with plain_matplotlib(_SETTINGS):
        save_figure(_figure(combined), target)
    return target


def _figure(combined: Combined) -> Figure:
    rows, left_out = _rows(combined)
    height = _ROW * (len(rows) + 1.6) + _MARGINS
    figure = Figure(figsize=(_WIDTH, height))
    bottom = 0.95 / height
    axes = figure.add_axes((_PANEL[0], bottom, _PANEL[1], 1 - bottom - 0.45 / height))
    _draw(axes, rows)
    first = combined.reports[0]
    figure.suptitle(
        f"{short(first.experiment, 40)}: effect of {short(first.treatment)} against "
        f"{short(first.control)}",
        x=0.02, y=1 - 0.12 / height, ha="left", va="top", fontsize=12.5, weight="bold",
    )  # fmt: skip
    parts = [f"{100 * LEVEL:g} % intervals, noise of privacy included; hollow: not in the best set"]
    if combined.homogeneity is not None:
        parts.append(f"one effect: Cochran's Q, p = {combined.homogeneity.p_value:.2g}")
    if left_out:
        parts.append(f"{left_out:,} smaller sites are not drawn")
    figure.text(0.02, 0.12 / height, "; ".join(parts), color=MUTED, fontsize=9.5)
    return figure


def _rows(combined: Combined) -> tuple[list[_ForestRow], int]:
    mvagg = next(one for one in combined.aggregates if one.method == "mvagg")
    weights = np.zeros(len(combined.reports))
    weights[mvagg.used] = mvagg.weights
    units = np.array([report.n_units for report in combined.reports])
    shown = np.sort(np.argsort(-units, kind="stable")[:MOST_SITES])
    sites = [
        _ForestRow(
            short(combined.reports[place].site),
            f"{combined.reports[place].n_units:,} units, ε {combined.reports[place].epsilon:.4g}",
            combined.reports[place].estimate,
            float(combined.variance[place]),
            float(weights[place]),
        )
        for place in shown
    ]
    n_sites = len(combined.reports)
    totals = [
        _ForestRow(
            _NAMES[one.method],
            f"{len(one.used):,} of {n_sites:,} sites",
            one.estimate,
            one.variance,
            1.0,
            is_total=True,
        )
        for one in combined.aggregates
    ]
    return [*sites, *totals], n_sites - len(shown)


def _draw(axes: Axes, rows: list[_ForestRow]) -> None:
    places = np.arange(len(rows)) + 0.6 * np.array([row.is_total for row in rows])
    ends = [normal_interval(row.estimate, row.variance, LEVEL) for row in rows]
    low = min(0.0, *(lower for lower, _ in ends))
    high = max(0.0, *(upper for _, upper in ends))
    margin = 0.05 * (high - low) or 1.0
    axes.set_xlim(low - margin, high + margin)
    axes.set_ylim(places[-1] + 0.7, -0.7)
    axes.set_yticks([])
    axes.set_xlabel("effect, in the unit of the outcome")
    axes.grid(axis="x", linewidth=0.6)
    axes.tick_params(axis="x", length=3)
    axes.locator_params(axis="x", nbins=5)
    axes.axvline(0, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    axes.axhline(
        places[-1] - 3.8, color=RULE, linewidth=0.8, xmin=_LEFT, xmax=_RIGHT, clip_on=False
    )
    for place, row, (lower, upper) in zip(places, rows, ends, strict=True):
        _draw_row(axes, float(place), row, lower, upper)


def _draw_row(axes: Axes, place: float, row: _ForestRow, lower: float, upper: float) -> None:
    colour = TOTAL if row.is_total else SITE
    if row.is_total:
        corners = ([lower, row.estimate, upper, row.estimate], [place, place - 0.28] * 2)
        corners[1][3] = place + 0.28
        axes.fill(*corners, facecolor=colour, edgecolor=colour, linewidth=1)
    else:
        axes.plot([lower, upper], [place, place], color=colour, linewidth=1.6)
        face = colour if row.weight else "white"
        axes.plot(
            [row.estimate], [place], "s", color=colour, markerfacecolor=face,
            markersize=4.5 + 7.5 * row.weight**0.5,
        )  # fmt: skip
    across = axes.get_yaxis_transform()
    axes.text(_LEFT, place, row.label, transform=across, ha="left", va="center")
    numbers = f"{row.estimate:.3g}  [{lower:.3g}, {upper:.3g}]".replace("-", "−")
    axes.text(1.05, place, numbers, transform=across, ha="left", va="center")
    axes.text(_RIGHT, place, row.note, transform=across, ha="right", va="center", color=MUTED)
