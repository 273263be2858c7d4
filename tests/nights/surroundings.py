"""What a night has around it, in this process: a clock, a store of logs and a webhook.

The store is a folder behind the functions of the program that ask a store; its errors are spelt as
the libraries spell them. The webhook is asked by the program's own thread for it.
"""

import io
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.message import Message
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from urllib import request
from urllib.error import HTTPError

from pyarrow import fs

from flows.operate.watch import sending
from flows.raw.reading import stored_logs, stores
from flows.runtime import clock

_NO_ANSWER = "AWS Error NETWORK_CONNECTION during {} operation: curlCode: 28, Timeout was reached"
SECONDS = 0.05
"""That a webhook is waited for, in place of five."""
_FOR_EVER = 30.0
"""Seconds after which a webhook that does not answer lets go of who waits in spite of that."""


@dataclass
class Clock:
    """The time of the program."""

    moment: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        """The time now."""
        return self.moment


@dataclass
class Store:
    """An object store with the bucket ``bucket``; how it does, and what it did not list."""

    folder: Path
    clock: Clock
    mode: str = "well"
    """Or ``silent``, ``endless`` (a listing), ``half`` (of one), ``cut`` (while a file is read),
    ``slow`` (hours, of the clock)."""
    unlisted: set[str] = field(default_factory=set)
    """Names that a listing kept back since the mode was set."""
    n_failures: int = 0
    """How often it gave no answer since."""

    MODES = ("silent", "silent", "silent", "endless", "half", "cut", "slow")

    def be(self, mode: str) -> None:
        """Take a mode."""
        self.mode, self.n_failures = mode, 0
        self.unlisted.clear()

    def get_file_info(self, asked: Any) -> Any:
        """What there is, as a file system of pyarrow's."""
        if self.mode == "silent":
            raise self.failure("ListObjectsV2")
        found = self._files.get_file_info(asked)
        if self.mode == "half" and isinstance(asked, fs.FileSelector):
            found, kept_back = found[: len(found) // 2], found[len(found) // 2 :]
            self.unlisted |= {one.base_name for one in kept_back}
        return found

    def open_input_file(self, place: str) -> Any:
        """A file of it."""
        if self.mode == "slow":
            self.clock.moment += timedelta(hours=2)
        if self.mode == "silent":
            raise self.failure("HeadObject")
        return _Cut(self, place) if self.mode == "cut" else self._files.open_input_file(place)

    def failure(self, operation: str) -> OSError:
        """The error of an answer that did not come."""
        self.n_failures += 1
        return OSError(_NO_ANSWER.format(operation))

    @property
    def _files(self) -> Any:
        return fs.SubTreeFileSystem(str(self.folder), fs.LocalFileSystem())

    def list(self, _: Any, *, input: str, **__: Any) -> Any:  # noqa: A002 - of subprocess.run
        """Do what the program that lists does, in this process."""
        if self.mode == "endless":
            self.n_failures += 1
            return SimpleNamespace(returncode=-signal.SIGALRM, stdout="")
        stores.entries.cache_clear()
        said = io.StringIO()
        with (
            patch.object(sys, "stdin", io.StringIO(input)),
            patch.object(sys, "stdout", said),
            patch.object(signal, "setitimer"),
        ):
            stored_logs.main()
        return SimpleNamespace(returncode=0, stdout=said.getvalue())


class _Cut:
    """A file whose line is cut behind its first bytes."""

    def __init__(self, store: Store, place: str) -> None:
        self._store = store
        self._path = store.folder / place
        self._is_cut = False
        self.closed = False

    def size(self) -> int:
        return self._path.stat().st_size

    def readinto(self, buffer: Any) -> int:
        if self._is_cut:
            raise self._store.failure("GetObject")
        self._is_cut = True
        begin = self._path.read_bytes()[:10]
        buffer[: len(begin)] = begin
        return len(begin)

    def close(self) -> None:
        self.closed = True


@dataclass
class Hook:
    """A webhook: what it was told, and how it answers."""

    mode: str = "well"
    """Or ``refuses``, ``silent`` (nothing comes, no answer goes), ``slow`` (it comes)."""
    answered: list[dict[str, Any]] = field(default_factory=list)
    """What it was told and has said so, in this run."""
    heard: list[dict[str, Any]] = field(default_factory=list)
    """All that it was told in this run."""
    n_unanswered: int = 0
    n_links: int | None = None
    """How many names files had been given when it was first asked."""
    held_up: bool = False
    """Whether a run was still at it when the webhook let go."""
    links: list[str] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)

    MODES = ("refuses", "silent", "slow")

    def begin(self, links: list[str]) -> None:
        """A run begins, which gives names to files in this list."""
        self._ended.clear()
        self.links, self.n_links = links, None
        self.answered.clear()
        self.heard.clear()
        self.n_unanswered = 0

    def end(self) -> None:
        """The run has ended: what waits lets go."""
        self._ended.set()

    def open(self, asked: request.Request) -> Any:
        """Take a document, as ``OpenerDirector.open`` sends it."""
        if self.n_links is None:
            self.n_links = len(self.links)
        assert isinstance(asked.data, bytes)
        document = json.loads(asked.data)
        if self.mode == "refuses":
            raise HTTPError("", 503, "", Message(), None)
        if self.mode != "silent":
            self.heard.append(document)
        if self.mode == "well":
            self.answered.append(document)
            return nullcontext()
        self.n_unanswered += 1
        self.held_up |= not self._ended.wait(_FOR_EVER)
        raise TimeoutError


@contextmanager
def around(time: Clock, store: Store, hook: Hook) -> Iterator[None]:
    """Let the program find these around it."""
    listing = SimpleNamespace(run=store.list, PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL)
    quick = partial(sending.send, seconds=SECONDS)
    with ExitStack() as stack:
        for patched in (
            patch.object(clock, "now", time.now),
            patch.object(stored_logs, "subprocess", listing),
            patch.object(stores, "_file_system", lambda *_: store),
            patch.object(request.OpenerDirector, "open", lambda _, *given, **__: hook.open(*given)),
            patch("flows.operate.watch.notices.send", quick),
        ):
            stack.enter_context(patched)
        yield
