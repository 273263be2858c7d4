"""The effect along each feature, for the page of an effect model."""

import itertools
import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from flows.effects.released.from_release import Findings
from flows.effects.released.page import curve_figures as drawn
from flows.released.page import figures
from flows.released.page.words import level_words, shown
from schemas.effects.model import (
    Curve,
    EffectDesign,
    NumberFeature,
    level_names,
)

MOST_FEATURES = 24
"""Features with a figure of their own, the most important ones."""
MOST_LEVELS = 30


def features_facts(model: Findings, confidence: float) -> dict[str, Any]:
    """A figure of every feature's curve, the most important first, on one axis of effects."""
    order = [name for name, _ in model.importance]
    ranked = sorted(
        model.curves,
        key=lambda one: order.index(one.feature) if one.feature in order else len(order),
    )
    chosen = ranked[:MOST_FEATURES]
    level, reach_of = level_words(confidence), NormalDist().inv_cdf((1.0 + confidence) / 2.0)
    tracks = [_track(one, reach_of) for one in chosen]
    points = [_points(model, one) for one in chosen]
    known = [one for of_curve in points for one in of_curve if one is not None]
    spans = [(min(ends), max(ends)) for ends in (track.ends() for track in tracks)]
    of_points = drawn.common_limits([(one.lower, one.upper) for one in known])
    reach = drawn.limits([end for span in (*spans, of_points) for end in span])
    return {
        "n_all": len(ranked),
        "has_band": any(track.has_band for track in tracks),
        "has_points": bool(known),
        "is_cut": any(figures.cut_off(one.lower, one.upper, reach, "<>") for one in known),
        "level": level,
        "listed": [
            {
                "name": curve.feature,
                "svg": _curve_figure(model.design, place, curve, track, of_curve, reach, level),
                "told": _told(curve, track),
                "n_levels": len(curve.at),
                "n_drawn": min(len(curve.at), MOST_LEVELS) if _has_levels(curve) else None,
                "is_log": _is_log(model.design, curve.feature),
            }
            for place, (curve, track, of_curve) in enumerate(
                zip(chosen, tracks, points, strict=True)
            )
        ],
    }


def _track(curve: Curve, normal: float) -> drawn.BandedCurve:
    errors = curve.noise_std_errors
    reach = np.full(len(curve.effects), np.nan) if errors is None else normal * errors
    return drawn.BandedCurve(np.asarray(curve.effects, dtype=np.float64), reach)


def _has_levels(curve: Curve) -> bool:
    return bool(curve.at) and isinstance(curve.at[0], str)


def _is_log(design: EffectDesign, name: str) -> bool:
    feature = design.feature(name)
    return isinstance(feature, NumberFeature) and feature.scale == "log"


def _points(model: Findings, curve: Curve) -> list[drawn.Point | None]:
    """The effects in the first partition by the feature; as many as levels, None for no effect."""
    design = model.design
    groups = next((one for one in design.subgroups if one.feature == curve.feature), None)
    if groups is None:
        return [None] * len(curve.at) if _has_levels(curve) else []
    found = {one.level: one for one in model.subgroups if one.name == groups.name}
    names, feature = level_names(design, groups), design.feature(groups.feature)
    ranges = [(0.0, 0.0)] * len(names)
    if isinstance(feature, NumberFeature):  # from where to where each subgroup goes
        inner = np.clip(groups.edges or (), feature.low, feature.high)
        ranges = list(itertools.pairwise([feature.low, *inner.tolist(), feature.high]))
    points: dict[str, drawn.Point | None] = dict.fromkeys(names)
    for name, at in zip(names, ranges, strict=True):
        effect = found[name].effect if name in found else None
        if effect is not None:
            points[name] = drawn.Point(effect.estimate, effect.ci_lower, effect.ci_upper, *at)
    if _has_levels(curve):
        return [points.get(str(one)) for one in curve.at]
    return list(points.values())


def _curve_figure(
    design: EffectDesign,
    place: int,
    curve: Curve,
    track: drawn.BandedCurve,
    points: Sequence[drawn.Point | None],
    reach: tuple[float, float],
    level: str,
) -> str:
    drawing = figures.Drawing(
        f"figure-feature-{place}",
        f"The effect along {curve.feature}",
        "The curve of the model with its band, and the effects in subgroups. The sentence below "
        "has some of the numbers, the table of groups the others.",
    )
    if _has_levels(curve):
        few = slice(0, MOST_LEVELS)
        of_few = drawn.BandedCurve(track.effects[few], track.reach[few])
        names = [str(one) for one in curve.at[few]]
        return drawn.along_levels(drawing, names, of_few, points[few], reach, level=level)
    return drawn.along_number(
        drawing,
        np.array(curve.at, dtype=np.float64),
        track,
        [one for one in points if one is not None],
        reach,
        name=curve.feature,
        level=level,
        log=_is_log(design, curve.feature),
    )


def _told(curve: Curve, track: drawn.BandedCurve) -> list[dict[str, Any]]:
    """The curve in a few numbers: low, middle and high; of levels, the least and the greatest."""
    if _has_levels(curve):
        places = sorted({int(np.argmax(track.effects)), int(np.argmin(track.effects))})
    else:
        last = len(curve.at) - 1
        places = [0, last // 2, last]
    return [
        {
            "at": at if isinstance(at := curve.at[place], str) else shown(at, 4),
            "effect": float(track.effects[place]),
            "reach": float(track.reach[place]),
        }
        for place in places
    ]


def importance_facts(model: Findings) -> dict[str, Any] | None:
    """How much the effect differs along each feature: the standard deviation of its curve."""
    rows = [(name, math.sqrt(max(value, 0.0))) for name, value in model.importance]
    if not any(value > 0 for _, value in rows):
        return None
    chosen = rows[:MOST_FEATURES]
    drawing = figures.Drawing(
        "figure-importance",
        "How much the effect differs along each feature",
        f"Bars of {len(chosen)} features, the most important first, with their numbers.",
    )
    told = [(name, value, shown(value, 2)) for name, value in chosen]
    return {
        "svg": drawn.bars(drawing, told, "standard deviation of the effect along it"),
        "n_all": len(rows),
        "n_drawn": len(chosen),
    }
