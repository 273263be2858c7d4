"""Logs in Iceberg tables of an SQL catalogue: deleted rows are not read, or it is refused."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from schemas.errors import ConfigError, NoFileError
from tests.conftest import Builder, a_log
from tests.support.places import read, refusal, table

sql: Any = pytest.importorskip("pyiceberg.catalog.sql", reason="an extra: clusterdp[iceberg]")

DAY = "2026-11-20"
BEGIN = datetime(2026, 11, 19, 23, tzinfo=UTC)
Lake = Callable[[pl.DataFrame], Any]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Makes the table ``web.clicks`` of a log."""

    def made(log: pl.DataFrame) -> Any:
        address = f"sqlite:///{tmp_path}/catalogue.db"
        catalog = sql.SqlCatalog("default", uri=address, warehouse=f"file://{tmp_path}/warehouse")
        catalog.create_namespace("web")
        content = log.to_arrow()
        found = catalog.create_table("web.clicks", content.schema)
        found.append(content)
        catalog.close()
        return found

    return made


def source(folder: Path, **more: Any) -> dict[str, Any]:
    return table("web.clicks", "iceberg", at=f"sqlite:///{folder}/catalogue.db", **more)


def test_a_table_is_read_as_files_are(experiment: Builder, lake: Lake, tmp_path: Path) -> None:
    lake(a_log(60))
    rows, known = read(experiment(source=source(tmp_path)), tmp_path)
    as_files, known_as_files = read(experiment(a_log(60), "log.jsonl"), tmp_path)
    assert rows.equals(as_files)
    assert known == known_as_files


def test_deleted_rows_are_not_read(experiment: Builder, lake: Lake, tmp_path: Path) -> None:
    gone = a_log(60).with_columns(customer=pl.lit("gone") + pl.col("customer"))
    made = lake(pl.concat([a_log(60), gone]))
    made.delete("customer LIKE 'gone%'")
    found, _ = read(experiment(source=source(tmp_path)), tmp_path)
    assert found["unit"].to_list() == sorted(a_log(60)["customer"])


def test_files_of_deletes_are_refused(
    experiment: Builder, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library writes no such files, so here the plan of its scan says that there is one."""
    lake(a_log(20))
    plan = [SimpleNamespace(delete_files={"deletes.parquet"})]
    monkeypatch.setattr("pyiceberg.table.DataScan.plan_files", lambda _: plan)
    assert "web.clicks has files of deletes, which are not read" in str(
        refusal(experiment(source=source(tmp_path)))
    )


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (DAY, "2026-11-21"),
        (date(2026, 11, 20), date(2026, 11, 21)),
        (BEGIN, BEGIN + timedelta(1)),
        (BEGIN.replace(tzinfo=None), BEGIN.replace(tzinfo=None) - timedelta(seconds=1)),
    ],
)
def test_a_period_is_a_column_or_a_time_within(
    experiment: Builder, lake: Lake, tmp_path: Path, here: object, there: object
) -> None:
    log = a_log(20)
    others = log.with_columns(customer=pl.lit("x") + pl.col("customer"))
    both = [
        one.with_columns(pl.Series("at", [value] * 20))
        for one, value in ((log, here), (others, there))
    ]
    lake(pl.concat(both))
    schedule = {"since": DAY, "timezone": "Europe/Zurich"}
    built = experiment(source=source(tmp_path, period="at"), schedule=schedule)
    assert read(built, tmp_path, DAY)[0]["unit"].to_list() == sorted(log["customer"])
    assert isinstance(refusal(built, "2026-12-24"), NoFileError)


def test_no_table_and_no_catalogue_are_told(
    experiment: Builder, lake: Lake, tmp_path: Path
) -> None:
    assert str(refusal(experiment(source=source(tmp_path)))) == (
        f"source.at: there is no file {tmp_path}/catalogue.db"
    )
    (tmp_path / "catalogue.db").write_bytes(b"no database")
    assert "cannot be read" in str(refusal(experiment(source=source(tmp_path))))
    (tmp_path / "catalogue.db").unlink()
    lake(a_log(20))
    other = source(tmp_path) | {"table": "web.none"}
    assert "has no table web.none" in str(refusal(experiment(source=other)))


@pytest.mark.parametrize("address", [None, "https://host/catalogue", "catalogue.db"])
def test_what_is_no_catalogue_is_refused(experiment: Builder, address: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        experiment(source=table("web.clicks", "iceberg", at=address)).load()
    assert caught.value.key == "source.at"
