"""The effect along each feature, for the page of an effect model."""

import itertools
import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from flows.effects.released.from_release import Findings
from flows.released.page.chart import Chart, Frame, Mark, limits
from flows.released.page.rows import Finding, Group, Head, Results, Verdict, results
from flows.released.page.words import first_of, level_words, name, said, shown
from schemas.arrays import Floats
from schemas.effects.model import Curve, NumberFeature, level_names

MOST_FEATURES = 24
"""Features that are drawn, the most important ones."""
MOST_LEVELS = 30
_WIDE = 4.0
"""Times the usual width: an interval that is wider may be cut off."""


Shapes = tuple[Floats, Floats, Floats]
"""A curve's effects and the ends of its band, shape [m] each; NaN where there is no band."""


def common_limits(intervals: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """From where to where an axis of effects goes, so that no single wide interval rules it.

    Intervals of more than four times the usual width may go on beyond its ends.
    """
    width = [upper - lower for lower, upper in intervals]
    most = _WIDE * float(np.median(width)) if width else 0.0
    usual = [one for one, wide in zip(intervals, width, strict=True) if wide <= most]
    return limits([end for one in usual for end in one])


def features_facts(model: Findings, confidence: float) -> dict[str, Any]:
    """Every feature's curve, the most important first, on one axis of effects."""
    order = [one for one, _ in model.importance]
    ranked = sorted(
        model.curves,
        key=lambda one: order.index(one.feature) if one.feature in order else len(order),
    )
    level, normal = level_words(confidence), NormalDist().inv_cdf((1.0 + confidence) / 2.0)
    curves = [(one, _shapes(one, normal), _points(model, one)) for one in ranked[:MOST_FEATURES]]
    known = [(one.low, one.high) for _, _, points in curves for one in points]
    ends = [end for _, shapes, _ in curves for shape in shapes for end in shape.tolist()]
    reach = limits([*ends, *common_limits(known)])
    numbers, levels = list[tuple[str, bool, Chart]](), list[tuple[str, Results, str]]()
    for at, (curve, shapes, points) in enumerate(curves):
        feature, anchor = model.design.feature(curve.feature), f"feature-{at}"
        if isinstance(feature, NumberFeature):
            is_log = feature.scale == "log"
            drawn = along_number(anchor, curve, shapes, points, reach, log=is_log)
            numbers.append((curve.feature, is_log, drawn))
        else:
            left_out = first_of(MOST_LEVELS, len(curve.at), "levels")
            levels.append((curve.feature, _by_level(curve, shapes, anchor, level), left_out))
    return {
        "has_band": any(one.noise_std_errors is not None for one, _, _ in curves),
        "has_points": bool(known),
        "left_out": first_of(len(curves), len(ranked), "features, the most important ones"),
        "numbers": numbers,
        "levels": levels,
    }


def _shapes(curve: Curve, normal: float) -> Shapes:
    errors, effects = curve.noise_std_errors, np.asarray(curve.effects, dtype=np.float64)
    reach = np.full(len(effects), np.nan) if errors is None else normal * errors
    return effects, effects - reach, effects + reach


def _points(model: Findings, curve: Curve) -> list[Mark]:
    """The effects in the first partition by the feature, a number, with what each covers."""
    design = model.design
    groups = next((one for one in design.subgroups if one.feature == curve.feature), None)
    feature = design.feature(curve.feature)
    if groups is None or not isinstance(feature, NumberFeature):
        return []
    found = {one.level: one for one in model.subgroups if one.name == groups.name}
    edges = [feature.low, *np.clip(groups.edges or (), feature.low, feature.high), feature.high]
    spans = itertools.pairwise(_placed(edges, log=feature.scale == "log").tolist())
    marks = []
    for level, (start, end) in zip(level_names(design, groups), spans, strict=True):
        effect = found[level].effect if level in found else None
        if effect is not None:
            ends = effect.ci_lower, effect.ci_upper
            marks.append(Mark((start + end) / 2, effect.estimate, *ends, span=(start, end)))
    return marks


def _placed(at: Sequence[float | str], *, log: bool) -> Floats:
    numbers = np.array(at, dtype=np.float64)
    return np.log(numbers) if log else numbers


def along_number(
    anchor: str,
    curve: Curve,
    shapes: Shapes,
    points: Sequence[Mark],
    reach: tuple[float, float],
    *,
    log: bool,
) -> Chart:
    """Draw the effect along a number, with subgroups on top; ``reach`` is the axis of effects."""
    at = _placed(curve.at, log=log)
    frame = Frame(float(at[0]), float(at[-1]), *reach)
    named = at[[0, len(at) // 2, -1]]
    labels = [(float(x), shown(math.exp(x) if log else float(x), 4)) for x in named]
    effects, low, high = shapes
    return Chart(
        anchor,
        f"The effect along {curve.feature}",
        "The curve of the model with its band, and the effects in subgroups.",
        frame,
        labels,
        [("band", frame.band(at, low, high)), ("line", frame.line(at, effects))],
        points,
    )


def _by_level(curve: Curve, shapes: Shapes, anchor: str, level: str) -> Results:
    """The curve at each level, with its band: rows that say nothing of what is clear."""
    findings = []
    for at, *places in list(zip(curve.at, *shapes, strict=True))[:MOST_LEVELS]:
        effect, low, high = (float(one) if np.isfinite(one) else None for one in places)
        told, called = Verdict("none", "curve"), name(str(at))
        findings.append(Finding(name=called, verdict=told, estimate=effect, low=low, high=high))
    about = "" if curve.noise_std_errors is None else "its band is noise only"
    group = Group(name="The curve of the model", about=about, findings=findings)
    caption = said("The effect along ", name(curve.feature))
    return results(anchor, [group], Head(caption, "Level", "", level))
