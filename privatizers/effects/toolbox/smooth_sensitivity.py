"""Noise by smooth sensitivity: the acts, and what they cost. Proofs are in `toolbox.md`.

A smooth bound S of a query is at least its local sensitivity, and neighbours have bounds at most
e^β apart. Two ways to use it. :class:`BoundThenNoise` publishes a private upper bound of S first,
and then needs no more noise than it says: for any ε, with a noise that is known. It is the one to
take. :class:`SmoothLaplace` is Laplace noise of scale 2S/ε at once (Nissim, Raskhodnikova and Smith
2007), whose size stays secret; it is private up to an ε that depends on δ, and refused beyond.
"""

import math
from dataclasses import dataclass

import numpy as np

from privatizers.effects.toolbox.local_sensitivity import LEAST, LocalSensitivity, smooth_bound
from privatizers.noise.lattice_laplace import (
    LEAST_EPSILON,
    lattice_laplace,
    lattice_scale,
    power_of_two_step,
)
from privatizers.noise.randomness import discrete_laplace

SLACK = 2.0**-30
"""What rounding can do to the logarithm of a computed bound, generously: it is paid for."""

_FINEST = 2.0**-10
"""Steps of the logarithm in parts of β, or of 1: rounding to them costs a thousandth."""

_MOST_STEPS = 2.0**52
"""Of the scale of the noise on a logarithm: 64 bits hold what is drawn."""

_WIDEST = 300.0
"""Of the logarithm of what is published; that of the greatest smooth bound is 277.3."""


def beta_of(epsilon: float, delta: float) -> float:
    """Return β = ε/(2 ln(2/δ)). Raises ValueError unless ε is above 0, finite, and 0 < δ < 1/2."""
    if not (0.0 < epsilon < math.inf and 0.0 < delta < 0.5):
        raise ValueError(
            f"need epsilon above 0 and delta in (0, 1/2), not {epsilon!r} and {delta!r}"
        )
    return epsilon / (2.0 * math.log(2.0 / delta))


@dataclass(frozen=True)
class LogNoise:
    """The noise on ln S, in whole steps of η, and what is added to be above S."""

    step: float
    """η, a power of two."""
    scale: float
    """s, in steps."""
    margin: int
    """m, in steps."""

    @classmethod
    def of(cls, *, beta: float, epsilon: float, delta: float) -> "LogNoise":
        """Return what costs ``epsilon`` and fails with at most ``delta`` for β-smooth bounds.

        η is the greatest power of two up to β/1024 and 1/1024; s = (β + 2·2⁻³⁰ + η)/(η ε), rounded
        up, and m = ⌈s ln(1/(δ(1 + a)))⌉, a = e^(−1/s): P(Z < −m) = a^(m+1)/(1 + a) ≤ δ.
        Raises ValueError for impossible numbers, and where s reaches 2⁵².
        """
        if not (0.0 < beta < math.inf and 0.0 < epsilon < math.inf and 0.0 < delta < 1.0):
            raise ValueError(
                "need beta and epsilon above 0 and delta in (0, 1), "
                f"not {beta!r}, {epsilon!r} and {delta!r}"
            )
        step = power_of_two_step(min(beta, 1.0), _FINEST)
        scale = (beta + 2.0 * SLACK + step) / (step * epsilon) * (1.0 + SLACK)
        if scale >= _MOST_STEPS:
            raise ValueError(
                f"an upper bound at epsilon {epsilon!r} has noise of {scale:g} steps: take more"
            )
        tail = max(-math.log(delta) - math.log1p(math.exp(-1.0 / scale)), 0.0)
        return cls(step, scale, math.ceil(scale * tail * (1.0 + SLACK)))

    def position(self, smooth_bound: float) -> int:
        """Return j = ⌈(ln S + 2⁻³⁰)/η⌉: S in steps, unprotected."""
        if math.isnan(smooth_bound):
            raise ValueError("a smooth bound is a number")
        within = min(max(smooth_bound, LEAST), 1.0 / LEAST)
        return math.ceil((math.log(within) + SLACK) / self.step)

    def bound_at(self, position: int) -> float:
        """Return exp(η (position + m)), what is published for j + Z."""
        return math.exp(min(max(self.step * (position + self.margin), -_WIDEST), _WIDEST))


