"""Iceberg tables of an SQL catalogue in a file of SQLite, by pyiceberg.

Rows that were deleted by rewriting files are not read. Where files of deletes stand beside those of
rows, the table is refused.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from flows.raw.landing.spans import Span
from flows.raw.landing.tables import (
    EXPIRED,
    Opener,
    not_installed,
    number_of,
    plain_errors,
    version_of,
)
from flows.runtime.paths import absolute
from schemas.errors import InputError

BEGINS = "sqlite:///"
"""What an address of such a catalogue begins with."""
_BROKEN = "cannot be read as an Iceberg table; is it whole?"


class _Iceberg:
    """An Iceberg table in one snapshot; in none, where it had none yet."""

    def __init__(self, key: str, name: str, table: Any, version: str | None) -> None:
        from pyiceberg.io.pyarrow import schema_to_pyarrow  # noqa: PLC0415 - of an extra

        self._key, self._name = key, name
        uuid, last = table.metadata.table_uuid, table.metadata.current_snapshot_id or 0
        number = number_of(version, uuid)
        self._number = last if number is None else number
        self.version = version_of(uuid, self._number)
        self._otherwise = _BROKEN if self._number == last else EXPIRED
        with plain_errors(key, name, self._otherwise):
            is_last = self._number in (0, last)
            self._scan = table.scan(snapshot_id=None if is_last else self._number)
            self.schema: pa.Schema = schema_to_pyarrow(
                self._scan.projection(), include_field_ids=False
            )

    def pieces(self, columns: Sequence[str], span: Span | None) -> Iterator[pa.Table]:
        from pyiceberg import expressions  # noqa: PLC0415 - of an extra

        made: Any = expressions  # their types are of other ways to make them
        wanted: Any = made.AlwaysTrue()
        if span is not None and span.begin is not None and span.end is not None:
            begin, end = span.begin.isoformat(), span.end.isoformat()
            wanted = made.And(
                made.GreaterThanOrEqual(span.column, begin),
                made.LessThan(span.column, end),
            )
        elif span is not None:
            values = [one if isinstance(one, int) else str(one) for one in span.values]
            wanted = made.In(span.column, values)
        if self._number == 0:
            return
        with plain_errors(self._key, self._name, self._otherwise):
            scan = self._scan.update(row_filter=wanted, selected_fields=tuple(columns))
            if any(task.delete_files for task in scan.plan_files()):
                raise InputError(
                    f"{self._key}: {self._name} has files of deletes, which are not read here; "
                    "rewrite it, so that deleted rows are in no file (rewrite_data_files)",
                    key=self._key,
                )
            for batch in scan.to_arrow_batch_reader():
                yield pa.Table.from_batches([batch]).select(list(columns))


def open_iceberg(directory: Path, address: str, key: str) -> Opener:
    """Open the catalogue at an address, relative to ``directory``; nothing is written to it."""
    try:
        from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - of an extra
        from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415
    except ImportError:
        raise not_installed("iceberg") from None
    path = absolute(directory, address.removeprefix(BEGINS), key)
    if not path.is_file():
        raise InputError(f"{key}: there is no file {path}", key=key)
    with plain_errors(key, str(path), "cannot be read as an SQL catalogue"):
        given = {"uri": f"{BEGINS}{path}", "init_catalog_tables": "false"}
        catalog = SqlCatalog("default", **given)

    def opened(of: str, name: str, version: str | None = None) -> _Iceberg:
        with plain_errors(of, name, _BROKEN):
            try:
                table = catalog.load_table(name)
            except NoSuchTableError:
                raise InputError(f"{of}: {path} has no table {name}", key=of) from None
            if not table.metadata_location.startswith(("/", "file:")):
                raise InputError(
                    f"{of}: {name} is in an object store, which was not tried; name one on this "
                    "machine",
                    key=of,
                )
            return _Iceberg(of, name, table, version)

    return opened
