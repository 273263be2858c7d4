"""Exact totals of the clipped noisy counts of a stratum, and the prior that each total gives.

A share clip(Ñ/n, γ, 1) is γ or k/n, so K − 1 cells add up to m γ + s/n: m of them are clipped to γ,
and the counts of the others, clipped to n, add up to s. (m, s) are whole numbers, and their
distribution is a convolution with one term for each cell.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privatizers.mechanisms.prior import realised_prior, truncated_prior
from schemas.arrays import Floats, Ints


def mass_of(noisy: Ints, count: int, scale: float) -> Floats:
    """Return P(Ñ | N) = tanh(1/(2σ)) e^(−|Ñ − N|/σ): discrete Laplace noise of ``scale`` σ."""
    log_mass = math.log(math.tanh(1 / (2 * scale))) - np.abs(noisy - count) / scale
    mass: Floats = np.exp(log_mass)
    return mass


def loss_of(noisy: Ints, count: int, neighbour: int, scale: float) -> Floats:
    """Return ln(P(Ñ | N)/P(Ñ | N′)) = (|Ñ − N′| − |Ñ − N|)/σ."""
    loss: Floats = (np.abs(noisy - neighbour) - np.abs(noisy - count)) / scale
    return loss


def sum_groups(group: Ints, mass: Floats, n_groups: int = 0) -> Floats:
    """Add up the ``mass`` of each group, shape [groups]."""
    sums: Floats = np.bincount(group, mass, minlength=n_groups).astype(np.float64)
    return sums


@dataclass(frozen=True)
class CountLattice:
    """Totals of clipped counts of ``n_outcomes`` K cells in a stratum of ``n_units`` n."""

    n_units: int
    n_outcomes: int
    gamma: float

    @cached_property
    def lowest(self) -> int:
        """The least count whose share is above γ; the comparison is the prior's own."""
        return int(np.argmax(np.arange(self.n_units + 1) / self.n_units > self.gamma))

    @property
    def n_levels(self) -> int:
        """The number of levels: one for γ, and one for each count from the lowest to n."""
        return self.n_units - self.lowest + 2

    def levels(self, noisy_counts: Ints) -> Ints:
        """Return the level of each noisy count: 0 if clipped to γ, 1 for the lowest count above."""
        return np.clip(noisy_counts, self.lowest - 1, self.n_units) - (self.lowest - 1)

    def level_mass(self, count: int, scale: float, margin: int) -> Floats:
        """Return each level's probability for a cell of ``count`` units with noise of ``scale``."""
        noisy = np.arange(-margin, self.n_units + margin + 1)
        return sum_groups(self.levels(noisy), mass_of(noisy, count, scale), self.n_levels)

    def anything(self) -> Floats:
        """Return 1 for each level: noise has no bounds, so a noisy count can have any level."""
        return np.ones(self.n_levels)

    def nothing(self) -> Floats:
        """Return the distribution of (m, s) for no cells, shape [K, (K − 1) n + 1]."""
        totals = np.zeros((self.n_outcomes, (self.n_outcomes - 1) * self.n_units + 1))
        totals[0, 0] = 1.0
        return totals

    def plus(self, totals: Floats, level_mass: Floats) -> Floats:
        """Return the distribution of (m, s) with one more cell, which has these level masses.

        For fewer than K cells in all, so that no total is beyond the edge of ``totals``.
        """
        by_count = np.concatenate([np.zeros(self.lowest), level_mass[1:]])
        more = np.stack([np.convolve(row, by_count)[: totals.shape[1]] for row in totals])
        more[1:] += totals[:-1] * level_mass[0]
        return more

    @cached_property
    def states(self) -> tuple[Ints, Ints]:
        """Every total (m, s) that K − 1 cells can have."""
        unclipped = self.n_outcomes - 1 - np.arange(self.n_outcomes)
        pairs = [
            (m, s)
            for m, rest in enumerate(unclipped)
            for s in range(rest * self.lowest, rest * self.n_units + 1)
        ]
        m, s = np.array(pairs, dtype=np.int64).T
        return m, s

    @cached_property
    def priors(self) -> Floats:
        """q̃ of a cell by its level and the (m, s) of all others, shape [levels, states].

        Computed by the product's own code from one full vector of noisy counts each.
        """
        own = np.concatenate([[0], np.arange(self.lowest, self.n_units + 1)])
        others = self._representatives()
        counts = np.empty((len(own), len(others), self.n_outcomes), dtype=np.int64)
        counts[..., 0] = own[:, np.newaxis]
        counts[..., 1:] = others
        return own_prior(counts.reshape(-1, self.n_outcomes), self.n_units, self.gamma)[
            :, 0
        ].reshape(len(own), len(others))

    def _representatives(self) -> Ints:
        """Return counts of K − 1 cells with each of the totals, shape [states, K − 1].

        The last m are 0; the first of the others are as great as s allows.
        """
        m, s = (state[:, np.newaxis] for state in self.states)
        position = np.arange(self.n_outcomes - 1)
        unclipped = self.n_outcomes - 1 - m
        extra = s - unclipped * self.lowest
        width = self.n_units - self.lowest
        counts = self.lowest + np.clip(extra - position * width, 0, width)
        return np.where(position < unclipped, counts, 0)


def own_prior(noisy_counts: Ints, n_units: int, gamma: float) -> Floats:
    """Return the prior that a mechanism computes from ``noisy_counts``, [S, K], of n units."""
    sizes = np.full(len(noisy_counts), n_units)
    return realised_prior(truncated_prior(noisy_counts, sizes, gamma), gamma)
