"""A site of an observational study: a noised matching estimate and its noised variance.

Koga, Chaudhuri and Page, "Differentially Private Multi-Site Treatment Effect Estimation", Section
III-A-2. Protected is each unit's whole record: neighbours differ in one unit's covariates,
treatment and outcome, N and the declared domain being public. So even how many units are treated,
and whether anybody has a match, is secret: nothing here succeeds or fails by it. Where nobody has a
match the effect is 0, a declared constant, and it is published with its noise like any other.

:class:`SmoothMatching` makes noise of the size that the data call for, known by a private upper
bound that is published first; :class:`GlobalMatching` makes that of the worst data. The accounting
is in `sites.md`.
"""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from privatizers.effects.sites.matching import Matched, SitePeople, evaluate
from privatizers.effects.sites.matching_sensitivity import (
    effect_range,
    smooth_effect_bound,
    variance_range,
)
from privatizers.effects.sites.randomised_trial import SiteEffect, check_shares, check_site
from privatizers.effects.toolbox.smooth_sensitivity import LogNoise, private_upper_bound
from privatizers.noise.lattice_laplace import (
    lattice_laplace,
    lattice_laplace_variance,
    power_of_two_step,
)
from schemas.errors import ConfigError, InputError

_ROUNDED = 1.0 + 2.0**-24
"""Sensitivities are raised by it for what rounding of real numbers can do to a value."""
_LESS = 1.0 - 2.0**-48  # and shares of a budget lowered, so that their sum is not above it
_MOST_UNITS = 2**26
_LEAST_BETA = 1e-5
_MOST_DELTA = 0.01


@dataclass(frozen=True)
class EpsilonSplit:
    """How a site's ε is divided; only proportions count. δ is for the bound alone."""

    effect: float = 1.0
    """ε₁, of the noise on the effect."""
    variance: float = 1.0
    """ε₂, of the noise on its sampling variance."""
    bound: float = 1.0
    """ε₃, of the private upper bound, which serves both."""

    def __post_init__(self) -> None:
        """Refuse what is no share."""
        for name, value in vars(self).items():
            if not (0.0 < value < math.inf):
                raise ConfigError("shares", f"{name} must be a number above 0, not {value!r}")

    def epsilons(self, epsilon: float) -> tuple[float, float, float]:
        """Return ε₁, ε₂ and ε₃, together not above ``epsilon``."""
        greatest = max(self.effect, self.variance, self.bound)  # a sum of shares may be no double
        shares = [part / greatest for part in (self.effect, self.variance, self.bound)]
        one, two, three = (epsilon * (share / math.fsum(shares)) * _LESS for share in shares)
        return one, two, three


@dataclass(frozen=True)
class SmoothMatching:
    """DP matching with noise by a private upper bound (Algorithm 2, made sound for any ε).

    Guarantee: (ε, δ)-DP for one whole record, ε = ε₁ + ε₂ + ε₃. Three things are drawn: Ŝ, at ε₃,
    pure; the effect with noise of sensitivity Ŝ, at ε₁; the sampling variance with noise of
    sensitivity Ŝ², at ε₂. Both hold where Ŝ ≥ S, which fails with a chance of δ.
    """

    name: ClassVar[str] = "smooth-dp-matching"
    epsilon: float
    """ε, of the whole report."""
    delta: float
    high: float
    """B: outcomes are shifted so that the declared range is [0, B]; others are clipped."""
    shares: EpsilonSplit = field(default_factory=EpsilonSplit)
    """By default thirds."""

    def __post_init__(self) -> None:
        """Refuse settings that promise nothing."""
        check_site(self.epsilon, self.high)
        if not (0.0 < self.delta <= _MOST_DELTA):
            raise ConfigError(
                "delta",
                f"must be above 0 and at most {_MOST_DELTA} for {self.name}, not {self.delta!r}; "
                f"{GlobalMatching.name} needs none",
            )
        of_effect, of_variance, of_bound = self.epsilons
        check_shares(effect=of_effect, variance=of_variance, bound=of_bound)
        LogNoise.of(beta=self.beta, epsilon=of_bound, delta=self.delta)

    @property
    def epsilons(self) -> tuple[float, float, float]:
        """ε₁, ε₂ and ε₃, together not above ε."""
        return self.shares.epsilons(self.epsilon)

    @property
    def beta(self) -> float:
        """β = ε₃/ln(1/(2δ)), and at least 10⁻⁵, so that bounds take seconds.

        Then Ŝ is about e·S. The paper's β, for noise without such a bound, is half of that; where
        strata are small or empty S falls as 1/β, and S e^(β ln(1/(2δ))/ε₃) is least here.
        """
        return max(self.epsilons[2] / -math.log(2.0 * self.delta), _LEAST_BETA)

    def report(self, people: SitePeople) -> SiteEffect:
        """Draw the bound, then the effect and its variance. InputError for too many units.

        Everything else that could fail is done or checked before the bound is drawn: noise of the
        two later steps fits its lattice for every bound there can be (`check_shares`).
        """
        _check_units(people.n_units)
        known = evaluate(people, self.high)
        bound = self.bound(people)
        return _report(self, known, (bound, bound**2), self.delta)

    def bound(self, people: SitePeople) -> float:
        """Draw Ŝ, which costs ε₃ and δ, and bring it into what is publicly possible for S."""
        treated, control = people.sizes()
        upper = private_upper_bound(
            smooth_effect_bound(treated, control, high=self.high, beta=self.beta),
            beta=self.beta,
            epsilon=self.epsilons[2],
            delta=self.delta,
        )
        n = people.n_units
        return min(max(upper, 2.0 * self.high / n), effect_range(self.high, n))


