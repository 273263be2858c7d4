"""Reading which units were assigned together: sums over the parties of each slice.

Units are grouped by DuckDB. Parties that lie in one slice, most of them, come as sums of the slice;
only those in several slices, and those in clusters that are merged with others, come one by one
(:mod:`estimators.strata.assigned`).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import duckdb
import numpy as np
import polars as pl

from estimators.strata.contrast_strata import are_small
from estimators.strata.evidence import Slices
from estimators.strata.parties import Nested, Parties
from flows.released.file.sql import quote_name
from schemas.arrays import Floats

OF_STRATA: Final = "SELECT 0 AS slice_group, cluster, arm, {columns} FROM main.units"
"""Every unit with its place, which is a cluster."""
OF_POOLS: Final = """
    SELECT 0 AS slice_group, s.pool AS cluster, u.arm, {columns}
    FROM main.units AS u
    JOIN main.strata AS s ON s.cluster = u.cluster::VARCHAR AND s.arm = u.arm::VARCHAR"""
"""Every unit with its place, which is a pool of clusters."""

# D is 0 where it differs from 0 by rounding alone; a party that is the whole slice has D = 0.
_CELLS: Final = """
CREATE OR REPLACE TEMP TABLE assigned_cells AS
SELECT code, slice_group, arm, party, m, m / n AS h,
    {deviations},
    count(*) OVER (PARTITION BY slice_group, arm, party) > 1 AS is_listed
FROM (
    SELECT slice_group, cluster, arm, assigned_to AS party, count(*)::DOUBLE AS m, {totals}
    FROM ({units}) GROUP BY ALL
) AS g
JOIN assigned_slices AS s
ON s.s_group = g.slice_group AND s.s_cluster = g.cluster::VARCHAR AND s.s_arm = g.arm::VARCHAR
"""
_DEVIATION: Final = """CASE WHEN m >= n OR abs(total_{at} - m * mean_{at})
    < 1e-12 * m * abs(mean_{at}) THEN 0 ELSE total_{at} - m * mean_{at} END AS d_{at}"""
_N_PARTIES: Final = "SELECT code, count(*)::DOUBLE AS n FROM temp.main.assigned_cells GROUP BY code"
_LIST: Final = """
UPDATE temp.main.assigned_cells SET is_listed = true WHERE list_contains($codes, code)
"""
_NESTED: Final = """
SELECT code, count(*)::DOUBLE AS n_parties, sum(m) AS n_units, {products},
    sum(m * m) AS second, sum(m * m / less) AS second_less, sum(m * m * m / less) AS third_less,
    sum(m * m * m * m / less) AS fourth_less
FROM (
    SELECT *, CASE WHEN h < 1 THEN 1 - h ELSE 1 END AS more, 2 - more AS less
    FROM temp.main.assigned_cells
)
WHERE NOT is_listed GROUP BY code
"""
_LISTED: Final = """
SELECT code, dense_rank() OVER (ORDER BY slice_group, arm, party) - 1 AS party, m, {deviations}
FROM temp.main.assigned_cells WHERE is_listed ORDER BY 2, 1
"""


Outcome = tuple[str, float, float]
"""The column of outcomes in units, the middle of their grid, and λ."""


def read_parties(
    connection: duckdb.DuckDBPyConnection,
    slices: Slices,
    names: pl.DataFrame,
    same_shares: bool,
    outcome: Outcome,
    units: str,
) -> Parties:
    """Read the parties of the units in ``slices``.

    ``names`` has the ``cluster`` and ``arm`` of each slice, as text. ``units`` is a query for every
    unit with its place (:data:`OF_STRATA`); where ``same_shares``, small clusters are merged.
    """
    _make_cells(connection, (slices,), names, same_shares, (outcome,), units)
    factor = 1.0 / (1.0 - outcome[2])
    products = "sum(d_0 * d_0 / more) AS products"
    nested = _columns(connection, _NESTED.format(products=products))
    listed = _columns(connection, _LISTED.format(deviations="d_0"))
    connection.execute("DROP TABLE temp.main.assigned_cells")
    sums = {name: np.zeros(len(slices.group)) for name in Nested.__dataclass_fields__}
    for name, values in sums.items():
        values[nested["code"].astype(np.int64)] = nested[name]
    sums["products"] *= factor**2
    return Parties(
        slice=listed["code"].astype(np.int64),
        party=listed["party"].astype(np.int64),
        n_units=listed["m"],
        deviation=listed["d_0"] * factor,
        nested=Nested(**sums),
    )


def read_products(
    connection: duckdb.DuckDBPyConnection,
    slices: tuple[Slices, Slices],
    names: pl.DataFrame,
    same_shares: bool,
    outcomes: tuple[Outcome, Outcome],
    units: str,
) -> Floats:
    """Read Σ D_N D_D/(1 − h) of two outcomes, over the parties that :func:`read_parties` sums up.

    ``slices`` are the same ones, by both outcomes. The result has the shape [R].
    """
    _make_cells(connection, slices, names, same_shares, outcomes, units)
    nested = _columns(connection, _NESTED.format(products="sum(d_0 * d_1 / more) AS products"))
    connection.execute("DROP TABLE temp.main.assigned_cells")
    products = np.zeros(len(slices[0].group))
    products[nested["code"].astype(np.int64)] = nested["products"]
    products /= (1.0 - outcomes[0][2]) * (1.0 - outcomes[1][2])
    return products


def _make_cells(
    connection: duckdb.DuckDBPyConnection,
    slices: Sequence[Slices],
    names: pl.DataFrame,
    same_shares: bool,
    outcomes: Sequence[Outcome],
    units: str,
) -> None:
    """Make the temporary table ``assigned_cells``, with D of every outcome; slices of each."""
    first = slices[0]
    connection.register(
        "assigned_slices",
        names.select(
            pl.Series("code", np.arange(len(first.group))),
            pl.Series("s_group", first.group),
            pl.col("cluster").alias("s_cluster"),
            pl.col("arm").alias("s_arm"),
            pl.Series("n", first.n_units),
            *(pl.Series(f"mean_{at}", of.mean) for at, of in enumerate(slices)),
        ).to_arrow(),
    )
    places = range(len(outcomes))
    columns = (
        f"{quote_name(column)} - {center!r}::DOUBLE AS d_{at}"
        for at, (column, center, _) in enumerate(outcomes)
    )
    connection.execute(
        _CELLS.format(
            deviations=", ".join(_DEVIATION.format(at=at) for at in places),
            totals=", ".join(f"sum(d_{at}) AS total_{at}" for at in places),
            units=units.format(columns=", ".join(("assigned_to", *columns))),
        )
    )
    connection.unregister("assigned_slices")
    if same_shares:
        counts, n_parties = _columns(connection, _N_PARTIES), np.zeros(len(first.group))
        n_parties[counts["code"].astype(np.int64)] = counts["n"]
        merged = np.flatnonzero(are_small(replace(first, n_parties=n_parties)))
        connection.execute(_LIST, {"codes": merged.tolist()})


def _columns(connection: duckdb.DuckDBPyConnection, query: str) -> dict[str, Floats]:
    columns = connection.sql(query).fetchnumpy()
    return {name: np.ma.getdata(column) for name, column in columns.items()}
