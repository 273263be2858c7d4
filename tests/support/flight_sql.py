"""A server that speaks as much of Flight SQL as a driver asks for, over tables of DuckDB.

It listens on the loopback interface, or a Unix socket, alone, and is gone with the test.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
from pyarrow import flight

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

USER, PASSWORD, TOKEN = "reader", "open-sesame", "let-me-in"
_TYPES = "type.googleapis.com/arrow.flight.protocol.sql."
_CATALOGS = pa.schema([pa.field("catalog_name", pa.string(), nullable=False)])
_SCHEMAS = pa.schema(
    [
        pa.field("catalog_name", pa.string()),
        pa.field("db_schema_name", pa.string(), nullable=False),
    ]
)
_TABLES = pa.schema(
    [
        pa.field("catalog_name", pa.string()),
        pa.field("db_schema_name", pa.string()),
        pa.field("table_name", pa.string(), nullable=False),
        pa.field("table_type", pa.string(), nullable=False),
    ]
)
_LISTS = {
    "CommandGetCatalogs": (_CATALOGS, "SELECT DISTINCT table_catalog FROM listed"),
    "CommandGetDbSchemas": (_SCHEMAS, "SELECT DISTINCT table_catalog, table_schema FROM listed"),
    "CommandGetTables": (
        _TABLES,
        "SELECT table_catalog, table_schema, table_name, table_type FROM listed",
    ),
}


def packed(values: Mapping[int, bytes]) -> bytes:
    """A message of Protocol Buffers with fields of bytes."""
    return b"".join(
        _varint(number << 3 | 2) + _varint(len(value)) + value for number, value in values.items()
    )


def unpacked(message: bytes) -> dict[int, bytes]:
    """The fields of a message that are bytes; of one that is repeated the last."""
    found, place = {}, 0
    while place < len(message):
        tag, place = _number(message, place)
        length, place = _number(message, place)
        if tag & 7 == 2:
            found[tag >> 3] = message[place : place + length]
            place += length
    return found


def _any(name: str, values: Mapping[int, bytes]) -> bytes:
    return packed({1: f"{_TYPES}{name}".encode(), 2: packed(values)})


def _asked(message: bytes) -> tuple[str, dict[int, bytes]]:
    both = unpacked(message)
    return both[1].decode().removeprefix(_TYPES), unpacked(both.get(2, b""))


def _varint(number: int) -> bytes:
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def _number(message: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[place]
        number |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return number, place


@dataclass
class Odd:
    """In what a server answers otherwise than it should; by default in nothing."""

    info: Callable[[flight.FlightInfo], flight.FlightInfo] = lambda info: info
    """What it says of a query's rows."""
    rows: Callable[[pa.Table], Any] = lambda rows: rows
    """The rows of a query: a table, or what a stream of them is made of."""
    listed: Callable[[pa.Table], pa.Table] = lambda listed: listed
    """What it lists of tables."""


@dataclass
class _Caller(flight.ServerMiddleware):  # type: ignore[misc] # pyarrow has no types
    """A call of somebody who is let in."""

    def sending_headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {TOKEN}"}


class _Door(flight.ServerMiddlewareFactory):  # type: ignore[misc] # pyarrow has no types
    """Lets in who has the password, or a token that it was given for it."""

    def start_call(self, _: Any, headers: Mapping[str, list[str]]) -> _Caller:
        given = headers.get("authorization", [])  # a driver may send it more than once
        basic = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if not {*given} & {f"Basic {basic}", f"Bearer {TOKEN}"}:
            raise flight.FlightUnauthenticatedError(f"nobody lets {given} in")  # a driver quotes it
        return _Caller()


class _Greeting(flight.ServerAuthHandler):  # type: ignore[misc] # pyarrow has no types
    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """What the door has looked at."""

    def is_valid(self, _: bytes) -> str:
        return ""


class FlightSQL(flight.FlightServerBase):  # type: ignore[misc] # pyarrow has no types
    """The server, with a database."""

    def __init__(
        self, where: str = "grpc://127.0.0.1:0", pem: bytes = b"", *, is_guarded: bool = False
    ) -> None:
        how: dict[str, Any] = {}
        if pem:
            how = {"tls_certificates": [flight.CertKeyPair(pem, pem)]}
        if is_guarded:
            how |= {"middleware": {"door": _Door()}, "auth_handler": _Greeting()}
        super().__init__(where, **how)
        self.at = where.replace(":0", f":{self.port}")
        self.database = duckdb.connect()
        self.odd = Odd()
        self.queries: list[str] = []
        self._numbers = count(1)
        self._prepared: dict[bytes, tuple[str, list[Any]]] = {}

    def do_action(self, _: Any, action: flight.Action) -> list[flight.Result]:
        name, asked = _asked(action.body.to_pybytes())
        if name == "ActionClosePreparedStatementRequest":
            self._prepared.pop(asked[1], None)
            return []
        assert name == "ActionCreatePreparedStatementRequest"
        handle = str(next(self._numbers)).encode()
        self._prepared[handle] = (asked[1].decode(), [])
        made = _any("ActionCreatePreparedStatementResult", {1: handle})
        return [flight.Result(pa.py_buffer(made))]

    def do_put(self, _: Any, descriptor: flight.FlightDescriptor, reader: Any, __: Any) -> None:
        _name, asked = _asked(descriptor.command)
        (row,) = reader.read_all().to_pylist()
        query, _none = self._prepared[asked[1]]
        self._prepared[asked[1]] = (query, list(row.values()))

    def get_flight_info(self, _: Any, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        name, asked = _asked(descriptor.command)
        endpoint = flight.FlightEndpoint(descriptor.command, [])
        if name in _LISTS:
            return flight.FlightInfo(_LISTS[name][0], descriptor, [endpoint], -1, -1)
        if name != "CommandPreparedStatementQuery":
            raise NotImplementedError(name)
        schema = self._run(asked[1]).schema
        return self.odd.info(flight.FlightInfo(schema, descriptor, [endpoint], -1, -1))

    def do_get(self, _: Any, ticket: flight.Ticket) -> Any:
        name, asked = _asked(ticket.ticket)
        if name in _LISTS:
            return flight.RecordBatchStream(self._list(name, asked))
        rows = self.odd.rows(self._run(asked[1]))
        if isinstance(rows, pa.Table):
            return flight.RecordBatchStream(rows)
        return flight.GeneratorStream(*rows)

    def _run(self, handle: bytes) -> pa.Table:
        query, values = self._prepared[handle]
        self.queries.append(query)
        return self.database.cursor().sql(query, params=values).to_arrow_table()

    def _list(self, name: str, asked: dict[int, bytes]) -> pa.Table:
        schema, query = _LISTS[name]
        wanted = asked.get(3, b"%").decode() if name == "CommandGetTables" else "%"
        listed = "WITH listed AS (SELECT * FROM information_schema.tables WHERE table_name LIKE ?) "
        found = self.database.cursor().sql(listed + query, params=[wanted]).to_arrow_table()
        return self.odd.listed(found.rename_columns(schema.names).cast(schema))
