"""Keyed digests of many short texts: AES-256-CMAC (NIST SP 800-38B), a block of all at once.

A CMAC is a pseudorandom function, as an HMAC is: without the key nobody can tell digests of texts
from words drawn at random. For millions of ids this takes a seventh of the time of HMAC-SHA-256.
"""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from schemas.arrays import Bools, Ints, Words

_BLOCK = 16  # bytes of a block of AES
_BATCH = 1 << 15  # texts at once: their blocks stay in the processor's cache
_REDUCTION = 0x87  # of the field that the subkeys are doubled in

Bytes = NDArray[np.uint8]


def keyed_digests(secret: bytes, text: Bytes, offsets: Ints) -> Words:
    """Return the first 8 bytes of the CMAC of each text, as a little-endian number; shape [n].

    Text i is the bytes of ``text`` from ``offsets[i]`` to ``offsets[i + 1]``, shape [n + 1].
    ``secret`` has 32 bytes.
    """
    encrypt = Cipher(algorithms.AES256(secret), modes.ECB()).encryptor()  # noqa: S305 - see _codes
    subkeys = _subkeys(encrypt)
    digests = np.empty(len(offsets) - 1, dtype=np.uint64)
    for begun in range(0, len(digests), _BATCH):
        some = offsets[begun : begun + _BATCH + 1]
        digests[begun : begun + len(some) - 1] = _codes(encrypt, subkeys, text, some)
    return digests


def _codes(
    encrypt: CipherContext, subkeys: tuple[Words, Words], text: Bytes, offsets: Ints
) -> Words:
    """CMAC of the texts between ``offsets``: block after block, of all texts that have it.

    C_i = AES(C_{i−1} ⊕ M_i), C_0 = 0; the last block is mixed with K₁ where it is whole, and padded
    with a 1 and zeros and mixed with K₂ where it is not. (The mode "ECB" encrypts blocks one by
    one, which is what is needed; the chaining is ours.)
    """
    starts, lengths = offsets[:-1], np.diff(offsets)
    n_blocks = np.maximum(-(-lengths // _BLOCK), 1)
    state = np.zeros((len(starts), 2), dtype=np.uint64)
    for block in range(int(n_blocks.max(initial=0))):
        has = np.flatnonzero(n_blocks > block)
        every = len(has) == len(starts)
        begun = starts if every else starts[has]
        left = (lengths if every else lengths[has]) - block * _BLOCK
        mixed = _blocks(text, begun + block * _BLOCK, left)
        mixed ^= state if every else state[has]
        last = left <= _BLOCK
        whole = left == _BLOCK
        mixed[whole] ^= subkeys[0]
        mixed[last & ~whole] ^= subkeys[1]
        coded = np.frombuffer(
            encrypt.update(mixed.view(np.uint8).reshape(-1).data), np.uint64
        ).reshape(-1, 2)
        if every:
            state = coded.copy()
        else:
            state[has] = coded
    return state[:, 0].copy()


def _blocks(text: Bytes, starts: Ints, left: Ints) -> Words:
    """The 16 bytes from ``starts`` on, as two words; padded where fewer are ``left``."""
    place = np.arange(_BLOCK)
    at = starts[:, None] + place
    np.minimum(at, max(len(text) - 1, 0), out=at)
    found = text[at] if len(text) else np.zeros(at.shape, dtype=np.uint8)
    short = left < _BLOCK
    if short.any():
        beyond: Bools = place >= left[:, None]
        found[beyond] = 0
        rows = np.flatnonzero(short)
        found[rows, left[rows]] = 0x80
    words: Words = found.view(np.uint64)
    return words


def _subkeys(encrypt: CipherContext) -> tuple[Words, Words]:
    """K₁ and K₂: AES(0), doubled once and twice in the field of 2¹²⁸."""
    first = _doubled(int.from_bytes(encrypt.update(bytes(_BLOCK)), "big"))
    keys = first, _doubled(first)
    one, two = (np.frombuffer(key.to_bytes(_BLOCK, "big"), np.uint64) for key in keys)
    return one, two


def _doubled(value: int) -> int:
    shifted = (value << 1) & ((1 << 128) - 1)
    return shifted ^ _REDUCTION if value >> 127 else shifted
