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
from flows.raw.sealed import Sealed
from flows.raw.tables import grid_step, manifest_of, named, strata_table
from flows.raw.unit_ids import released_ids
from privatizers.aggregate_design import AggregateDesign
from privatizers.design import Design
from privatizers.mechanism import StrataRelease
from privatizers.strata import Strata
from schemas.raw import ARM, CLUSTER, UNIT
from schemas.released import ReleaseName, ReleaseTables

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@values_free
def privatize(
    config: Config, rows: Sealed[pl.DataFrame], design: AnyDesign, name: ReleaseName
) -> ReleaseTables:
    """Randomise every outcome and make the tables of the release ``name``.

    In this order: put units in the order of their released ids; round outcomes onto the grid,
    once; count them by (pool, arm); let the mechanism draw what is published of the strata; draw
    every unit's outcome. A design that publishes no units ends with the strata (:func:`aggregate`).
    """
    if isinstance(design, AggregateDesign):
        return aggregate(config, rows, design, name)
    frame = rows.open()
    # By released id from here on: where ids are hashed, the order of raw ones would tell of them.
    frame = frame.with_columns(released_ids(config, frame[UNIT]).alias(UNIT)).sort(UNIT)
    grid = np.array(config.outcome.grid)
    found = counted(config, frame, design.mechanism)
    strata, cells = found.strata, found.cells
    drawn = design.mechanism.strata(found.counts)
    randomised = drawn.response.draw(found.levels, cells)
    weights = debias_vector(grid, drawn.response.prior, drawn.response.resampling_probability)
    return ReleaseTables(
        manifest=manifest_of(
            config, design, name, n_units=len(frame), n_clusters=len(strata.clusters)
        ),
        outcomes=pl.DataFrame({"outcome": grid}),
        pools=_pools(
            strata,
            _noisy_means(config, design, drawn, strata),
            _weights(config, design, strata),
        ),
        strata=strata_table(strata),
        debias=_debias(strata, drawn, grid, weights),
        units=pl.DataFrame(
            {
                "unit_id": frame[UNIT],
                "cluster": frame[CLUSTER],
                "arm": frame[ARM],
                "outcome": grid[randomised],
                "outcome_debiased": weights[cells, randomised],
            }
        ),
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
