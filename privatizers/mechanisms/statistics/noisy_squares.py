"""A noisy sum of squares of every arm: it tells the variance of outcomes where means are published.

Means tell nothing of the variance, and randomised outcomes tell little at small ε; without sums of
squares, intervals are many times too wide. The squares are about the *middle* of the grid, c =
(y_1 + y_K)/2, where one outcome in place of another changes the sum by at most R²/4, R = y_K − y_1.

**In whole steps.** On a lattice y_k = y_1 + h i_k, 0 = i_1 < … < i_K = M, so 4 (y_k − c)²/h² =
(2 i_k − M)² is a whole number, and so is s_k = ((2 i_k − M)² − m)/g, where m is the least of the
squares (2 i_k − M)² and g the greatest common divisor of their differences from m (4 or 8 on evenly
spaced grids). The noise is discrete Laplace on Σ s, drawn exactly. m and g are facts of the grid
and n is public, so Σ (y − c)² = (h²/4)(g Σ s + m n) tells the same.

**The guarantee.** One outcome in place of another changes Σ s of its arm by at most max s − min s =
max s, and those of other arms not at all. Arms are disjoint, so publishing all of them costs
max s/σ = (max_k (y_k − c)² − min_k (y_k − c)²)/(published scale), pure. This adds to the price of
everything else that is published of a unit (`events.SquareNoise`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np

from estimators.response.pool_statistics import square_noise
from privatizers.domain.lattice import Lattice
from privatizers.domain.strata import Strata
from privatizers.noise.randomness import discrete_laplace
from schemas.arrays import Floats, Ints
from schemas.errors import ConfigError

_MOST_MAGNITUDE = 2.0**61  # of a sum and of 64 scales of its noise, so that 64 bits hold both


@dataclass(frozen=True)
class SquareSteps:
    """The squares of a grid's points about its middle, in whole steps from the least square."""

    steps: tuple[int, ...]
    """s, of each grid point; shape [K]."""
    least: int
    """m, in quarters of h²."""
    common: int
    """g, the quarters of h² in a step."""
    most_of_grid: int
    """M, the width of the grid in steps of h."""

    @property
    def most(self) -> int:
        """The most that one substitution changes a sum by, in steps."""
        return max(self.steps)

    def step_of(self, grid: Sequence[float]) -> float:
        """Return g h²/4, one step in the squared unit of ``grid``."""
        return self.common * float(((grid[-1] - grid[0]) / self.most_of_grid) ** 2) / 4.0

    def least_of(self, grid: Sequence[float]) -> float:
        """Return m h²/4, the least square of a point of ``grid``."""
        return self.least * self.step_of(grid) / self.common


def square_steps(lattice: Lattice) -> SquareSteps | None:
    """Return the squares of a lattice; None where all are equal, as they are for two points."""
    squares = [(2 * step - lattice.most) ** 2 for step in lattice.steps]
    least = min(squares)
    common = gcd(*(square - least for square in squares))
    if common == 0:
        return None
    steps = tuple((square - least) // common for square in squares)
    return SquareSteps(steps, least, common, lattice.most)


def is_even(lattice: Lattice) -> bool:
    """Whether the mean of a grid is its middle, as for evenly spaced points.

    Squares about the middle are then squares about the mean, which sample variances need.
    """
    return 2 * sum(lattice.steps) == len(lattice.steps) * lattice.most


@dataclass(frozen=True)
class NoisySquares:
    """The sum of squares of an arm, with discrete Laplace noise of scale σ. Guarantee: max s/σ."""

    steps: SquareSteps
    noise_scale: float
    """σ, in steps."""

    @classmethod
    def of_price(
        cls, lattice: Lattice | None, epsilon: float, *, of_means: bool
    ) -> "NoisySquares | None":
        """Return the sums of squares that ``epsilon`` pays for; None where they tell nothing.

        That is without a lattice, at ε = 0, for two outcomes, and beside means (``of_means``) of a
        grid whose mean is not its middle.
        """
        steps = None if lattice is None else square_steps(lattice)
        if lattice is None or steps is None or epsilon == 0 or (of_means and not is_even(lattice)):
            return None
        return cls(steps, steps.most / epsilon)

    def check_room(self, n_units: int) -> None:
        """Raise ConfigError where 64 bits cannot hold a sum of ``n_units``; before any draw."""
        if max(float(self.steps.most) * n_units, 64.0 * self.noise_scale) > _MOST_MAGNITUDE:
            raise ConfigError(
                "outcome",
                "the grid has too many steps for so many units: their sum of squares does not fit "
                "64 bits; use a coarser grid",
            )

    def noised(self, counts: Ints) -> Ints:
        """Return Σ_y s_y N_y + Z of each row of ``counts`` N, shape [A, K]; in steps, shape [A]."""
        total: Ints = counts @ np.array(self.steps.steps, dtype=np.int64)
        return total + discrete_laplace(len(counts), self.noise_scale)

    def released(self, drawn: Ints, n_units: Ints, grid: Sequence[float]) -> "ReleasedSquares":
        """Return the sums to publish: ``drawn`` in the squared unit of ``grid``; shape [A]."""
        step, least = self.steps.step_of(grid), self.steps.least_of(grid)
        return ReleasedSquares(
            noisy_square=step * drawn + least * n_units,
            noise_scale=step * self.noise_scale,
            centre=(grid[0] + grid[-1]) / 2.0,
        )

    def variance(self, grid: Sequence[float]) -> float:
        """Return the noise variance of a published sum, in the fourth power of the grid's unit."""
        return square_noise(self.steps.step_of(grid) * self.noise_scale)


@dataclass(frozen=True)
class ReleasedSquares:
    """Σ (y − centre)² of every arm with noise, and the noise's scale, in outcomes' unit squared."""

    noisy_square: Floats
    noise_scale: float
    centre: float


def counts_of_arms(counts: Ints, strata: Strata) -> Ints:
    """Add up ``counts`` of the cells of ``strata``, shape [S, K], by arm, shape [A, K]."""
    _, arm = np.nonzero(strata.cell_of >= 0)
    total = np.zeros((len(strata.arms), counts.shape[1]), dtype=np.int64)
    np.add.at(total, arm, counts)
    return total
