"""Step 3 for mechanisms that publish no units: raw rows in, noisy statistics of strata out."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flows.config import Config
from flows.raw.counted import counted
from flows.raw.room import Room
from flows.raw.rows import Rows
from flows.raw.tables import grid_step, manifest_of, named, strata_table
from flows.raw.unit_stream import no_units
from privatizers.aggregate_design import AggregateDesign
from privatizers.aggregates import AggregateRelease
from privatizers.strata import Strata
from schemas.released import ReleaseName, ReleaseTables

Floats = NDArray[np.float64]


def aggregate(
    config: Config, rows: Rows, design: AggregateDesign, name: ReleaseName, room: Room | None
) -> ReleaseTables:
    """Make the tables of the release ``name``, which has no units.

    Round outcomes onto the grid, once; count them by (pool, arm); let the mechanism draw all that
    is published of the counts. Nothing depends on the order of the rows.
    """
    grid = np.array(config.outcome.grid)
    found = counted(config, rows, design.mechanism, room, keep=False)
    strata = found.strata
    drawn = design.mechanism.statistics(found.counts, strata.cell_of)
    return ReleaseTables(
        manifest=manifest_of(
            config, design, name, n_units=rows.n_units, n_clusters=len(strata.clusters)
        ),
        outcomes=pl.DataFrame({"outcome": grid}),
        pools=_pools(config, design, drawn, strata),
        strata=strata_table(strata),
        debias=_noisy_counts(strata, drawn, grid),
        units=no_units(),
    )


def _pools(
    config: Config, design: AggregateDesign, drawn: AggregateRelease, strata: Strata
) -> pl.DataFrame:
    """Every (pool, arm); a statistic of its mean, or of squares, counts in full (weight 1)."""
    pool, arm = np.nonzero(strata.cell_of >= 0)
    step = grid_step(config, design)
    mean, difference = np.full(len(pool), np.nan), np.full(len(pool), np.nan)
    if drawn.noisy_sums is not None and step is not None:
        mean = config.outcome.grid[0] + step * drawn.noisy_sums / strata.cell_sizes
    if drawn.noisy_differences is not None and step is not None:
        found = drawn.noisy_differences
        difference[strata.cell_of[found.pool, 1]] = step * (found.noisy / found.divisor)
    has_squares = drawn.noisy_counts is not None
    has_mean = has_squares or drawn.noisy_sums is not None
    return pl.DataFrame(
        {
            "pool": named(strata.pools, pool),
            "arm": named(strata.arms, arm),
            "n_units": strata.cell_sizes,
            "noisy_mean": pl.Series(mean).fill_nan(None),
            "noisy_difference": pl.Series(difference).fill_nan(None),
            "mean_weight": _weights(len(pool), has_mean),
            "square_weight": _weights(len(pool), has_squares),
        }
    )


def _weights(size: int, published: bool) -> pl.Series:
    return pl.Series([1.0 if published else None] * size, dtype=pl.Float64)


def _noisy_counts(strata: Strata, drawn: AggregateRelease, grid: Floats) -> pl.DataFrame:
    """The rows of ``debias``: noisy counts, and no prior or weight, as nothing is resampled."""
    pool, arm = (np.repeat(part, len(grid)) for part in np.nonzero(strata.cell_of >= 0))
    table = pl.DataFrame(
        {
            "pool": named(strata.pools, pool),
            "arm": named(strata.arms, arm),
            "outcome": np.tile(grid, len(strata.cell_sizes)),
        }
    ).with_columns(
        pl.lit(None, pl.Float64).alias("probability"), pl.lit(None, pl.Float64).alias("weight")
    )
    if drawn.noisy_counts is None:
        return table.clear().with_columns(pl.lit(None, pl.Int64).alias("noisy_count"))
    return table.with_columns(pl.Series("noisy_count", drawn.noisy_counts.ravel()))
