"""What a release teaches later nights: how many units of each arm have each output, by tables.

Of the clusters of most units it is told apart, so that later nights have guesses for each of them.
"""

from collections.abc import Mapping
from typing import Any

import duckdb
import numpy as np

from estimators.published_guess import MOST_CELLS, MOST_CLUSTERS
from flows.released.file.cells import Cells, read_columns
from flows.released.file.unit_counts import count_units
from schemas.arrays import Bools, Ints
from schemas.errors import InputError
from schemas.released import ALL, Manifest, Metric

MOST_TABLES = 64
"""An outcome with more tables, or priors, teaches nothing: each night they would be read again.

Nor does one that would write down more than :data:`MOST_CELLS` of their probabilities.
"""

_FIRST = 64 * MOST_TABLES
"""Priors that are looked at first: of so many, some hundreds differ wherever there is noise."""

_POOL = """
    SELECT p.code AS pool FROM temp.main.numbered_strata AS s
    JOIN temp.main.numbered_pools AS p ON p.pool = s.pool AND p.arm = s.arm ORDER BY s.code"""
_STRATA = 'SELECT "cluster", arm, n_units FROM temp.main.numbered_strata ORDER BY code'


def read_outputs(
    connection: duckdb.DuckDBPyConnection,
    manifest: Manifest,
    known: Mapping[str, Cells] | None = None,
) -> list[dict[str, Any]]:
    """Count the units of each outcome by arm, table and output, from a release that is open.

    A row for each metric, arm and table: ``metric arm table outcomes probabilities counts`` and
    ``clusters counts_within``, where the probabilities of outputs stand one outcome after the
    other, and the counts within clusters one cluster after the other. Of randomised response
    outputs are the outcomes themselves, and a table is a prior. None of an outcome without units,
    or one that was drawn together with another. What was read already is ``known``, by metric.
    Raises InputError where tables do not fit together.
    """
    cells = known or {one.metric: Cells(connection, one.metric) for one in manifest.outcomes}
    try:
        return [
            row
            for metric in manifest.outcomes
            if metric.has_units and metric.drawn_with is None
            for row in _of_metric(connection, metric, cells[metric.metric])
        ]
    except (ValueError, IndexError):
        pass
    raise InputError(f"{manifest.release_id}: not a sound release: its tables do not fit together")


def _of_metric(
    connection: duckdb.DuckDBPyConnection, metric: Metric, cells: Cells
) -> list[dict[str, Any]]:
    grid = cells.grid
    levels, rate = grid, metric.resampling_probability
    if rate is None:
        tables, table_of = cells.chances, cells.table_of[cells.rank]
        levels = np.arange(cells.n_outputs, dtype=np.float64)
    else:
        priors, rank = cells.matrix("debias", "probability"), cells.rank
        if len(np.unique(priors[rank[:_FIRST]], axis=0)) > MOST_TABLES:  # all take seconds
            return []
        priors, table_of = np.unique(priors[rank], axis=0, return_inverse=True)
        tables = rate * priors[:, np.newaxis, :]
    strata = connection.execute(_STRATA).fetchall()
    names, arm = np.unique([str(one) for _, one, _ in strata], return_inverse=True)
    n_written = max(len(tables), len(names)) * len(grid) * len(levels)
    if len(tables) > MOST_TABLES or n_written > MOST_CELLS:
        return []
    if rate is not None:
        tables = tables + (1.0 - rate) * np.eye(len(grid))
    (pool,) = read_columns(connection, _POOL)
    units = count_units(connection, metric.metric, levels)
    of_strata = np.zeros((len(strata), len(levels)), dtype=np.int64)
    np.add.at(of_strata, (units.stratum, np.searchsorted(levels, units.low)), units.n)
    table = table_of.ravel()[pool.astype(np.int64)]
    counts = np.zeros((len(names), len(tables), len(levels)), dtype=np.int64)
    np.add.at(counts, (arm, table), of_strata)
    clusters = [str(one) for one, *_ in strata]
    largest = _largest(clusters, np.array([n for *_, n in strata]))
    rows = []
    for at, number in zip(*np.nonzero(counts.sum(axis=2)), strict=True):
        within = largest & (arm == at) & (table == number)
        rows.append(
            {
                "metric": metric.metric,
                "arm": str(names[at]),
                "table": number,
                "outcomes": grid.tolist(),
                "probabilities": tables[number].ravel().tolist(),
                "counts": counts[at, number].tolist(),
                "clusters": [clusters[stratum] for stratum in np.flatnonzero(within)],
                "counts_within": of_strata[within].ravel().tolist(),
            }
        )
    return rows


def _largest(clusters: list[str], n_units: Ints) -> Bools:
    """Which strata are of the clusters of most units; none where there is one, shape [S]."""
    names, cluster = np.unique(clusters, return_inverse=True)
    sizes = np.bincount(cluster, n_units)
    sizes[(names == ALL) | (names == "")] = (
        0.0  # as a guess for all clusters is called, or not at all
    )
    order = np.argsort(-sizes, kind="stable")[:MOST_CLUSTERS]
    kept = np.zeros(len(names), dtype=np.bool_)
    kept[order] = sizes[order] > 0
    found: Bools = kept[cluster]
    return found
