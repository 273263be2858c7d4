"""A site of a randomised trial: a noised difference in means and its noised variance.

Koga, Chaudhuri and Page, "Differentially Private Multi-Site Treatment Effect Estimation", Section
III-A-1. Protected is each unit's outcome: neighbours differ in one outcome, while who is in the
trial, in which arm, and how many are in each are public, as randomisation made the arms without
looking at outcomes. So the two arms are in parallel. A unit's covariates or its arm, were they
secret, are not protected.

Published of each arm are Σy, at ε₁, and Σ(y − B/2)², at ε₂, y on [0, B]. One outcome cannot move
both as far as either goes, and so the two together cost less than ε₁ + ε₂ (:func:`trial_epsilon`,
proof in `sites.md`): at ε₂ = ε₁/4, the default, the squares cost nothing.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privatizers.effects.toolbox.bounded_mean import Bounds
from privatizers.noise.lattice_laplace import (
    LEAST_EPSILON,
    lattice_laplace,
    lattice_laplace_variance,
)
from schemas.arrays import Bools, Floats
from schemas.errors import ConfigError, InputError

_ROOM = 1.0 - 2.0**-18
"""What of ε is spent: the rest pays for the rounding of squares to their lattice."""
_LEAST_EPSILON, _MOST_EPSILON = 1e-6, 1000.0
_NARROWEST = 1e-60
_MOST_UNITS = 2**30  # of an arm: sums of so many outcomes are doubles with every step


@dataclass(frozen=True)
class SiteEffect:
    """What a site publishes of its effect; every number in it is noised or public."""

    estimator: str
    estimate: float
    """Treated less control, in the unit of the outcomes."""
    variance: float
    """Estimated variance of ``estimate``, above 0: ``sampling_variance`` + ``noise_variance``."""
    sampling_variance: float
    """The part that is there without privacy: noised, then clipped to what is possible."""
    noise_variance: float
    """The variance of the noise on ``estimate``: known exactly."""
    n_units: int
    epsilon: float
    """Of everything here together, with ``delta``."""
    delta: float


def trial_epsilon(effect_epsilon: float, variance_epsilon: float) -> float:
    """Return what an outcome loses at most when its arm's two sums are noised at ε₁ and ε₂.

    With a = (2y − B)/B in [−1, 1] the loss is ε₁|a − a′|/2 + ε₂|a² − a′²|, at most

        ε₁ if 4ε₂ ≤ ε₁, else ε₂ + ε₁/2 + ε₁²/(16 ε₂)  (a = 1, a′ = −ε₁/(4ε₂)) ≤ ε₁ + ε₂,

    where ``effect_epsilon`` is ε₁ > 0 and ``variance_epsilon`` ε₂ > 0.
    """
    if 4.0 * variance_epsilon <= effect_epsilon:
        return effect_epsilon
    return variance_epsilon + effect_epsilon / 2.0 + effect_epsilon**2 / (16.0 * variance_epsilon)


def check_site(epsilon: float, high: float) -> None:
    """Raise ConfigError, naming the parameter, for an ε or a B that no site can make noise for."""
    if not (_LEAST_EPSILON <= epsilon <= _MOST_EPSILON):
        problem = f"must be from {_LEAST_EPSILON} to {_MOST_EPSILON}, not {epsilon!r}"
        raise ConfigError("epsilon", problem)
    if not (_NARROWEST <= high <= 1.0 / _NARROWEST):
        problem = f"low to high must be from {_NARROWEST} to {1.0 / _NARROWEST} wide, not {high!r}"
        raise ConfigError("high", problem)


def check_shares(**epsilons: float) -> None:
    """Raise ConfigError where a part of ε is too small for its noise, whatever its size will be.

    Before anything is drawn: a part that fails for some sensitivities alone would tell of them.
    """
    for name, epsilon in epsilons.items():
        if epsilon < LEAST_EPSILON:
            problem = (
                f"gives {name} {epsilon:.3g} of epsilon, and noise needs at least "
                f"{LEAST_EPSILON:.3g}; take weights that are less far apart"
            )
            raise ConfigError("shares", problem)


@dataclass(frozen=True)
class RandomisedTrial:
    """A DP difference in means with a DP variance. Guarantee: (ε, 0)-DP for one outcome."""

    name: ClassVar[str] = "difference-in-means"
    epsilon: float
    """ε, of the whole report."""
    high: float
    """B: outcomes are shifted so that the declared range is [0, B]; others are clipped."""
    variance_ratio: float = 0.25
    """ε₂/ε₁; up to 1/4 squares cost nothing, beyond they take from the effect."""

    def __post_init__(self) -> None:
        """Refuse settings that promise nothing."""
        check_site(self.epsilon, self.high)
        if not (0.0 < self.variance_ratio < math.inf):
            problem = f"variance over effect must be finite, above 0, not {self.variance_ratio!r}"
            raise ConfigError("variance_ratio", problem)
        of_effect, of_variance = self.epsilons
        check_shares(effect=of_effect, variance=of_variance)

    @property
    def epsilons(self) -> tuple[float, float]:
        """ε₁ of each arm's sum and ε₂ of its squares; :func:`trial_epsilon` of them is under ε."""
        of_effect = self.epsilon * _ROOM / trial_epsilon(1.0, self.variance_ratio)
        return of_effect, of_effect * self.variance_ratio

    def report(self, treated: Bools, outcome: Floats) -> SiteEffect:
        """Draw τ̃ = m̃_t − m̃_c and its variance.

            V = s_t²/N_t + s_c²/N_c + V_noise,   V_noise = v_t + v_c, v_a = Var(noise on m̃_a),
            s_a² = N_a/(N_a − 1) · [Q̃_a/N_a − (m̃_a − B/2)² + v_a] on [0, B² N_a/(4(N_a − 1))]

        where ``treated`` is public and ``outcome`` y is not, shape [N] each; y is clipped to [0, B]
        and counts as 0 where it is NaN. Q̃ and m̃ are noised sums of squares and noised means; s² is
        unbiased before it is clipped, v_a being what the noise on m̃ adds to its square. It differs
        from the paper in squares around B/2, which need a quarter of the noise, and in v_a.

        Raises InputError for an arm with fewer than two units, which is public, before any draw.
        """
        for arm in (True, False):
            n = int(np.count_nonzero(treated == arm))
            if not 2 <= n <= _MOST_UNITS:
                name = "treatment" if arm else "control"
                raise InputError(
                    f"the {name} arm of this site has {n} units: a difference in means with a "
                    f"variance needs from 2 to {_MOST_UNITS}; leave the site out, or wait for more"
                )
        arms = [_arm(self, outcome[treated == arm]) for arm in (True, False)]
        means, samplings, noises = zip(*arms, strict=True)
        sampling, noise = math.fsum(samplings), math.fsum(noises)
        return SiteEffect(
            estimator=self.name,
            estimate=means[0] - means[1],
            variance=sampling + noise,
            sampling_variance=sampling,
            noise_variance=noise,
            n_units=len(outcome),
            epsilon=self.epsilon,
            delta=0.0,
        )


