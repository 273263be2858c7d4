"""Step 3 for mechanisms that publish no units: from raw rows to noisy statistics of strata."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from flows.config.model.experiment import Config
from flows.raw.drawing import tables
from flows.raw.drawing.strata_counts import count_strata
from flows.raw.drawing.unit_stream import empty_units
from flows.raw.spill.workspace import Workspace
from flows.raw.units.rows import Rows
from privatizers.domain.strata import Strata
from privatizers.mechanisms.aggregate_mechanism import AggregateRelease
from privatizers.planning.aggregate_design import AggregateDesign
from schemas.names import ReleaseName
from schemas.raw import OUTCOME, several
from schemas.released import ReleaseTables, no_rows
from schemas.roster import Roster


def release_aggregates(
    config: Config,
    rows: Rows,
    designs: Sequence[AggregateDesign],
    name: ReleaseName,
    workspace: Workspace | None,
    roster: Roster | None,
) -> ReleaseTables:
    """Make the tables of the release ``name``, which has no units.

    Round outcomes onto the grid, once; count them by (pool, arm); let the mechanism draw every
    published statistic of the counts; so for each outcome, which has a noise of its own. Nothing
    depends on the order of the rows.
    """
    # The manifest reads a key, so it comes before any draw.
    manifest = tables.manifest_of(config, rows, designs, name, roster)
    for design in designs:
        tables.check_squares_fit(design, rows.sizes)
    outcomes = several(OUTCOME, len(designs))
    made = [
        _outcome_tables(view, rows, design, workspace, outcome)
        for view, design, outcome in zip(config.views, designs, outcomes, strict=True)
    ]
    return ReleaseTables(
        manifest=manifest,
        outcomes=tables.joined(one.outcomes for one in made),
        pools=tables.joined(one.pools for one in made),
        strata=tables.strata_table(made[0].strata),
        debias=no_rows("debias"),  # nothing is resampled
        counts=tables.joined(one.counts for one in made),
        arm_counts=no_rows("arm_counts"),  # nothing is learnt
        squares=tables.joined(one.squares for one in made),
        randomiser=no_rows("randomiser"),
        units=empty_units(tuple(metric.metric for metric in manifest.outcomes)),
    )


@dataclass(frozen=True)
class _AggregateTables:
    """What is published of one outcome."""

    strata: Strata
    outcomes: pl.DataFrame
    pools: pl.DataFrame
    counts: pl.DataFrame
    squares: pl.DataFrame


def _outcome_tables(
    config: Config,
    rows: Rows,
    design: AggregateDesign,
    workspace: Workspace | None,
    outcome: str,
) -> _AggregateTables:
    """Draw everything that is published of the outcome in one column."""
    found = count_strata(config, rows, design.mechanism, workspace, keep=False, outcome=outcome)
    strata = found.strata
    statistics = design.mechanism.statistics(found.counts, strata.cell_of)
    cells = tables.cells_table(strata, np.array(config.outcome.grid))
    return _AggregateTables(
        strata=strata,
        outcomes=tables.grid_table(config),
        pools=_pools(config, design, statistics, strata),
        counts=tables.counts_table(config, cells, statistics.noisy_counts),
        squares=tables.squares_table(config, design, found.counts, strata),
    )


def _pools(
    config: Config, design: AggregateDesign, statistics: AggregateRelease, strata: Strata
) -> pl.DataFrame:
    """A row for each (pool, arm); its statistics of means and of squares have weight 1."""
    pool, arm = np.nonzero(strata.cell_of >= 0)
    step = tables.grid_step(config, design)
    mean, difference = np.full(len(pool), np.nan), np.full(len(pool), np.nan)
    if statistics.noisy_sums is not None and step is not None:
        mean = config.outcome.grid[0] + step * statistics.noisy_sums / strata.cell_sizes
    if statistics.noisy_differences is not None and step is not None:
        of_pools = statistics.noisy_differences
        difference[strata.cell_of[of_pools.pool, 1]] = step * (of_pools.noisy / of_pools.divisor)
    has_counts = statistics.noisy_counts is not None
    has_squares = has_counts or design.mechanism.parameters.squares is not None
    has_mean = has_counts or statistics.noisy_sums is not None
    return tables.by_metric(
        config,
        {
            "pool": tables.named(strata.pools, pool),
            "arm": tables.named(strata.arms, arm),
            "n_units": pl.Series(strata.cell_sizes),
            "noisy_mean": pl.Series(mean).fill_nan(None),
            "noisy_difference": pl.Series(difference).fill_nan(None),
            "mean_weight": _weights(len(pool), has_mean),
            "square_weight": _weights(len(pool), has_squares),
            "table": pl.Series([None] * len(pool), dtype=pl.Int64),
        },
    )


def _weights(size: int, published: bool) -> pl.Series:
    return pl.Series([1.0 if published else None] * size, dtype=pl.Float64)
