"""The key that lists of published files are signed with (``publish.signing_key``)."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flows.runtime.reading.key_files import given_key
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from flows.runtime.signatures import Sign

_KEY = "publish.signing_key"
_LARGEST = 100_000  # bytes, far more than any key has
_HOW = "make one with: (umask 077; openssl genpkey -algorithm ed25519 -out FILE)"


@dataclass(frozen=True)
class SigningKey:
    """A private key for signatures, and warnings about it."""

    sign: "Sign" = field(repr=False)
    warnings: tuple[str, ...] = ()


def read_signing_key(path: Path | None) -> SigningKey | None:
    """Read the signing key at ``path``; None where lists are not signed.

    Raises ConfigError where its file cannot be read, or holds no key that can sign.
    """
    if path is None:
        return None
    content, warnings = given_key(_KEY, path, _LARGEST, _HOW, "sign in your name")
    from flows.runtime.signatures import signing_with  # noqa: PLC0415 - only where keys are used

    sign = signing_with(content)
    if sign is None:
        problem = "no Ed25519 private key in PEM without a passphrase"
        raise ConfigError(_KEY, f"{path}: {problem}; {_HOW}")
    return SigningKey(sign, warnings)
