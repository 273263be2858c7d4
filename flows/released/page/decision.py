"""What arms were declared to be kept for, and whether they are: ``templates/decision.html``."""

from typing import Any

from estimators.decisions import Decision
from flows.released.page.contents import Contents
from flows.released.page.details import MOST_ROWS


def decision_facts(contents: Contents) -> dict[str, Any] | None:
    """The verdicts by metric, and what becomes of each arm; None where nothing was declared."""
    found = contents.decisions
    if found is None:
        return None
    scales = {one.metric.metric: one.scale for one in contents.metrics}
    by_metric: dict[str, list[Decision]] = {}
    for row in found.rows:
        by_metric.setdefault(row.metric, []).append(row)
    return {
        "groups": [
            (scales[metric], rows[0], rows[:MOST_ROWS]) for metric, rows in by_metric.items()
        ],
        "keep": dict(list(found.keep.items())[:MOST_ROWS]),
        "n_arms": len(found.keep),
        "rule": found.rule,
        "n_primary": sum(rows[0].role == "primary" for rows in by_metric.values()),
        "n_guardrails": sum(rows[0].role == "guardrail" for rows in by_metric.values()),
    }
