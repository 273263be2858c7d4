"""Paths that a configuration names, made absolute; and those that a call is about."""

import errno
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import ConfigError, InputError, shown

Paths = str | Path | Sequence[str | Path]
"""One path, or several."""
_IMPOSSIBLE = (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR)  # even for files made later


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_OBJECT = re.compile(r"s3://([a-z0-9][a-z0-9.-]*)/([^/]+(?:/[^/]+)*)")
_STORES = ("s3", "gs", "az")
_NEEDS = "no object store has the locks and the renaming at once that it needs"


def each_path(given: Paths) -> list[Path]:
    """The paths that were given: one, or several."""
    return [Path(one) for one in ([given] if isinstance(given, str | Path) else given)]


def is_address(written: str) -> bool:
    """Whether it names something in an object store, or anywhere else but on this machine."""
    return _SCHEME.match(written) is not None


@dataclass(frozen=True)
class Address:
    """Of an object, such as ``s3://bucket/releases/autumn/latest.duckdb``."""

    bucket: str
    key: str

    def __str__(self) -> str:
        """Return the address, as messages name it."""
        return f"s3://{self.bucket}/{self.key}"

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]

    def beside(self, name: str) -> "Address":
        """The object of this name in the same folder."""
        return Address(self.bucket, f"{self.key.removesuffix(self.name)}{name}")


def parse_address(written: str) -> Address:
    """Read an address; raises InputError where it is not one of an object that can be read."""
    parts = _OBJECT.fullmatch(written)
    if parts is None or not written.isprintable() or {".", ".."} & {*written.split("/")}:
        raise InputError(
            f"{shown(written)} is nothing that can be read: a path, or s3://BUCKET/…/NAME of an "
            "object, is"
        )
    return Address(parts[1], parts[2])


def check_source(directory: Path, written: str, key: str) -> None:
    """Raise ConfigError where ``written`` can be neither a path nor an address of a known store."""
    scheme = _SCHEME.match(written)
    if scheme is None:
        absolute(directory, written, key)
    elif scheme[1] not in _STORES:
        raise ConfigError(
            key,
            f"{shown(scheme[0])} is nothing that can be read; a path, s3://, gs:// and az:// are",
        )
    elif not re.match(r"[^/*?\[{]+/.*[^/]$", written[scheme.end() :], re.DOTALL):
        raise ConfigError(
            key, f"{shown(written)} has to name a bucket and files in it: {scheme[0]}bucket/name"
        )


def absolute(directory: Path, written: str, key: str) -> Path:
    """Return the path ``written`` under ``key``, relative to ``directory``, with ``~`` expanded.

    Raises ConfigError where there is no such home folder, or where it cannot be a path.
    """
    if "\0" in written:
        raise ConfigError(key, "holds a null character, which no path can")
    try:
        path = Path(written).expanduser()
    except RuntimeError:
        raise ConfigError(
            key,
            f"{shown(written)} begins with the home folder of a user who has none here; write the "
            "path in full",
        ) from None
    if written.startswith("~") and path != Path(written) and not path.is_absolute():
        raise ConfigError(
            key,
            f"{shown(written)} begins with a home folder, and the environment's HOME names none "
            "from the root; correct HOME, or write the path in full",
        )
    return (directory / path).absolute()


def check_place(directory: Path, written: str, key: str) -> None:
    """Raise ConfigError where no file could ever be at a path.

    That is where :func:`absolute` does, where a name is too long, where links lead in a circle, or
    where something above the path is a file and not a folder.
    """
    if is_address(written):
        raise ConfigError(
            key,
            f"{shown(written)} is no place on this machine; name a folder or file here: {_NEEDS}",
        )
    path = absolute(directory, written, key)
    try:
        path.lstat()
    except OSError as error:
        if error.errno in _IMPOSSIBLE:
            raise ConfigError(
                key, f"{shown(written)} is no place for a file here ({error.strerror})"
            ) from None
