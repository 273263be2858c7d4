"""What the page of a series shows: is it working, since when, and is anything odd?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from estimators.arm_effects import Estimate
from estimators.means import SHARPEST_FIRST
from flows.operate.series.pooling import Pooled, PooledEstimate, key_of
from flows.released.page.contents import MOST_ARMS
from flows.released.page.figures import ACCENT, INK, MUTED, PAPER, SOFT, Drawing
from flows.released.page.scale import Scale
from flows.released.page.words import short
from schemas.arrays import Floats
from schemas.released import Manifest

MOST_PERIODS = 120
"""Periods that tables and figures show, the last ones."""
_HEIGHT = 230.0
_LABELS = 4


@dataclass(frozen=True)
class Track:
    """An effect by period, with an interval and a wider one, shape [T] each; NaN for none."""

    estimate: Floats
    lower: Floats
    upper: Floats
    lower_always: Floats
    upper_always: Floats


def series_facts(
    manifests: Sequence[Manifest],
    periods: Sequence[Sequence[Estimate]],
    pooled: Pooled,
    odd: Sequence[str],
    scales: Mapping[str, Scale],
) -> dict[str, Any]:
    """Everything on the page, from releases in the order of their periods.

    ``scales`` has the metrics, in order, and the unit that each is shown in.
    """
    shown = range(max(0, len(manifests) - MOST_PERIODS), len(manifests))
    after = [pooled.after(place) for place in shown]
    chosen = _chosen(pooled)
    arms = [
        _arm(at, number, shown, after, manifests, periods, scales[pooled.keys[at][0]])
        for number, at in enumerate(chosen)
    ]
    return {
        "experiment": manifests[0].experiment,
        "control": manifests[0].control,
        "first": manifests[0].period,
        "last": manifests[-1].period,
        "n_releases": len(manifests),
        "n_shown": len(shown),
        "n_units": sum(manifest.n_units for manifest in manifests),
        "epsilons": sorted({manifest.epsilon for manifest in manifests}),
        "delta": max(manifest.delta for manifest in manifests),
        "people": pooled.people.kind,
        "because": pooled.people.because,
        "level": f"{100 * pooled.level:g}\u00a0%",
        "arms": arms,
        "metrics": [
            {
                "mark": "" if place == 1 else f"-{place}",
                "metric": metric,
                "scale": scale,
                "arms": [one for one in arms if one["last"].metric == metric],
            }
            for place, (metric, scale) in enumerate(scales.items(), start=1)
        ],
        "nights": [_night(manifests, place) for place in shown],
        "has_budget": any(one.budget_epsilon for one in manifests),
        "odd": list(odd),
    }


def _chosen(pooled: Pooled) -> list[int]:
    """The sharpest estimate of each metric and arm on everybody, as places in ``keys``.

    Of those that the most releases have: what is published of strata may differ between these.
    """
    n_releases, found = pooled.effects.n_releases[-1], dict[tuple[str, str], int]()
    for name in SHARPEST_FIRST:
        for at, (metric, arm, _, segment, estimator) in enumerate(pooled.keys):
            if estimator == name and segment is None:
                before = found.setdefault((metric, arm), at)
                if n_releases[at] > n_releases[before]:
                    found[metric, arm] = at
    told: dict[str, list[int]] = {}
    for (metric, _), at in found.items():
        told.setdefault(metric, []).append(at)
    return [at for places in told.values() for at in places[:MOST_ARMS]]


def _arm(
    at: int,
    number: int,
    shown: range,
    after: Sequence[Sequence[PooledEstimate]],
    manifests: Sequence[Manifest],
    periods: Sequence[Sequence[Estimate]],
    scale: Scale,
) -> dict[str, Any]:
    together = [rows[at] for rows in after]
    key = key_of(together[0])
    alone = [next((one for one in periods[at] if key_of(one) == key), None) for at in shown]
    names = [manifests[place].period for place in shown]
    last = together[-1]
    label = short(last.arm) + (f" on {scale.label}" if scale.label else "")
    since: int | None = None  # from where on every interval excludes zero
    for place, one in enumerate(together):
        if not _excludes_zero(one.ci_lower_always, one.ci_upper_always):
            since = None
        elif since is None:
            since = place
    return {
        "arm": last.arm,
        "scale": scale,
        "number": number + 1,
        "last": last,
        "has_always": last.ci_lower_always is not None,
        "since": None if since is None else names[since],
        "since_shown": since == 0 and shown.start > 0,
        "is_clear": _excludes_zero(last.ci_lower, last.ci_upper),
        "rows": [
            {"period": name, "alone": own, "together": one}
            for name, own, one in zip(names, alone, together, strict=True)
        ],
        "cumulative_svg": _cumulative_svg(
            Drawing(
                f"figure-together-{number}",
                f"Effect of {label}, all releases together",
                f"The effect after each of {len(names)} periods, with both intervals. The table "
                "has the same numbers.",
            ),
            names, _track(together, scale.factor), scale.heading("effect so far"),
        ),
        "alone_svg": _by_period_svg(
            Drawing(
                f"figure-alone-{number}",
                f"Effect of {label} in each release",
                f"The effect in each of {len(names)} periods, with its interval. The table has the "
                "same numbers.",
            ),
            names, _track(alone, scale.factor), scale.heading("effect"),
        ),
    }  # fmt: skip


def _excludes_zero(lower: float | None, upper: float | None) -> bool:
    return lower is not None and upper is not None and (lower > 0 or upper < 0)


def _track(estimates: Sequence[Estimate | None], factor: float) -> Track:
    names = ("estimate", "ci_lower", "ci_upper", "ci_lower_always", "ci_upper_always")
    columns = [[getattr(one, name, None) for one in estimates] for name in names]
    return Track(*(factor * np.array(columns, dtype=np.float64)))  # NaN for None


def _night(manifests: Sequence[Manifest], place: int) -> dict[str, Any]:
    manifest = manifests[place]
    budget = manifest.budget_epsilon
    spent = sum(one.epsilon for one in manifests[: place + 1])
    if manifest.account == "unit":  # at least: whoever came back has paid more
        spent = manifest.epsilon
    if manifest.household_epsilon is not None:
        spent *= manifest.rows_each or 1
    return {
        "manifest": manifest,
        "page": f"{manifest.release_id}.html",
        "aside_share": (
            None
            if manifest.n_set_aside is None
            else manifest.n_set_aside / max(manifest.n_set_aside + manifest.n_units, 1)
        ),
        "spent_share": spent / budget if budget else None,
    }


def _cumulative_svg(drawing: Drawing, periods: Sequence[str], track: Track, axis: str) -> str:
    """Draw the effect over all periods up to each one, with both intervals as bands."""
    place = np.arange(len(periods), dtype=np.float64)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for lower, upper, colour in (
            (track.lower_always, track.upper_always, SOFT),
            (track.lower, track.upper, ACCENT),
        ):
            if len(periods) > 1:
                axes.fill_between(place, lower, upper, color=colour, linewidth=0)
            else:
                axes.plot([0.0, 0.0], [lower[0], upper[0]], color=colour, linewidth=9)
        axes.plot(place, track.estimate, color=PAPER, linewidth=2.2)
        axes.plot(
            place[-1:], track.estimate[-1:], "o", color=INK, markeredgecolor=PAPER, markersize=8
        )
        _finish(axes, periods, axis)

    return drawing.svg(_HEIGHT, draw)


def _by_period_svg(drawing: Drawing, periods: Sequence[str], track: Track, axis: str) -> str:
    """Draw the effect of each period alone, with its interval."""
    place = np.arange(len(periods), dtype=np.float64)
    width = min(7.0, 220.0 / max(len(periods), 1))

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for at, lower, upper in zip(place, track.lower, track.upper, strict=True):
            axes.plot([at, at], [lower, upper], color=SOFT, linewidth=width)
        axes.plot(
            place, track.estimate, "o", color=INK, markeredgecolor=PAPER, markersize=width + 1.0
        )
        _finish(axes, periods, axis)

    return drawing.svg(_HEIGHT, draw)


def _finish(axes: Axes, periods: Sequence[str], label: str) -> None:
    axes.axhline(0, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_xlim(-0.6, len(periods) - 0.4)
    at = np.unique(np.linspace(0, len(periods) - 1, _LABELS).round().astype(int))
    axes.set_xticks(at, [short(periods[one], 10) for one in at])
    axes.set_ylabel(label)
    axes.grid(axis="y", linewidth=0.6)
    axes.tick_params(axis="both", length=0)
    axes.locator_params(axis="y", nbins=6)
