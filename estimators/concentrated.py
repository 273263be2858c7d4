"""Concentrated differential privacy: the price of Gaussian noise on vectors.

A release is ρ-zCDP if its Rényi divergence of every order α > 1 between neighbours is at most αρ
(Bun and Steinke 2016). Discrete Gaussian noise of scale σ on each entry of a vector of whole
numbers that neighbours move by Δ in the Euclidean norm has ρ = Δ²/(2σ²), whatever the number of
entries (Canonne, Kamath and Steinke 2020, Theorem 14). ρ adds up, also where a later query is
chosen by earlier answers.
"""

import math
from functools import lru_cache

import numpy as np

from schemas.arrays import Floats

_ROUNDING = 2.0**-46
"""Of a term: covers the rounding of a handful of operations on doubles, generously."""


def concentrated_delta(rho: float, epsilon: float) -> float:
    """Return a δ, rounded up, for which ρ-zCDP implies (ε, δ)-DP.

        δ = min over α > 1 of exp((α − 1)(αρ − ε)) / (α − 1) · (1 − 1/α)^α

    (Canonne, Kamath and Steinke 2020, Corollary 13). Every α gives a valid δ, so how well the
    minimum is found matters for sharpness alone. At most 1.

    Raises:
        ValueError: ρ or ε is negative or not a number.
    """
    if not (rho >= 0.0 and epsilon >= 0.0):
        raise ValueError(f"rho and epsilon are at least 0, not {rho!r} and {epsilon!r}")
    if math.isinf(rho):
        return 1.0
    if rho == 0.0:
        return 0.0
    places, width = np.linspace(-14.0, 14.0, 561), 0.1  # ln(α − 1)
    least = math.inf
    for _ in range(5):
        logs = _log_delta(places, rho, epsilon)
        best = int(np.argmin(logs))
        least = float(logs[best])
        places, width = places[best] + np.linspace(-width, width, 101), width / 25.0
    return min(1.0, math.exp(min(least, 0.0)))


def _log_delta(log_above: Floats, rho: float, epsilon: float) -> Floats:
    """Return ln δ at α = 1 + exp(``log_above``), shape as it; above it for all that rounds."""
    above = np.exp(log_above)
    alpha = 1.0 + above
    terms = np.array(
        [above * alpha * rho, -above * epsilon, -log_above, -alpha * np.log1p(1.0 / above)]
    )
    logs: Floats = terms.sum(axis=0) + np.abs(terms).sum(axis=0) * _ROUNDING
    return logs


@lru_cache(maxsize=256)  # a design asks for it at every stage
def concentrated_rho(epsilon: float, delta: float) -> float:
    """Return the greatest ρ, rounded down, for which ρ-zCDP implies (ε, δ)-DP.

    By bisection on :func:`concentrated_delta`; that of the ρ returned is at most δ. At ε = 1,
    2, 4 and δ = 1e-5 it is 0.03056, 0.10826 and 0.37314.

    Raises:
        ValueError: Unless ε > 0 and 0 < δ < 1, both finite; Gaussian noise has no pure ε.
    """
    if not (0.0 < epsilon < math.inf and 0.0 < delta < 1.0):
        raise ValueError(f"need epsilon above 0 and delta in (0, 1), not {epsilon!r} and {delta!r}")
    low, high = 0.0, 1.0
    while concentrated_delta(high, epsilon) <= delta:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = (low + high) / 2.0
        inside = concentrated_delta(middle, epsilon) <= delta
        low, high = (middle, high) if inside else (low, middle)
    return low


def concentrated_epsilon(rho: float, delta: float) -> float:
    """Return an ε, rounded up, for which ρ-zCDP implies (ε, δ)-DP; by bisection.

    Raises:
        ValueError: Unless ρ is at least 0 and 0 < δ < 1, both finite.
    """
    if not (0.0 <= rho < math.inf and 0.0 < delta < 1.0):
        raise ValueError(f"need rho from 0 and delta in (0, 1), not {rho!r} and {delta!r}")
    low, high = 0.0, 1.0
    while concentrated_delta(rho, high) > delta:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = (low + high) / 2.0
        inside = concentrated_delta(rho, middle) <= delta
        low, high = (low, middle) if inside else (middle, high)
    return high
