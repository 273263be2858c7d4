"""Step 5: estimate effects from a released file, and from nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import polars as pl

from estimators.arm_effects import Estimate, effects
from estimators.coverage import coverage_warnings
from estimators.ends import End, ends_warnings
from estimators.horvitz_thompson import difference_effects
from estimators.means import means
from estimators.ratios import RatioEvidence, ratio_effects, ratio_means, ratio_warnings
from estimators.strata.evidence import Evidence
from flows.released.estimates.decisions import Decisions, decisions_of
from flows.released.estimates.taught import read_outputs
from flows.released.file.ends import find_ends
from flows.released.file.evidence import Released, read_every
from flows.released.file.macros import LEVEL
from flows.released.file.ratios import ratios_among, read_whole
from flows.released.file.read import open_release, read_chosen, read_manifest
from flows.released.night import MadeNight, night_of
from flows.runtime.engine import ask
from schemas.released import no_rows

if TYPE_CHECKING:
    from flows.released.publish import FileDraft

Forecast = Mapping[tuple[str, str, str], float | None]
"""Standard errors that the plan predicted, by metric, arm and estimator."""

_PLANNED = """
SELECT metric, arm, estimator, planned_std_error FROM main.estimates WHERE segment IS NULL
"""


def estimate_file(path: Path, level: float = LEVEL, metrics: Sequence[str] = ()) -> list[Estimate]:
    """Estimate the effect of every treatment arm against control from the file at ``path``.

    Every estimator is used for which the release has the statistics
    (:func:`estimators.arm_effects.effects`), one metric after another, as the file has them.
    ``level`` is the confidence level; ``metrics`` names the metrics that are asked for, none all of
    them. The predicted standard errors are those that the file states.
    """
    return estimate_release(path, level, metrics).estimates


@dataclass(frozen=True)
class ReleaseEstimates:
    """Effects on everybody in a release, and what to look into before they are believed."""

    estimates: list[Estimate]
    warnings: tuple[str, ...]
    decisions: Decisions | None
    """What the declared rule says; None where none is, or not all that decides was asked for."""
    ends: tuple[End, ...]
    """The shares of the ends of every outcome's grid that was asked for."""
    every: tuple[Released, ...]
    ratios: tuple[RatioEvidence, ...]
    """What they are made from."""


def estimate_release(
    path: Path, level: float = LEVEL, metrics: Sequence[str] = ()
) -> ReleaseEstimates:
    """Estimate as :func:`estimate_file` does, and warn of few people, or one value, compared."""
    with open_release(path) as connection:
        return estimate_open(connection, level, metrics)


def estimate_open(
    connection: duckdb.DuckDBPyConnection, level: float = LEVEL, metrics: Sequence[str] = ()
) -> ReleaseEstimates:
    """Estimate as :func:`estimate_release` does, from a file that is open."""
    chosen, every = read_chosen(connection, metrics)
    manifest = every[0].manifest
    ratios = read_whole(connection, every, ratios_among(every, chosen))
    forecast = stated_forecast(connection)
    asked = {one.metric for one in chosen}
    estimates = [one for one in estimates_of_every(every, ratios, level) if one.metric in asked]
    found = with_forecast(estimates, forecast)
    few = coverage_warnings(found, same_shares=manifest.same_shares)
    decisions = decisions_of(manifest, found)
    ends = find_ends(connection, every)
    warnings = (*few, *ratio_warnings(found), *ends_warnings(ends))
    return ReleaseEstimates(found, warnings, decisions, ends, every, tuple(ratios))


def stated_forecast(connection: duckdb.DuckDBPyConnection) -> Forecast:
    """Read the predicted standard errors that a file states."""
    rows = ask(connection, _PLANNED).fetchall()
    return {(metric, arm, estimator): error for metric, arm, estimator, error in rows}


