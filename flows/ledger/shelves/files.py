"""Whether published files are those that the ledger has drawn; only what has changed is read.

The ledger has the digest of each release from before it was public. What a file was found to hold
is noted with its stamp: its size, inode, and the times of its content and of its entry, which
nobody can set. So a night costs a look at each name, and the few files are read that are new.
"""

import os
import socket
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import sqlalchemy as sa

from flows.ledger.database import Ledger
from flows.ledger.rules import Entry, State
from flows.ledger.shelves.shelf import Shelf
from flows.ledger.tables import FILES
from flows.runtime.reading.regular_files import digest_of
from schemas.errors import InputError

Stamp = tuple[str, str]
"""What nobody but its owner can change of a file without another inode; when its entry changed."""

_SECOND = 1_000_000_000
_YOUNG = 50_000_000
"""Nanoseconds for which a file may change again under the same time; of coarse clocks 2 s."""


class FileState(StrEnum):
    """Where the file of a release is that was charged."""

    HERE = "here"
    ELSEWHERE = "elsewhere"
    """In another folder, or on a machine whose files cannot be seen from here."""
    GONE = "gone"
    ALTERED = "altered"
    """Something else has its name."""


class Files:
    """The published files of an experiment, as this run sees them and runs before have noted."""

    def __init__(self, ledger: Ledger, shelf: Shelf) -> None:
        """Look at nothing yet."""
        self._ledger = ledger
        self._shelf = shelf
        # Digest and entry's time, by path and the rest of the stamp: while a run links its release
        # to latest.duckdb that time changes, and the file need not be read for it.
        self._read: dict[tuple[str, str], tuple[str, str]] = {}
        self._right: dict[str, str] = {}
        self._noted: dict[str, dict[str, str]] | None = None

    def look(self, entries: Sequence[Entry]) -> dict[int, FileState]:
        """Where the file of each charge is, by the charge's id."""
        charges = [entry for entry in entries if entry.counts]
        paths = {entry.id: self._shelf.path_of(entry.name) for entry in charges}
        held = {entry.id: self.holds(paths[entry.id], entry) for entry in charges}
        hosts = {socket.gethostname()}
        if self._shelf.store is None:  # else what others have released is brought here
            hosts |= {entry.host for entry in charges if held[entry.id]}

        def where_is(entry: Entry) -> FileState:
            is_held, where = held[entry.id], FileState.HERE
            if is_held is None:
                is_held, where = self.holds(entry.path, entry), FileState.ELSEWHERE
            if is_held is not None:
                return where if is_held else FileState.ALTERED
            # Several machines, or containers, may write into one folder, or each into its own.
            is_shared = len(hosts) > 1 and entry.path == paths[entry.id]
            was_here = entry.host in hosts or is_shared or entry.state != State.PUBLISHED
            return FileState.GONE if was_here else FileState.ELSEWHERE

        return {entry.id: where_is(entry) for entry in charges}

    def holds(self, path: Path, entry: Entry) -> bool | None:
        """Whether the file at ``path`` is the very one of a charge; None where there is none.

        One that was published before ledgers kept digests is taken for what it is called.
        """
        if not os.path.lexists(path):
            return None
        wanted = entry.file_sha256
        if wanted is None:
            return entry.state == State.PUBLISHED and path.is_file()
        noted = self._of(path).get(wanted)
        stamp = _stamp(path)
        if stamp is None or (noted and noted.split()[0] != stamp[0].split()[0]):
            return False  # of another size
        if noted != " ".join(stamp) and self._digest(path, stamp) != wanted:
            return False
        self._right[str(path)] = wanted
        self._read.setdefault((str(path), stamp[0]), (wanted, stamp[1]))
        return True

    def learn(self, path: Path, draft: Path, sha256: str) -> None:
        """Take over the digest of a draft that this run has just given its name."""
        stamp = _stamp(draft)
        if stamp is not None:
            self._read[str(path), stamp[0]] = sha256, stamp[1]

    def is_as_made(self, path: Path) -> bool | None:
        """Whether a file that is made anew is as it was made last; None where nothing is noted."""
        stamp, noted = _stamp(path), self._of(path)
        return (stamp is not None and self._digest(path, stamp) in noted) if noted else None

    def note_made(self, path: Path, sha256: str) -> None:
        """Note what a file is about to be, beside what it is, so that either is known again."""
        stamp = _stamp(path)
        now = None if stamp is None else self._digest(path, stamp)
        both = {sha256, *(one for one in self._of(path) if one == now)}
        self._write([(str(path), one, "") for one in sorted(both)])

    def note(self) -> None:
        """Let later runs know what need not be read again."""
        new = []
        for path, sha256 in self._right.items():
            stamp = _stamp(Path(path))
            if stamp is None or _is_young(stamp):
                continue
            if self._read.get((path, stamp[0])) != (sha256, stamp[1]):
                continue  # its entry has changed since; the next run reads it
            if self._of(Path(path)).get(sha256) != " ".join(stamp):
                new.append((path, sha256, " ".join(stamp)))
        if new:
            self._write(new)

    def _digest(self, path: Path, stamp: Stamp) -> str | None:
        """The SHA-256 of a file, read once a run; None where it is none, or cannot be read."""
        read_before = self._read.get((str(path), stamp[0]))
        if read_before is not None:
            return read_before[0]
        try:
            digest = digest_of(path)
        except InputError:
            return None
        if stamp == _stamp(path):
            self._read[str(path), stamp[0]] = digest, stamp[1]
        return digest

    def _of(self, path: Path) -> dict[str, str]:
        """The stamps that a file was seen with, by its digest."""
        if self._noted is None:
            noted: dict[str, dict[str, str]] = {}
            for row in self._ledger.find(FILES, experiment=self._shelf.experiment):
                stamps = noted.setdefault(str(row["path"]), {})
                stamps[str(row["sha256"])] = str(row["stamp"])
            self._noted = noted
        return self._noted.get(str(path), {})

    def _write(self, rows: list[tuple[str, str, str]]) -> None:
        """Replace what this machine has noted of these paths: rows of path, digest and stamp."""
        noted = {"experiment": self._shelf.experiment, "host": socket.gethostname()}
        changes: list[sa.Executable] = []
        for path, sha256, _ in rows:
            same = sa.or_(FILES.c.host == noted["host"], FILES.c.sha256 == sha256)
            changes.append(sa.delete(FILES).where(FILES.c.path == path, same))
        for path, sha256, stamp in rows:
            row = {"path": path, "sha256": sha256, "stamp": stamp, **noted}
            changes.append(sa.insert(FILES).values(row))
        self._ledger.write(*changes)
        self._noted = None


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return f"{status.st_size} {status.st_ino} {status.st_mtime_ns}", str(status.st_ctime_ns)


def _is_young(stamp: Stamp) -> bool:
    changed = int(stamp[1])
    return time.time_ns() - changed < (_YOUNG if changed % _SECOND else 2 * _SECOND)
