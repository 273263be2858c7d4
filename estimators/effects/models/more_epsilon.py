"""What more ε would buy: how much smaller the noise of an effect model's sums would be.

All of it follows from ε and δ, which are public. Source: Canonne, Kamath and Steinke (2020),
Corollary 13, from zero-concentrated to approximate differential privacy.
"""

from dataclasses import dataclass
from math import sqrt

from estimators.concentrated import concentrated_rho
from schemas.effects.model import Effect, EffectDesign


@dataclass(frozen=True)
class Further:
    """An effect model as it would be at another ε, all else equal."""

    epsilon: float
    noise: float
    """The noise of every sum, as a multiple of what it is."""
    std_error: float | None
    """Of the average effect, in the outcomes' unit; None where there is none."""


def at_epsilon(design: EffectDesign, ate: Effect | None, epsilon: float) -> Further:
    """Return what a model would be at ``epsilon``: its own noise times √(ρ/ρ′).

    ``ate`` is its average effect; None where there is none.

    The standard error of the average effect is √(se² − p² + p² ρ/ρ′), p the part that privacy has
    in se.
    """
    ratio = concentrated_rho(design.epsilon, design.delta) / concentrated_rho(epsilon, design.delta)
    error = None
    if ate is not None:
        noise = min(ate.privacy_std_error, ate.std_error) ** 2
        error = sqrt(max(ate.std_error**2 - noise + noise * ratio, 0.0))
    return Further(epsilon, sqrt(ratio), error)
