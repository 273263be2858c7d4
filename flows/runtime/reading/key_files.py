"""Secret keys in files of their own: read whole, made once, never overwritten."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from flows.runtime.files import folder_lock, private_directory, sync_directory
from flows.runtime.reading.small_files import UnreadableError, read_small
from privatizers.noise.randomness import secret_key
from schemas.errors import ConfigError, InputError

KEY_SIZE = 32
_OF_OTHERS = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH
_LARGEST = 1_000_000  # bytes of a file that is still read, to say how many it has


def kept_key(path: Path, what: str, loss: str, *, make: bool = True) -> bytes:
    """Read a key of 32 bytes, or make it where there is none; never another where there is one.

    ``what`` it is the key of, and the ``loss`` of who goes without it, are told in errors. Raises
    InputError where it cannot be read or made, is damaged, or is missing and not to be made.
    """
    try:
        if make and not path.exists():
            _make_key(path)
        if _half_of(path).exists():  # of a run that was killed right after the key had its name
            with folder_lock(path.parent):
                _half_of(path).unlink(missing_ok=True)
        key = read_small(path, _LARGEST)
    except OSError as error:
        raise InputError(
            f"{path}: this key cannot be read or made ({error.strerror}); correct its permissions "
            f"or its folder's ({loss})"
        ) from None
    except UnreadableError as error:
        raise InputError(
            f"{path}: {error}, where the key of {what} lies; put it back from a "
            f"copy{', or move away what is there for a new one to be made' if make else ''} "
            f"({loss})"
        ) from None
    if len(key) != KEY_SIZE:
        raise InputError(
            f"{path}: this key is damaged ({len(key)} bytes, not {KEY_SIZE}); put it back from a "
            f"copy{', or move it away for a new one to be made' if make else ''} ({loss})"
        )
    return key


def given_key(
    key: str, path: Path, most: int, how: str, power: str = "use it"
) -> tuple[bytes, tuple[str, ...]]:
    """Read the file that a configuration's ``key`` names; returns its content, and warnings.

    ``how`` says how to make one, ``power`` what whoever has it can do. Raises ConfigError where it
    cannot be read, or has more than ``most`` bytes.
    """
    try:
        content, mode = read_small(path, most), path.stat().st_mode
    except UnreadableError as error:
        raise ConfigError(key, f"{path}: {error}; {how}") from None
    except OSError as error:  # deleted since it was read
        raise ConfigError(key, f"{path}: cannot be read ({error.strerror})") from None
    if not mode & _OF_OTHERS:
        return content, ()
    is_open = f"is open to others than its owner (mode {stat.S_IMODE(mode):04o})"
    return content, (f"{key}: {path} {is_open}; whoever has it can {power}. chmod 600 it",)


def _half_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.half-written")


def put_key(path: Path, key: bytes) -> bool:
    """Put a key back where there is none; returns whether there was none, or was this one already.

    Raises InputError where it cannot be written.
    """
    try:
        if not path.exists():
            _write_key(path, key)
        return read_small(path, _LARGEST) == key
    except OSError as error:
        problem = f"cannot be written ({error.strerror})"
    except UnreadableError as error:
        problem = str(error)
    raise InputError(f"{path}: {problem}; nothing was put back")


def _make_key(path: Path) -> None:
    _write_key(path, None)


def _write_key(path: Path, key: bytes | None) -> None:
    """Write a key whole or not at all, None for a new one; of several at once, the first stays."""
    if not path.parent.is_dir():
        private_directory(path.parent)
    with folder_lock(path.parent):
        half = _half_of(path)
        half.unlink(missing_ok=True)  # of a run that was killed: the lock is ours
        with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secret_key() if key is None else key)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            path.hardlink_to(half)  # which, unlike a renaming, overwrites nothing
        half.unlink()
        sync_directory(path.parent)
