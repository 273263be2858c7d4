"""Paths that hold a period: ``{period}`` as it is named, ``{period:%Y%m%d}`` as its day."""

import re
from datetime import date, timedelta
from functools import cache, partial

from flows.schedule.periods import day_of

_PERIOD = re.compile(r"\{period(?::((?:[^%{}*?\[\]\0]*+%[YymdjGVu])++[^%{}*?\[\]\0]*+))?\}")
_DAYS = 800
"""So many days tell each other apart by a pattern only if all do, but for a year of two digits."""


def has_period(pattern: str) -> bool:
    """Whether a pattern names the period."""
    return _PERIOD.search(pattern) is not None


def needs_day(pattern: str) -> bool:
    """Whether a pattern writes the period as a day, so that it has to be one."""
    return any(found[1] for found in _PERIOD.finditer(pattern))


def is_misspelt(pattern: str) -> bool:
    """Whether ``{period:`` begins what is no form of days."""
    return "{period:" in _PERIOD.sub("", pattern)


def filled(pattern: str, period: str) -> str:
    """The pattern for a period, which is a day if that is needed."""
    return _PERIOD.sub(partial(_written, period), pattern)


def of_any_period(pattern: str) -> str:
    """The pattern with ``*`` where the period stands."""
    return _PERIOD.sub(lambda found: re.sub("[^/]+", "*", found[1] or "*"), pattern)


@cache
def tells_days_apart(pattern: str) -> bool:
    """Whether different days have different paths."""
    days = [date(2024, 1, 1) + timedelta(day) for day in range(_DAYS)]
    return len({filled(pattern, day.isoformat()) for day in days}) == _DAYS


def _written(period: str, found: re.Match[str]) -> str:
    if found[1] is None:
        return period
    day = day_of(period)
    if day is None:
        raise AssertionError("a period is a day where a path writes one")
    return day.strftime(found[1])
