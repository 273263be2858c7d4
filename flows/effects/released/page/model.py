"""What the page of an effect model shows: for whom does the treatment do more, and how sure is it?

The page has the model's numbers and nothing else; whatever features, levels and arms are called is
text on it.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from typing import Any, Final

import numpy as np
from markupsafe import Markup

from estimators.effects.models.model import at_epsilon
from estimators.effects.models.queries import TABLE, TABLE_WEIGHTS
from estimators.effects.models.table import PREDICTED
from flows.effects.released.from_release import Findings
from flows.effects.released.page.curves import features_facts, importance_table
from flows.released.page.chart import Frame, Mark, chart, limits
from flows.released.page.cost import odds_words
from flows.released.page.html import Rows, Table, render, table
from flows.released.page.results import first_of
from flows.released.page.rows import Finding, Group, by_interval, results, unknown, unprotected
from flows.released.page.scale import PLAIN
from flows.released.page.words import (
    cells,
    count,
    exactly,
    level_words,
    name,
    number,
    percent,
    said,
    share_bar,
    shown,
)
from schemas.effects.model import NoisySums, SubgroupEffect

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
    epsilon = model.design.epsilon
    return render(
        "effects_model.html",
        model=model,
        design=model.design,
        facts=facts,
        level=level_words(facts.level),
        answer=_answer(model, facts),
        groups=_groups(model, facts),
        targeting=targeting(model, facts),
        features=features_facts(model, facts.level),
        importance=importance_table(model),
        budget=_budget(model),
        odds=odds_words(epsilon),
        program=version("clusterdp"),
    )


def _answer(model: Findings, facts: ModelFacts) -> Markup:
    """The average effect in a sentence, and for how many groups it is clear."""
    treatment, control, ate = name(facts.treatment), name(facts.control), model.ate
    if ate is None:
        return said(
            treatment, " against ", control, ": there is no average effect with an interval here."
        )
    verdict = by_interval(ate.ci_lower, ate.ci_upper)
    size = (
        f"{shown(abs(ate.estimate), 3)} {verdict.word}"
        if verdict.is_clear
        else "not clearly another"
    )
    cells = [one.effect for one in model.subgroups if one.effect and one.name != PREDICTED]
    clear = sum(by_interval(one.ci_lower, one.ci_upper).is_clear for one in cells)
    told = f" It is clear in {clear} of {len(cells)} groups." if cells else ""
    return said(
        "On average the outcome is ", size, " with ", treatment, " than under ", control, ".", told
    )


def _groups(model: Findings, facts: ModelFacts) -> dict[str, Any] | None:
    """The average effect and those of subgroups, as rows and with their errors."""
    cells = [one for one in model.subgroups if one.name != PREDICTED]
    everybody = [SubgroupEffect("On average", "everybody", model.ate, None)] if model.ate else []
    by_name: dict[str, list[SubgroupEffect]] = {}
    for one in [*everybody, *cells[:MOST_ROWS]]:
        by_name.setdefault(one.name, []).append(one)
    if not by_name:
        return None
    head = ["Group", "Std. error", "of it privacy", "Variance from privacy"]
    errors = [(name(of), [_errors(one) for one in rows]) for of, rows in by_name.items()]
    caption = said("Effects of ", name(facts.treatment), " against ", name(facts.control))
    return {
        "rows": results(
            "groups",
            [
                Group(name=name(of), about="", findings=[_finding(one) for one in rows], unit="one")
                for of, rows in by_name.items()
            ],
            caption=caption,
            first="Group",
            control="",
            level=level_words(facts.level),
            few_rulers=True,
        ),
        "table": Table("table-groups", "Their errors", head, errors),
        "left_out": first_of(min(len(cells), MOST_ROWS), len(cells), "groups"),
    }


def _finding(one: SubgroupEffect) -> Finding:
    effect = one.effect
    if effect is None:
        return Finding(name=name(one.level), verdict=unknown(one.refused or "not given"))
    return Finding(
        name=name(one.level),
        verdict=by_interval(effect.ci_lower, effect.ci_upper),
        estimate=effect.estimate,
        low=effect.ci_lower,
        high=effect.ci_upper,
        unprotected=unprotected(effect.std_error, effect.privacy_std_error),
    )


def _errors(one: SubgroupEffect) -> tuple[Markup, list[object]]:
    """Errors of an effect, and (privacy se/se)², the share of its variance that is due to noise."""
    effect = one.effect
    if effect is None:
        return name(one.level), ["–"] * 3
    of_noise = 1 - unprotected(effect.std_error, effect.privacy_std_error) ** 2
    errors = cells(vars(effect), PLAIN, "std_error", "privacy_std_error")
    return name(one.level), [*errors, percent(of_noise, 2)]


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
        return found | {"chart": None, "rows": []}
    by_chance = float(value[-1])
    if is_cut:
        by_chance = math.nan if model.ate is None else model.ate.estimate * float(share[-1])
    level = level_words(facts.level)
    rows = [
        {
            "share": float(share[place]),
            "gain": float(value[place]),
            "ci_lower": float(value[place] - reach[place]),
            "ci_upper": float(value[place] + reach[place]),
            "group": one,
        }
        for place, one in enumerate(steps, 1)
    ]
    low, high = value - reach, value + reach
    frame = Frame(0.0, 1.0, *limits([*low, *high, *([] if math.isnan(by_chance) else [by_chance])]))
    drawn = chart(
        (
            "targeting",
            "What is gained by treating those first who are predicted to gain most",
            f"The gain at {len(steps)} shares of people treated; the table has the same numbers.",
        ),
        frame,
        [(part, f"{100 * part:g} %") for part in (0.0, 0.25, 0.5, 0.75, 1.0)],
        [
            ("band", frame.band(share, low, high)),
            ("chance", frame.line(share[[0, -1]], np.array([0.0, by_chance]))),
            ("line", frame.line(share, value)),
        ],
        [
            Mark(float(share[at]), float(value[at]), float(value[at]), float(value[at]))
            for at in range(1, len(share))
        ],
    )
    return found | {"chart": drawn, "rows": rows, "table": _gains(rows, level)}


def _gains(rows: Sequence[dict[str, Any]], level: str) -> Table:
    head = [
        "Treated",
        "Gain, each of all",
        f"{level} interval",
        "Effect in the last group",
        f"{level} interval of it",
    ]
    told: Rows = [
        (
            said("the top ", percent(row["share"])),
            [*cells(row, PLAIN, "gain", "ci"), *cells(vars(row["group"]), PLAIN, "estimate", "ci")],
        )
        for row in rows
    ]
    return table("table-targeting", "The gain of treating some", head, told)


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
    total, design = sum(one.rho for one in model.sums), model.design
    epsilons = (design.epsilon, design.epsilon + 1.0, 2.0 * design.epsilon + 2.0)
    now, more, most = (at_epsilon(design, model.ate, epsilon) for epsilon in epsilons)
    head = [
        "Query",
        "in the file",
        "Sums",
        "ρ",
        "Share",
        "Sensitivity Δ",
        "Step h",
        "Noise σ",
        "Greatest sum, in σ",
    ]
    others: Rows = [
        (number(one.epsilon), [percent(one.noise), number(one.std_error, 3)])
        for one in (now, more, most)
    ]
    return {
        "rho": total,
        "now": now,
        "next": more,
        "others": table(
            "table-more",
            "At other ε, all else equal",
            ["ε", "Noise of each sum", "Std. error of the average effect"],
            others,
        ),
        "table": table(
            "table-sums",
            "Every query, as it was asked",
            head,
            [_query(one, total) for one in model.sums],
        ),
    }


def _query(sums: NoisySums, total: float) -> tuple[str, list[object]]:
    """A row of the table: its share of the whole ρ, and its greatest sum in σ of the noise."""
    has_noise = sums.noise_std > 0 and len(sums.values) > 0
    share = sums.rho / total if total > 0 else 0.0
    loudest = float(np.max(np.abs(sums.values)) / sums.noise_std) if has_noise else None
    return _QUERIES.get(sums.name, sums.name), [
        name(sums.name),
        count(len(sums.steps)),
        number(sums.rho, 3),
        said(exactly(share, f"{shown(100 * share, 3)} %"), share_bar(share)),
        number(sums.sensitivity),
        number(sums.step),
        number(sums.noise_std),
        number(loudest, 3),
    ]
