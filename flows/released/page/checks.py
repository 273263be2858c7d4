"""What to distrust, for ``templates/checks.html``: by public facts and by what is released."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from estimators.coverage import is_skew, remedy
from estimators.ends import ends_warnings
from flows.released.page.contents import Contents
from flows.released.page.results import Answered
from flows.released.page.words import called, name


def checks(contents: Contents, found: Sequence[Answered]) -> dict[str, Any]:
    """Return arm sizes, the least coverage, outcomes at the ends of grids, and skew arms."""
    leads = [row for one in found for row in one.leads]
    metrics = {one.contents.metric.metric: one.contents for one in found}
    ends = []
    for metric, of_metric in groupby(contents.ends, key=lambda one: one.metric):
        most = max(of_metric, key=lambda one: (one.share, one.end != "missing"))
        grid = metrics[metric].outcomes
        value = {"lowest": f"{grid[0]:g}", "highest": f"{grid[-1]:g}"}.get(most.end, most.end)
        ends.append((called(metrics[metric].scale), value, most.share))
    known = [row["coverage"] for row in leads if row["coverage"] is not None]
    return {
        "remedy": remedy(same_shares=contents.manifest.same_shares),
        "least": min(known, default=None),
        "one_value": ends_warnings(contents.ends),
        "ends": ends,
        "skew": list(dict.fromkeys(name(row["arm"]) for row in leads if is_skew(row["skewness"]))),
    }
