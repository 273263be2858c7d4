"""Effects of every arm, for ``templates/effects.html`` and the head of the page."""

import math
from collections.abc import Sequence
from typing import Any

from estimators.coverage import LEAST_COVERAGE, remedy
from flows.released.page import figures
from flows.released.page.contents import MOST_ARMS, Contents
from flows.released.page.details import MOST_ROWS, estimator_name
from flows.released.page.words import short, shown

MOST_LEADS = 3
"""Effects that are told in words at the top."""


def unprotected(std_error: float, privacy_std_error: float) -> float:
    """√(se² − privacy se²)/se, the share of an interval's width that is not due to privacy."""
    if not std_error > 0:
        return 1.0
    return math.sqrt(max(1 - (privacy_std_error / std_error) ** 2, 0.0))


def effects_facts(contents: Contents) -> dict[str, Any]:
    """Effects by arm, the sharpest first, and a forest plot of the first arms."""
    statistic = contents.metric.strata_statistic
    by_arm: dict[str, list[dict[str, Any]]] = {}
    for one in contents.estimates:
        row = {
            "label": estimator_name(one["estimator"], statistic),
            "unprotected": unprotected(one["std_error"], one["privacy_std_error"]),
            "is_partial": one["coverage"] is not None and one["coverage"] < 1,
        }
        by_arm.setdefault(one["arm"], []).append(one | row)
    compared = {one["treatment"] for one in contents.estimates}
    facts: dict[str, Any] = {
        "by_arm": by_arm,
        "leads": [rows[0] for rows in by_arm.values()][:MOST_LEADS],
        "missing": [arm for arm in contents.arms[1:] if arm not in compared][:MOST_ROWS],
        "is_partial": any(one["is_partial"] for rows in by_arm.values() for one in rows),
        "few": [
            {"arm": arm, "coverage": rows[0]["coverage"]}
            for arm, rows in by_arm.items()
            if rows[0]["is_partial"] and rows[0]["coverage"] < LEAST_COVERAGE
        ][:MOST_ROWS],
        "remedy": remedy(same_shares=contents.manifest.same_shares),
    }
    if by_arm:
        first = contents.estimates[0]
        percent = f"{100 * first['confidence_level']:g}"
        drawn = list(by_arm)[:MOST_ARMS]
        facts |= {
            "control": first["control"],
            "level": f"{percent}\u00a0%",
            "hundred": percent,
            "n_drawn": len(drawn),
            "svg": _forest([one for arm in drawn for one in by_arm[arm]], first["control"]),
        }
    return facts


def _forest(rows: Sequence[dict[str, Any]], control: str) -> str:
    drawing = figures.Drawing(
        "figure-effects",
        "Effects with their confidence intervals",
        f"Forest plot of {len(rows)} estimates against {control}, and how much of each interval "
        "is due to privacy. The table of effects has the same numbers.",
    )
    effects = [
        figures.Effect(
            arm=one["arm"],
            label=one["label"],
            numbers=shown(one["estimate"], 3),
            estimate=one["estimate"],
            lower=one["ci_lower"],
            upper=one["ci_upper"],
            unprotected=one["unprotected"],
        )
        for one in rows
    ]
    return figures.forest(drawing, effects, f"effect against {short(control)}")
