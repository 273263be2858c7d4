"""What is folded on the page of a release: every number that it has, as tables.

Each table has as many rows as a page has room for, and says what it leaves out.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import polars as pl
from markupsafe import Markup

from estimators.decisions import Decision
from flows.released.page.contents import MOST_WEIGHTS, Contents, Distribution, MetricContents
from flows.released.page.html import Rows, Table, table
from flows.released.page.results import Answered, Estimated, called, first_of, over
from flows.released.page.scale import Scale
from flows.released.page.words import (
    NONE,
    cells,
    count,
    exactly,
    level_words,
    name,
    number,
    percent,
    said,
    scaled,
    share_bar,
    short,
    shown,
)
from schemas.released import Metric

MOST_ROWS: Final = 60
"""Rows of a table, so that the page stays small however many clusters there are."""
MOST_CLUSTERS: Final = 20
"""Clusters that are named; where there are more, half as many, the largest."""
_MOST_BARS: Final = 200
_DASH: Final = said(NONE)
_ACCOUNTS = {
    "population": "everybody, for every release",
    "unit": "a unit, for the releases that it is in",
}


def estimator_name(one: str, statistic: str) -> str:
    """What an estimator uses, in words; ``statistic`` is what the release publishes of pools."""
    names = {
        "combined": "Both combined",
        "tau_q": "Randomised outcomes",
        "histogram": "Noisy means" if statistic == "means" else "Noisy counts",
        "horvitz_thompson": "Noisy differences",
    }
    return names.get(one, one)


# effects


def estimate_tables(contents: Contents, found: Sequence[Answered]) -> list[Table]:
    """Return more on the estimates to read, and all that there are with their errors."""
    against = said("against ", name(contents.manifest.control))
    interval = f"{level_words(contents.level)} interval"
    more, stated = list[tuple[object, Rows]](), list[tuple[object, Rows]]()
    for one in found:
        scale, statistic = one.contents.scale, one.contents.statistic
        to_read = [(name(row["arm"]), cells(row, scale, *_TO_READ)) for row in one.leads]
        more += [(over(scale), to_read)] if to_read else []
        stated += [
            (
                over(scale, arm),
                [
                    (estimator_name(row["estimator"], statistic), cells(row, scale, *_STATED))
                    for row in rows
                ],
            )
            for arm, rows in one.by_arm.items()
        ]
    heads = ["Arm", "Relative effect (%)", "its interval (%)", "Detectable effect"]
    errors = [
        "Estimated from",
        "Effect",
        interval,
        "Std. error",
        "of it privacy",
        "p",
        "p (Holm)",
        "Units",
    ]
    told = said("Effects ", against, ", as the release states them")
    return [
        Table("table-effects", said("More on effects ", against), heads, more),
        Table("table-estimates", told, errors, stated),
    ]


_TO_READ = ("relative", "relative_ci", "minimum_detectable_effect")
_STATED = ("estimate", "ci", "std_error", "privacy_std_error", "p_value", "p_value_holm", "n_units")


def decision_table(contents: Contents) -> Table | None:
    """Return the verdicts by metric; None where nothing was declared."""
    decisions = contents.decisions
    if decisions is None:
        return None
    scales = {one.metric.metric: one.scale for one in contents.metrics}
    by_metric: dict[str, list[Decision]] = {}
    for row in decisions.rows:
        by_metric.setdefault(row.metric, []).append(row)
    head = [
        "Arm",
        "Verdict",
        "Effect",
        "Least gain the interval allows",
        "p (Holm)" if decisions.rule == "any" else "p",
    ]
    told = "One verdict for each metric and arm; a gain counts in the direction that is good."
    fields = ("estimate", "least_benefit", "p_value_adjusted")
    groups = [
        (
            _declared(rows[0], scales[metric]),
            [
                (name(row.arm), [row.verdict, *cells(vars(row), scales[metric], *fields)])
                for row in rows[:MOST_ROWS]
            ],
        )
        for metric, rows in by_metric.items()
    ]
    left_out = first_of(MOST_ROWS, len(decisions.keep), "arms")
    return Table("table-decision", told + left_out, head, groups)


def _declared(one: Decision, scale: Scale) -> Markup:
    unit = said(" ", name(scale.step)) if scale.step else ""
    good = "more" if one.direction == "increase" else "less"
    told = f": {one.role}, {good} is better"
    if one.margin is not None:
        return said(called(scale), told, ", margin ", scaled(one.margin, scale), unit)
    return said(called(scale), told, said(", in", unit) if unit else "")


# outcomes


def outcomes_facts(contents: Contents, one: MetricContents, mark: str) -> dict[str, Any]:
    """Return how outcomes are spread in the arms, as published, with the error of the noise."""
    distribution = one.distribution
    facts = {"one": one, "called": called(one.scale), "means": _means(contents, one, mark)}
    if distribution is None:
        return {**facts, "table": None}
    labels = [f"{value:g}".replace("-", "−") for value in one.outcomes]
    return {
        **facts,
        "is_counted": distribution.totals is not None,
        "n_outcomes": len(labels),
        "lowest": labels[0],
        "highest": labels[-1],
        "table": _outcome_table(contents, one, distribution, labels, mark),
    }


def _outcome_table(
    contents: Contents,
    one: MetricContents,
    distribution: Distribution,
    labels: Sequence[str],
    mark: str,
) -> Table:
    """A row an outcome with a cell an arm; of a yes/no outcome, a row an arm with one cell."""
    is_yes_no, arms = one.scale.is_yes_no, range(len(distribution.shares))
    has_bars = len(arms) * (1 if is_yes_no else len(labels)) <= _MOST_BARS

    def cell(arm: int, at: int) -> Markup:
        found = distribution.shares[arm]
        share, error = float(found.share[at]), float(found.error[at])
        about = "" if math.isnan(error) else f" ± {shown(100 * error, 2)}\u00a0%"
        text = said(percent(share), about)
        if distribution.totals is not None:
            told = f"{shown(100 * share, 3)}\u00a0%"
            text = said(count(distribution.totals[arm][at]), " (", told, about, ")")
        return said(text, share_bar(share)) if has_bars else text

    whole = (
        "noisy counts and, in brackets, their share" if distribution.totals else "debiased shares"
    )
    told = said(called(one.scale), ": ", whole, "; after ±, the standard error of the noise.")
    if is_yes_no:
        rows: Rows = [(name(contents.arms[arm]), [cell(arm, 1)]) for arm in arms][:MOST_ROWS]
        left_out = first_of(len(rows), len(arms), "arms")
        return table(f"table-outcomes{mark}", said(told, left_out), ["Arm", "Outcome 1"], rows)
    rows = [(label, [cell(arm, at) for arm in arms]) for at, label in enumerate(labels[:MOST_ROWS])]
    head = [one.scale.heading("Outcome", of_means=True), *_heads(contents.arms)]
    left_out = first_of(len(rows), len(labels), "outcomes")
    return table(f"table-outcomes{mark}", said(told, left_out), head, rows)


def _heads(arms: Sequence[str]) -> list[Markup]:
    return [name(short(arm)) for arm in arms]


def _means(contents: Contents, one: MetricContents, mark: str) -> Table | None:
    """The mean of every arm, control first, by every estimator; None where there is none."""
    estimators = list(dict.fromkeys(row["estimator"] for row in one.means))
    found = {(row["arm"], row["estimator"]): row for row in one.means}

    def cell(arm: str, estimator: str) -> Markup:
        row = found.get((arm, estimator))
        if row is None:
            return _DASH
        return said(
            scaled(row["mean"], one.scale, 4), " ± ", scaled(row["std_error"], one.scale, 2)
        )

    with_one = [arm for arm in contents.arms if any(key[0] == arm for key in found)]
    if not with_one:
        return None
    rows: Rows = [
        (name(arm), [cell(arm, estimator) for estimator in estimators])
        for arm in with_one[:MOST_ROWS]
    ]
    caption = said(
        called(one.scale),
        ", ",
        one.scale.heading("mean of each arm", of_means=True),
        ", over clusters that have two of its units; after ±, the standard error.",
        first_of(len(rows), len(with_one), "arms"),
    )
    head = ["Arm", *(estimator_name(estimator, one.statistic) for estimator in estimators)]
    return table(f"table-means{mark}", caption, head, rows)


def ends_table(contents: Contents) -> Table | None:
    """Return how many outcomes are at the ends of their scales, by what is released."""
    rows: Rows = [
        (
            name(one.metric),
            [one.end, percent(one.share), f"± {shown(100 * one.std_error, 2)}\u00a0%"],
        )
        for one in contents.ends[:MOST_ROWS]
    ]
    caption = (
        "Outcomes at the ends of their scales, of all units; “missing” is what missing and "
        "unreadable ones count as"
    )
    head = ["Outcome", "At", "Share", "Error by privacy"]
    return table("table-ends", caption, head, rows) if rows else None


def debias_table(one: MetricContents, mark: str) -> Table | None:
    """Return how a randomised outcome counts, by pool and arm; None where none is published."""
    if not isinstance(one.metric, Metric) or not one.debias.height:
        return None
    vectors = one.debias.partition_by("pool", "arm", maintain_order=True)
    listed, size = one.n_vectors, max(vectors[0].height, 1)
    if listed * size > MOST_WEIGHTS:
        listed = max(1, MOST_WEIGHTS // size)
    shown_vectors = [vector.head(MOST_ROWS).to_dicts() for vector in vectors[:listed]]
    of_tables = one.metric.has_tables
    rate = one.metric.resampling_probability
    kept = "" if rate is None else said(", kept with probability ", number(1 - rate, 3))
    left_out = ""
    if len(shown_vectors) < one.n_vectors:
        left_out = f". Of the largest pools: {len(shown_vectors)} of {one.n_vectors:,} vectors"
    head = (
        ["Output", "Likely", "Weight"]
        if of_tables
        else ["Outcome", "Prior", "Weight", "Noisy count"]
    )
    groups = [
        (
            said("Pool ", name(rows[0]["pool"]), ", arm ", name(rows[0]["arm"])),
            [
                (
                    shown(row["outcome"], 6),
                    [number(row["probability"]), number(row["weight"]), count(row["noisy_count"])][
                        : len(head) - 1
                    ],
                )
                for row in rows
            ],
        )
        for rows in shown_vectors
    ]
    return Table(f"table-debias{mark}", said(called(one.scale), kept, left_out, "."), head, groups)


# sizes, and the release


def sizes_tables(contents: Contents) -> list[Table]:
    """Return units by cluster and arm; the largest clusters where there are many."""
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
    whole = (
        f"The {chosen.height} largest of {n_clusters:,}" if chosen.height < n_clusters else "All"
    )
    of_clusters: Rows = [
        (name(cluster), [*(count(known.get((cluster, arm), 0)) for arm in arms), count(int(total))])
        for cluster, total in chosen.iter_rows()
    ]
    together: Rows = [("All clusters", [*map(count, totals), count(sum(totals))])]
    brief = [("Clusters", by_cluster["total"])] + [
        (said("Strata of ", name(short(arm))), strata.filter(pl.col("arm") == arm)["n_units"])
        for arm in arms
    ]
    return [
        table(
            "table-sizes",
            "Sizes in brief",
            ["Units in", "How many", "Smallest", "Median", "Largest"],
            [(about, _brief(n)) for about, n in brief],
        ),
        table(
            "table-strata",
            f"{whole} clusters, units by arm",
            ["Cluster", *_heads(arms), "Together"],
            [*of_clusters, *together],
        ),
    ]


def _brief(sizes: pl.Series) -> list[Markup]:
    values = sizes.to_numpy()
    median = float(np.median(values))
    middle = count(int(median)) if median.is_integer() else exactly(median, f"{median:,}")
    return [count(len(values)), count(int(values.min())), middle, count(int(values.max()))]


def release_tables(contents: Contents) -> list[Table]:
    """Return what the file states of itself."""
    manifest = contents.manifest
    facts: Rows = [
        ("Mechanism", [manifest.mechanism]),
        ("Neighbours", [manifest.neighbours]),
        ("Releases that have taught its guess", [count(len(manifest.teachers))]),
        ("Control arm", [name(manifest.control)]),
        ("Rows set aside", [count(manifest.n_set_aside)]),
        ("Arm sizes against the intended shares, p", [number(manifest.sample_ratio_p, 2)]),
        ("Who pays for releases", [_ACCOUNTS.get(manifest.account or "", NONE)]),
        ("The most that anybody may pay, ε", [number(manifest.budget_epsilon)]),
        ("Key of the unit ids", [manifest.unit_id_key_fingerprint or NONE]),
        ("Same arm shares in every cluster", ["yes" if manifest.same_shares else "not declared"]),
        ("Revision", [count(manifest.revision)]),
        ("Released by", [f"clusterdp {manifest.package_version}"]),
        ("Schema version", [count(manifest.schema_version)]),
    ]
    of_metrics: Rows = [
        (name(one["metric"]), _randomised(one))
        for one in (metric.row for metric in manifest.metrics)
    ]
    head = [
        "Metric",
        "Epsilon (ε)",
        "Delta (δ)",
        "Resampling probability λ",
        "Least prior probability γ",
        "Epsilon of response tables",
        "Published of each pool",
        "Noise scale σ",
        "Values",
    ]
    return [
        table("table-release", "As the file states it", ["Fact", "Value"], facts),
        table("table-metrics", "What was released, and how it was randomised", head, of_metrics),
    ]


def _randomised(metric: Estimated) -> list[object]:
    numbers = (
        "epsilon",
        "delta",
        "resampling_probability",
        "truncation_threshold",
        "response_epsilon",
    )
    return [
        *(number(metric[key]) for key in numbers),
        metric["strata_statistic"] or NONE,
        number(metric["noise_scale"]),
        count(metric["n_outcomes"]),
    ]
