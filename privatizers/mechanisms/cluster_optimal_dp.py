"""Cluster-Optimal-DP: the least noisy unbiased randomiser, for a guess learnt from the strata.

A response table of the optimal randomiser (`optimal_response.md`) in place of randomised response:
for the public guess where no counts are published, else for what the noisy counts say, stratum by
stratum (`cluster_optimal_dp.md` has the proof). Guarantee, for counts and outcomes published
together: ε = 2/σ + ε₂, δ = 0 (1/σ for K = 2), ε₂ being what every table keeps. Noisy counts of
whole arms, which have noise of their own, cost another 2/σ_a.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from estimators.response.pool_statistics import ResponseNoise, StrataNoise
from privatizers.mechanisms.mechanism import OwnPools
from privatizers.mechanisms.parameters import OptimalParameters
from privatizers.optimal_response.learnt_guess import (
    GroupCounts,
    learnt_response,
    public_response,
    published_response,
)
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
    noisy_arms: Ints | None = None
    """Ñ of whole arms, with noise of their own, shape [A, K]; None where none are published."""


@dataclass(frozen=True)
class ClusterOptimalDP(OwnPools):
    """A table per pool and arm, a pool being one cluster (small clusters share one)."""

    name: ClassVar[str] = "cluster-optimal-dp"
    parameters: OptimalParameters

    def response_noise(self, guess: Floats) -> ResponseNoise:
        """Return the noise of a unit by the public guess's table, never by a learnt one.

        Weights are made of it, and a learnt table is a function of the counts that they weigh.
        Outcomes are spread like ``guess``, shape [K].
        """
        response = self._public(1)
        functions, occurs = response.functions, self._occurrences(guess) @ response.probabilities[0]
        return ResponseNoise(
            of_mean=float(occurs @ functions.noise[0]),
            of_square=float(occurs @ functions.square_noise[0]),
        )

    def noise_within(self, guesses: Floats, truths: Floats, n_units: Ints) -> StrataNoise:
        """Return the same in every stratum, by tables for ``guesses`` that were published.

        Outcomes of a stratum are spread like its row of ``truths``, [S, K]; ``guesses`` and
        ``n_units`` are as in :meth:`response`.
        """
        response = self._published(guesses, n_units)
        of_mean, of_square = (
            np.einsum("tkj,tj->tk", response.probabilities, noise)[response.table_of]
            for noise in (response.functions.noise, response.functions.square_noise)
        )
        return StrataNoise((truths * of_mean).sum(axis=1), (truths * of_square).sum(axis=1))

    @property
    def has_published_tables(self) -> bool:
        """Whether strata may have tables by guesses of their own that were published before."""
        parameters = self.parameters
        counted = parameters.counts is not None or parameters.arm_counts is not None
        return not (parameters.learns and counted)

    def _occurrences(self, guess: Floats) -> Floats:
        """How often each row of a table is drawn from where outcomes are spread like ``guess``."""
        return guess

    @property
    def noise_by_guess(self) -> float:
        """The noise of a unit's debiased outcome where outcomes are spread like the guess."""
        return self.response_noise(np.array(self.parameters.guess)).of_mean

    def strata(
        self, counts: Ints, group: Ints | None = None, guesses: Floats | None = None
    ) -> OptimalRelease:
        """Add noise to the counts, and choose tables by noisy counts and published guesses alone.

        ``group`` has the arm of each stratum, shape [S]; None where all are of one. Counts of arms
        are those of all their strata, so none of a release may be missing.
        """
        parameters = self.parameters
        arm = np.zeros(len(counts), dtype=np.int64) if group is None else group
        noisy = None if parameters.counts is None else parameters.counts.noised(counts)
        sums = None if parameters.sums is None else parameters.sums.noised(counts)
        arms = None
        if parameters.arm_counts is not None:
            of_arms = np.zeros((int(arm.max()) + 1, counts.shape[1]), dtype=np.int64)
            np.add.at(of_arms, arm, counts)
            arms = parameters.arm_counts.noised(of_arms)
        response = self.response(noisy, counts.sum(axis=1), arm, arms, guesses)
        return OptimalRelease(noisy, response, sums, arms)

    def response(
        self,
        noisy_counts: Ints | None,
        n_units: Ints,
        group: Ints | None = None,
        noisy_arms: Ints | None = None,
        guesses: Floats | None = None,
    ) -> OptimalResponse:
        """Return the tables of strata with these noisy counts, and public sizes.

        ``noisy_counts`` of strata have the shape [S, K], ``n_units`` and ``group`` [S],
        ``noisy_arms``, counts of whole arms, [A, K], and ``guesses`` of strata that earlier
        releases have taught, [S, K]: tables follow these where nothing is learnt from counts.

        Raises:
            ValueError: Counts of arms are published and not given, or the other way round.
        """
        parameters = self.parameters
        if (noisy_arms is None) != (parameters.arm_counts is None):
            raise ValueError("tables are made of counts of arms where these are published")
        learns_nothing = noisy_counts is None and noisy_arms is None
        if learns_nothing or not parameters.learns:
            if guesses is not None and self.has_published_tables:
                return self._published(guesses, n_units)
            return self._public(len(n_units))
        return learnt_response(
            np.array(parameters.grid),
            np.array(parameters.guess),
            parameters.response_epsilon,
            noisy_counts,
            n_units,
            0.0 if noisy_counts is None else parameters.statistic_epsilon,
            np.zeros(len(n_units), dtype=np.int64) if group is None else group,
            None if noisy_arms is None else GroupCounts(noisy_arms, parameters.arm_counts_epsilon),
        )

    def _published(self, guesses: Floats, n_units: Ints) -> OptimalResponse:
        parameters = self.parameters
        grid, guess = np.array(parameters.grid), np.array(parameters.guess)
        return published_response(grid, guess, guesses, parameters.response_epsilon, n_units)

    def _public(self, n_strata: int) -> OptimalResponse:
        parameters = self.parameters
        grid, guess = np.array(parameters.grid), np.array(parameters.guess)
        return public_response(grid, guess, parameters.response_epsilon, n_strata)
