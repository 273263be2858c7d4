"""Rules of ``debias`` and of ``units`` that every sound release keeps, checked in arrays."""

from typing import Final

import duckdb
import numpy as np

from flows.released.file.cells import Cells, read_columns
from schemas.arrays import Floats

_GRID: Final = "SELECT outcome FROM main.outcomes ORDER BY 1"
_RATE: Final = "SELECT resampling_probability FROM main.metrics"
_N_UNITS: Final = "SELECT count(*), count(unit_id), count(outcome_debiased) FROM main.units"
_SIZES: Final = """
    SELECT s.n_units, p.code AS pool FROM temp.main.numbered_strata AS s
    JOIN temp.main.numbered_pools AS p ON p.pool = s.pool AND p.arm = s.arm
    ORDER BY s.code"""
_FOUND: Final = """
    SELECT s.code AS stratum, o.level, f.n, f.low, f.high
    FROM (
        SELECT cluster, arm, outcome, count(*) AS n,
            min(outcome_debiased) AS low, max(outcome_debiased) AS high
        FROM main.units GROUP BY cluster, arm, outcome
    ) AS f
    JOIN temp.main.numbered_strata AS s
    ON s.cluster = f.cluster::VARCHAR AND s.arm = f.arm::VARCHAR
    JOIN (
        SELECT outcome, row_number() OVER (ORDER BY outcome) - 1 AS level FROM main.outcomes
    ) AS o ON o.outcome = f.outcome"""


def broken_debias_rule(connection: duckdb.DuckDBPyConnection, cells: Cells) -> str | None:
    """Name the first rule that the numbers of ``debias`` break; None where they keep all.

    ``debias`` has each outcome once in every pool and arm, or no row where no units are published.
    """
    rate = _rate(connection)
    if rate is None:
        return None
    (grid,) = read_columns(connection, _GRID)
    prior, weights = (cells.matrix("debias", name) for name in ("probability", "weight"))
    if not bool(np.all(np.abs(prior.sum(axis=1) - 1.0) <= 1e-9)):
        return "debias: probabilities add up to 1"
    if not undo_response(grid, prior, weights, rate):
        return "debias: weights are those that undo the randomisation"
    return None


def broken_unit_rule(connection: duckdb.DuckDBPyConnection, cells: Cells) -> str | None:
    """Name the rule that ``units`` break; None where they keep it. ``debias`` keeps its own."""
    if _rate(connection) is None or _units_fit(connection, cells):
        return None
    return "units: each has an id, and an outcome and its weight as in debias; strata count them"


def _rate(connection: duckdb.DuckDBPyConnection) -> float | None:
    """λ; None where no units are published."""
    rate: float | None = connection.execute(_RATE).fetchall()[0][0]
    return rate


def undo_response(grid: Floats, prior: Floats, weights: Floats, rate: float) -> bool:
    """Whether ``weights`` are (y − λ m)/(1 − λ), m = Σ y q̃_y, to 1e-9 of the greatest |y|.

    y is ``grid``, shape [K], q̃ ``prior``, shape [P, K] as ``weights``, λ ``rate``.
    """
    apart = weights * (1.0 - rate)
    apart -= grid
    apart += rate * (prior @ grid)[:, np.newaxis]
    return bool(np.all(np.abs(apart, out=apart) <= 1e-9 * np.max(np.abs(grid))))


def _units_fit(connection: duckdb.DuckDBPyConnection, cells: Cells) -> bool:
    """Whether units have ids, outcomes and weights as in debias, and strata count them.

    Units of one outcome in a stratum are counted together, so this takes memory for strata alone.
    """
    sizes, pool = read_columns(connection, _SIZES)
    n_units, *known = connection.execute(_N_UNITS).fetchall()[0]
    if known != [n_units, n_units]:
        return False
    stratum, level, n, low, high = read_columns(connection, _FOUND)
    if int(n.sum()) != n_units:  # some have an outcome, a cluster or an arm that nobody counts
        return False
    counted = np.bincount(stratum, n, minlength=len(sizes))
    if not np.array_equal(counted, sizes):
        return False
    place = cells.rank[pool][stratum] * cells.n_outcomes + level
    weight = cells.matrix("debias", "weight").reshape(-1)[place]
    return bool(np.all((low == weight) & (high == weight)))