@dataclass(frozen=True)
class GlobalMatching:
    """DP matching with noise for the worst data. Guarantee: (ε, 0)-DP for one whole record.

    Sensitivities are B(1 + 1/N) and B²(1 + 1/N + 2/N²)/2 (`sites.md`); the paper's is 2B.
    """

    name: ClassVar[str] = "global-dp-matching"
    epsilon: float
    """ε, of the whole report."""
    high: float
    """B, as in :class:`SmoothMatching`."""
    effect_share: float = 0.5
    """Of ε, for the effect; the rest is for the sampling variance."""

    def __post_init__(self) -> None:
        """Refuse settings that promise nothing."""
        check_site(self.epsilon, self.high)
        if not (0.0 < self.effect_share < 1.0):
            problem = f"the effect's share must be between 0 and 1, not {self.effect_share!r}"
            raise ConfigError("effect_share", problem)
        of_effect, of_variance = self.epsilons
        check_shares(effect=of_effect, variance=of_variance)

    @property
    def epsilons(self) -> tuple[float, float]:
        """ε₁ and ε₂, together not above ε."""
        share = self.effect_share
        return self.epsilon * share * _LESS, self.epsilon * (1.0 - share) * _LESS

    def report(self, people: SitePeople) -> SiteEffect:
        """Draw the effect and its variance. Raises InputError for too many units."""
        _check_units(people.n_units)
        bounds = global_bounds(self.high, people.n_units)
        return _report(self, evaluate(people, self.high), bounds, 0.0)


def global_bounds(high: float, n_units: int) -> tuple[float, float]:
    """Return the sensitivities of τ̂ and V̂ for all data of N units with outcomes on [0, B]."""
    return effect_range(high, n_units), variance_range(high, n_units)


def _report(
    site: SmoothMatching | GlobalMatching,
    known: Matched,
    bounds: tuple[float, float],
    delta: float,
) -> SiteEffect:
    """Noise f = N τ̂ and g = N² V̂, and divide by public numbers afterwards.

    ``bounds`` are sensitivities of τ̂ and V̂: published, or worked out from public numbers.
    """
    n = float(known.n_units)
    most = global_bounds(site.high, known.n_units)
    effect, noise = _one(known.effect_sum, n * bounds[0], n * most[0], site.epsilons[0])
    spread, _ = _one(known.variance_sum, n**2 * bounds[1], n**2 * most[1], site.epsilons[1])
    sampling = min(max(spread / n**2, 0.0), most[1])
    return SiteEffect(
        estimator=site.name,
        estimate=effect / n,
        variance=sampling + noise / n**2,
        sampling_variance=sampling,
        noise_variance=noise / n**2,
        n_units=known.n_units,
        epsilon=site.epsilon,
        delta=delta,
    )


def _one(value: float, bound: float, most: float, epsilon: float) -> tuple[float, float]:
    """Return a noised ``value`` of [−most, most] and the noise's variance; the rest is public."""
    sensitivity = bound * _ROUNDED
    step = max(power_of_two_step(sensitivity), power_of_two_step(most, 2.0**-50))
    noisy = lattice_laplace(np.array([value]), sensitivity=sensitivity, epsilon=epsilon, step=step)
    spread = lattice_laplace_variance(sensitivity=sensitivity, epsilon=epsilon, step=step)
    return float(noisy[0]), spread


def _check_units(n_units: int) -> None:
    if n_units > _MOST_UNITS:
        raise InputError(
            f"a site can match {_MOST_UNITS} units at most, and this one has {n_units}"
        )
