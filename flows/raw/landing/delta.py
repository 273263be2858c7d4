"""Delta tables in folders of this machine, by deltalake: rows that were deleted are not read."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
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
            for file in self._dataset.get_fragments(filter=wanted):
                schema = self._stored(file.physical_schema, columns)
                is_alike = span is None or self._declares(schema.field(span.column))
                inner = wanted if is_alike else None  # then all rows: who asks leaves others out
                for batch in file.to_batches(schema=schema, columns=list(columns), filter=inner):
                    yield self._mapped(pa.Table.from_batches([batch]))

    def _stored(self, in_file: pa.Schema, columns: Sequence[str]) -> pa.Schema:
        """Columns by the types that a file has; one that values may not fit is refused by these."""
        fields = []
        for name in columns:
            declared = self.schema.field(name)
            kind = in_file.field(name).type if name in in_file.names else declared.type
            if pa.types.is_dictionary(kind):
                kind = kind.value_type
            if pa.types.is_nested(kind):
                kind = declared.type
            if _are_times(kind, declared.type):
                kind = pa.timestamp(kind.unit, declared.type.tz)
            if kind not in (declared.type, pa.null()) and not _are_alike(kind, declared.type):
                raise InputError(
                    f"{self._key}: {self._name} has a file in which {name!r} is {kind}, and not "
                    f"{declared.type}, as the table says; write its rows into a new one",
                    key=self._key,
                )
            fields.append(declared.with_type(kind))
        return pa.schema(fields)

    def _declares(self, field: pa.Field) -> bool:
        return bool(field.type == self.schema.field(field.name).type)

    def _mapped(self, table: pa.Table) -> pa.Table:
        """Rows by the types of the table, whatever their values are.

        Fractions that these leave out are cut, and numbers beyond them are null.
        """
        for place, field in enumerate(table.schema):
            if self._declares(field):
                continue
            declared, column = self.schema.field(field.name), table.column(place)
            if _are_numbers(field.type, declared.type):
                dtype = pl.Series(pl.from_arrow(pa.array([], declared.type))).dtype
                numbers = pl.Series(pl.from_arrow(column)).cast(dtype, strict=False)
                column = pa.chunked_array([numbers.to_arrow()])
            table = table.set_column(place, declared, column.cast(declared.type, safe=False))
        return table


def _are_alike(*kinds: pa.DataType) -> bool:
    texts = {pa.string(), pa.large_string(), pa.string_view(), pa.binary()}
    return _are_numbers(*kinds) or _are_times(*kinds) or {*kinds} <= texts


def _are_numbers(*kinds: pa.DataType) -> bool:
    names = ("boolean", "integer", "floating", "decimal")
    return all(any(getattr(pa.types, f"is_{name}")(kind) for name in names) for kind in kinds)


def _are_times(*kinds: pa.DataType) -> bool:
    return all(map(pa.types.is_timestamp, kinds))


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
