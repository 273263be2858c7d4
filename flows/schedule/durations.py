"""Lengths of time as configurations write them."""

import re
from datetime import timedelta

_LENGTH = re.compile(r"(0|[1-9][0-9]{0,9})([dhms])")
_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_LONGEST = timedelta(days=36_525)


def length_of(text: str) -> timedelta | None:
    """Read ``2d``, ``12h``, ``30m`` or ``90s``; None for any other text, or over a century.

    A day has 24 hours, whatever clocks do.
    """
    match = _LENGTH.fullmatch(text)
    if match is None:
        return None
    seconds = int(match[1]) * _SECONDS[match[2]]
    return timedelta(seconds=seconds) if seconds <= _LONGEST.total_seconds() else None
