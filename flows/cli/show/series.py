"""Effects over several releases as they are shown to people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.cli.show.estimates import (
    ESTIMATORS,
    by_text,
    cell_number,
    cell_range,
    effects_table,
    level_of,
    metrics_of,
    tables_of,
    why_none,
)
from flows.cli.show.words import table_of
from flows.runtime.terminal import pairs, paragraph

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from estimators.arm_effects import Estimate
    from flows.operate.series.estimates import SeriesEstimates
    from flows.operate.series.nights import Nights
    from flows.operate.series.pooling import PooledEstimate
    from schemas.released import Manifest

_MOST = 60  # periods a terminal shows; the document has all

_BY_EVERY_LOOK = "An interval holds for whoever looks once; --json has those for every look."

_PEOPLE = {
    "disjoint": "nobody is in two releases",
    "returning": "people come back",
    "unknown": "not known whether people come back",
}


def series_text(series: SeriesEstimates) -> str:
    """All periods together, then each of them by the first estimator of all of them together."""
    manifests = [one.night.manifest for one in series.periods]
    pooled = series.pooled
    first, last = manifests[0].period, manifests[-1].period
    facts = {
        "experiment": manifests[0].experiment,
        "releases": f"{len(manifests):,}, {first} to {last}",
        "people": f"{_PEOPLE[series.people.kind]} ({series.people.because})",
        **_of_errors(manifests),
        **_of_closing(series.nights),
    }
    lines = [*pairs(facts), ""]
    estimators = _estimators(pooled, len(manifests))
    if series.by is not None and pooled:
        text = by_text(*series.by, ", all releases together", estimators=estimators)
        return "\n".join([*lines, text, "", *paragraph(_BY_EVERY_LOOK)])
    if not pooled:
        return "\n".join([*lines, "nothing can be compared in any of them"])
    lines.append(f"effect of each arm against {manifests[0].control!r}, all releases together")
    metrics = metrics_of(pooled)
    for metric in metrics:
        lines += ["", f"on {metric!r}"] if len(metrics) > 1 else []
        lines += tables_of(pooled, metric, _pooled_table, estimators)
    meaning = (
        "An interval holds for whoever looks once. For whoever looks after every release and may "
        f"stop at any, the interval for every look holds; it is made for the {series.looks}th look "
        "(--looks)."
    )
    lines += ["", *paragraph(meaning.replace(" 1th", " 1st"))]
    if not any(one.segment is not None for one in pooled):
        name, words = next(iter(estimators.items()))
        lines += ["", f"each release, {words}", *_periods_table(series, name)]
    return "\n".join(lines)


def _estimators(pooled: Sequence[PooledEstimate], n_nights: int) -> dict[str, str]:
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


def _of_closing(nights: Nights) -> dict[str, str]:
    return {} if nights.closing is None else {"final": nights.closing.in_words}


def _of_errors(manifests: Sequence[Manifest]) -> dict[str, str]:
    if not any(one.assigned and one.has_units for one in manifests):
        return {}
    some = "" if all(one.assigned for one in manifests) else " in the releases that have it"
    return {"errors": f"by assigned_to{some}: units that were assigned together count as one"}


def _pooled_table(rows: Sequence[PooledEstimate]) -> list[str]:
    return effects_table(
        rows,
        {"for every look": lambda one: cell_range(one.ci_lower_always, one.ci_upper_always)},
        {"releases": lambda one: f"{one.n_releases:,}"},
    )


def _periods_table(series: SeriesEstimates, estimator: str) -> list[str]:
    several = len({one.metric for one in series.pooled}) > 1
    rows = [
        (period.night.manifest, one)
        for period in series.periods[-_MOST:]
        for one in period.estimates
        if one.estimator == estimator
    ]
    cells: dict[str, Callable[[tuple[Manifest, Estimate]], str]] = {
        "period": lambda row: row[0].period,
        **({"metric": lambda row: row[1].metric} if several else {}),
        "arm": lambda row: row[1].arm,
        "effect": lambda row: _effect(row[1]),
        level_of(series.pooled): lambda row: cell_range(row[1].ci_lower, row[1].ci_upper),
        "std. error": lambda row: cell_number(row[1].std_error),
        "p": lambda row: cell_number(row[1].p_value, 2),
        "units": lambda row: f"{row[1].n_units:,}",
        "epsilon": lambda row: f"{row[0].epsilon:g}",
    }
    left = len(series.periods) - _MOST
    more = [f"({left:,} earlier releases are not shown; --json has them)"] if left > 0 else []
    return [*table_of(rows, cells), *more]


def _effect(one: Estimate) -> str:
    if one.estimate is None:
        return why_none(one.n_units).removesuffix(" to compare")
    return cell_number(one.estimate)


def nights_text(nights: Nights) -> str:
    """What is in a folder of releases."""
    manifests = [night.manifest for night in nights.nights]
    about = {
        "experiment": manifests[0].experiment,
        "arms": f"{', '.join(nights.arms[1:])}; control {nights.arms[0]!r}",
        "releases": f"{len(manifests):,}, a period each",
        **_of_closing(nights),
    }
    cells: dict[str, Callable[[Manifest], str]] = {
        "period": lambda one: one.period,
        "revision": lambda one: str(one.revision),
        "made (UTC)": lambda one: f"{one.created_at:%Y-%m-%d %H:%M}",
        "mechanism": lambda one: one.mechanism,
        "epsilon": lambda one: f"{one.epsilon:g}",
        "units": lambda one: f"{one.n_units:,}",
        "set aside": lambda one: "–" if one.n_set_aside is None else f"{one.n_set_aside:,}",
    }
    return "\n".join([*pairs(about), "", *table_of(manifests, cells)])
