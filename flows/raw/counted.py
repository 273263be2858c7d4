"""Rows onto the grid and into strata: what every mechanism begins with."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flows.config import Config
from flows.raw.sizes import places_of
from privatizers.aggregates import AggregateMechanism
from privatizers.mechanism import Mechanism
from privatizers.outcome_grid import nearest_levels, stochastic_levels, stratum_counts
from privatizers.strata import Strata, lay_out
from schemas.raw import OUTCOME

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Counted:
    """Raw, all but ``strata``: outcomes on the grid, and how often each is in which stratum."""

    levels: Ints
    """Position of each row's outcome on the grid, shape [n]."""
    cells: Ints
    """The (pool, arm) of each row, shape [n]."""
    counts: Ints
    """Units of each cell at each level, shape [S, K]."""
    strata: Strata


def counted(
    config: Config, frame: pl.DataFrame, mechanism: Mechanism | AggregateMechanism
) -> Counted:
    """Round outcomes onto the grid, once, and count them by (pool, arm)."""
    grid = np.array(config.outcome.grid)
    to_level = stochastic_levels if config.outcome.rounding == "stochastic" else nearest_levels
    levels = to_level(frame[OUTCOME].to_numpy(), grid)
    places = places_of(frame, config.arms.names)
    pool_of = mechanism.pool_of(places.sizes, config.privacy.min_stratum)
    strata = lay_out(places.clusters, list(config.arms.names), places.sizes, pool_of)
    cells = strata.cells(places.cluster, places.arm)
    counts = stratum_counts(levels, cells, len(strata.cell_sizes), len(grid))
    return Counted(levels, cells, counts, strata)
