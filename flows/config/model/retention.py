"""``[retention]``: how long is kept what runs leave; `clusterdp prune` removes what is older."""

from datetime import timedelta

from flows.config.model.sections import ConfigSection, Name, duration
from schemas.errors import ConfigError, shown


class RetentionSection(ConfigSection):
    """How long things are kept (`prune`): a number and d or h, from "1d" on; left out: for ever."""

    quarantine: Name | None = None
    """Rows that were set aside: the files of the quarantine, from when they were written."""
    spill: Name | None = None
    """What runs that were killed have left in working folders. (Every release removes that of runs
    on this machine, whatever its age; this is for experiments that have ended.)"""
    releases: Name | None = None
    """Released files, from when they were charged; never the one that ``latest.duckdb`` is. Charges
    and lists of units stay, so nothing is ever paid back."""
    prefect: Name | None = None
    """Removes nothing: Prefect itself removes old flow runs, where its server has the settings
    ``PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED=true`` and
    ``PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD`` (seconds). `prune` says so."""

    @property
    def lengths(self) -> dict[str, timedelta]:
        """For how long each kind is kept that is pruned at all. Raises ConfigError naming a key."""
        given = {f"retention.{name}": str(text) for name, text in self if text is not None}
        if not given:
            raise ConfigError(
                "retention",
                "prunes nothing: give quarantine, spill or releases, or leave the section out",
            )
        lengths = {key: duration(key, text) for key, text in given.items()}
        for key, length in lengths.items():
            if length < timedelta(days=1):
                new = "is less than a day; what is so new is still in use"
                raise ConfigError(key, f"{shown(given[key])} {new}")
        return {key.removeprefix("retention."): length for key, length in lengths.items()}
