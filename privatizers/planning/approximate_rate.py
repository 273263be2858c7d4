"""The rate of resampling that an (ε, δ) allows: approximate, for many candidates at once.

For planning alone. A release never uses these numbers: its parameters are calibrated exactly
(:mod:`privatizers.accounting.accountant`).
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from privatizers.accounting.accountant import SUM_ATOMS
from privatizers.domain.lattice import Lattice
from privatizers.mechanisms.noisy_counts import moved_cells
from schemas.arrays import Floats

_HALVINGS = 100


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

    r = 1/(γ (e^(ε (1 − share)) − 1)) for δ = 0; otherwise r is found by bisection on δ(ε). γ is
    ``least_probability``; ``shift`` is None where no statistic of strata is published.
    ``square_shares`` of ε pay for arms' sums of squares. Shape [J].
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
    low, high = np.log(pure) - 20.0, np.log(pure)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        fits = _delta(epsilon, np.exp(middle), gamma, values, mass) <= delta
        low, high = np.where(fits, low, middle), np.where(fits, middle, high)
    odds: Floats = np.exp(high)
    return odds


def _delta(epsilon: float, odds: Floats, gamma: float, values: Floats, mass: Floats) -> Floats:
    """Return δ(ε) of a response at ``odds`` together with a statistic's losses; shape [J]."""
    rate = odds / (1.0 + odds)
    loss = np.log1p(1.0 / (odds * gamma))
    total = np.zeros_like(odds)
    kinds = (
        (loss, 1.0 - rate + rate * gamma),
        (-loss, rate * gamma),
        (np.zeros_like(loss), rate * (1.0 - 2.0 * gamma)),
    )
    for response, share in kinds:
        over = np.maximum(-np.expm1(epsilon - (values + response[:, np.newaxis])), 0.0)
        total += share * np.sum(mass * over, axis=1)
    return total
