"""The weight of a pool's statistic beside its randomised outcomes, from public facts alone.

A release of counts (or of noisy means) tells the mean of a pool twice: as M from the statistic,
with the noise variance V_M, and as the mean μ̂_RR of the debiased outcomes, with V_RR. The two are
uncorrelated, so μ̂_RR + w (M − μ̂_RR) with w = V_RR / (V_RR + V_M) has the least noise. V_RR is
computed from the *declared guess* at the outcomes and from public sizes: a weight computed from
noisy counts, priors or randomised outcomes would bias the estimate.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from schemas.arrays import Floats

Rate = TypeVar("Rate", float, Floats)

_WHOLE = 1e-6
"""What is this close to a whole number is one, but for rounding."""


@dataclass(frozen=True)
class Cumulants:
    """Variance and fourth cumulant of the integer noise on one number; zero for no noise."""

    second: float
    fourth: float

    @classmethod
    def of_discrete_laplace(cls, scale: float) -> "Cumulants":
        """Return the cumulants of :func:`discrete_laplace_cumulants`."""
        second, fourth = discrete_laplace_cumulants(scale)
        return cls(float(second), float(fourth))


def discrete_laplace_cumulants(scale: Rate) -> tuple[Rate, Rate]:
    """Return variance and fourth cumulant of Z with P(Z = k) ∝ a^|k|, a = exp(−1/``scale``).

    κ₂ = 2a/(1 − a)², κ₄ = 2a(1 + 4a + a²)/(1 − a)⁴. For one scale or an array of them.
    """
    a = np.exp(-1.0 / scale)
    gap = -np.expm1(-1.0 / scale)
    return 2 * a / gap**2, 2 * a * (1 + 4 * a + a * a) / gap**4


def unit_noise(
    values: Floats, outcomes: Floats, prior: Floats, resampling_probability: Rate
) -> Rate:
    """Return the variance that randomised response adds to the debiased value of one unit.

    v = r·E_p(f − m)² + r(1 + r)·Var_q(f),  r = λ/(1 − λ), m = E_q f,

    where f is ``values``, shape [K] (the outcomes, or any function of them), p the distribution
    ``outcomes`` of the true ones, q the ``prior`` (shape [K] each), λ
    ``resampling_probability``, one or an array of them. The unit is that of ``values``, squared.
    """
    odds = resampling_probability / (1.0 - resampling_probability)
    mean = float(prior @ values)
    spread = float(prior @ (values - mean) ** 2)
    return odds * float(outcomes @ (values - mean) ** 2) + odds * (1.0 + odds) * spread


def statistic_weight(
    n_units: Floats, unit_variance: float | Floats, statistic_variance: float
) -> Floats:
    """Return w = (v/n) / (v/n + s/n²) = v n / (v n + s), the weight of the pool's own statistic.

    v is ``unit_variance`` (:func:`unit_noise`), s ``statistic_variance``, that of the statistic's
    *sum* over the pool, n ``n_units``. 0 where v is.
    """
    response = unit_variance * n_units
    total = response + statistic_variance
    return np.divide(response, total, out=np.zeros_like(response), where=total > 0)


@dataclass(frozen=True)
class PoolCountsNoise:
    """Noise on a pool's counts, and what sums over the pool have of it."""

    noise: Cumulants
    complement: bool
    """Whether there is one noisy count and its complement (K = 2): one draw, with both signs."""

    def of_sum(self, values: Floats) -> Cumulants:
        """Return the cumulants of n M = n f̄ + Σ_y (f(y) − f̄) Ñ_y, f being ``values``, shape [K].

        κ₂(Z) Σ(f − f̄)² and κ₄(Z) Σ(f − f̄)⁴; with a complement κ₂(Z) (f₂ − f₁)² and likewise.
        """
        steps = values - values.mean()
        if self.complement:
            steps = values[1:] - values[:1]
        return Cumulants(
            self.noise.second * float(np.sum(steps**2)), self.noise.fourth * float(np.sum(steps**4))
        )


def counts_noise(noise_scale: float, strata_statistic: str) -> PoolCountsNoise:
    """Return the noise of a release that states this ``noise_scale`` and ``strata_statistic``."""
    return PoolCountsNoise(
        Cumulants.of_discrete_laplace(noise_scale), strata_statistic == "count-and-complement"
    )


