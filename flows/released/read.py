"""Reading a released file: the manifest, and the sums the estimators need."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from estimators.debias import prior_moments, response_noise_variance
from estimators.effects import StratumMeans
from schemas.errors import InputError
from schemas.released import SCHEMA_VERSION, TABLES, Manifest


@dataclass(frozen=True)
class ReleaseFile:
    """What a released file says of itself."""

    path: Path
    manifest: Manifest
    row_counts: dict[str, int]


@contextmanager
def opened(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a released file read-only; InputError where it is none."""
    if not path.is_file():
        raise InputError(f"{path.absolute()}: there is no such file")
    try:
        connection = duckdb.connect(str(path), read_only=True)
    except duckdb.Error:
        connection = None
    if connection is None:
        raise InputError(f"{path.absolute()}: not a DuckDB file that can be opened")
    try:
        with connection:
            _check_is_release(connection, path)
            yield connection
    except duckdb.Error:
        damaged = True
    else:
        damaged = False
    if damaged:
        raise InputError(f"{path.absolute()}: not a clusterdp release that can be read whole")


def read_release(path: Path) -> ReleaseFile:
    """Read the manifest of a released file and count the rows of its tables."""
    with opened(path) as connection:
        counts = {
            table: int(_row(connection, f"SELECT count(*) FROM main.{table}")[0])  # noqa: S608 - our own table names
            for table in TABLES
        }
        return ReleaseFile(path.absolute(), read_manifest(connection), counts)


def read_manifest(connection: duckdb.DuckDBPyConnection) -> Manifest:
    """Read the one row of ``release``."""
    names = [field.name for field in fields(Manifest)]
    row = _row(connection, f"SELECT {', '.join(names)} FROM main.release")  # noqa: S608 - our own column names
    return Manifest(**dict(zip(names, row, strict=True)))


# One pass over the units; everything else is of the size of the strata. Means and variances of ỹ
# are enough, since the debiased outcome is linear in it: v(ỹ) = (ỹ − λ m) / (1 − λ).
_STRATA = """
WITH drawn AS (
    SELECT cluster, arm, count(*) AS n, avg(outcome) AS mean, var_samp(outcome) AS variance
    FROM main.units GROUP BY cluster, arm
), priors AS (
    SELECT pool, arm, list(probability ORDER BY outcome) AS prior
    FROM main.debias GROUP BY pool, arm
)
SELECT s.cluster, s.arm, d.n, d.mean, coalesce(d.variance, 0.0) AS variance, p.prior
FROM main.strata AS s
JOIN drawn AS d ON d.cluster = s.cluster AND d.arm = s.arm
JOIN priors AS p ON p.pool = s.pool AND p.arm = s.arm
ORDER BY s.cluster, s.arm
"""


def stratum_means(
    connection: duckdb.DuckDBPyConnection, manifest: Manifest
) -> tuple[StratumMeans, list[str]]:
    """Return means and variances of the debiased outcomes, and the arms, control first.

    The arrays have the shape [clusters, arms].
    """
    grid = np.array(
        [
            row[0]
            for row in connection.execute("SELECT outcome FROM main.outcomes ORDER BY 1").fetchall()
        ]
    )
    table = connection.sql(_STRATA).to_arrow_table()
    rate = manifest.resampling_probability
    n, mean, variance = (
        table[name].to_numpy().astype(np.float64) for name in ("n", "mean", "variance")
    )
    prior = np.asarray(table["prior"].combine_chunks().flatten()).reshape(len(n), len(grid))
    prior_mean, prior_variance = prior_moments(grid, prior)
    noise = response_noise_variance(n, mean, variance, prior_mean, prior_variance, rate)
    columns = (n, (mean - rate * prior_mean) / (1 - rate), variance / (1 - rate) ** 2, noise)

    clusters, cluster = np.unique(np.asarray(table["cluster"]), return_inverse=True)
    found = np.asarray(table["arm"])
    arms = [manifest.control, *sorted(set(found.tolist()) - {manifest.control})]
    arm = np.searchsorted(np.sort(arms), found)
    arm = np.argsort(arms, stable=True).take(arm)
    shape = (len(clusters), len(arms))
    filled = []
    for column, empty in zip(columns, (0.0, np.nan, np.nan, np.nan), strict=True):
        matrix = np.full(shape, empty)
        matrix[cluster, arm] = column
        filled.append(matrix)
    return StratumMeans(*filled), arms


def _row(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    row = connection.execute(query).fetchone()
    if row is None:
        msg = f"no row from: {query}"
        raise AssertionError(msg)
    return row


def _check_is_release(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    found = {
        row[0]
        for row in connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main'"
        ).fetchall()
    }
    missing = [table for table in TABLES if table not in found]
    if missing:
        raise InputError(f"{path.absolute()}: not a clusterdp release (no table {missing[0]})")
    rows = connection.execute("SELECT schema_version FROM main.release").fetchall()
    if len(rows) != 1:
        raise InputError(f"{path.absolute()}: not a complete clusterdp release")
    if rows[0][0] != SCHEMA_VERSION:
        raise InputError(
            f"{path.absolute()}: has schema version {rows[0][0]}, this program reads "
            f"{SCHEMA_VERSION}; use the version of clusterdp that made it"
        )
