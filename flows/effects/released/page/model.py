"""What the page of an effect model shows: for whom does the treatment do more, and how sure is it?

The page has the model's numbers and nothing else; whatever features, levels and arms are called is
text on it.
"""

import itertools
import math
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from typing import Any, Final

import numpy as np

from estimators.effects.models.model import at_epsilon
from estimators.effects.models.queries import TABLE, TABLE_WEIGHTS
from estimators.effects.models.table import PREDICTED
from flows.effects.released.from_release import Findings
from flows.effects.released.page import curve_figures as drawn
from flows.effects.released.page.curves import features_facts, importance_facts
from flows.released.page import figures
from flows.released.page.html import render
from flows.released.page.words import level_words, short, shown
from schemas.effects.model import Effect, NoisySums, SubgroupEffect

MOST_CELLS = 40
"""Subgroups in the figure; the table has more."""
MOST_ROWS = 200
_NOBODY: Final = 0.02
"""A share of people that is next to nobody."""
_ALIKE: Final = 0.9
"""A share of people: where so many are predicted alike, there is nobody to treat first."""
_NORMAL: Final = 1.959964

_QUERIES: Final = {
    "histograms": "How features are spread",
    "gram": "How features go together",
    "treatment": "Who was treated",
    "outcomes": "Outcomes along features",
    "squares": "How much outcomes vary",
    "treated_gram": "How arms differ along features",
    "effects": "Effects along features",
    "table": "Effects in groups",
}
"""What sums are for, by their names."""


@dataclass(frozen=True)
class ModelFacts:
    """What is said of an effect model besides its numbers."""

    model_id: str
    experiment: str
    period: str
    created_at: datetime
    """UTC, without a time zone attached."""
    control: str
    treatment: str
    guarantee: str
    """What is promised, in one sentence or a few."""
    level: float = 0.95
    release_id: str | None = None
    """The release that it was computed from; None for a model with noisy sums of its own."""


def effects_model_page(model: Findings, facts: ModelFacts) -> str:
    """Build the page: one HTML document that needs nothing besides."""
    return render(
        "effects_model",
        model=model,
        design=model.design,
        facts=facts,
        groups=_groups(model, facts),
        targeting=targeting(model, facts),
        features=features_facts(model, facts.level),
        importance=importance_facts(model),
        budget=_budget(model),
        odds=math.exp(model.design.epsilon) if model.design.epsilon < 700 else None,
        program=version("clusterdp"),
    )


def _groups(model: Findings, facts: ModelFacts) -> dict[str, Any]:
    cells = [one for one in model.subgroups if one.name != PREDICTED]
    by_name: dict[str, list[dict[str, Any]]] = {}
    for one in cells[:MOST_ROWS]:
        by_name.setdefault(one.name, []).append(
            {"level": one.level, "refused": one.refused or ""} | _numbers(one.effect)
        )
    everybody = [SubgroupEffect("", "everybody", model.ate, None)] if model.ate else []
    shown_rows = [_forest_row(one) for one in [*everybody, *cells][: MOST_CELLS + 1]]
    drawing = figures.Drawing(
        "figure-groups",
        "The effect on average and in groups, with intervals",
        f"Forest plot of {len(shown_rows)} effects of {facts.treatment} against {facts.control}. "
        "The table has the same numbers.",
    )
    axis = f"effect against {short(facts.control)}"
    known = [
        (one.lower, one.upper)
        for one in shown_rows
        if one.lower is not None and one.upper is not None
    ]
    reach = drawn.common_limits(known)
    return {
        "level": level_words(facts.level),
        "hundred": f"{100 * facts.level:g}",
        "ate": None if model.ate is None else _numbers(model.ate),
        "by_name": by_name,
        "n_cells": len(cells),
        "n_listed": min(len(cells), MOST_ROWS),
        "n_drawn": min(len(cells), MOST_CELLS),
        "is_cut": any(figures.cut_off(*one, reach, "<>") for one in known),
        "svg": figures.forest(drawing, shown_rows, axis, reach) if shown_rows else None,
    }


def _numbers(effect: Effect | None) -> dict[str, Any]:
    if effect is None:
        return {"effect": None, "privacy": None}
    return {"effect": effect, "privacy": _privacy_share(effect)}


def _privacy_share(effect: Effect) -> float:
    """(privacy se/se)², the share of an effect's variance that is due to noise."""
    if not effect.std_error > 0:
        return 0.0
    return min((effect.privacy_std_error / effect.std_error) ** 2, 1.0)


def _forest_row(one: SubgroupEffect) -> figures.ForestLine:
    group, label, effect = one.name or "On average", short(one.level, 26), one.effect
    if effect is None:
        words = "not given" if one.refused is None else "too little to tell"
        return figures.ForestLine(group, label, words, None, None, None, 1.0)
    numbers, sampling = shown(effect.estimate, 3), math.sqrt(1.0 - _privacy_share(effect))
    ends = effect.ci_lower, effect.ci_upper
    return figures.ForestLine(group, label, numbers, effect.estimate, *ends, sampling)


