"""Tables of a server that speaks Flight SQL, by ADBC.

Where its answer sends us elsewhere for the rows, that is refused. How its transactions keep two
tables at one moment the driver does not tell, so it is asked for one.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from flows.raw.landing.adbc import UNREADABLE, DatabaseTable
from flows.raw.landing.tables import Opener, not_installed, plain_errors
from flows.runtime.reading.small_files import UnreadableError, read_small_text
from schemas.errors import InputError

_UNREACHABLE = (
    "cannot be reached or does not let this user in; check the address, the network, its "
    "certificate (SSL_CERT_FILE), and the environment's FLIGHTSQL_PASSWORD or FLIGHTSQL_TOKEN"
)
_WHO = (
    "needs a user in it and FLIGHTSQL_PASSWORD in the environment; or, without a user, "
    "FLIGHTSQL_TOKEN or neither (with _FILE behind its name it names the file that holds it)"
)
_TABLES = frozenset({"TABLE", "BASE TABLE"})
_VIEW = (
    "listed as a view, or as something else than a table",
    "a table (of several with this name, its schema, too)",
)
_BYTES = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}
_HERE = b"arrow-flight-reuse-connection://?"
_LONGEST = 16_384  # bytes of a password or token
_OPTIONS = {
    "adbc.flight.sql.client_option.with_max_msg_size": str(2**31 - 1),  # one text may be long
    "adbc.telemetry.traces_exporter": "none",  # what it traces quotes the server's messages
}
_LIMITS = {"connect": 10, "update": 60, "query": 600, "fetch": 3_600}
"""Seconds for a connection, for parameters, for the first answer, and for all rows."""


class _FlightSQL(DatabaseTable):
    """A table of a server that is connected at an address."""

    _mark = "?"

    def __init__(self, key: str, name: str, connection: Any, address: str) -> None:
        super().__init__(key, name, connection)
        self._places = {_HERE, address.encode()}
        with plain_errors(key, name, UNREADABLE):
            self._check_stored(set(self._kinds()), _TABLES, _VIEW)
            self.schema = self._schema("*")
        if len({*self.schema.names}) < len(self.schema.names):
            raise InputError(f"{key}: {name} has two columns of one name", key=key)

    def _kinds(self) -> Iterator[str]:
        """What the server lists under the name."""
        parts = self._name.split(".")
        objects = self._connection.adbc_get_objects(depth="tables", table_name_filter=parts[-1])
        for catalog in objects.read_all().to_pylist():
            for schema in catalog["catalog_db_schemas"] or ():
                for table in schema["db_schema_tables"] or ():
                    names = catalog["catalog_name"], schema["db_schema_name"], table["table_name"]
                    if [*names][-len(parts) :] == parts:  # the filter is a pattern
                        yield table["table_type"].upper()

    def _answer(
        self, cursor: Any, query: str, values: tuple[Any, ...]
    ) -> tuple[pa.Schema, Iterable[pa.RecordBatchReader]]:
        parts, schema = cursor.adbc_execute_partitions(query, values or None)
        return schema, self._read(cursor, parts)

    def _read(self, cursor: Any, parts: list[bytes]) -> Iterator[pa.RecordBatchReader]:
        from pyarrow.flight import FlightInfo  # noqa: PLC0415 - of these tables alone

        for part in parts:
            for endpoint in FlightInfo.deserialize(part).endpoints:
                if not {location.uri for location in endpoint.locations} <= self._places:
                    raise InputError(
                        f"{self._key}: the server keeps rows of {self._name} at another address, "
                        "where nobody is asked; name a server that gives them itself",
                        key=self._key,
                    )
            cursor.adbc_read_partition(part)
            yield cursor.fetch_record_batch()

    def _mapped(self, table: pa.Table) -> pa.Table:
        """Rows whose memory is what it says; what texts hold is looked at where they are read.

        So there are none in dictionaries, which would be looked at whole.
        """
        for place, column in enumerate(table.columns):
            is_number = pa.types.is_decimal(column.type)  # of any length, whatever its type says
            column.cast(_as_bytes(column.type)).validate(full=not is_number)
            if pa.types.is_dictionary(column.type):
                plain = column.cast(column.type.value_type)
                table = table.set_column(place, table.column_names[place], plain)
        return table


def _as_bytes(kind: pa.DataType) -> pa.DataType:
    """The type of the same memory, texts as bytes, of which none is refused."""
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _as_bytes(kind.value_type), kind.ordered)
    return _BYTES.get(kind, kind)


@contextmanager
def open_flightsql(address: str, key: str) -> Iterator[Opener]:
    """Connect to the server at an address; a table of it is as it is when it is read.

    Raises InputError where the server does not let us in.
    """
    try:
        from adbc_driver_flightsql import dbapi  # noqa: PLC0415 - of an extra
    except ImportError:
        raise not_installed("flightsql") from None
    scheme, _, rest = address.partition("://")
    user, _, host = rest.rpartition("@")
    place, options = f"{scheme}://{host}", _OPTIONS | _who(unquote(user), key)
    for name, seconds in _LIMITS.items():
        options[f"adbc.flight.sql.rpc.timeout_seconds.{name}"] = str(seconds)
    with plain_errors(key, "the server", _UNREACHABLE):
        connection = dbapi.connect(place, db_kwargs=options, autocommit=True)
    with connection:
        with plain_errors(key, "the server", _UNREACHABLE):
            connection.adbc_get_objects(depth="catalogs").read_all()
        yield lambda of, name, _: _FlightSQL(of, name, connection, place)


def _who(user: str, key: str) -> dict[str, str]:
    """Who asks, for the driver."""
    password, token = _secret("FLIGHTSQL_PASSWORD"), _secret("FLIGHTSQL_TOKEN")
    if bool(user) != bool(password) or (user and token):
        raise InputError(f"{key}: {_WHO}", key=key)
    if token:
        return {"adbc.flight.sql.authorization_header": f"Bearer {token}"}
    return {"username": user, "password": password} if user else {}


def _secret(name: str) -> str:
    """What the environment has under a name, or in the file that it names."""
    file = os.environ.get(f"{name}_FILE")
    if not file:
        return os.environ.get(name, "")
    try:
        return read_small_text(Path(file), _LONGEST).removesuffix("\n")
    except UnreadableError:
        raise InputError(f"the environment's {name}_FILE names no file that can be read") from None
