"""Lakes: tables of Delta and Iceberg, whose versions come and go."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import polars as pl
import pytest

from tests.support.places import table


class Lake(Protocol):
    """Where tables are, and how their versions come and go."""

    def add(self, name: str, rows: pl.DataFrame) -> None:
        """Add rows to a table, which is made where there is none; it gets columns that it lacks."""

    def expire(self, name: str) -> None:
        """Let nothing be read any more but what the table has now."""

    def source(self, name: str, **more: Any) -> dict[str, Any]:
        """The section of a configuration."""


class Delta:
    def __init__(self, folder: Path) -> None:
        self.made: Any = pytest.importorskip("deltalake", reason="an extra: clusterdp[delta]")
        self.folder = folder

    def add(self, name: str, rows: pl.DataFrame) -> None:
        where, how = str(self.folder / name), {"mode": "append", "schema_mode": "merge"}
        self.made.write_deltalake(where, rows.to_arrow(), **how)

    def expire(self, name: str) -> None:
        found = self.made.DeltaTable(str(self.folder / name))
        found.optimize.compact()
        found.vacuum(0, dry_run=False, enforce_retention_duration=False)

    def source(self, name: str, **more: Any) -> dict[str, Any]:
        others = {key: str(self.folder / one) for key, one in more.items() if "table" in key}
        return table(self.folder / name, "delta", **{**more, **others})


class Iceberg:
    def __init__(self, folder: Path) -> None:
        sql = pytest.importorskip("pyiceberg.catalog.sql", reason="an extra: clusterdp[iceberg]")
        self.at = f"sqlite:///{folder}/catalogue.db"
        self.made: Any = sql.SqlCatalog("default", uri=self.at, warehouse=f"file://{folder}/house")
        self.made.create_namespace("web")

    def add(self, name: str, rows: pl.DataFrame) -> None:
        content = rows.to_arrow()
        found = self.made.create_table_if_not_exists(f"web.{name}", content.schema)
        if rows.height:
            with found.update_schema() as schema:
                schema.union_by_name(content.schema)
            found.append(content)

    def expire(self, name: str) -> None:
        found = self.made.load_table(f"web.{name}")
        for snapshot in found.snapshots()[:-1]:
            found.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()

    def source(self, name: str, **more: Any) -> dict[str, Any]:
        others = {key: f"web.{one}" for key, one in more.items() if "table" in key}
        return table(f"web.{name}", "iceberg", at=self.at, **{**more, **others})


@pytest.fixture(params=[Delta, Iceberg])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    made = request.param(tmp_path)
    yield made
    if isinstance(made, Iceberg):
        made.made.close()
