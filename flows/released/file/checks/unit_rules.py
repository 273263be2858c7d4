"""Rules of ``debias`` and of ``units`` that every sound release keeps, checked in arrays."""

from collections.abc import Iterator
from typing import Final

import duckdb
import numpy as np

from estimators.response.response_tables import SingularTableError
from flows.released.file.cells import Cells, read_columns
from flows.released.file.outputs import read_outputs
from flows.released.file.sql import quote_name, text
from flows.released.file.unit_counts import count_units
from schemas.arrays import Floats
from schemas.released import Metric
from schemas.tables import debiased

_GRID: Final = "SELECT outcome FROM main.outcomes WHERE metric = {metric} ORDER BY 1"
_ADDS_UP: Final = 1e-9
_N_UNITS: Final = "SELECT count(*), count(unit_id), count({debiased}) FROM main.units"
_SIZES: Final = """
    SELECT s.n_units, p.code AS pool FROM temp.main.numbered_strata AS s
    JOIN temp.main.numbered_pools AS p ON p.pool = s.pool AND p.arm = s.arm
    ORDER BY s.code"""


def broken_debias_rule(
    connection: duckdb.DuckDBPyConnection, cells: Cells, metric: Metric, but: frozenset[str]
) -> str | None:
    """Name the first rule ``but`` some that a metric's ``debias`` breaks; None where it keeps all.

    ``debias`` has each outcome once in every pool and arm, or no row where no units are published.
    """
    rate = metric.resampling_probability
    if metric.response_epsilon is not None:
        found = _broken_table_rules(connection, cells, metric.metric, metric.response_epsilon)
        return next((name for name in found if name not in but), None)
    if rate is None:
        return None
    (grid,) = read_columns(connection, _GRID.format(metric=text(metric.metric)))
    prior, weights = (cells.matrix("debias", name) for name in ("probability", "weight"))
    if not bool(np.all(np.abs(prior.sum(axis=1) - 1.0) <= 1e-9)):
        return "debias: probabilities add up to 1"
    if not undo_response(grid, prior, weights, rate):
        return "debias: weights are those that undo the randomisation"
    return None


def undo_response(grid: Floats, prior: Floats, weights: Floats, rate: float) -> bool:
    """Whether ``weights`` are (y − λ m)/(1 − λ), m = Σ y q̃_y, to 1e-9 of the greatest |y|.

    y is ``grid``, shape [K], q̃ ``prior``, shape [P, K] as ``weights``, λ ``rate``.
    """
    apart = weights * (1.0 - rate)
    apart -= grid
    apart += rate * (prior @ grid)[:, np.newaxis]
    return bool(np.all(np.abs(apart, out=apart) <= 1e-9 * np.max(np.abs(grid))))


def _broken_table_rules(
    connection: duckdb.DuckDBPyConnection, cells: Cells, metric: str, epsilon: float
) -> Iterator[str]:
    """Name the rules that the numbers of response tables break.

    ``debias`` has each output once in every pool and arm, ``randomiser`` in every table.
    """
    (grid,) = read_columns(connection, _GRID.format(metric=text(metric)))
    drawn, inputs = cells.matrix("randomiser", "probability"), np.repeat(grid, cells.n_others)
    drawn = drawn.reshape(len(drawn), len(inputs), cells.n_outputs)
    table_of, (_, first) = cells.table_of, np.unique(cells.table_of, return_index=True)
    of_pools = [cells.matrix("debias", name) for name in ("probability", "weight")]
    likely, weights = (every[first] for every in of_pools)
    most, least = drawn.max(axis=1), drawn.min(axis=1)
    rules = {
        "randomiser: probabilities add up to 1": np.abs(drawn.sum(axis=2) - 1.0) <= _ADDS_UP,
        "randomiser: no output tells outcomes apart by more than response_epsilon": (
            most <= least * np.exp(epsilon) * (1.0 + 1e-9)
        ),
        "debias: probabilities add up to 1": np.abs(likely.sum(axis=1) - 1.0) <= _ADDS_UP,
        "debias: what randomiser has not is never likely, and all else is": (
            (most > 0) == (likely > 0)
        ),
        "debias: pools of one table have its numbers": np.array(
            [np.array_equal(every, every[first][table_of]) for every in of_pools]
        ),
        "debias: weights are those that undo the randomisation": (
            np.abs(np.einsum("pkj,pj->pk", drawn, weights) - inputs)
            <= _ADDS_UP * np.max(np.abs(grid))
        ),
    }
    for name, held in rules.items():
        if not bool(np.all(held)):
            yield name
    try:
        read_outputs(cells, grid)
    except SingularTableError:
        yield "randomiser: outcomes can be told apart"


def broken_unit_rule(
    connection: duckdb.DuckDBPyConnection, cells: Cells, metric: Metric
) -> str | None:
    """Name the rule that a metric's columns of ``units`` break; None where they keep it.

    ``debias`` keeps its own. Units of one outcome in a stratum are counted together, so this takes
    memory for strata alone.
    """
    if not metric.has_units or _units_fit(connection, cells, metric):
        return None
    return "units: each has an id, and an outcome and its weight as in debias; strata count them"


def _units_fit(connection: duckdb.DuckDBPyConnection, cells: Cells, metric: Metric) -> bool:
    name = metric.metric
    counting = _N_UNITS.format(debiased=quote_name(debiased(name)))
    n_units, *known = connection.execute(counting).fetchall()[0]
    if known != [n_units, n_units]:
        return False
    if metric.has_tables:
        grid = np.arange(cells.n_outputs, dtype=np.float64)
    else:
        (grid,) = read_columns(connection, _GRID.format(metric=text(name)))
    sizes, pool = read_columns(connection, _SIZES)
    units = count_units(connection, name, grid)
    if int(units.n.sum()) != n_units:  # some have a cluster or an arm that nobody counts
        return False
    if not np.array_equal(np.bincount(units.stratum, units.n, minlength=len(sizes)), sizes):
        return False
    level = np.minimum(np.searchsorted(grid, units.low), len(grid) - 1)
    weight = cells.matrix("debias", "weight")[cells.rank[pool][units.stratum], level]
    ends = ((units.low, grid[level]), (units.high, grid[level]))
    of_weights = ((units.low_debiased, weight), (units.high_debiased, weight))
    return all(np.array_equal(*pair) for pair in (*ends, *of_weights))
