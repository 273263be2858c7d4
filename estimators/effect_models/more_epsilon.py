"""What more ε would buy: how much smaller the noise of an effect model's sums would be.

All of it follows from ε and δ, which are public. Source: Canonne, Kamath and Steinke (2020),
Corollary 13, from zero-concentrated to approximate differential privacy.
"""

from dataclasses import dataclass
from math import log, sqrt
from typing import Final

import numpy as np

from schemas.arrays import Floats
from schemas.effects import Effect, EffectDesign

_ORDERS: Final[Floats] = 1.0 + np.geomspace(1e-4, 1e6, 4001)
"""α; a minimum over a grid of them is never below that over all."""
_HALVINGS: Final = 60


@dataclass(frozen=True)
class Further:
    """An effect model as it would be at another ε, all else equal."""

    epsilon: float
    noise: float
    """The noise of every sum, as a multiple of what it is."""
    std_error: float | None
    """Of the average effect, in the outcomes' unit; None where there is none."""


def rho_of(epsilon: float, delta: float) -> float:
    """Return the largest ρ (on a grid of α, so at most a hair too small) that (ε, δ) pays for.

    min over α > 1 of exp((α − 1)(αρ − ε))/(α − 1) · (1 − 1/α)^α ≤ δ,

    where ε is ``epsilon`` > 0 and δ is ``delta`` in (0, 1).
    """
    fixed = _ORDERS * np.log1p(-1.0 / _ORDERS) - np.log(_ORDERS - 1.0)
    low, high = 0.0, epsilon + 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        least = np.min((_ORDERS - 1.0) * (_ORDERS * middle - epsilon) + fixed)
        low, high = (middle, high) if least <= log(delta) else (low, middle)
    return low


def at_epsilon(design: EffectDesign, ate: Effect | None, epsilon: float) -> Further:
    """Return what a model would be at ``epsilon``: its own noise times √(ρ/ρ′).

    ``ate`` is its average effect; None where there is none.

    The standard error of the average effect is √(se² − p² + p² ρ/ρ′), p the part that privacy has
    in se.
    """
    ratio = rho_of(design.epsilon, design.delta) / rho_of(epsilon, design.delta)
    return Further(epsilon, sqrt(ratio), None if ate is None else _at(ate, ratio))


def _at(effect: Effect, ratio: float) -> float:
    noise = min(effect.privacy_std_error, effect.std_error) ** 2
    return sqrt(max(effect.std_error**2 - noise + noise * ratio, 0.0))
