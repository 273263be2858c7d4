"""The time, for all that goes by it: schedules, and what is told of attempts.

Ask for it as ``clock.now()``, so that a test that replaces this one function moves every clock. No
configuration, option or variable of the environment can.
"""

from datetime import UTC, datetime


def now() -> datetime:
    """The time now, in UTC."""
    return datetime.now(UTC)
