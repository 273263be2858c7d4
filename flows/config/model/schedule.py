"""``[schedule]``: which days an experiment is released for, and when each of them is due."""

from datetime import date, datetime
from typing import Annotated, Literal

from pydantic import BeforeValidator

from flows.config.model.sections import ConfigSection, Name


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
