"""What several releases of one experiment are predicted to cost and to tell together.

All nights are taken to be like the one that was planned for: as many units, in the same clusters
and arms, and the same design. Nothing here reads an outcome.
"""

from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal, localcontext
from math import hypot, inf, isfinite, sqrt

from privatizers.accounting.budget import Budget, total, written
from privatizers.planning.predictions import Prediction

MOST_NIGHTS = 100_000
"""Of a plan; a release every night for as long takes 273 years."""

_DIGITS = 700  # of a whole number of nights: the greatest double over the least


@dataclass(frozen=True)
class PooledPrediction:
    """The standard error that an effect over all nights is predicted to have."""

    arm: int
    """Position of the treatment arm, control being 0."""
    segment_share: float | None
    """None for the effect on everybody."""
    sampling_std_error: float
    """The part that sampling and rounding leave, where nobody is in two nights."""
    privacy_std_error: float
    """The part that privacy adds: noise is drawn anew every night, whoever is in it."""
    most_sampling_std_error: float
    """The most that sampling can leave where people come back: as much as in one night."""

    @property
    def std_error(self) -> float:
        """Where nobody is in two nights."""
        return hypot(self.sampling_std_error, self.privacy_std_error)

    @property
    def most_std_error(self) -> float:
        """The most that it can be where people come back."""
        return hypot(self.most_sampling_std_error, self.privacy_std_error)


def pooled(one_night: Prediction, n_nights: int) -> PooledPrediction:
    """Predict the effect of nights that are alike, each with the weight 1/N.

    Where nobody is in two nights V = V₁/N, the V of :func:`estimators.operate.series.pool`. Where
    people come back, nights differ in their noise, which is independent, and outcomes of one person
    may go together as closely as they like: V ≤ V_s + (V₁ − V_s)/N, by the inequality of Cauchy and
    Schwarz, where

    - V₁ is the variance of one night, ``one_night.std_error`` squared,
    - V_s its part from sampling, ``one_night.sampling_std_error`` squared,
    - N is ``n_nights``.
    """
    sampling = one_night.sampling_std_error
    privacy = sqrt(max(one_night.std_error**2 - sampling**2, 0.0))
    return PooledPrediction(
        arm=one_night.arm,
        segment_share=one_night.segment_share,
        sampling_std_error=sampling / sqrt(n_nights),
        privacy_std_error=privacy / sqrt(n_nights),
        most_sampling_std_error=sampling,
    )


def paid(price: Budget, n_nights: int) -> Budget:
    """Return what one who is charged in every night has paid after them, rounded up."""
    return total([price] * n_nights)


def affordable(price: Budget, limit: Budget) -> int | None:
    """Return in how many nights one can pay ``price`` under ``limit``; None where none is too many.

    The greatest N with N·price ≤ limit in both components, by the numbers as they are printed.
    """
    pairs = ((price.epsilon, limit.epsilon), (price.delta, limit.delta))
    most = min((_times(cost, up_to) for cost, up_to in pairs), default=inf)
    return int(most) if isfinite(most) else None


def _times(cost: float, limit: float) -> float:
    if cost == 0.0 or not isfinite(limit):
        return inf
    with localcontext(prec=_DIGITS):
        whole = (written(limit) / written(cost)).to_integral_value(ROUND_FLOOR)
    return float(min(whole, Decimal(10) ** 15))
