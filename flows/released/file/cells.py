"""Reading ``debias`` and ``counts``, a row a value of the grid in a (pool, arm), as matrices.

A release writes their rows in the order of ``pools``, then of ``outcomes``. Where a file has kept
it, a column is read as it lies there, which takes a tenth of the time of sorting. Nothing is taken
on trust: every row is compared with the row of ``pools`` and the outcome that belong to its place,
and a file in another order is sorted.
"""

from functools import cached_property
from typing import Any, Final

import duckdb
import numpy as np
from numpy.typing import NDArray

from schemas.arrays import Floats, Ints

# Numbers of pools and of strata are their places in the order of their names.
_NUMBER: Final = """
CREATE TEMP TABLE IF NOT EXISTS numbered_pools AS
SELECT row_number() OVER (ORDER BY pool, arm) - 1 AS code, rowid AS place, pool, arm
FROM main.pools;
CREATE TEMP TABLE IF NOT EXISTS numbered_strata AS
SELECT row_number() OVER (ORDER BY cluster, arm) - 1 AS code, cluster, arm, pool, n_units
FROM main.strata;
CREATE TEMP TABLE IF NOT EXISTS orders (name VARCHAR, is_kept BOOLEAN);
"""
_PLACES: Final = "SELECT place FROM temp.main.numbered_pools ORDER BY code"
_N_OUTCOMES: Final = "SELECT count(*) FROM main.outcomes"
_KNOWN_ORDER: Final = "SELECT is_kept FROM temp.main.orders WHERE name = $table"
_KEEP_ORDER: Final = "INSERT INTO temp.main.orders VALUES ($table, $is_kept)"
_IN_ORDER: Final = """
    SELECT (SELECT list(outcome ORDER BY rowid) = list(outcome ORDER BY outcome) FROM main.outcomes)
        AND count(*) = (SELECT count(*) FROM main.{table})
        AND count(*) = (SELECT count(*) FROM main.pools) * {n_outcomes}
        AND coalesce(bool_and(coalesce(
            t.pool = p.pool AND t.arm = p.arm AND t.outcome = o.outcome, false
        )), true)
    FROM main.{table} AS t
    JOIN main.pools AS p ON p.rowid = t.rowid // {n_outcomes}
    JOIN main.outcomes AS o ON o.rowid = t.rowid % {n_outcomes}"""
_AS_IT_LIES: Final = "SELECT {column}::DOUBLE AS value FROM main.{table}"
_SORTED: Final = """
    SELECT t.{column}::DOUBLE AS value FROM main.{table} AS t
    JOIN main.pools AS p ON p.pool = t.pool AND p.arm = t.arm
    ORDER BY p.rowid, t.outcome"""
_OF_CELLS: Final = ("debias", "counts")


class Cells:
    """The pools and strata of a release, numbered, and the tables with a row for each outcome."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, *, is_ours: bool = False) -> None:
        """Number the pools and strata of the release that is the connection's current schema.

        ``is_ours`` says that this run has written the tables, so that their order is known.
        The connection gets temporary tables: ``numbered_pools``, ``numbered_strata``, and
        ``orders``, for what was found of the order of rows. The file is open for reading alone.
        """
        self._connection = connection
        self._orders = dict.fromkeys(_OF_CELLS, True) if is_ours else {}
        connection.execute(_NUMBER)

    def is_in_order(self, table: str) -> bool:
        """Whether ``table`` has a row for every pool, arm and outcome, in that order, and no other.

        That is, of ``pools`` as they lie in the file, then of outcomes from the least to the
        greatest. If pools and outcomes stand there once themselves, each pair of them is there
        once: as many rows as there are pairs have places of their own among the pairs, and are
        about the pair of their place.
        """
        if table not in self._orders:
            self._orders[table] = self._find_order(table)
        return self._orders[table]

    def _find_order(self, table: str) -> bool:
        known = self._connection.execute(_KNOWN_ORDER, {"table": table}).fetchall()
        if known:
            return bool(known[0][0])
        # A number rather than a query within: DuckDB then joins by hashing.
        query = _IN_ORDER.format(table=table, n_outcomes=self.n_outcomes)
        found = self._connection.execute(query).fetchall() == [(True,)]
        self._connection.execute(_KEEP_ORDER, {"table": table, "is_kept": found})
        return found

    def matrix(self, table: str, column: str) -> Floats:
        """A column of ``table``: a row for each of ``pools`` as they lie in the file, shape [P, K].

        The columns are the values of the grid, in order. Where no row is in the table, all are 0.
        The ``table`` has each outcome once in every pool and arm, or no row, which callers have
        checked or have written themselves.
        """
        query = _AS_IT_LIES if self.is_in_order(table) else _SORTED
        (found,) = read_columns(self._connection, query.format(table=table, column=column))
        shape = (len(self.rank), self.n_outcomes)
        return found.reshape(shape) if len(found) else np.zeros(shape)

    @cached_property
    def n_outcomes(self) -> int:
        """K, the values of the grid."""
        return int(self._connection.execute(_N_OUTCOMES).fetchall()[0][0])

    @cached_property
    def rank(self) -> Ints:
        """The row of :meth:`matrix` for each numbered (pool, arm), shape [P]."""
        (places,) = read_columns(self._connection, _PLACES)
        return np.argsort(np.argsort(places))


def read_columns(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[NDArray[Any], ...]:
    """The columns of a query's result, which are numbers and have names of their own; null is NaN.

    By DuckDB alone: Arrow and polars take longer to import than a small file to check.
    """
    return tuple(map(_with_nan, connection.sql(query).fetchnumpy().values()))


def _with_nan(column: NDArray[Any]) -> NDArray[Any]:
    """A column whose missing numbers are NaN, so that nothing that is compared with them holds."""
    is_missing = np.ma.getmaskarray(column)
    found: NDArray[Any] = np.ma.getdata(column)
    return np.where(is_missing, np.nan, found) if is_missing.any() else found
