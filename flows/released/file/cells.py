"""Reading ``debias`` and ``counts``, a row a value of the grid in a (pool, arm), as matrices.

A release writes their rows metric by metric, in the order of ``pools``, then of ``outcomes``. Where
a file has kept it, a column is read as it lies there, which takes a tenth of the time of sorting.
Nothing is taken on trust: every row is compared with the row of ``pools`` and the outcome that
belong to its place, and a file in another order is sorted.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from weakref import WeakKeyDictionary

import duckdb
import numpy as np
from numpy.typing import NDArray

from flows.released.file.sql import text
from flows.runtime.engine import ask
from schemas.arrays import Floats, Ints

# Numbers of pools and of strata are their places in the order of their names, whatever those of
# strata in what is stored of units. Pools are the same for every metric.
_NUMBER: Final = """
CREATE TEMP TABLE numbered_pools AS
SELECT row_number() OVER () - 1 AS code, * FROM (
    SELECT rowid AS place, pool, arm FROM main.pools WHERE metric = (
        SELECT metric FROM main.metrics WHERE kind = 'outcome' ORDER BY rowid LIMIT 1
    ) ORDER BY pool, arm
);
CREATE TEMP TABLE numbered_strata AS
SELECT row_number() OVER () - 1 AS code, * FROM (
    SELECT s.*, {stratum} AS stratum FROM main.strata AS s {joined} ORDER BY s.cluster, s.arm
);
"""
_OWN_STRATA: Final = {"stratum": "s.rowid::UINTEGER", "joined": ""}
_STRATA: Final = {
    "stratum": "f._stratum",
    "joined": """LEFT JOIN temp.main.unit_facts AS f
    ON f.cluster::VARCHAR = s.cluster AND f.arm::VARCHAR = s.arm""",
}
_PLACES: Final = """
    SELECT p.rowid AS place FROM main.pools AS p
    JOIN temp.main.numbered_pools AS n ON n.pool = p.pool AND n.arm = p.arm
    WHERE p.metric = {metric} ORDER BY n.code"""
_OWN_PLACES: Final = "SELECT place FROM temp.main.numbered_pools ORDER BY code"
_BLOCK: Final = """
    SELECT coalesce(min(rowid), 0), coalesce(max(rowid) + 1, 0), count(*)
    FROM main.{table} WHERE metric = {metric}"""
_IN_ORDER: Final = """
    SELECT (
            SELECT list(outcome ORDER BY rowid) = list(outcome ORDER BY outcome)
            FROM main.outcomes WHERE metric = {metric}
        )
        AND count(*) = {size}
        AND count(*) = (SELECT count(*) FROM main.pools WHERE metric = {metric}) * {n_outcomes}
        AND coalesce(bool_and(coalesce(
            t.metric = {metric} AND t.pool = p.pool AND t.arm = p.arm AND t.outcome = o.outcome,
            false
        )), true)
    FROM main.{table} AS t
    JOIN (
        SELECT rowid - {first_pool} AS place, metric, pool, arm FROM main.pools
        WHERE metric = {metric}
    ) AS p ON p.place = (t.rowid - {first}) // {n_outcomes}
    JOIN (
        SELECT rowid - {first_outcome} AS place, outcome FROM main.outcomes
        WHERE metric = {metric}
    ) AS o ON o.place = (t.rowid - {first}) % {n_outcomes}
    WHERE t.rowid >= {first} AND t.rowid < {end}"""
_AS_IT_LIES: Final = """
    SELECT {column}::DOUBLE AS value FROM main.{table} WHERE rowid >= {first} AND rowid < {end}"""
_SORTED: Final = """
    SELECT t.{column}::DOUBLE AS value FROM main.{table} AS t
    JOIN main.pools AS p ON p.metric = t.metric AND p.pool = t.pool AND p.arm = t.arm
    WHERE t.metric = {metric}
    ORDER BY p.rowid, t.outcome"""
_CHANCES: Final = """
    SELECT probability AS value FROM main.randomiser WHERE metric = {metric}
    ORDER BY "table", outcome, other_outcome, output"""
_OUTPUTS: Final = """
    SELECT min(probability) AS probability, min(weight) AS weight, min(noise_variance) AS noise,
        count(probability) = count(*) AND max(probability) = min(probability)
            AND max(weight) = min(weight) AND max(noise_variance) = min(noise_variance) AS is_one
    FROM main.debias WHERE metric = {metric}
    GROUP BY "table", outcome ORDER BY "table", outcome"""
_TABLE_OF: Final = """
    SELECT "table" AS value FROM main.pools WHERE metric = {metric} ORDER BY rowid"""
_GRID: Final = "SELECT outcome FROM main.outcomes WHERE metric = {metric} ORDER BY 1"
_N_OTHERS: Final = """
    SELECT count(DISTINCT other_outcome) FROM main.randomiser WHERE metric = {metric}"""


@dataclass(frozen=True)
class _Block:
    """The rows of a metric in a table, from the place ``first`` up to ``end``.

    They are fewer than these places where other metrics' rows stand between.
    """

    first: int
    end: int
    size: int


@dataclass
class _Layout:
    """Where a metric's rows are in each table, whether in order, and in which order its pools."""

    blocks: dict[str, _Block] = field(default_factory=dict)
    is_in_order: dict[str, bool] = field(default_factory=dict)
    rank: Ints | None = None
    grid: Floats | None = None


