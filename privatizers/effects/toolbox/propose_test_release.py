"""Propose-test-release: the act, and what it costs (Dwork and Lei 2009). Proof in `toolbox.md`.

The analyst proposes a bound b on how far one change moves the query. A private test asks how many
changes the data are from a data set where it is not so; if they are far, the value is released with
noise of size b. A failed test is charged like any other.
"""

import math
from dataclasses import dataclass

import numpy as np

from privatizers.effects.toolbox.local_sensitivity import LocalSensitivity, distance_to
from privatizers.noise.lattice_laplace import lattice_laplace, lattice_scale, power_of_two_step
from privatizers.noise.randomness import discrete_laplace


@dataclass(frozen=True)
class ProposeTestRelease:
    """Propose a bound b, test for it at ε₁ = ε/2, release at ε₂ = ε/2.

    Guarantee: (ε, δ)-DP, ⊥ or not. D = min{k : A(k) > b}, one change moves it by one, and the test
    passes if D + Z ≥ T, Z discrete Laplace of scale 1/ε₁, T = ⌈ln(1/(δ(1 + e^(−ε₁))))/ε₁⌉. Where b
    does not hold D is 0, and P(Z ≥ T) ≤ δ. Where it does, noise of scale (b/h + 1)/ε₂ is enough.

    The chapter of Near and Abuah has T = ln(2/δ)/(2ε₁), which lets √(δ/8) through; 35 times δ
    at 1e-4.
    """

    bound: float
    """b, public: chosen without a look at the data."""
    epsilon: float
    delta: float
    step: float | None = None
    """h, a power of two; by default the greatest up to 2⁻²⁰ b."""

    def __post_init__(self) -> None:
        """Refuse numbers that promise nothing."""
        if not (0.0 < self.epsilon < math.inf and 0.0 < self.delta < 0.5):
            raise ValueError(
                f"need epsilon > 0 and delta in (0, 1/2), not {self.epsilon!r}, {self.delta!r}"
            )
        lattice_scale(sensitivity=self.bound, epsilon=self.epsilon / 2, step=self.lattice_step)

    @property
    def lattice_step(self) -> float:
        """The step h of the lattice."""
        return power_of_two_step(self.bound) if self.step is None else self.step

    @property
    def test_scale(self) -> float:
        """1/ε₁, rounded up."""
        return math.nextafter(2.0 / self.epsilon, math.inf)

    @property
    def threshold(self) -> int:
        """T, rounded up; at least 1."""
        scale = self.test_scale
        tail = -math.log(self.delta) - math.log1p(math.exp(-1.0 / scale))
        return max(math.ceil(scale * tail * (1.0 + 2.0**-40)), 1)

    @property
    def noise_scale(self) -> float:
        """(b/h + 1)/ε₂ in steps."""
        return lattice_scale(
            sensitivity=self.bound, epsilon=self.epsilon / 2, step=self.lattice_step
        )

    def release(self, query: LocalSensitivity) -> float | None:
        """Return h (k + Z₂), or None for ⊥; ε and δ are spent either way.

        D is sought up to 4 T, where a failed test is rarer than δ³; f(x) is clipped to ±2⁵¹ h
        and 0 where it is no number.
        """
        reach, step = 4 * self.threshold, self.lattice_step
        value = np.nan_to_num(np.array([query.value]), nan=0.0)  # before the test is drawn
        far = distance_to(query, self.bound, reach)
        if far + int(discrete_laplace(1, self.test_scale)[0]) < self.threshold:
            return None
        within = np.clip(value, -(2.0**51) * step, 2.0**51 * step)
        noisy = lattice_laplace(within, sensitivity=self.bound, epsilon=self.epsilon / 2, step=step)
        return float(noisy[0])
