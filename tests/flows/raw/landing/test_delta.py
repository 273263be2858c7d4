"""Logs in Delta tables: what stands in them is read, what was deleted is not, or it is refused."""

import json
import math
import struct
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from flows.raw import land
from flows.raw.spill.workspace import open_workspace
from schemas.errors import ConfigError, NoFileError
from tests.conftest import EXACT, Builder, a_log, released, told
from tests.support.places import read, refusal, table

deltalake: Any = pytest.importorskip("deltalake", reason="an extra: clusterdp[delta]")

DAY, NEXT = "2026-11-20", "2026-11-21"
SENTINEL = "PRIVATEOUTCOME"


def written(folder: Path, frame: pl.DataFrame, **more: Any) -> Path:
    deltalake.write_deltalake(str(folder), frame.to_arrow(), **more)
    return folder


def of_days(column: str, here: object, there: object) -> pl.DataFrame:
    """A log of two days, of which the second has other units and nothing but threes."""
    first, second = a_log(20), a_log(20)
    second = second.with_columns(customer=pl.lit("x") + pl.col("customer"), clicks=pl.lit(3))
    second = second.cast(first.schema)
    return pl.concat(
        [
            one.with_columns(pl.Series(column, [value] * one.height))
            for one, value in ((first, here), (second, there))
        ]
    )


def test_a_table_is_read_as_files_are(experiment: Builder, tmp_path: Path) -> None:
    where = written(tmp_path / "lake", a_log(60), partition_by=["region"])
    rows, known = read(experiment(source=table(where, "delta")), tmp_path)
    as_files, known_as_files = read(experiment(a_log(60), "log.csv"), tmp_path)
    assert rows.equals(as_files)
    assert known == known_as_files


def test_deleted_rows_are_not_read(experiment: Builder, tmp_path: Path) -> None:
    log = pl.concat(
        [a_log(60), a_log(60).with_columns(customer=pl.lit("gone") + pl.col("customer"))]
    )
    where = written(tmp_path / "lake", log)
    deltalake.DeltaTable(str(where)).delete("customer LIKE 'gone%'")
    assert len(list(where.glob("*.parquet"))) == 2  # and both hold rows
    found, _ = read(experiment(source=table(where, "delta")), tmp_path)
    assert found["unit"].to_list() == sorted(a_log(60)["customer"])


def test_deletion_vectors_are_refused(experiment: Builder, tmp_path: Path) -> None:
    """As the protocol says: a bitmap within the log that says that row 0 is deleted."""
    where = written(tmp_path / "lake", a_log(60))
    first = [
        json.loads(line)
        for line in (where / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    ]
    add = next(action["add"] for action in first if "add" in action)
    bitmap = struct.pack("<IQIIIHHIH", 1681511377, 1, 0, 12346, 1, 0, 0, 16, 0)
    bitmap += bytes(-len(bitmap) % 4)
    vector = {
        "storageType": "i",
        "pathOrInlineDv": _z85(bitmap),
        "sizeInBytes": 34,
        "cardinality": 1,
    }
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    actions = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"remove": {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}},
        {"add": {**add, "deletionVector": vector}},
    ]
    log = "\n".join(map(json.dumps, actions))
    (where / "_delta_log" / f"{1:020}.json").write_text(log)
    told_of = str(refusal(experiment(source=table(where, "delta"))))
    assert told_of.startswith(f"source.table: {where} has deletionVectors, which is not read here;")


