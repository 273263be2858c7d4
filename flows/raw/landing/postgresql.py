"""Tables of PostgreSQL, by ADBC: all in one transaction, so that they are of one moment.

No type is converted by the server where a value could make it fail: numbers of any length, and what
has no type here, come as text.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import polars as pl
import pyarrow as pa

from flows.raw.landing.adbc import UNREADABLE, DatabaseTable, quoted
from flows.raw.landing.tables import Opener, not_installed, plain_errors
from schemas.errors import InputError

_UNREACHABLE = (
    "cannot be reached or does not let this user in; check the address, the network, and the "
    "environment's PGUSER, PGPASSWORD and PGPASSFILE"
)
_FIRST = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    "SET LOCAL client_encoding = 'UTF8'",
    "SET LOCAL row_security = off",  # an error, where policies would leave rows out in silence
)
_ENCODING = "SELECT current_setting('server_encoding')"
_KINDS = """
WITH RECURSIVE part AS (
    SELECT to_regclass($1)::oid AS oid
    UNION SELECT inhrelid FROM pg_inherits JOIN part ON inhparent = part.oid
)
SELECT DISTINCT relkind::text FROM pg_class JOIN part USING (oid)
"""
_COLUMNS = """
SELECT attname::text, format_type(atttypid, NULL) FROM pg_attribute
WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped AND attgenerated <> 'v'
ORDER BY attnum
"""
_NUMBERS = ("smallint", "integer", "bigint", "real", "double precision")
_TIMES = ("date", "timestamp without time zone", "timestamp with time zone")
_FIRST_TIME, _LAST_TIME = "'0001-01-02'", "'9999-12-30'"
_AS_THEY_ARE = frozenset({*_NUMBERS, "boolean", "text"})
_CONNECT = 10  # seconds
_TABLES = frozenset("rpm")  # ordinary, partitioned, materialised: what is stored, no query
_VIEW = (
    "a view or a foreign table, or has one as a part",
    "a table or a materialized view",
)


class _PostgreSQL(DatabaseTable):
    """A table within a transaction, which is gone with it."""

    _mark = "${}"

    def __init__(self, key: str, name: str, connection: Any) -> None:
        super().__init__(key, name, connection)
        with plain_errors(key, name, UNREADABLE):
            kinds = {kind for (kind,) in self._rows(_KINDS)}
            self._check_stored(kinds, _TABLES, _VIEW)
            self._kinds: dict[str, str] = dict(self._rows(_COLUMNS))
            self.schema = self._schema(self._named(self._kinds))

    def _answer(
        self, cursor: Any, query: str, values: tuple[Any, ...]
    ) -> tuple[pa.Schema, Iterable[pa.RecordBatchReader]]:
        cursor.execute(query, values or None)
        reader = cursor.fetch_record_batch()
        return reader.schema, [reader]

    def _expression(self, name: str) -> str:
        """A column as it is, or as text where it has a type of the server's own.

        Times that are infinite or in no year from 1 to 9999, which drivers stumble over, are null.
        """
        kind, column = self._kinds[name], quoted(name)
        if kind in _TIMES:
            return f"CASE WHEN {column} BETWEEN {_FIRST_TIME} AND {_LAST_TIME} THEN {column} END"
        return column if kind in _AS_THEY_ARE else f"{column}::text"

    def _mapped(self, table: pa.Table) -> pa.Table:
        """Decimals, which came as text, as doubles; what is beyond these is infinite."""
        for place, name in enumerate(table.column_names):
            if self._kinds[name] == "numeric":
                text = pl.Series(pl.from_arrow(table.column(name)))
                double = text.cast(pl.Float64, strict=False).to_arrow()
                table = table.set_column(place, name, double)
        return table

    def _rows(self, query: str) -> list[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(query, (self._quoted,))
            return list(cursor.fetchall())


@contextmanager
def open_postgresql(address: str, key: str) -> Iterator[Opener]:
    """Open a transaction in the database at an address; tables in it are of its beginning.

    Raises InputError where the server does not let us in.
    """
    try:
        from adbc_driver_postgresql import dbapi  # noqa: PLC0415 - of an extra
    except ImportError:
        raise not_installed("postgresql") from None
    mark = "&" if "?" in address else "?"
    with plain_errors(key, "the database", _UNREACHABLE):
        connection = dbapi.connect(f"{address}{mark}connect_timeout={_CONNECT}")
    with connection:
        with plain_errors(key, "the database", _UNREACHABLE), connection.cursor() as cursor:
            for statement in _FIRST:
                cursor.execute(statement)
            cursor.execute(_ENCODING)
            ((encoding,),) = cursor.fetchall()
            if encoding != "UTF8":  # in another a text may be none, and fail by a value
                raise InputError(
                    f"{key}: the database is in {encoding}, which was not tried; UTF8 is read",
                    key=key,
                )
        yield lambda of, name, _: _PostgreSQL(of, name, connection)
