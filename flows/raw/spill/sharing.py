"""Work in parts, done here or shared out to the workers of a run: the same functions either way."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Any, Generic, TypeVar

from flows.raw.boundary.guard import values_free
from flows.raw.spill.workspace import Workspace
from schemas.errors import ConfigError

R = TypeVar("R")

_SHARES_A_WORKER = 4  # so that a slow or lost worker delays little


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
