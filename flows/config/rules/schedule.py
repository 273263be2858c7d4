"""What ``[schedule]`` must be like with the rest of a configuration; every error names a key."""

from datetime import date, timedelta

from flows.config.model.experiment import Config
from flows.config.model.schedule import ScheduleSection
from flows.schedule.durations import length_of
from flows.schedule.periods import FIRST, LAST, Schedule, day_of, zone_of
from schemas.errors import ConfigError, shown


def check_schedule(config: Config) -> None:
    """Raise ConfigError unless the schedule, if there is one, goes with the other keys."""
    schedule = schedule_of(config)
    if config.schedule is None or schedule is None:
        return
    source, events = config.source, config.schedule.events
    if "{period}" not in source.path:
        raise ConfigError(
            "source.path",
            "has no {period}; with [schedule] a period is a day, whose files it names",
        )
    if source.grain == "unit":
        if events is not None:
            raise ConfigError("schedule.events", 'belongs to grain = "event"')
        return
    if source.window is None:
        raise ConfigError(
            "source.window",
            "missing: with [schedule] and outcome events a period is due once its window is over",
        )
    if events is not None and "{period}" not in (source.outcomes_path or ""):
        raise ConfigError(
            "schedule.events", "is about files of days, and source.outcomes_path has no {period}"
        )


def schedule_of(config: Config) -> Schedule | None:
    """The schedule of an experiment; None where it has none. Raises ConfigError naming a key."""
    section = config.schedule
    if section is None:
        return None
    zone = zone_of(section.timezone)
    if zone is None:
        raise ConfigError(
            "schedule.timezone",
            f"{shown(section.timezone)} is not a time zone such as Europe/Zurich",
        )
    window = config.source.window_microseconds if config.source.grain == "event" else None
    return Schedule(
        since=_day("since", section.since),
        until=_until(section),
        zone=zone,
        window=timedelta(microseconds=window or 0),
        lateness=_length("lateness", section.lateness),
        missing_after=_length("missing_after", section.missing_after),
        whole_days=section.events == "may_be_absent",
    )


def _until(section: ScheduleSection) -> date | None:
    if section.until is None:
        return None
    until = _day("until", section.until)
    if until < _day("since", section.since):
        raise ConfigError(
            "schedule.until",
            f"{until} is before schedule.since ({section.since})",
        )
    return until


def _day(key: str, text: str) -> date:
    day = day_of(text)
    if day is None:
        raise ConfigError(
            f"schedule.{key}", f"{shown(text)} is no day from {FIRST} to {LAST}, as YYYY-MM-DD"
        )
    return day


def _length(key: str, text: str) -> timedelta:
    length = length_of(text)
    if length is None:
        raise ConfigError(
            f"schedule.{key}",
            f'{shown(text)} is not a whole number and d, h, m or s, such as "2d", "12h", "30m" or '
            '"0s", of a century at most',
        )
    return length
