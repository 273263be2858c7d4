"""What outputs of response tables stand for, read from a released file: ``randomiser``, ``debias``.

Pools that share a table are told by its numbers, and a table is undone once. Queries over units
find what a unit's output adds to noise and squares in the temporary table ``output_functions``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import polars as pl

from estimators.response.response_tables import OutputFunctions, output_functions, spread, undo
from estimators.strata.output_moments import OutputMoments, moments_of_outputs
from flows.released.file.cells import Cells
from flows.released.file.sql import quote_name, text
from flows.released.file.unit_counts import read_output_counts
from schemas.arrays import Floats, Ints

FUNCTIONS = ("noise", "square", "square_noise")
"""What an output adds, besides its value; columns of ``output_functions``."""

_MAKE = """
CREATE TEMP TABLE IF NOT EXISTS output_functions (
    metric VARCHAR, pool VARCHAR, arm VARCHAR, output DOUBLE,
    noise DOUBLE, square DOUBLE, square_noise DOUBLE
)"""
_KNOWN = "SELECT count(*) FROM temp.main.output_functions WHERE metric = $metric"
_JOINED = """LEFT JOIN {outputs} AS o{at}
    ON o{at}.metric = {metric} AND o{at}.pool = s.pool AND o{at}.arm = s.arm
    AND o{at}.output = u.{column}"""
_FROM = """(
    SELECT u.*, {columns} FROM {units} AS u
    JOIN {strata} AS s ON s.cluster = u.cluster::VARCHAR AND s.arm = u.arm::VARCHAR
    {joined}
)"""


@dataclass(frozen=True)
class Outputs:
    """The response tables of a metric, T of them with J outputs each."""

    functions: OutputFunctions
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

    def indicators(self) -> tuple[Floats, Floats]:
        """Return what an output says of each outcome's indicator, and its noise: [T, K, J] each.

        Means over units are unbiased for the share of the outcome, and for n times the variance
        that the response adds to it.
        """
        n_tables, n_inputs, j = self.probabilities.shape
        k = n_inputs // self.n_others
        told, noise = np.empty((n_tables, k, j)), np.empty((n_tables, k, j))
        for outcome in range(k):
            wanted = np.zeros((n_tables, n_inputs))
            wanted[:, outcome * self.n_others : (outcome + 1) * self.n_others] = 1.0
            told[:, outcome] = undo(self.probabilities, wanted, self.likely)
            apart = spread(self.probabilities, told[:, outcome])
            noise[:, outcome] = undo(self.probabilities, apart, self.likely)
        return told, noise

    def frame(self, metric: str, pool_names: pl.DataFrame) -> pl.DataFrame:
        """A row for each pool, arm and output; ``pool_names`` has ``pool`` and ``arm`` of each."""
        size, j = len(self.table_of), self.n_outputs
        place = np.repeat(np.arange(size), j)
        return pool_names[place].select(
            pl.lit(metric).alias("metric"),
            "pool",
            "arm",
            pl.Series("output", np.tile(np.arange(j, dtype=np.float64), size)),
            *(
                pl.Series(name, getattr(self.functions, name)[self.table_of].ravel())
                for name in FUNCTIONS
            ),
        )


def read_outputs(cells: Cells, grid: Floats) -> Outputs:
    """Read the tables of a metric, whose rows keep their rules, and undo them.

    Where another outcome was drawn together with it, they are of pairs of values.
    """
    n_outputs, inputs = cells.n_outputs, np.repeat(grid, cells.n_others)
    matrix = cells.matrix("randomiser", "probability")[cells.rank]
    weight, likely = (
        cells.matrix("debias", name)[cells.rank] for name in ("weight", "probability")
    )
    # Equal numbers are one table, however many pools have it.
    _, first, table_of = np.unique(
        np.column_stack([matrix, weight, likely]), axis=0, return_index=True, return_inverse=True
    )
    probabilities = matrix[first].reshape(len(first), len(inputs), n_outputs)
    functions = output_functions(probabilities, weight[first], inputs, likely[first])
    return Outputs(functions, table_of.reshape(-1), probabilities, likely[first], cells.n_others)


def keep_functions(
    connection: duckdb.DuckDBPyConnection, metric: str, outputs: Outputs, pool_names: pl.DataFrame
) -> None:
    """Put what a metric's outputs add into the temporary table, once."""
    connection.execute(_MAKE)
    if connection.execute(_KNOWN, {"metric": metric}).fetchall() != [(0,)]:
        return
    connection.register("functions_to_keep", outputs.frame(metric, pool_names).to_arrow())
    connection.execute("INSERT INTO temp.main.output_functions FROM functions_to_keep")
    connection.unregister("functions_to_keep")


def whole_moments(
    connection: duckdb.DuckDBPyConnection, metric: str, outputs: Outputs, pool_code: Ints
) -> OutputMoments:
    """Read the moments of the numbered strata; ``pool_code`` has the pool of each, shape [S]."""
    found = read_output_counts(connection, metric, outputs.n_outputs)
    table = outputs.table_of[pool_code[found.stratum]]
    return moments_of_outputs(
        outputs.functions, table, found.output, found.stratum, found.n, len(pool_code)
    )


def units_with_functions(
    metrics: Sequence[str],
    units: str = "main.units",
    strata: str = "main.strata",
    outputs: str = "temp.main.output_functions",
) -> str:
    """SQL for the units with what their outputs add: ``noise of 0``, ``square of 0`` and so on.

    The numbers are places among the ``metrics``. The rest is SQL for the tables that are joined.
    """
    columns = ", ".join(
        f"o{at}.{name} AS {quote_name(function_column(name, at))}"
        for at in range(len(metrics))
        for name in FUNCTIONS
    )
    joined = "\n    ".join(
        _JOINED.format(at=at, outputs=outputs, metric=text(metric), column=quote_name(metric))
        for at, metric in enumerate(metrics)
    )
    return _FROM.format(columns=columns, units=units, strata=strata, joined=joined)


def function_column(name: str, at: int) -> str:
    """The column of :func:`units_with_functions` for one of :data:`FUNCTIONS` of a metric."""
    return f"{name} of {at}"
