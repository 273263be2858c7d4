"""Effects by published attribute, for ``templates/attributes.html``."""

from collections.abc import Sequence
from typing import Any, Final

from flows.released.by_attribute import AttributeEstimate
from flows.released.page import figures
from flows.released.page.by_attribute import ByAttribute
from flows.released.page.effects import effect_line
from flows.released.page.scale import Scale

MOST_SEGMENTS: Final = 24
"""Values of an attribute that are shown; of more, the largest."""
MOST_ARMS: Final = 4
"""Arms that they are shown of."""
_SHARPEST: Final = ("combined", "tau_q")


def attribute_facts(
    by: Sequence[ByAttribute], metric: str, scale: Scale, mark: str
) -> list[dict[str, Any]]:
    """What is shown of each attribute: a forest plot and a table, an arm after the other."""
    return [
        {"is_first": at == 1, **_facts(one, metric, scale, f"{mark}-{at}")}
        for at, one in enumerate(by, start=1)
    ]


def _facts(by: ByAttribute, metric: str, scale: Scale, mark: str) -> dict[str, Any]:
    of_metric = [one for one in by.estimates if one.metric == metric]
    sharpest = next(
        (name for name in _SHARPEST if any(one.estimator == name for one in of_metric)), None
    )
    rows = [one for one in of_metric if one.estimator == sharpest]
    sizes = {one.segment: one.n_segment for one in rows}
    largest = sorted(sizes, key=lambda segment: -sizes[segment])[:MOST_SEGMENTS]
    arms = list(dict.fromkeys(one.arm for one in rows))
    by_arm = {
        arm: [one for one in rows if one.arm == arm and one.segment in largest]
        for arm in arms[:MOST_ARMS]
    }
    facts: dict[str, Any] = {
        "attribute": by.attribute,
        "mark": mark,
        "by_arm": by_arm,
        "n_shown": len(largest),
        "n_segments": len(sizes),
        "n_arms": len(arms),
        "n_told": {arm: sum(_is_told(one) for one in rows if one.arm == arm) for arm in by_arm},
        "is_shrunken": any(one.shrunken is not None for one in rows),
    }
    if rows:
        lines = [
            effect_line(arm if len(by_arm) > 1 else "", str(one.segment), vars(one), scale)
            for arm, of_arm in by_arm.items()
            for one in of_arm
        ]
        facts["svg"] = _forest(by.attribute, lines, scale, mark)
        facts["is_cut"] = figures.is_cut(lines, figures.reach_of(lines))
    return facts


def _is_told(one: AttributeEstimate) -> bool:
    """Whether the effect is told from none, allowing for the number of segments."""
    p_value = one.p_value_holm_segments
    return p_value is not None and p_value < 1 - one.confidence_level


def _forest(attribute: str, lines: Sequence[figures.Effect], scale: Scale, mark: str) -> str:
    drawing = figures.Drawing(
        f"figure-by{mark}",
        f"Effects on {scale.label or 'the outcome'} by {attribute}",
        f"Forest plot of {len(lines)} effects in segments, each beside the effect drawn towards "
        "their mean. The table beside has the same numbers.",
    )
    return figures.forest(drawing, lines, scale.heading("effect"), figures.reach_of(lines))