@dataclass(frozen=True)
class MadeEstimates:
    """What was estimated from a draft, and what else of its file later steps need."""

    estimates: list[Estimate]
    ends: tuple[End, ...]
    night: MadeNight


def estimate(draft: "FileDraft", forecast: Forecast | None = None) -> MadeEstimates:
    """Estimate effects from a draft of a release; add them, arms' means and ``ends`` to it.

    ``forecast`` has the standard errors that the plan predicted.
    """
    from flows.released.publish import add_estimates  # noqa: PLC0415 - pyarrow; readers do without

    connection = draft.connection
    manifest = read_manifest(connection)
    every = read_every(connection, manifest, is_ours=True)
    ratios = read_whole(connection, every, ratios_among(every, manifest.metrics))
    estimates = with_forecast(estimates_of_every(every, ratios, LEVEL), forecast or {})
    ends = find_ends(connection, every)
    frames = {
        "estimates": pl.DataFrame(
            [asdict(one) for one in estimates if one.estimate is not None],
            schema=no_rows("estimates").schema,
        ),
        "means": means_frame(every, ratios),
        "ends": pl.DataFrame(map(asdict, ends), schema=no_rows("ends").schema),
    }
    add_estimates(draft, frames, every)
    rows = tuple(frames["estimates"].iter_rows(named=True))
    outputs = read_outputs(connection, manifest, {one.metric.metric: one.cells for one in every})
    made = MadeNight(night_of(draft.path, connection), rows, outputs)
    return MadeEstimates(estimates, ends, made)


def with_forecast(estimates: list[Estimate], forecast: Forecast) -> list[Estimate]:
    """Add the predicted standard error to each estimate, where there is one."""
    return [
        replace(one, planned_std_error=forecast.get((one.metric, one.arm, one.estimator)))
        for one in estimates
    ]


def estimates_of_every(
    every: Sequence[Released], ratios: Sequence[RatioEvidence], level: float
) -> list[Estimate]:
    """Estimate the effects on each outcome, in order, then those on ratios of them."""
    estimates = [one for released in every for one in estimates_of(released, level)]
    for one in ratios:
        estimates += effects_of(every[0], one, level)
    return estimates


def estimates_of(released: Released, level: float) -> list[Estimate]:
    """Estimate every arm's effect on an outcome, on everybody, by every estimator."""
    if released.pools.of_difference is None:
        return effects_of(released, released.whole, level)
    arms, manifest = released.arms, released.manifest
    return difference_effects(
        released.whole, arms, manifest.control, same_shares=manifest.same_shares, level=level
    )


def effects_of(
    released: Released,
    evidence: Evidence | RatioEvidence,
    level: float,
    segments: Sequence[str | None] = (None,),
) -> list[Estimate]:
    """Estimate every arm's effect in each of the ``segments``; None is everybody.

    Of a ratio, ``released`` is any outcome of the release: arms are the same for all.
    """
    arms, manifest = released.arms, released.manifest
    control, same_shares = manifest.control, manifest.same_shares
    if isinstance(evidence, RatioEvidence):
        return ratio_effects(
            evidence, arms, control, segments, same_shares=same_shares, level=level
        )
    return effects(evidence, arms, control, segments, same_shares=same_shares, level=level)


def means_frame(every: Sequence[Released], ratios: Sequence[RatioEvidence]) -> pl.DataFrame:
    """The rows of the table ``means``; none of outcomes of which only differences are published."""
    (first, *_) = every
    arms, same_shares = first.arms, first.manifest.same_shares
    of_arms = [
        mean
        for released in every
        if released.pools.of_difference is None
        for mean in means(released.whole, arms, same_shares=same_shares)
    ]
    of_arms += [mean for one in ratios for mean in ratio_means(one, arms, same_shares=same_shares)]
    rows = pl.DataFrame([asdict(mean) for mean in of_arms], schema=no_rows("means").schema)
    return rows.with_columns(pl.col("std_error").fill_nan(None))
