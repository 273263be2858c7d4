"""Step 5: effects from a released file, and from nothing else."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import duckdb
import polars as pl

from estimators.effects import Estimate, effects
from estimators.horvitz_thompson import difference_effects
from estimators.means import means
from flows.released.file.evidence import Released, read_released
from flows.released.file.macros import LEVEL
from flows.released.file.read import opened, opened_draft, read_manifest
from flows.released.publish import add_estimates
from schemas.released import no_rows

Forecast = Mapping[tuple[str, str], float | None]
"""Standard errors predicted beforehand, by arm and estimator."""

_PLANNED = """
SELECT arm, estimator, planned_std_error FROM main.estimates
WHERE metric = $metric AND segment IS NULL
"""


def estimate_file(path: Path, level: float = LEVEL) -> list[Estimate]:
    """Estimate the effect of every treatment arm against control from the file at ``path``.

    By every estimator that the release has the statistics for (:func:`estimators.effects.effects`).
    ``level`` is the confidence level. The forecast standard errors are those that the file states.
    """
    with opened(path) as connection:
        released = read_released(connection, read_manifest(connection))
        forecast = stated_forecast(connection, released)
    return with_forecast(_estimated(released, level), forecast)


def stated_forecast(connection: duckdb.DuckDBPyConnection, released: Released) -> Forecast:
    """Read the standard errors that a file says were predicted."""
    rows = connection.execute(_PLANNED, {"metric": released.metric.metric}).fetchall()
    return {(arm, estimator): std_error for arm, estimator, std_error in rows}


def estimate(
    draft: Path, memory: int | None = None, forecast: Forecast | None = None
) -> list[Estimate]:
    """Estimate from a draft of a release, and put the estimates, and arms' means, into it.

    ``memory`` is what DuckDB may take, in bytes; ``forecast`` has the standard errors that were
    predicted beforehand, by arm and estimator.
    """
    with opened_draft(draft, memory) as connection:
        released = read_released(connection, read_manifest(connection))
    found = with_forecast(_estimated(released, LEVEL), forecast or {})
    frames = {"estimates": estimates_frame(found), "means": _means_frame(released)}
    add_estimates(draft, frames, released, memory)
    return found


def with_forecast(found: list[Estimate], forecast: Forecast) -> list[Estimate]:
    """Put beside each estimate what was predicted of it."""
    return [replace(one, planned_std_error=forecast.get((one.arm, one.estimator))) for one in found]


def _estimated(released: Released, level: float) -> list[Estimate]:
    evidence, manifest = released.evidence(), released.manifest
    if released.pools.of_difference is not None:
        return difference_effects(
            evidence,
            released.arms,
            manifest.control,
            same_shares=manifest.same_shares,
            level=level,
        )
    return effects(
        evidence,
        released.arms,
        manifest.control,
        [None],
        same_shares=manifest.same_shares,
        level=level,
    )


def _means_frame(released: Released) -> pl.DataFrame:
    """The rows of ``means``; none where differences alone are published."""
    if released.pools.of_difference is not None:
        return no_rows("means")
    found = means(released.evidence(), released.arms, same_shares=released.manifest.same_shares)
    return pl.DataFrame([asdict(one) for one in found], schema=no_rows("means").schema)


def estimates_frame(found: list[Estimate]) -> pl.DataFrame:
    """The rows of ``estimates``; those without a number are left out."""
    rows = [asdict(one) for one in found if one.estimate is not None]
    return pl.DataFrame(rows, schema=no_rows("estimates").schema)
