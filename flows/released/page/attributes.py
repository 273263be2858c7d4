"""Effects by published attribute, for ``templates/attributes.html``."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import duckdb

from estimators.coverage import is_skew
from estimators.means import SHARPEST_FIRST
from flows.released.estimates.by_attribute import AttributeEstimate, estimate_values
from flows.released.file.evidence import Released
from flows.released.page import figures
from flows.released.page.attribute_figures import drawn_segments, forest_by
from flows.released.page.scale import Scale
from flows.released.page.words import short
from schemas.errors import InputError

ByAttribute = dict[str, Sequence[AttributeEstimate]]
"""Effects by the values of attributes, on all metrics; none where one has too many values."""

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
    return [
        {"is_first": at == 1, **_facts(name, estimates, metric, scale, f"{mark}-{at}")}
        for at, (name, estimates) in enumerate(by.items(), start=1)
        if not estimates or any(row.metric == metric for row in estimates)
    ]


def _facts(
    attribute: str,
    estimates: Sequence[AttributeEstimate],
    metric: str,
    scale: Scale,
    mark: str,
) -> dict[str, Any]:
    of_metric = [one for one in estimates if one.metric == metric]
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


def _of_arm(
    attribute: str, rows: Sequence[AttributeEstimate], scale: Scale, mark: str
) -> dict[str, Any]:
    drawn = list(drawn_segments(rows))
    arm = rows[0].arm
    drawing = figures.Drawing(
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
