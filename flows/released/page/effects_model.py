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

from estimators.effect_models.more_epsilon import at_epsilon
from estimators.effect_models.table import PREDICTED
from flows.released.effects.findings import Findings
from flows.released.page import effect_curve_figures as drawn
from flows.released.page import figures
from flows.released.page.effect_curves import features_facts, importance_facts
from flows.released.page.html import render
from flows.released.page.words import level_words, short, shown
from schemas.arrays import Floats
from schemas.effects import Effect, NoisySums

MOST_CELLS = 40
"""Subgroups in the figure; the table has more."""
MOST_ROWS = 200
"""Subgroups in the table."""
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
    """Confidence level of the intervals."""
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


# groups


def _groups(model: Findings, facts: ModelFacts) -> dict[str, Any]:
    """The average effect, that of every subgroup, and a forest plot of them."""
    cells = [one for one in model.subgroups if one.name != PREDICTED]
    by_name: dict[str, list[dict[str, Any]]] = {}
    for one in cells[:MOST_ROWS]:
        by_name.setdefault(one.name, []).append(
            {"level": one.level, "refused": one.refused or ""} | _numbers(one.effect)
        )
    rows = [_forest_row("", "everybody", model.ate, None)] if model.ate else []
    rows += [_forest_row(one.name, one.level, one.effect, one.refused) for one in cells]
    shown_rows = rows[: MOST_CELLS + 1]
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
    """An effect's numbers, and the share of its variance that privacy adds."""
    if effect is None:
        return {"effect": None, "privacy": None}
    return {"effect": effect, "privacy": _privacy_share(effect)}


def _privacy_share(effect: Effect) -> float:
    """(privacy se/se)², the share of an effect's variance that is due to noise."""
    if not effect.std_error > 0:
        return 0.0
    return min((effect.privacy_std_error / effect.std_error) ** 2, 1.0)


def _forest_row(
    name: str, level: str, effect: Effect | None, refused: str | None
) -> figures.Effect:
    label = short(level, 26)
    group = name or "On average"
    if effect is None:
        words = "not given" if refused is None else "too little to tell"
        return figures.Effect(group, label, words, None, None, None, 1.0)
    return figures.Effect(
        group,
        label,
        shown(effect.estimate, 3),
        effect.estimate,
        effect.ci_lower,
        effect.ci_upper,
        math.sqrt(1.0 - _privacy_share(effect)),
    )


# targeting


def targeting(model: Findings, facts: ModelFacts) -> dict[str, Any] | None:
    """What is gained by treating those with the greatest predicted effects; None without cells.

    G(x) = Σ τ̂_j/k and its standard error Σ se_j/k (as if all errors went together: never too small)
    over the groups j that make up the top share x, where the k groups of :data:`PREDICTED` are of
    equal size and in the order of rising prediction. It ends before the first group whose effect
    was refused.
    """
    cells = [one for one in model.subgroups if one.name == PREDICTED]
    top_first = list(itertools.takewhile(lambda one: one.effect is not None, reversed(cells)))
    effects = [one.effect for one in top_first if one.effect is not None]
    if not effects:
        return None
    share = np.arange(len(effects) + 1) / len(cells)
    value = np.cumsum([0.0, *(one.estimate for one in effects)]) / len(cells)
    lower, upper = (
        np.cumsum([0.0, *ends]) / len(cells)
        for ends in (
            [one.ci_lower - one.estimate for one in effects],
            [one.ci_upper - one.estimate for one in effects],
        )
    )
    is_cut = len(effects) < len(cells)
    by_chance = None if model.ate is None else model.ate.estimate * float(share[-1])
    drawing = figures.Drawing(
        "figure-targeting",
        "What is gained by treating those first who are predicted to gain most",
        f"The gain at {len(effects)} shares of people treated, with intervals. The table has the "
        "same numbers.",
    )
    return {
        "svg": drawn.gain(
            drawing,
            share,
            drawn.Track(value, (upper - lower) / 2),
            level_words(facts.level),
            by_chance if is_cut else float(value[-1]),
        ),
        "is_cut": is_cut,
        "n_groups": len(cells),
        "rows": [
            {
                "share": float(share[place]),
                "gain": float(value[place]),
                "lower": float(value[place] + lower[place]),
                "upper": float(value[place] + upper[place]),
                "group": effects[place - 1],
            }
            for place in range(1, len(share))
        ],
    }


# budget


def _budget(model: Findings) -> dict[str, Any] | None:
    """What each query cost, the sums with their noise, and what more ε would buy."""
    if not model.sums:
        return None
    total = sum(one.rho for one in model.sums)
    queries = [_query(one, total) for one in model.sums]
    drawing = figures.Drawing(
        "figure-budget",
        "What the budget was spent on",
        f"Bars of the shares of {len(queries)} queries. The table of sums has the same numbers.",
    )
    bars = [
        (one.what, 100 * one.share, f"{shown(100 * one.share, 3)} %" if one.share else "exact")
        for one in queries
    ]
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


@dataclass(frozen=True)
class Query:
    """The sums of one query, as a row of the table."""

    sums: NoisySums
    what: str
    """What they are for, in words."""
    share: float
    """Of the whole ρ."""
    loudest: float | None
    """The greatest of the sums, in standard deviations of their noise; None without noise."""


def _query(sums: NoisySums, total: float) -> Query:
    share = sums.rho / total if total > 0 else 0.0
    return Query(sums, query_words(sums.name), share, _loudest(sums.values, sums.noise_std))


def query_words(name: str) -> str:
    """What a query's sums are for; its name where that is not known."""
    return _QUERIES.get(name, name)


def _loudest(values: Floats, noise: float) -> float | None:
    """The greatest of the sums, in standard deviations of their noise."""
    if not (noise > 0 and len(values)):
        return None
    return float(np.max(np.abs(values)) / noise)
