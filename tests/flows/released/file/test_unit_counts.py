"""Units are counted by a key of their outcome where the grid has one, and by the outcome else."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import duckdb
import numpy as np
import pytest

from flows.released.file.opening import _CLOSED
from flows.released.file.unit_counts import (
    UnitCounts,
    _key,
    count_units,
    counts_by_level,
    skewness,
    units_at,
)
from schemas.released import Metric

WITH_KEYS = {
    "whole numbers": np.arange(12.0),
    "below zero": np.array([-3.0, -1.0, 0.0, 7.0]),
    "tenths": np.arange(0, 30) / 10,
    "a fee": np.array([0.0, 4.99, 9.98]),
    "far from zero": 1e9 + np.arange(5) * 0.25,
    "as many as there are keys": np.arange(256.0),
}
WITHOUT = {
    "one more": np.arange(257.0),
    "gaps of one and a half": np.array([0.0, 1.0, 2.5]),
    "a gap and its half, nearly": np.array([0.0, 1.0, 2.3]),
    "gaps far apart": np.array([0.0, 1e-9, 1.0]),
    "gaps that have no inverse": np.array([0.0, 5e-324, 1e-323]),
    "large ones": np.array([-1e70, 0.0, 1.0]),
}


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config=_CLOSED) as opened:
        yield opened


@pytest.mark.parametrize("name", WITH_KEYS)
def test_every_value_of_a_grid_has_a_key_of_its_own(
    name: str, connection: duckdb.DuckDBPyConnection
) -> None:
    grid, key = WITH_KEYS[name], _key(WITH_KEYS[name], "outcome")
    assert key is not None
    connection.execute("CREATE TABLE t (outcome DOUBLE)")
    connection.executemany("INSERT INTO t VALUES ($1)", [[value] for value in grid.tolist()])
    found = connection.execute(f"SELECT {key} FROM t ORDER BY outcome").fetchall()
    keys = [key for (key,) in found]
    assert None not in keys
    assert len(set(keys)) == len(grid)


@pytest.mark.parametrize("name", WITHOUT)
def test_grids_without_keys(name: str) -> None:
    assert _key(WITHOUT[name], "outcome") is None


def units(connection: duckdb.DuckDBPyConnection, grid: list[float]) -> None:
    """Units of six strata, in the tables that are read; names are in another order than numbers."""
    connection.execute("CREATE TEMP TABLE drawn (_stratum UINTEGER, outcome_randomised DOUBLE)")
    connection.execute(
        """INSERT INTO drawn SELECT i * 7 // 5 % 3 * 2 + i % 2, $grid[1 + i * 31 // 7 % $size]
            FROM range(3000) AS t (i)""",
        {"grid": grid, "size": len(grid)},
    )
    connection.execute("""
        CREATE TEMP TABLE numbered_strata AS
        SELECT 5 - _stratum AS code, _stratum AS stratum
        FROM (SELECT DISTINCT _stratum FROM drawn)""")


def rows(found: UnitCounts) -> list[tuple[float, ...]]:
    columns = (found.stratum, found.n, found.low, found.high)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize(
    "grid", [WITH_KEYS["tenths"], WITHOUT["one more"]], ids=["with keys", "without"]
)
def test_units_are_counted_by_stratum_and_outcome(
    grid: np.ndarray, connection: duckdb.DuckDBPyConnection
) -> None:
    units(connection, grid.tolist())
    unchecked = counts_by_level(connection, "outcome", grid, 6, 3000)

    found = count_units(connection, "outcome", grid)
    plainly = connection.execute("""
        SELECT s.code, count(*), u.outcome_randomised, u.outcome_randomised
        FROM drawn AS u JOIN numbered_strata AS s ON s.stratum = u._stratum
        GROUP BY s.code, u.outcome_randomised""")
    assert rows(found) == sorted(plainly.fetchall())

    counts = counts_by_level(connection, "outcome", grid, 6, 3000)
    assert counts is not None
    assert unchecked is not None
    assert np.array_equal(counts, unchecked)
    assert counts.sum() == 3000
    places = zip(found.stratum, np.searchsorted(grid, found.low), found.n, strict=True)
    assert all(counts[stratum, level] == n for stratum, level, n in places)
    assert counts_by_level(connection, "outcome", grid, 6, 6 * len(grid) - 1) is None


@pytest.mark.parametrize(
    "odd", ["1.04", "NULL", "'nan'", "'inf'", "-1e308", "1e300", "25.6", "-0.1"]
)
def test_an_outcome_that_is_not_of_the_grid_is_never_taken_for_one(
    odd: str, connection: duckdb.DuckDBPyConnection
) -> None:
    grid = WITH_KEYS["tenths"]
    units(connection, grid.tolist())
    connection.execute(f"UPDATE drawn SET outcome_randomised = {odd} WHERE rowid = 77")
    found = count_units(connection, "outcome", grid)
    is_odd = (found.low != found.high) | ~np.isin(found.low, grid)
    assert is_odd.sum() == 1
    assert found.n.sum() == 3000


METRIC = cast("Metric", SimpleNamespace(metric="outcome", has_tables=False))


def show_units(connection: duckdb.DuckDBPyConnection) -> None:
    """What units count as, in the tables that are read."""
    connection.execute("""
        CREATE TEMP TABLE unit_facts AS SELECT range::UINTEGER AS _stratum,
            1.0 + range / 8 AS factor0, -0.5 * range AS base0 FROM range(6);
        CREATE VIEW main.units AS SELECT outcome_randomised * factor0 + base0 AS outcome_debiased
            FROM temp.main.drawn JOIN temp.main.unit_facts USING (_stratum)""")


def test_units_are_told_alike_before_and_after_they_are_counted(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    grid = WITH_KEYS["tenths"]
    units(connection, grid.tolist())
    show_units(connection)

    def told() -> tuple[list[list[tuple[int, int]]], float]:
        found = (units_at(connection, "outcome", value) for value in (*grid[[0, 7]], 77.0))
        pairs = [sorted(zip(*map(np.ndarray.tolist, one), strict=True)) for one in found]
        return pairs, skewness(connection, METRIC, 0)

    plain, skew = told()
    counted = count_units(connection, "outcome", grid)
    kept, same = told()
    assert kept == plain
    assert [sum(n for _, n in pairs) for pairs in plain] == [
        counted.n[counted.low == value].sum() for value in (grid[0], grid[7], 77.0)
    ]
    ((expected,),) = connection.execute("SELECT skewness(outcome_debiased) FROM units").fetchall()
    assert abs(expected) > 1e-3
    assert [skew, same] == pytest.approx([expected] * 2, abs=1e-9)  # it has nine decimals


@pytest.mark.parametrize("there", ["none", "two", "alike", "alike and counted"])
def test_units_that_are_few_or_alike_have_no_skewness(
    there: str, connection: duckdb.DuckDBPyConnection
) -> None:
    units(connection, [0.1])
    show_units(connection)
    if there == "two":
        connection.execute("DELETE FROM drawn WHERE rowid > 1")
    connection.execute("UPDATE unit_facts SET factor0 = 1, base0 = 0" if "alike" in there else "")
    if there == "none":
        connection.execute("DELETE FROM drawn")
    if "counted" in there:
        count_units(connection, "outcome", np.array([0.0, 0.1]))
    assert skewness(connection, METRIC, 0) == 0.0


def test_very_many_strata_are_hashed_rather_than_placed(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    """Memory for places is bounded, whatever labels a file declares."""
    names = ", ".join(f"'c{i}'" for i in range(60_000))
    connection.execute(f"CREATE TABLE many (cluster ENUM({names}), arm ENUM('x', 'y'), k UTINYINT)")
    connection.execute("INSERT INTO many SELECT 'c' || i, 'x', i % 12 FROM range(60000) AS t (i)")
    told = connection.execute("EXPLAIN SELECT count(*) FROM many GROUP BY cluster, arm, k")
    assert "Perfect" not in str(told.fetchall())
    told = connection.execute("EXPLAIN SELECT count(*) FROM many GROUP BY cluster, arm")
    assert "Perfect" in str(told.fetchall())