def _z85(content: bytes) -> str:
    signs = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    words = struct.unpack(f">{len(content) // 4}I", content)
    return "".join(signs[word // 85**place % 85] for word in words for place in range(4, -1, -1))


def test_mapped_columns_are_refused(experiment: Builder, tmp_path: Path) -> None:
    where = written(tmp_path / "lake", a_log(60))
    log = where / "_delta_log" / f"{0:020}.json"
    mode = '"configuration":{"delta.columnMapping.mode":"name"}'
    log.write_text(log.read_text().replace('"configuration":{}', mode))
    assert "which is not read here" in str(refusal(experiment(source=table(where, "delta"))))


def with_file_of(where: Path, frame: pl.DataFrame) -> Path:
    """A table of one file that holds its rows by other types than the table says."""
    (file,), (log,) = where.glob("*.parquet"), where.glob("_delta_log/*.json")
    size = f'"size":{file.stat().st_size}'
    frame.write_parquet(file)
    text = log.read_text()
    assert size in text
    log.write_text(text.replace(size, f'"size":{file.stat().st_size}'))
    return where


@pytest.mark.parametrize("odd", [1.0, 2.5, math.nan, math.inf, 1e30, None])
def test_no_value_that_a_column_cannot_hold_ends_a_run(
    experiment: Builder, tmp_path: Path, odd: float | None
) -> None:
    log = a_log(60).with_columns(
        clicks=pl.when(customer="c00007").then(pl.lit(odd)).otherwise("clicks")
    )
    where = written(tmp_path / "lake", a_log(60).cast({"clicks": pl.Int32}))
    found, _ = read(experiment(source=table(with_file_of(where, log), "delta")), tmp_path)
    others, _ = read(experiment(a_log(60)), tmp_path)
    assert found.filter(unit="c00007").height == 1
    assert found.remove(unit="c00007").equals(others.remove(unit="c00007"))


def test_a_file_of_other_types_is_refused_by_these(experiment: Builder, tmp_path: Path) -> None:
    where = written(tmp_path / "lake", a_log(60))
    with_file_of(where, a_log(60).cast({"clicks": pl.String}))
    error = refusal(experiment(source=table(where, "delta")))
    assert "a file in which 'clicks' is large_string, and not double" in str(error)


# periods


ZURICH = {"since": DAY, "timezone": "Europe/Zurich"}
BEGIN = datetime(2026, 11, 19, 23, tzinfo=UTC)


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (DAY, NEXT),
        (date(2026, 11, 20), date(2026, 11, 21)),
        (BEGIN, BEGIN + timedelta(1)),
        (BEGIN + timedelta(1, microseconds=-1), BEGIN - timedelta(microseconds=1)),
        (BEGIN.replace(tzinfo=None), BEGIN.replace(tzinfo=None) - timedelta(seconds=1)),
        (DAY, None),
    ],
)
def test_a_period_is_a_column_or_a_time_within(
    experiment: Builder, tmp_path: Path, here: object, there: object
) -> None:
    where = written(tmp_path / "lake", of_days("at", here, there))
    built = experiment(source=table(where, "delta", period="at"), schedule=ZURICH)
    found, _ = read(built, tmp_path, DAY)
    assert found["unit"].to_list() == sorted(a_log(20)["customer"])


def test_whole_numbers_are_periods(experiment: Builder, tmp_path: Path) -> None:
    where = written(tmp_path / "lake", of_days("week", 202647, 202648))
    built = experiment(source=table(where, "delta", period="week"))
    assert read(built, tmp_path, "202647")[0].height == 20
    assert "column 'week' is int64, and the period week;" in str(refusal(built, "week"))


def test_rows_that_are_not_there_yet_are_waited_for(experiment: Builder, tmp_path: Path) -> None:
    where = written(tmp_path / "lake", of_days("day", DAY, NEXT))
    built = experiment(source=table(where, "delta", period="day"), schedule=ZURICH)
    error = refusal(built, "2026-11-22")
    assert isinstance(error, NoFileError)
    assert str(error) == f"source.table: {where} has no row of 2026-11-22"


@pytest.mark.parametrize("is_finer", [False, True])
def test_events_are_those_of_the_days_that_a_window_reaches(
    experiment: Builder, tmp_path: Path, is_finer: bool
) -> None:
    """Also where times in files are finer than those of a table, which one event alone tells."""
    log = a_log(40)
    seen = log.drop("clicks").with_columns(ts=pl.lit(BEGIN), day=pl.lit(DAY))
    late = log.with_columns(ts=pl.lit(BEGIN + timedelta(hours=30)), day=pl.lit(NEXT))
    beyond = late.with_columns(day=pl.lit("2026-11-23"))
    events = pl.concat([late, beyond]).select("customer", "ts", "day", "clicks")
    done = tmp_path / "done"
    if is_finer:
        finer = pl.duration(nanoseconds=(pl.col("customer") == "c00007").cast(pl.Int64))
        done.mkdir()
        events.with_columns(pl.col("ts").cast(pl.Datetime("ns", "UTC")) + finer).write_parquet(
            done / "events.parquet"
        )
        deltalake.convert_to_deltalake(str(done))
    else:
        written(done, events)
    source = table(
        written(tmp_path / "seen", seen),
        "delta",
        period="day",
        grain="event",
        window="2d",
        outcomes_table=str(done),
    )
    built = experiment(
        source=source, columns={"time": "ts"}, outcome={"aggregate": "sum"}, schedule=ZURICH
    )
    found, _ = read(built, tmp_path, DAY)
    assert (
        found.select("unit", "outcome").rows()
        == log.select("customer", "clicks").sort("customer").rows()
    )


# whole or not at all, and private


