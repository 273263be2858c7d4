"""The rate of resampling that an (ε, δ) allows: approximate, for many candidates at once.

For planning alone. A release never uses these numbers: its parameters are calibrated exactly
(:mod:`privatizers.accounting.accountant`).
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from privatizers.accounting.accountant import SUM_ATOMS
from privatizers.domain.lattice import Lattice
from privatizers.mechanisms.statistics.noisy_counts import moved_cells
from schemas.arrays import Floats

_LEAST_PART = np.exp(-20.0)
"""Of the odds that a pure ε allows: what a δ allows is not less."""

_MOST_EXPONENT = 700.0  # a double holds e^709


@dataclass(frozen=True)
class StatisticShift:
    """How one substitution changes the statistic that is published of a stratum."""

    most: int
    """Cells that change by one, or steps that a sum changes by; pure ε is ``most``/σ."""
    one_sum: bool

    @classmethod
    def of(cls, n_outcomes: int, lattice: Lattice | None) -> Self:
        """Return the shift of sums on a lattice; without a lattice, of counts."""
        if lattice is not None:
            return cls(lattice.most, one_sum=True)
        return cls(moved_cells(n_outcomes), one_sum=False)

    def losses(self, loss: Floats) -> tuple[Floats, Floats]:
        """Return the values of the privacy loss, in order, and their masses; [J, atoms] each.

        ``loss`` is 1/σ. Values are those of ``accountant.delta_at``, with the same ones merged on
        wide grids.
        """
        u = loss[:, np.newaxis]
        a = np.exp(-u)
        if self.one_sum:
            width = -(-self.most // SUM_ATOMS)
            k = np.append(np.arange(0, self.most, width), self.most)
            mass = np.exp(-k * u)
            mass[:, :-1] *= -np.expm1(-np.diff(k) * u)
            mass[:, :1] += a
            return (self.most - 2 * k) * u, mass / (1.0 + a)
        k = np.arange(self.most + 1)
        binomial = np.array([1.0, 1.0] if self.most == 1 else [1.0, 2.0, 1.0])
        return (self.most - 2 * k) * u, binomial * a**k / (1.0 + a) ** self.most


def approximate_odds(
    epsilon: float,
    delta: float,
    shares: Floats,
    least_probability: float,
    shift: StatisticShift | None,
    square_shares: Floats | float = 0.0,
) -> Floats:
    """Return the r = λ/(1 − λ) for (ε, δ) in all, where ``shares`` of ε pay for the strata.

    r = 1/(γ (e^(ε (1 − share)) − 1)) for δ = 0. γ is ``least_probability``; ``shift`` is None where
    no statistic of strata is published. ``square_shares`` of ε pay for arms' sums of squares. Shape
    [J].

    Otherwise: let the statistic have the privacy loss v with mass m_v, and g_v = e^(ε − v) − 1,
    which is positive, for v ≤ ε · share. Then δ(ε) = Σ_v m_v max(1 − r γ g_v, 0)/(1 + r), the
    greatest of what subsets of the v add up to, so it is at most δ where

        r ≥ (M − δ)/(γ G + δ),  M = Σ m_v and G = Σ m_v g_v over the subset,

    for each. The subset that asks for most has the greatest v: r is the maximum over these alone.
    """
    gamma = least_probability
    pure: Floats = 1.0 / (gamma * np.expm1(epsilon * (1.0 - shares - square_shares)))
    if delta == 0:
        return pure
    values, mass = np.zeros((len(shares), 1)), np.ones((len(shares), 1))
    if shift is not None:
        values, mass = shift.losses(epsilon * shares / shift.most)
    if np.any(square_shares):
        loss = epsilon * np.broadcast_to(square_shares, shares.shape)[:, np.newaxis]
        over = 1.0 / (1.0 + np.exp(-loss))
        values = np.concatenate([values + loss, values - loss], axis=1)
        mass = np.concatenate([mass * over, mass * (1.0 - over)], axis=1)
    order = np.argsort(-values, axis=1)
    values, mass = (np.take_along_axis(part, order, axis=1) for part in (values, mass))
    gain = np.expm1(np.minimum(epsilon - values, _MOST_EXPONENT))
    total, gains = np.cumsum(mass, axis=1), np.cumsum(mass * gain, axis=1)
    odds: Floats = np.max((total - delta) / (gamma * gains + delta), axis=1)
    return np.clip(odds, pure * _LEAST_PART, pure)
