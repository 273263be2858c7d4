"""The one door for privacy randomness.

All noise of a release comes from the functions here, and so do secret keys; all of it is the
operating system's entropy. Nothing here takes a seed, a generator or a setting, so neither a
configuration nor a caller can make the noise predictable. An import contract and a test keep every
other module from drawing on its own.
"""

import os
from typing import cast

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from privatizers.noise.geometric_digits import digits_of, geometric
from schemas.arrays import Ints, Words

RESOLUTION = 53
"""Bits of a probability: a double holds every multiple of 2⁻⁵³ in [0, 1] exactly."""
UNIT = 1 << RESOLUTION
"""Probabilities are realised as whole multiples of 1 / UNIT, which doubles hold exactly."""

_SHIFT = np.uint64(64 - RESOLUTION)
_LAPLACE_BATCH = 1_000_000
_DIGITS_BATCH = 1 << 14  # words and numbers of a batch stay in the processor's cache


def secret_key() -> bytes:
    """Return 32 bytes that nobody can guess, for a secret key."""
    return os.urandom(32)


def random_words(size: int) -> Words:
    """Return ``size`` independent words, uniform on 0 … 2⁵³ − 1.

    The upper bits of :func:`_full_words`.
    """
    words = _full_words(size)
    words >>= _SHIFT
    return words


def _full_words(size: int) -> Words:
    """Return ``size`` independent words, uniform on 0 … 2⁶⁴ − 1.

    They are the key stream of AES-256 in counter mode under a new key from the operating system at
    every call. Two calls share nothing, so several threads may call.
    """
    stream = Cipher(algorithms.AES256(os.urandom(32)), modes.CTR(bytes(16))).encryptor()
    words = np.zeros(size, dtype=np.uint64)
    if size:
        content = words.data.cast("B")
        stream.update_into(content, content)  # zeros become the key stream, in place
    return words


def discrete_laplace(size: int, scale: float) -> Ints:
    """Return ``size`` independent draws Z with P(Z = k) = (1 − a)/(1 + a) · a^|k|, k whole.

    a = exp(−1/σ), σ is ``scale``, in the unit of the counts; Var Z = 2a / (1 − a)².

    Z = G − G′, both with P(G = g) = (1 − a) a^g. Binary digits of such a number are independent:
    with g = Σ 2^j d_j, a^g = Π a^(2^j d_j) is a product, so digit j is 1 with probability
    a^(2^j)/(1 + a^(2^j)) = 1/(1 + exp(2^j/σ)). Each digit is drawn exactly, by comparing as many
    random bits with that probability as are needed: `geometric_digits.py`, proof in
    `discrete_laplace.md`. With probability under 2⁻¹²⁷ Z does not fit 64 bits; it is then returned
    modulo 2⁶⁴, which costs no privacy.

    Raises:
        ValueError: σ is not positive, or is about 10¹⁷ or more.
    """
    digits = digits_of(scale)
    noise = np.empty(size, dtype=np.int64)
    for start in range(0, size, _DIGITS_BATCH):
        part = noise[start : start + _DIGITS_BATCH]
        both = geometric(digits, 2 * len(part), _full_words)
        np.subtract(both[: len(part)], both[len(part) :], out=part)
    return noise


def discrete_gaussian(size: int, scale: float) -> Ints:
    """Return ``size`` independent draws Z with P(Z = k) ∝ exp(−k² / (2 · scale²)), k whole.

    Sampled exactly by OpenDP (Canonne, Kamath and Steinke 2020), from the operating system's
    entropy; ``scale`` is in steps. Var Z ≤ scale², and is scale² to 1e-6 from scale 1 on.
    """
    noise = np.empty(size, dtype=np.int64)
    if size == 0:
        return noise
    import opendp.prelude as dp  # noqa: PLC0415 - takes half a second, and most draws need none

    dp.enable_features("contrib")  # OpenDP's name for constructors whose proofs are still in review
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    measurement = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale)
    for start in range(0, size, _LAPLACE_BATCH):
        part = noise[start : start + _LAPLACE_BATCH]
        part[:] = cast(list[int], measurement([0] * len(part)))
    return noise
