"""Signatures of files: Ed25519, as OpenSSL makes and checks them too. Nothing is drawn here.

A signature is 64 bytes, and always the same of the same bytes under the same key.
"""

from collections.abc import Callable

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    load_pem_private_key,
    load_pem_public_key,
)

Sign = Callable[[bytes], bytes]
"""Signs a text under a private key."""
Fits = Callable[[bytes, bytes], bool]
"""Whether a signature, the first, is one of a text under a public key."""


def signing_with(pem: bytes) -> Sign | None:
    """What signs with a private key in PEM (PKCS #8); None where it is no Ed25519 key of that form.

    A key with a passphrase is none: nobody is there at night to say it.
    """
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return key.sign if isinstance(key, Ed25519PrivateKey) else None


def checking_with(pem: bytes) -> Fits | None:
    """What checks with a public key in PEM; None where it is no Ed25519 key of that form."""
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        return None
    if not isinstance(key, Ed25519PublicKey):
        return None

    def fits(signature: bytes, text: bytes) -> bool:
        try:
            key.verify(signature, text)
        except InvalidSignature:
            return False
        return True

    return fits
