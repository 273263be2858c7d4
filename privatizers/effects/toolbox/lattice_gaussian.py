"""Gaussian noise on a lattice, calibrated on its exact curve: the act, and what it costs.

Balle and Wang (2018) found the least σ of continuous Gaussian noise for (ε, δ). Noise that a
computer can draw exactly is discrete, whose curve is another one: it is summed here, with bounds
for all that is left out, and σ is raised until it holds. Proofs are in `toolbox.md`.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from estimators.special import log_ndtr
from privatizers.noise.lattice_laplace import power_of_two_step
from privatizers.noise.randomness import discrete_gaussian

_WINDOW = 16.0
"""Standard deviations that are summed; the rest is bounded, by under 1e-55."""

_ROUNDING = 1.0 + 2.0**-20
"""Covers the rounding of sums of positive numbers, generously."""

_MOST_TERMS = 2.0**25

_PART = 2.0**-8
"""Steps in parts of the sensitivity: rounding to them widens the noise by 1/256."""


def continuous_delta(sigma: float, epsilon: float, sensitivity: float = 1.0) -> float:
    """Return δ(ε) of continuous Gaussian noise, for reference (Balle and Wang 2018, Theorem 8).

        δ = Φ(Δ/(2σ) − εσ/Δ) − e^ε Φ(−Δ/(2σ) − εσ/Δ)

    where ``sigma`` is σ, ``sensitivity`` Δ, in one unit. By logarithms of Φ; what cancels costs
    digits where δ is much less than either term.
    """
    half, pull = sensitivity / (2.0 * sigma), epsilon * sigma / sensitivity
    first = float(log_ndtr(half - pull))
    second = epsilon + float(log_ndtr(-half - pull))
    return math.exp(first) * -math.expm1(min(second - first, 0.0))


def continuous_sigma(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Return the least σ of continuous noise, by bisection: for reference, not for release.

    Raises ValueError unless ε > 0 and 0 < δ < 1, all finite.
    """
    if not (0.0 < epsilon < math.inf and 0.0 < delta < 1.0):
        raise ValueError(f"need epsilon above 0 and delta in (0, 1), not {epsilon!r} and {delta!r}")
    low, high = 0.0, 1.0
    while continuous_delta(high, epsilon) > delta:
        low, high = high, 2.0 * high
    for _ in range(100):
        middle = (low + high) / 2.0
        inside = middle > 0.0 and continuous_delta(middle, epsilon) <= delta
        low, high = (low, middle) if inside else (middle, high)
    return high * sensitivity


def discrete_delta(scale: float, epsilon: float, steps: int) -> float:
    """Return δ(ε), rounded up, of discrete Gaussian noise for values ``steps`` or fewer apart.

        δ = Σ_{k < t} P(k) (1 − e^(ε − ℓ(k))),   ℓ(k) = (Δ² − 2kΔ)/(2σ²),   t = Δ/2 − εσ²/Δ

    P(k) ∝ e^(−k²/(2σ²)) over whole k, ℓ its loss against the same noise Δ = ``steps`` away, falling
    in k (Canonne, Kamath and Steinke 2020, Theorem 7). It rises with Δ, so it covers lesser
    distances too. Summed over 16 σ; the rest of the tail is added, that of ΣP left out.

    where ``scale`` is σ in steps. Raises ValueError for numbers that are none, or too many terms.
    """
    if not (scale > 0.0 and steps >= 1 and _WINDOW * scale <= _MOST_TERMS):
        raise ValueError(
            f"no Gaussian noise of {scale!r} steps for values {steps} apart: take a greater step"
        )
    reach = math.ceil(_WINDOW * scale)
    k = np.arange(-reach, reach + 1, dtype=np.float64)
    weights = np.exp(-((k / scale) ** 2) / 2.0)
    loss = (steps**2 - 2.0 * k * steps) / (2.0 * scale**2)
    lost = np.exp(np.minimum(epsilon - loss, 0.0))
    # Σ_{k ≥ m} e^(−k²/2σ²) ≤ e^(−m²/2σ²)/(1 − e^(−m/σ²)), as exponents fall by m/σ² or more a step.
    most = math.exp(-(((reach + 1) / scale) ** 2) / 2.0)
    tail = most / -math.expm1(-(reach + 1) / scale**2)
    told = float(np.sum(weights * (1.0 - lost)))
    return min((told + tail) / float(np.sum(weights)) * _ROUNDING, 1.0)


def discrete_scale(epsilon: float, delta: float, steps: int) -> float:
    """Return a σ in steps for which :func:`discrete_delta` is at most ``delta``.

    It starts from the continuous σ, which from a few steps on is right to a millionth, and is
    raised as long as the exact sum asks for it. Raises ValueError for numbers that are none.
    """
    sigma = continuous_sigma(epsilon, delta, float(steps))
    raised = 2.0**-20
    while discrete_delta(sigma * (1.0 + raised), epsilon, steps) > delta:
        raised *= 2.0
    return sigma * (1.0 + raised)


@dataclass(frozen=True)
class LatticeGaussian:
    """Discrete Gaussian noise on one real number, on a lattice of step h.

    Guarantee: (ε, δ)-DP where neighbours move the number, as it is computed, by ``sensitivity`` at
    most: rounded to steps it moves by ⌊Δ/h⌋ + 1 at most, for which σ is calibrated exactly.
    """

    sensitivity: float
    epsilon: float
    delta: float
    step: float | None = None
    """h, a power of two; by default the greatest up to Δ/256."""

    @property
    def lattice_step(self) -> float:
        """The step h of the lattice."""
        return power_of_two_step(self.sensitivity, _PART) if self.step is None else self.step

    @property
    def steps(self) -> int:
        """How many steps neighbours are apart at most."""
        step = self.lattice_step
        if power_of_two_step(step, 1.0) != step:
            raise ValueError(f"a step is a power of two, not {step!r}")
        return math.floor(self.sensitivity / step) + 1

    @cached_property
    def scale(self) -> float:
        """σ in steps."""
        return discrete_scale(self.epsilon, self.delta, self.steps)

    def release(self, value: float) -> float:
        """Return h (k + Z), k being ``value`` in steps, clipped to ±2⁵¹ of them."""
        k = np.clip(np.rint(value / self.lattice_step), -(2.0**51), 2.0**51).astype(np.int64)
        return float((k + discrete_gaussian(1, self.scale)[0]) * self.lattice_step)