def test_only_what_is_needed_is_landed_in_private(experiment: Builder, tmp_path: Path) -> None:
    log = a_log(20).with_columns(secret=pl.lit(SENTINEL), day=pl.lit(DAY))
    built = experiment(source=table(written(tmp_path / "lake", log), "delta", period="day"))
    source = built.load().log_source
    with open_workspace(built.load().spill) as workspace:
        for outcomes, more in ((True, {"clicks"}), (False, set())):
            columns = {land.TABLE: source.roster_columns(outcomes=outcomes)[0]}
            landed = land.land(source, DAY, workspace, columns)
            (file,) = workspace.folder.glob("*.parquet")
            assert set(pl.read_parquet_schema(file)) == {"customer", "variant", "region", *more}
            assert (file.stat().st_mode & 0o777, landed.directory) == (0o600, workspace.folder)
            assert workspace.folder.stat().st_mode & 0o777 == 0o700
    assert not workspace.folder.exists()


class _Breaks:
    """A table that ends by an error of a driver's, which quotes a value."""

    schema = pa.schema(
        [(name, pa.string()) for name in ("customer", "variant", "region", "clicks")]
    )

    def pieces(self, columns: list[str], _: object) -> Iterator[pa.Table]:
        yield pa.table({name: ["a"] * 100 for name in columns})
        raise OSError(SENTINEL)


def test_no_message_of_a_driver_is_shown(
    experiment: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = written(tmp_path / "lake", a_log(20))
    built = experiment(source=table(where, "delta"))
    next(where.glob("*.parquet")).write_bytes(f"PAR1{SENTINEL}PAR1".encode())
    error = refusal(built)
    assert "cannot be read as a Delta table" in str(error)
    assert SENTINEL not in told(error)
    monkeypatch.setattr(land, "open_delta", lambda *_: _Breaks())
    with pytest.raises(Exception, match=r"cannot write the rows of source\.table") as caught:
        built.check()
    assert SENTINEL not in told(caught.value)
    assert not list(built.load().spill_directory.glob(".spill-*"))


def test_a_release_from_a_table_is_that_of_the_log(experiment: Builder, tmp_path: Path) -> None:
    built = experiment(source=table(written(tmp_path / "lake", a_log()), "delta"), privacy=EXACT)
    found = built.run()
    units = released(found.path, "units").select("unit_id", "outcome_randomised").sort("unit_id")
    assert units.rows() == a_log().select("customer", "clicks").rows()
    assert built.run().status == "unchanged"


# what cannot be


@pytest.mark.parametrize(
    ("kind", "at", "one", "other"),
    [
        ("delta", None, "lake/seen", "lake/seen"),
        ("delta", None, "lake/seen", "lake/../lake/seen/"),
        ("postgresql", "postgresql://user@host/database", "seen", "public.seen"),
        ("iceberg", "sqlite:///catalogue.db", "shop.seen", "shop.seen"),
    ],
)
def test_a_table_of_exposures_has_no_outcome_events(
    experiment: Builder, kind: str, at: str | None, one: str, other: str
) -> None:
    tables = {"table": one, "in": kind, "at": at, "grain": "event", "outcomes_table": other}
    source = {"path": None, **tables}
    with pytest.raises(ConfigError, match="who is released would follow from outcomes") as caught:
        experiment(a_log(4), source=source, columns={"time": "ts"}).load()
    assert caught.value.key == "source.outcomes_table"


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ({"path": None}, "source.path"),
        ({"in": "delta"}, "source.in"),
        ({"period": "day"}, "source.period"),
        ({"outcomes_table": "x"}, "source.outcomes_table"),
        ({"path": None, "table": "x"}, "source.in"),
        ({"path": None, "table": "x", "in": "oracle"}, "source.in"),
        ({"table": "x", "in": "delta"}, "source.path"),
        ({"path": None, "table": "x", "in": "delta", "delimiter": ";"}, "source.delimiter"),
        ({"path": None, "table": "x", "in": "delta", "repeated": "first"}, "source.repeated"),
        ({"path": None, "table": "s3://bucket/x", "in": "delta"}, "source.table"),
        ({"path": None, "table": "x", "in": "delta", "grain": "event"}, "source.outcomes_table"),
        ({"path": None, "table": "x", "in": "delta", "period": "clicks"}, "source.period"),
    ],
)
def test_what_does_not_go_together(experiment: Builder, source: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        experiment(a_log(4), source=source).load()
    assert caught.value.key == key


def test_a_period_is_asked_for(experiment: Builder) -> None:
    built = experiment(source=table("lake", "delta"), schedule={"since": DAY})
    with pytest.raises(ConfigError, match=r"source.period: missing"):
        built.load()
    with pytest.raises(ConfigError, match=r"--period: missing"):
        experiment(source=table("lake", "delta", period="day")).check()


def test_no_table_and_no_column_are_told(experiment: Builder, tmp_path: Path) -> None:
    assert str(refusal(experiment(source=table("lake", "delta")))).endswith(
        "experiment/lake is no folder of a Delta table"
    )
    where = written(tmp_path / "lake", a_log(4).rename({"clicks": "click"}))
    told_of = str(refusal(experiment(source=table(where, "delta"))))
    assert "has no column 'clicks'; correct the name" in told_of
