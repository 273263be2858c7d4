"""The tables of a release that are made of public facts alone, whatever the mechanism."""

from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flows.config import AnyDesign, Config
from privatizers.strata import Strata
from schemas.released import (
    NEIGHBOURS,
    NEIGHBOURS_WITH_CLUSTERS,
    SCHEMA_VERSION,
    Manifest,
    ReleaseName,
)

Ints = NDArray[np.int64]


def manifest_of(
    config: Config, design: AnyDesign, name: ReleaseName, *, n_units: int, n_clusters: int
) -> Manifest:
    """The one row of ``release``."""
    parameters, private = design.mechanism.parameters, config.private_clusters
    return Manifest(
        release_id=name.release_id,
        experiment=name.experiment,
        period=name.period,
        revision=name.revision,
        created_at=datetime.now(UTC).replace(tzinfo=None, microsecond=0),
        mechanism=design.mechanism.name,
        epsilon=design.epsilon,
        delta=design.delta,
        neighbours=NEIGHBOURS if private is None else NEIGHBOURS_WITH_CLUSTERS,
        cluster_epsilon=None if private is None else private.epsilon,
        resampling_probability=parameters.resampling_probability,
        truncation_threshold=parameters.truncation_threshold,
        noise_scale=parameters.noise_scale,
        strata_statistic=parameters.strata_statistic,
        grid_step=grid_step(config, design),
        control=config.arms.control,
        same_shares=config.arms.same_shares,
        n_units=n_units,
        n_clusters=n_clusters,
        n_outcomes=parameters.n_outcomes,
        schema_version=SCHEMA_VERSION,
        package_version=version("clusterdp"),
    )


def named(names: list[str], positions: Ints) -> pl.Series:
    """The name at each position."""
    return pl.Series(names, dtype=pl.String).gather(positions)


def grid_step(config: Config, design: AnyDesign) -> float | None:
    """One step of the grid, where sums of whole steps are published; else None."""
    lattice = design.mechanism.parameters.lattice
    return None if lattice is None else lattice.step_of(config.outcome.grid)


def strata_table(strata: Strata) -> pl.DataFrame:
    """Every (cluster, arm) that has units, and its pool."""
    cluster, arm = np.nonzero(strata.sizes)
    return pl.DataFrame(
        {
            "cluster": named(strata.clusters, cluster),
            "arm": named(strata.arms, arm),
            "pool": named(strata.pools, strata.pool_of[cluster]),
            "n_units": strata.sizes[cluster, arm],
        }
    )