def private_upper_bound(smooth_bound: float, *, beta: float, epsilon: float, delta: float) -> float:
    """Return Ŝ = exp(η (j + Z + m)), which may be published: S ≤ Ŝ but for a chance of δ.

    j = ⌈ln S/η⌉, Z discrete Laplace of scale s ≥ (β/η + 1)/ε and m from :class:`LogNoise`.

    Guarantee: Ŝ is ε-DP, pure: ln S moves by β at most, so j by β/η + 1. And P(Ŝ < S) ≤ δ. What is
    done with noise of Ŝ's size afterwards at ε₁ makes (ε + ε₁, δ) of the two. Typically
    Ŝ/S = e^(β ln(1/(2δ))/ε): with β = ε/(2 ln(2/δ)) that is about e^(1/2).

    where ``smooth_bound`` is S, unprotected, right to a relative 2⁻³¹ and clipped to
    [2⁻⁴⁰⁰, 2⁴⁰⁰]; ``beta`` how smooth it is, ln S(x) − ln S(x′) ≤ β. Raises ValueError for
    impossible numbers.
    """
    noise = LogNoise.of(beta=beta, epsilon=epsilon, delta=delta)
    return noise.bound_at(noise.position(smooth_bound) + int(discrete_laplace(1, noise.scale)[0]))


@dataclass(frozen=True)
class Bounded:
    """What :class:`BoundThenNoise` publishes."""

    value: float
    bound: float
    """Ŝ; the noise on the value has a scale of (Ŝ + h)/ε₁."""
    step: float
    """h."""


@dataclass(frozen=True)
class BoundThenNoise:
    """A private upper bound Ŝ of the smooth bound, then noise of that size.

    Guarantee: (ε, δ)-DP for any ε > 0: ε₃ = ``share`` · ε is for Ŝ, the rest ε₁ for the value, δ
    for the chance that Ŝ is too small. β = ε₃/(2 ln(2/δ)), so Ŝ is about 1.6 S.
    """

    epsilon: float
    delta: float
    share: float = 0.25

    def __post_init__(self) -> None:
        """Refuse numbers that promise nothing."""
        if not (0.0 < self.share < 1.0):
            raise ValueError(f"the bound's share of epsilon is between 0 and 1, not {self.share!r}")
        beta_of(self.epsilon, self.delta)
        for_value, for_bound = self.epsilons
        if min(for_value, for_bound) < LEAST_EPSILON:
            raise ValueError(
                f"the value's part of epsilon, {for_value:g}, and the bound's, {for_bound:g}, are "
                f"at least {LEAST_EPSILON:g}: take another share or a greater epsilon"
            )
        LogNoise.of(beta=self.beta, epsilon=for_bound, delta=self.delta)

    @property
    def epsilons(self) -> tuple[float, float]:
        """ε₁ of the value and ε₃ of the bound; their sum is not above ε."""
        of_bound = self.share * self.epsilon * (1.0 - 2.0**-50)
        return (self.epsilon - of_bound) * (1.0 - 2.0**-50), of_bound

    @property
    def beta(self) -> float:
        """β = ε₃/(2 ln(2/δ))."""
        return beta_of(self.epsilons[1], self.delta)

    def release(self, query: LocalSensitivity) -> Bounded:
        """Draw Ŝ and the value: f(x) on a lattice of a step h ≤ 2⁻²⁰ Ŝ, noise at sensitivity Ŝ.

        f(x) is clipped to ±2⁵¹ h, which is public once Ŝ is, and 0 where it is no number. Whatever
        Ŝ is drawn, the second step works: its share of ε was checked for all of them.
        """
        for_value, for_bound = self.epsilons
        value = np.nan_to_num(np.array([query.value]), nan=0.0)
        bound = private_upper_bound(
            smooth_bound(query, self.beta), beta=self.beta, epsilon=for_bound, delta=self.delta
        )
        step = power_of_two_step(bound)
        within = np.clip(value, -(2.0**51) * step, 2.0**51 * step)
        noisy = lattice_laplace(within, sensitivity=bound, epsilon=for_value, step=step)
        return Bounded(float(noisy[0]), bound, step)


_REACH = 2.0**38

