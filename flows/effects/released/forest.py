"""The forest plot of a server: what each site reports, and below it every aggregate.

Drawn as SVG from reports alone; the same reports give the same bytes.
"""

from pathlib import Path
from typing import Final

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
    reports, n_sites = combined.reports, len(combined.reports)
    mvagg = next(one for one in combined.aggregates if one.method == "mvagg")
    weights = np.zeros(n_sites)
    weights[mvagg.used] = mvagg.weights
    units = np.array([report.n_units for report in reports])
    drawn = np.sort(np.argsort(-units, kind="stable")[:MOST_SITES]).tolist()
    rows: list[tuple[str, str, float, tuple[float, float], float | None]] = [
        (
            short(reports[at].site),
            f"{reports[at].n_units:,} units, ε {reports[at].epsilon:.4g}",
            reports[at].estimate,
            normal_interval(reports[at].estimate, float(combined.variance[at]), LEVEL),
            float(weights[at]),
        )
        for at in drawn
    ]
    for one in combined.aggregates:
        note = f"{len(one.used):,} of {n_sites:,} sites"
        rows.append((_NAMES[one.method], note, one.estimate, one.interval(LEVEL), None))
    ends = [0.0, *(end for _, _, _, interval, _ in rows for end in interval)]
    (ruler,) = placed(np.array([[0.0 - min(ends), max(ends)]]))
    first = reports[0]
    return render(
        "forest.svg",
        title=f"{short(first.experiment, 40)}: effect of {short(first.treatment)} against "
        f"{short(first.control)}",
        rows=rows,
        ruler=ruler,
        level=level_words(LEVEL),
        height=_ROW,
        test=combined.homogeneity,
        left_out=n_sites - len(drawn),
    )
