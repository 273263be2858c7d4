"""Which rows of a table are of a period: by a column that is the period, or a time within it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from flows.schedule.periods import day_of
from schemas.errors import InputError

KEY = "source.period"


@dataclass(frozen=True)
class Span:
    """The rows that are wanted, by the values of one column."""

    column: str
    values: tuple[Any, ...] = ()
    """The column is one of these; none where it is a time."""
    begin: datetime | None = None
    end: datetime | None = None
    """The time from which on, and before which, it is."""

    @property
    def expression(self) -> Any:
        """The condition, for pyarrow; null, which no row with a null fulfils, is dropped."""
        from pyarrow.compute import field  # noqa: PLC0415 - few logs are tables

        column = field(self.column)
        if self.begin is None:
            return column.isin(list(self.values))
        return (column >= pa.scalar(self.begin)) & (column < pa.scalar(self.end))


def span_of(column: str, kind: pa.DataType, periods: Sequence[str], zone: ZoneInfo) -> Span:
    """The rows of ``periods`` by a column of this type.

    Text is a period's name, a whole number its digits, a date its day. A time lies within the days,
    which follow one another, as the clocks of ``zone`` say where they begin; one without a zone is
    in UTC. Raises InputError where the column or a period is nothing of the kind.
    """
    days = [day for period in periods if (day := day_of(period)) is not None]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return Span(column, tuple(periods))
    if pa.types.is_integer(kind) and all(map(str.isdecimal, periods)):
        return Span(column, tuple(map(int, periods)))
    if pa.types.is_date(kind) and len(days) == len(periods):
        return Span(column, tuple(days))
    if pa.types.is_timestamp(kind) and len(days) == len(periods):
        begin, end = _start(min(days), zone), _start(max(days) + timedelta(1), zone)
        if kind.tz is None:
            begin, end = begin.replace(tzinfo=None), end.replace(tzinfo=None)
        return Span(column, begin=begin, end=end)
    raise InputError(
        f"{KEY}: column {column!r} is {str(kind).partition('[')[0]}, and the period "
        f"{periods[0]}; it has to be text, a whole number, a date or a time that a period can be",
        key=KEY,
    )


def _start(day: date, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, time.min, tzinfo=zone).astimezone(UTC)
