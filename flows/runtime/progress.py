"""How far long work has come: a line on a terminal, and per cent for Prefect.

The line has rows, rate and time left; it is for the operator's eyes, and nothing is written where
standard error is no terminal. Prefect, whose database others may read, is told per cent alone: how
many events there are can be an outcome.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from types import TracebackType
from typing import Self

from flows.runtime.logs import is_json, of_night
from flows.runtime.terminal import line_width

_QUIET = 1.0  # seconds that work may take before it is told of
_EVERY = 0.2  # seconds between two lines
_ARTIFACT_QUIET = 5.0
_ARTIFACT_EVERY = 5.0
_TICK = 1.0  # seconds between two looks whether to tell of the time
_PATIENCE = 2.0  # seconds without other progress, before it is told how long a command has worked


class _Line:
    """The last line of the terminal that standard error is, for as long as something is shown."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._is_there = False
        self.progress_at = 0.0
        """When progress of a known kind was shown last."""

    def show(self, text: str) -> None:
        """Put ``text``, as much of it as fits, in place of what is shown."""
        with self._lock:
            fitting = text[: (line_width(sys.stderr) or 0) - 1]
            self._write(f"\r\x1b[K{fitting}")
            self._is_there = True

    def clear(self) -> None:
        """Take away what is shown, if anything is."""
        with self._lock:
            if self._is_there:
                self._write("\r\x1b[K")
            self._is_there = False

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


_line = _Line()


def _can_show() -> bool:
    """Whether standard error is a terminal that can take a line away again, for people."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not is_json()


class LineHandler(logging.StreamHandler):  # type: ignore[type-arg] # it takes none when it runs
    """Writes a log to standard error, above the line that is shown there."""

    def emit(self, record: logging.LogRecord) -> None:
        """Take the line away, then write; what shows it brings it back."""
        _line.clear()
        super().emit(record)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show for how long work has gone on, on a terminal where no other progress is shown.

    It says nothing but the time, so work of any kind may be told of.
    """
    if not _can_show():
        yield
        return
    ended = threading.Event()
    clock = threading.Thread(target=_tell_time, args=(what, ended), daemon=True)
    clock.start()
    try:
        yield
    finally:
        ended.set()
        clock.join()
        _line.clear()


def _tell_time(what: str, ended: threading.Event) -> None:
    begun = time.monotonic()
    while not ended.wait(_TICK):
        now = time.monotonic()
        if now - max(begun, _line.progress_at) > _PATIENCE:
            _line.show(f"{what}: {_duration(now - begun)}")


class Progress:
    """Tells of one piece of work, ``total`` rows if that is known; a context manager."""

    def __init__(self, what: str, total: int | None = None) -> None:
        """Begin with nothing done."""
        self._what = what
        self._named = of_night(what)
        self._total = total
        self._done = 0
        self._begun = self._told = self._sent = time.monotonic()
        self._artifact: object | None = None
        # Work may go on in a library's thread, which knows nothing of the flow this is made in.
        self._context = copy_context()

    def __enter__(self) -> Self:
        """Begin to count the time."""
        self._begun = self._told = self._sent = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the line away: what comes after it says how long it took."""
        _line.clear()
        if self._artifact is not None and kind is None:
            self._send(100.0)

    def advance(self, rows: int) -> None:
        """Count ``rows`` more as done."""
        self._done += rows
        now = time.monotonic()
        if now - self._begun > _QUIET and now - self._told > _EVERY and _can_show():
            self._told = _line.progress_at = now
            _line.show(self.line(now - self._begun))
        late = now - self._begun > _ARTIFACT_QUIET and now - self._sent > _ARTIFACT_EVERY
        if self._total and late:
            self._sent = now
            self._send(min(100.0 * self._done / self._total, 100.0))

    def line(self, seconds: float) -> str:
        """What a person reads after ``seconds`` of work."""
        rate = self._done / max(seconds, 1e-9)
        told = f"{self._named}: {self._done:,} rows, {rate:,.0f} a second"
        if not self._total or not self._done:
            return told
        left = max(self._total - self._done, 0) / rate
        return f"{told}, {min(self._done / self._total, 1):.0%}, {_duration(left)} left"

    def _send(self, per_cent: float) -> None:
        """Tell Prefect, where this was made in a flow; its server's troubles are none of ours."""
        self._context.run(self._send_here, per_cent)

    def _send_here(self, per_cent: float) -> None:
        prefect = sys.modules.get("prefect")
        if prefect is None:
            return
        from prefect.artifacts import (  # noqa: PLC0415 - plain runs do without Prefect
            create_progress_artifact,
            update_progress_artifact,
        )
        from prefect.context import FlowRunContext  # noqa: PLC0415 - likewise

        if FlowRunContext.get() is None:
            return
        whole = round(per_cent)
        try:
            if self._artifact is None:
                self._artifact = create_progress_artifact(
                    progress=whole, key=_key(self._what), description=self._what
                )
            else:
                # The id is kept as an object, so that Prefect's types are not imported without it.
                update_progress_artifact(artifact_id=self._artifact, progress=whole)  # type: ignore[arg-type]
        except Exception:  # noqa: S110 - progress is a courtesy, never a reason to fail
            pass


def _key(what: str) -> str:
    return "clusterdp-" + what.replace(" ", "-")


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return (
        f"{minutes // 60} h {minutes % 60:02d} min"
        if minutes >= 60
        else f"{minutes} min {rest:02d} s"
    )
