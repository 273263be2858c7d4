"""Logs as JSON (``--log-json``): one object a line, with what is known of the run it is of.

Fields: ``time`` (UTC), ``level``, ``message``; ``experiment``, ``period``, ``run`` and
``release_id`` within a run, as far as they are known; and what a line has of its own. A run's
identifier is drawn when it begins, and says nothing. People's text begins with the experiment and
the period.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from schemas.visible import visible

OPTION = "--log-json"
_LOG = logging.getLogger("clusterdp")
_OWN = "clusterdp_fields"
_known: ContextVar[dict[str, str] | None] = ContextVar("known of the run", default=None)
_chosen: list[bool] = [False]


class JsonFormatter(logging.Formatter):
    """Lines of a log as JSON; Prefect makes them of its own lines, too."""

    def __init__(self, *_: object, **__: object) -> None:
        """Take what a logging configuration hands to formatters; none of it is of use."""
        super().__init__()

    def format(self, record: logging.LogRecord) -> str:
        """One object on one line, in which every character can be seen."""
        moment = datetime.fromtimestamp(record.created, UTC)
        told: dict[str, Any] = {
            "time": f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z",
            "level": record.levelname.lower(),
            "message": visible(record.getMessage(), keep="\n"),
            **(_known.get() or {}),
            **getattr(record, _OWN, {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            told["error"] = record.exc_info[0].__name__  # never its text, which may hold anything
        return json.dumps(told, default=str)


def choose_json(*, chosen: bool) -> None:
    """Let whoever tells people something tell it as a line of JSON, or as text again."""
    _chosen[0] = chosen


def is_json() -> bool:
    """Whether standard error has lines of JSON alone."""
    return _chosen[0]


@contextmanager
def known(**facts: str) -> Iterator[None]:
    """Put these facts (experiment, period, run) into all lines of the block."""
    before = _known.set({**(_known.get() or {}), **facts})
    try:
        yield
    finally:
        _known.reset(before)


def learn(**facts: str) -> None:
    """Put more facts into the lines that follow, to the end of the block of :func:`known`."""
    now = _known.get()
    if now is not None:
        now.update(facts)


def tell(level: int, message: str, **fields: Any) -> None:
    """Write a line that only JSON has: people are told the same in another way, or see it."""
    if is_json():
        log_line(level, message, **fields)


def warn(message: str) -> None:
    """Tell people of something that stops nothing, wherever they look."""
    line = message if is_json() else f"clusterdp: warning: {of_night(message)}"
    log_line(logging.WARNING, line)


def of_night(message: str) -> str:
    """A line for people, which names the experiment and period of the run that it is of, if of one.

    Lines of JSON have them as fields.
    """
    known = _known.get() or {}
    named = " ".join(known[name] for name in ("experiment", "period") if name in known)
    has_it = not named or message.startswith(f"{named}: ")
    return message if has_it or is_json() else f"{named}: {message}"


def log_line(level: int, message: str, **fields: Any) -> None:
    """Write a line, with fields of its own where lines are JSON."""
    _LOG.log(level, "%s", message, extra={_OWN: fields})