_LAYOUTS: Final = WeakKeyDictionary[duckdb.DuckDBPyConnection, dict[str, _Layout]]()
"""What was found of files that are open, which do not change while they are; by metric."""


def number(connection: duckdb.DuckDBPyConnection, *, is_ours: bool = False) -> dict[str, _Layout]:
    """Number the pools and strata of a release, once, and return what is known of its rows.

    The connection gets the temporary tables ``numbered_pools`` and ``numbered_strata``, the same
    for every metric. What units call a stratum is its place in the table, where the file
    ``is_ours``.
    """
    known = _LAYOUTS.get(connection)
    if known is None:
        ask(connection, _NUMBER.format(**(_OWN_STRATA if is_ours else _STRATA)))
        known = _LAYOUTS[connection] = {}
    return known


class Cells:
    """The pools and strata of a release, numbered, and a metric's rows for each outcome."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        metric: str,
        *,
        is_ours: bool = False,
    ) -> None:
        """Number the pools and strata of the release that is the connection's current schema.

        ``metric`` is the outcome whose rows are read. ``is_ours`` says that this run has written
        the tables, so that their order is known.
        """
        self._connection = connection
        self._metric = metric
        self._is_ours = is_ours
        self._layout = number(connection, is_ours=is_ours).setdefault(metric, _Layout())
        self._matrices: dict[tuple[str, str], Floats] = {}

    def is_in_order(self, table: str) -> bool:
        """Whether ``table`` has a row for every pool, arm and outcome, in that order, and no other.

        That is, of the metric, whose rows stand together: of ``pools`` as they lie in the file,
        then of outcomes from the least to the greatest. If pools and outcomes stand there once
        themselves, each pair of them is there once: as many rows as there are pairs have places of
        their own among the pairs, and are about the pair of their place.
        """
        known = self._layout.is_in_order
        if table not in known and not self._is_ours:
            query = self._filled(
                _IN_ORDER,
                table,
                # Numbers rather than queries within: DuckDB then joins by hashing.
                size=self._block(table).size,
                n_outcomes=self.n_outcomes,
                first_pool=self._block("pools").first,
                first_outcome=self._block("outcomes").first,
            )
            known[table] = ask(self._connection, query).fetchall() == [(True,)]
        return self._is_ours or known[table]

    def matrix(self, table: str, column: str) -> Floats:
        """A column of ``table``: a row for each pool and arm as they lie in the file, shape [P, K].

        The columns are the values of the metric's grid, in order. Where no row is in the table, all
        are 0. The ``table`` has each once in every pool and arm, or no row, which callers have
        checked or have written themselves. It is read once.
        """
        if (table, column) not in self._matrices:
            query = _AS_IT_LIES if self.is_in_order(table) else _SORTED
            (cells,) = read_columns(self._connection, self._filled(query, table, column=column))
            shape = (len(self.rank), self.n_outcomes)
            self._matrices[table, column] = cells.reshape(shape) if len(cells) else np.zeros(shape)
        return self._matrices[table, column]

    @cached_property
    def chances(self) -> Floats:
        """``randomiser``: Q of every table of :attr:`table_of`, shape [T, K, J].

        [T, K L, J] where the L values of another outcome matter as well.
        """
        (cells,) = read_columns(self._connection, self._filled(_CHANCES, "randomiser"))
        return cells.reshape(-1, self.n_outcomes * self.n_others, self.n_outputs)

    @cached_property
    def outputs(self) -> tuple[Floats, Floats, Floats, bool]:
        """What ``debias`` says of outputs: ``probability``, ``weight``, ``noise_variance``.

        Shape [T, J] each. A table stands there once a pool that uses it: the last value says
        whether with the same numbers every time.
        """
        *numbers, is_one = read_columns(self._connection, self._filled(_OUTPUTS, "debias"))
        likely, weight, noise = (one.reshape(-1, self.n_outputs) for one in numbers)
        return likely, weight, noise, bool(is_one.all())

    @cached_property
    def n_outputs(self) -> int:
        """J, the outputs of each pool and arm in ``debias``."""
        return self._block("debias").size // max(self._block("pools").size, 1)

    @cached_property
    def n_others(self) -> int:
        """L, the values of the outcome that was drawn together with this one; 1 without."""
        query = _N_OTHERS.format(metric=text(self._metric))
        return max(int(ask(self._connection, query).fetchall()[0][0]), 1)

    @cached_property
    def table_of(self) -> Ints:
        """The number of each pool's response table, shape [P], in the order of pools."""
        (tables,) = read_columns(self._connection, _TABLE_OF.format(metric=text(self._metric)))
        return tables.astype(np.int64)

    @property
    def grid(self) -> Floats:
        """The values of the metric's grid, in order, shape [K]."""
        if self._layout.grid is None:
            query = _GRID.format(metric=text(self._metric))
            (self._layout.grid,) = read_columns(self._connection, query)
        return self._layout.grid

    @property
    def n_outcomes(self) -> int:
        """K, the values of the grid."""
        return self._block("outcomes").size

    @property
    def rank(self) -> Ints:
        """The row of :meth:`matrix` for each numbered (pool, arm), shape [P].

        It is the same for all metrics of a file that this run has written.
        """
        if self._layout.rank is None:
            query = _OWN_PLACES if self._is_ours else self._filled(_PLACES, "pools")
            (places,) = read_columns(self._connection, query)
            self._layout.rank = np.argsort(np.argsort(places))
        return self._layout.rank

    def _block(self, table: str) -> _Block:
        """Where the metric's rows are."""
        blocks = self._layout.blocks
        if table not in blocks:
            query = _BLOCK.format(table=table, metric=text(self._metric))
            blocks[table] = _Block(*map(int, ask(self._connection, query).fetchall()[0]))
        return blocks[table]

    def _filled(self, query: str, table: str, **parts: object) -> str:
        block = self._block(table)
        return query.format(
            table=table, metric=text(self._metric), first=block.first, end=block.end, **parts
        )


def read_columns(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[NDArray[Any], ...]:
    """The columns of a query's result, which are numbers and have names of their own.

    What is null is NaN, so that nothing that is compared with it holds. By DuckDB alone: Arrow and
    polars take longer to import than a small file to check.
    """
    columns: dict[str, Any] = ask(connection, query).fetchnumpy()
    return tuple(
        np.where(column.mask, np.nan, column.data)
        if np.any(getattr(column, "mask", False))
        else np.asarray(column)
        for column in columns.values()
    )
