"""The folder of a backup: private, whole or not at all, and refused where a byte of it differs.

Flat: ``backup.json`` says what the others are, ``ledger.sqlite`` has the tables, registers of who
is in which release lie under their own names, keys are ``key-1``, ``key-2``. ``SHA256SUMS`` has
the digest of each, as ``sha256sum --check`` reads it.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from flows.raw.boundary.guard import errors_as
from flows.released.checksums import SUMS, read_sums, sha256_of
from flows.runtime.files import sync_directory
from flows.runtime.reading.small_files import UnreadableError, read_small_text
from flows.runtime.working_folders import sweep, working_folder
from schemas.documents import OpenDocument, fields_of, parsed_as
from schemas.errors import ConfigError, InputError, shown
from schemas.json_text import parsed

FORMAT: Final = 1
MANIFEST: Final = "backup.json"
TABLES: Final = "ledger.sqlite"
_PREFIX: Final = ".backup-"
_LARGEST: Final = 10_000_000  # bytes of a manifest
_NO_BACKUP = "it is no backup that can be restored; take another one"


@dataclass(frozen=True)
class KeptExperiment:
    """What a backup has of an experiment, a site or effect models, beside the ledger."""

    experiment: str
    configuration: str
    """The file in the backup with its configuration, for people to put back."""
    keys: Mapping[str, str]
    """The file in the backup of each key, by the key of the configuration that names it."""


@dataclass(frozen=True)
class Backup(OpenDocument):
    """A backup that is whole: where it lies, and what it has."""

    folder: Path
    made_at: datetime
    """When its ledger was read, UTC, in whole seconds: what was charged later is not in it."""
    program: str
    version: int
    """Of the ledger in it."""
    experiments: tuple[KeptExperiment, ...]
    registers: tuple[str, ...]
    """Lists of who is in a release, and sums of these."""
    lost: tuple[str, ...] = ()
    """Releases whose list of units was lost already."""
    format: int = field(default=FORMAT)

    def as_json(self) -> dict[str, Any]:
        """The document ``backup.json``."""
        content = fields_of(self)
        del content["folder"]
        return content | {"made_at": f"{self.made_at:%Y-%m-%dT%H:%M:%SZ}"}


@contextmanager
def new_backup(output: Path) -> Iterator[Path]:
    """Give a private folder to put a backup into, which becomes ``output`` as the block ends.

    What backups that were killed have left beside it is removed. Raises ConfigError where there is
    something of this name, InputError where nothing can be written there.
    """
    if output.exists() or output.is_symlink():
        raise ConfigError("--output", f"{output} is there already; name a new folder")
    if not output.parent.is_dir():
        raise ConfigError("--output", f"{output.parent} is no folder; make it first, mode 0700")
    failed = errors_as(
        lambda error: InputError(
            f"{output}: no backup was made ({error.strerror or type(error).__name__}); make room, "
            "or correct permissions"
        ),
        OSError,
    )
    with failed:
        sweep(output.parent, _PREFIX)
        with working_folder(output.parent, _PREFIX) as place:
            folder = place / "backup"
            folder.mkdir(0o700)
            yield folder
            sync_directory(folder)
            folder.rename(output)
            sync_directory(output.parent)


@contextmanager
def private_file(path: Path) -> Iterator[int]:
    """Make a new file for its owner alone, which is on the disk as the block ends."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        yield handle
        os.fsync(handle)
    finally:
        os.close(handle)


def write_private(path: Path, content: bytes) -> None:
    """Write a new file for its owner alone."""
    with private_file(path) as handle, os.fdopen(handle, "wb", closefd=False) as file:
        file.write(content)


def seal(backup: Backup) -> None:
    """Write what is in the folder, and the digest of every file: the last two files of it."""
    text = json.dumps(backup.as_json(), indent=2) + "\n"
    write_private(backup.folder / MANIFEST, text.encode())
    names = sorted(path.name for path in backup.folder.iterdir())
    lines = (f"{sha256_of(backup.folder / name)}  {name}\n" for name in names)
    write_private(backup.folder / SUMS, "".join(lines).encode())


def open_backup(folder: Path) -> Backup:
    """Read what is in a backup, and compare every byte of it; raises InputError where one differs.

    Nothing in it is followed that is not a file of the folder itself.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder")
    sums = read_sums(folder)
    if sums is None or MANIFEST not in sums or TABLES not in sums:
        raise InputError(
            f"{folder}: has no {SUMS} that names {MANIFEST} and {TABLES}; {_NO_BACKUP}"
        )
    there = {path.name for path in folder.iterdir()} - {SUMS}
    for name in sorted(there ^ set(sums)):
        what = "is missing" if name in sums else "is none of the backup's"
        raise InputError(f"{folder}: {shown(name)} {what}; {_NO_BACKUP}")
    for name, digest in sums.items():
        path = folder / name
        if path.is_symlink() or not path.is_file() or _digest(path) != digest:
            raise InputError(f"{path}: is not what was written ({SUMS}); {_NO_BACKUP}")
    backup = _read(folder)
    named = {name for one in backup.experiments for name in (one.configuration, *one.keys.values())}
    if missing := sorted({*named, *backup.registers} - there):
        raise InputError(f"{folder / MANIFEST}: {shown(missing[0])} is not there; {_NO_BACKUP}")
    return backup


def _digest(path: Path) -> str:
    try:
        return sha256_of(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def _read(folder: Path) -> Backup:
    path = folder / MANIFEST
    try:
        found = parsed(read_small_text(path, _LARGEST), MANIFEST, "what lists a backup")
        if found.get("format") == FORMAT:
            return parsed_as(Backup, found | {"folder": str(folder)}, MANIFEST)
        problem = f"has format {shown(found.get('format'))}, this program knows {FORMAT}"
    except (InputError, UnreadableError) as error:
        problem = str(error)
    raise InputError(f"{path}: {problem}; {_NO_BACKUP}, or use the clusterdp that made it")
