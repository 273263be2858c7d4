"""What outputs of response tables stand for, read from a released file: ``randomiser``, ``debias``.

A table is undone once, however many pools share it. Queries over units
find what a unit's output adds to noise and squares in the temporary table ``output_functions``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import polars as pl

from estimators.response.response_tables import OutputFunctions, output_functions, spread, undo
from flows.released.file.cells import Cells
from flows.released.file.sql import quote_name, text
from flows.released.file.unit_counts import UnitCounts, count_units
from flows.released.file.units import DRAWN, FACTS, SESSION
from schemas.arrays import Floats, Ints
from schemas.tables import STRATUM, debiased, randomised

FUNCTIONS = ("noise", "square", "square_noise")
"""What an output adds, besides its weight; columns of ``output_functions``."""

_MAKE = """
CREATE TEMP TABLE IF NOT EXISTS output_functions (
    metric VARCHAR, "table" BIGINT, output DOUBLE,
    weight DOUBLE, noise DOUBLE, square DOUBLE, square_noise DOUBLE
)"""
_KEEP = """
INSERT INTO temp.main.output_functions SELECT $metric, * FROM functions_to_keep
WHERE $metric NOT IN (SELECT metric FROM temp.main.output_functions)"""
_JOINED = """ LEFT JOIN {outputs} AS o{at} ON o{at}.metric = {metric}
    AND o{at}."table" = f.table{at} AND o{at}.output = u.{column}"""


@dataclass(frozen=True)
class Outputs:
    """The response tables of a metric, T of them with J outputs each."""

    functions: OutputFunctions
    weights: Floats
    """What outputs count as, shape [T, J]."""
    table_of: Ints
    """The table of each numbered (pool, arm), shape [P]."""
    probabilities: Floats
    """Q(j|x), shape [T, K, J]; [T, K L, J] for pairs with one of L values of another outcome."""
    likely: Floats
    """How likely outputs were thought to be, shape [T, J]."""
    n_others: int = 1
    """L; 1 for an outcome that was drawn by itself."""

    @property
    def n_outputs(self) -> int:
        """J."""
        return int(self.functions.mean.shape[1])

    def count(self, connection: duckdb.DuckDBPyConnection, metric: str) -> UnitCounts:
        """Count the units of the ``metric`` by stratum and output; all keep the rules."""
        return count_units(connection, metric, np.arange(self.n_outputs, dtype=np.float64))

    def indicator(self, outcome: int) -> tuple[Floats, Floats]:
        """Return what an output says of an outcome's indicator, and its noise: [T, J] each.

        Means over units are unbiased for the share of the outcome, and for n times the variance
        that the response adds to it. ``outcome`` is its place in the grid.
        """
        wanted = np.zeros(self.probabilities.shape[:2])
        wanted[:, outcome * self.n_others : (outcome + 1) * self.n_others] = 1.0
        told = undo(self.probabilities, wanted, self.likely)
        return told, undo(self.probabilities, spread(self.probabilities, told), self.likely)

    @property
    def columns(self) -> dict[str, Floats | Ints]:
        """A row for each table and output: what it counts as, and adds."""
        size, j = self.functions.mean.shape
        return {
            "table": np.repeat(np.arange(size), j),
            "output": np.tile(np.arange(j, dtype=np.float64), size),
            "weight": self.weights.ravel(),
            **{name: getattr(self.functions, name).ravel() for name in FUNCTIONS},
        }

    def frame(self, metric: str) -> pl.DataFrame:
        """:attr:`columns` of the ``metric``."""
        return pl.DataFrame(self.columns).select(pl.lit(metric).alias("metric"), pl.all())


def read_outputs(cells: Cells, grid: Floats) -> Outputs:
    """Read the tables of a metric, whose rows keep their rules, and undo them.

    Where another outcome was drawn together with it, they are of pairs of values.
    """
    likely, weight, *_ = cells.outputs
    functions = output_functions(cells.chances, weight, np.repeat(grid, cells.n_others), likely)
    table_of = cells.table_of[cells.rank]
    return Outputs(functions, weight, table_of, cells.chances, likely, cells.n_others)


def keep_functions(connection: duckdb.DuckDBPyConnection, metric: str, outputs: Outputs) -> None:
    """Put what a metric's outputs add into the temporary table, once; by DuckDB alone, as above."""
    connection.execute(_MAKE)
    connection.register("functions_to_keep", outputs.columns)
    connection.execute(_KEEP, {"metric": metric})
    connection.unregister("functions_to_keep")


def units_of_outcomes(
    by_tables: Sequence[str],
    drawn: str = SESSION[DRAWN],
    facts: str = SESSION[FACTS],
    outputs: str = "temp.main.output_functions",
) -> str:
    """SQL for the units with cluster and arm, as far as the facts ``drawn`` have them.

    Of the metrics ``by_tables`` also what their outputs count as, and add: the debiased outcome,
    ``noise of 0``, ``square of 0`` and so on, by places among the metrics. The rest is SQL for
    tables.
    """
    columns = [f"u.* EXCLUDE ({STRATUM})", 'f."cluster"', "f.arm"]
    joined = f"JOIN {facts} AS f ON f.{STRATUM} = u.{STRATUM}"
    for at, metric in enumerate(by_tables):
        columns.append(f"o{at}.weight AS {quote_name(debiased(metric))}")
        columns += [f"o{at}.{one} AS {quote_name(function_column(one, at))}" for one in FUNCTIONS]
        joined += _JOINED.format(
            at=at, outputs=outputs, metric=text(metric), column=quote_name(randomised(metric))
        )
    return f"(SELECT {', '.join(columns)} FROM {drawn} AS u {joined})"  # noqa: S608 - our own names


def function_column(name: str, at: int) -> str:
    """The column of :func:`units_of_outcomes` for one of :data:`FUNCTIONS` of a metric."""
    return f"{name} of {at}"
