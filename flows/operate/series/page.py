"""What the page of a series shows: is it working, since when, and is anything odd?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from estimators.arm_effects import Estimate
from estimators.means import SHARPEST_FIRST
from flows.operate.series.nights import missing_days
from flows.operate.series.pooling import Pooled, PooledEstimate, key_of
from flows.released.lists import Closing, WithdrawnRelease
from flows.released.page.chart import Chart, Frame, Mark, limits
from flows.released.page.cost import costs, sentence
from flows.released.page.results import (
    FAILS,
    HOLDS,
    answer,
    decided,
    finding,
    group_of,
    verdict_of,
)
from flows.released.page.rows import (
    NOT_CLEAR,
    Finding,
    Group,
    Head,
    Verdict,
    excludes_zero,
    results,
    unknown,
)
from flows.released.page.scale import Scale
from flows.released.page.words import between, level_words, name, said, short
from schemas.arrays import Floats
from schemas.names import ReleaseName
from schemas.released import Manifest, Metric, Ratio

MOST_ARMS: Final = 8
MOST_PERIODS: Final = 120
"""Periods that tables and charts show, the last ones."""
_NIGHTS: Final = 14
"""Nights by themselves that are rows; older ones are folded."""
_LABELS: Final = 3


@dataclass(frozen=True)
class Track:
    """An effect of an arm over the periods that are shown."""

    metric: Metric | Ratio
    scale: Scale
    periods: Sequence[str]
    together: Sequence[PooledEstimate]
    """All periods up to each one."""
    alone: Sequence[Estimate | None]

    @property
    def nights(self) -> list[tuple[str, PooledEstimate, Estimate | None]]:
        """Of each period the effect so far, and that of its own."""
        return list(zip(self.periods, self.together, self.alone, strict=True))

    @property
    def last(self) -> PooledEstimate:
        """The effect over all of them."""
        return self.together[-1]

    @property
    def since(self) -> str | None:
        """From which period on every interval for whoever looks every time excludes zero."""
        every = enumerate(self.together, 1)
        first = max((at for at, one in every if not excludes_zero(*_always(one))), default=0)
        return next(iter(self.periods[first:]), None)

    def verdict(self, *, is_closed: bool) -> Verdict:
        """Return what is to be said by the interval for whoever looks every time."""
        plain, (low, high) = verdict_of(vars(self.last)), _always(self.last)
        if plain.sign == "none":
            return plain if plain.note else unknown("Too few of its units can be compared.")
        if low is None or high is None:
            note = "None holds for whoever looks every time: the first release states no forecast."
            return replace(plain, note=note)
        if self.metric.margin is not None:
            worst = low if self.metric.direction == "increase" else -high
            fails = FAILS if is_closed else Verdict("wait", "not yet")
            return HOLDS if worst > -self.metric.margin else fails
        if excludes_zero(low, high):
            since = name(self.since or "")
            note = said("Also for whoever looks every time zero is ruled out, since ", since, ".")
            return replace(decided(plain, None, self.metric.direction), note=note)
        if is_closed:
            ends = between(low, high, self.scale)
            return replace(NOT_CLEAR, note=said("No effect beyond ", ends, " was seen."))
        look = "One look would call it clear; for whoever looks every time zero is possible."
        return Verdict("wait", "not yet", note=look if plain.is_clear else "")


def _always(one: PooledEstimate) -> tuple[float | None, float | None]:
    return one.ci_lower_always, one.ci_upper_always


def series_facts(
    manifests: Sequence[Manifest],
    periods: Sequence[Sequence[Estimate]],
    pooled: Pooled,
    odd: Sequence[str],
    scales: Mapping[str, Scale],
    ended: tuple[Closing | None, Sequence[WithdrawnRelease]] = (None, ()),
) -> dict[str, Any]:
    """Everything on the page, from releases in the order of their periods.

    ``scales`` has the metrics, in order, and the unit that each is shown in; ``ended`` how the
    experiment ended, if it has, and what was withdrawn.
    """
    closing, withdrawn = ended
    shown = range(max(0, len(manifests) - MOST_PERIODS), len(manifests))
    tracks = _tracks(manifests, periods, pooled, scales, shown)
    groups = [_group(of_metric, closing) for of_metric in tracks.values()]
    every = [one for of_metric in tracks.values() for one in of_metric]
    level, control = level_words(pooled.level), name(manifests[0].control)
    n_units = sum(one.n_units for one in manifests)
    dearest = max(manifests, key=lambda one: one.epsilon)
    head = Head("Effect over all releases", "Arm", control, level)
    nightly = Head("Each night alone", "Night", control, level)
    return {
        "experiment": manifests[0].experiment,
        "first": manifests[0].period,
        "last": manifests[-1].period,
        "control": control,
        "level": level,
        "n_releases": len(manifests),
        "n_units": n_units,
        "people": pooled.people,
        "closing": closing,
        "tracks": every,
        "answer": answer(groups) if every else "No effect can be estimated from these releases.",
        "rows": results("rows", groups, head) if every else None,
        "has_always": any(one.last.ci_lower_always is not None for one in every),
        "charts": [_chart(one, f"chart-{at}") for at, one in enumerate(every, start=1)],
        "nights": _strip([manifests[at] for at in shown], withdrawn),
        "cost": costs(groups, n_units, "people", said("Of one release: ", sentence(dearest))),
        "odd": odd,
        "alone": every and results("alone", [*map(_alone, every)], nightly, most=_NIGHTS),
        "budgets": _budgets(manifests, shown),
    }


def _tracks(
    manifests: Sequence[Manifest],
    periods: Sequence[Sequence[Estimate]],
    pooled: Pooled,
    scales: Mapping[str, Scale],
    shown: range,
) -> dict[str, list[Track]]:
    """The sharpest estimate of each metric and arm on everybody, by metric.

    Of those that the most releases have: what is published of strata may differ between these.
    """
    n_releases, best = pooled.effects.n_releases[-1], dict[tuple[str, str], int]()
    for estimator in SHARPEST_FIRST:
        for at, key in enumerate(pooled.keys):
            if key[4] == estimator and key[3] is None:
                before = best.setdefault(key[:2], at)
                if n_releases[at] > n_releases[before]:
                    best[key[:2]] = at
    after = [pooled.after(place) for place in shown]
    names = [manifests[place].period for place in shown]
    metrics = {one.metric: one for one in manifests[0].metrics}
    tracks: dict[str, list[Track]] = {}
    for (metric, _), at in best.items():
        own = [
            next((one for one in periods[place] if key_of(one) == pooled.keys[at]), None)
            for place in shown
        ]
        track = Track(metrics[metric], scales[metric], names, [rows[at] for rows in after], own)
        tracks.setdefault(metric, []).append(track)
    return {metric: tracks[metric][:MOST_ARMS] for metric in scales if metric in tracks}


def _group(tracks: Sequence[Track], closing: Closing | None) -> Group:
    findings = []
    for track in tracks:
        one, verdict = track.last, track.verdict(is_closed=closing is not None)
        findings.append(finding(vars(one), name(one.arm), verdict, always=_always(one)))
    return group_of(tracks[0].metric, tracks[0].scale, findings)


def _alone(track: Track) -> Group:
    group = _group([track], None)
    findings = [
        finding(vars(one), name(period), verdict_of(vars(one)))
        if one
        else Finding(name=name(period), verdict=unknown())
        for period, _, one in reversed(track.nights)
    ]
    named = said(group.name, ", ", name(track.last.arm))
    return replace(group, findings=findings, name=named, margin=None)


def _chart(track: Track, anchor: str) -> Chart:
    """The effect over all periods up to each one with both intervals, and each one alone."""
    fields = ("estimate", "ci_lower", "ci_upper", "ci_lower_always", "ci_upper_always")
    factor = track.scale.factor
    effect, low, high, lowest, highest = (_column(track.together, key, factor) for key in fields)
    alone = [_column(track.alone, key, factor) for key in fields[:3]]
    at = np.arange(len(track.periods), dtype=np.float64)
    frame = Frame(-0.5, len(at) - 0.5, *limits([*low, *high, *alone[0]]))
    named = np.unique(np.linspace(0, len(at) - 1, _LABELS).round().astype(int))
    marks = np.column_stack([at, *alone])[np.isfinite(alone[1])].tolist()
    return Chart(
        anchor,
        f"Effect of {track.last.arm} on {track.scale.subject} so far",
        f"After each of {len(at)} releases, with both intervals; the table has the numbers.",
        frame,
        [(float(one), short(track.periods[one], 10)) for one in named],
        [
            ("wide", frame.band(at, lowest, highest)),
            ("band", frame.band(at, low, high)),
            ("line", frame.line(at, effect)),
        ],
        [Mark(*one) for one in marks],
    )


def _column(estimates: Sequence[Estimate | None], key: str, factor: float) -> Floats:
    values = [getattr(one, key, None) for one in estimates]
    return np.asarray(factor * np.array(values, dtype=np.float64))  # NaN for None


def _strip(
    manifests: Sequence[Manifest], gone: Sequence[WithdrawnRelease]
) -> list[tuple[str, str]]:
    """The state of each period, in order: published, withdrawn or missing."""
    published = [one.period for one in manifests]
    names = [ReleaseName.parse(one.release_id) for one in gone]
    withdrawn = {one.period for one in names if one} - {*published}
    missing = missing_days(sorted({*published, *withdrawn}))
    states = {"missing": missing, "withdrawn": withdrawn, "published": published}
    return sorted((at, of) for of, every in states.items() for at in every)[-MOST_PERIODS:]


def _budgets(
    manifests: Sequence[Manifest], shown: range
) -> list[tuple[Manifest, float | None, float | None]]:
    """Of each night the share of rows that were set aside, and of the budget that was used."""
    rows = []
    for place in reversed(shown):
        one = manifests[place]
        spent = sum(each.epsilon for each in manifests[: place + 1])
        if one.account == "unit":  # at least: whoever came back has paid more
            spent = one.epsilon
        if one.household_epsilon is not None:
            spent *= one.rows_each or 1
        aside = None
        if one.n_set_aside is not None:
            aside = one.n_set_aside / max(one.n_set_aside + one.n_units, 1)
        rows.append((one, aside, spent / one.budget_epsilon if one.budget_epsilon else None))
    return rows
