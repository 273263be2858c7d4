"""Step 5: effects from a released file, and from nothing else."""

from dataclasses import asdict
from pathlib import Path

import polars as pl

from estimators.differences import difference_effects
from estimators.effects import Estimate, effects
from flows.released.evidence import Released, read_released
from flows.released.macros import LEVEL
from flows.released.publish import add_estimates
from flows.released.read import opened, read_manifest
from schemas.released import TABLES


def estimate_file(path: Path, level: float = LEVEL) -> list[Estimate]:
    """Estimate the effect of every treatment arm against control from the file at ``path``.

    By every estimator that the release has the statistics for (:func:`estimators.effects.effects`).
    ``level`` is the confidence level.
    """
    return _estimated(_read(path), level)


def estimate(draft: Path, memory: int | None = None) -> list[Estimate]:
    """Estimate from a draft of a release, and put the estimates into it.

    ``memory`` is what DuckDB may take, in bytes.
    """
    released = _read(draft, memory)
    found = _estimated(released, LEVEL)
    add_estimates(draft, estimates_frame(found), released, memory)
    return found


def _read(path: Path, memory: int | None = None) -> Released:
    with opened(path, memory) as connection:
        return read_released(connection, read_manifest(connection))


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


def estimates_frame(found: list[Estimate]) -> pl.DataFrame:
    """The rows of ``estimates``; those without a number are left out."""
    text = ("arm", "control", "segment", "estimator")
    kinds = {name: pl.String if name in text else pl.Float64 for name in TABLES["estimates"]}
    rows = [asdict(one) for one in found if one.estimate is not None]
    return pl.DataFrame(rows, schema={**kinds, "n_units": pl.Int64})
