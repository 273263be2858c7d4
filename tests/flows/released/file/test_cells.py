"""Rows of debias and counts are read as they lie only where each is in its place."""

from dataclasses import asdict
from pathlib import Path

import duckdb
import numpy as np
import pytest

from estimators.arm_effects import Estimate
from flows.released.estimates.release import estimate_file
from flows.released.file import cells as cells_module
from flows.released.file.cells import Cells, read_columns
from flows.released.file.checks import table_rules
from flows.released.file.checks.table_rules import undo_response
from flows.released.file.read import open_release
from flows.released.report import report
from schemas.errors import InputError
from tests.conftest import a_log, build_experiment
from tests.faults.hostile import Change, changed, said
from tests.support.contents import read_contents

ORDERS = {
    "cells the other way round": "ORDER BY pool DESC, arm DESC, outcome",
    "outcomes the other way round": "ORDER BY pool, arm, outcome DESC",
    "all mixed": "ORDER BY hash(pool, arm, outcome, 7)",
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = a_log(600, arms=("none", "mail", "call"), clusters=("w", "east", "n", "z"))
    privacy = {"mechanism": "cluster-dp", "epsilon": 4.0, "min_stratum": 5}
    folder = tmp_path_factory.mktemp("sound") / "e"
    return (
        build_experiment(folder, log, privacy=privacy, arms={"treatments": ["mail", "call"]})
        .run()
        .path
    )


@pytest.fixture(scope="module")
def shown(sound: Path) -> tuple[list[Estimate], str]:
    """The estimates and the page of the release as it was written."""
    return estimate_file(sound), report(read_contents(sound))


def rewritten(table: str, order: str) -> Change:
    return said(
        f"CREATE TEMP TABLE kept AS FROM {table} {order}",
        f"DELETE FROM {table}",
        f"INSERT INTO {table} FROM kept",
        "CHECKPOINT",
    )


NEITHER = {"pools": "outcomes", "strata": "outcomes", "outcomes": "cells"}
"""Tables that lack what an order turns round: it leaves them as they lie."""


@pytest.mark.parametrize(
    ("order", "table"),
    [
        (order, table)
        for order in ORDERS
        for table in ("debias", "counts", "pools", "strata", "outcomes")
        if order.split()[0] != NEITHER.get(table)
    ],
)
def test_the_order_of_rows_in_a_file_does_not_matter(
    sound: Path, shown: tuple[list[Estimate], str], tmp_path: Path, table: str, order: str
) -> None:
    columns = {"outcomes": ("pool", "arm"), "pools": ("outcome",), "strata": ("outcome",)}
    given = ORDERS[order]
    for absent in columns.get(table, ()):
        given = given.replace(absent, "1")
    theirs = changed(sound, tmp_path, rewritten(table, given))

    estimates, page = shown
    for one, other in zip(estimates, estimate_file(theirs), strict=True):
        for name, value in asdict(one).items():
            same = pytest.approx(value, rel=1e-12) if isinstance(value, float) else value
            assert getattr(other, name) == same, name
    assert report(read_contents(theirs)) == page


def test_a_file_in_order_is_read_as_it_lies_and_another_is_sorted(
    sound: Path, tmp_path: Path
) -> None:
    theirs = changed(sound, tmp_path, rewritten("debias", ORDERS["all mixed"]))
    matrices = []
    for path, is_kept in ((sound, True), (theirs, False)):
        with open_release(path) as connection:
            cells = Cells(connection, "outcome")
            assert cells.is_in_order("debias") is is_kept
            assert cells.is_in_order("counts")
            matrices.append(cells.matrix("debias", "weight"))
            sorted_rows = connection.execute(
                "SELECT weight FROM main.debias ORDER BY pool, arm, outcome"
            ).fetchnumpy()["weight"]
            by_name = matrices[-1][cells.rank]
            assert by_name.ravel().tolist() == sorted_rows.tolist()
    assert np.array_equal(matrices[0], matrices[1])


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE debias SET outcome = 1 WHERE outcome = 2 AND pool = 'n' AND arm = 'mail'",
        "UPDATE debias SET arm = 'mail' WHERE arm = 'call' AND pool = 'n' AND outcome = 1",
        "UPDATE debias SET pool = 'east' WHERE arm = 'call' AND pool = 'n' AND outcome = 1",
        "DELETE FROM debias WHERE arm = 'call' AND pool = 'n' AND outcome = 1",
        "INSERT INTO debias FROM debias LIMIT 1",
    ],
)
def test_a_row_in_another_ones_place_is_refused(sound: Path, tmp_path: Path, change: str) -> None:
    theirs = changed(sound, tmp_path, said(change))
    with pytest.raises(InputError, match="debias: each pool and arm has each outcome once"):
        estimate_file(theirs)


