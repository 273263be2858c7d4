"""What everything that is published of one unit tells of it: (ε, δ) of independent answers.

Of each answer the two most different neighbours are known, as a *pair*: the probabilities (P, Q) of
everything that the answer may be. No two neighbours can be told apart more easily than by such
pairs (they dominate), and independent ones together dominate what was answered together, also where
a later answer was chosen by an earlier one (Zhu, Dong and Wang 2022). So

    δ(ε) = Σ_o max(P(o) − e^ε Q(o), 0),    over all combinations o of answers.

In decimals of 80 digits; P is raised and Q lowered by 10⁻⁵⁵ of themselves, which is more than what
rounding takes.
"""

import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction
from itertools import product

import numpy as np

Pair = tuple[tuple[Decimal, Decimal], ...]
"""P and Q of everything that an answer may be."""

_DIGITS = 80
_SLACK = Decimal(10) ** -60
_MARGIN = Decimal(10) ** -55
_LARGEST = Decimal(10) ** 7
"""A loss from which on nothing is taken to be hidden: an exponential has to be a number."""
_MOST = 256
"""Different values of a noisy sum that are told apart; more are joined, in favour of the observer.
"""
_NEARER = 2.0**-50  # of ε at δ = 0: how near the least ε is looked for


def exactly() -> AbstractContextManager[Context]:
    """Arithmetic of 80 digits, whatever the size of numbers."""
    return localcontext(prec=_DIGITS, Emin=MIN_EMIN, Emax=MAX_EMAX)


def total(losses: Iterable[Decimal]) -> Decimal:
    """The sum of losses of answers that add up."""
    with exactly():
        return sum(losses, Decimal(0))


def decimal_of(value: Fraction) -> Decimal:
    """A fraction as a decimal, rounded up by 10⁻⁶⁰ of itself."""
    with exactly():
        return Decimal(value.numerator) / Decimal(value.denominator) * (1 + _SLACK)


def logarithm(ratio: Fraction) -> Decimal:
    """The natural logarithm of a number of at least 1, rounded up."""
    with exactly():
        return (Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln() * (1 + _SLACK)


def cells(noise_scale: float, moved: int) -> Pair:
    """Counts of which ``moved`` move by one, each with discrete Laplace noise of this scale σ.

    One of them is as likely as not to be told by a = e^(−1/σ): (1, a)/(1 + a), or the other way.
    """
    one = coin(decimal_of(1 / Fraction(noise_scale)))
    if moved == 1:
        return one
    with exactly():
        (more, less), _ = one
        return (more * more, less * less), (2 * more * less,) * 2, (less * less, more * more)


def coin(loss: Decimal) -> Pair:
    """Whatever tells two neighbours apart by e^``loss`` at most: that coin tells as much.

    Kairouz, Oh and Viswanath (2015).
    """
    with exactly():
        less = 1 / (1 + loss.exp()) if loss < _LARGEST else Decimal(0)
        return (1 - less, less), (less, 1 - less)


def shift(noise_scale: float, steps: int) -> Pair:
    """A sum that moves by ``steps`` M, with discrete Laplace noise of this scale σ.

    Noise of k, where 0 is as likely as all below together, and M as all above, has P = (1 − a) a^k
    /(1 + a) and Q = P a^(M − 2k). Where M is above 256, neighbouring k are joined, and Q is what it
    would be if all of P were at the least of them.
    """
    if steps > _LARGEST * Decimal(noise_scale):
        return coin(_LARGEST)
    with exactly():
        a = (-1 / Decimal(noise_scale)).exp()
        width = -(-steps // _MOST)
        starts = range(0, steps, width)
        masses = [(a**k - a ** min(k + width, steps)) / (1 + a) for k in starts]
        masses[0] += a / (1 + a)
        inside = [(p, p * a ** (steps - 2 * k)) for k, p in zip(starts, masses, strict=True)]
        return (*inside, (a**steps / (1 + a), 1 / (1 + a)))


def response(rate: Fraction, least: Fraction) -> Pair:
    """An outcome that is drawn anew at ``rate`` λ, where nothing is less likely than ``least`` γ.

    P = (1 − λ + λγ, λγ, λ(1 − 2γ)), and Q with the first two the other way round.
    """
    kept, other = 1 - rate + rate * least, rate * least
    more, less, same = (decimal_of(one) for one in (kept, other, rate - 2 * other))
    return (more, less), (less, more), (same, same)


def delta_of(pairs: Sequence[Pair], epsilon: Decimal) -> Decimal:
    """The δ of all together at ``epsilon``, rounded up."""
    with exactly():
        factor = min(epsilon, _LARGEST).exp() * (1 - _MARGIN)
        more, less = 1 + _MARGIN, 1 - _MARGIN
        together = ((p * more, q * less) for p, q in _together(pairs))
        return sum((max(p - factor * q, Decimal(0)) for p, q in together), Decimal(0))


def epsilon_of(pairs: Sequence[Pair], delta: Decimal, pure: Decimal) -> Decimal:
    """An ε of all together at ``delta``, which is above 0: the least, to 2⁻⁵⁰ of ``pure``.

    That is what it is at δ = 0. Found in doubles, and made sure of in decimals.
    """
    p, q = np.array([(float(p), float(q)) for p, q in _together(pairs)]).T
    low, high = 0.0, float(pure)
    nearer = high * _NEARER
    while high - low > nearer:
        middle = (low + high) / 2.0
        is_enough = np.maximum(p - math.exp(min(middle, 700.0)) * q, 0.0).sum() <= float(delta)
        low, high = (low, middle) if is_enough else (middle, high)
    while high < pure and delta_of(pairs, Decimal(high)) > delta:
        high, nearer = high + nearer, 2.0 * nearer
    return min(Decimal(high), pure)


def _together(pairs: Sequence[Pair]) -> Pair:
    """All combinations of what independent answers may be."""
    found: Pair = ((Decimal(1), Decimal(1)),)
    with exactly():
        for pair in pairs:
            found = tuple((p * r, q * s) for (p, q), (r, s) in product(found, pair))
    return found
