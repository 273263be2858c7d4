"""Where a run puts rows that do not fit into memory, and how much memory it may take.

A room's folder is made when something is first put there, private (0700), locked while the run
lives, and gone afterwards; a run that was killed leaves one behind, which the next run removes.
"""

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from flows.config.experiment import Config
from flows.orchestration.workers import runner_of
from flows.runtime.files import private_directory, remove_if_empty
from flows.runtime.working_folders import sweep, working_folder
from schemas.errors import ClusterdpError, ConfigError

PREFIX = ".spill-"

_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}
_LIMIT = re.compile(r"([0-9.]+) ?([KMGT])(i?)B")
_PARTS_EACH = 4  # parts for a worker, so that a slow or lost one holds up few
_UNKNOWN = 8  # workers that a scheduler may have, which tells only when asked
_LEAST_FOR_ENGINE = 256_000_000  # bytes; DuckDB does not write a large file with less
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def bytes_of(limit: str) -> int:
    """What ``run.memory_limit`` says, in bytes: ``GB`` are powers of 1000, ``GiB`` of 1024."""
    found = _LIMIT.fullmatch(limit)
    if found is None:
        msg = f"not an amount of memory: {limit!r}"
        raise ValueError(msg)
    number, power, binary = found.groups()
    return int(float(number) * (1024 if binary else 1000) ** _POWERS[power])


class Room:
    """The memory a run may use, and a folder for what does not fit into it."""

    def __init__(
        self, directory: Path, limit: int, stack: ExitStack, workers: int | str | None = None
    ) -> None:
        """Take a place for the folder, and ``limit``, in bytes; nothing is made yet.

        With ``workers`` all parts are put into the folder, where these find them.
        """
        self._directory = directory
        self._stack = stack
        self._folder: Path | None = None
        self._runner: Any = None
        self.limit = limit
        self.workers = workers

    @property
    def least_parts(self) -> int:
        """How many parts there are at least, so that every worker has some; 0 without workers."""
        if self.workers is None:
            return 0
        return _PARTS_EACH * (self.workers if isinstance(self.workers, int) else _UNKNOWN)

    @property
    def run_bytes(self) -> int:
        """Of rows that are put into order at once: sorting holds them about three times."""
        return self.limit // 8

    @property
    def part_bytes(self) -> int:
        """Of rows that are worked on at once, where not all are in memory."""
        return max(self.limit // 24, 1)

    @property
    def engine_bytes(self) -> int:
        """For DuckDB, while it writes."""
        return max(self.limit // 4, _LEAST_FOR_ENGINE)

    @property
    def folder(self) -> Path:
        """The folder, made if need be."""
        if self._folder is None:
            places = (self._directory, *self._directory.parents)
            missing = [folder for folder in places if not folder.exists()][::-1]
            private_directory(self._directory)
            self._stack.callback(remove_if_empty, missing)
            self._folder = self._stack.enter_context(working_folder(self._directory, PREFIX))
        return self._folder

    @property
    def runner(self) -> Any:
        """The workers' task runner, called together at first; they leave with the run.

        Raises ConfigError where there are none.
        """
        if self.workers is None:
            raise ConfigError("run.workers", "none are configured")
        if self._runner is None:
            self._runner = self._stack.enter_context(runner_of(self.workers, self.folder))
        return self._runner

    def write(self, frame: pl.DataFrame, name: str) -> Path:
        """Keep a frame in the folder; raises ClusterdpError where it cannot be written."""
        return put_aside(frame, self.folder, name)


def put_aside(frame: pl.DataFrame, folder: Path, name: str) -> Path:
    """Write a frame to a file of its own in a room's folder, whoever else does the same.

    Raises ClusterdpError where it cannot be written.
    """
    try:
        handle, path = tempfile.mkstemp(prefix=f"{name}-", suffix=".arrow", dir=folder)  # 0600
        with os.fdopen(handle, "wb") as file:
            frame.write_ipc(file, record_batch_size=1 << 16)
    except (OSError, pl.exceptions.PolarsError) as error:
        full = getattr(error, "errno", None) in _NO_SPACE or "o space left" in str(error)
    else:
        return Path(path)
    reason = "writing failed"
    if full:
        reason = f"no space left, {shutil.disk_usage(folder).free:,} bytes are free"
    raise ClusterdpError(
        f"{folder.parent}: cannot put rows aside while they are put into order ({reason}); "
        "free some space, raise run.memory_limit, or name another folder with "
        "run.spill_directory"
    )


def check_seen(folder: str) -> None:
    """Raise ConfigError where this process, a worker, cannot use a room's folder."""
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(
            "run.spill_directory",
            f"a worker cannot use {folder}; name a folder that all workers see under the same "
            "path, and let them run as the user of this run",
        )


@contextmanager
def room_of(config: Config) -> Iterator[Room]:
    """Open the room of a run; removes what runs that were killed left in its place."""
    directory = config.spill_directory
    if directory.is_dir():
        sweep(directory, PREFIX)
    with ExitStack() as stack:
        yield Room(directory, bytes_of(config.run.memory_limit), stack, config.run.workers)
