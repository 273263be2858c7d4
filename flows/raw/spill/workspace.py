"""The workspace of a run: its memory, a folder for rows that do not fit, and its workers.

The folder is made when the first rows are written. It is private (0700), locked while the run
lives, and removed at its end. A run that was killed leaves its folder behind; the next run removes
it.
"""

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Any, Generic, TypeVar

import polars as pl

from flows.config.model.declared import Spill
from flows.orchestration.workers import Workers, started_workers
from flows.raw.boundary.guard import errors_as, values_free
from flows.runtime.files import private_directory, remove_if_empty
from flows.runtime.working_folders import sweep, working_folder
from schemas.errors import ClusterdpError, ConfigError

PREFIX = ".spill-"

R = TypeVar("R")

_SHARES_A_WORKER = 4  # so that a slow or lost worker delays little

_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}
_LIMIT = re.compile(r"([0-9.]+) ?([KMGT])(i?)B")
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

    def __init__(self, directory: Path, limit: int, stack: ExitStack) -> None:
        """Note where the folder will be, and the ``limit`` in bytes; no folder is made yet."""
        self._directory = directory
        self._stack = stack
        self._folder: Path | None = None
        self.limit = limit
        self.workers: Workers | None = None
        """Those that parts are shared out to; they find all of them in the folder."""
        self.is_shared = False
        """Whether this is a worker's view: what it makes has to be in the folder."""
        self._behind: ThreadPoolExecutor | None = None

    @classmethod
    def of_worker(cls, folder: Path, limit: int) -> "Workspace":
        """The folder of a run in the eyes of a worker, which may take ``limit`` bytes itself."""
        workspace = cls(folder.parent, limit, ExitStack())
        workspace._folder, workspace.is_shared = folder, True
        return workspace

    @property
    def share(self) -> int:
        """Bytes that each process may take which sorts and works on rows."""
        return self.limit if self.workers is None else self.workers.share(self.limit)

    @property
    def run_bytes(self) -> int:
        """Bytes of rows held in memory; where there are more, half as many are sorted at once.

        Sorting holds them about three times.
        """
        return self.share * 2 // 9

    @property
    def part_bytes(self) -> int:
        """Bytes of rows that are worked on at once, where not all are in memory."""
        return max(self.share // 24, 1)

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
    def behind(self) -> ThreadPoolExecutor:
        """A thread for what is written while more rows come; it ends before the folder goes."""
        if self._behind is None:
            _ = self.folder
            self._behind = self._stack.enter_context(ThreadPoolExecutor(1))
        return self._behind

    def write(self, frame: pl.DataFrame, name: str) -> Path:
        """Write a frame to a new file in the folder (:func:`write_frame`)."""
        return write_frame(frame, self.folder, name)


def write_frame(frame: pl.DataFrame, folder: Path, name: str) -> Path:
    """Write a frame to a new file in the folder of a workspace; returns the file.

    Its name begins with ``name`` and is of no other file, even where several processes write.
    Raises ClusterdpError where the file cannot be written.
    """

    def failed(error: BaseException) -> ClusterdpError:
        reason = "writing failed"
        if getattr(error, "errno", None) in _NO_SPACE or "o space left" in str(error):
            reason = f"no space left, {shutil.disk_usage(folder).free:,} bytes are free"
        return ClusterdpError(
            f"{folder.parent}: cannot write rows here while they are sorted ({reason}); "
            "free some space, raise run.memory_limit, or name another folder with "
            "run.spill_directory"
        )

    with errors_as(failed, OSError, pl.exceptions.PolarsError):
        handle, path = tempfile.mkstemp(prefix=f"{name}-", suffix=".arrow", dir=folder)  # 0600
        with os.fdopen(handle, "wb") as file:
            frame.write_ipc(file, record_batch_size=1 << 16)
    return Path(path)


@contextmanager
def open_workspace(spill: Spill) -> Iterator[Workspace]:
    """Open the workspace of a run, after removing the folders that killed runs have left.

    Where workers are configured they begin to start; their first work waits until they are there.
    """
    directory = spill.directory
    if directory.is_dir():
        sweep(directory, PREFIX)
    with ExitStack() as stack:
        workspace = Workspace(directory, bytes_of(spill.memory_limit), stack)
        if spill.workers is not None:
            started = started_workers(spill.workers, workspace.folder)
            workspace.workers = stack.enter_context(started)
        yield workspace


# work in parts, done here or shared out to the workers of a run: the same functions either way


@dataclass(frozen=True, repr=False)
class _Task(Generic[R]):
    """A call of a function with a worker's view of the workspace as its last argument."""

    function: Callable[..., R]
    arguments: tuple[Any, ...]
    folder: str
    limit: int

    def __call__(self) -> R:
        """Do it, in a worker."""
        check_folder_usable(self.folder)
        workspace = Workspace.of_worker(Path(self.folder), self.limit)
        return values_free(self.function)(*self.arguments, workspace)

    def __repr__(self) -> str:
        """Name the function alone, wherever Dask shows what it was given."""
        return self.function.__name__


def each(
    workspace: Workspace | None, function: Callable[..., R], calls: Sequence[tuple[Any, ...]]
) -> Iterator[R]:
    """The results of ``function``, called with each of ``calls`` and a workspace, in their order.

    Without workers it is called here, when its result is asked for. With workers all calls begin
    at once; functions, which workers import by their names, and arguments are pickled: no rows,
    and no outcome.
    """
    workers = None if workspace is None else workspace.workers
    if workspace is None or workers is None:
        return starmap(function, ((*call, workspace) for call in calls))
    folder, share = str(workspace.folder), workspace.share
    return workers.each([_Task(function, call, folder, share) for call in calls])


def n_shares(workspace: Workspace) -> int:
    """Into how many shares work should be cut at least, so that every worker has some."""
    return 1 if workspace.workers is None else _SHARES_A_WORKER * workspace.workers.number


def check_folder_usable(folder: str) -> None:
    """Raise ConfigError where this process, a worker, cannot use the folder of a workspace."""
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(
            "run.spill_directory",
            f"a worker cannot use {folder}; name a folder that all workers see under the same "
            "path, and let them run as the user of this run",
        )
