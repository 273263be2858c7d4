"""The periods of a schedule: days in its time zone, and when each of them is due.

Pure arithmetic, of which nothing depends on a log. Days begin and end where the clocks of the time
zone say so, and may have 23 or 25 hours, or none at all where a zone has skipped one; lengths of
time (windows, latenesses) are what has passed, whatever clocks do in between.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

FIRST, LAST = date(1970, 1, 1), date(2999, 12, 31)
"""The first and the last day that can be a period: windows and zones stay within the calendar."""

_DAY = timedelta(days=1)
_MOMENT = timedelta(microseconds=1)


def zone_of(name: str) -> ZoneInfo | None:
    """The time zone of this name, such as ``Europe/Zurich``; None where there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def day_of(period: str) -> date | None:
    """The day that a period is; None where its name is no ``YYYY-MM-DD`` of 1970 to 2999."""
    try:
        day = date.fromisoformat(period)
    except ValueError:
        return None
    return day if day.isoformat() == period and FIRST <= day <= LAST else None


@dataclass(frozen=True)
class Schedule:
    """Which days are periods, and when they are due."""

    since: date
    """The first period."""
    zone: ZoneInfo
    window: timedelta = timedelta()
    """How long outcomes count after the end of a period; 0 where they stand in its own rows."""
    lateness: timedelta = timedelta()
    """How long rows may take until they are in the log."""
    missing_after: timedelta = timedelta()
    """How long a due period may be without files before that is a failure."""
    whole_days: bool = False
    """Whether the last day that the window reaches has to be over, too. It has to where its file
    may be absent: while the day lasts nobody can tell "absent" from "not written yet", and to wait
    until it is there would tell that there was an outcome."""
    until: date | None = None
    """The last period; None where there is no end."""

    def has(self, day: date) -> bool:
        """Whether a day is within the schedule."""
        return self.since <= day and (self.until is None or day <= self.until)

    def start(self, day: date) -> datetime:
        """The moment at which a day begins, in UTC.

        Where clocks jump over midnight it is the moment of the jump; where they repeat midnight it
        is the first of both.
        """
        return datetime.combine(day, time.min, tzinfo=self.zone).astimezone(UTC)

    def end(self, day: date) -> datetime:
        """The moment at which a day ends, in UTC."""
        return self.start(day + _DAY)

    def today(self, now: datetime) -> date:
        """The day that it is in the time zone."""
        return now.astimezone(self.zone).date()

    def due_at(self, day: date) -> datetime:
        """The moment from which the period is complete, with its window and all late rows."""
        complete = self.end(day) + self.window
        if self.whole_days:
            complete = max(complete, self.end(self.days_reached(day)[-1]))
        return complete + self.lateness

    def missing_at(self, day: date) -> datetime:
        """The moment from which a period without files has failed."""
        return self.due_at(day) + self.missing_after

    def days_reached(self, day: date) -> tuple[date, ...]:
        """The days in which events of a period's units may lie: its own, and those of the window.

        An exposure lies before the end of the period, and an event counts before the end of the
        window from there.
        """
        last = self.today(self.end(day) + self.window - _MOMENT)
        return (day, *self._days(day + _DAY, last))

    def begun(self, now: datetime) -> list[date]:
        """The periods that have begun, the oldest first."""
        today = self.today(now)
        return list(self._days(self.since, today if self.until is None else min(today, self.until)))

    def next_due(self, now: datetime) -> datetime | None:
        """The next moment at which a period becomes due; None where none ever will again."""
        reach = timedelta(days=(self.window + self.lateness).days + 3)
        day = max(self.since, self.today(now) - reach)
        while self.due_at(day) <= now or self.start(day) == self.end(day):
            day += _DAY
        return self.due_at(day) if self.has(day) else None

    def _days(self, first: date, last: date) -> Iterator[date]:
        """The days between two, both of them included, but for one that the zone has skipped."""
        for number in range((last - first).days + 1):
            day = first + number * _DAY
            if self.start(day) != self.end(day):
                yield day
