"""Estimates of several periods as one table."""

from collections.abc import Sequence

import polars as pl

from estimators.arm_effects import Estimate
from flows.operate.series.estimates import SeriesEstimates
from flows.released.estimates.frames import EffectsFrame, frame


def frame_by_period(
    found: SeriesEstimates, rows: Sequence[tuple[Sequence[Estimate], type[Estimate]]]
) -> pl.DataFrame:
    """The rows of every period, after ``period`` and ``release_id``."""
    frames = []
    for one, (estimates, kind) in zip(found.periods, rows, strict=True):
        manifest = one.night.manifest
        said = (
            pl.lit(manifest.period).alias("period"),
            pl.lit(manifest.release_id).alias("release_id"),
        )
        frames.append(frame(estimates, kind).select(*said, pl.all()))
    return EffectsFrame(pl.concat(frames))
