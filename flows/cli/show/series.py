"""Effects over several releases as they are shown to people."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flows.cli.show.estimates import (
    ESTIMATORS,
    by_text,
    cell_number,
    cell_p_value,
    cell_range,
    why_none,
)
from flows.runtime.terminal import pairs, paragraph, table
from schemas.released import Manifest

if TYPE_CHECKING:
    from flows.operate.series.estimates import SeriesEstimates
    from flows.operate.series.nights import Nights
    from flows.operate.series.pooling import PooledEstimate

_MOST = 60  # periods a terminal shows; the document has all

_BY_EVERY_LOOK = "An interval holds for whoever looks once; --json has those for every look."

_PEOPLE = {
    "disjoint": "nobody is in two releases",
    "returning": "people come back",
    "unknown": "not known whether people come back",
}


def series_text(series: "SeriesEstimates") -> str:
    """All periods together, then each of them by the first estimator of all of them together."""
    manifests = [one.night.manifest for one in series.periods]
    pooled = series.pooled
    first, last = manifests[0].period, manifests[-1].period
    people = _PEOPLE[series.people.kind]
    lines = [
        *pairs(
            {
                "experiment": manifests[0].experiment,
                "releases": f"{len(manifests):,}, {first} to {last}",
                "people": f"{people} ({series.people.because})",
                **_of_errors(manifests),
                **_of_closing(series.nights),
            }
        ),
        "",
        f"effect of each arm against {manifests[0].control!r}, all releases together",
    ]
    estimators = _estimators(pooled, len(manifests))
    if series.by is not None and pooled:
        text = by_text(*series.by, "all releases together", estimators=estimators)
        return "\n".join([*lines[:-1], text, "", *paragraph(_BY_EVERY_LOOK)])
    metrics = list(dict.fromkeys(one.metric for one in pooled))
    for metric in metrics:
        lines += ["", f"on {metric!r}"] if len(metrics) > 1 else []
        for name, words in estimators.items():
            rows = [one for one in pooled if one.estimator == name and one.metric == metric]
            lines += ["", words, *_pooled_table(rows)] if rows else []
    if not pooled:
        return "\n".join([*lines[:-1], "nothing can be compared in any of them"])
    lines += ["", *_meaning(series)]
    if not any(one.segment is not None for one in pooled):
        name, words = next(iter(estimators.items()))
        lines += ["", f"each release, {words}", *_periods_table(series, name)]
    return "\n".join(lines)


def _estimators(pooled: Sequence["PooledEstimate"], n_nights: int) -> dict[str, str]:
    """The estimators that there are, and what they are called: those of the most releases first.

    What is published of strata may differ between releases; then some have no ``combined``.
    """
    found: dict[str, int] = {}
    for one in pooled:
        found[one.estimator] = max(found.get(one.estimator, 0), one.n_releases)
    most = max(found.values(), default=0)
    few = {
        name: f", in {n:,} of {n_nights:,} releases alone" for name, n in found.items() if n < most
    }
    order = sorted((name for name in ESTIMATORS if name in found), key=lambda name: -found[name])
    return {name: ESTIMATORS[name] + few.get(name, "") for name in order}


def _of_closing(nights: "Nights") -> dict[str, str]:
    """That the experiment has ended, if it has."""
    return {} if nights.closing is None else {"final": nights.closing.in_words}


def _of_errors(manifests: Sequence[Manifest]) -> dict[str, str]:
    """What errors follow, where units were assigned together."""
    if not any(one.assigned and one.has_units for one in manifests):
        return {}
    together = "units that were assigned together count as one"
    if all(one.assigned for one in manifests):
        return {"errors": f"by assigned_to: {together}"}
    return {"errors": f"by assigned_to in the releases that have it: {together}"}


def _meaning(series: "SeriesEstimates") -> list[str]:
    text = (
        "An interval holds for whoever looks once. For whoever looks after every release and may "
        f"stop at any, the interval for every look holds; it is made for the {series.looks}th look "
        "(--looks)."
    )
    return paragraph(text.replace("1th", "1st") if series.looks == 1 else text)


def _pooled_table(rows: Sequence["PooledEstimate"]) -> list[str]:
    level = f"{100 * rows[0].confidence_level:g} % interval"
    several = len({one.arm for one in rows}) > 1
    segments = any(one.segment is not None for one in rows)
    head = [
        *(["segment"] if segments else []), "arm", "effect", level, "for every look", "std. error",
        "from privacy", "relative", "p", *(["p (Holm)"] if several else []), "units", "releases",
    ]  # fmt: skip
    return table(head, [_pooled_cells(one, segments, several) for one in rows])


def _pooled_cells(one: "PooledEstimate", segments: bool, several: bool) -> list[str]:
    first = [*([one.segment or ""] if segments else []), one.arm]
    last = [f"{one.n_units:,}", f"{one.n_releases:,}"]
    if one.estimate is None:
        return [*first, "too few units to compare", *[""] * (6 + several), *last]
    return [
        *first,
        cell_number(one.estimate),
        cell_range(one.ci_lower, one.ci_upper),
        cell_range(one.ci_lower_always, one.ci_upper_always),
        cell_number(one.std_error),
        cell_number(one.privacy_std_error),
        "–" if one.relative is None else f"{100 * one.relative:+.3g} %",
        cell_p_value(one.p_value),
        *([cell_p_value(one.p_value_holm)] if several else []),
        *last,
    ]


def _periods_table(series: "SeriesEstimates", estimator: str) -> list[str]:
    shown = series.periods[-_MOST:]
    level = f"{100 * series.pooled[0].confidence_level:g} % interval"
    several = len({one.metric for one in series.pooled}) > 1
    head = [
        "period",
        *(["metric"] if several else []),
        "arm",
        "effect",
        level,
        "std. error",
        "p",
        "units",
        "epsilon",
    ]
    cells = []
    for one in shown:
        manifest = one.night.manifest
        rows = [estimate for estimate in one.estimates if estimate.estimator == estimator]
        cells += [
            [
                manifest.period,
                *([row.metric] if several else []),
                row.arm,
                cell_number(row.estimate)
                if row.estimate is not None
                else why_none(row.n_units).removesuffix(" to compare"),
                cell_range(row.ci_lower, row.ci_upper),
                cell_number(row.std_error),
                cell_p_value(row.p_value),
                f"{row.n_units:,}",
                f"{manifest.epsilon:g}",
            ]
            for row in rows
        ]
    left = len(series.periods) - len(shown)
    more = [f"({left:,} earlier releases are not shown; --json has them)"] if left else []
    return [*table(head, cells), *more]


def nights_text(nights: "Nights") -> str:
    """What is in a folder of releases."""
    manifests = [night.manifest for night in nights.nights]
    head = ["period", "revision", "made (UTC)", "mechanism", "epsilon", "units", "set aside"]
    rows = [
        [
            manifest.period,
            str(manifest.revision),
            f"{manifest.created_at:%Y-%m-%d %H:%M}",
            manifest.mechanism,
            f"{manifest.epsilon:g}",
            f"{manifest.n_units:,}",
            "–" if manifest.n_set_aside is None else f"{manifest.n_set_aside:,}",
        ]
        for manifest in manifests
    ]
    about = {
        "experiment": manifests[0].experiment,
        "arms": f"{', '.join(nights.arms[1:])}; control {nights.arms[0]!r}",
        "releases": f"{len(manifests):,}, a period each",
        **_of_closing(nights),
    }
    return "\n".join([*pairs(about), "", *table(head, rows)])
