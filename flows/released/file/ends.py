"""Reading what :mod:`estimators.ends` needs of a released file: units, and noisy counts."""

from collections.abc import Iterator, Sequence
from functools import cache

import duckdb
import numpy as np

from estimators.ends import (
    End,
    EndName,
    PoolShares,
    combined_shares,
    counted_shares,
    response_rate,
    response_shares,
    whole_share,
)
from estimators.response.pool_statistics import PoolCountsNoise, statistic_noise
from estimators.strata.evidence import sum_by
from flows.released.file.cells import Cells
from flows.released.file.evidence import Released
from flows.released.file.outputs import Outputs
from flows.released.file.unit_counts import count_units
from schemas.arrays import Floats

_NEAR = 1e-9  # of the grid's range: points of a planned grid are rounded


def find_ends(
    connection: duckdb.DuckDBPyConnection, every: Sequence[Released], *, is_ours: bool = False
) -> tuple[End, ...]:
    """Estimate the rows of ``ends`` of every outcome; ``is_ours`` says that this run drew them."""
    return tuple(end for one in every for end in _of_metric(connection, one, is_ours=is_ours))


def _of_metric(
    connection: duckdb.DuckDBPyConnection, released: Released, *, is_ours: bool
) -> Iterator[End]:
    metric, grid = released.metric, released.grid
    cells = Cells(connection, metric.metric, is_ours=is_ours, has_tables=metric.has_tables)
    n_units = sum_by(released.everyone.pool, released.everyone.n_units, len(released.pools.pool))
    noise = statistic_noise(metric.noise_scale, metric.strata_statistic, metric.grid_step)
    rate = metric.resampling_probability
    noisy, prior = None, None
    if isinstance(noise, PoolCountsNoise):
        noisy = cells.matrix("counts", "noisy_count")[cells.rank]
    if rate is not None:
        prior = cells.matrix("debias", "probability")[cells.rank]
    elif metric.response_epsilon is not None:
        rate = response_rate(metric.response_epsilon, len(grid))

    @cache  # the lowest value is often that of missing ones
    def shares(place: int) -> PoolShares | None:
        response = _of_units(connection, released, prior, place, n_units)
        if noisy is None or not isinstance(noise, PoolCountsNoise):
            return response
        indicator = np.zeros(len(grid))
        indicator[place] = 1.0
        counted = counted_shares(n_units, noisy, indicator, noise)
        if response is None or rate is None:
            return counted
        return combined_shares(n_units, response, counted, noise, indicator, rate)

    for end, place in _places(grid, metric.missing).items():
        found = shares(place)
        if found is not None:
            yield whole_share(metric.metric, end, n_units, found)


def _of_units(
    connection: duckdb.DuckDBPyConnection,
    released: Released,
    prior: Floats | None,
    place: int,
    n_units: Floats,
) -> PoolShares | None:
    """The share in each pool by the randomised outcomes; None where there are none."""
    metric, everyone, grid = released.metric, released.everyone, released.grid
    if released.outputs is not None:
        return _by_tables(connection, released, released.outputs, place, n_units)
    rate = metric.resampling_probability
    if rate is None or prior is None:
        return None
    units = count_units(connection, metric.metric, grid)
    here = units.low == grid[place]
    by_pool = sum_by(everyone.pool[units.stratum[here]], units.n[here], len(n_units))
    return response_shares(n_units, by_pool, prior[:, place], rate)


def _by_tables(
    connection: duckdb.DuckDBPyConnection,
    released: Released,
    outputs: Outputs,
    place: int,
    n_units: Floats,
) -> PoolShares:
    """The share in each pool by means of what outputs say of the outcome's indicator."""
    units = outputs.count(connection, released.metric.metric)
    pool = released.everyone.pool[units.stratum]
    table = outputs.table_of[pool]
    share, noise = (
        sum_by(pool, units.n * said[table, units.output], len(n_units)) / n_units
        for said in outputs.indicator(place)
    )
    return PoolShares(share, noise / n_units)


def _places(grid: Floats, missing: float) -> dict[EndName, int]:
    """The places in the grid that are told of; none of ``missing`` where it lies between two."""
    places: dict[EndName, int] = {"lowest": 0, "highest": len(grid) - 1}
    nearest = int(np.abs(grid - missing).argmin())
    if abs(grid[nearest] - missing) <= _NEAR * (grid[-1] - grid[0]):
        return {"missing": nearest, **places}
    return places
