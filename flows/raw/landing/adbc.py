"""Tables of databases, by ADBC: named columns of a table, never a query of somebody else's.

Names are quoted, and values are parameters.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import pyarrow as pa

from flows.raw.landing.spans import Span
from flows.raw.landing.tables import plain_errors
from schemas.errors import InputError

UNREADABLE = "cannot be read; may this user read it, all its rows?"
"""What is said where a database does not give a table."""
_ODD = "answers with other columns than it has; see whether its server works, and run it again"


class DatabaseTable(ABC):
    """A table within a connection, which is gone with it."""

    version = None
    schema: pa.Schema
    _mark: ClassVar[str]
    """How a parameter is written, by its place."""

    def __init__(self, key: str, name: str, connection: Any) -> None:
        """Of a key of the configuration; its columns are what subclasses find out."""
        self._key, self._name, self._connection = key, name, connection
        self._quoted = ".".join(map(quoted, name.split(".")))

    def pieces(self, columns: Sequence[str], span: Span | None) -> Iterator[pa.Table]:
        """These columns of the rows of a span."""
        where, values = "", ()
        if span is not None:
            column = self._expression(span.column)
            values = span.values or (span.begin, span.end)
            marks = [self._mark.format(place) for place in range(1, len(values) + 1)]
            where = f"WHERE {column} IN ({', '.join(marks)})"
            if span.begin is not None:
                where = f"WHERE {column} >= {marks[0]} AND {column} < {marks[1]}"
        wanted = [(name, self.schema.field(name).type) for name in columns]
        with plain_errors(self._key, self._name, UNREADABLE), self._cursor() as cursor:
            _, readers = self._answer(cursor, self._query(self._named(columns), where), values)
            for batch in (batch for reader in readers for batch in reader):
                piece = self._mapped(pa.Table.from_batches([batch]))
                if [(field.name, field.type) for field in piece.schema] != wanted:
                    raise InputError(f"{self._key}: {self._name} {_ODD}", key=self._key)
                yield piece

    def _check_stored(
        self, kinds: set[str], stored: frozenset[str], otherwise: tuple[str, str]
    ) -> None:
        """Refuse a name of nothing, and one of what is not stored, with words for it."""
        if not kinds:
            problem = f"there is no table {self._name}; correct the name"
        elif not kinds <= stored:
            found, instead = otherwise
            problem = (
                f"{self._name} is {found}, and whether its query succeeds may follow from "
                f"outcomes; name {instead}"
            )
        else:
            return
        raise InputError(f"{self._key}: {problem}", key=self._key)

    def _schema(self, selected: str) -> pa.Schema:
        """What is selected, without its rows."""
        with self._cursor() as cursor:
            schema, _ = self._answer(cursor, self._query(selected, "WHERE 1 = 0"), ())
        return self._mapped(schema.empty_table()).schema

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        """A cursor. One whose statement a server would not close is not closed anew when it goes.

        That would be told, and it does not matter to what was read.
        """
        cursor = self._connection.cursor()
        try:
            yield cursor
        finally:
            try:
                cursor.close()
            except Exception:
                cursor._closed = True

    def _query(self, selected: str, where: str) -> str:
        return f"SELECT {selected} FROM {self._quoted} {where}"  # noqa: S608 - quoted

    def _named(self, columns: Iterable[str]) -> str:
        return ", ".join(f"{self._expression(name)} AS {quoted(name)}" for name in columns)

    @abstractmethod
    def _answer(
        self, cursor: Any, query: str, values: tuple[Any, ...]
    ) -> tuple[pa.Schema, Iterable[pa.RecordBatchReader]]:
        """What a query gives: of what columns, and what reads it."""

    def _expression(self, name: str) -> str:
        """What is selected of a column."""
        return quoted(name)

    def _mapped(self, table: pa.Table) -> pa.Table:
        """Rows as they are landed."""
        return table


def quoted(name: str) -> str:
    """A name as SQL has it."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
