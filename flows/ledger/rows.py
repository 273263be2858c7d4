"""One codec for the rows of a ledger's tables: a row is read as a frozen dataclass, and written so.

Somebody may have edited a ledger by hand, or another program may have written to it. What such a
row means nobody knows, and a guess could let people pay more than they may: so a row that this
program did not write is refused, by its table and column.
"""

import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import sqlalchemy as sa

from schemas.errors import InputError, shown

R = TypeVar("R")


def raw_rows(table: sa.Table) -> sa.Select[Any]:
    """Whole rows as the database gives them: SQLite keeps values of any type."""
    return sa.select(sa.text("*")).select_from(table)


@dataclass(frozen=True)
class _Field:
    """A field of a record: a column, or several that are the fields of a dataclass."""

    make: Callable[..., Any]
    """Makes it of the values of its columns."""
    is_optional: bool
    columns: dict[str, Any]
    """The type of each."""


class RowCodec(Generic[R]):
    """Reads rows of a table as records of a frozen dataclass, and writes such records."""

    def __init__(
        self,
        table: sa.Table,
        record: type[R],
        named_by: str = "id",
        advice: str = "",
        **parts: tuple[str, ...],
    ) -> None:
        """A field is the column of its name, or the columns that ``parts`` has for it.

        A row that is refused is ``named_by`` a column; ``advice`` says what else can be done.
        """
        self._table, self._record = table, record
        self._named_by, self._advice = named_by, advice
        self._fields: dict[str, _Field] = {}
        for name, hint in get_type_hints(record).items():
            is_optional = NoneType in get_args(hint)
            kind = get_args(hint)[0] if is_optional else hint
            has_parts = is_dataclass(kind)
            kinds = get_type_hints(kind).values() if has_parts else [kind]
            columns = dict(zip(parts.get(name, (name,)), kinds, strict=True))
            self._fields[name] = _Field(
                kind if has_parts else lambda value: value, is_optional, columns
            )

    def read(self, row: Mapping[Any, Any]) -> R:
        """The record that a row is; raises InputError where it is none."""
        try:
            found = {name: self._read(row, each) for name, each in self._fields.items()}
        except KeyError as error:
            raise InputError(
                f"the ledger's table {self._table.name} has no such column: {error.args[0]}; "
                f"nobody but clusterdp may write to it, so put it back, from a copy{self._advice}"
            ) from None
        return self._record(**found)

    def _read(self, row: Mapping[Any, Any], field: _Field) -> Any:
        """A field of a record: None where it may be, and its first column is null."""
        if field.is_optional and row[next(iter(field.columns))] is None:
            return None
        values = []
        for column, kind in field.columns.items():
            try:
                values.append(_value(kind, row[column], may_be_empty=field.is_optional))
            except ValueError as error:
                raise self.wrong(row, column, str(error)) from None
        return field.make(*values)

    def wrong(self, row: Mapping[Any, Any], column: str, why: str) -> InputError:
        """Say what is wrong with a column; digests are not for anybody's eyes."""
        value = row[column]
        said = "" if column.endswith("_digest") or value is None else f" {shown(value)}"
        return InputError(
            f"the ledger's table {self._table.name}: {column}{said} in the row with the "
            f"{self._named_by} {shown(row[self._named_by])} is {why}; nobody but clusterdp may "
            f"write to a ledger, so put the row back as it was, from a copy{self._advice}"
        )

    def values(self, **record: Any) -> dict[str, Any]:
        """What is written of some fields of a record, by column."""
        row: dict[str, Any] = {}
        for name, value in record.items():
            columns = self._fields[name].columns
            whole = is_dataclass(value)
            parts = [getattr(value, each.name) for each in fields(value)] if whole else [value]
            row |= zip(columns, parts if value is not None else [None] * len(columns), strict=True)
        return {name: _written(value, self._table.c[name]) for name, value in row.items()}


def _value(kind: Any, value: Any, *, may_be_empty: bool) -> Any:
    """A value of a column as one of a ``kind``; raises ValueError that says what it is instead."""
    if kind is int:
        if isinstance(value, int) and value >= 0:
            return value
        raise ValueError("not a whole number from 0 on")
    if kind is datetime:
        return _moment(value)
    if value is None or (value == "" and not (may_be_empty and kind is str)):
        raise ValueError("empty")
    if not isinstance(value, str):
        raise ValueError("not text")
    if get_origin(kind) is Mapping:
        return _by_name(get_args(kind)[1], value)
    return _amount(value) if kind is float else _of_text(kind, value)


def _of_text(kind: type[str | Path | StrEnum], text: str) -> str | Path | StrEnum:
    if issubclass(kind, Path) and "\0" in text:
        raise ValueError("no path")
    if issubclass(kind, StrEnum) and text not in tuple(kind):
        raise ValueError(f"none of {', '.join(kind)}")
    return kind(text)


def _by_name(kind: Any, text: str) -> dict[str, Any]:
    """Values of a ``kind`` by name, in JSON."""
    with suppress(ValueError):
        values = json.loads(text)
        if isinstance(values, dict):
            return {name: _value(kind, one, may_be_empty=False) for name, one in values.items()}
    raise ValueError("not what stands by name in JSON")


def _amount(value: str) -> float:
    """An ε or δ as it is written: text, for a double would say more digits than were meant."""
    number = math.nan
    with suppress(ValueError, OverflowError):
        number = float(value)
    if not (number >= 0.0 and math.isfinite(number)):
        raise ValueError("not a number from 0 on")
    return number


def _moment(value: Any) -> datetime:
    """UTC; SQLite keeps times as text, and so do some columns."""
    with suppress(ValueError, OverflowError):
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        if isinstance(moment, datetime):
            return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    raise ValueError("not a time")


def _written(value: Any, column: sa.Column[Any]) -> Any:
    """A value as the ledger has it: amounts with all their digits, times in whole seconds."""
    if isinstance(value, datetime):
        moment = value.astimezone(UTC).replace(microsecond=0)
        in_text = isinstance(column.type, sa.Text)
        return moment.isoformat() if in_text else moment.replace(tzinfo=None)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Mapping):
        return json.dumps(dict(value))
    return str(value) if isinstance(value, Path | StrEnum) else value
