"""The key that unit ids are hashed with, where they are not released as they are.

Whoever holds the key can work out the released id of any unit and, by trying ids, also the unit of
a released id. So the key stays with the raw data and with those who may match released units to
their own tables (``clusterdp hash-ids``).
"""

import hmac
from dataclasses import dataclass, field
from pathlib import Path

from flows.runtime.reading.key_files import given_key
from schemas.errors import ConfigError

_KEY = "publish.key_file"
_LARGEST = 1_000_000  # bytes, far more than any key has
_SHORT = 16  # bytes; under that a key can be found by trying
_HOW = "make one with: (umask 077; head -c 32 /dev/urandom | base64 > FILE)"


@dataclass(frozen=True)
class UnitIdKey:
    """A key for unit ids, and warnings about it."""

    secret: bytes = field(repr=False)
    warnings: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str | None:
        """A public fingerprint, different for each key; None for a key of less than 16 bytes.

        It is 128 bits of HMAC-SHA-256 with the key, of bytes that are not text and so cannot be the
        id of a unit. With a key of 16 random bytes or more it reveals nothing of the key or of an
        id. A shorter key could be found by trying keys until the fingerprint fits.
        """
        if len(self.secret) < _SHORT:
            return None
        return hmac.digest(self.secret, b"\xffpublic fingerprint", "sha256").hex()[:32]

    @property
    def name(self) -> str:
        """A name for private records, different for each key; does not reveal a long random key.

        It is HMAC-SHA-256 with the key, of bytes that are not text and so cannot be a unit's id.
        """
        return hmac.digest(self.secret, b"\xffwhich key", "sha256").hex()


def read_key(path: Path | None) -> UnitIdKey | None:
    """Read the key at ``path``; None where ids are released as they are.

    The key is the content of the file without one newline at its end. Raises ConfigError where the
    file cannot be read or is empty.
    """
    if path is None:
        return None
    content, warnings = given_key(_KEY, path, _LARGEST, _HOW)
    secret = content.removesuffix(b"\n")
    secret = secret.removesuffix(b"\r") if secret != content else secret
    if not secret:
        raise ConfigError(_KEY, f"{path} is empty; {_HOW}")
    if len(secret) < _SHORT:
        short = (
            f"{_KEY}: the key in {path} has {len(secret)} bytes; one with fewer than {_SHORT} can "
            f"be guessed, and unit ids with it; {_HOW} (ids hashed under the old one will no "
            "longer match)"
        )
        warnings = (short, *warnings)
    return UnitIdKey(secret, warnings)
