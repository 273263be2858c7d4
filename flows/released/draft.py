"""A release in the making: nothing stands under a public name until it is complete.

A draft is written in a private working folder beside the releases, and given its name by one
atomic act that fails where the name is taken. A run that was killed leaves a working folder that
no living process holds a lock on; the next run removes it.
"""

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from flows.files import folder_lock, public_directory, remove_if_empty, sync_directory
from schemas.errors import ConflictError, InputError
from schemas.released import ReleaseName

LATEST = "latest.duckdb"
_WORKING = ".draft-"
_LOCK = "lock"


@dataclass(frozen=True)
class Draft:
    """A release being made: its name, the file to write, and the path it will have."""

    name: ReleaseName
    working: Path
    path: Path


@contextmanager
def drafting(directory: Path, experiment: str, period: str, *, revise: bool) -> Iterator[Draft]:
    """Open a draft of the period's first release, or with ``revise`` of its next revision.

    On leaving the block without an error the draft gets its public name and ``latest.duckdb``
    follows; with an error it is gone. Raises ConflictError where the period is published already.
    """
    made = public_directory(directory)
    try:
        with _drafting(directory, experiment, period, revise=revise) as draft:
            yield draft
    except BaseException:
        remove_if_empty(made)
        raise


@contextmanager
def _drafting(directory: Path, experiment: str, period: str, *, revise: bool) -> Iterator[Draft]:
    sweep(directory)
    if published(directory, experiment):
        point_latest(directory, experiment)  # an earlier run may have been killed just before it
    name = _next_name(directory, experiment, period, revise=revise)
    path = directory / f"{name.release_id}.duckdb"
    with _working_folder(directory) as folder:
        draft = Draft(name, folder / "release.duckdb", path)
        yield draft
        _publish(draft)
    point_latest(directory, experiment)


def published(directory: Path, experiment: str) -> list[ReleaseName]:
    """List the releases of an experiment, by period, then revision."""
    pattern = re.compile(re.escape(experiment) + r"\.([A-Za-z0-9][A-Za-z0-9_-]*)\.r([1-9][0-9]*)")
    found = (pattern.fullmatch(path.stem) for path in directory.glob("*.duckdb"))
    return sorted(ReleaseName(experiment, name[1], int(name[2])) for name in found if name)


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


def sweep(directory: Path) -> None:
    """Remove working folders that no living run holds."""
    with folder_lock(directory):
        for folder in directory.glob(f"{_WORKING}*"):
            _remove_if_dead(folder)


def _remove_if_dead(folder: Path) -> None:
    with suppress(OSError):  # held by a living run, or gone meanwhile
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)


def _next_name(directory: Path, experiment: str, period: str, *, revise: bool) -> ReleaseName:
    revisions = [
        name.revision for name in published(directory, experiment) if name.period == period
    ]
    if not revisions:
        return ReleaseName(experiment, period, 1)
    if revise:
        return ReleaseName(experiment, period, max(revisions) + 1)
    raise _conflict(ReleaseName(experiment, period, max(revisions)))


def _conflict(name: ReleaseName) -> ConflictError:
    return ConflictError(
        f"period {name.period!r} is published already, as {name.release_id}; nothing was done. "
        "Another draw on the same people costs privacy again: ask for it with --revise"
    )


@contextmanager
def _working_folder(directory: Path) -> Iterator[Path]:
    """A folder of one's own (mode 0700), locked while this process lives, and then gone."""
    folder, handle = _locked_folder(directory)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _locked_folder(directory: Path) -> tuple[Path, int]:
    """Make a working folder and lock it, with no moment between for a sweep."""
    with folder_lock(directory):
        try:
            folder = Path(tempfile.mkdtemp(prefix=_WORKING, dir=directory))
            handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise InputError(f"{directory}: cannot write here ({error.strerror})") from None
        fcntl.flock(handle, fcntl.LOCK_EX)
        return folder, handle


def _publish(draft: Draft) -> None:
    """Give the closed file its public name, whole; fail where the name is taken."""
    draft.working.chmod(0o444)
    with draft.working.open("rb") as file:
        os.fsync(file.fileno())
    try:
        os.link(draft.working, draft.path)
    except FileExistsError:
        raise _conflict(draft.name) from None
    sync_directory(draft.path.parent)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copy(source, target)
