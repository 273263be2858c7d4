"""Budgets: values of (ε, δ) that add up and compare.

An amount is the decimal number it is written as: ten releases of 0.1 cost 1, neither more nor
less, although no double is a tenth. Sums are taken of the written numbers, exactly, and rounded
up to a double where none is written like the sum. `accountant` prices events so that the written
number, too, is never below the price.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext

_DIGITS = 60  # far more than written doubles of any sizes met here have between them


def written(value: float) -> Decimal:
    """Return the shortest decimal number that reads back as the double ``value``.

    It is less than half a unit in the last place away, and greater doubles are written greater.
    """
    return Decimal(repr(float(value)))


@dataclass(frozen=True, slots=True)
class Budget:
    """An amount of privacy loss, to spend or spent: ε and δ, neither of them negative."""

    epsilon: float = 0.0
    delta: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is no amount; infinity is one."""
        for name in ("epsilon", "delta"):
            value = float(getattr(self, name))
            if not value >= 0:
                raise ValueError(f"a budget's {name} is at least 0, not {value!r}")
            object.__setattr__(self, name, value + 0.0)  # −0.0 is written 0.0

    def __add__(self, other: "Budget") -> "Budget":
        """Both spent on the same people, one after the other; rounded up."""
        return total((self, other))

    def __le__(self, other: "Budget") -> bool:
        """Neither component is greater. The order is partial: (1, 0) and (0, 1) have none."""
        return self.epsilon <= other.epsilon and self.delta <= other.delta

    def __lt__(self, other: "Budget") -> bool:
        """No component is greater and one is less."""
        return self <= other and self != other

    def __ge__(self, other: "Budget") -> bool:
        """Neither component is less."""
        return other <= self

    def __gt__(self, other: "Budget") -> bool:
        """No component is less and one is greater."""
        return other < self

    def fits_into(self, limit: "Budget") -> bool:
        """Whether so much may be spent where ``limit`` is all there is."""
        return self <= limit

    def left_after(self, spent: "Budget") -> "Budget":
        """Return what is left of this once ``spent`` is; rounded down, at least nothing."""
        return Budget(_remainder(self.epsilon, spent.epsilon), _remainder(self.delta, spent.delta))


NO_LIMIT = Budget(math.inf, math.inf)
"""The limit where none is declared."""


def total(budgets: Iterable[Budget]) -> Budget:
    """Add up what was spent on the same people: Σε and Σδ, rounded up once."""
    spent = list(budgets)
    return Budget(_sum(each.epsilon for each in spent), _sum(each.delta for each in spent))


def _sum(values: Iterable[float]) -> float:
    """Return the least double that is written no less than the sum of the written ``values``."""
    with localcontext(prec=_DIGITS, rounding=ROUND_CEILING):
        exact = sum((written(value) for value in values), Decimal(0))
    nearest = float(exact)
    return nearest if written(nearest) >= exact else math.nextafter(nearest, math.inf)


def _remainder(limit: float, spent: float) -> float:
    """Return the greatest double written no more than ``limit`` − ``spent``, or 0."""
    if spent >= limit:
        return 0.0
    with localcontext(prec=_DIGITS, rounding=ROUND_FLOOR):
        exact = written(limit) - written(spent)
    nearest = float(exact)
    return nearest if written(nearest) <= exact else math.nextafter(nearest, 0.0)
