"""Checksums of registers: whether what is read is what was written, at the speed of memory.

A register is read whole every night, and SHA-256 of it takes longer than all else that is done with
it. So it has a GMAC (NIST SP 800-38D) under a key that is drawn when it is written and stands
beside the result: of two different contents of n blocks of 16 bytes the same comes out with
probability at most (n + 1)/2¹²⁸. This tells damage, not forgery: who reads key and result can make
words that fit them, and who may write in a ledger could write another SHA-256 as well.
"""

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from privatizers.noise.randomness import secret_key

_NONCE = bytes(12)  # the key serves once
_AT_ONCE = 1 << 26  # bytes that the library is given; it takes no more than 2³¹
_KIND = "gmac"


class Checksum:
    """The checksum of contents that are told one after the other."""

    def __init__(self, key: bytes | None = None) -> None:
        """Begin with nothing, under a new key of 32 bytes where none is given."""
        self._key = secret_key() if key is None else key
        self._gmac = Cipher(algorithms.AES256(self._key), modes.GCM(_NONCE)).encryptor()

    @classmethod
    def like(cls, text: str) -> "Checksum":
        """Begin anew under the key of a checksum; ValueError where it is none."""
        kind, key, _ = text.split(":")
        if kind != _KIND:
            raise ValueError
        return cls(bytes.fromhex(key))

    def update(self, content: memoryview) -> None:
        """Take more in; ``content`` are bytes."""
        for begun in range(0, len(content), _AT_ONCE):
            self._gmac.authenticate_additional_data(content[begun : begun + _AT_ONCE])

    def result(self) -> str:
        """The checksum of all; nothing can be taken in afterwards."""
        self._gmac.finalize()
        return f"{_KIND}:{self._key.hex()}:{self._gmac.tag.hex()}"
