"""What strata count for in an arm's mean: by all arms' units, or partly by the arm's own.

Where every cluster was randomised with the same arm shares, an arm's share of a cluster is that of
all arms on average. So weights by the arm's own units are unbiased over the assignment, too, and
with them the noise of a small stratum counts for less; what they add is how clusters differ. This
is for clusters that are too small for statistics of their own. Ours; see docs/method.md.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from estimators.strata.contrast_strata import ArmSlices, ContrastStrata, are_small
from estimators.strata.evidence import Slices, sum_by
from schemas.arrays import Bools, Floats, Ints

LIKELY_BETWEEN = 0.15
"""ρ, the part of outcomes' variance that is taken to lie between clusters."""


@dataclass(frozen=True)
class Shares:
    """What the strata of a contrast count for in the mean of one arm, in every group."""

    value: Floats
    """k = (1 − s) b + g Σ s b, shape [S].

    b is the stratum's share of the group's units, all arms counted, and g its share of the arm's
    own units, among the strata of the group whose s is not 0. That s is one number, so k adds up to
    1 as b does.
    """
    own: Floats
    """g, shape [S]; 0 where s is."""
    moved: Floats
    """Σ s b, what is shared out by the arm's own units, shape [G]; likewise:"""
    held: Floats
    """Σ b of the strata whose s is not 0."""
    n_units: Floats
    """The arm's units in them, 1 where there are none."""

    @classmethod
    def of(cls, strata: ContrastStrata, rows: ArmSlices, n_units: Floats, total: Floats) -> Self:
        """Return the shares of the arm with these ``rows``; ``n_units`` are those of slices.

        ``total`` has the units of all arms in the strata of every group, shape [G].
        """
        b, s = strata.weight / total[strata.group], strata.own_sizes
        n = sum_by(rows.stratum, n_units[rows.rows], len(b)) * (s > 0)
        moved, held, of_arm = (
            sum_by(strata.group, values, len(total)) for values in (s * b, b * (s > 0), n)
        )
        of_arm = np.where(of_arm > 0, of_arm, 1.0)
        own = n / of_arm[strata.group]
        return cls((1.0 - s) * b + own * moved[strata.group], own, moved, held, of_arm)

    @classmethod
    def by_everyone(cls, strata: ContrastStrata, total: Floats) -> Self:
        """Return k = b, as if s were 0."""
        zero = np.zeros_like(strata.weight)
        none = np.zeros_like(total)
        return cls(strata.weight / total[strata.group], zero, none, none, none + 1.0)


@dataclass(frozen=True)
class Between:
    """What differences between strata add to the variance of an arm's mean; shape [G] each."""

    variance: Floats
    most: Floats
    """The most that the grid allows."""
    scatter: Floats
    """Half the variance that ``variance`` adds to V̂."""


@dataclass(frozen=True)
class StratumMeans:
    """An arm's calibrated means of strata, and what they are off by; shape [S] each."""

    mean: Floats
    noise: Floats
    """V̂(θ̂)."""
    sampling: Floats
    """Ŝ²/n as it is."""
    inside: Floats
    """Ŝ²/n, brought between its bounds."""
    widest: Floats
    """The most that outcomes can vary."""
    center_noise: Floats
    """V̂(Σ g θ̂), shape [G]."""


