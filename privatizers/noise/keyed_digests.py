"""Keyed digests of many short texts or whole numbers: AES-256-CMAC (NIST SP 800-38B), or AES.

A CMAC is a pseudorandom function, as an HMAC is: without the key nobody can tell digests of texts
from words drawn at random. For millions of ids this takes a small part of the time of HMAC-SHA-256.
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
    first = _doubled(int.from_bytes(encrypt.update(bytes(_BLOCK)), "big"))
    keys = (key.to_bytes(_BLOCK, "big") for key in (first, _doubled(first)))  # K₁ and K₂
    table = _last_blocks(*(np.frombuffer(key, np.uint64) for key in keys))
    digests = np.empty(len(offsets) - 1, dtype=np.uint64)
    for begun in range(0, len(digests), _BATCH):
        some = offsets[begun : begun + _BATCH + 1]
        digests[begun : begun + len(some) - 1] = _codes(encrypt, table, text, some)
    return digests


def keyed_blocks(secret: bytes, values: Words, negative: Bools) -> Words:
    """Return the first 8 bytes of the AES of each whole number, as a little-endian number.

    A number is one block: its value without the sign (8 bytes), and whether it is ``negative``;
    shapes [n]. AES under a key that serves nothing else is a pseudorandom permutation of blocks.
    ``secret`` has 32 bytes, and is that of no :func:`keyed_digests`.
    """
    encrypt = Cipher(algorithms.AES256(secret), modes.ECB()).encryptor()  # noqa: S305 - one block
    digests = np.empty(len(values), dtype=np.uint64)
    for begun in range(0, len(digests), _BATCH):
        some = slice(begun, begun + _BATCH)
        blocks = np.stack([values[some], negative[some].astype(np.uint64)], axis=1)
        coded = encrypt.update(blocks.astype("<u8", copy=False).view(np.uint8).reshape(-1).data)
        digests[some] = np.frombuffer(coded, "<u8")[::2]
    return digests


def _codes(encrypt: CipherContext, table: tuple[Words, Words], text: Bytes, offsets: Ints) -> Words:
    """CMAC of the texts between ``offsets``: block after block, of all texts that have it.

    C_i = AES(C_{i−1} ⊕ M_i), C_0 = 0; the last block is mixed with K₁ where it is whole, and padded
    with a 1 and zeros and mixed with K₂ where it is not. (The mode "ECB" encrypts blocks one by
    one, which is what is needed; the chaining is ours.)
    """
    kept, mixed_in = table
    begin, end = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(end - begin + _BLOCK, dtype=np.uint8)  # so that every block has 16 bytes
    padded[: end - begin] = text[begin:end]
    blocks = np.lib.stride_tricks.sliding_window_view(padded, _BLOCK)
    starts, lengths = offsets[:-1] - begin, np.diff(offsets)
    state = np.zeros((len(starts), 2), dtype=np.uint64)
    has: Ints | slice = slice(None)
    for block in range(max(-(-int(lengths.max(initial=0)) // _BLOCK), 1)):
        if block:
            has = np.flatnonzero(lengths > block * _BLOCK)
        left = np.minimum(lengths[has] - block * _BLOCK, _BLOCK + 1)
        mixed = blocks[starts[has] + block * _BLOCK].view(np.uint64)
        mixed &= kept.take(left, axis=0)
        mixed ^= mixed_in.take(left, axis=0)
        mixed ^= state[has]
        coded = encrypt.update(mixed.view(np.uint8).reshape(-1).data)
        state[has] = np.frombuffer(coded, np.uint64).reshape(-1, 2)
    return state[:, 0].copy()


def _last_blocks(whole: Words, short: Words) -> tuple[Words, Words]:
    """What is kept of a block, and mixed into it, by how many bytes are left; shapes [18, 2].

    Of 0 to 15 bytes: these, a 1 and K₂. Of 16: all, and K₁. Of more, 17 here: all and nothing, as
    it is not the last.
    """
    kept = np.full((_BLOCK + 2, _BLOCK), 0xFF, dtype=np.uint8)
    padding = np.zeros((_BLOCK + 2, _BLOCK), dtype=np.uint8)
    for left in range(_BLOCK):
        kept[left, left:] = 0
        padding[left, left] = 0x80
    mixed_in = padding.view(np.uint64)
    mixed_in[:_BLOCK] ^= short
    mixed_in[_BLOCK] ^= whole
    return kept.view(np.uint64), mixed_in


def _doubled(value: int) -> int:
    """Twice ``value`` in the field of 2¹²⁸."""
    shifted = (value << 1) & ((1 << 128) - 1)
    return shifted ^ _REDUCTION if value >> 127 else shifted
