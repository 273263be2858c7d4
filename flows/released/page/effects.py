"""Effects of every arm, for ``templates/effects.html`` and the head of the page."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from estimators.arm_effects import Estimate
from estimators.coverage import LEAST_COVERAGE, is_skew, remedy
from flows.released.page import figures
from flows.released.page.contents import MOST_ARMS, Contents, MetricContents
from flows.released.page.details import MOST_ROWS, estimator_name
from flows.released.page.scale import Scale
from flows.released.page.words import clean, short, shown
from schemas.released import Ratio

MOST_LEADS = 12
"""Effects of a metric that are told in words at the top."""
FEW_LEADS = 3
"""So many have large letters."""


def unprotected(std_error: float, privacy_std_error: float) -> float:
    """√(se² − privacy se²)/se, the share of an interval's width that is not due to privacy."""
    if not std_error > 0:
        return 1.0
    return math.sqrt(max(1 - (privacy_std_error / std_error) ** 2, 0.0))


def effects_facts(contents: Contents, one: MetricContents, mark: str) -> dict[str, Any]:
    """Effects on a metric: one estimate an arm to read, with a forest plot, and all there are.

    ``mark`` ends the names of its figures.
    """
    by_arm: dict[str, list[dict[str, Any]]] = {}
    for row in one.estimates:
        by_arm.setdefault(row["arm"], []).append(row | _words(row, one))
    leads = [rows[0] for rows in by_arm.values()]
    percent = f"{100 * contents.level:g}"
    control = leads[0]["control"] if leads else None
    drawn = leads[:MOST_ARMS]
    return {
        "by_arm": by_arm,
        "leads": leads,
        "n_told": min(len(leads), MOST_LEADS),
        "is_folded": any(len(rows) > 1 for rows in by_arm.values()),
        "missing": [arm for arm in contents.arms[1:] if arm not in by_arm][:MOST_ROWS],
        "is_partial": any(row["is_partial"] for rows in by_arm.values() for row in rows),
        "few": [row for row in leads if row["is_partial"] and row["coverage"] < LEAST_COVERAGE][
            :MOST_ROWS
        ],
        "skew": [row for row in leads if row["is_skew"]][:MOST_ROWS],
        "remedy": remedy(same_shares=contents.manifest.same_shares),
        "has_relative": any(row["relative"] is not None for row in leads),
        "has_means": any(row["control_mean"] is not None for row in leads),
        "level": f"{percent}\u00a0%",
        "hundred": percent,
        "is_ratio": isinstance(one.metric, Ratio),
        "control": control,
        "n_drawn": len(drawn),
        "svg": None if control is None else _forest(drawn, one.scale, control, mark),
    }


def _words(row: Mapping[str, Any], one: MetricContents) -> dict[str, Any]:
    """What a page says of an estimate besides its numbers."""
    control_mean = row["control_mean"]
    return {
        "label": estimator_name(row["estimator"], one.statistic),
        "unprotected": unprotected(row["std_error"] or 0.0, row["privacy_std_error"] or 0.0),
        "is_partial": row["coverage"] is not None and row["coverage"] < 1,
        "is_skew": is_skew(row["skewness"]),
        "mean": None if control_mean is None else control_mean + row["estimate"],
    }


def _forest(rows: Sequence[Mapping[str, Any]], scale: Scale, control: str, mark: str) -> str:
    drawing = figures.Drawing(
        f"figure-effects{mark}",
        f"Effects on {scale.label or 'the outcome'} with their confidence intervals",
        f"Forest plot of {len(rows)} arms against {control}, and how much of each interval "
        "is due to privacy. The table of effects has the same numbers.",
    )
    effects = [effect_line("", row["arm"], row, scale) for row in rows]
    return figures.forest(drawing, effects, scale.heading(f"effect against {short(control)}"), None)


def effect_line(over: str, label: str, row: Mapping[str, Any], scale: Scale) -> figures.ForestLine:
    """Return the line of a forest plot for an estimate, in the unit of its metric."""
    estimate, lower, upper = (
        None if row[name] is None else row[name] * scale.factor
        for name in ("estimate", "ci_lower", "ci_upper")
    )
    return figures.ForestLine(
        arm=over,
        label=label,
        numbers="no estimate" if estimate is None else shown(estimate, 3),
        estimate=estimate,
        lower=lower,
        upper=upper,
        unprotected=unprotected(row["std_error"] or 0.0, row["privacy_std_error"] or 0.0),
    )


# arms against each other


def between_facts(contents: Contents, one: MetricContents, mark: str) -> dict[str, Any] | None:
    """Treatment arms against each other; None where there are no two."""
    if not one.between:
        return None
    drawing = figures.Drawing(
        f"figure-between{mark}",
        f"Arms against each other, {one.scale.label or 'the outcome'}",
        f"Forest plot of {len(one.between)} differences between treatment arms. The table beside "
        "has the same numbers.",
    )
    lines = [
        effect_line(row.arm, f"against {short(row.control, 26)}", vars(row), one.scale)
        for row in one.between
    ]
    by_arm: dict[str, list[Estimate]] = {}
    for row in one.between:
        by_arm.setdefault(row.arm, []).append(row)
    return {
        "rows": one.between,
        "by_arm": by_arm,
        "label": estimator_name(one.between[0].estimator, one.statistic),
        "told_apart": [row for row in one.between if is_clear(row)],
        "skew": [row for row in one.between if is_skew(row.skewness)],
        "n_arms": len({row.arm for row in one.between} | {row.control for row in one.between}),
        "n_all": len(contents.arms) - 1,
        "svg": figures.forest(drawing, lines, one.scale.heading("difference")),
    }


def is_clear(row: Estimate) -> bool:
    """Whether a difference is told from none, allowing for the number of comparisons."""
    if row.p_value_holm is None or is_skew(row.skewness):
        return False
    return row.p_value_holm < 1 - row.confidence_level


# all metrics


def summary_facts(
    metrics: Sequence[tuple[Scale, Sequence[Mapping[str, Any]]]], control: str
) -> dict[str, Any] | None:
    """Relative effects of all arms on all metrics, in one forest plot; None with one metric.

    ``metrics`` has the scale of each, and its estimates to read. Relative effects have one scale
    whatever the metric is measured in; a standardised one would need the outcomes' own variances,
    which a release does not tell without noise.
    """
    if len(metrics) < 2:
        return None
    lines = [
        figures.ForestLine(
            arm=scale.label or scale.subject,
            label=row["arm"],
            numbers="not known" if row["relative"] is None else relative_words(row["relative"]),
            **{
                name: None if row[key] is None else 100 * row[key]
                for name, key in (
                    ("estimate", "relative"),
                    ("lower", "relative_ci_lower"),
                    ("upper", "relative_ci_upper"),
                )
            },
            unprotected=row["unprotected"],
        )
        for scale, rows in metrics
        for row in rows[:MOST_ARMS]
    ]
    drawing = figures.Drawing(
        "figure-summary",
        "Relative effects on all metrics",
        f"Forest plot of {len(lines)} relative effects, in per cent of the control's mean. The "
        "tables below have the same numbers.",
    )
    reach = figures.reach_of(lines)
    return {
        "svg": figures.forest(drawing, lines, f"% of the mean under {short(control)}", reach),
        "is_cut": figures.is_cut(lines, reach),
        "unknown": [(one.arm, one.label) for one in lines if one.estimate is None],
    }


def relative_words(share: float, digits: int = 3) -> str:
    """A relative effect in per cent, with its sign."""
    return clean(("+" if share > 0 else "") + shown(100 * share, digits) + " %")