def between(shares: Shares, group: Ints, means: StratumMeans) -> Between:
    """Return (Σ s b)² σ̂_b²/n_a, n_a being the arm's units in the strata with an s.

    σ̂_b² = Σ g (θ̂ − Σ g θ̂)² − Σ g V̂(θ̂) + V̂(Σ g θ̂) − Σ g Ŝ²/n + Σ g² Ŝ²/n is the variance between
    these strata, and may be negative: the Ŝ² that it is added to hold the same errors with the
    other sign, for their means are the same, calibrated ones. At s = 1 nothing is left of them: the
    sum is the variance of all outcomes together. So the last Ŝ² alone are brought between their
    bounds. What is left of the errors' variance is counted: with m = Σ s b, B = Σ b and σ̂_b²
    between 0 and the most that it can be,

        {Σ [g (1 − g)(m² Ŝ²/n + (B² − m²) V̂)]² + 2 σ̂_b² Σ g² (m⁴ Ŝ²/n + (B² − m²)² V̂)}/n_a².
    """
    g, moved = shares.own, shares.moved**2

    def over(values: Floats) -> Floats:
        return sum_by(group, values, len(moved))

    apart = means.mean - over(g * means.mean)[group]
    found = over(g * (apart**2 - means.sampling - means.noise) + g**2 * means.inside)
    found = found + means.center_noise
    most = over(g * means.widest)
    of_sampling, of_noise = moved[group], (shares.held**2 - moved)[group]
    errors = g * (1.0 - g) * (of_sampling * means.inside + of_noise * means.noise)
    with_mean = g**2 * (of_sampling**2 * means.inside + of_noise**2 * means.noise)
    scatter = over(errors**2) + 2.0 * np.clip(found, 0.0, most) * over(with_mean)
    factor = moved / shares.n_units
    return Between(factor * found, factor * most, scatter / shares.n_units**2)


@dataclass(frozen=True)
class Unevenness:
    """What s follows from: sizes alone; both are 0 where there is nothing to share out."""

    uneven: float
    """Σ_a κ_a/n_a."""
    apart: float
    """Σ_a 1/n_a."""

    def own_sizes(self, noise: Floats) -> Floats:
        """Return s = A/(A + B), A = (v/S² + 1 − ρ) Σ_a κ_a/n_a, B = ρ Σ_a 1/n_a.

        It has the least variance on average over the assignment. v/S² is ``noise``: what the
        response adds to a unit's variance by the declared guess, as a part of outcomes' variance.
        """
        if self.uneven == 0:
            return np.zeros_like(noise)
        alike = (noise + 1.0 - LIKELY_BETWEEN) * self.uneven
        whole = alike + LIKELY_BETWEEN * self.apart
        return np.divide(alike, whole, out=np.ones_like(alike), where=np.isfinite(alike))


def unevenness(sizes: Ints, control: int, together: Bools) -> Unevenness:
    """Return what sizes tell of the clusters ``together``; ``sizes`` are [clusters, arms].

    κ_a = (C − 1)(n − n_a)/(n_a (n − 1)) is what Σ (b − g)²/g is on average for C strata with n
    units, n_a of the arm. Not what it is: that follows the assignment. Σ_a adds up both arms of
    each contrast, so ``control`` counts once a treatment: all arms have one s, and so one mean.
    """
    n_arm = sizes[together].sum(axis=0).astype(np.float64)
    times = np.where(np.arange(len(n_arm)) == control, np.count_nonzero(n_arm) - 1.0, 1.0)
    n_arm, times = n_arm[n_arm > 0], times[n_arm > 0]
    n, n_strata = n_arm.sum(), _n_strata(sizes, together)
    if n_strata < 2 or len(n_arm) < 2:
        return Unevenness(0.0, 0.0)
    kappa = (n_strata - 1.0) * (n - n_arm) / (n_arm * (n - 1.0))
    return Unevenness(float(np.sum(times * kappa / n_arm)), float(np.sum(times / n_arm)))


def own_sizes(sizes: Ints, control: int, together: Bools, noise: Floats) -> Floats:
    """Return s of every cluster: one number for those that are ``together``, 0 for the others.

    ``noise`` is v/S² of every outcome, and s the mean of what :class:`Unevenness` says of them: one
    for all, as a unit has one weight.
    """
    return np.where(together, unevenness(sizes, control, together).own_sizes(noise).mean(), 0.0)


def _n_strata(sizes: Ints, together: Bools) -> int:
    """Return the strata that the clusters ``together`` make: small ones are merged into one."""
    cluster, arm = np.nonzero(sizes)
    n = sizes[cluster, arm].astype(np.float64)
    nowhere, zero = np.zeros(len(n), dtype=np.int64), np.zeros(len(n))
    small = np.zeros(len(sizes), dtype=np.bool_)
    small[cluster] = are_small(Slices(nowhere, cluster, arm, nowhere, n, zero, zero, zero))
    return int(np.count_nonzero(together & ~small)) + bool((together & small).any())
