"""Laplace noise on real numbers, on a declared lattice, and its cost.

The low bits of Laplace noise in floating point reveal the value under it. Here a value becomes a
whole number of steps, the noise is a whole number drawn exactly, and only their sum becomes a real
number again. The step is public and a power of two, so dividing and multiplying by it is exact.
"""

import math

import numpy as np

from privatizers.noise.randomness import discrete_laplace
from schemas.arrays import Floats

_LARGEST = 2.0**52
"""Values and scales stay under this many steps.

Doubles then hold every whole number that occurs, and noise that 64 bits cannot hold has a
probability under exp(−2¹⁰).
"""

LEAST_EPSILON = 2.0**-30
"""At this ε or more, noise for any sensitivity fits its lattice.

Steps of :func:`power_of_two_step` go at most 2²¹ times into a sensitivity, and (2²¹ + 1)/2⁻³⁰ is
under 2⁵². At a lower ε it depends on the sensitivity; where the sensitivity is itself drawn, a
failure would reveal something of it.
"""


def lattice_laplace(values: Floats, *, sensitivity: float, epsilon: float, step: float) -> Floats:
    """Return h (k + Z), shape [d], for ``values`` x of shape [d] that are real numbers.

    k is x/h rounded to the nearest whole number (halves to even), Z i.i.d. discrete Laplace of
    :func:`lattice_scale`, h is ``step``, a power of two, in the unit of x, as is ``sensitivity``.

    Guarantee: ε-DP, δ = 0, where neighbours change x by ``sensitivity`` Δ at most in the sum of
    absolute differences. Rounding changes a difference by less than a step or leaves it within one,
    |k − k′| ≤ |x − x′|/h + 1, so k changes by Δ/h + d at most, and P(Z = z)/P(Z = z + m) ≤
    e^(|m|/s). Turning k + Z into a real number is post-processing. Δ is that of x as it was
    *computed*: keep sums in whole numbers, or add their greatest rounding error to Δ.

    Raises:
        ValueError: The numbers give no noise, or an x is not finite or has 2⁵² steps or more.
            Callers clip x to declared bounds first, so that an error never tells of the data.
    """
    scale = lattice_scale(
        sensitivity=sensitivity, epsilon=epsilon, step=step, n_values=max(len(values), 1)
    )
    steps = np.rint(values / step)
    if values.ndim != 1 or not bool(np.all(np.abs(steps) < _LARGEST)):
        raise ValueError(
            f"values to be noised are a list of finite numbers under 2^52 steps of {step!r}"
        )
    noisy = steps.astype(np.int64) + discrete_laplace(len(steps), scale)
    return noisy.astype(np.float64) * step


def lattice_scale(*, sensitivity: float, epsilon: float, step: float, n_values: int = 1) -> float:
    """Return the scale s = (Δ/h + d)/ε of the noise in steps, rounded up.

    where ``sensitivity`` is Δ ≥ 0, ``step`` h, ``n_values`` d. Δ/h is exact; the sum and the
    quotient are each rounded up to the next double.

    Raises:
        ValueError: Δ is negative, ε or h is not positive, one is infinite, h is no power of two,
            d < 1, or s reaches 2⁵² steps.
    """
    _check_step(step)
    if not (0.0 <= sensitivity < math.inf):
        raise ValueError(f"a sensitivity is a number from 0, not {sensitivity!r}")
    if not (0.0 < epsilon < math.inf):
        raise ValueError(f"noise costs an epsilon above 0, not {epsilon!r}")
    if n_values < 1:
        raise ValueError(f"noise is for at least one value, not {n_values}")
    moved = math.nextafter(sensitivity / step + n_values, math.inf)
    scale = math.nextafter(moved / epsilon, math.inf)
    if scale >= _LARGEST:
        raise ValueError(f"noise of {scale:g} steps: take a greater step than {step!r}")
    return scale


def lattice_laplace_variance(
    *, sensitivity: float, epsilon: float, step: float, n_values: int = 1
) -> float:
    """Return the variance h² 2a/(1 − a)², a = e^(−1/s), of the noise on one value.

    In the value's unit squared; s is :func:`lattice_scale`. Rounding adds an error of at most h/2,
    so the mean squared error is at most this plus h²/4.
    """
    scale = lattice_scale(sensitivity=sensitivity, epsilon=epsilon, step=step, n_values=n_values)
    return step**2 * discrete_laplace_variance(scale)


def discrete_laplace_variance(scale: float) -> float:
    """Return 2a/(1 − a)², a = e^(−1/scale): the variance of discrete Laplace noise, in steps²."""
    return 2.0 * math.exp(-1.0 / scale) / math.expm1(-1.0 / scale) ** 2


def power_of_two_step(sensitivity: float, fraction: float = 2**-20) -> float:
    """Return the largest power of two that is at most ``sensitivity`` · ``fraction``.

    A step for public sensitivities: by default rounding widens the noise by a millionth for one
    value.

    Raises:
        ValueError: There is no such power of two.
    """
    most = sensitivity * fraction
    if not (0.0 < most < math.inf):
        raise ValueError(f"there is no step for a sensitivity of {sensitivity!r}")
    step = math.ldexp(0.5, math.frexp(most)[1])
    _check_step(step)
    return step


def _check_step(step: float) -> None:
    """Refuse all but powers of two between 2⁻⁵⁰⁰ and 2⁵⁰⁰, whose squares are doubles."""
    if not (2.0**-500 <= step <= 2.0**500) or math.frexp(step)[0] != 0.5:
        raise ValueError(f"a step is a power of two, not {step!r}")