def _arm(trial: RandomisedTrial, outcome: Floats) -> tuple[float, float, float]:
    """An arm as published: its mean, and the parts of the variance of that: sampling, noise."""
    n, high = len(outcome), trial.high
    of_effect, of_variance = trial.epsilons
    values, squares = Bounds(0.0, high), Bounds(0.0, high**2 / 4.0)
    y = values.whole(outcome)
    apart = squares.whole(np.square(y * values.step - high / 2.0))
    mean = _noised(int(y.sum()), values, of_effect) / n
    square = _noised(int(apart.sum()), squares, of_variance) / n
    noise = noise_variance(high, of_effect, n)
    spread = n / (n - 1.0) * (square - (mean - high / 2.0) ** 2 + noise)
    most = high**2 * n / (4.0 * (n - 1.0))
    return mean, min(max(spread, 0.0), most) / n, noise


def noise_variance(high: float, epsilon: float, n_units: int) -> float:
    """Return the variance of the noise on an arm's mean of ``n_units``: about 2(B/(ε₁ N))²."""
    step = Bounds(0.0, high).step
    return lattice_laplace_variance(sensitivity=high, epsilon=epsilon, step=step) / n_units**2


def _noised(total: int, lattice: Bounds, epsilon: float) -> float:
    """A sum of numbers on ``lattice``, in its unit, noised where one of them may change."""
    value = np.array([total * lattice.step])
    noisy = lattice_laplace(value, sensitivity=lattice.upper, epsilon=epsilon, step=lattice.step)
    return float(noisy[0])
