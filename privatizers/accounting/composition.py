"""What several releases cost together the people who are in all of them, by their prices alone.

Adding up ε and δ holds however each price was chosen, so budgets are held by sums. Where the prices
were fixed beforehand less is lost, at a δ that leaves something over: Murtagh and Vadhan, "The
Complexity of Computing the Optimal Composition of Differential Privacy" (2016), Theorem 1.5, which
has Kairouz, Oh and Viswanath (2015), Theorem 3.3, for equal prices. A mechanism of price (ε_i, δ_i)
is no worse than a coin: with δ_i it tells everything, else it answers truly with probability
e^ε_i/(1 + e^ε_i). So the theorem holds where mechanisms are chosen after seeing what earlier ones
told. It does not hold where prices, or the number of releases, are chosen so.
"""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from privatizers.accounting.budget import Budget, total
from schemas.arrays import Floats

_FINENESS = 2**16  # steps of a lattice that losses are rounded up to, in the sum of all ε
_MORE = 1.0 + 2.0**-20  # covers what rounding takes from sums of chances
_LITTLE = 2.0**-32  # a part of an amount that covers the rounding of the amount itself


def composed_epsilon(prices: Sequence[Budget], delta: float) -> float:
    """Return an upper bound on ε of all ``prices`` together at ``delta``, at most their sum.

    It is the least ε for which

        Σ_S Π_{i ∈ S} p_i Π_{i ∉ S} (1 − p_i) max(1 − e^(ε − ℓ(S)), 0) ≤ 1 − (1 − δ)/Π(1 − δ_i),

        p_i = e^ε_i/(1 + e^ε_i),   ℓ(S) = Σ_{i ∈ S} ε_i − Σ_{i ∉ S} ε_i,

    over all sets S of releases, with losses ℓ rounded up to a lattice: for equal prices by a
    65,536th of Σε at most, for g different ones by g times that. Raises ValueError where ``delta``
    is less than Σδ_i, at which nothing holds, or not below 1.
    """
    plain = total(prices)
    if not (plain.delta <= delta < 1.0 and math.isfinite(plain.epsilon)):
        raise ValueError(f"no epsilon holds for prices of {plain} at delta {delta!r}")
    kept = math.fsum(math.log1p(-each.delta) for each in prices)
    left = -math.expm1(math.log1p(-delta) - kept) - delta * _LITTLE
    if left <= 0.0 or plain.epsilon == 0.0:
        return plain.epsilon
    losses, chances = _law([each.epsilon for each in prices], plain.epsilon / _FINENESS)
    low, high = 0.0, plain.epsilon
    while high - low > plain.epsilon * _LITTLE:
        middle = (low + high) / 2.0
        told = float(chances @ -np.expm1(np.minimum(middle - losses, 0.0)))
        low, high = (low, middle) if told * _MORE <= left else (middle, high)
    return min(plain.epsilon, high + plain.epsilon * _LITTLE)


def _law(epsilons: Sequence[float], step: float) -> tuple[Floats, Floats]:
    """The losses that sets of coins can have, rounded up to whole ``step``, and their chances."""
    lowest, chances = 0, np.ones(1)
    for epsilon, times in Counter(epsilons).most_common():
        places = np.ceil(np.arange(-times, times + 1, 2) * epsilon / step).astype(np.int64)
        summed = np.zeros(len(chances) + int(places[-1] - places[0]))
        # How likely 0, 1, … of the coins answer truly; by sums of positive numbers alone.
        wrong, true = math.exp(-epsilon) / (1.0 + math.exp(-epsilon)), np.ones(1)
        for _ in range(times):
            true = np.convolve(true, [wrong, 1.0 - wrong])
        for place, chance in zip(places - places[0], true, strict=True):
            summed[place : place + len(chances)] += chance * chances
        lowest, chances = lowest + int(places[0]), summed
    possible = np.flatnonzero(chances)
    return (lowest + possible).astype(np.float64) * step, chances[possible]
