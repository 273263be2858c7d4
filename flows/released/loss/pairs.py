"""What everything that is published of one unit tells of it: (ε, δ) of independent answers.

Of each answer the two most different neighbours are known, as a *pair*: the probabilities (P, Q) of
everything that the answer may be. No two neighbours can be told apart more easily than by such
pairs (they dominate), and independent ones together dominate what was answered together, also where
a later answer was chosen by an earlier one (Zhu, Dong and Wang 2022). So

    δ(ε) = Σ_o max(P(o) − e^ε Q(o), 0),    over all combinations o of answers.

All of this is called in :func:`exactly`, decimals of 80 digits; P is raised and Q lowered by 10⁻⁵⁵
of themselves, which is more than what rounding takes.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, Context, Decimal, localcontext
from fractions import Fraction
from itertools import product

Pair = tuple[tuple[Decimal, Decimal], ...]
"""P and Q of everything that an answer may be."""

_SLACK = Decimal(10) ** -60
_MARGIN = Decimal(10) ** -55
_LARGEST = Decimal(10) ** 7
"""A loss from which on nothing is taken to be hidden: an exponential has to be a number."""
_MOST = 256  # values of a noisy sum that are told apart; more are joined, in favour of the observer
_NEARER = Decimal(2) ** -50  # of ε at δ = 0: how near the least ε is looked for


def exactly() -> AbstractContextManager[Context]:
    """Arithmetic of 80 digits, whatever the size of numbers."""
    return localcontext(prec=80, Emin=MIN_EMIN, Emax=MAX_EMAX)


def decimal_of(value: Fraction) -> Decimal:
    """A fraction as a decimal, rounded up where it is none."""
    with localcontext(rounding=ROUND_CEILING):
        return Decimal(value.numerator) / Decimal(value.denominator)


def logarithm(ratio: Fraction) -> Decimal:
    """The natural logarithm of a number of at least 1, rounded up."""
    return (Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln() * (1 + _SLACK)


def coin(loss: Decimal) -> Pair:
    """Whatever tells two neighbours apart by e^``loss`` at most: that coin tells as much.

    Kairouz, Oh and Viswanath (2015). A count that moves by one, with discrete Laplace noise of
    scale σ, tells as much as that of 1/σ.
    """
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


def together(pairs: Iterable[Pair]) -> Pair:
    """All combinations of what independent answers may be, with what rounding may have taken."""
    found: Pair = ((1 + _MARGIN, 1 - _MARGIN),)
    for pair in pairs:
        found = tuple((p * r, q * s) for (p, q), (r, s) in product(found, pair))
    return found


def delta_of(told: Pair, epsilon: Decimal) -> Decimal:
    """The δ at ``epsilon`` of all answers :func:`together`, rounded up."""
    factor = min(epsilon, _LARGEST).exp() * (1 - _MARGIN)
    return sum((max(p - factor * q, Decimal(0)) for p, q in told), Decimal(0))


def epsilon_of(told: Pair, delta: Decimal, pure: Decimal) -> Decimal:
    """An ε of all :func:`together` at ``delta``, which is above 0: the least, to 2⁻⁵⁰ of ``pure``.

    That is what it is at δ = 0.
    """
    low, high = Decimal(0), pure
    while high - low > pure * _NEARER:
        middle = (low + high) / 2
        low, high = (low, middle) if delta_of(told, middle) <= delta else (middle, high)
    return high
