"""How often each outcome stands in each stratum of ``units``: the one pass over a metric's columns.

What units are checked for and what is estimated from them follow from the same counts, so a file of
somebody else's is read through once. Metrics are counted one after the other: each pass reads the
columns of its metric, and groups by all metrics at once would be far more. Units are grouped by a
small whole number, the *key*, where the grid has one for each value: DuckDB then finds a group by
its place in an array, in half the time of hashing outcomes. Nothing depends on the key: each group
has the least and the greatest of its outcomes, and only one in which these are one value of the
grid is sound.
"""

import math
from dataclasses import dataclass
from typing import Final

import duckdb
import numpy as np

from flows.released.file.cells import read_columns
from flows.released.file.sql import quote_name, text
from schemas.arrays import Floats, Ints
from schemas.tables import debiased, randomised

PLACES_BITS: Final = 18
"""DuckDB groups by place where all groups that there may be, strata times keys, have so many bits.

Each takes some 80 bytes, so this is at most 20 MB a thread.
"""

_MOST_KEYS: Final = 255  # of a byte
_NEAR: Final = 0.25  # of a whole number, so that keys do not depend on how halves are rounded
_KEPT_AS: Final = "unit_counts "
_KEEP: Final = """
    CREATE TEMP TABLE IF NOT EXISTS {name} AS
    SELECT s.code AS stratum, f.* EXCLUDE (cluster, arm, key)
    FROM (
        SELECT cluster, arm, {key} AS key, count(*) AS n, min({outcome}) AS low,
            max({outcome}) AS high, min({debiased}) AS low_debiased,
            max({debiased}) AS high_debiased
        FROM main.units GROUP BY 1, 2, 3
    ) AS f
    JOIN temp.main.numbered_strata AS s
    ON s.cluster = f.cluster::VARCHAR AND s.arm = f.arm::VARCHAR"""
_IS_KEPT: Final = """
    SELECT count(*) > 0 FROM duckdb_tables() WHERE database_name = 'temp' AND table_name = {name}"""
_KEPT_AT: Final = "SELECT stratum, n FROM {name} WHERE low = {value!r}::DOUBLE"
_UNITS_AT: Final = """
    SELECT s.code AS stratum, u.n FROM (
        SELECT cluster, arm, count(*) AS n FROM main.units
        WHERE {outcome} = {value!r}::DOUBLE GROUP BY 1, 2
    ) AS u
    JOIN temp.main.numbered_strata AS s
    ON s.cluster = u.cluster::VARCHAR AND s.arm = u.arm::VARCHAR"""
_THIRD: Final = """
    WITH of_all AS (
        SELECT sum({n}) AS size, sum({n} * {value}) / size AS mean FROM {rows}
        HAVING min({value}) < max({value})
    )
    SELECT any_value(size)::DOUBLE, sum(n * d * d) / any_value(size),
        sum(n * d * d * d) / any_value(size)
    FROM (SELECT {n} AS n, {value} - mean AS d, size FROM {rows}, of_all)"""


@dataclass(frozen=True)
class UnitCounts:
    """A row for each group of units of one stratum and one key; all arrays have the shape [G]."""

    stratum: Ints
    n: Ints
    low: Floats
    """The least outcome of the group; NaN where no unit of it has one."""
    high: Floats
    low_debiased: Floats
    high_debiased: Floats

    @property
    def output(self) -> Ints:
        """The outcomes, where they keep the rules and are numbers of outputs."""
        return self.low.astype(np.int64)


def count_units(connection: duckdb.DuckDBPyConnection, metric: str, grid: Floats) -> UnitCounts:
    """Count the units by stratum and outcome; units of a stratum that is not there are left out.

    ``grid`` has the values that outcomes of the ``metric`` should have, in order.
    ``numbered_strata`` is there, see :mod:`flows.released.file.cells`. The counts stay in a
    temporary table, for whoever counts them again: the file does not change while it is open.
    """
    name = _kept(metric)
    outcome, weight = quote_name(randomised(metric)), quote_name(debiased(metric))
    key = _key(grid, outcome) or outcome
    connection.execute(_KEEP.format(name=name, key=key, outcome=outcome, debiased=weight))
    # In order, so that sums are the same every time.
    return UnitCounts(*read_columns(connection, f"FROM {name} ORDER BY stratum, low, high"))


def units_at(
    connection: duckdb.DuckDBPyConnection, metric: str, outcome: float
) -> tuple[Ints, Ints]:
    """The strata that have units at one outcome, in any order, and how many each; shape [G] each.

    All keep the rules. What was counted already is looked up; else these units alone are counted.
    """
    query = _KEPT_AT if _is_kept(connection, metric) else _UNITS_AT
    column = quote_name(randomised(metric))
    filled = query.format(name=_kept(metric), outcome=column, value=float(outcome))
    stratum, n = read_columns(connection, filled)
    return stratum, n


def skewness(connection: duckdb.DuckDBPyConnection, metric: str) -> float:
    """The skewness of a metric's debiased outcomes, √(n(n − 1))/(n − 2) m₃/m₂^{3/2}.

    All keep the rules. 0 where they are alike, or less than three. Where units are counted already,
    a group of them counts as its units.
    """
    rows = {"n": "1", "value": quote_name(debiased(metric)), "rows": "main.units"}
    if _is_kept(connection, metric):
        rows = {"n": "n", "value": "low_debiased", "rows": _kept(metric)}
    ((n, second, third),) = connection.execute(_THIRD.format(**rows)).fetchall()
    if not n or n < 3 or not second or not math.isfinite(third):
        return 0.0
    return float(math.sqrt(n * (n - 1)) / (n - 2) * third / second**1.5)


def counts_by_level(
    connection: duckdb.DuckDBPyConnection,
    metric: str,
    grid: Floats,
    n_strata: int,
    n_units: int,
) -> Ints | None:
    """The units of each stratum at each value of a metric's ``grid``, shape [S, K].

    All keep the rules.

    None where this would have more cells than there are units, so that whoever wants no more than
    sums is better off without.
    """
    if n_strata * len(grid) > n_units:
        return None
    units = count_units(connection, metric, grid)
    counts = np.zeros((n_strata, len(grid)), dtype=np.int64)
    counts[units.stratum, np.searchsorted(grid, units.low)] = units.n
    return counts


def _kept(metric: str) -> str:
    return f"temp.main.{quote_name(_KEPT_AS + metric)}"


def _is_kept(connection: duckdb.DuckDBPyConnection, metric: str) -> bool:
    """Whether the units were counted: those of a file that was checked are."""
    query = _IS_KEPT.format(name=text(_KEPT_AS + metric))
    return connection.execute(query).fetchall() == [(True,)]


def _key(grid: Floats, outcome: str) -> str | None:
    """SQL for a whole number up to 255 that differs between values of the grid; None for others.

    That is the distance from the least value in units of the least gap, rounded. Other outcomes
    have some key, too, or null.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        scale = 1.0 / np.diff(grid).min()
        places = (grid - grid[0]) * scale
    is_fit = np.isfinite(scale) and places[-1] <= _MOST_KEYS
    if not is_fit or np.any(np.abs(places - np.rint(places)) > _NEAR):
        return None
    first, factor = float(grid[0]), float(scale)
    return f"TRY_CAST(({outcome} - {first!r}::DOUBLE) * {factor!r}::DOUBLE AS UTINYINT)"
