"""Step 3, private: raw rows in, tables that may be published out."""

from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np
import polars as pl
from numpy.typing import NDArray

from estimators.combining import Weights, declared_weights, statistic_noise
from estimators.debias import debias_vector
from flows.config import Config
from flows.raw.guard import values_free
from flows.raw.sealed import Sealed
from flows.raw.sizes import places_of
from flows.raw.unit_ids import released_ids
from privatizers.design import Design
from privatizers.mechanism import StrataRelease
from privatizers.outcome_grid import nearest_levels, stochastic_levels, stratum_counts
from privatizers.strata import Strata, lay_out
from schemas.raw import ARM, CLUSTER, OUTCOME, UNIT
from schemas.released import NEIGHBOURS, SCHEMA_VERSION, Manifest, ReleaseName, ReleaseTables

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@values_free
def privatize(
    config: Config, rows: Sealed[pl.DataFrame], design: Design, name: ReleaseName
) -> ReleaseTables:
    """Randomise every outcome and make the tables of the release ``name``.

    In this order: put units in the order of their released ids; round outcomes onto the grid,
    once; count them by (pool, arm); let the mechanism draw what is published of the strata; draw
    every unit's outcome.
    """
    frame = rows.open()
    # By released id from here on: where ids are hashed, the order of raw ones would tell of them.
    frame = frame.with_columns(released_ids(config, frame[UNIT]).alias(UNIT)).sort(UNIT)
    mechanism = design.mechanism
    grid = np.array(config.outcome.grid)
    to_level = stochastic_levels if config.outcome.rounding == "stochastic" else nearest_levels
    levels = to_level(frame[OUTCOME].to_numpy(), grid)

    places = places_of(frame, config.arms.names)
    pool_of = mechanism.pool_of(places.sizes, config.privacy.min_stratum)
    strata = lay_out(places.clusters, list(config.arms.names), places.sizes, pool_of)

    cells = strata.cells(places.cluster, places.arm)
    drawn = mechanism.strata(stratum_counts(levels, cells, len(strata.cell_sizes), len(grid)))
    randomised = drawn.response.draw(levels, cells)
    weights = debias_vector(grid, drawn.response.prior, drawn.response.resampling_probability)
    return ReleaseTables(
        manifest=_manifest(
            config, design, name, n_units=len(frame), n_clusters=len(places.clusters)
        ),
        outcomes=pl.DataFrame({"outcome": grid}),
        pools=_pools(
            strata,
            _noisy_means(config, design, drawn, strata),
            _weights(config, design, strata),
        ),
        strata=_strata(strata),
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


def _manifest(
    config: Config, design: Design, name: ReleaseName, *, n_units: int, n_clusters: int
) -> Manifest:
    parameters = design.mechanism.parameters
    return Manifest(
        release_id=name.release_id,
        experiment=name.experiment,
        period=name.period,
        revision=name.revision,
        created_at=datetime.now(UTC).replace(tzinfo=None, microsecond=0),
        mechanism=design.mechanism.name,
        epsilon=design.epsilon,
        delta=design.delta,
        neighbours=NEIGHBOURS,
        resampling_probability=parameters.resampling_probability,
        truncation_threshold=parameters.truncation_threshold,
        noise_scale=parameters.noise_scale,
        strata_statistic=parameters.strata_statistic,
        grid_step=_grid_step(config, design),
        control=config.arms.control,
        same_shares=config.arms.same_shares,
        n_units=n_units,
        n_clusters=n_clusters,
        n_outcomes=parameters.n_outcomes,
        schema_version=SCHEMA_VERSION,
        package_version=version("clusterdp"),
    )


def _named(names: list[str], positions: Ints) -> pl.Series:
    """The name at each position."""
    return pl.Series(names, dtype=pl.String).gather(positions)


def _weights(config: Config, design: Design, strata: Strata) -> Weights | None:
    """What the statistics weigh in ``combined``, from public facts; None where there are none."""
    parameters = design.mechanism.parameters
    noise = statistic_noise(
        parameters.noise_scale, parameters.strata_statistic, _grid_step(config, design)
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


def _grid_step(config: Config, design: Design) -> float | None:
    lattice = design.mechanism.parameters.lattice
    return None if lattice is None else lattice.step_of(config.outcome.grid)


def _noisy_means(config: Config, design: Design, drawn: StrataRelease, strata: Strata) -> pl.Series:
    """y_1 + h S̃/n of every cell; null where no means are published."""
    step = _grid_step(config, design)
    if drawn.noisy_sums is None or step is None:
        return pl.Series([None] * len(strata.cell_sizes), dtype=pl.Float64)
    return pl.Series(config.outcome.grid[0] + step * drawn.noisy_sums / strata.cell_sizes)


def _pools(strata: Strata, noisy_means: pl.Series, weights: Weights | None) -> pl.DataFrame:
    pool, arm = np.nonzero(strata.cell_of >= 0)
    nothing = pl.Series([None] * len(pool), dtype=pl.Float64)
    return pl.DataFrame(
        {
            "pool": _named(strata.pools, pool),
            "arm": _named(strata.arms, arm),
            "n_units": strata.cell_sizes,
            "noisy_mean": noisy_means,
            "mean_weight": nothing if weights is None else weights.of_mean,
            "square_weight": nothing if weights is None else weights.of_square,
        }
    )


def _strata(strata: Strata) -> pl.DataFrame:
    cluster, arm = np.nonzero(strata.sizes)
    return pl.DataFrame(
        {
            "cluster": _named(strata.clusters, cluster),
            "arm": _named(strata.arms, arm),
            "pool": _named(strata.pools, strata.pool_of[cluster]),
            "n_units": strata.sizes[cluster, arm],
        }
    )


def _debias(strata: Strata, drawn: StrataRelease, grid: Floats, weights: Floats) -> pl.DataFrame:
    n_cells, n_outcomes = weights.shape
    pool, arm = (np.repeat(part, n_outcomes) for part in np.nonzero(strata.cell_of >= 0))
    noisy = drawn.noisy_counts
    counts = [None] * weights.size if noisy is None else noisy.ravel()
    return pl.DataFrame(
        {
            "pool": _named(strata.pools, pool),
            "arm": _named(strata.arms, arm),
            "outcome": np.tile(grid, n_cells),
            "probability": drawn.response.prior.ravel(),
            "weight": weights.ravel(),
            "noisy_count": pl.Series(counts, dtype=pl.Int64),
        }
    )
