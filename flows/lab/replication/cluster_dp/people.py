"""Made-up people of Javanmard, Mirrokni and Pouget-Abadie (2025), as counts, and releases of them.

Nothing here holds a unit: a population is how many units of each cluster have which outcome in
either arm, an assignment draws from these without replacement, and resampled outcomes are drawn
count by count. Noise on counts, priors, debiasing and prices are the product's own functions.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import Generator

from estimators.response.debias import debias_vector, prior_moments
from estimators.theory import Population, no_privacy_variance
from flows.lab.replication.experiment_one import BETA, GRID, SIZES, K, latent_levels
from privatizers.accounting.accountant import calibrate
from privatizers.accounting.events import CountsNoise
from privatizers.accounting.rounding import realised_threshold
from privatizers.mechanisms.prior import truncated_prior, uniform_prior
from privatizers.mechanisms.statistics.noisy_counts import NoisyCounts, moved_cells
from schemas.arrays import Floats, Ints

DELTA = 1e-4


@dataclass(frozen=True, eq=False)
class People:
    """C clusters, half of each treated; a unit's type is its pair of outcomes."""

    grid: Floats
    """The outcomes, shape [K]."""
    levels: Ints
    """Positions on the grid of each type, control first; shape [2, T]."""
    counts: Ints
    """Units of each cluster and type, shape [C, T]."""

    @classmethod
    def of_units(cls, grid: Floats, levels: Ints, cluster: Ints) -> "People":
        """``levels`` of every unit, control first, shape [2, n]; ``cluster`` from 0, shape [n]."""
        types, kind = np.unique(levels, axis=1, return_inverse=True)
        shape = int(cluster.max()) + 1, types.shape[1]
        counts = np.bincount(cluster * shape[1] + kind, minlength=shape[0] * shape[1])
        return cls(grid, types, counts.reshape(shape))

    @classmethod
    def of_experiment_one(cls, random: Generator, beta: float = BETA) -> "People":
        """Draw three centres and everybody about them."""
        n = SIZES.sum(axis=1)
        return cls.of_units(GRID, latent_levels(random, n, beta), np.repeat(np.arange(len(n)), n))

    @cached_property
    def sizes(self) -> Ints:
        """Units by cluster and arm, control first; shape [C, 2]."""
        n = self.counts.sum(axis=1)
        return np.stack([n - n // 2, n // 2], axis=1)

    @cached_property
    def effect(self) -> float:
        """The mean of all units' effects."""
        each = self.grid[self.levels[1]] - self.grid[self.levels[0]]
        return float(self.counts.sum(axis=0) @ each / self.counts.sum())

    @cached_property
    def weights(self) -> Floats:
        """b_c, shape [C]."""
        return np.asarray(self.counts.sum(axis=1) / self.counts.sum())

    @cached_property
    def population(self) -> Population:
        """The same for :mod:`estimators.theory`."""
        n = self.counts.sum(axis=1).astype(np.float64)
        each = self.grid[self.levels[1]] - self.grid[self.levels[0]]
        mean = self.counts @ each / n
        square = np.sum(self.counts * (each - mean[:, np.newaxis]) ** 2, axis=1) / (n - 1.0)
        shares = self.in_arms(np.stack([self.counts, self.counts])) / n[:, np.newaxis, np.newaxis]
        return Population(self.grid, n, shares, square)

    def no_privacy(self) -> float:
        """The variance of the stratified difference in means over assignments."""
        return no_privacy_variance(self.population, self.sizes)

    def in_arms(self, by_arm: Ints) -> Ints:
        """Counts of types by arm, shape [2, ..., C, T], as counts of outcomes, [..., C, 2, K]."""
        shown = np.eye(len(self.grid), dtype=np.int64)[self.levels]
        return np.stack([by_arm[arm] @ shown[arm] for arm in range(2)], axis=-2)

    def assigned(self, n: int, random: Generator) -> Ints:
        """Draw ``n`` assignments: the counts of outcomes in every stratum, shape [n, C, 2, K]."""
        control = np.stack(
            [
                random.multivariate_hypergeometric(row, int(size), n, method="marginals")
                for row, size in zip(self.counts, self.sizes[:, 0], strict=True)
            ],
            axis=1,
        )
        return self.in_arms(np.stack([control, self.counts - control]))


@dataclass(frozen=True)
class Release:
    """A user-level mechanism: whose prior, and its parameters."""

    prior_of: str
    """``cluster``, ``arm`` (Cluster-Free-DP) or ``nobody``: the uniform prior."""
    rate: float
    """λ."""
    gamma: float = 0.0
    noise_scale: float = 1.0
    """σ, in units."""

    def priors(self, counts: Ints) -> Floats:
        """Draw noise on ``counts``, shape [n, C, 2, K], and return q̃, of the same shape."""
        k = counts.shape[-1]
        if self.prior_of == "nobody":
            return np.broadcast_to(uniform_prior(1, k)[0], counts.shape)
        pooled = counts if self.prior_of == "cluster" else counts.sum(axis=1, keepdims=True)
        flat = pooled.reshape(-1, k)
        noisy = NoisyCounts(k, self.noise_scale).noised(flat)
        prior = truncated_prior(noisy, flat.sum(axis=1), self.gamma).reshape(pooled.shape)
        return np.broadcast_to(prior, counts.shape)

    def noise(self, people: People, n: int, random: Generator) -> float:
        """The variance that resampling adds to τ̂_Q, averaged over n assignments and priors.

        Σ b_c² Σ_a [r E(y − m)² + r(1 + r) Var_q̃]/n_ca, exact given both: τ̂_Q is the estimate
        without privacy on average over draws, so variances add up.
        """
        counts = people.assigned(n, random)
        mean, spread = prior_moments(people.grid, self.priors(counts))
        shares = counts / counts.sum(axis=-1, keepdims=True)
        about = np.sum(shares * (people.grid - mean[..., np.newaxis]) ** 2, axis=-1)
        odds = self.rate / (1.0 - self.rate)
        of_unit = odds * about + odds * (1.0 + odds) * spread
        weight = people.weights[:, np.newaxis] ** 2 / people.sizes
        return float((of_unit.mean(axis=0) * weight).sum())

    def respond(self, counts: Ints, prior: Floats, grid: Floats, random: Generator) -> Floats:
        """Draw outcomes, and return the mean of v(ỹ) of every stratum; shape [n, C, 2]."""
        kept = random.binomial(counts, 1.0 - self.rate)
        n = counts.sum(axis=-1)
        drawn = kept + random.multinomial(n - kept.sum(axis=-1), _exact(prior))
        of_unit = debias_vector(grid, prior, self.rate)
        return np.asarray(np.sum(drawn * of_unit, axis=-1) / n)

    def estimates(self, people: People, n: int, random: Generator) -> Floats:
        """Draw n assignments and releases, and return τ̂_Q of each; shape [n]."""
        counts = people.assigned(n, random)
        mean = self.respond(counts, self.priors(counts), people.grid, random)
        return np.asarray((mean[..., 1] - mean[..., 0]) @ people.weights)


def _exact(prior: Floats) -> Floats:
    """Probabilities that numpy takes: it refuses rows whose rounding is above one."""
    return np.asarray(prior / prior.sum(axis=-1, keepdims=True) * (1.0 - 1e-12))


def printed_rate(epsilon: float, gamma: float, noise_scale: float = np.inf) -> float:
    """λ by Theorems 3.1 and A.5 as printed, at :data:`DELTA`, where counts leave some of ε.

    1 − λ − λγ(e^(ε − 1/σ) − 1) = δ.
    """
    return float((1.0 - DELTA) / (1.0 + gamma * np.expm1(epsilon - 1.0 / noise_scale)))


def sound_rate(epsilon: float, gamma: float, noise_scale: float | None = None) -> float:
    """λ by the product's accountant, at :data:`DELTA`."""
    counts = None if noise_scale is None else CountsNoise(noise_scale, moved_cells(K))
    return calibrate(epsilon, DELTA, realised_threshold(gamma, K), counts)
