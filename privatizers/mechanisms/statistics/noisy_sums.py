"""Noisy sums of the outcomes of a stratum, in whole steps of the grid, and their cost.

Where only means matter they tell more than counts at the same ε: on the grid −5 … 6 their noise has
4.7 times less variance. They tell nothing else of the distribution, so no prior is computed from
them.
"""

from dataclasses import dataclass

import numpy as np

from privatizers.domain.lattice import Lattice
from privatizers.noise.randomness import discrete_laplace
from schemas.arrays import Ints


@dataclass(frozen=True)
class NoisySums:
    """The sum of a stratum's outcomes, in grid steps, with discrete Laplace noise of scale σ.

    Guarantee: ε_stat = M/σ, M = (y_K − y_1)/h the width of the grid in steps: one substitution
    changes the sum by M at most (`accountant` adds it up).
    """

    lattice: Lattice
    noise_scale: float
    """σ, in grid steps."""

    def noised(self, counts: Ints) -> Ints:
        """Return S̃ = Σ_y i_y N_y + Z, shape [S], for ``counts`` N of shape [S, K].

        i_y are the steps of the grid points; Z i.i.d. discrete Laplace. The sums are whole numbers,
        so nothing is rounded. The published mean is y_1 + h S̃/n, n being public.
        """
        total: Ints = counts @ np.array(self.lattice.steps, dtype=np.int64)
        return total + discrete_laplace(len(counts), self.noise_scale)
