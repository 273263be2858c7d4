"""Step 5: estimate effects from a released file, and from nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import duckdb
import polars as pl

from estimators.coverage import coverage_warnings
from estimators.effects import Estimate, effects
from estimators.evidence import Evidence
from estimators.horvitz_thompson import difference_effects
from estimators.means import means
from flows.released.file.evidence import Released, read_every
from flows.released.file.macros import LEVEL
from flows.released.file.read import chosen_outcomes, open_draft, open_release, read_manifest
from flows.released.publish import add_estimates
from schemas.released import no_rows

Forecast = Mapping[tuple[str, str, str], float | None]
"""Standard errors that the plan predicted, by metric, arm and estimator."""

_PLANNED = """
SELECT metric, arm, estimator, planned_std_error FROM main.estimates WHERE segment IS NULL
"""


def estimate_file(path: Path, level: float = LEVEL, metrics: Sequence[str] = ()) -> list[Estimate]:
    """Estimate the effect of every treatment arm against control from the file at ``path``.

    Every estimator is used for which the release has the statistics
    (:func:`estimators.effects.effects`), for one metric after the other, in the order of the file.
    ``level`` is the confidence level; ``metrics`` names the metrics that are asked for, none all of
    them. The predicted standard errors are those that the file states.
    """
    return estimate_release(path, level, metrics).estimates


@dataclass(frozen=True)
class ReleaseEstimates:
    """Effects on everybody in a release, and what to look into before they are believed."""

    estimates: list[Estimate]
    warnings: tuple[str, ...]


def estimate_release(
    path: Path, level: float = LEVEL, metrics: Sequence[str] = ()
) -> ReleaseEstimates:
    """Estimate as :func:`estimate_file` does, and warn where few of the people are compared."""
    with open_release(path) as connection:
        manifest = read_manifest(connection)
        every = read_every(connection, manifest, chosen_outcomes(manifest, metrics))
        forecast = stated_forecast(connection)
    found = with_forecast(_estimate_every(every, level), forecast)
    return ReleaseEstimates(found, coverage_warnings(found, same_shares=manifest.same_shares))


def stated_forecast(connection: duckdb.DuckDBPyConnection) -> Forecast:
    """Read the predicted standard errors that a file states."""
    rows = connection.execute(_PLANNED).fetchall()
    return {(metric, arm, estimator): error for metric, arm, estimator, error in rows}


def estimate(
    draft: Path, memory: int | None = None, forecast: Forecast | None = None
) -> list[Estimate]:
    """Estimate effects from a draft of a release; add the estimates and the arms' means to it.

    ``memory`` is what DuckDB may take, in bytes; ``forecast`` has the standard errors that the plan
    predicted.
    """
    with open_draft(draft, memory) as connection:
        every = read_every(connection, read_manifest(connection), is_ours=True)
        estimates = with_forecast(_estimate_every(every, LEVEL), forecast or {})
        frames = {"estimates": estimates_frame(estimates), "means": _means_frame(every)}
        add_estimates(connection, draft, frames, every)
    return estimates


def with_forecast(estimates: list[Estimate], forecast: Forecast) -> list[Estimate]:
    """Add the predicted standard error to each estimate, where there is one."""
    return [
        replace(one, planned_std_error=forecast.get((one.metric, one.arm, one.estimator)))
        for one in estimates
    ]


def _estimate_every(every: Sequence[Released], level: float) -> list[Estimate]:
    """Estimate the effects on each outcome, in order; those on ratios of them come after."""
    return [estimate for released in every for estimate in _estimate_all(released, level)]


def _estimate_all(released: Released, level: float) -> list[Estimate]:
    evidence, manifest = released.whole, released.manifest
    if released.pools.of_difference is not None:
        return difference_effects(
            evidence,
            released.arms,
            manifest.control,
            same_shares=manifest.same_shares,
            level=level,
        )
    return effects_of(released, evidence, level)


def effects_of(
    released: Released, evidence: Evidence, level: float, segments: Sequence[str | None] = (None,)
) -> list[Estimate]:
    """Estimate every arm's effect in each of the ``segments``; None is everybody."""
    return effects(
        evidence,
        released.arms,
        released.manifest.control,
        segments,
        same_shares=released.manifest.same_shares,
        level=level,
    )


def _means_frame(every: Sequence[Released]) -> pl.DataFrame:
    """The rows of the table ``means``; none of outcomes of which only differences are published."""
    of_arms = [
        asdict(mean)
        for released in every
        if released.pools.of_difference is None
        for mean in means(released.whole, released.arms, same_shares=released.manifest.same_shares)
    ]
    rows = pl.DataFrame(of_arms, schema=no_rows("means").schema)
    return rows.with_columns(pl.col("std_error").fill_nan(None))


def estimates_frame(estimates: list[Estimate]) -> pl.DataFrame:
    """The rows of the table ``estimates``; estimates without a number are left out."""
    rows = [asdict(estimate) for estimate in estimates if estimate.estimate is not None]
    return pl.DataFrame(rows, schema=no_rows("estimates").schema)
