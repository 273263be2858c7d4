"""``clusterdp effects``: who benefits, from a released file alone."""

from __future__ import annotations

from functools import partial
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.answer import Answer
from flows.cli.options import ReleaseFile, TableOrNone
from flows.cli.show.estimates import cell_number, cell_range
from flows.runtime.terminal import paragraph, shown, table
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from flows.effects.released.from_release import ReleaseEffects  # numpy and polars
    from schemas.effects.model import Curve, Effect

_NOISE_ONLY = (
    "± is for chance and noise only, not for a curve that is too simple: where a curve and the "
    "groups disagree, believe the groups."
)


def effects(
    release: ReleaseFile,
    covariates: TableOrNone = None,
    features: str | None = None,
    arm: str | None = None,
    metric: str | None = None,
    level: float = 0.95,
    output: Path | None = None,
) -> Answer:
    """Show who benefits from a treatment, by a released file.

    By the attributes that the release publishes, or by columns of FILE: the effect on average,
    in groups by each of them with intervals, and along each of them as a
    curve. It needs no log and costs no privacy. Writes nothing but the page that you ask for.

    Options:
        covariates (FILE): What effects may differ by: a CSV or Parquet file of yours with unit_id
            and other columns (numbers, text or booleans) known before the experiment.
        features (A,B): Which columns of FILE, or which published attributes where there is no FILE,
            to use; all, unless you say.
        arm (ARM): Which treatment arm; the first one, unless you say.
        metric (NAME): Which outcome; has to be said where the release has several.
        output (--output -o FILE.html): A web page to write or replace as well.
    """
    from flows.effects.released.from_release import effects_from_release

    if output is not None:
        from flows.released.report import check_output

        check_output(output, release)
    named = None if features is None else [one.strip() for one in features.split(",")]
    try:
        found = effects_from_release(
            release, covariates, features=named, arm=arm, metric=metric, level=level
        )
    except ConfigError as error:
        raise ConfigError(f"--{error.key}", error.problem) from None
    if output is not None:
        from flows.effects.released.report_model import write_effects_report

        write_effects_report(found, output)
    return Answer(partial(_text, found, output), found.as_json(), found.warnings).about(release)


def _text(found: ReleaseEffects, page: Path | None) -> str:
    manifest = found.manifest
    lines = [
        f"effect of {shown(found.arm)!r} against {shown(manifest.control)!r}, from "
        f"{manifest.release_id} (no further cost of privacy)"
    ]
    if len(found.arms) > 1:
        others = ", ".join(repr(shown(arm)) for arm in found.arms if arm != found.arm)
        lines.append(f"other arms, with --arm: {others}")
    groups = [["everybody", "", *_effect(found.ate, "too few units to compare")]]
    groups += [
        [one.name, one.level, *_effect(one.effect, (one.refused or "–").partition(":")[0])]
        for one in found.subgroups
    ]
    level = f"{100 * found.level:g} % interval"
    head = ["group", "", "effect", level, "std. error", "from privacy"]
    lines += ["", "on average, and in groups", *table(head, groups)]
    lines += ["", f"along each feature, others at their average ({found.n_rows:,} units)"]
    lines += [*_curves(found), "", *paragraph(_NOISE_ONLY)]
    return "\n".join(lines if page is None else [*lines, "", str(page.absolute())])


def _effect(effect: Effect | None, refused: str) -> list[str]:
    if effect is None:
        return [refused, "", "", ""]
    return [
        cell_number(effect.estimate),
        cell_range(effect.ci_lower, effect.ci_upper),
        cell_number(effect.std_error),
        cell_number(effect.privacy_std_error),
    ]


def _curves(found: ReleaseEffects) -> list[str]:
    """The effect at the least, the middle and the greatest value; of levels at the two ends."""
    from statistics import NormalDist

    importance = {one.feature: 0.0 for one in found.curves} | dict(found.importance)
    reach = NormalDist().inv_cdf((1.0 + found.level) / 2.0)
    ranked = sorted(found.curves, key=lambda one: -importance[one.feature])
    rows = [
        [one.feature, *_at(one, reach), f"{sqrt(max(importance[one.feature], 0.0)):.2g}"]
        for one in ranked
    ]
    return table(["feature", "low", "middle", "high", "differs by"], rows)


def _at(curve: Curve, reach: float) -> list[str]:
    last = len(curve.at) - 1
    if isinstance(curve.at[0], str):
        order = sorted(range(len(curve.at)), key=lambda place: float(curve.effects[place]))
        return [_point(curve, order[0], reach), "", _point(curve, order[-1], reach)]
    return [_point(curve, place, reach) for place in (0, last // 2, last)]


def _point(curve: Curve, place: int, reach: float) -> str:
    at, errors = curve.at[place], curve.noise_std_errors
    value = shown(at) if isinstance(at, str) else f"{at:.4g}"
    noise = "" if errors is None else f" ± {reach * float(errors[place]):.2g}"
    return f"{value}: {float(curve.effects[place]):.3g}{noise}"
