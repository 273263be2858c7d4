"""What the page of an effect model shows: for whom does the treatment do more, and how sure is it?

The page has the model's numbers and nothing else; whatever features, levels and arms are called is
text on it.
"""

import itertools
import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np

from estimators.effects.models.model import at_epsilon
from estimators.effects.models.queries import TABLE, TABLE_WEIGHTS
from estimators.effects.models.table import PREDICTED
from flows.effects.released.from_release import Findings
from flows.effects.released.page.curves import features_facts
from flows.released.page.chart import Chart, Frame, Mark, limits
from flows.released.page.cost import odds_words
from flows.released.page.html import render
from flows.released.page.results import finding
from flows.released.page.rows import Finding, Group, Head, by_interval, results, unknown
from flows.released.page.scale import PLAIN
from flows.released.page.words import first_of, level_words, name, said
from schemas.effects.model import SubgroupEffect

MOST_ROWS = 200
"""Subgroups that are shown."""
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
    ate, epsilon = model.ate, model.design.epsilon
    cells = [one.effect for one in model.subgroups if one.effect and one.name != PREDICTED]
    return render(
        "effects_model.html",
        model=model,
        design=model.design,
        facts=facts,
        level=level_words(facts.level),
        verdict=ate and by_interval(ate.ci_lower, ate.ci_upper),
        are_clear=[by_interval(one.ci_lower, one.ci_upper).is_clear for one in cells],
        groups=_groups(model, facts),
        targeting=targeting(model),
        features=features_facts(model, facts.level),
        importance=[(one, math.sqrt(max(value, 0.0))) for one, value in model.importance],
        budget=_budget(model),
        plain=PLAIN,
        odds=odds_words(epsilon),
    )


def _groups(model: Findings, facts: ModelFacts) -> dict[str, Any] | None:
    """The average effect and those of subgroups, as rows and with their errors."""
    cells = [one for one in model.subgroups if one.name != PREDICTED]
    everybody = [SubgroupEffect("On average", "everybody", model.ate, None)] if model.ate else []
    every = itertools.groupby([*everybody, *cells[:MOST_ROWS]], key=lambda one: one.name)
    groups = [
        Group(name=name(of), about="", findings=[*map(_finding, rows)], unit="one")
        for of, rows in every
    ]
    if not groups:
        return None
    caption = said("Effects of ", name(facts.treatment), " against ", name(facts.control))
    head = Head(caption, "Group", "", level_words(facts.level))
    left_out = first_of(min(len(cells), MOST_ROWS), len(cells), "groups")
    rows = results("groups", groups, head, few_rulers=True)
    return {"rows": rows, "groups": groups, "left_out": left_out}


def _finding(one: SubgroupEffect) -> Finding:
    effect = one.effect
    if effect is None:
        return Finding(name=name(one.level), verdict=unknown(one.refused or "not given"))
    verdict = by_interval(effect.ci_lower, effect.ci_upper)
    return finding(vars(effect), name(one.level), verdict)


def targeting(model: Findings) -> dict[str, Any] | None:
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
    low, high = value - reach, value + reach
    is_cut, is_flat = len(steps) < len(peopled), max(shares) > _ALIKE
    found: dict[str, Any] = {"is_cut": is_cut, "is_flat": is_flat, "n_groups": len(cells)}
    if is_flat or not steps:
        return found | {"chart": None, "rows": []}
    by_chance = float(value[-1])
    if is_cut:
        by_chance = math.nan if model.ate is None else model.ate.estimate * float(share[-1])
    names = ("share", "gain", "ci_lower", "ci_upper")
    numbers = np.column_stack([share, value, low, high])[1:].tolist()
    rows = [
        dict(zip(names, row, strict=True)) | {"group": one}
        for row, one in zip(numbers, steps, strict=True)
    ]
    frame = Frame(0.0, 1.0, *limits([*low, *high, by_chance]))
    drawn = Chart(
        "targeting",
        "What is gained by treating those first who are predicted to gain most",
        f"The gain at {len(steps)} shares of people treated; the table has the same numbers.",
        frame,
        [(part, f"{100 * part:g} %") for part in (0.0, 0.25, 0.5, 0.75, 1.0)],
        [
            ("band", frame.band(share, low, high)),
            ("chance", frame.line(share[[0, -1]], np.array([0.0, by_chance]))),
            ("line", frame.line(share, value)),
        ],
        [Mark(row["share"], row["gain"], row["gain"], row["gain"]) for row in rows],
    )
    return found | {"chart": drawn, "rows": rows}


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
    """What the budget was spent on, and what another ε would do; None without noise of its own."""
    if not model.sums:
        return None
    own = model.design.epsilon
    at = [at_epsilon(model.design, model.ate, one) for one in (own, own + 1.0, 2.0 * own + 2.0)]
    sites = () if model.design.agreed is None else model.design.agreed.names
    queries = _QUERIES | {
        f"{site}.{query}": f"{site}: {what}" for site in sites for query, what in _QUERIES.items()
    }
    total = sum(one.rho for one in model.sums)
    return {"rho": total, "at": [] if sites else at, "queries": queries}
