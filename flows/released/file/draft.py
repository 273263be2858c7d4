"""Drafts of releases: no file has a public name before it is complete.

A draft is written in a private working folder beside the releases. One atomic operation gives it
its public name, and fails where the name is taken. A killed run leaves a working folder whose lock
no living process holds. The next run gives a draft its name if the ledger says that it was about to
become public, and removes all other folders of dead runs.
"""

import os
import re
import shutil
import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from flows.runtime import working_folders as working
from flows.runtime.files import (
    cannot_write,
    folder_lock,
    public_directory,
    remove_if_empty,
    sync_directory,
)
from schemas.errors import ClusterdpError, ConflictError, InputError
from schemas.names import ReleaseName

LATEST = "latest.duckdb"
WORKING = ".draft-"
"""What the names of working folders begin with."""
_OF_RUN = re.compile(r"\.draft-([0-9a-f]{12})-.*")


@contextmanager
def workplace(directory: Path, run: str = "") -> Iterator[Path]:
    """Make a private working folder (0700) in the folder of an experiment's releases.

    Its name holds the identifier of its ``run``, if that has one: see :func:`run_of`.
    It is locked while this process lives, and removed when the block ends. So is the folder of the
    releases, if it was made here and is still empty.
    """
    new_folders = public_directory(directory)
    try:
        with working.working_folder(directory, f"{WORKING}{run}{'-' if run else ''}") as folder:
            yield folder
    finally:
        remove_if_empty(new_folders)


def at_work(directory: Path) -> list[Path]:
    """The working folders of runs that live, as far as can be seen from this machine."""
    host = socket.gethostname()
    return [one for one in directory.glob(f"{WORKING}*") if working.is_alive(one, host)]


def run_of(folder: Path) -> str | None:
    """The identifier of the run that a working folder is of; None where it had none."""
    match = _OF_RUN.fullmatch(folder.name)
    return None if match is None else match[1]


def draft_in(folder: Path) -> Path:
    """Return the path of the draft in a working folder."""
    return folder / "release.duckdb"


def complete(draft: Path) -> None:
    """Make a closed draft read-only and durable, so that it survives a power cut.

    Raises InputError where the disk is full.
    """
    try:
        draft.chmod(0o444)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        sync_directory(draft.parent)
    except OSError as error:
        failure = cannot_write(draft.parent.parent, error.strerror)
    else:
        return
    raise failure


def make_public(draft: Path, path: Path) -> None:
    """Give a complete draft its public name, by one atomic operation.

    Raises ConflictError where the name is taken, and InputError where the operation fails: nothing
    is published then, unless the error says that it is, which the next run notes.
    """
    try:
        try:
            os.link(draft, path)
        except OSError:  # a network file system may have made the link and lost its answer
            if not has_name(draft, path):
                raise
    except FileExistsError:
        failure: ClusterdpError = ConflictError(
            f"{path}: there is a file of this name already; nothing was published. Move it away "
            "if it is no release, and run again"
        )
    except OSError as error:
        failure = cannot_write(path.parent, error.strerror)
    else:
        try:
            sync_directory(path.parent)
        except OSError as error:
            failure = InputError(
                f"{path}: is public, and its name may not outlast a power cut ({error.strerror}). "
                "Make room, if the disk is full, and run again, which notes the release"
            )
        else:
            return
    raise failure


def has_name(draft: Path, path: Path) -> bool:
    """Whether a draft has its public name."""
    try:
        return draft.samefile(path)
    except FileNotFoundError:
        return False


def published(directory: Path, experiment: str, suffix: str = ".duckdb") -> list[ReleaseName]:
    """List the releases of an experiment, by period, then revision; of a site, its reports."""
    names = (ReleaseName.parse(path.stem) for path in directory.glob(f"*{suffix}"))
    return sorted(name for name in names if name and name.experiment == experiment)


def point_latest(directory: Path, newest: Callable[[], str | None]) -> None:
    """Make ``latest.duckdb`` the ``newest`` release, which is asked for under a lock.

    So neither a release of an earlier period nor two runs at once can move it back. Where there is
    none it goes.
    """
    with folder_lock(directory):
        release_id = newest()
        latest = directory / LATEST
        if release_id is None:
            latest.unlink(missing_ok=True)
            sync_directory(directory)
            return
        file = directory / f"{release_id}.duckdb"
        if latest.exists() and latest.samefile(file):
            return
        beside = directory / f".{LATEST}.new"
        beside.unlink(missing_ok=True)
        try:
            os.link(file, beside)
        except OSError:  # a file system without hard links, or one that has lost its answer
            if not has_name(file, beside):
                shutil.copy(file, beside)
        beside.replace(latest)
        sync_directory(directory)


def sweep(directory: Path, keep: Collection[Path]) -> None:
    """Remove the working folders of dead runs, except those to ``keep``."""
    working.sweep(directory, WORKING, keep)
