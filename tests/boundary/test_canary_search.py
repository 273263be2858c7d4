"""The search for canaries finds them in whatever form; without that no other test could fail."""

import base64
import gzip
import pickle
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import duckdb
import polars as pl
import pytest
from prefect import flow, get_run_logger

from tests.boundary.canary import Before, Canary, changed, leaks_into
from tests.boundary.watched import wait_for_prefect
from tests.conftest import told


def as_text(path: Path, value: object) -> None:
    path.write_text(f"bad row: {value!r}\n")


def as_pickle(path: Path, value: object) -> None:
    path.write_bytes(pickle.dumps(["bad row", value]))


def as_gzip(path: Path, value: object) -> None:
    path.write_bytes(gzip.compress(str(value).encode()))


def as_base64(path: Path, value: object) -> None:
    path.write_bytes(base64.b64encode(b"bad row" + str(value).encode() + b"!"))


def as_parquet(path: Path, value: object) -> None:
    pl.DataFrame({"x": [value] * 99}).write_parquet(path)


def as_sqlite(path: Path, value: object) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.execute("INSERT INTO t VALUES (?)", (value,))
        connection.commit()


def as_duckdb(path: Path, value: object) -> None:
    with duckdb.connect(str(path)) as connection:
        kind = "DOUBLE" if isinstance(value, float) else "VARCHAR"
        connection.execute(f"CREATE TABLE t AS SELECT ?::{kind} AS x FROM range(5000)", [value])


@pytest.mark.parametrize("form", ["number", "word"])
@pytest.mark.parametrize(
    "write", [as_text, as_pickle, as_gzip, as_base64, as_parquet, as_sqlite, as_duckdb]
)
def test_the_search_finds_what_is_planted(
    tmp_path: Path, write: Callable[[Path, object], None], form: str
) -> None:
    canary = Canary.hatch()
    file = tmp_path / "deep" / "down" / "file"
    file.parent.mkdir(parents=True)
    write(file, 1.5 if form == "number" else "innocent")
    assert leaks_into(tmp_path, canary.secret()) == []
    file.unlink()
    write(file, canary.value if form == "number" else canary.word)
    assert leaks_into(tmp_path, canary.secret()) == [f"canary in {file}"]


@pytest.mark.parametrize("way", ["a new row", "another value", "in the journal"])
@pytest.mark.parametrize("form", ["number", "word"])
def test_the_search_finds_what_has_come_since(tmp_path: Path, form: str, way: str) -> None:
    """In a database that there was before, of which only what is new is searched."""
    early, canary = Canary.hatch(), Canary.hatch()
    value: float | str = canary.value if form == "number" else canary.word
    with closing(sqlite3.connect(tmp_path / "file")) as connection:
        connection.execute(f"PRAGMA journal_mode = {'wal' if way == 'in the journal' else 'off'}")
        connection.execute("CREATE TABLE t (x)")
        rows = [(f"innocent {number}",) for number in range(5000)]
        connection.executemany("INSERT INTO t VALUES (?)", [*rows, (early.word,)])
        connection.commit()
        before = Before.of(tmp_path)
        assert leaks_into(tmp_path, canary.secret(), early.secret(), before=before) == []
        if way == "another value":
            connection.execute("UPDATE t SET x = ? WHERE rowid = 2500", (value,))
        else:
            connection.execute("INSERT INTO t VALUES (?)", (value,))
        connection.commit()
        found = leaks_into(tmp_path, canary.secret(), before=before)
    assert found
    assert set(found) <= {f"canary in {tmp_path / name}" for name in ("file", "file-wal")}


def test_the_search_finds_a_mark_across_blocks() -> None:
    """Wherever it begins, and also where it grew out of what was there."""
    before = bytes(20_000)
    for place in (0, 1, 4090, 4095, 4096, 8190, 16_380, 16_384, 19_990):
        for kept in (b"", b"MA", b"MARK"):
            old = before[:place] + kept + before[place + len(kept) :]
            now = before[:place] + b"MARKED" + before[place + 6 :]
            assert b"MARKED" in changed(old, now, 6)
            assert b"MARKED" in changed(old[: place + 3], now, 6)
            assert b"MARKED" in changed(b"", now, 6)
    assert len(changed(before, before, 6)) < 4096 + 6


@pytest.mark.parametrize("order", ["<d", ">d", "<q", ">q"])
def test_the_search_finds_a_bare_number(tmp_path: Path, order: str) -> None:
    canary = Canary.hatch("unit" if order[1] == "q" else "outcome")
    (tmp_path / "file").write_bytes(b"\7" * 13 + struct.pack(order, canary.value) + b"\7" * 5)
    assert leaks_into(tmp_path, canary.secret()) == [f"canary in {tmp_path / 'file'}"]


def test_the_search_lets_a_secret_be_at_home(tmp_path: Path) -> None:
    secret = Canary.hatch().secret(home="home/*.txt")
    for place in ("home/file.txt", "home/file.csv", "file.txt"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_bytes(secret.marks[0])
    elsewhere = [f"canary in {tmp_path / place}" for place in ("file.txt", "home/file.csv")]
    assert leaks_into(tmp_path, secret, root=tmp_path) == elsewhere


@pytest.mark.parametrize("way", ["message", "argument", "cause", "context", "attribute"])
def test_the_search_reads_all_of_an_error(way: str) -> None:
    canary = Canary.hatch()
    with pytest.raises(ValueError, match="bad") as caught:
        raise_with(canary.value, way)
    assert canary.secret().is_in(told(caught.value))


def raise_with(value: float, way: str) -> NoReturn:
    if way == "message":
        raise ValueError(f"bad {value}")
    if way == "argument":
        raise ValueError("bad", value)
    if way == "attribute":
        error = ValueError("bad")
        error.row = value  # type: ignore[attr-defined] # as libraries do
        raise error
    try:
        raise KeyError(value)
    except KeyError as inner:
        raise ValueError("bad") from (inner if way == "cause" else None)


def test_the_search_finds_what_prefect_is_told(prefect_harness: Path) -> None:
    """An ordinary flow does tell Prefect, in a log and in a state."""
    logged, raised = Canary.hatch(), Canary.hatch()

    @flow
    def careless() -> None:
        get_run_logger().info("row %s", logged.word)
        raise ValueError(f"bad {raised.value}")

    with pytest.raises(ValueError, match="bad"):
        careless()
    wait_for_prefect(prefect_harness, "careless")
    assert leaks_into(prefect_harness, logged.secret())
    assert leaks_into(prefect_harness, raised.secret())
