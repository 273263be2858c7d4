"""What a run does to its disk and to its ledger's line, and how that fails by plan.

Each act that changes something, or asks the database, is an event. A :class:`Fault` names the event
at which the run is killed, the disk is full or the line is cut; it may come before the act or
after it, when the act is done and its answer lost.

Who was killed does nothing more: whatever handlers of its errors still try to change is let be, a
transaction that was not committed is lost, and locks go, as with a process that is gone.
"""

import errno
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any
from unittest.mock import patch

import sqlalchemy as sa

_CHANGES = ("mkdir", "rmdir", "unlink", "remove", "rename", "replace", "link", "fsync")
_TAKES_ROOM = frozenset({"mkdir", "rename", "replace", "link", "fsync", "write", "commit"})
_LINE = frozenset({"connect", "commit"})
_EVENTS = {"disk": _TAKES_ROOM, "line": _LINE}
_MOST = {"kill": 130, "disk": 50, "line": 60}
"""Events of a night, about."""
_NEAR = 8
"""Events from the link to the end of a release, about."""


class Killed(BaseException):
    """The run is killed here; nothing that catches errors catches it."""


@dataclass(frozen=True)
class Fault:
    """What goes wrong with a run, and when."""

    kind: str
    """``kill``, ``disk`` (is full) or ``line`` (to the ledger is cut)."""
    at: int
    """The event, from 0, of those that this can happen to."""
    span: int = 1
    """How many of these events fail."""
    is_after: bool = False
    """Whether the act is done, and only its answer lost."""
    of_link: bool = False
    """Whether events are counted from the first link, which makes a release public."""

    @classmethod
    def drawn(cls, kind: str, random: Random) -> "Fault":
        """A fault of a kind; half of them come while a release becomes public, where it matters."""
        of_link = random.random() < 0.5
        near = min(random.randrange(_NEAR), random.randrange(_NEAR))
        at = near if of_link else random.randrange(_MOST[kind])
        span = 1 if kind == "kill" else random.choice((1, 1, 2, 8, 10_000))
        return cls(kind, at, span, random.random() < 0.5, of_link)


class Wire:
    """The acts of the program in this process, as they go by."""

    def __init__(self) -> None:
        """Let everything through."""
        self._fault: Fault | None = None
        self._n = 0
        self._linked = self.is_dead = False
        self._thread = 0
        self.links: list[str] = []
        """The names that files were given since the wire was last armed."""

    @contextmanager
    def failing(self, fault: Fault | None) -> Iterator[None]:
        """Let a block of this thread meet a fault."""
        self._fault, self._n, self._linked, self.is_dead = fault, 0, False, False
        self._thread = threading.get_ident()
        self.links.clear()
        try:
            yield
        finally:
            self._fault, self.is_dead = None, False

    def act(self, event: str, do: Callable[[], Any]) -> Any:
        """Do what the program asks for, unless it is dead or meets its fault."""
        if threading.get_ident() != self._thread:
            return do()
        if self.is_dead:
            if event in _LINE:
                raise Killed
            return None
        self._linked |= event == "link"
        if not self._is_hit(event):
            return do()
        assert self._fault is not None
        if self._fault.is_after:
            do()
        if self._fault.kind == "kill":
            self.is_dead = True
            raise Killed
        raise _error(self._fault.kind, event)

    def _is_hit(self, event: str) -> bool:
        fault = self._fault
        if fault is None or event not in _EVENTS.get(fault.kind, {event}):
            return False
        if fault.of_link and not self._linked:
            return False
        self._n += 1
        return 0 <= self._n - 1 - fault.at < fault.span

    @contextmanager
    def laid(self) -> Iterator[None]:
        """Let all such acts of this process go by this wire."""
        dialect = sa.engine.default.DefaultDialect
        with ExitStack() as stack:
            for name in _CHANGES:
                stack.enter_context(patch.object(os, name, self._changing(name)))
            for method, event in (("connect", "connect"), ("do_commit", "commit")):
                stack.enter_context(patch.object(dialect, method, self._asking(method, event)))
            yield

    def _changing(self, name: str) -> Callable[..., Any]:
        original = getattr(os, name)

        def change(*given: Any, **named: Any) -> Any:
            def do() -> Any:
                done = original(*given, **named)
                if name == "link":
                    self.links.append(os.fspath(given[1]))
                return done

            return self.act(name, do)

        return change

    def _asking(self, method: str, event: str) -> Callable[..., Any]:
        original = getattr(sa.engine.default.DefaultDialect, method)

        def ask(dialect: Any, *given: Any, **named: Any) -> Any:
            return self.act(event, lambda: original(dialect, *given, **named))

        return ask


def _error(kind: str, event: str) -> Exception:
    if event not in _LINE:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    words = "database or disk is full" if kind == "disk" else "the line was cut"
    return sqlite3.OperationalError(words)