@dataclass(frozen=True)
class MeansStatisticNoise:
    """Noise on a pool's sum of outcomes, in steps of the grid; other sums are not published."""

    noise: Cumulants
    grid_step: float
    """h, in the unit of the outcomes."""

    @property
    def of_outcomes(self) -> Cumulants:
        """Return the cumulants of n M: κ₂(Z) h² and κ₄(Z) h⁴."""
        step = self.grid_step
        return Cumulants(self.noise.second * step**2, self.noise.fourth * step**4)


def sum_noise(noise_scale: Floats, grid: Floats) -> tuple[Floats, Floats]:
    """Return variance and fourth cumulant of the noise on sums over a ``grid`` of outcomes.

    ``noise_scale`` is in the unit of outcomes. The noise is a whole number of steps, which is the
    least gap of a grid with all others whole times as wide. Of other grids it is a finer one, and
    2 s² and 12 s⁴ are both a little more.
    """
    step = float(np.diff(grid).min())
    places = (grid - grid[0]) / step
    if np.abs(places - np.rint(places)).max() > _WHOLE:
        return 2.0 * noise_scale**2, 12.0 * noise_scale**4
    second, fourth = discrete_laplace_cumulants(noise_scale / step)
    return second * step**2, fourth * step**4


@dataclass(frozen=True)
class ResponseNoise:
    """What the response adds to a unit's variance once debiased, by the declared guess."""

    of_mean: float
    """Of d = y − ȳ, in the squared unit of outcomes."""
    of_square: float
    """Of d², in the fourth power."""

    @classmethod
    def of_prior(
        cls, grid: Floats, guess: Floats, prior: Floats, resampling_probability: float
    ) -> "ResponseNoise":
        """Return :func:`unit_noise` of both, of randomised response with this ``prior``."""
        values = grid - grid.mean()
        return cls(
            unit_noise(values, guess, prior, resampling_probability),
            unit_noise(values**2, guess, prior, resampling_probability),
        )


def square_noise(noise_scale: Rate) -> Rate:
    """Return 2 s², the variance of a sum whose noise has the published scale s, or a little more.

    The noise is a whole number of steps u, with variance 2 s² − u²/6, up to terms in u⁴/s².
    """
    return 2.0 * noise_scale**2


@dataclass(frozen=True)
class StrataNoise:
    """:class:`ResponseNoise` of every stratum, by guesses and tables of its own; shape [S] each."""

    of_mean: Floats
    of_square: Floats


StatisticNoise = PoolCountsNoise | MeansStatisticNoise


def statistic_noise(
    noise_scale: float | None, strata_statistic: str, grid_step: float | None
) -> StatisticNoise | None:
    """Return the noise on the statistic that a release publishes of pools; None without one.

    The arguments are what the release states of itself; ``grid_step`` is None except for means.
    """
    if noise_scale is None:
        return None
    if grid_step is not None:
        return MeansStatisticNoise(Cumulants.of_discrete_laplace(noise_scale), grid_step)
    return counts_noise(noise_scale, strata_statistic)


@dataclass(frozen=True)
class StatisticWeights:
    """Weights of every pool's statistics beside its randomised outcomes; shape [P] each."""

    of_mean: Floats
    of_square: Floats


def declared_weights(
    grid: Floats, response: ResponseNoise | StrataNoise, noise: StatisticNoise, n_units: Floats
) -> StatisticWeights:
    """Return the weights of the pools' statistics, for outcomes d = y − ȳ and for their squares.

    Means say nothing about squares: the weight of squares is 0 then. ``response`` is of the
    declared guess, never of what was learnt from the statistics; ``n_units`` are the sizes of the
    pools, shape [P].
    """
    values = grid - grid.mean()
    if isinstance(noise, MeansStatisticNoise):
        of_mean = statistic_weight(n_units, response.of_mean, noise.of_outcomes.second)
        return StatisticWeights(of_mean, np.zeros_like(n_units))
    return StatisticWeights(
        statistic_weight(n_units, response.of_mean, noise.of_sum(values).second),
        statistic_weight(n_units, response.of_square, noise.of_sum(values**2).second),
    )