LEAST_SCALE = 1024.0
"""In steps: noise this wide is so like the continuous that its δ is within a hundredth of it."""


def direct_delta(epsilon: float, beta: float) -> float:
    """Return the δ for which noise of scale 2S/ε is (ε, δ)-DP, S being β-smooth, β ≤ ε/2.

        δ = (1 − e^(−β)) e^(−(ε/2 + β)/G) (1 + e^(−ε/G))/2 · c,      G = e^β − 1

    It is attained by continuous noise: x has e^β times the noise of x′, and their values are S(x′)
    apart (`toolbox.md`). c = e^(u/2) (1 − (e^β u)²/12)^(−1/G), u = 1/1024, is all that whole steps
    can add. β is taken 2·2⁻³⁰ greater for rounding. 1 where the proof says nothing.
    """
    beta = beta + 2.0 * SLACK
    u, growth = 1.0 / LEAST_SCALE, math.expm1(min(beta, 100.0))
    narrow = ((1.0 + growth) * u) ** 2 / 12.0
    if beta > epsilon / 2.0 or narrow >= 1.0 or -math.log1p(-narrow) > epsilon / 2.0:
        return 1.0
    whole_steps = u / 2.0 - math.log1p(-narrow) / growth
    tail = math.exp(-(epsilon / 2.0 + beta) / growth + whole_steps)
    return -math.expm1(-beta) * tail * (1.0 + math.exp(-epsilon / growth)) / 2.0


def largest_direct_epsilon(delta: float) -> float:
    """Return the greatest ε to which noise of scale 2S/ε with β = ε/(2 ln(2/δ)) is private.

    11.4 at δ = 1e-2, 13.2 at 1e-5, 14.7 at 1e-9, found by bisection and rounded down. Just beyond,
    two data sets exceed δ: the bound is attained, up to the hundredth that whole steps may cost.
    """
    low, high = 0.0, 1.0
    while direct_delta(high, beta_of(high, delta)) <= delta:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = (low + high) / 2.0
        inside = direct_delta(middle, beta_of(middle, delta)) <= delta
        low, high = (middle, high) if inside else (low, middle)
    return low


@dataclass(frozen=True)
class SmoothLaplace:
    """Discrete Laplace noise of scale 2S/ε on a lattice, S smooth with β = ε/(2 ln(2/δ)).

    Guarantee: (ε, δ)-DP, for ε up to :func:`largest_direct_epsilon`; greater ones are refused
    (ValueError). The scale depends on the data and must not be published.
    """

    epsilon: float
    delta: float
    step: float
    """h, a public power of two, far under the S to be expected: the scale is 1024 steps or more."""

    def __post_init__(self) -> None:
        """Refuse an ε beyond the proof, and a step that is none."""
        lattice_scale(sensitivity=2.0 * _REACH * self.step, epsilon=self.epsilon, step=self.step)
        if direct_delta(self.epsilon, self.beta) > self.delta:
            raise ValueError(
                f"noise of scale 2S/epsilon is not shown to be private at epsilon "
                f"{self.epsilon!r} and delta {self.delta!r} (up to about "
                f"{largest_direct_epsilon(self.delta):.3g}): use BoundThenNoise"
            )

    @property
    def beta(self) -> float:
        """β = ε/(2 ln(2/δ))."""
        return beta_of(self.epsilon, self.delta)

    def scale(self, bound: float) -> float:
        """Return s = max(2(S/h + 1)/ε, 1024) in steps for S = ``bound``; unprotected."""
        moved = bound / self.step * (1.0 + SLACK / 4.0) + 1.0
        return max(2.0 * moved / self.epsilon * (1.0 + SLACK / 4.0), LEAST_SCALE)

    def release(self, query: LocalSensitivity) -> float:
        """Return h (k + Z), k being f(x) in steps, clipped to ±2³⁸; Z of :meth:`scale`.

        Clipped, f moves by 2³⁹ h at most, so S need not be greater.
        """
        scale = self.scale(min(smooth_bound(query, self.beta), 2.0 * _REACH * self.step))
        k = np.clip(np.rint(query.value / self.step), -_REACH, _REACH).astype(np.int64)
        return float((k + discrete_laplace(1, scale)[0]) * self.step)
