"""What ``[retention]`` must be like; every error names a key."""

from datetime import timedelta
from typing import TYPE_CHECKING

from flows.config.model.retention import RetentionSection
from flows.schedule.durations import length_of
from schemas.errors import ConfigError, shown

if TYPE_CHECKING:
    from flows.config.model.experiment import Config

_LEAST = timedelta(days=1)


def check_retention(config: "Config") -> None:
    """Raise ConfigError unless the section, if there is one, says how long something is kept."""
    if config.retention is not None:
        lengths_of(config.retention)


def lengths_of(section: RetentionSection) -> dict[str, timedelta]:
    """For how long each kind is kept that is pruned at all. Raises ConfigError naming a key."""
    given = {name: value for name, value in section if value is not None}
    if not given:
        raise ConfigError(
            "retention",
            "prunes nothing: give quarantine, spill or releases, or leave the section out",
        )
    return {name: _length(f"retention.{name}", str(text)) for name, text in given.items()}


def _length(key: str, text: str) -> timedelta:
    length = length_of(text)
    if length is None:
        raise ConfigError(
            key,
            f'{shown(text)} is not a whole number and d, h, m or s, such as "30d" or "48h", of a '
            "century at most",
        )
    if length < _LEAST:
        raise ConfigError(key, f"{shown(text)} is less than a day; what is so new is still in use")
    return length
