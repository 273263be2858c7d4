"""The key that unit ids are hashed under, where they are not released as they are.

Whoever holds it can find the released id of any unit, and by trying ids also the unit of a
released id; so it stays with the raw data, and with those who may match released units to their own
tables (``clusterdp hash-ids``).
"""

import hmac
import stat
from dataclasses import dataclass, field
from pathlib import Path

from flows.config.experiment import Config
from flows.runtime.small_files import UnreadableError, read_small
from schemas.errors import ConfigError

_KEY = "publish.key_file"
_LARGEST = 1_000_000  # bytes, far more than any key has
_SHORT = 16  # bytes; under that a key can be found by trying
_OPEN_TO_OTHERS = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH
_HOW = "make one with: (umask 077; head -c 32 /dev/urandom | base64 > FILE)"


@dataclass(frozen=True)
class UnitIdKey:
    """A key for unit ids, and what is not well with it."""

    secret: bytes = field(repr=False)
    warnings: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str | None:
        """Another for every key, for everybody to see; None where the key is short.

        128 bits of HMAC-SHA-256 under the key, of bytes that are no text and so no unit's id: who
        does not hold a key of 16 random bytes or more learns nothing of it, nor of an id. A
        shorter one could be found by trying keys until the fingerprint fits.
        """
        if len(self.secret) < _SHORT:
            return None
        return hmac.digest(self.secret, b"\xffpublic fingerprint", "sha256").hex()[:32]

    @property
    def name(self) -> str:
        """Another for every key, and no help in finding it; for private records alone."""
        return hmac.digest(self.secret, b"\xffwhich key", "sha256").hex()  # no text: no unit's id


def read_key(config: Config) -> UnitIdKey | None:
    """Read the key of the configuration; None where ids are released as they are.

    The key is the file's bytes without one newline at the end. Raises ConfigError where there is
    none.
    """
    if config.publish.key_file is None:
        return None
    path = config.path(config.publish.key_file)
    try:
        content = read_small(path, _LARGEST)
        mode = path.stat().st_mode
    except UnreadableError as error:
        raise ConfigError(_KEY, f"{path}: {error}; {_HOW}") from None
    except OSError as error:  # gone since
        raise ConfigError(_KEY, f"{path}: cannot be read ({error.strerror})") from None
    secret = content.removesuffix(b"\n")
    secret = secret.removesuffix(b"\r") if secret != content else secret
    if not secret:
        raise ConfigError(_KEY, f"{path} is empty; {_HOW}")
    return UnitIdKey(secret, tuple(_warnings(path, secret, mode)))


def _warnings(path: Path, secret: bytes, mode: int) -> list[str]:
    found = []
    if len(secret) < _SHORT:
        found.append(
            f"{_KEY}: the key in {path} has {len(secret)} bytes; one with fewer than {_SHORT} can "
            f"be guessed, and unit ids with it; {_HOW} (ids hashed under the old one will no "
            "longer match)"
        )
    if mode & _OPEN_TO_OTHERS:
        found.append(
            f"{_KEY}: {path} is open to others than its owner (mode "
            f"{stat.S_IMODE(mode):04o}); chmod 600 it"
        )
    return found
