"""The forest plot of a server: what each site reports, and below it every aggregate.

Drawn as SVG from reports alone; the same reports give the same bytes.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np

from estimators.effects.site_aggregates import normal_interval
from flows.effects.released.site_aggregates import LEVEL, Combined
from flows.released.page.html import render, write_page
from flows.released.page.rows import placed
from flows.released.page.words import level_words, short
from schemas.errors import ConfigError

MOST_SITES: Final = 60
"""Sites that one plot has room for; of more the largest are drawn."""
_ROW = 24.0  # pixels
_NAMES = {
    "ivw-pooled": "as dealt (ivw-pooled)",
    "mvagg": "best set (mvagg)",
    "ivw": "by inverse variance (ivw)",
    "all": "all, by units (all)",
    "largest": "largest site (largest)",
    "mean-of-sites": "mean of sites (mean-of-sites)",
}


def check_format(path: Path) -> None:
    """Raise ConfigError where a plot's name asks for no format that there is."""
    if path.suffix.lower() != ".svg":
        raise ConfigError("--plot", f"{path} must end in .svg")


def write_forest(combined: Combined, path: Path) -> Path:
    """Draw every site with its interval and its weight, then the aggregates; the absolute path.

    ConfigError where the name asks for no format there is, InputError where it cannot be written.
    """
    check_format(path)
    return write_page(path, forest(combined))


def forest(combined: Combined) -> str:
    """Return the drawing."""
    mvagg = next(one for one in combined.aggregates if one.method == "mvagg")
    weights = np.zeros(len(combined.reports))
    weights[mvagg.used] = mvagg.weights
    units = np.array([report.n_units for report in combined.reports])
    drawn = np.sort(np.argsort(-units, kind="stable")[:MOST_SITES])
    n_sites = len(combined.reports)
    rows = [_site(combined, int(place), float(weights[place])) for place in drawn]
    for one in combined.aggregates:
        note = f"{len(one.used):,} of {n_sites:,} sites"
        interval = one.interval(LEVEL)
        rows.append(_row(_NAMES[one.method], note, one.estimate, interval, is_total=True))
    ends = [0.0, *(end for row in rows for end in row["interval"])]
    (ruler,) = placed(np.array([[0.0 - min(ends), max(ends)]]))
    for place, row in enumerate(rows):
        row["y"] = _ROW * (place + 2.2 + 0.6 * row["is_total"])
    first, left_out = combined.reports[0], n_sites - len(drawn)
    return render(
        "forest.svg",
        title=f"{short(first.experiment, 40)}: effect of {short(first.treatment)} against "
        f"{short(first.control)}",
        rows=rows,
        ruler=ruler,
        level=level_words(LEVEL),
        bottom=_ROW * (len(rows) + 2.4),
        test=combined.homogeneity,
        left_out=left_out,
    )


def _site(combined: Combined, place: int, weight: float) -> dict[str, Any]:
    report = combined.reports[place]
    note = f"{report.n_units:,} units, ε {report.epsilon:.4g}"
    interval = normal_interval(report.estimate, float(combined.variance[place]), LEVEL)
    row = _row(short(report.site), note, report.estimate, interval, is_total=False)
    return row | {"radius": f"{3 + 4 * weight**0.5:.1f}", "is_open": not weight}


def _row(
    label: str, note: str, estimate: float, interval: tuple[float, float], *, is_total: bool
) -> dict[str, Any]:
    row = {"label": label, "note": note, "estimate": estimate, "interval": interval}
    return row | {"is_total": is_total}
