"""What Gaussian noise on sums costs: ρ of zCDP, and (ε, δ) of it.

Discrete Gaussian noise of scale σ on whole numbers that neighbours move by Δ in the Euclidean norm
has ρ = Δ²/(2σ²), and ρ adds up. It implies (ε, δ) for every order α > 1 with

    ε = αρ + (ln(1/δ) + α ln(1 − 1/α) − ln(α − 1))/(α − 1)

(Canonne, Kamath and Steinke 2020, Theorem 14 and Corollary 13).
"""

import math
from collections.abc import Callable

import numpy as np

from schemas.arrays import Floats

_RAISED = 1.0 + 2.0**-44
"""Covers the rounding of doubles."""


def epsilon_of(rho: float, delta: float) -> float:
    """The ε that ρ-zCDP implies at ``delta``, rounded up: of the best order that is found."""
    if rho == 0.0:
        return 0.0
    least = _least(lambda above: (above + 1.0) * rho + (_entropy(above) - math.log(delta)) / above)
    return max(0.0, least) * _RAISED


def delta_of(rho: float, epsilon: float) -> float:
    """The δ that ρ-zCDP implies at ``epsilon``, rounded up: of the best order that is found."""
    if rho == 0.0:
        return 0.0
    least = _least(lambda above: above * ((above + 1.0) * rho - epsilon) + _entropy(above))
    return min(1.0, math.exp(min(least, 0.0)) * _RAISED)


def _entropy(above: Floats) -> Floats:
    """α ln(1 − 1/α) − ln(α − 1), of α − 1."""
    found: Floats = -(above + 1.0) * np.log1p(1.0 / above) - np.log(above)
    return found


def _least(function: Callable[[Floats], Floats]) -> float:
    """The least value of a function of α − 1: every α holds, so a good one is enough."""
    places, width = np.linspace(-16.0, 16.0, 641), 0.1
    for _ in range(6):
        values = function(np.exp(places))
        best = int(np.argmin(values))
        places, width = places[best] + np.linspace(-width, width, 81), width / 20.0
    return float(values[best])
