"""``[schedule]``: which days an experiment is released for, and when each of them is due."""

from datetime import date, datetime, timedelta
from typing import Annotated, Literal

from pydantic import BeforeValidator

from flows.config.model.sections import ConfigSection, Name, duration
from flows.schedule.periods import FIRST, LAST, Schedule, day_of, zone_of
from schemas.errors import ConfigError, shown


def _as_text(value: object) -> object:
    """TOML has dates of its own."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    return value


class ScheduleSection(ConfigSection):
    """Which days are released (`release --due`, `serve`), and when each of them is due."""

    since: Annotated[Name, BeforeValidator(_as_text)]
    """The first period, YYYY-MM-DD. Every day from it on is one; ``source.path`` has
    ``{period}``."""
    until: Annotated[Name | None, BeforeValidator(_as_text)] = None
    """The last period, YYYY-MM-DD: no later one is ever due, and the experiment is closed once it
    is. None: no end."""
    timezone: Name = "UTC"
    """Where days begin and end, such as "Europe/Zurich"."""
    lateness: Name = "2h"
    """How long rows may take until they are in the log: a whole number and d, h, m or s. A period
    is due at its end + ``source.window`` + this."""
    missing_after: Name = "2d"
    """How long a due period may be without files before that counts as a failure."""
    events: Literal["required", "may_be_absent"] | None = None
    """Of grain "event": whether every day has a file of outcome events ("required", the default:
    without it nothing is released), or has none where nothing happened ("may_be_absent": the day is
    taken for one without events)."""


def schedule_of(section: ScheduleSection, window: int | None) -> Schedule:
    """The schedule of an experiment, by how many microseconds events count for.

    Raises ConfigError naming a key.
    """
    zone = zone_of(section.timezone)
    if zone is None:
        raise ConfigError(
            "schedule.timezone",
            f"{shown(section.timezone)} is not a time zone such as Europe/Zurich",
        )
    since = _day("since", section.since)
    until = None if section.until is None else _day("until", section.until)
    if until is not None and until < since:
        raise ConfigError("schedule.until", f"{until} is before schedule.since ({since})")
    return Schedule(
        since=since,
        until=until,
        zone=zone,
        window=timedelta(microseconds=window or 0),
        lateness=duration("schedule.lateness", section.lateness),
        missing_after=duration("schedule.missing_after", section.missing_after),
        whole_days=section.events == "may_be_absent",
    )


def _day(key: str, text: str) -> date:
    day = day_of(text)
    if day is None:
        raise ConfigError(
            f"schedule.{key}", f"{shown(text)} is no day from {FIRST} to {LAST}, as YYYY-MM-DD"
        )
    return day
