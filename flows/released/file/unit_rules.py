"""Rules of ``debias`` and of ``units`` that every sound release keeps, checked in arrays."""

from typing import Final

import duckdb
import numpy as np

from flows.released.file.cells import Cells, read_columns
from flows.released.file.sql import quote_name, text
from flows.released.file.unit_counts import count_units
from schemas.arrays import Floats
from schemas.released import Metric
from schemas.tables import debiased

_GRID: Final = "SELECT outcome FROM main.outcomes WHERE metric = {metric} ORDER BY 1"
_N_UNITS: Final = "SELECT count(*), count(unit_id), count({debiased}) FROM main.units"
_SIZES: Final = """
    SELECT s.n_units, p.code AS pool FROM temp.main.numbered_strata AS s
    JOIN temp.main.numbered_pools AS p ON p.pool = s.pool AND p.arm = s.arm
    ORDER BY s.code"""


def broken_debias_rule(
    connection: duckdb.DuckDBPyConnection, cells: Cells, metric: Metric
) -> str | None:
    """Name the first rule that a metric's numbers in ``debias`` break; None where they keep all.

    ``debias`` has each outcome once in every pool and arm, or no row where no units are published.
    """
    rate = metric.resampling_probability
    if rate is None:
        return None
    (grid,) = read_columns(connection, _GRID.format(metric=text(metric.metric)))
    prior, weights = (cells.matrix("debias", name) for name in ("probability", "weight"))
    if not bool(np.all(np.abs(prior.sum(axis=1) - 1.0) <= 1e-9)):
        return "debias: probabilities add up to 1"
    if not undo_response(grid, prior, weights, rate):
        return "debias: weights are those that undo the randomisation"
    return None


def broken_unit_rule(
    connection: duckdb.DuckDBPyConnection, cells: Cells, metric: Metric
) -> str | None:
    """Name the rule that a metric's columns of ``units`` break; None where they keep it.

    ``debias`` keeps its own.
    """
    if metric.resampling_probability is None or _units_fit(connection, cells, metric.metric):
        return None
    return "units: each has an id, and an outcome and its weight as in debias; strata count them"


def undo_response(grid: Floats, prior: Floats, weights: Floats, rate: float) -> bool:
    """Whether ``weights`` are (y − λ m)/(1 − λ), m = Σ y q̃_y, to 1e-9 of the greatest |y|.

    y is ``grid``, shape [K], q̃ ``prior``, shape [P, K] as ``weights``, λ ``rate``.
    """
    apart = weights * (1.0 - rate)
    apart -= grid
    apart += rate * (prior @ grid)[:, np.newaxis]
    return bool(np.all(np.abs(apart, out=apart) <= 1e-9 * np.max(np.abs(grid))))


def _units_fit(connection: duckdb.DuckDBPyConnection, cells: Cells, metric: str) -> bool:
    """Whether units have ids, outcomes and weights as in debias, and strata count them.

    Units of one outcome in a stratum are counted together, so this takes memory for strata alone.
    """
    counting = _N_UNITS.format(debiased=quote_name(debiased(metric)))
    n_units, *known = connection.execute(counting).fetchall()[0]
    if known != [n_units, n_units]:
        return False
    (grid,) = read_columns(connection, _GRID.format(metric=text(metric)))
    sizes, pool = read_columns(connection, _SIZES)
    found = count_units(connection, metric, grid)
    if int(found.n.sum()) != n_units:  # some have a cluster or an arm that nobody counts
        return False
    if not np.array_equal(np.bincount(found.stratum, found.n, minlength=len(sizes)), sizes):
        return False
    level = np.minimum(np.searchsorted(grid, found.low), len(grid) - 1)
    place = cells.rank[pool][found.stratum] * cells.n_outcomes + level
    weight = cells.matrix("debias", "weight").reshape(-1)[place]
    return bool(np.all((found.low == grid[level]) & (found.high == grid[level]))) and bool(
        np.all((found.low_debiased == weight) & (found.high_debiased == weight))
    )
