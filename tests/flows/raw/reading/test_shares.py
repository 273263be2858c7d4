"""Shares of a log that are read at the same time: together they are the log, row by row."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.raw.ingest import Log, ingest
from schemas.errors import InputError
from tests.conftest import Builder, Content, a_log

ROWS = 120


def with_groups(folder: Path, log: pl.DataFrame, size: int) -> bytes:
    """A Parquet file of row groups of this size."""
    path = folder / "made.parquet"
    log.write_parquet(path, row_group_size=size)
    return path.read_bytes()


def with_odd_text(folder: Path, size: int) -> bytes:
    """The same with outcomes as text, of which one in the second half is no Unicode."""
    log = a_log(ROWS)
    texts = [str(value).encode() for value in log["clicks"]]
    texts[90] = b"1\xff"
    table = log.drop("clicks").to_arrow(compat_level=pl.CompatLevel.oldest())
    column = pa.array(texts, pa.binary()).view(pa.string())
    path = folder / "odd.parquet"
    pq.write_table(table.append_column("clicks", column), path, row_group_size=size)
    return path.read_bytes()


def files_of(name: str, folder: Path) -> Mapping[str, Content]:
    log = a_log(ROWS)
    files: dict[str, dict[str, Content]] = {
        "one row group": {"logs/0.parquet": log},
        "several": {"logs/0.parquet": with_groups(folder, log, 7)},
        "odd text": {"logs/0.parquet": with_odd_text(folder, 11)},
        "formats": {
            "logs/0.parquet": with_groups(folder, log[:50], 9),
            "logs/1.csv": log[50:60],
            "logs/2.jsonl": log[60:80],
            "logs/3.parquet": with_groups(folder, log[80:], 40),
        },
        "many files": {f"logs/{i:02d}.csv": log[4 * i : 4 * i + 4] for i in range(30)},
    }
    return files[name]


def read(log: Log) -> list[pl.DataFrame]:
    labels = pl.col("arm", "cluster").cast(pl.String)
    return [batch.with_columns(labels) for batch in log.batches()]


@pytest.mark.parametrize("number", [1, 2, 3, 8, 25])
@pytest.mark.parametrize("name", ["one row group", "several", "odd text", "formats", "many files"])
def test_shares_are_the_log_in_its_order(
    experiment: Builder, tmp_path: Path, name: str, number: int
) -> None:
    """Files and numbers of rows included."""
    log = ingest(experiment(files_of(name, tmp_path), "logs/*").load().log_source, "once").open()
    shares = log.roster.shares(number)
    found = pl.concat([one for share in shares for one in read(replace(log, roster=share))])
    assert found.equals(pl.concat(read(log)))
    assert found.height == ROWS
    if name != "formats":
        assert len(shares) == number


@pytest.mark.parametrize("n_rows", [0, 1, ROWS])
def test_how_many_shares_there_are_says_nothing_of_rows(experiment: Builder, n_rows: int) -> None:
    log = ingest(experiment(a_log(n_rows)).load().log_source, "once").open()
    shares = log.roster.shares(8)
    assert [share.pieces for share in shares] == [
        (piece,) for share in log.roster.shares(8) for piece in share.pieces or ()
    ]
    assert len(shares) == 8


def test_a_share_of_a_damaged_file_says_what_the_file_does(
    experiment: Builder, tmp_path: Path
) -> None:
    content = with_groups(tmp_path, a_log(ROWS), 10)
    built = experiment({"logs/0.parquet": content[: len(content) // 2]}, "logs/*")
    log = ingest(built.load().log_source, "once").open()
    told = set()
    for one in (log, *(replace(log, roster=share) for share in log.roster.shares(3))):
        with pytest.raises(InputError) as caught:
            read(one)
        told.add(str(caught.value))
    assert len(told) == 1
    assert "0.parquet: cannot be read as Parquet; is it whole?" in told.pop()
