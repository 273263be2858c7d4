"""``clusterdp cate``: an effect model is made, and shown."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from flows.cli.answer import Answer
from flows.cli.options import ConfigFile
from flows.cli.show.words import made_lines, paid_text
from flows.cli.ways import way
from flows.runtime.terminal import pairs, paragraph, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from estimators.effects.models.model import EffectModel
    from flows.effects.cate import CateResult
    from flows.effects.released.model_file import ModelFile
    from schemas.effects.model import Curve, Effect, EffectDesign

_SHOWN = 20  # features, and levels of one
_PROTECTED = {
    "row": "each unit's whole row: outcome, arm, features",
    "outcome": "each unit's outcome; arms and features are not, exact sums of them are published",
}
_PROPENSITY = {
    "value": "declared, the same for everybody",
    "column": "declared, a column of the log",
    "learn": "learnt from the rows",
}


def cate(
    config: ConfigFile, period: str | None = None, revise: bool = False, prefect: bool = False
) -> Answer:
    """Make an effect model: who benefits, by declared features.

    Reads CONFIG, its log and its ledger. Writes a model (noisy sums and what follows from them, as
    JSON) into the folder of releases, and a charge for everybody of the population into the ledger.
    The same rows and settings again change and cost nothing.

    Options:
        config (CONFIG): The effect model's TOML file.
        revise: Draw a published model anew, as its next revision. Costs everybody again.
    """
    from flows.config.load import period_of
    from flows.effects.house import load_effects

    period_of(load_effects(config).source, period)  # before a server takes its seconds
    with way("cate", config, wanted=prefect) as run:
        result = run(str(config.absolute()), period, revise)
    return Answer(partial(_text, result), result.as_json(), result.warnings)


def _text(result: CateResult) -> str:
    paid = {"paid so far": paid_text(result.statement)}
    lines = [*made_lines(result.file.head.model_id, result.status), ""]
    return "\n".join([*lines, *model_lines(result.path, result.file, paid)])


def model_lines(path: Path, file: ModelFile, paid: dict[str, str]) -> list[str]:
    """A model on one screen; ``paid`` is what its population has paid, where that is known."""
    head, model = file.head, file.model
    sites = () if model.design.agreed is None else model.design.agreed.sites
    degree = "straight lines, as squares would take more units or a greater epsilon"
    if model.degree == 2:
        degree = "curves, as there are enough units for the noise of squares"
    if model.design.agreed is not None:
        degree = "as sites agreed"
    facts = {
        "file": str(path),
        "protected": _PROTECTED[model.design.neighbours],
        "epsilon": _price_text(model.design),
        **paid,
        "units": f"{model.n_rows:,}",
        "learner": f"{head.learner}, degree {model.degree}: {degree}",
        "propensity": _PROPENSITY[model.design.propensity.kind],
    }
    lines = [*pairs(facts), ""]
    if sites:
        rows = [
            (one.site, f"{one.n_rows:,}", f"{one.epsilon:g}", f"{one.delta:g}") for one in sites
        ]
        lines += [*table(("site", "units", "epsilon", "delta"), rows[:_SHOWN]), ""]
    lines += [f"effect of {head.treatment!r} against {head.control!r}", "", *_effects(model), ""]
    return [*lines, *_curves(model), *([] if sites else ["", *paragraph(_more_text(model))])]


def _price_text(design: EffectDesign) -> str:
    what = "another row" if design.neighbours == "row" else "another outcome"
    factor = f"{math.exp(design.epsilon):.3g}" if design.epsilon < 14 else "over a million"
    return (
        f"{design.epsilon:g}: {what} of one unit would change the probability of this file by "
        f"{factor} times at most, but for a probability of {design.delta:g}"
    )


def _effects(model: EffectModel) -> list[str]:
    from estimators.effects.models.table import PREDICTED

    refused = [] if model.no_intervals is None else paragraph(model.no_intervals)
    if refused and not model.subgroups:
        return refused
    head = ("by", "subgroup", "effect", "95 % interval", "std. error", "variance from privacy")
    rows = [] if model.ate is None else [("everybody", "all", *_cells(model.ate))]
    rows += [
        (each.name, each.level, *_cells(each.effect))
        for each in model.subgroups
        if each.name != PREDICTED or _varies(model)
    ]
    return [*refused, *table(head, rows)]


def _cells(effect: Effect | None) -> tuple[str, ...]:
    if effect is None:
        return ("too few rows", "", "", "")
    error, share, digits = effect.std_error, 0.0, 6
    if error > 0:  # two figures of which are shown
        share = (effect.privacy_std_error / error) ** 2
        digits = min(max(1 - math.floor(math.log10(error)), 0), 12)
    return (
        f"{effect.estimate:.{digits}f}",
        f"{effect.ci_lower:.{digits}f} … {effect.ci_upper:.{digits}f}",
        f"{error:.3g}",
        f"{share:.0%}",
    )


def _varies(model: EffectModel) -> bool:
    """Whether the model finds that any feature matters."""
    return any(importance > 0 for _, importance in model.importance)


def _curves(model: EffectModel) -> list[str]:
    """Effects along each feature, those that matter most first."""
    if not _varies(model):
        return paragraph(
            "The model finds no feature along which the effect differs: as far as it can tell "
            "beside the noise, the effect is the same for everybody."
        )
    by_feature = {each.feature: each for each in model.curves}
    matters = [(name, value) for name, value in model.importance if value > 0]
    rows = [row for name, value in matters[:_SHOWN] for row in _points(by_feature[name], value)]
    head = ("feature", "at", "effect there", "noise std. error", "variance of effects by it")
    more = len(matters) - _SHOWN
    rest = [name for name, value in model.importance if not value > 0]
    return [
        *paragraph("along each feature, by the model (noise only: misfit is in no error)"),
        "",
        *table(head, rows),
        *([f"  … and {more:,} more features"] if more > 0 else []),
        *(paragraph(f"No part was seen of {', '.join(rest[:_SHOWN])}.") if rest else []),
    ]


def _points(curve: Curve, importance: float) -> Iterator[tuple[str, ...]]:
    """A number at its low, middle and high end; levels one by one."""
    n_points, errors = len(curve.at), curve.noise_std_errors
    is_number = not isinstance(curve.at[0], str)
    places = [0, n_points // 2, n_points - 1] if is_number else list(range(n_points))[:_SHOWN]
    for order, place in enumerate(places):
        at = curve.at[place]
        yield (
            curve.feature if order == 0 else "",
            at if isinstance(at, str) else f"{at:.4g}",
            f"{curve.effects[place]:.4g}",
            "" if errors is None else f"{errors[place]:.2g}",
            f"{importance:.3g}" if order == 0 else "",
        )


def _more_text(model: EffectModel) -> str:
    """What one more ε would buy: noise falls as 1/√ρ, which is public."""
    from estimators.effects.models.model import at_epsilon

    more = at_epsilon(model.design, model.ate, model.design.epsilon + 1.0)
    begin = f"With epsilon {more.epsilon:g} all noise would be {more.noise:.2g} times"
    if model.ate is None or more.std_error is None:
        return f"{begin} as large."
    return (
        f"{begin} as large, and the standard error of the average effect about "
        f"{more.std_error:.3g} instead of {model.ate.std_error:.3g}."
    )
