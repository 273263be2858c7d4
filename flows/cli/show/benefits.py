"""Who benefits, as it is shown to people."""

from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING

from flows.cli.show.estimates import cell_number, cell_range
from flows.runtime.terminal import paragraph, shown, table

if TYPE_CHECKING:
    from flows.effects.released.from_release import ReleaseEffects  # numpy and polars
    from schemas.effects.model import Curve, Effect, SubgroupEffect


def effects_text(found: "ReleaseEffects", page: Path | None = None) -> str:
    """Who benefits as one text; ``page`` is where it was written, too."""
    manifest, level = found.manifest, f"{100 * found.level:g} % interval"
    lines = [
        f"effect of {shown(found.arm)!r} against {shown(manifest.control)!r}, from "
        f"{manifest.release_id} (no further cost of privacy)"
    ]
    if len(found.arms) > 1:
        others = ", ".join(repr(shown(arm)) for arm in found.arms if arm != found.arm)
        lines.append(f"other arms, with --arm: {others}")
    lines += ["", "on average, and in groups", *_groups(found.ate, found.subgroups, level)]
    lines += ["", f"along each feature, others at their average ({found.n_rows:,} units)"]
    lines += _curves(found.curves, dict(found.importance), found.level)
    lines += ["", *paragraph(NOISE_ONLY)]
    if page is not None:
        lines += ["", str(page.absolute())]
    return "\n".join(lines)


NOISE_ONLY = (
    "± is for chance and noise only, not for a curve that is too simple: where a curve and the "
    "groups disagree, believe the groups."
)


def _groups(ate: "Effect | None", cells: Sequence["SubgroupEffect"], level: str) -> list[str]:
    rows = [["everybody", "", *_effect(ate, "too few units to compare")]]
    rows += [
        [one.name, one.level, *_effect(one.effect, (one.refused or "–").partition(":")[0])]
        for one in cells
    ]
    return table(["group", "", "effect", level, "std. error", "from privacy"], rows)


def _effect(effect: "Effect | None", refused: str) -> list[str]:
    if effect is None:
        return [refused, "", "", ""]
    return [
        cell_number(effect.estimate),
        cell_range(effect.ci_lower, effect.ci_upper),
        cell_number(effect.std_error),
        cell_number(effect.privacy_std_error),
    ]


def _curves(curves: Sequence["Curve"], importance: dict[str, float], level: float) -> list[str]:
    """The effect at the least, the middle and the greatest value; of levels at the two ends."""
    reach = NormalDist().inv_cdf((1.0 + level) / 2.0)
    ranked = sorted(curves, key=lambda one: -importance.get(one.feature, 0.0))
    rows = [
        [one.feature, *_at(one, reach), f"{sqrt(max(importance.get(one.feature, 0.0), 0.0)):.2g}"]
        for one in ranked
    ]
    return table(["feature", "low", "middle", "high", "differs by"], rows)


def _at(curve: "Curve", reach: float) -> list[str]:
    last = len(curve.at) - 1
    if isinstance(curve.at[0], str):
        order = sorted(range(len(curve.at)), key=lambda place: float(curve.effects[place]))
        return [_point(curve, order[0], reach), "", _point(curve, order[-1], reach)]
    return [_point(curve, place, reach) for place in (0, last // 2, last)]


def _point(curve: "Curve", place: int, reach: float) -> str:
    at, errors = curve.at[place], curve.noise_std_errors
    value = shown(at) if isinstance(at, str) else f"{at:.4g}"
    noise = "" if errors is None else f" ± {reach * float(errors[place]):.2g}"
    return f"{value}: {float(curve.effects[place]):.3g}{noise}"
