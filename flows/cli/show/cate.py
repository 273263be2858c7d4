"""How an effect model is shown to people."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from estimators.effects.models.model import EffectModel
from estimators.effects.models.more_epsilon import at_epsilon
from estimators.effects.models.table import PREDICTED
from flows.cli.show.ledger import paid_text
from flows.cli.show.results import checked_text
from flows.runtime.terminal import pairs, paragraph, table
from schemas.effects.model import Curve, Effect, EffectDesign, SubgroupEffect

if TYPE_CHECKING:
    from flows.effects.cate import CateResult
    from privatizers.lab.audit.effect_models import EffectsAudit

_SHOWN = 20  # features, and levels of one
_AVERAGE = "all"

_PROTECTED = {
    "row": "each unit's whole row: outcome, arm, features",
    "outcome": "each unit's outcome; arms and features are not, exact sums of them are published",
}
_PROPENSITY = {
    "value": "declared, the same for everybody",
    "column": "declared, a column of the log",
    "learn": "learnt from the rows",
}


def cate_text(result: "CateResult") -> str:
    """One screen on a model that was just made, or was there already."""
    head, model = result.file.head, result.file.model
    first = {
        "published": f"{head.model_id} is published.",
        "unchanged": f"{head.model_id} is published already, from the same rows and settings: "
        "unchanged, nothing was drawn or charged.",
    }
    return "\n".join(
        [
            *paragraph(first[result.status]),
            "",
            *pairs(
                {
                    "file": str(result.path),
                    "protected": _PROTECTED[model.design.neighbours],
                    "epsilon": _price_text(model.design),
                    "paid so far": paid_text(result.statement),
                    "units": f"{model.n_rows:,}",
                    "learner": f"{head.learner}, degree {model.degree}: {_degree_text(model)}",
                    "propensity": _PROPENSITY[model.design.propensity.kind],
                }
            ),
            "",
            f"effect of {head.treatment!r} against {head.control!r}",
            "",
            *_effects(model),
            "",
            *_curves(model),
            "",
            *paragraph(_more_text(model)),
        ]
    )


def _price_text(design: EffectDesign) -> str:
    what = "another row" if design.neighbours == "row" else "another outcome"
    return (
        f"{design.epsilon:g}: {what} of one unit would change the probability of this file by "
        f"{_factor(design.epsilon)} times at most, but for a probability of {design.delta:g}"
    )


def _factor(epsilon: float) -> str:
    return f"{math.exp(epsilon):.3g}" if epsilon < 14 else "over a million"


def _degree_text(model: EffectModel) -> str:
    if model.degree == 2:
        return "curves, as there are enough units for the noise of squares"
    return "straight lines, as squares would take more units or a greater epsilon"


# effects with intervals


def _effects(model: EffectModel) -> list[str]:
    """The average effect and those of subgroups, or why there are none."""
    if model.no_intervals is not None and not model.subgroups:
        return paragraph(model.no_intervals)
    head = ("by", "subgroup", "effect", "95 % interval", "std. error", "variance from privacy")
    rows = [] if model.ate is None else [("everybody", _AVERAGE, *_cells(model.ate))]
    rows += [_row(each) for each in model.subgroups if each.name != PREDICTED or _varies(model)]
    refused = paragraph(model.no_intervals) if model.no_intervals is not None else []
    return [*refused, *table(head, rows)]


def _row(group: SubgroupEffect) -> tuple[str, ...]:
    if group.effect is None:
        return (group.name, group.level, "too few rows", "", "", "")
    return (group.name, group.level, *_cells(group.effect))


def _cells(effect: Effect) -> tuple[str, ...]:
    share = (effect.privacy_std_error / effect.std_error) ** 2 if effect.std_error > 0 else 0.0
    digits = _digits(effect.std_error)
    return (
        f"{effect.estimate:.{digits}f}",
        f"{effect.ci_lower:.{digits}f} … {effect.ci_upper:.{digits}f}",
        f"{effect.std_error:.3g}",
        f"{share:.0%}",
    )


def _digits(error: float) -> int:
    """Return how many digits behind the point an ``error`` leaves two figures of."""
    return min(max(1 - math.floor(math.log10(error)), 0), 12) if error > 0 else 6


def _varies(model: EffectModel) -> bool:
    """Whether the model finds that any feature matters."""
    return any(importance > 0 for _, importance in model.importance)


# the model's curves


def _curves(model: EffectModel) -> list[str]:
    """Effects along each feature, those that matter most first."""
    if not _varies(model):
        return paragraph(
            "The model finds no feature along which the effect differs: as far as it can tell "
            "beside the noise, the effect is the same for everybody."
        )
    by_feature = {each.feature: each for each in model.curves}
    matters = [(name, value) for name, value in model.importance if value > 0]
    rows = [
        row
        for feature, importance in matters[:_SHOWN]
        for row in _points(by_feature[feature], importance)
    ]
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
    n_points = len(curve.at)
    is_number = not isinstance(curve.at[0], str)
    places = [0, n_points // 2, n_points - 1] if is_number else list(range(n_points))[:_SHOWN]
    for order, place in enumerate(places):
        at = curve.at[place]
        errors = curve.noise_std_errors
        yield (
            curve.feature if order == 0 else "",
            at if isinstance(at, str) else f"{at:.4g}",
            f"{curve.effects[place]:.4g}",
            "" if errors is None else f"{errors[place]:.2g}",
            f"{importance:.3g}" if order == 0 else "",
        )


# what more would buy


def _more_text(model: EffectModel) -> str:
    """What one more ε would buy: noise falls as 1/√ρ, which is public."""
    more = at_epsilon(model.design, model.ate, model.design.epsilon + 1.0)
    begin = f"With epsilon {more.epsilon:g} all noise would be {more.noise:.2g} times"
    if model.ate is None or more.std_error is None:
        return f"{begin} as large."
    return (
        f"{begin} as large, and the standard error of the average effect about "
        f"{more.std_error:.3g} instead of {model.ate.std_error:.3g}."
    )


# the audit


def model_audit_text(found: "EffectsAudit") -> str:
    """What an audit of an effect model's sums found, and what that does and does not show."""
    facts = {
        "claimed": f"epsilon {found.claimed_epsilon!r} at delta {found.delta:g}, by "
        f"rho {found.rho:.6g}",
        "attained": f"epsilon {found.attained_epsilon:.4g}, rho "
        f"{found.attained_rho:.6g}, by the farthest made-up rows of each sum",
    }
    shows = (
        "Sums are computed, and noise is drawn, by the code of a run, for neighbours that "
        "are made up to be as far apart as any. This shows faults, and is no proof: the "
        "proof lies beside the code."
    )
    return checked_text("the effect model", facts, found.checks, shows)
