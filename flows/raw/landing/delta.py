"""Delta tables in folders of this machine, by deltalake: rows that were deleted are not read."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from flows.raw.landing.spans import Span
from flows.raw.landing.tables import (
    EXPIRED,
    Table,
    not_installed,
    number_of,
    plain_errors,
    version_of,
)
from flows.runtime.paths import absolute
from schemas.errors import InputError

_READ = frozenset({"timestampNtz"})
"""What a table may ask of its readers. Deletion vectors, by which files hold rows that are deleted,
and columns under other names are none of it."""
_BROKEN = "cannot be read as a Delta table; is it whole?"


class _Delta:
    """A Delta table in one version."""

    def __init__(self, key: str, name: str, table: Any, otherwise: str) -> None:
        self._key, self._name, self._otherwise = key, name, otherwise
        self._dataset = table.to_pyarrow_dataset()
        self.version = version_of(table.metadata().id, table.version())

    @property
    def schema(self) -> pa.Schema:
        return self._dataset.schema

    def pieces(self, columns: Sequence[str], span: Span | None) -> Iterator[pa.Table]:
        wanted = None if span is None else span.expression
        with plain_errors(self._key, self._name, self._otherwise):
            for batch in self._dataset.to_batches(columns=list(columns), filter=wanted):
                yield pa.Table.from_batches([batch])


def open_delta(directory: Path, key: str, name: str, version: str | None = None) -> Table:
    """Open the table in a folder, relative to ``directory``; in a ``version`` of it, or as it is.

    Raises InputError where there is none, or where it asks for what is not read.
    """
    try:
        from deltalake import DeltaTable  # noqa: PLC0415 - of an extra
        from deltalake.exceptions import TableNotFoundError  # noqa: PLC0415
    except ImportError:
        raise not_installed("delta") from None
    path = absolute(directory, name, key)
    with plain_errors(key, str(path), _BROKEN):
        try:
            table = DeltaTable(str(path))
        except TableNotFoundError:
            raise InputError(f"{key}: {path} is no folder of a Delta table", key=key) from None
        number = number_of(version, table.metadata().id)
        is_last = number in (None, table.version())
    otherwise = _BROKEN if is_last else EXPIRED
    with plain_errors(key, str(path), otherwise):
        if number is not None and not is_last:
            table.load_as_version(number)
        odd = sorted(set(table.protocol().reader_features or ()) - _READ)
        mapped = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
        if odd or mapped:
            raise InputError(
                f"{key}: {path} has {', '.join(odd) or 'columnMapping'}, which is not read here; "
                "write its rows into a table without (a copy of it, say)",
                key=key,
            )
        return _Delta(key, str(path), table, otherwise)
