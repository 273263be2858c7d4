"""A release in the making: nothing stands under a public name until it is complete.

A draft is written in a private working folder beside the releases, and given its name by one
atomic act that fails where the name is taken. A run that was killed leaves a working folder that
no living process holds a lock on; the next run finishes what the ledger says was about to become
public, and removes the rest.
"""

import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from flows.runtime import working_folders as working
from flows.runtime.files import folder_lock, public_directory, remove_if_empty, sync_directory
from schemas.errors import ClusterdpError, ConflictError
from schemas.names import ReleaseName

LATEST = "latest.duckdb"
_WORKING = ".draft-"


@contextmanager
def workplace(directory: Path) -> Iterator[Path]:
    """Open a working folder of one's own (0700) in the folder of an experiment's releases.

    It is locked while this process lives, and gone on leaving the block; so is the folder of the
    releases if it was made for nothing.
    """
    made = public_directory(directory)
    try:
        with working.working_folder(directory, _WORKING) as folder:
            yield folder
    finally:
        remove_if_empty(made)


def draft_in(folder: Path) -> Path:
    """Return the file in a working folder that is to become the release."""
    return folder / "release.duckdb"


def complete(draft: Path) -> None:
    """Make a closed draft unchangeable, and durable: from here on a power cut does it no harm."""
    draft.chmod(0o444)
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    sync_directory(draft.parent)


def make_public(draft: Path, path: Path) -> None:
    """Give a complete draft its public name, by one act.

    Raises ConflictError where the name is taken and ClusterdpError where the act fails; nothing
    is published then.
    """
    try:
        try:
            os.link(draft, path)
        except OSError:  # a network file system may lose the answer to a request that it granted
            if not has_name(draft, path):
                raise
    except FileExistsError:
        failure: ClusterdpError = ConflictError(
            f"{path}: there is a file of this name already; nothing was published. Move it away "
            "if it is no release, and run again"
        )
    except OSError as error:
        failure = ClusterdpError(f"{path}: cannot get its name ({error.strerror})")
    else:
        sync_directory(path.parent)
        return
    raise failure


def has_name(draft: Path, path: Path) -> bool:
    """Whether a draft has got its public name."""
    try:
        return draft.samefile(path)
    except FileNotFoundError:
        return False


def published(directory: Path, experiment: str, suffix: str = ".duckdb") -> list[ReleaseName]:
    """List the releases of an experiment, by period, then revision; of a site, its reports."""
    names = (ReleaseName.parse(path.stem) for path in directory.glob(f"*{suffix}"))
    return sorted(name for name in names if name and name.experiment == experiment)


def point_latest(directory: Path, experiment: str) -> None:
    """Make ``latest.duckdb`` the release of the greatest period, then revision.

    Whoever comes last looks at all that is published, under a lock, so a backfill, or two runs at
    once, never move it back.
    """
    with folder_lock(directory):
        newest = directory / f"{published(directory, experiment)[-1].release_id}.duckdb"
        latest = directory / LATEST
        if latest.exists() and latest.samefile(newest):
            return
        beside = directory / f".{LATEST}.new"
        beside.unlink(missing_ok=True)
        _link_or_copy(newest, beside)
        beside.replace(latest)
        sync_directory(directory)


def sweep(directory: Path, keep: Collection[Path]) -> None:
    """Remove working folders that no living run holds, but for those to ``keep``."""
    working.sweep(directory, _WORKING, keep)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links, or one that lost its answer
        if not has_name(source, target):
            shutil.copy(source, target)
