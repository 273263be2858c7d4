"""What ``[schedule]`` must be like with the rest of a configuration; every error names a key."""

from flows.config.model.experiment import Config
from schemas.errors import ConfigError


def check_schedule(config: Config) -> None:
    """Raise ConfigError unless the schedule, if there is one, goes with the other keys."""
    if config.schedule is None:
        return
    _ = config.calendar
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
