"""Noisy sums of outcomes over the values of declared attributes, the *margins* of a release.

A margin is an attribute, or several together; its *cells* are their values, which are public. What
is published is, for every cell and arm, the sum of the units' outcomes in grid steps with discrete
Laplace noise, drawn exactly. Every unit is in one cell and one arm of each margin, so the cells of
a margin are disjoint and cost ε_j = M/σ_j together, M the width of the grid in steps; margins are
of the same people, so their prices add up (``margin_sums.md``, `events.MarginNoise`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from privatizers.domain.lattice import Lattice
from privatizers.noise.geometric_digits import digits_of
from privatizers.noise.randomness import discrete_laplace
from schemas.arrays import Ints


@dataclass(frozen=True)
class MarginSums:
    """The sums of J margins on one lattice. Guarantee: Σ_j M/σ_j."""

    lattice: Lattice
    noise_scales: tuple[float, ...]
    """σ_j of each margin, in grid steps; shape [J], J ≥ 1."""

    def __post_init__(self) -> None:
        """Refuse scales that no noise can be drawn of."""
        if not self.noise_scales:
            raise ValueError("no margins: leave them out")
        for scale in self.noise_scales:
            digits_of(scale)

    @classmethod
    def of_price(
        cls, lattice: Lattice | None, epsilon: float, shares: Sequence[float]
    ) -> "MarginSums | None":
        """Return the margins that these ``shares`` of ``epsilon`` pay for; None without any.

        Raises:
            ValueError: There are shares, and no lattice that sums could be counted on.
        """
        if not shares:
            return None
        if lattice is None:
            raise ValueError("margins need a grid whose points lie whole steps apart")
        return cls(lattice, tuple(lattice.most / (epsilon * share) for share in shares))

    def noised(self, margin: int, sums: Ints) -> Ints:
        """Return S + Z for the ``sums`` S of a margin's cells and arms, in steps; any shape."""
        noise: Ints = discrete_laplace(sums.size, self.noise_scales[margin]).reshape(sums.shape)
        noise += sums
        return noise
