"""Reading what :mod:`estimators.ends` needs of a released file: units, and noisy counts."""

from collections.abc import Callable, Iterator, Sequence
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
from flows.released.file.evidence import Released
from flows.released.file.unit_counts import units_at
from schemas.arrays import Floats

_NEAR = 1e-9  # of the grid's range: points of a planned grid are rounded


def find_ends(connection: duckdb.DuckDBPyConnection, every: Sequence[Released]) -> tuple[End, ...]:
    """Estimate the rows of ``ends`` of every outcome."""
    return tuple(end for one in every for end in _of_metric(connection, one))


def _of_metric(connection: duckdb.DuckDBPyConnection, released: Released) -> Iterator[End]:
    metric, grid, cells = released.metric, released.grid, released.cells
    n_units = sum_by(released.everyone.pool, released.everyone.n_units, len(released.pools.pool))
    noise = statistic_noise(metric.noise_scale, metric.strata_statistic, metric.grid_step)
    noisy = None
    if isinstance(noise, PoolCountsNoise):
        noisy = cells.matrix("counts", "noisy_count")
        as_they_lie = np.empty_like(n_units)
        as_they_lie[cells.rank] = n_units
    of_units = shares_of_units(connection, released)
    rate = metric.resampling_probability
    if metric.response_epsilon is not None:
        rate = response_rate(metric.response_epsilon, len(grid))

    @cache  # the lowest value is often that of missing ones
    def shares(place: int) -> PoolShares | None:
        response = None if of_units is None else of_units(place)
        if noisy is None or not isinstance(noise, PoolCountsNoise):
            return response
        indicator = np.zeros(len(grid))
        indicator[place] = 1.0
        counted = counted_shares(as_they_lie, noisy, indicator, noise).take(cells.rank)
        if response is None or rate is None:
            return counted
        return combined_shares(n_units, response, counted, noise, indicator, rate)

    for end, place in _places(grid, metric.missing).items():
        of_pools = shares(place)
        if of_pools is not None:
            yield whole_share(metric.metric, end, n_units, of_pools)


def shares_of_units(
    connection: duckdb.DuckDBPyConnection, released: Released
) -> Callable[[int], PoolShares] | None:
    """How the randomised outcomes tell an outcome's share in each pool, by its place in the grid.

    None where none are published. By tables, it is the mean of what outputs say of the outcome's
    indicator.
    """
    metric, grid, pools = released.metric, released.grid, released.everyone.pool
    outputs, rate = released.outputs, metric.resampling_probability
    n_units = sum_by(pools, released.everyone.n_units, len(released.pools.pool))
    if outputs is not None:
        units = outputs.count(connection, metric.metric)
        pool = pools[units.stratum]
        table = outputs.table_of[pool]

        def by_tables(place: int) -> PoolShares:
            share, noise = (
                sum_by(pool, units.n * said[table, units.output], len(n_units)) / n_units
                for said in outputs.indicator(place)
            )
            return PoolShares(share, noise / n_units)

        return by_tables
    if rate is None:
        return None
    cells = released.cells
    prior = cells.matrix("debias", "probability")

    def by_prior(place: int) -> PoolShares:
        stratum, n = units_at(connection, metric.metric, float(grid[place]))
        drawn = sum_by(pools[stratum], n.astype(np.float64), len(n_units))
        return response_shares(n_units, drawn, prior[cells.rank, place], rate)

    return by_prior


def _places(grid: Floats, missing: float) -> dict[EndName, int]:
    """The places in the grid that are told of; none of ``missing`` where it lies between two."""
    places: dict[EndName, int] = {"lowest": 0, "highest": len(grid) - 1}
    nearest = int(np.abs(grid - missing).argmin())
    if abs(grid[nearest] - missing) <= _NEAR * (grid[-1] - grid[0]):
        return {"missing": nearest, **places}
    return places
