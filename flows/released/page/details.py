"""The parts of a report that go into detail: outcomes, sizes, debias vectors, queries."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flows.released.page import figures
from flows.released.page.contents import Contents, Distribution
from flows.released.page.html import (
    Content,
    Group,
    Markup,
    Section,
    beside,
    clean,
    code,
    count,
    figure,
    markup,
    name,
    number,
    paragraph,
    percent,
    shown,
    swatch,
    table,
)
from schemas.released import Manifest

Floats = NDArray[np.float64]

MOST_ARMS = 8
"""Arms in a figure; the tables have all of them."""
MOST_ROWS = 60
"""Rows of a table, so that the page stays small however many clusters there are."""
MOST_WEIGHTS = 24
"""Rows of the table of debias vectors; half of them where there are more vectors than fit."""
MOST_CLUSTERS = 20
"""Clusters that are named; where there are more, half as many, the largest."""
MOST_LINES = 40
"""Debias vectors in the figure."""


def first_of(shown_count: int, total: int, what: str) -> str:
    """A sentence on what a figure or table leaves out, if anything."""
    return f" The first {shown_count} of {total:,} {what}." if total > shown_count else ""


# outcomes


def outcomes_section(contents: Contents) -> Section:
    """How outcomes are spread in the arms, as published, with the error of the noise."""
    found = contents.distribution
    parts: list[Markup] = []
    if found is None:
        parts.append(
            paragraph(
                "This release publishes neither units nor counts, so it does not tell how outcomes "
                "are distributed."
            )
        )
    else:
        parts += [_outcomes_intro(contents, found), _outcomes_shown(contents, found)]
    if contents.means:
        parts.append(_means_table(contents))
    return Section("outcomes", "Outcomes in each arm", parts, "Outcomes")


def _means_table(contents: Contents) -> Markup:
    """The mean of every arm, control first, by every estimator."""
    names = list(dict.fromkeys(one["estimator"] for one in contents.means))
    found = {(one["arm"], one["estimator"]): one for one in contents.means}
    rows = [
        [name(arm), *(_mean(found.get((arm, estimator))) for estimator in names)]
        for arm in contents.arms
        if any((arm, estimator) in found for estimator in names)
    ]
    caption = (
        "Mean outcome of each arm, over the clusters that have two of its units; after ±, the "
        "standard error, of which the noise of privacy is a part. The first column of means uses "
        f"all that is published.{first_of(MOST_ROWS, len(rows), 'arms')}"
    )
    statistic = contents.manifest.metric.strata_statistic
    head = ["Arm", *(estimator_name(estimator, statistic) for estimator in names)]
    return table("table-means", caption, head, [Group(rows[:MOST_ROWS])])


def _mean(one: dict[str, Any] | None) -> Markup:
    if one is None:
        return Markup("–")
    return markup("{mean} ± {error}", mean=number(one["mean"]), error=number(one["std_error"], 2))


def estimator_name(one: str, statistic: str) -> str:
    """What an estimator uses, in words; ``statistic`` is what the release publishes of pools."""
    names = {
        "combined": "Both combined",
        "tau_q": "Randomised outcomes",
        "histogram": "Noisy means" if statistic == "means" else "Noisy counts",
        "horvitz_thompson": "Noisy differences",
    }
    return names.get(one, clean(one))


def _outcomes_intro(contents: Contents, found: Distribution) -> Markup:
    if found.totals is not None:
        source = (
            "These are the published noisy counts, summed over pools and divided by the number of "
            "units. Noise was added to every count, so shares need not add up to 100 %."
        )
    else:
        source = (
            "This release publishes no counts. These are the shares among the randomised outcomes, "
            "with the randomisation undone on average (debiased)."
        )
    sign = (
        " Some bars are below zero: the noise can push a share that is small below it, and cutting "
        "it off would make sums and means wrong on average."
        if found.negative
        else " A share may come out below zero where it is small and the noise is not; it is then "
        "shown as it is, since cutting it off would make sums and means wrong on average."
    )
    grid = ""
    if len(contents.outcomes) > 1:
        low, high = (f"{contents.outcomes[end]:g}".replace("-", "−") for end in (0, -1))
        grid = (
            f" Outcomes are on a public grid: {len(contents.outcomes):,} values, {low} to {high}."
        )
    return paragraph("{text}", text=source + sign + grid)


def _outcomes_shown(contents: Contents, found: Distribution) -> Markup:
    labels = [f"{one:g}".replace("-", "−") for one in contents.outcomes]
    drawn = found.shares[:MOST_ARMS]
    drawing = figures.Drawing(
        "figure-outcomes",
        "Distribution of outcomes in each arm",
        f"Bar charts of the shares of {len(labels)} outcomes in {len(drawn)} arms, with two "
        "standard errors of the privacy noise. The table of outcomes has the same numbers.",
    )
    caption = markup(
        "{control}Control. {treatment}Treatment arms, with a short line at the control’s share. "
        "Whiskers: two standard errors of the noise of privacy.{some}",
        control=swatch("control"),
        treatment=swatch("treatment"),
        some=first_of(MOST_ARMS, len(found.shares), "arms"),
    )
    svg = figures.distributions(drawing, labels, drawn)
    return beside(figure(svg, caption), _outcomes_table(contents, found, labels))


def _outcomes_table(contents: Contents, found: Distribution, labels: Sequence[str]) -> Markup:
    rows: list[Sequence[Content]] = []
    for cell, label in enumerate(labels[:MOST_ROWS]):
        shares = [_share(float(one.share[cell]), float(one.error[cell])) for one in found.shares]
        if found.totals is not None:
            counts = [count(totals[cell]) for totals in found.totals]
            pairs = zip(counts, shares, strict=True)
            shares = [markup("{n} ({share})", n=n, share=share) for n, share in pairs]
        rows.append([label, *shares])
    what = (
        "Debiased shares of outcomes by arm"
        if found.totals is None
        else "Noisy counts by arm and, in brackets, their share of the arm’s units"
    )
    caption = (
        f"{what}; after ±, the standard error that the noise of privacy has."
        f"{first_of(MOST_ROWS, len(labels), 'outcomes')}"
    )
    return table("table-outcomes", caption, ["Outcome", *_arm_heads(contents)], [Group(rows)])


def _share(share: float, error: float) -> Markup:
    if math.isnan(error):
        return percent(share)
    return markup("{share} ± {error}", share=percent(share), error=percent(error, 2))


def _arm_heads(contents: Contents) -> list[Markup]:
    """Arms as heads of columns; long names in brief, as other places have them in full."""
    return [name(figures.short(arm)) for arm in contents.arms]


# sizes


def sizes_section(contents: Contents) -> Section:
    """Units by cluster and arm; the largest clusters where there are many."""
    strata, arms = contents.strata, contents.arms
    by_cluster = (
        strata.group_by("cluster")
        .agg(pl.col("n_units").sum().alias("total"))
        .sort(["total", "cluster"], descending=[True, False])
    )
    n_clusters = by_cluster.height
    listed = n_clusters if n_clusters <= MOST_CLUSTERS else MOST_CLUSTERS // 2
    intro = paragraph(
        "A stratum is an arm within a cluster. Clusters that are too small for a prior of their "
        "own share a pool. Strata: {strata}; clusters: {clusters}; pools: {pools}. "
        "Sizes are exact.",
        strata=count(strata.height),
        clusters=count(n_clusters),
        pools=count(contents.n_pools),
    )
    summary = [
        _sizes_row("Clusters", by_cluster["total"]),
        *(
            _sizes_row(
                markup("Strata of {arm}", arm=name(arm)),
                strata.filter(pl.col("arm") == arm)["n_units"],
            )
            for arm in arms
        ),
    ]
    head: list[Content] = ["Units in", "How many", "Smallest", "Median", "Largest"]
    brief = table("table-sizes", "Sizes in brief", head, [Group(summary)])
    chosen = by_cluster.head(listed)
    inside = strata.filter(pl.col("cluster").is_in(chosen["cluster"].implode()))
    known = {(cluster, arm): n for cluster, arm, _, n in inside.iter_rows()}
    rows: list[Sequence[Content]] = [
        [name(cluster), *(count(known.get((cluster, arm), 0)) for arm in arms), count(int(total))]
        for cluster, total in chosen.iter_rows()
    ]
    which = (
        "All clusters"
        if listed == n_clusters
        else f"The {listed} largest of {n_clusters:,} clusters"
    )
    totals = [contents.sizes.get(arm, 0) for arm in arms]
    rows.append(["All clusters", *map(count, totals), count(sum(totals))])
    columns: list[Content] = ["Cluster", *_arm_heads(contents), "Together"]
    largest = table("table-strata", f"{which}, units by arm", columns, [Group(rows)])
    return Section("sizes", "Strata and their sizes", [intro, beside(brief, largest)], "Sizes")


def _sizes_row(label: Content, sizes: pl.Series) -> Sequence[Content]:
    values = sizes.to_numpy()
    if not len(values):
        return [label, count(0), *[Markup("–")] * 3]
    return [
        label,
        count(len(values)),
        count(int(values.min())),
        number(float(np.median(values))),
        count(int(values.max())),
    ]


# debias vectors


def debias_section(contents: Contents) -> Section:
    """How a randomised outcome counts, by pool and arm."""
    rows, manifest = contents.debias, contents.manifest
    title = "How the randomisation is undone"
    rate = manifest.metric.resampling_probability
    if rate is None or not contents.has_units or not rows.height:
        nothing = paragraph("This release publishes no units, so there is nothing to be undone.")
        return Section("debias", title, [nothing], "Debiasing")
    intro = paragraph(
        "Each unit kept its outcome with probability {kept}; otherwise another was drawn from the "
        "published prior of its pool and arm. A released outcome therefore counts as its "
        "<em>weight</em>, which is right on average: means of <code>outcome_debiased</code> over "
        "many units are unbiased, while a single unit’s says next to nothing.",
        kept=number(1 - rate, 3),
    )
    keys = rows.select("pool", "arm").unique(maintain_order=True)
    per_vector = max(len(contents.outcomes), 1)
    listed = keys.height
    if keys.height * per_vector > MOST_WEIGHTS:
        listed = max(1, MOST_WEIGHTS // 2 // per_vector)
    table_part = _debias_table(rows, keys.head(listed), keys.height)
    return Section(
        "debias", title, [intro, beside(_debias_figure(contents, keys), table_part)], "Debiasing"
    )


def _debias_figure(contents: Contents, keys: pl.DataFrame) -> Markup:
    drawn = keys.head(MOST_LINES)
    rows = contents.debias.join(drawn, on=["pool", "arm"], how="semi", maintain_order="left")
    lines = [
        figures.Weights(clean(str(group["arm"][0])), group["weight"].to_numpy())
        for group in rows.partition_by("pool", "arm", maintain_order=True)
    ]
    arms = list(dict.fromkeys(clean(arm) for arm in contents.arms))[:MOST_ARMS]
    drawing = figures.Drawing(
        "figure-debias",
        "What each released outcome counts as",
        f"Lines of the debias weights over the released outcomes, for {len(lines)} pools and arms. "
        "The table beside has the numbers of the largest pools.",
    )
    svg = figures.debias(
        drawing, contents.outcomes, arms, [one for one in lines if one.arm in arms]
    )
    some = (
        f" Here are {MOST_LINES} of {keys.height:,}, of the largest pools."
        if keys.height > MOST_LINES
        else ""
    )
    caption = (
        "Each line is a pool and arm. Dashed: without randomisation an outcome counts as itself."
    )
    return figure(svg, caption + some)


def _debias_table(rows: pl.DataFrame, keys: pl.DataFrame, n_keys: int) -> Markup:
    groups = []
    for group in rows.join(
        keys, on=["pool", "arm"], how="semi", maintain_order="left"
    ).partition_by("pool", "arm", maintain_order=True):
        cells = [
            [
                shown(one["outcome"], 6),
                number(one["probability"]),
                number(one["weight"]),
                Markup("–") if one["noisy_count"] is None else count(one["noisy_count"]),
            ]
            for one in group.head(MOST_ROWS).to_dicts()
        ]
        heading = markup(
            "Pool {pool}, arm {arm}", pool=name(group["pool"][0]), arm=name(group["arm"][0])
        )
        groups.append(Group(cells, heading))
    which = (
        ""
        if keys.height == n_keys
        else f" Of the largest pools: {keys.height} of {n_keys:,} vectors."
    )
    caption = f"Prior, debias vector and noisy counts by pool and arm.{which}"
    return table("table-debias", caption, ["Outcome", "Prior", "Weight", "Noisy count"], groups)


# how to ask


def queries_section(contents: Contents) -> Section:
    """What to ask the file, in SQL and on the command line."""
    file = f"{clean(contents.manifest.release_id)}.duckdb"
    parts = [
        paragraph(
            "The release is one DuckDB file, <code>{file}</code>. Open it read-only with DuckDB "
            "1.2 or later, or with clusterdp; neither needs anything besides.",
            file=file,
        )
    ]
    if "ate" in contents.macros:
        whole = f"ATTACH '{file}' AS rel (READ_ONLY);\nUSE rel;\nFROM ate();"
        parts += [
            _subheading("The whole release, in SQL"),
            code(whole, "SQL for the whole release"),
        ]
    parts.append(_subheading("Segments of your own"))
    if contents.has_units and "ate_by_segment" in contents.macros:
        parts += [
            paragraph(
                "Bring a table with the columns <code>unit_id</code> and <code>segment</code>. "
                "Segments must not be made from the released outcomes."
            ),
            code(
                f"ATTACH '{file}' AS rel (READ_ONLY);\n"
                "CREATE TABLE my_segments AS FROM 'segments.csv';\n"
                "FROM rel.ate_by_segment('my_segments', 'rel');",
                "SQL for segments",
            ),
        ]
    elif not contents.has_units:
        parts.append(
            paragraph(
                "This release publishes no units, so effects in segments cannot be had from it."
            )
        )
    else:
        parts.append(paragraph("This file has no macro for segments; use the command below."))
    commands = [f"clusterdp estimate {file}", f"clusterdp inspect {file}"]
    if contents.has_units:
        commands.insert(1, f"clusterdp estimate {file} --segments segments.csv")
    parts += [_subheading("On the command line"), code("\n".join(commands), "Commands")]
    return Section("queries", "Ask the file yourself", parts, "Queries")


def _subheading(text: str) -> Markup:
    return markup("<h3>{text}</h3>", text=text)


_ACCOUNTS = {
    "population": "everybody, for every release",
    "unit": "a unit, for the releases that it is in",
}


def manifest_section(manifest: Manifest) -> Section:
    """What the file states of itself."""
    facts: Iterable[tuple[str, Content]] = [
        ("Mechanism", clean(manifest.mechanism)),
        ("Neighbours", clean(manifest.neighbours)),
        ("Resampling probability λ", number(manifest.metric.resampling_probability)),
        ("Least prior probability γ", number(manifest.metric.truncation_threshold)),
        ("Published of each pool", clean(manifest.metric.strata_statistic)),
        ("Noise scale σ", number(manifest.metric.noise_scale)),
        ("Control arm", name(manifest.control)),
        ("Rows set aside", "–" if manifest.n_set_aside is None else count(manifest.n_set_aside)),
        ("Arm sizes against the intended shares, p", number(manifest.sample_ratio_p, 2)),
        ("Who pays for releases", _ACCOUNTS.get(manifest.account or "", "–")),
        ("The most that anybody may pay, ε", number(manifest.budget_epsilon)),
        ("Key of the unit ids", clean(manifest.unit_id_key_fingerprint or "–")),
        ("Same arm shares in every cluster", "yes" if manifest.same_shares else "not declared"),
        ("Revision", count(manifest.revision)),
        ("Released by", f"clusterdp {clean(manifest.package_version)}"),
        ("Schema version", count(manifest.schema_version)),
    ]
    rows = [[term, fact] for term, fact in facts]
    listed = table("table-release", "As the file states it", ["", "Value"], [Group(rows)])
    return Section("release", "The release in full", [listed], "Details")