def test_two_outcomes_of_a_cell_that_swap_their_weights_are_refused(
    sound: Path, tmp_path: Path
) -> None:
    swap = said(
        "UPDATE debias SET outcome = CASE outcome WHEN 1 THEN 2 ELSE 1 END "
        "WHERE outcome IN (1, 2) AND pool = 'n' AND arm = 'mail'"
    )
    with pytest.raises(InputError, match="debias: weights are those that undo"):
        estimate_file(changed(sound, tmp_path, swap))


def test_weights_undo_the_response_to_a_billionth() -> None:
    grid, prior, rate = np.array([0.0, 1.0, 4.0]), np.array([[0.2, 0.3, 0.5]] * 2), 0.4
    weights = (grid - rate * (prior @ grid)[:, np.newaxis]) / (1 - rate)
    off = weights.copy()
    off[1, 2] += 1e-8

    assert undo_response(grid, prior, weights, rate)
    assert not undo_response(grid, prior, off, rate)


def test_a_missing_number_equals_none() -> None:
    """Of masked numbers comparisons are masked, too, and all of none hold."""
    with duckdb.connect() as connection:
        query = "FROM (VALUES (1, 1.5, true), (NULL, NULL, true), (3, 2.5, true)) AS t (a, b, c)"
        a, b, c = read_columns(connection, query)
    assert not isinstance(a, np.ma.MaskedArray)
    assert ((a >= 0).tolist(), (b >= 0).tolist()) == ([True, False, True], [True, False, True])
    assert c.all()


def test_of_tables_as_many_rows_are_read_as_they_have_whatever_the_number_of_pools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each number of a table stands in debias once a pool: all of them are never in memory."""
    log = a_log(1200, clusters=tuple(f"c{at}" for at in range(50)))
    privacy = {
        "mechanism": "cluster-optimal-dp",
        "epsilon": 4.0,
        "min_stratum": 5,
        "strata_statistic": "counts",
    }
    path = build_experiment(tmp_path / "e", log, privacy=privacy).run().path
    lengths, queries = [], []

    def recorded(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[np.ndarray, ...]:
        found = read_columns(connection, query)
        lengths.append(len(found[0]))
        queries.append(query)
        return found

    for module in (cells_module, table_rules):
        monkeypatch.setattr(module, "read_columns", recorded)
    assert estimate_file(path)
    with duckdb.connect(str(path), read_only=True) as connection:
        n_pools, n_outputs, n_tables = connection.execute("""
            SELECT (SELECT count(*) FROM pools), max(output) + 1, max("table") + 1 FROM randomiser
        """).fetchall()[0]
        weights = connection.execute("SELECT weight FROM debias ORDER BY rowid").fetchnumpy()
    n_outcomes = 4
    assert n_pools == 100
    assert max(lengths) <= n_pools * n_outcomes < n_pools * n_outputs
    of_debias = [n for n, query in zip(lengths, queries, strict=True) if "main.debias" in query]
    assert set(of_debias) == {n_tables * n_outputs}
    of_counts = [n for n, query in zip(lengths, queries, strict=True) if "main.counts" in query]
    assert of_counts == [n_pools * n_outcomes]
    changes = np.count_nonzero(np.diff(weights["weight"].data))
    assert changes < n_tables * n_outputs  # written as runs of equal numbers