def targeting(model: Findings, facts: ModelFacts) -> dict[str, Any] | None:
    """What is gained by treating those with the greatest predicted effects; None without cells.

    G(x) = Σ s_j τ̂_j over the groups j of :data:`PREDICTED` that make up the top share x = Σ s_j,
    the greatest predictions first, s_j the share of all by noisy counts. Half its interval is
    Σ (s_j r_j + 1.96 ν |τ̂_j|), r_j half that of τ̂_j, ν the noise of a share: as if all errors went
    together, so never too narrow. It ends before the first group whose effect was refused; those
    with next to nobody in them are passed over.
    """
    cells = [one for one in model.subgroups if one.name == PREDICTED]
    shares, noise = _shares(model)
    if not cells or not shares:
        return None
    peopled = [
        (one.effect, share)
        for one, share in zip(cells, shares, strict=True)
        if one.effect is not None or share > _NOBODY
    ]
    top = list(itertools.takewhile(lambda one: one[0] is not None, reversed(peopled)))
    steps = [effect for effect, _ in top if effect is not None]
    each = np.array([share for _, share in top])
    gain = np.array([one.estimate for one in steps])
    half = np.array([(one.ci_upper - one.ci_lower) / 2.0 for one in steps])
    share, value, reach = (
        np.append(0.0, np.cumsum(parts))
        for parts in (each, each * gain, each * half + noise * np.abs(gain))
    )
    is_cut = len(steps) < len(peopled)
    is_flat = max(shares) > _ALIKE
    found: dict[str, Any] = {"is_cut": is_cut, "is_flat": is_flat, "n_groups": len(cells)}
    if is_flat or not steps:
        return found | {"svg": None, "rows": []}
    by_chance = float(value[-1])
    if is_cut:
        by_chance = math.nan if model.ate is None else model.ate.estimate * float(share[-1])
    drawing = figures.Drawing(
        "figure-targeting",
        "What is gained by treating those first who are predicted to gain most",
        f"The gain at {len(steps)} shares of people treated, with intervals. The table has the "
        "same numbers.",
    )
    level, track = level_words(facts.level), drawn.BandedCurve(value, reach)
    rows = [
        {
            "share": float(share[place]),
            "gain": float(value[place]),
            "lower": float(value[place] - reach[place]),
            "upper": float(value[place] + reach[place]),
            "group": one,
        }
        for place, one in enumerate(steps, 1)
    ]
    return found | {"svg": drawn.gain(drawing, share, track, level, by_chance), "rows": rows}


def _shares(model: Findings) -> tuple[list[float], float]:
    """The share of all in each group of :data:`PREDICTED`, and half its interval.

    They are by the noisy counts that the table of effects has: of everybody, then of the subgroups
    in their order.
    """
    table = next((one for one in model.sums if one.name == TABLE), None)
    if table is None or len(table.steps) != 3 * (1 + len(model.subgroups)):
        return [], 0.0
    counts = table.values.reshape(-1, 3)[1:, 0] / TABLE_WEIGHTS[0]
    at = [place for place, one in enumerate(model.subgroups) if one.name == PREDICTED]
    found = np.maximum(counts[at], 0.0)
    total = max(float(found.sum()), 1.0)
    noise = _NORMAL * table.noise_std / TABLE_WEIGHTS[0] / total
    shares: list[float] = (found / total).tolist()
    return shares, noise


def _budget(model: Findings) -> dict[str, Any] | None:
    if not model.sums:
        return None
    total = sum(one.rho for one in model.sums)
    queries = [_query(one, total) for one in model.sums]
    drawing = figures.Drawing(
        "figure-budget",
        "What the budget was spent on",
        f"Bars of the shares of {len(queries)} queries. The table of sums has the same numbers.",
    )
    shares = [(one["what"], 100 * one["share"]) for one in queries]
    bars = [(what, part, f"{shown(part, 3)} %" if part else "exact") for what, part in shares]
    design = model.design
    epsilons = (design.epsilon, design.epsilon + 1.0, 2.0 * design.epsilon + 2.0)
    now, more, most = (at_epsilon(design, model.ate, epsilon) for epsilon in epsilons)
    return {
        "queries": queries,
        "rho": total,
        "svg": drawn.bars(drawing, bars, "share of the budget (%)"),
        "now": now,
        "next": more,
        "rows": [now, more, most],
    }


def _query(sums: NoisySums, total: float) -> dict[str, Any]:
    """A row of the table: its share of the whole ρ, and its greatest sum in σ of the noise."""
    has_noise = sums.noise_std > 0 and len(sums.values) > 0
    return {
        "sums": sums,
        "what": _QUERIES.get(sums.name, sums.name),
        "share": sums.rho / total if total > 0 else 0.0,
        "loudest": float(np.max(np.abs(sums.values)) / sums.noise_std) if has_noise else None,
    }
