"""The workspace of a run: how much memory it may take, and a folder for rows that do not fit.

The folder is made when the first rows are written. It is private (0700), locked while the run
lives, and removed at its end. A run that was killed leaves its folder behind; the next run removes
it.
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
from flows.orchestration.workers import task_runner
from flows.runtime.files import private_directory, remove_if_empty
from flows.runtime.working_folders import sweep, working_folder
from schemas.errors import ClusterdpError, ConfigError

PREFIX = ".spill-"

_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}
_LIMIT = re.compile(r"([0-9.]+) ?([KMGT])(i?)B")
_PARTS_A_WORKER = 4  # so that a slow or lost worker delays few parts
_ASSUMED_WORKERS = 8  # of a scheduler, as their number is not known before it is asked
_LEAST_FOR_ENGINE = 256_000_000  # bytes; DuckDB cannot write a large file with less
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def bytes_of(limit: str) -> int:
    """The value of ``run.memory_limit`` in bytes: ``GB`` are powers of 1000, ``GiB`` of 1024."""
    match = _LIMIT.fullmatch(limit)
    if match is None:
        raise ValueError(f"not an amount of memory: {limit!r}")
    number, power, binary = match.groups()
    return int(float(number) * (1024 if binary else 1000) ** _POWERS[power])


class Workspace:
    """The memory that a run may use, and a folder for the rows that do not fit into it."""

    def __init__(
        self, directory: Path, limit: int, stack: ExitStack, workers: int | str | None = None
    ) -> None:
        """Note where the folder will be, and the ``limit`` in bytes; no folder is made yet.

        With ``workers`` all parts are written into the folder, where the workers find them.
        """
        self._directory = directory
        self._stack = stack
        self._folder: Path | None = None
        self._runner: Any = None
        self.limit = limit
        self.workers = workers

    @property
    def least_parts(self) -> int:
        """The least number of parts, so that every worker has some; 0 without workers."""
        if self.workers is None:
            return 0
        return _PARTS_A_WORKER * (
            self.workers if isinstance(self.workers, int) else _ASSUMED_WORKERS
        )

    @property
    def run_bytes(self) -> int:
        """Bytes of rows that are sorted at once; sorting holds them about three times."""
        return self.limit * 2 // 9

    @property
    def part_bytes(self) -> int:
        """Bytes of rows that are worked on at once, where not all are in memory."""
        return max(self.limit // 24, 1)

    @property
    def engine_bytes(self) -> int:
        """Bytes that DuckDB may take while it writes."""
        return max(self.limit // 4, _LEAST_FOR_ENGINE)

    @property
    def folder(self) -> Path:
        """The folder, which the first use makes."""
        if self._folder is None:
            above = (self._directory, *self._directory.parents)
            missing = [folder for folder in above if not folder.exists()][::-1]
            private_directory(self._directory)
            self._stack.callback(remove_if_empty, missing)
            self._folder = self._stack.enter_context(working_folder(self._directory, PREFIX))
        return self._folder

    @property
    def runner(self) -> Any:
        """The task runner of the workers; the first use starts it, the end of the run stops it.

        Raises ConfigError where no workers are configured.
        """
        if self.workers is None:
            raise ConfigError("run.workers", "none are configured")
        if self._runner is None:
            self._runner = self._stack.enter_context(task_runner(self.workers, self.folder))
        return self._runner

    def write(self, frame: pl.DataFrame, name: str) -> Path:
        """Write a frame to a new file in the folder (:func:`write_frame`)."""
        return write_frame(frame, self.folder, name)


def write_frame(frame: pl.DataFrame, folder: Path, name: str) -> Path:
    """Write a frame to a new file in the folder of a workspace; returns the file.

    Its name begins with ``name`` and is of no other file, even where several processes write.
    Raises ClusterdpError where the file cannot be written.
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
        f"{folder.parent}: cannot write rows here while they are sorted ({reason}); "
        "free some space, raise run.memory_limit, or name another folder with "
        "run.spill_directory"
    )


def check_folder_usable(folder: str) -> None:
    """Raise ConfigError where this process, a worker, cannot use the folder of a workspace."""
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(
            "run.spill_directory",
            f"a worker cannot use {folder}; name a folder that all workers see under the same "
            "path, and let them run as the user of this run",
        )


@contextmanager
def open_workspace(config: Config) -> Iterator[Workspace]:
    """Open the workspace of a run, after removing the folders that killed runs have left."""
    directory = config.spill_directory
    if directory.is_dir():
        sweep(directory, PREFIX)
    with ExitStack() as stack:
        yield Workspace(directory, bytes_of(config.run.memory_limit), stack, config.run.workers)
