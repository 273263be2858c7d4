"""Arithmetic of the guarantee, rounded toward privacy.

Losses are computed with 60 digits from the exact values of the parameters, rounded up, and then to
a double that is never below them. `accountant` uses them for prices and for calibration.
"""

import math
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction

from privatizers.noise.randomness import UNIT
from schemas.errors import ConfigError

_DIGITS = 60
_SLACK = Decimal(10) ** -40  # above the error of 60-digit arithmetic (10⁻⁴⁴), below a double's


def round_up(value: Decimal) -> float:
    """Return the least double that is not below ``value`` (> 0) and its arithmetic error."""
    with localcontext(prec=_DIGITS):
        bound = value * (1 + _SLACK)
        nearest = float(bound)
        return nearest if Decimal(nearest) >= bound else math.nextafter(nearest, math.inf)


def response_loss(resampling_probability: float, least_probability: float) -> Decimal:
    """Return ln(1 + (1 − λ) / (λ γ)), the loss of one randomised response.

    λ is ``resampling_probability`` and γ ``least_probability``, the least probability of any grid
    point for a resampled outcome.
    """
    rate = Fraction(resampling_probability)
    odds = (1 - rate) / (rate * Fraction(least_probability))
    with localcontext(prec=_DIGITS, rounding=ROUND_CEILING):
        return (1 + Decimal(odds.numerator) / Decimal(odds.denominator)).ln().next_plus()


def counts_loss(noise_scale: float, moved_cells: int) -> Decimal:
    """Return ``moved_cells`` / σ, the loss of counts with discrete Laplace noise of scale σ.

    One substitution changes two cells by one each; where a count and its complement are published
    with a single noise, it changes one.
    """
    with localcontext(prec=_DIGITS, rounding=ROUND_CEILING):
        return Decimal(moved_cells) / Decimal(noise_scale)


def realised_rate(resampling_probability: float) -> float:
    """Round λ up to a multiple of 2⁻⁵³, toward privacy; ConfigError unless 0 < λ < 1."""
    steps = math.ceil(Fraction(resampling_probability) * UNIT)
    if not 0 < steps < UNIT:
        raise ConfigError(
            "privacy.resampling_probability",
            f"{resampling_probability!r} is not strictly between 0 and 1",
        )
    return steps / UNIT


def realised_threshold(truncation_threshold: float, n_outcomes: int) -> float:
    """Round γ up to a multiple of 2⁻⁵³, or down where K cells of it would exceed one.

    Rounding down can only happen for γ = 1/K (to the last bits). The guarantee is stated for the
    value returned here, which every prior respects. ConfigError for a γ that is not above 0.
    """
    steps = min(math.ceil(Fraction(truncation_threshold) * UNIT), UNIT // n_outcomes)
    if steps < 1:
        raise ConfigError(
            "privacy.truncation_threshold", f"{truncation_threshold!r} is not greater than 0"
        )
    return steps / UNIT
