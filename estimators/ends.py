"""How many outcomes are at an end of the grid, or at the value of missing ones, by a release alone.

An outcome that cannot be read counts as a declared value, and one beyond the grid as its end, so a
column that is read wrongly is a release of one value. That shows afterwards, in what is released,
at no further price. A share is one of the people of the release, so its error is the noise alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import expm1
from typing import Final, Literal

import numpy as np

from estimators.response.debias import response_noise_variance
from estimators.response.pool_statistics import PoolCountsNoise, statistic_weight, unit_noise
from schemas.arrays import Floats, Ints

EndName = Literal["missing", "lowest", "highest"]

_ERRORS: Final = 3.0
"""Standard errors within which the rest of a share is not told from nothing."""
_ROUNDING: Final = 1e-9
_PLACES: Final[dict[str, str]] = {
    "missing": "what missing and unreadable ones count as",
    "lowest": "the lowest value",
    "highest": "the highest value",
}


@dataclass(frozen=True)
class End:
    """The share of a metric's outcomes at one value of its grid."""

    metric: str
    end: EndName
    share: float
    std_error: float

    @property
    def may_be_all(self) -> bool:
        """Whether no other outcome can be told from noise."""
        return 1.0 - self.share <= _ERRORS * self.std_error + _ROUNDING


@dataclass(frozen=True)
class PoolShares:
    """Estimates of a share in each (pool, arm), and what noise adds to their variance; [P] each."""

    share: Floats
    variance: Floats

    def take(self, pools: Ints) -> "PoolShares":
        """Return those of the pools at these places."""
        return PoolShares(self.share[pools], self.variance[pools])


def response_shares(n_units: Floats, found: Floats, prior: Floats, rate: float) -> PoolShares:
    """Return (found/n − λ q̃)/(1 − λ), the debiased share of an outcome in each pool.

    ``found`` of the ``n_units`` were released as this outcome, ``prior`` is its q̃, shape [P] each,
    and ``rate`` λ.
    """
    share = found / n_units
    about = share * (1.0 - prior) ** 2 + (1.0 - share) * prior**2
    noise = response_noise_variance(n_units, about, prior * (1.0 - prior), rate)
    return PoolShares((share - rate * prior) / (1.0 - rate), noise)


def counted_shares(
    n_units: Floats, noisy: Floats, indicator: Floats, noise: PoolCountsNoise
) -> PoolShares:
    """Return f̄ + Σ_y (f(y) − f̄) Ñ_y/n, the share by noisy counts Ñ, ``noisy``, shape [P, K].

    f is the ``indicator`` of the outcome, shape [K].
    """
    middle = float(indicator.mean())
    share = middle + noisy @ (indicator - middle) / n_units
    return PoolShares(share, noise.of_sum(indicator).second / n_units**2)


def response_rate(epsilon: float, n_outcomes: int) -> float:
    """Return λ of randomised response with the uniform prior at this ε: K/(K + e^ε − 1)."""
    return n_outcomes / (n_outcomes + expm1(epsilon))


def combined_shares(
    n_units: Floats, response: PoolShares, counted: PoolShares, noise: PoolCountsNoise,
    indicator: Floats, rate: float,
) -> PoolShares:  # fmt: skip
    """Return both estimates together: response + w (counted − response).

    w is that of uniform outcomes and priors at λ = ``rate``: by public facts alone, as weights made
    of what was drawn would bias the share.
    """
    uniform = np.full(len(indicator), 1.0 / len(indicator))
    of_unit = unit_noise(indicator, uniform, uniform, rate)
    weight = statistic_weight(n_units, of_unit, noise.of_sum(indicator).second)
    return PoolShares(
        response.share + weight * (counted.share - response.share),
        (1.0 - weight) ** 2 * response.variance + weight**2 * counted.variance,
    )


def whole_share(metric: str, end: EndName, n_units: Floats, of_pools: PoolShares) -> End:
    """Return the share over all pools, each weighing as many units as it has."""
    share, error = over_pools(n_units, of_pools.share, of_pools.variance)
    return End(metric, end, float(share), float(error))


def over_pools(n_units: Floats, share: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Return Σ_p n_p s_p / Σ_p n_p and its standard error, of one share, [P], or of many, [P, K].

    s is the ``share`` in each pool, which noise adds its ``variance`` to, and n ``n_units``.
    """
    weight = n_units / n_units.sum()
    return weight @ share, np.sqrt(np.maximum(weight**2 @ variance, 0.0))


def ends_warnings(ends: Sequence[End]) -> tuple[str, ...]:
    """Return a warning for each metric of which no outcome but one value's can be told.

    Where other outcomes lie 6 errors from nothing it stands in 1 of 700 releases at most; with
    nothing but one value it is missing in as few (of noise that is about normal).
    """
    return tuple(
        f"{metric}: for all that can be told, its outcomes may all be "
        f"{', or all '.join(_PLACES[one.end] for one in told)}: the share of these is "
        f"{100 * told[0].share:.4g} % (standard error {100 * told[0].std_error:.2g} %). Look "
        "whether it is the right column, can be read (its type, its decimal mark), and fits the "
        "grid: clusterdp check CONFIG --outcomes"
        for metric, of_metric in groupby(ends, key=lambda one: one.metric)
        if (told := [one for one in of_metric if one.may_be_all])
    )
