"""How often each outcome stands in each stratum of ``units``: the one pass over a metric's column.

What units are checked for and what is estimated from them follow from the same counts, so a file of
somebody else's is read through once. Metrics are counted one after the other: each pass reads the
columns of its metric, and groups by all metrics at once would be far more. Units are grouped by a
small whole number, the *key*, where the grid has one for each value: DuckDB then finds a group by
its place in an array, in half the time of hashing outcomes. Nothing depends on the key: each group
has the least and the greatest of its outcomes, and only one in which these are one value of the
grid is sound.
"""

from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

import duckdb
import numpy as np

from flows.released.file.cells import read_columns
from flows.released.file.sql import quote_name, text
from flows.runtime.engine import ask
from schemas.arrays import Floats, Ints
from schemas.released import Metric
from schemas.tables import debiased, randomised

PLACES_BITS: Final = 18
"""DuckDB groups by place where all groups that there may be, strata times keys, have so many bits.

Each takes some 80 bytes, so this is at most 20 MB a thread.
"""

_MOST_KEYS: Final = 255  # of a byte
_NEAR: Final = 0.25  # of a whole number, so that keys do not depend on how halves are rounded
_KEPT_AS: Final = "unit_counts "
_KEEP: Final = """
    CREATE TEMP TABLE {name} AS
    SELECT s.code AS stratum, f.n, f.low, f.high
    FROM (
        SELECT _stratum, {key} AS key, count(*) AS n, min({outcome}) AS low, max({outcome}) AS high
        FROM temp.main.drawn GROUP BY 1, 2
    ) AS f
    JOIN temp.main.numbered_strata AS s ON s.stratum = f._stratum"""
_KEPT_AT: Final = "SELECT stratum, n FROM {name} WHERE low = {value!r}::DOUBLE"
_UNITS_AT: Final = """
    SELECT s.code AS stratum, u.n FROM (
        SELECT _stratum, count(*) AS n FROM temp.main.drawn
        WHERE {outcome} = {value!r}::DOUBLE GROUP BY 1
    ) AS u
    JOIN temp.main.numbered_strata AS s ON s.stratum = u._stratum"""
_COUNTED: Final = """
    SELECT c.n, {value} AS value FROM {name} AS c
    JOIN temp.main.numbered_strata AS s ON s.code = c.stratum
    JOIN temp.main.unit_facts AS f ON f._stratum = s.stratum{joined}"""
_OF_OUTPUTS: Final = """
    JOIN temp.main.weights AS o
    ON o.metric = {metric} AND o."table" = f.table{at} AND o.output = c.low"""
_EACH: Final = "SELECT 1 AS n, {column} AS value FROM main.units"
_MOMENTS: Final = """
    SELECT sum(n), sum(n * d * d), sum(n * d * d * d) FROM (
        SELECT n, value - (SELECT sum(n * value) / sum(n) FROM found) AS d FROM found
    ) HAVING min(d) < max(d)"""


@dataclass(frozen=True)
class UnitCounts:
    """A row for each group of units of one stratum and one key; all arrays have the shape [G]."""

    stratum: Ints
    n: Ints
    low: Floats
    """The least outcome of the group; NaN where no unit of it has one."""
    high: Floats

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
    name, outcome = _kept(metric), quote_name(randomised(metric))
    if not _is_kept(connection, metric):
        key = _key(grid, outcome) or outcome
        ask(connection, _KEEP.format(name=name, key=key, outcome=outcome))
        _COUNTED_ON.setdefault(connection, set()).add(metric)
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


def skewness(connection: duckdb.DuckDBPyConnection, metric: Metric, at: int) -> float:
    """Return that of the debiased outcomes of all units, √(n(n − 1))/(n − 2) m₃/m₂^{3/2}.

    By what :func:`count_units` has counted, where it has. 0 where they are alike, or no three.
    ``at`` is the outcome's place. To nine decimals: DuckDB's threads add in no order, and the
    digits beyond differ from one reading to the next.
    """
    query = _EACH.format(column=quote_name(debiased(metric.metric)))
    if _is_kept(connection, metric.metric):
        value, joined = f"c.low * f.factor{at} + f.base{at}", ""
        if metric.has_tables:
            value, joined = "o.weight", _OF_OUTPUTS.format(metric=text(metric.metric), at=at)
        query = _COUNTED.format(name=_kept(metric.metric), value=value, joined=joined)
    found = ask(connection, f"WITH found AS ({query}) {_MOMENTS}").fetchall()
    if not found or found[0][0] < 3:
        return 0.0
    n, second, third = map(float, found[0])
    skew: float = (third / n) / (second / n) ** 1.5 * (n * (n - 1.0)) ** 0.5 / (n - 2.0)
    return round(skew, 9)


def _kept(metric: str) -> str:
    """The temporary table in which :func:`count_units` keeps its counts."""
    return f"temp.main.{quote_name(_KEPT_AS + metric)}"


def _is_kept(connection: duckdb.DuckDBPyConnection, metric: str) -> bool:
    """Whether the units were counted: those of a file that was checked are."""
    return metric in _COUNTED_ON.get(connection, ())


_COUNTED_ON: Final = WeakKeyDictionary[duckdb.DuckDBPyConnection, set[str]]()
"""The metrics that were counted."""


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
