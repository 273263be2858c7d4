"""The effect along each feature, for the page of an effect model."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
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


@dataclass(frozen=True)
class Track:
    """A curve, and half the width of its band, shape [m]; NaN where there is no band."""

    curve: Curve
    reach: Floats

    @property
    def has_band(self) -> bool:
        """Whether there is a band."""
        return bool(np.isfinite(self.reach).any())

    @property
    def shapes(self) -> tuple[Floats, Floats, Floats]:
        """Its effects, and the ends of its band."""
        effects = np.asarray(self.curve.effects, dtype=np.float64)
        return effects, effects - self.reach, effects + self.reach


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
    tracks = [_track(one, normal) for one in ranked[:MOST_FEATURES]]
    points = {one.curve.feature: _points(model, one.curve) for one in tracks}
    known = [(one.low, one.high) for of_curve in points.values() for one in of_curve]
    spans = [end for track in tracks for shape in track.shapes for end in shape.tolist()]
    reach = limits([*spans, *common_limits(known)])
    numbers, levels = list[tuple[str, bool, Chart]](), list[tuple[str, Results, str]]()
    for at, track in enumerate(tracks):
        called, anchor = track.curve.feature, f"feature-{at}"
        feature = model.design.feature(called)
        if isinstance(feature, NumberFeature):
            is_log = feature.scale == "log"
            drawn = along_number(anchor, track, points[called], reach, log=is_log)
            numbers.append((called, is_log, drawn))
        else:
            left_out = first_of(MOST_LEVELS, len(track.curve.at), "levels")
            levels.append((called, _by_level(track, anchor, level), left_out))
    return {
        "has_band": any(track.has_band for track in tracks),
        "has_points": bool(known),
        "left_out": first_of(len(tracks), len(ranked), "features, the most important ones"),
        "numbers": numbers,
        "levels": levels,
    }


def _track(curve: Curve, normal: float) -> Track:
    errors = curve.noise_std_errors
    reach = np.full(len(curve.effects), np.nan) if errors is None else normal * errors
    return Track(curve, reach)


def _points(model: Findings, curve: Curve) -> list[Mark]:
    """The effects in the first partition by the feature, a number, with what each covers."""
    design = model.design
    groups = next((one for one in design.subgroups if one.feature == curve.feature), None)
    feature = design.feature(curve.feature)
    if groups is None or not isinstance(feature, NumberFeature):
        return []
    found = {one.level: one for one in model.subgroups if one.name == groups.name}
    inner = np.clip(groups.edges or (), feature.low, feature.high)
    spans = itertools.pairwise([feature.low, *inner.tolist(), feature.high])
    marks = []
    for level, (start, end) in zip(level_names(design, groups), spans, strict=True):
        effect = found[level].effect if level in found else None
        if effect is not None:
            middle = math.sqrt(start * end) if feature.scale == "log" else (start + end) / 2
            ends = effect.ci_lower, effect.ci_upper
            marks.append(Mark(middle, effect.estimate, *ends, span=(start, end)))
    return marks


def along_number(
    anchor: str, track: Track, points: Sequence[Mark], reach: tuple[float, float], *, log: bool
) -> Chart:
    """Draw the effect along a number, with subgroups on top; ``reach`` is the axis of effects."""

    def placed(x: float) -> float:
        return math.log(x) if log else x

    at = np.array([placed(float(one)) for one in track.curve.at])
    frame = Frame(float(at[0]), float(at[-1]), *reach)
    named = at[[0, len(at) // 2, -1]]
    labels = [(float(x), shown(math.exp(x) if log else float(x), 4)) for x in named]
    effects, low, high = track.shapes
    return Chart(
        anchor,
        f"The effect along {track.curve.feature}",
        "The curve of the model with its band, and the effects in subgroups.",
        frame,
        labels,
        [("band", frame.band(at, low, high)), ("line", frame.line(at, effects))],
        [replace(one, at=placed(one.at), span=tuple(map(placed, one.span))) for one in points],
    )


def _by_level(track: Track, anchor: str, level: str) -> Results:
    """The curve at each level, with its band: rows that say nothing of what is clear."""
    findings = []
    for at, *places in list(zip(track.curve.at, *track.shapes, strict=True))[:MOST_LEVELS]:
        effect, low, high = (float(one) if np.isfinite(one) else None for one in places)
        curve, level_of = Verdict("none", "curve"), name(str(at))
        findings.append(Finding(name=level_of, verdict=curve, estimate=effect, low=low, high=high))
    about = "its band is noise only" if track.has_band else ""
    group = Group(name="The curve of the model", about=about, findings=findings)
    caption = said("The effect along ", name(track.curve.feature))
    return results(anchor, [group], Head(caption, "Level", "", level))


def importance(model: Findings) -> list[tuple[str, float]]:
    """How much the effect differs along each feature; none where it differs along none."""
    found = [(one, math.sqrt(max(value, 0.0))) for one, value in model.importance]
    return found if any(value > 0 for _, value in found) else []
