"""The one door for privacy randomness.

All noise of a release comes from two functions here, the keys that are made from a third, and all
of it from the operating system's entropy. Nothing here takes a seed, a generator or a setting, so
neither a configuration nor a caller can make the noise predictable. An import contract and a test
keep every other module from drawing on its own.
"""

import os
from typing import cast

import numpy as np
import opendp.prelude as dp
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

dp.enable_features("contrib")  # OpenDP's name for constructors whose proofs are still in review

RESOLUTION = 53
"""Bits of a probability: a double holds every multiple of 2⁻⁵³ in [0, 1] exactly."""

_SHIFT = np.uint64(64 - RESOLUTION)
_LAPLACE_BATCH = 1_000_000


def secret_key() -> bytes:
    """Return 32 bytes that nobody can guess, for a key that is kept."""
    return os.urandom(32)


def random_words(size: int) -> NDArray[np.uint64]:
    """Return ``size`` independent words, uniform on 0 … 2⁵³ − 1.

    The key stream of AES-256 in counter mode under a key of its own, fresh from the operating
    system at every call; each word is the upper 53 bits of 64.
    """
    stream = Cipher(algorithms.AES256(os.urandom(32)), modes.CTR(bytes(16))).encryptor()
    words = np.frombuffer(stream.update(bytes(8 * size)), dtype=np.uint64)
    return words >> _SHIFT


def discrete_laplace(size: int, scale: float) -> NDArray[np.int64]:
    """Return ``size`` independent draws Z with P(Z = k) ∝ exp(−|k| / scale).

    Sampled exactly by OpenDP, from the operating system's entropy; ``scale`` is in the unit of
    the counts. Var Z = 2a / (1 − a)², a = exp(−1 / scale).
    """
    noise = np.empty(size, dtype=np.int64)
    if size == 0:
        return noise
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    measurement = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)
    for start in range(0, size, _LAPLACE_BATCH):
        part = noise[start : start + _LAPLACE_BATCH]
        part[:] = cast(list[int], measurement([0] * len(part)))
    return noise
