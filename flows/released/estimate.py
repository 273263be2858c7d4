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
from flows.released.file.evidence import Released, read_released
from flows.released.file.macros import LEVEL
from flows.released.file.read import open_draft, open_release, read_manifest
from flows.released.publish import add_estimates
from schemas.released import no_rows

Forecast = Mapping[tuple[str, str, str], float | None]
"""Standard errors that the plan predicted, by metric, arm and estimator."""

_PLANNED = """
SELECT arm, estimator, planned_std_error FROM main.estimates
WHERE metric = $metric AND segment IS NULL
"""


def estimate_file(path: Path, level: float = LEVEL) -> list[Estimate]:
    """Estimate the effect of every treatment arm against control from the file at ``path``.

    Every estimator is used for which the release has the statistics
    (:func:`estimators.effects.effects`). ``level`` is the confidence level. The predicted standard
    errors are those that the file states.
    """
    return estimate_release(path, level).estimates


@dataclass(frozen=True)
class ReleaseEstimates:
    """Effects on everybody in a release, and what to look into before they are believed."""

    estimates: list[Estimate]
    warnings: tuple[str, ...]


def estimate_release(path: Path, level: float = LEVEL) -> ReleaseEstimates:
    """Estimate as :func:`estimate_file` does, and warn where few of the people are compared."""
    with open_release(path) as connection:
        released = read_released(connection, read_manifest(connection))
        forecast = stated_forecast(connection, released)
    found = with_forecast(_estimate_all(released, level), forecast)
    same_shares = released.manifest.same_shares
    return ReleaseEstimates(found, coverage_warnings(found, same_shares=same_shares))


def stated_forecast(connection: duckdb.DuckDBPyConnection, released: Released) -> Forecast:
    """Read the predicted standard errors that a file states."""
    metric = released.metric.metric
    rows = connection.execute(_PLANNED, {"metric": metric}).fetchall()
    return {(metric, arm, estimator): std_error for arm, estimator, std_error in rows}


def estimate(
    draft: Path, memory: int | None = None, forecast: Forecast | None = None
) -> list[Estimate]:
    """Estimate effects from a draft of a release; add the estimates and the arms' means to it.

    ``memory`` is what DuckDB may take, in bytes; ``forecast`` has the standard errors that the plan
    predicted.
    """
    with open_draft(draft, memory) as connection:
        released = read_released(connection, read_manifest(connection), is_ours=True)
        estimates = with_forecast(_estimate_all(released, LEVEL), forecast or {})
        frames = {"estimates": estimates_frame(estimates), "means": _means_frame(released)}
        add_estimates(connection, draft, frames, released)
    return estimates


def with_forecast(estimates: list[Estimate], forecast: Forecast) -> list[Estimate]:
    """Add the predicted standard error to each estimate, where there is one."""
    return [
        replace(one, planned_std_error=forecast.get((one.metric, one.arm, one.estimator)))
        for one in estimates
    ]


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


def _means_frame(released: Released) -> pl.DataFrame:
    """The rows of the table ``means``; none where only differences are published."""
    if released.pools.of_difference is not None:
        return no_rows("means")
    of_arms = means(released.whole, released.arms, same_shares=released.manifest.same_shares)
    return pl.DataFrame([asdict(mean) for mean in of_arms], schema=no_rows("means").schema)


def estimates_frame(estimates: list[Estimate]) -> pl.DataFrame:
    """The rows of the table ``estimates``; estimates without a number are left out."""
    rows = [asdict(estimate) for estimate in estimates if estimate.estimate is not None]
    return pl.DataFrame(rows, schema=no_rows("estimates").schema)
