"""Budgets: values of (ε, δ) that add up and compare.

An amount is the decimal number that it prints as: ten releases of 0.1 cost 1, neither more nor
less, although no double is a tenth. The printed numbers are added up exactly, and the sum is
rounded up to a double where no double prints as the sum. `accountant` prices events so that the
printed number, too, is never below the price.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction

_DIGITS = 60  # far more than sums of printed doubles need here


def written(value: float) -> Decimal:
    """Return the shortest decimal number that reads back as the double ``value``.

    It is less than half a unit in the last place away, and greater for a greater double.
    """
    return Decimal(repr(float(value)))


@dataclass(frozen=True, slots=True)
class Budget:
    """An amount of privacy loss: ε and δ, neither of them negative."""

    epsilon: float = 0.0
    delta: float = 0.0

    def __post_init__(self) -> None:
        """Refuse negative amounts and NaN; infinity is an amount."""
        for name in ("epsilon", "delta"):
            value = float(getattr(self, name))
            if not value >= 0:
                raise ValueError(f"a budget's {name} is at least 0, not {value!r}")
            object.__setattr__(self, name, value + 0.0)  # −0.0 becomes 0.0

    def __add__(self, other: "Budget") -> "Budget":
        """Return the total of two amounts spent on the same people; rounded up."""
        return total((self, other))

    def __le__(self, other: "Budget") -> bool:
        """Whether neither component is greater, and so >=. (1, 0) and (0, 1) have no order."""
        return self.epsilon <= other.epsilon and self.delta <= other.delta

    def __lt__(self, other: "Budget") -> bool:
        """Whether no component is greater and one is less, and so >."""
        return self <= other and self != other

    def fits_into(self, limit: "Budget") -> bool:
        """Whether this amount may be spent under a ``limit``."""
        return self <= limit

    def left_after(self, spent: "Budget") -> "Budget":
        """Return the rest of this budget after ``spent``; rounded down, at least 0."""
        return Budget(_remainder(self.epsilon, spent.epsilon), _remainder(self.delta, spent.delta))


NO_LIMIT = Budget(math.inf, math.inf)
"""The limit where none is declared."""


def total(budgets: Iterable[Budget]) -> Budget:
    """Add up amounts spent on the same people: Σε and Σδ, rounded up once."""
    amounts = list(budgets)
    return Budget(_sum(each.epsilon for each in amounts), _sum(each.delta for each in amounts))


def of_group(price: Budget, size: int) -> Budget:
    """Return what a group of ``size`` units pays where one of them pays ``price``, rounded up.

    Group privacy: (mε, δ (e^{mε} − 1)/(e^ε − 1)), for m units whose outcomes may all differ; at
    δ = 0 that is (mε, 0), and at ε = 0 the factor of δ is m. At most 1 for δ.
    """
    epsilon = total([Budget(price.epsilon)] * size).epsilon
    if price.delta == 0.0 or size == 1:
        return Budget(epsilon, price.delta)
    # Σ_{i<m} e^{iε}, each term and the sum a little too large.
    try:
        factor = math.fsum(math.exp(i * price.epsilon) for i in range(size)) * (1.0 + 1e-12)
    except OverflowError:
        factor = math.inf
    return Budget(epsilon, min(price.delta * factor * (1.0 + 1e-12), 1.0))


def parts_of(whole: Budget, shares: Sequence[Fraction]) -> tuple[Budget, ...]:
    """Divide an amount into parts that add up to at most it: (s_i ε, s_i δ), rounded down.

    where

    - ε and δ are the decimal numbers that the ``whole`` prints as,
    - s_i are the ``shares``, above 0 and adding up to at most 1,

    and each part is the greatest double that prints as no more than s_i ε. So the printed parts add
    up exactly to no more than the printed whole.

    Raises:
        ValueError: Shares are not above 0, or add up to more than 1.
    """
    if any(share <= 0 for share in shares) or sum(shares) > 1:
        raise ValueError("shares are above 0 and add up to at most 1")
    return tuple(Budget(_part(whole.epsilon, share), _part(whole.delta, share)) for share in shares)


def _part(value: float, share: Fraction) -> float:
    """Return the greatest double that prints as no more than ``share`` of the printed value."""
    exact = Fraction(written(value)) * share
    nearest = float(exact)
    while Fraction(written(nearest)) > exact:
        nearest = math.nextafter(nearest, 0.0)
    return nearest


def _sum(values: Iterable[float]) -> float:
    """Return the least double that prints as no less than the sum of the printed ``values``."""
    with localcontext(prec=_DIGITS, rounding=ROUND_CEILING):
        exact = sum((written(value) for value in values), Decimal(0))
    nearest = float(exact)
    return nearest if written(nearest) >= exact else math.nextafter(nearest, math.inf)


def _remainder(limit: float, spent: float) -> float:
    """Return the greatest double that prints as no more than ``limit`` − ``spent``, or 0."""
    if spent >= limit:
        return 0.0
    with localcontext(prec=_DIGITS, rounding=ROUND_FLOOR):
        exact = written(limit) - written(spent)
    nearest = float(exact)
    return nearest if written(nearest) <= exact else math.nextafter(nearest, 0.0)
