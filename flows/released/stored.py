"""Releases in an object store: a checked copy of each that is asked for, on this machine.

**Names.** What is published lies in a store as ``FOLDER/RELEASE_ID.DIGEST.duckdb``, an effect model
as ``….json``: one object that never changes, DIGEST being the SHA-256 of its bytes in small
hexadecimals. So an address says what the file must be, whoever holds the store, and a copy that was
checked once needs no store to be right. ``FOLDER/RELEASE_ID.pointer.json`` (``release_id, sha256,
bytes, created_at``) says which object a release is, and ``latest.pointer.json`` which is the
latest: whoever asks for ``RELEASE_ID.duckdb`` or ``latest.duckdb`` is led on by it. ``beside.json``
holds the files that lie beside releases in a folder, by name in base64 under ``files``: the lists
of :mod:`flows.released.lists`, and ``SHA256SUMS`` with its signature, which so are of one moment.

**Reading.** The copy has a private folder of its own below ``$XDG_CACHE_HOME/clusterdp``, or
``~/.cache/clusterdp``, and is called ``RELEASE_ID.duckdb`` there; what lies beside the object is
put beside it, anew each time, since a release may be withdrawn at any time. So all that reads
released files reads the copy, and knows nothing of stores. A copy is there whole or not at all,
after its digest was taken; that is taken again before each use. It may be deleted at any time.
"""

import hashlib
import os
import re
import shutil
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from flows.released.checksums import SIGNATURE, SUMS, parse_sums
from flows.released.lists import LISTS
from flows.runtime.files import private_directory, replace_file
from flows.runtime.paths import Address, parse_address
from flows.runtime.reading.object_stores import (
    read_object,
    read_pieces,
    read_tagged,
    size_of,
)
from flows.runtime.reading.regular_files import digest_of, is_link
from schemas.documents import OpenDocument, parsed_as
from schemas.errors import InputError, shown
from schemas.json_text import parsed
from schemas.names import ReleaseName

_OBJECT = re.compile(r"(.+)\.([0-9a-f]{64})(\.duckdb|\.json)", re.DOTALL)
_POINTED = re.compile(r"(.+)(\.duckdb|\.json)", re.DOTALL)
BESIDE = "beside.json"
LISTED = (*LISTS, SUMS, SIGNATURE)
"""Files that it may hold."""
LARGEST_LIST = 100_000_000  # bytes, as of those in a folder
_LARGEST_POINTER = 10_000  # bytes
_SPARE = 100 << 20  # bytes of the disk that are left to others


@dataclass(frozen=True)
class Pointer(OpenDocument):
    """Which object a release is, as ``RELEASE_ID.pointer.json`` says."""

    release_id: str
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """Of its bytes; nothing else, for it is put into the address that is asked next."""
    bytes: int
    created_at: str
    """UTC, such as ``2026-11-20T03:15:00Z``."""


def copy_of(written: str) -> Path:
    """The checked copy of what an address stands for.

    Raises InputError where there is no such object, where it is not what its name says, and where
    the store, or a folder for the copy, cannot be used.
    """
    address = parse_address(written)
    parts = _OBJECT.fullmatch(address.name)
    if parts is None:
        address = _pointed_to(address)
        parts = _OBJECT.fullmatch(address.name)
    if parts is None or ReleaseName.parse(parts[1]) is None:
        raise _no_release(address)
    folder = private_directory(_cache() / hashlib.sha256(str(address).encode()).hexdigest()[:32])
    path = folder / f"{parts[1]}{parts[3]}"
    _renew_lists(address, folder)
    if not path.exists() or is_link(path) or digest_of(path) != parts[2]:
        fetch(address, path, parts[2])
    return path


def _pointed_to(address: Address) -> Address:
    """The object that the pointer of this name leads to."""
    parts = _POINTED.fullmatch(address.name)
    if parts is None:
        raise _no_release(address)
    place = address.beside(f"{parts[1]}.pointer.json")
    found = parse_pointer(read_object(place, _LARGEST_POINTER), str(place))
    release_id = found.release_id
    if ReleaseName.parse(release_id) is None or parts[1] not in ("latest", release_id):
        raise InputError(f"{place}: leads to another release, {shown(release_id)}")
    return address.beside(f"{release_id}.{found.sha256}{parts[2]}")


def _no_release(address: Address) -> InputError:
    return InputError(
        f"{address}: not the name of a release; in a store they are called "
        "RELEASE_ID.SHA256.duckdb, RELEASE_ID.duckdb or latest.duckdb"
    )


def _renew_lists(address: Address, folder: Path) -> None:
    """Put what is said beside an object beside its copy, and take away what is said no longer."""
    there = read_tagged(address.beside(BESIDE), LARGEST_LIST)
    files = {} if there.tag is None else _parse_beside(there.content, str(address.beside(BESIDE)))
    for name in LISTED:
        if name not in files:
            (folder / name).unlink(missing_ok=True)
            continue
        with replace_file(folder / name, 0o400) as file:
            file.write(files[name])


def parse_pointer(content: bytes, place: str) -> Pointer:
    """Read a pointer; raises InputError where it is none."""
    text = content.decode(errors="replace")
    return parsed_as(Pointer, parsed(text, place, "a pointer to a release"), place)


def _parse_beside(content: bytes, place: str) -> dict[str, bytes]:
    """The files that ``beside.json`` holds, by name; raises InputError where it holds none."""
    text = content.decode(errors="replace")
    files: Any = parsed(text, place, "what lies beside releases").get("files")
    try:
        return {name: b64decode(files[name], validate=True) for name in LISTED if name in files}
    except (TypeError, ValueError):
        failure = InputError(f"{place}: does not hold files as what lies beside releases does")
    raise failure


def sums_in(content: bytes, place: str) -> dict[str, str]:
    """The digests of the releases in a store, by the names of their files, as it says beside."""
    sums = parse_sums(Path(place), _parse_beside(content, place).get(SUMS, b""))
    return {name: digest for name, digest in sums.items() if ReleaseName.parse(Path(name).stem)}


def fetch(address: Address, path: Path, digest: str) -> None:
    """Bring an object here, whole or not at all, if its bytes are those that its name says."""
    size = size_of(address)
    free = shutil.disk_usage(path.parent).free - _SPARE
    if size > free:
        raise InputError(
            f"{address}: has {size:,} bytes, and there is room for {max(free, 0):,} in "
            f"{path.parent}; make room, or let XDG_CACHE_HOME name a folder where there is"
        )
    taken = hashlib.sha256()
    with replace_file(path, 0o400) as file:
        for piece in read_pieces(address, size):
            taken.update(piece)
            file.write(piece)
        file.flush()
        if taken.hexdigest() != digest:
            raise InputError(
                f"{address}: its bytes are not those that its name says (SHA-256 "
                f"{taken.hexdigest()}): it was altered or cut short. Tell who publishes it"
            )


def _cache() -> Path:
    """The folder of all copies, which nobody else may enter."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    try:
        base = Path(named) if Path(named).is_absolute() else Path("~/.cache").expanduser()
    except RuntimeError:
        raise InputError(
            "there is no home folder for copies of what lies in a store; let XDG_CACHE_HOME name a "
            "folder"
        ) from None
    folder = private_directory(base.absolute() / "clusterdp")
    facts = folder.stat()
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
        raise InputError(
            f"{folder}: is another's, or others may enter it, so copies could be exchanged there; "
            "take it away (or chmod 700), or let XDG_CACHE_HOME name another folder"
        )
    return folder
