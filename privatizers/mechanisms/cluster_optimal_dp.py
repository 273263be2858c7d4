"""Cluster-Optimal-DP: the least noisy unbiased randomiser, for a guess learnt from the strata.

A response table of the optimal randomiser (`optimal_response.md`) in place of randomised response:
for the public guess where no counts are published, else for what the noisy counts say, stratum by
stratum (`cluster_optimal_dp.md` has the proof). Guarantee, for counts and outcomes published
together: ε = 2/σ + ε₂, δ = 0 (1/σ for K = 2), ε₂ being what every table keeps.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from estimators.pool_statistics import ResponseNoise
from privatizers.domain.strata import small_clusters_share
from privatizers.mechanisms.noisy_counts import moved_cells
from privatizers.mechanisms.parameters import OptimalParameters
from privatizers.optimal_response.learnt_guess import learnt_response, public_response
from privatizers.optimal_response.response import OptimalResponse
from schemas.arrays import Floats, Ints


@dataclass(frozen=True)
class OptimalRelease:
    """The published statistic of the strata, and the tables that units' outcomes are drawn from."""

    noisy_counts: Ints | None
    """Ñ, shape [S, K]; None where none are published."""
    response: OptimalResponse
    noisy_sums: Ints | None = None
    """S̃ in grid steps, shape [S]; None where none are published."""


@dataclass(frozen=True)
class ClusterOptimalDP:
    """A table per pool and arm, a pool being one cluster (small clusters share one)."""

    name: ClassVar[str] = "cluster-optimal-dp"
    parameters: OptimalParameters

    def pool_of(self, sizes: Ints, min_stratum: int) -> Ints:
        """Give each cluster a pool; those with an arm under ``min_stratum`` units share one."""
        return small_clusters_share(sizes, min_stratum)

    def response_noise(self, guess: Floats) -> ResponseNoise:
        """Return the noise of a unit by the public guess's table, never by a learnt one.

        Weights are made of it, and a learnt table is a function of the counts that they weigh.
        Outcomes are spread like ``guess``, shape [K].
        """
        response = self._public(1)
        functions, occurs = response.functions, guess @ response.probabilities[0]
        return ResponseNoise(
            of_mean=float(occurs @ functions.noise[0]),
            of_square=float(occurs @ functions.square_noise[0]),
        )

    @property
    def noise_by_guess(self) -> float:
        """The noise of a unit's debiased outcome where outcomes are spread like the guess."""
        return self.response_noise(np.array(self.parameters.guess)).of_mean

    def strata(self, counts: Ints, group: Ints | None = None) -> OptimalRelease:
        """Add noise to the counts, and choose tables by the noisy counts alone.

        ``group`` has the arm of each stratum, shape [S]; None where all are of one.
        """
        parameters = self.parameters
        noisy = None if parameters.counts is None else parameters.counts.noised(counts)
        sums = None if parameters.sums is None else parameters.sums.noised(counts)
        return OptimalRelease(noisy, self.response(noisy, counts.sum(axis=1), group), sums)

    def response(
        self, noisy_counts: Ints | None, n_units: Ints, group: Ints | None = None
    ) -> OptimalResponse:
        """Return the tables of strata with these noisy counts, [S, K], and public sizes, [S]."""
        parameters = self.parameters
        if noisy_counts is None or parameters.noise_scale is None:
            return self._public(len(n_units))
        return learnt_response(
            np.array(parameters.grid),
            np.array(parameters.guess),
            parameters.response_epsilon,
            noisy_counts,
            n_units,
            moved_cells(parameters.n_outcomes) / parameters.noise_scale,
            np.zeros(len(n_units), dtype=np.int64) if group is None else group,
        )

    def _public(self, n_strata: int) -> OptimalResponse:
        parameters = self.parameters
        grid, guess = np.array(parameters.grid), np.array(parameters.guess)
        return public_response(grid, guess, parameters.response_epsilon, n_strata)
