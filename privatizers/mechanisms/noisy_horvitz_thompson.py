"""Noisy Horvitz–Thompson: differences between arm means, or the means, with all of ε.

Algorithm 3 of Javanmard, Mirrokni and Pouget-Abadie (2025), with the sensitivity that holds: a
cluster's difference changes by at most R/min(n_0, n_1), R = y_K − y_1. They have max|y| in place of
R, which is too small wherever outcomes have both signs (Proposition A.2 corrected;
`aggregates.md`).

With several treatment arms, differences would share their control and cost more together. The means
of the arms are published then, each with all of ε, since arms are disjoint.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privatizers.domain.lattice import Lattice
from privatizers.mechanisms.aggregate_mechanism import (
    AggregateMechanism,
    AggregateRelease,
    NoisyDifferences,
)
from privatizers.noise.randomness import discrete_laplace
from schemas.arrays import Floats, Ints
from schemas.errors import ConfigError

_MOST_MAGNITUDE = (
    2.0**61
)  # of a difference and of 64 scales of its noise, so that 64 bits hold both


@dataclass(frozen=True)
class NoisyHorvitzThompson(AggregateMechanism):
    """Noisy differences, or means, of pools. Guarantee: ε = M/σ, M = R/h, δ = 0."""

    name: ClassVar[str] = "noisy-horvitz-thompson"

    def check_sizes(self, sizes: Ints, min_stratum: int, *, exact: bool = True) -> None:
        """Raise ConfigError where 64 bits may not hold the difference of a pool."""
        lattice, scale = self.parameters.lattice, self.parameters.noise_scale
        if lattice is None or not self.parameters.differences:
            return
        pool_of = self.pool_of(sizes, min_stratum)
        pools = np.zeros((int(pool_of.max()) + 1, sizes.shape[1]), dtype=np.int64)
        np.add.at(pools, pool_of, sizes)
        if not exact:  # as large as a pool may get, and without a common divisor
            control, treated = pools.sum(axis=0).astype(np.float64)
            most = np.array([max(control, treated)])
            _check_magnitude(np.array([lattice.most * control * treated]), scale * most)
            return
        control, treated = pools[(pools > 0).all(axis=1)].T
        most = lattice.most * control.astype(np.float64) * (treated // np.gcd(control, treated))
        _check_magnitude(most, difference_scale(control, treated, scale))

    def statistics(self, counts: Ints, cell_of: Ints) -> AggregateRelease:
        """Add noise to the difference of every pool with both arms, or to all pools' arms' sums."""
        parameters = self.parameters
        if parameters.lattice is None:
            raise ValueError("sums and differences are of whole steps on a lattice")
        if parameters.sums is not None:
            return AggregateRelease(noisy_sums=parameters.sums.noised(counts))
        return AggregateRelease(noisy_differences=self._differences(counts, cell_of))

    def _differences(self, counts: Ints, cell_of: Ints) -> NoisyDifferences:
        lattice, scale = self.parameters.lattice, self.parameters.noise_scale
        pool = np.flatnonzero((cell_of >= 0).all(axis=1))
        control, treated = (counts[cell_of[pool, arm]] for arm in (0, 1))
        return noised_differences(control, treated, pool, lattice, scale)


def noised_differences(
    control: Ints, treated: Ints, pool: Ints, lattice: Lattice | None, noise_scale: float
) -> NoisyDifferences:
    """Return D̃ = D + Z of each pair of arms, for their raw counts, shape [D, K] each.

    D = (S_1 n_0 − S_0 n_1)/g,   Z discrete Laplace of scale σ max(n_0, n_1)/g,

    where S are the sums in grid steps of the ``lattice``, n the sizes, g = gcd(n_0, n_1) and σ
    ``noise_scale``, in steps. D is whole; divided by lcm(n_0, n_1) it is the difference of the
    means. A substitution changes it by M max(n_0, n_1)/g at most, so this costs M/σ. The difference
    has a Laplace scale of σ/min(n_0, n_1) steps: no more noise than the two means together, and
    half their variance for arms of equal size.

    Raises:
        ConfigError: 64 bits cannot hold D.
        ValueError: There is no lattice.
    """
    if lattice is None:
        raise ValueError("differences are published in whole steps of a lattice")
    steps = np.array(lattice.steps, dtype=np.int64)
    sizes = np.stack([control.sum(axis=1), treated.sum(axis=1)])
    common = np.gcd(sizes[0], sizes[1])
    scale = difference_scale(sizes[0], sizes[1], noise_scale)
    _check_magnitude(lattice.most * sizes[0].astype(np.float64) * (sizes[1] // common), scale)
    divisor = sizes[0] * (sizes[1] // common)
    exact = (treated @ steps) * (sizes[0] // common) - (control @ steps) * (sizes[1] // common)
    return NoisyDifferences(pool, exact + _laplace(scale), divisor)


def difference_scale(control: Ints, treated: Ints, noise_scale: float) -> Floats:
    """Return σ max(n_0, n_1)/gcd(n_0, n_1), the scale of the noise on D, rounded up; shape [D]."""
    times = np.maximum(control, treated) // np.gcd(control, treated)
    product = noise_scale * times
    return np.where(times == 1, noise_scale, np.nextafter(product, np.inf))


def _check_magnitude(largest: Floats, scale: Floats) -> None:
    """Refuse differences that 64 bits cannot hold; by public sizes, before any draw."""
    if len(scale) and max(float(largest.max()), 64.0 * float(scale.max())) > _MOST_MAGNITUDE:
        raise ConfigError(
            "outcome",
            "the grid has too many steps for arms of these sizes: their difference does not fit "
            "64 bits; use a coarser grid, or noisy-histogram",
        )


def _laplace(scale: Floats) -> Ints:
    """Draw one number of each scale, shape [D]; all of one scale at once."""
    scales, which, times = np.unique(scale, return_inverse=True, return_counts=True)
    drawn = [discrete_laplace(int(n), float(sigma)) for sigma, n in zip(scales, times, strict=True)]
    noise = np.empty(len(scale), dtype=np.int64)
    noise[np.argsort(which, kind="stable")] = np.concatenate([np.empty(0, np.int64), *drawn])
    return noise
