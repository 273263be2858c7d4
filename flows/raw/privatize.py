"""Step 3, private: raw rows in, tables that may be published out."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from estimators.combining import Weights, declared_weights, statistic_noise
from estimators.debias import debias_vector
from flows.config import AnyDesign, Config
from flows.raw.aggregate import aggregate
from flows.raw.counted import counted
from flows.raw.guard import values_free
from flows.raw.private_clusters import with_randomised_clusters
from flows.raw.room import Room
from flows.raw.rows import Rows
from flows.raw.sealed import Sealed
from flows.raw.tables import grid_step, manifest_of, named, strata_table
from flows.raw.unit_stream import unit_table
from privatizers.aggregate_design import AggregateDesign
from privatizers.design import Design
from privatizers.mechanism import StrataRelease
from privatizers.strata import Strata
from schemas.released import ReleaseName, ReleaseTables

Floats = NDArray[np.float64]


@values_free
def privatize(
    config: Config,
    rows: Sealed[Rows],
    design: AnyDesign,
    name: ReleaseName,
    room: Room | None = None,
) -> ReleaseTables:
    """Make the tables of the release ``name``, every outcome randomised.

    In this order: randomise clusters, where they are private, so that nothing after it sees raw
    ones; round outcomes onto the grid, once; count them by (pool, arm); let the mechanism draw what
    is published of the strata. Every unit's outcome is drawn when ``units`` is read, in
    the order of released ids. A design that publishes no units ends with the strata
    (:func:`aggregate`).
    """
    kept = with_randomised_clusters(config, rows.open(), room)
    if isinstance(design, AggregateDesign):
        return aggregate(config, kept, design, name, room)
    grid = np.array(config.outcome.grid)
    found = counted(config, kept, design.mechanism, room, keep=True)
    strata = found.strata
    drawn = design.mechanism.strata(found.counts)
    weights = debias_vector(grid, drawn.response.prior, drawn.response.resampling_probability)
    return ReleaseTables(
        manifest=manifest_of(
            config, design, name, n_units=kept.n_units, n_clusters=len(strata.clusters)
        ),
        outcomes=pl.DataFrame({"outcome": grid}),
        pools=_pools(
            strata,
            _noisy_means(config, design, drawn, strata),
            _weights(config, design, strata),
        ),
        strata=strata_table(strata),
        debias=_debias(strata, drawn, grid, weights),
        units=unit_table(config, kept, found, drawn.response, weights, room),
    )


def _weights(config: Config, design: Design, strata: Strata) -> Weights | None:
    """What the statistics weigh in ``combined``, from public facts; None where there are none."""
    parameters = design.mechanism.parameters
    noise = statistic_noise(
        parameters.noise_scale, parameters.strata_statistic, grid_step(config, design)
    )
    if noise is None:
        return None
    guess = np.array(config.outcome.weights)
    return declared_weights(
        np.array(config.outcome.grid),
        guess,
        design.mechanism.expected_prior(guess),
        parameters.resampling_probability,
        noise,
        strata.cell_sizes.astype(np.float64),
    )


def _noisy_means(config: Config, design: Design, drawn: StrataRelease, strata: Strata) -> pl.Series:
    """y_1 + h S̃/n of every cell; null where no means are published."""
    step = grid_step(config, design)
    if drawn.noisy_sums is None or step is None:
        return pl.Series([None] * len(strata.cell_sizes), dtype=pl.Float64)
    return pl.Series(config.outcome.grid[0] + step * drawn.noisy_sums / strata.cell_sizes)


def _pools(strata: Strata, noisy_means: pl.Series, weights: Weights | None) -> pl.DataFrame:
    pool, arm = np.nonzero(strata.cell_of >= 0)
    nothing = pl.Series([None] * len(pool), dtype=pl.Float64)
    return pl.DataFrame(
        {
            "pool": named(strata.pools, pool),
            "arm": named(strata.arms, arm),
            "n_units": strata.cell_sizes,
            "noisy_mean": noisy_means,
            "noisy_difference": nothing,
            "mean_weight": nothing if weights is None else weights.of_mean,
            "square_weight": nothing if weights is None else weights.of_square,
        }
    )


def _debias(strata: Strata, drawn: StrataRelease, grid: Floats, weights: Floats) -> pl.DataFrame:
    n_cells, n_outcomes = weights.shape
    pool, arm = (np.repeat(part, n_outcomes) for part in np.nonzero(strata.cell_of >= 0))
    noisy = drawn.noisy_counts
    counts = [None] * weights.size if noisy is None else noisy.ravel()
    return pl.DataFrame(
        {
            "pool": named(strata.pools, pool),
            "arm": named(strata.arms, arm),
            "outcome": np.tile(grid, n_cells),
            "probability": drawn.response.prior.ravel(),
            "weight": weights.ravel(),
            "noisy_count": pl.Series(counts, dtype=pl.Int64),
        }
    )
