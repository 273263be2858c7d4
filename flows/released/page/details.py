"""The sections of the page but effects: outcomes, means, sizes, debias vectors, and so on.

Each function returns what a template shows, with as many rows as a page has room for.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from estimators.decisions import Decision
from estimators.ends import ends_warnings
from flows.released.page import figures
from flows.released.page.contents import (
    MOST_ARMS,
    MOST_LINES,
    MOST_WEIGHTS,
    Contents,
    Distribution,
    MetricContents,
)
from flows.released.page.words import short
from schemas.arrays import Floats
from schemas.released import Manifest, Metric, Ratio
from schemas.roster import SAMPLE_RATIO_ALARM

MOST_ROWS = 60
"""Rows of a table, so that the page stays small however many clusters there are."""
MUCH_ASIDE: Final = 0.05
"""Where a greater share of the rows was set aside, this is a warning."""
PRIORS: Floats = np.array([0.01, 0.1, 0.5, 0.9])
"""Suspicions that the meaning of ε is shown for."""
MOST_CLUSTERS = 20
"""Clusters that are named; where there are more, half as many, the largest."""


def estimator_name(one: str, statistic: str) -> str:
    """What an estimator uses, in words; ``statistic`` is what the release publishes of pools."""
    names = {
        "combined": "Both combined",
        "tau_q": "Randomised outcomes",
        "histogram": "Noisy means" if statistic == "means" else "Noisy counts",
        "horvitz_thompson": "Noisy differences",
    }
    return names.get(one, one)


def outcomes_facts(contents: Contents, one: MetricContents, mark: str) -> dict[str, Any]:
    """How outcomes are spread in the arms, as published, with the error of the noise."""
    distribution = one.distribution
    if distribution is None:
        return {"is_told": False, "is_ratio": isinstance(one.metric, Ratio)}
    labels = [f"{value:g}".replace("-", "−") for value in one.outcomes]
    is_yes_no = one.scale.is_yes_no
    drawn = distribution.shares[:MOST_ARMS]
    of_all = f"Bar charts of the shares of {len(labels)} outcomes"
    kind = "A bar chart of the share of outcome 1" if is_yes_no else of_all
    drawing = figures.Drawing(
        f"figure-outcomes{mark}",
        f"Distribution of {one.scale.label or 'outcomes'} in each arm",
        f"{kind} in {len(drawn)} arms, with two standard errors of the privacy noise. The table "
        "of outcomes has the same numbers.",
    )
    axis = one.scale.label or "outcome"
    return {
        "is_told": True,
        "is_counted": distribution.totals is not None,
        "is_negative": any((arm.share < 0).any() for arm in distribution.shares),
        "is_yes_no": is_yes_no,
        "n_outcomes": len(labels),
        "lowest": labels[0],
        "highest": labels[-1],
        "n_drawn": len(drawn),
        "svg": (
            figures.yes_no(drawing, drawn, "share (%)")
            if is_yes_no
            else figures.distributions(drawing, labels, drawn, short(axis, 40))
        ),
        "rows": _outcome_rows(contents, distribution, labels, is_yes_no=is_yes_no),
    }


def _outcome_rows(
    contents: Contents, distribution: Distribution, labels: Sequence[str], *, is_yes_no: bool
) -> list[tuple[str, list[dict[str, Any]]]]:
    """A row an outcome with a cell an arm; of a yes/no outcome, a row an arm with one cell."""

    def cell(arm: int, at: int) -> dict[str, Any]:
        one = distribution.shares[arm]
        return {
            "share": float(one.share[at]),
            "error": None if math.isnan(one.error[at]) else float(one.error[at]),
            "total": distribution.totals[arm][at] if distribution.totals else None,
        }

    arms = range(len(distribution.shares))
    if is_yes_no:
        return [(contents.arms[arm], [cell(arm, 1)]) for arm in arms][:MOST_ROWS]
    return [(label, [cell(arm, at) for arm in arms]) for at, label in enumerate(labels[:MOST_ROWS])]


def means_facts(contents: Contents, one: MetricContents) -> dict[str, Any]:
    """The mean of every arm, control first, by every estimator; None where there is none."""
    estimators = list(dict.fromkeys(row["estimator"] for row in one.means))
    found = {(row["arm"], row["estimator"]): row for row in one.means}
    statistic = one.statistic
    cells = {arm: [found.get((arm, name)) for name in estimators] for arm in contents.arms}
    rows = [(arm, means) for arm, means in cells.items() if any(means)]
    return {
        "estimators": [estimator_name(name, statistic) for name in estimators],
        "rows": rows[:MOST_ROWS],
        "n_arms": len(rows),
    }


def sizes_facts(contents: Contents) -> dict[str, Any]:
    """Units by cluster and arm; the largest clusters where there are many."""
    strata, arms = contents.strata, contents.arms
    by_cluster = (
        strata.group_by("cluster")
        .agg(pl.col("n_units").sum().alias("total"))
        .sort(["total", "cluster"], descending=[True, False])
    )
    n_clusters = by_cluster.height
    chosen = by_cluster.head(n_clusters if n_clusters <= MOST_CLUSTERS else MOST_CLUSTERS // 2)
    inside = strata.filter(pl.col("cluster").is_in(chosen["cluster"].implode()))
    known = {(cluster, arm): n for cluster, arm, _, n in inside.iter_rows()}
    totals = [contents.sizes.get(arm, 0) for arm in arms]
    by_arm = [(arm, strata.filter(pl.col("arm") == arm)["n_units"]) for arm in arms]
    return {
        "n_strata": strata.height,
        "n_clusters": n_clusters,
        "n_pools": strata["pool"].n_unique(),
        "brief": [(arm, _brief(n)) for arm, n in [(None, by_cluster["total"]), *by_arm]],
        "rows": [
            (cluster, [*(known.get((cluster, arm), 0) for arm in arms), int(total)])
            for cluster, total in chosen.iter_rows()
        ],
        "totals": [*totals, sum(totals)],
    }


def _brief(sizes: pl.Series) -> dict[str, Any]:
    values = sizes.to_numpy()
    median = float(np.median(values))
    return {
        "number": len(values),
        "smallest": int(values.min()),
        "median": int(median) if median.is_integer() else median,
        "largest": int(values.max()),
    }


def debias_facts(contents: Contents, one: MetricContents, mark: str) -> dict[str, Any] | None:
    """How a randomised outcome counts, by pool and arm; None where no outcome is published."""
    rows = one.debias
    metric = one.metric
    if not isinstance(metric, Metric) or not rows.height:
        return None
    rate = metric.resampling_probability
    vectors = rows.partition_by("pool", "arm", maintain_order=True)
    listed, size = one.n_vectors, max(vectors[0].height, 1)
    if listed * size > MOST_WEIGHTS:
        listed = max(1, MOST_WEIGHTS // 2 // size)
    arms = contents.arms[:MOST_ARMS]
    drawn = [vector for vector in vectors if vector["arm"][0] in arms][:MOST_LINES]
    return {
        "kept": None if rate is None else 1 - rate,
        # Outputs of tables are numbers without a meaning of their own: there is no line to draw.
        "svg": None if rate is None else _debias_figure(one, arms, drawn, mark),
        "n_vectors": one.n_vectors,
        "n_drawn": len(drawn),
        "n_arms": len(arms),
        "by_arms": one.by_arms,
        "groups": [vector.head(MOST_ROWS).to_dicts() for vector in vectors[:listed]],
    }


def _debias_figure(
    one: MetricContents, arms: Sequence[str], vectors: list[pl.DataFrame], mark: str
) -> str:
    lines = [figures.Weights(row["arm"][0], row["weight"].to_numpy()) for row in vectors]
    drawing = figures.Drawing(
        f"figure-debias{mark}",
        f"What each released value of {one.scale.label or 'the outcome'} counts as",
        f"Lines of the debias weights over the released outcomes, for {len(lines)} pools and arms. "
        "The table beside has the numbers of the largest pools.",
    )
    return figures.debias(drawing, one.outcomes, arms, lines)


def decision_facts(contents: Contents) -> dict[str, Any] | None:
    """The verdicts by metric, and what becomes of each arm; None where nothing was declared."""
    decisions = contents.decisions
    if decisions is None:
        return None
    scales = {one.metric.metric: one.scale for one in contents.metrics}
    by_metric: dict[str, list[Decision]] = {}
    for row in decisions.rows:
        by_metric.setdefault(row.metric, []).append(row)
    return {
        "groups": [
            (scales[metric], rows[0], rows[:MOST_ROWS]) for metric, rows in by_metric.items()
        ],
        "keep": dict(list(decisions.keep.items())[:MOST_ROWS]),
        "n_arms": len(decisions.keep),
        "rule": decisions.rule,
        "n_primary": sum(rows[0].role == "primary" for rows in by_metric.values()),
        "n_guardrails": sum(rows[0].role == "guardrail" for rows in by_metric.values()),
    }


def soundness_facts(contents: Contents) -> dict[str, Any]:
    """Arm sizes, rows set aside, units that came back, and outcomes at the ends of grids."""
    manifest = contents.manifest
    aside, p_value = manifest.n_set_aside, manifest.sample_ratio_p
    share = None if aside is None else aside / max(aside + manifest.n_units, 1)
    return {
        "p_value": p_value,
        "is_mismatch": p_value is not None and p_value < SAMPLE_RATIO_ALARM,
        "alarm": SAMPLE_RATIO_ALARM,
        "sizes": [(arm, contents.sizes.get(arm, 0)) for arm in contents.arms],
        "aside": aside,
        "aside_share": share,
        "is_much_aside": share is not None and share > MUCH_ASIDE,
        "is_clustered": contents.is_clustered,
        "assigned": contents.assigned or {},
        "ends": contents.ends,
        "one_value": ends_warnings(contents.ends),
    }


def odds_after(prior: Floats, epsilon: float) -> tuple[Floats, Floats]:
    """Least and greatest probability that a suspicion of ``prior`` can have after the release.

    Its odds p/(1 − p) are divided, or multiplied, by e^ε at most.
    """
    factor = math.exp(min(epsilon, 700.0))
    return prior / (prior + (1 - prior) * factor), prior / (prior + (1 - prior) / factor)


def privacy_facts(manifest: Manifest) -> dict[str, Any]:
    """How far a suspicion can move, in a figure and in numbers; None for a factor past any size."""
    epsilon = manifest.epsilon
    least, most = odds_after(PRIORS, epsilon)
    drawing = figures.Drawing(
        "figure-epsilon",
        "How far a suspicion can move",
        f"For suspicions of 1, 10, 50 and 90 %: where they can move to at ε = {epsilon:g}. "
        "The table beside has the same numbers.",
    )
    return {
        "factor": math.exp(epsilon) if epsilon < 700 else None,
        "svg": figures.suspicion(drawing, PRIORS, least, most),
        "rows": list(zip(PRIORS.tolist(), least.tolist(), most.tolist(), strict=True)),
    }
