"""Exact draws of geometric numbers, from their independent binary digits.

P(G = g) = (1 − a) a^g, a = exp(−1/σ), is the law of independent digits (`discrete_laplace.md`):

G = Σ_{j<J} 2^j D_j + 2^J H,  P(D_j = 1) = 1/(1 + exp(2^j/σ)),  P(H = h) = (1 − t) t^h,
t = exp(−2^J/σ).

Nothing here draws: the caller gives the random words. Nothing is approximated either. Whether a
digit is one is decided by comparing a uniform U of infinitely many bits with its probability p, 64
bits at a time. The first 64 bits decide, except with probability 2⁻⁶⁴: where they equal those of p,
further bits of p are computed, with bounds from both sides that prove them, and compared with
further words.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from schemas.arrays import Ints, Words

WordSource = Callable[[int], Words]
"""Returns the requested number of independent words, uniform on 0 … 2⁶⁴ − 1."""

WORD = 64
"""Bits of a word."""

_MOST_DIGITS = 62
_FEWEST_PLACES = 40


@dataclass(frozen=True)
class Probability:
    """1/(1 + e^x) for a digit, e^(−x) for the tail; x = 2^``power`` / ``scale`` > 0.

    Both are irrational (Lindemann 1882), so close enough bounds determine any of their bits.
    """

    scale: float
    power: int
    is_tail: bool = False

    def word(self, nth: int) -> int:
        """Return bits 64 ``nth`` − 63 … 64 ``nth`` after the point, ``nth`` from 1, as a word."""
        return self.floor(WORD * nth) & ((1 << WORD) - 1)

    def floor(self, bits: int) -> int:
        """Return ⌊p 2^``bits``⌋.

        Where x ≥ ``bits`` it is 0, since p ≤ e^(−x) < 2^(−``bits``). Otherwise it is computed with
        more and more decimal places, until the bounds agree.
        """
        exponent = (1 << self.power) / Fraction(self.scale)
        if exponent >= bits:
            return 0
        places = _FEWEST_PLACES + math.ceil(0.302 * bits)
        while True:
            low, high = self._bounds(exponent, bits, places)
            if low == high:
                return low
            places *= 2

    def _bounds(self, exponent: Fraction, bits: int, places: int) -> tuple[int, int]:
        """Return whole numbers, at most and at least ⌊p 2^``bits``⌋; rounding is always outward.

        ``Decimal.exp`` rounds to the nearest, correctly, whatever the context's rounding; its
        neighbours are bounds.
        """
        down, up = (Context(prec=places, rounding=mode) for mode in (ROUND_FLOOR, ROUND_CEILING))
        above, below = Decimal(exponent.numerator), Decimal(exponent.denominator)
        low = down.next_minus(down.exp(down.divide(above, below)))
        high = up.next_plus(up.exp(up.divide(above, below)))
        if not self.is_tail:
            low, high = down.add(low, 1), up.add(high, 1)
        whole = Decimal(1 << bits)
        return int(down.divide(whole, high)), int(up.divide(whole, low))


@dataclass(frozen=True)
class Digits:
    """The digits of a geometric number of ``scale`` σ."""

    scale: float
    thresholds: tuple[int, ...]
    """⌊p_j 2⁶⁴⌋ for j < J."""

    @property
    def count(self) -> int:
        """J: the least whole number with exp(−2^J/σ) < 2⁻⁶⁴, or a little more than that."""
        return len(self.thresholds)

    @property
    def tail(self) -> Probability:
        """The ratio t = exp(−2^J/σ), less than 2⁻⁶⁴: its first word is 0."""
        return Probability(self.scale, self.count, is_tail=True)


@lru_cache(maxsize=1024)
def digits_of(scale: float) -> Digits:
    """Return the digits for σ = ``scale``.

    Raises:
        ValueError: σ is not a positive number, or so great (about 10¹⁷) that J would be more than
            62. Numbers could then need more than 63 bits with a probability that matters; below it
            that is under 2⁻¹²⁸.
    """
    if not 0 < scale < math.inf:
        raise ValueError(f"a noise scale is a positive number, not {scale!r}")
    count = max(0, math.ceil(math.log2(scale) + math.log2(WORD * math.log(2)) + 1e-9))
    if count > _MOST_DIGITS:
        raise ValueError(f"noise of scale {scale!r} does not fit 64 bits")
    return Digits(scale, tuple(Probability(scale, j).word(1) for j in range(count)))


def geometric(digits: Digits, size: int, words: WordSource) -> Ints:
    """Return ``size`` independent numbers G ≥ 0 of the law that ``digits`` describes.

    Each number takes J + 1 words. There is one request of ``size`` words for every digit from j = 0
    on and one for the tail; after each, one request of a single word whenever a word does not
    decide its digit. A number of 64 bits or more is returned modulo 2⁶⁴: added to a count, modulo
    2⁶⁴ too, it tells no more than the true sum would.
    """
    numbers = np.zeros(size, dtype=np.uint64)
    for j, threshold in enumerate(digits.thresholds):
        drawn = words(size)
        ones = drawn < np.uint64(threshold)
        for unit in _undecided(drawn, threshold):
            ones[unit] = is_below(Probability(digits.scale, j), words)
        numbers |= ones.astype(np.uint64) << np.uint64(j)
    for unit in _undecided(words(size), 0):
        high = tail_value(digits.tail, words) << digits.count
        numbers[unit] |= np.uint64(high & ((1 << WORD) - 1))
    return numbers.view(np.int64)


def _undecided(drawn: Words, word: int) -> NDArray[np.intp]:
    """Return the positions of a word that comes once in 2⁶⁴ times."""
    return np.flatnonzero(drawn == np.uint64(word))


def is_below(probability: Probability, words: WordSource) -> bool:
    """Whether U < p, where the first words of U and p are equal."""
    nth = 2
    while (word := int(words(1)[0])) == (threshold := probability.word(nth)):
        nth += 1
    return word < threshold


def tail_value(tail: Probability, words: WordSource) -> int:
    """Return H, the successes before the first failure, where the first trial's word was 0.

    Every trial succeeds with probability t, which is possible only if its first word is 0.
    """
    successes = 0
    undecided = True
    while undecided and is_below(tail, words):
        successes += 1
        undecided = int(words(1)[0]) == 0
    return successes
