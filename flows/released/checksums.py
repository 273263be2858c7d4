"""``SHA256SUMS`` beside published files, as ``sha256sum --check`` reads it, and its signature.

A digest is taken once, of the complete draft, and kept in the ledger; the list is made anew from
there after each publication. So what somebody does to a file later never becomes its digest: that
of an older file is carried over, and only a file that nobody knows a digest of is read for one,
which is told.

The list and its signature are two files, and no operation replaces two names at once. So the new
signature gets a name of its own first, then the list its name, then the signature its usual one: at
any moment one of the two signatures fits the list, and :func:`signed_sums` tries both.
"""

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from flows.released.lists import LISTS, Known, contents_of, named, read_beside
from flows.runtime.files import folder_lock, sync_directory
from flows.runtime.reading.regular_files import digest_of, is_link
from flows.runtime.reading.small_files import UnreadableError, read_small
from schemas.errors import InputError

if TYPE_CHECKING:
    from flows.runtime.signatures import Fits, Sign

SUMS = "SHA256SUMS"
SIGNATURE = f"{SUMS}.sig"
_NEXT = f".{SIGNATURE}.next"
_HALF = ".half"
_LINE = re.compile(r"([0-9a-f]{64}) [ *]([^/\0]+)")


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file of ours, in small hexadecimals."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_sums(directory: Path) -> dict[str, str] | None:
    """The digests by the names of files that a list states; None where there is no list.

    Raises InputError where it is no such list, or names a file twice.
    """
    text = read_beside(directory / SUMS, read_small)
    return None if text is None else parse_sums(directory / SUMS, text)


def signed_sums(directory: Path, fits: "Fits") -> dict[str, str] | None:
    """The digests of a list that is signed; None where its signature is another's or of another.

    Raises InputError where there is no list, or no signature.
    """
    path = directory / SUMS
    text = read_beside(path, read_small)
    both = [read_beside(directory / name, read_small, 1000) for name in (SIGNATURE, _NEXT)]
    signatures = [one for one in both if one is not None]
    if text is None or not signatures:
        missing = path if text is None else directory / SIGNATURE
        raise InputError(f"{missing}: there is no such file, so there is no signature to check")
    if not any(fits(signature, text) for signature in signatures):
        return None
    return parse_sums(path, text)


def renew_sums(
    directory: Path, known: Callable[[], Known], sign: "Sign | None" = None
) -> list[str]:
    """Make the list anew of what is ``known``, whole or not at all; gives warnings.

    So are the lists of releases (:mod:`flows.released.lists`), which are written first. It is asked
    while nobody else writes them. Raises OSError where they cannot be written.
    """
    with folder_lock(directory):
        for name in (SUMS, *LISTS):
            for leftover in directory.glob(f".{name}*{_HALF}"):  # of a run that was killed
                leftover.unlink(missing_ok=True)
        releases = known()
        said = contents_of(releases.lists)
        warnings: list[str] = []
        try:
            old = read_sums(directory) or {}
        except InputError as error:
            old = {}
            warnings.append(f"{error}; it was made anew")
        _replace_lists(directory, said, old, warnings)
        sums = _sums(directory, releases.digests, old, warnings)
        sums |= {name: hashlib.sha256(content).hexdigest() for name, content in said.items()}
        text = "".join(f"{digest}  {name}\n" for name, digest in sums.items()).encode()
        _replace(directory, text, sign, warnings)
    return warnings


def _sums(
    directory: Path,
    known: Mapping[str, str | None],
    old: Mapping[str, str],
    warnings: list[str],
) -> dict[str, str]:
    """The digest of each file: the ledger's, else the old list's, else one taken now."""
    sums: dict[str, str] = {}
    differing, added = [], []
    for name, by_ledger in sorted(known.items()):
        digest = by_ledger or old.get(name)
        if digest is None:
            with suppress(FileNotFoundError):  # it was taken away meanwhile
                sums[name] = sha256_of(directory / name)
                added.append(name)
            continue
        if old.get(name, digest) != digest:
            differing.append(name)
        sums[name] = digest
    if differing:
        warnings.append(
            f"{directory / SUMS}: somebody has changed what it says of {named(differing)}; it "
            "says what the ledger knows again"
        )
    if added:
        warnings.append(
            f"{directory / SUMS}: nobody has known a digest of {named(added)}; what was added is "
            "that of the files as they are now. Compare them with a copy that you trust"
        )
    return sums


def _replace(directory: Path, text: bytes, sign: "Sign | None", warnings: list[str]) -> None:
    """Write list and signature where they are not as they have to be already."""
    signature = None if sign is None else sign(text)
    is_same = _is(directory / SUMS, text)
    path = directory / SIGNATURE
    if is_same and (signature is None or _is(path, signature)):
        (directory / _NEXT).unlink(missing_ok=True)  # of a run that was killed
        return
    if signature is not None:
        _write(directory / _NEXT, signature)
    if not is_same:
        _write(directory / SUMS, text)
    if signature is not None:
        (directory / _NEXT).replace(path)
    elif path.exists() or is_link(path):
        path.unlink()  # it is of the old list
        warnings.append(
            f"{directory / SUMS} is no longer signed, as the configuration names no "
            "publish.signing_key"
        )
    sync_directory(directory)


def _replace_lists(
    directory: Path, said: Mapping[str, bytes], old: Mapping[str, str], warnings: list[str]
) -> None:
    """Write what is said of releases where it is another; remove what is said no longer."""
    for name in LISTS:
        path, content = directory / name, said.get(name)
        is_there = path.exists() or is_link(path)
        if _is(path, content) if content is not None else not is_there:
            continue
        if is_there and not _has(path, old.get(name)):
            warnings.append(f"{path}: somebody has changed it; it says what the ledger knows again")
        if content is None:
            path.unlink(missing_ok=True)
        else:
            _write(path, content)


def _write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; the lock of the folder is held."""
    half = path.with_name(f".{path.name.lstrip('.')}{_HALF}")
    handle = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        half.chmod(0o444)  # whatever the umask
        half.replace(path)
    except BaseException:
        half.unlink(missing_ok=True)
        raise


def _is(path: Path, content: bytes) -> bool:
    try:
        return read_small(path, len(content)) == content
    except UnreadableError:
        return False


def _has(path: Path, digest: str | None) -> bool:
    with suppress(InputError):
        return digest_of(path) == digest
    return False


def parse_sums(path: Path, text: bytes) -> dict[str, str]:
    """Read a list strictly: what it says must have one meaning."""
    sums: dict[str, str] = {}
    lines = text.decode(errors="replace").removesuffix("\n").split("\n") if text else []
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise InputError(f"{path}: line {number:,} is not a SHA-256 and the name of a file")
        if match[2] in sums:
            raise InputError(f"{path}: line {number:,} names a file that stands there already")
        sums[match[2]] = match[1]
    return sums
