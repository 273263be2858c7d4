"""A made-up population, and many releases of it at once, by the functions that a release calls.

Nobody's data is here. Assignments come from the caller's generator; the noise of privacy comes from
the operating system as always, so two simulations agree up to chance only. Outcomes are random in
neither: like the theory (:mod:`estimators.theory`) this speaks of a finite population.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.random import Generator

from estimators.response.pool_statistics import (
    ResponseNoise,
    StatisticWeights,
    declared_weights,
    statistic_weight,
)
from estimators.strata.evidence import Evidence, Pools, Slices
from privatizers.domain.outcome_grid import stochastic_levels, stratum_counts
from privatizers.domain.strata import Strata, lay_out
from privatizers.lab.simulation.pools import (
    PoolArms,
    UnitPositions,
    of_chosen,
    pools_of,
    slices_of_levels,
    slices_of_outputs,
    without_privacy,
)
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP, OptimalRelease
from privatizers.mechanisms.mechanism import Mechanism, StrataRelease
from privatizers.mechanisms.paired_optimal_dp import PairedOptimalDP
from privatizers.mechanisms.statistics.noisy_squares import ReleasedSquares
from privatizers.optimal_response.response import joined
from schemas.arrays import Bools, Floats, Ints


@dataclass(frozen=True)
class Trial:
    """A population that can be randomised and released many times over.

    Units are numbered cluster by cluster.

    Raises:
        ValueError: Shapes do not fit together, or a level is not one of those there are.
    """

    grid: Floats
    """The outcomes that are released, increasing, in their own unit; shape [K]."""
    sizes: Ints
    """Units by cluster and arm, control first; shape [C, A]."""
    levels: Ints
    """The level that every unit would have in each arm; shape [A, n], cluster by cluster."""
    mechanism: Mechanism | ClusterOptimalDP
    min_stratum: int = 0
    """Clusters with a smaller arm share a pool."""
    guess: Floats | None = None
    """The declared guess that weights are made of, shape [K]; None for the uniform one."""
    support: Floats | None = None
    """The values that levels are positions on, shape [V]; None for the grid itself.

    With values of its own, every release rounds outcomes to the grid at random, keeping their
    means. The values have to lie within the grid.
    """

    def __post_init__(self) -> None:
        """Refuse shapes and levels that do not fit together."""
        k = self.mechanism.parameters.n_outcomes
        n_arms, n = self.sizes.shape[-1], int(self.sizes.sum())
        values = self.values
        rules = {
            f"grid has the shape {self.grid.shape}, not [{k}], which the mechanism is for": (
                self.grid.shape == (k,)
            ),
            f"sizes have the shape {self.sizes.shape}, not [clusters, arms] with 2 arms at least": (
                self.sizes.ndim == 2 and n_arms >= 2
            ),
            f"levels have the shape {self.levels.shape}, not [arms, units] = {(n_arms, n)}": (
                self.levels.shape == (n_arms, n)
            ),
            f"levels are positions from 0 to {len(values) - 1}": (
                np.min(self.levels, initial=0) >= 0 and np.max(self.levels, initial=0) < len(values)
            ),
            "outcomes lie outside the grid: clip them": (
                np.min(values) >= self.grid[0] and np.max(values) <= self.grid[-1]
            ),
            f"guess has not the shape [{k}]": self.guess is None or self.guess.shape == (k,),
            "the mechanism draws another outcome together with this one": (
                not isinstance(self.mechanism, PairedOptimalDP)
            ),
        }
        for rule, holds in rules.items():
            if not holds:
                raise ValueError(rule)

    @classmethod
    def from_guess(
        cls,
        grid: Floats,
        sizes: Ints,
        mechanism: Mechanism,
        shares: Floats,
        effects: Floats,
        generator: Generator,
        min_stratum: int = 0,
    ) -> "Trial":
        """Make up a population from a guess at outcomes, and effects.

        Outcomes in control are drawn from ``shares`` over ``grid``, shape [K], or [C, K] where
        clusters differ; in treatment arm a they are ``effects[a]`` more (shape [A − 1], in the unit
        of outcomes), clipped to the grid as a release would. :meth:`truth` has the effect that
        clipping leaves. Weights are made of the uniform guess. Raises ValueError as the class does.
        """
        n_clusters, n_arms = sizes.shape
        if effects.shape != (n_arms - 1,):
            raise ValueError(
                f"effects have the shape {effects.shape}, not [arms − 1] = {(n_arms - 1,)}"
            )
        if shares.shape not in ((len(grid),), (n_clusters, len(grid))):
            raise ValueError(
                f"shares have the shape {shares.shape}, not [K] or [clusters, K] on the grid"
            )
        if not np.allclose(shares.sum(axis=-1), 1.0, atol=1e-9) or np.any(shares < 0):
            raise ValueError("shares have to be at least 0 and to add up to one, in every cluster")
        # The levels of units in control, drawn cluster by cluster.
        cluster, first = np.repeat(np.arange(n_clusters), sizes.sum(axis=1)), np.arange(n_clusters)
        ends = np.cumsum(np.broadcast_to(shares, (n_clusters, len(grid))), axis=1)[:, :-1]
        place = cluster + generator.random(len(cluster))
        drawn = np.searchsorted((ends + first[:, np.newaxis]).ravel(), place, side="right")
        control = grid[np.clip(drawn - cluster * (len(grid) - 1), 0, len(grid) - 1)]
        outcomes = control + np.concatenate([[0.0], effects])[:, np.newaxis]
        support, positions = np.unique(np.clip(outcomes, grid[0], grid[-1]), return_inverse=True)
        levels = positions.reshape(outcomes.shape)
        return cls(grid, sizes, levels, mechanism, min_stratum, support=support)

    @property
    def values(self) -> Floats:
        """The values that levels are positions on: :attr:`support`, or the grid; shape [V]."""
        return self.grid if self.support is None else self.support

    @cached_property
    def cluster(self) -> Ints:
        """Cluster of every unit, shape [n]."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes.sum(axis=1))

    def truth(self, arm: int = 1, inside: Bools | None = None) -> float:
        """The effect of ``arm`` on the units ``inside`` (shape [n]), or on all: a mean."""
        effects = self.values[self.levels[arm]] - self.values[self.levels[0]]
        return float(effects[inside].mean() if inside is not None else effects.mean())

    @cached_property
    def strata(self) -> Strata:
        """Pools, strata and their sizes, as the mechanism lays them out."""
        clusters = [f"c{nth:03}" for nth in range(len(self.sizes))]
        arms = [f"a{nth}" for nth in range(self.sizes.shape[1])]
        pool_of = self.mechanism.pool_of(self.sizes, self.min_stratum)
        return lay_out(clusters, arms, self.sizes, pool_of)

    @cached_property
    def weights(self) -> StatisticWeights:
        """Weights of the pools by the declared guess, as in a release; 0 without a statistic."""
        n, k = self.strata.cell_sizes.astype(np.float64), len(self.grid)
        noise = self.mechanism.parameters.noise_on(self.grid)
        if noise is None:
            return StatisticWeights(np.zeros(len(n)), np.zeros(len(n)))
        guess = np.full(k, 1 / k) if self.guess is None else self.guess
        mechanism, squares = self.mechanism, self.mechanism.parameters.squares
        if isinstance(mechanism, ClusterOptimalDP):
            response = mechanism.response_noise(guess)
        else:
            prior, rate = (
                mechanism.expected_prior(guess),
                mechanism.parameters.resampling_probability,
            )
            response = ResponseNoise.of_prior(self.grid, guess, prior, rate)
        weights = declared_weights(self.grid, response, noise, n)
        if squares is None:
            return weights
        _, arm = np.nonzero(self.strata.cell_of >= 0)
        arm_sizes = np.bincount(arm, n).astype(np.float64)[arm]
        variance = squares.variance(self.grid.tolist())
        of_square = statistic_weight(arm_sizes, response.of_square, variance)
        return replace(weights, of_square=of_square)

    def assign(self, n_releases: int, generator: Generator) -> Ints:
        """Draw the arm of every unit, shape [releases, n]: sizes fixed within each cluster."""
        n_clusters, n_arms = self.sizes.shape
        in_order = np.repeat(np.tile(np.arange(n_arms), n_clusters), self.sizes.ravel())
        order = (generator.random((n_releases, len(self.cluster))) + self.cluster).argsort(axis=1)
        arms = np.empty(order.shape, dtype=np.int64)
        np.put_along_axis(arms, order, np.broadcast_to(in_order, order.shape), axis=1)
        return arms

    def release(self, arm: Ints, levels: Ints | None = None) -> "Releases":
        """Release under every assignment at once, by the product's functions.

        ``arm`` has the shape [releases, n] (:meth:`assign`). Each release has pools of its own, so
        that none shares a pool with another; each is a group of the evidence. ``levels``, of the
        shape of ``arm``, are outcomes made up anew for each release, in place of the trial's.
        """
        strata, n_releases = self.strata, len(arm)
        n_cells, nth = len(strata.cell_sizes), np.arange(n_releases)[:, np.newaxis]
        true = self.levels[arm, np.arange(arm.shape[1])] if levels is None else levels
        outcomes = levels = true.ravel()
        if self.support is not None:
            levels = stochastic_levels(self.support[outcomes], self.grid)
        cell = strata.cells(np.broadcast_to(self.cluster, arm.shape), arm)
        cells = (nth * n_cells + cell).ravel()
        counts = stratum_counts(levels, cells, n_releases * n_cells, len(self.grid))
        pool, cell_arm = np.nonzero(strata.cell_of >= 0)
        arms = (nth * len(strata.arms) + cell_arm).ravel()
        drawn: StrataRelease | OptimalRelease
        if isinstance(self.mechanism, ClusterOptimalDP):  # no release learns from another
            drawn = _side_by_side(
                self.mechanism.strata(of_release, cell_arm)
                for of_release in counts.reshape(n_releases, n_cells, len(self.grid))
            )
        else:
            drawn = self.mechanism.strata(counts)
        randomised = drawn.response.draw(levels, cells)
        n_clusters = np.bincount(strata.pool_of, minlength=len(strata.pools))
        all_cells = PoolArms(
            np.tile(strata.cell_sizes.astype(np.float64), n_releases),
            (nth * len(strata.pools) + pool).ravel(),
            np.tile(n_clusters[pool], n_releases),
            arms,
        )
        squares = self._squares(counts, arms, n_releases * len(strata.arms))
        weights = StatisticWeights(
            np.tile(self.weights.of_mean, n_releases), np.tile(self.weights.of_square, n_releases)
        )
        positions = UnitPositions(
            np.broadcast_to(nth, arm.shape).ravel(),
            np.broadcast_to(self.cluster, arm.shape).ravel(),
            arm.ravel(),
            cells,
        )
        pools = pools_of(self.mechanism, drawn, self.grid, all_cells, weights, squares)
        return Releases(self, positions, outcomes, randomised, pools, drawn)

    def _squares(self, counts: Ints, arm: Ints, n_arms: int) -> ReleasedSquares | None:
        """Release the arms' sums of squares, from the ``counts`` of their cells; shape [n_arms]."""
        squares = self.mechanism.parameters.squares
        if squares is None:
            return None
        arm_counts = np.zeros((n_arms, counts.shape[1]), dtype=np.int64)
        np.add.at(arm_counts, arm, counts)
        noisy = squares.noised(arm_counts)
        return squares.released(noisy, arm_counts.sum(axis=1), self.grid.tolist())


def _side_by_side(releases: Iterable[OptimalRelease]) -> OptimalRelease:
    """Return releases as one, whose strata are those of the first, then those of the second."""
    found = list(releases)
    counts = [one.noisy_counts for one in found if one.noisy_counts is not None]
    sums = [one.noisy_sums for one in found if one.noisy_sums is not None]
    arms = [one.noisy_arms for one in found if one.noisy_arms is not None]
    return OptimalRelease(
        np.concatenate(counts) if counts else None,
        joined(one.response for one in found),
        np.concatenate(sums) if sums else None,
        np.concatenate(arms) if arms else None,
    )


@dataclass(frozen=True)
class Releases:
    """Many releases of a trial; arrays have the units of all of them, one release after another."""

    trial: Trial
    positions: UnitPositions
    levels: Ints
    """Positions on the trial's values before privacy (and rounding), shape [releases · n]."""
    randomised: Ints
    """Positions on the grid, or outputs of response tables, as released."""
    pools: Pools
    drawn: StrataRelease | OptimalRelease

    @property
    def n_releases(self) -> int:
        """The number of releases."""
        return len(self.levels) // len(self.trial.cluster)

    def slices(
        self, levels: Ints, inside: Bools | None = None, values: Floats | None = None
    ) -> Slices:
        """Return the slices of units that have these ``levels`` of ``values``, or of the grid.

        Only the units ``inside``, shape [n], of each release count; None for all.

        Raises:
            ValueError: ``inside`` has another shape.
        """
        steps = (self.trial.grid if values is None else values) - self.trial.grid.mean()
        own, positions = self._inside(levels, inside)
        return slices_of_levels(own, steps, positions)

    def _inside(self, levels: Ints, inside: Bools | None) -> tuple[Ints, UnitPositions]:
        if inside is None:
            return levels, self.positions
        if inside.shape != self.trial.cluster.shape:
            raise ValueError(
                f"inside has the shape {inside.shape}, not [units] = {self.trial.cluster.shape}"
            )
        return of_chosen(levels, inside), self.positions.inside(inside)

    def evidence(self, inside: Bools | None = None, rate: float | None = None) -> Evidence:
        """What an analyst has of the releases; a ``rate`` other than λ is an error on purpose."""
        segment = self._everyone if inside is None else self._released(inside)
        true_rate = self.trial.mechanism.parameters.resampling_probability or 0.0
        return Evidence.of(segment, self._everyone, self.pools, rate or true_rate, self.trial.grid)

    @cached_property
    def _everyone(self) -> Slices:
        return self._released()

    def _released(self, inside: Bools | None = None) -> Slices:
        if not isinstance(self.drawn, OptimalRelease):
            return self.slices(self.randomised, inside)
        own, positions = self._inside(self.randomised, inside)
        return slices_of_outputs(self.drawn.response, own, positions)

    def of_pools(self, evidence: Evidence, *, same_shares: bool) -> Evidence:
        """Return the evidence on whole pools, for the histogram, as a release has it.

        That is ``evidence`` on everybody with :meth:`~estimators.strata.evidence.Evidence.by_pool`
        in every release: pools of several clusters are left out unless arm shares are the same in
        all.
        """
        pool_of = self.trial.strata.pool_of
        by_pool = replace(self.positions, cluster=pool_of[self.positions.cluster])
        slices = replace(self, positions=by_pool)._released()
        pooled = Evidence.of(slices, evidence.slices, self.pools, evidence.rate, self.trial.grid)
        alone = self.pools.n_clusters[slices.pool] == 1
        kept = np.flatnonzero(alone | same_shares)
        mean, square = pooled.mean.take(kept), pooled.square.take(kept)
        return replace(pooled, slices=slices.take(kept), mean=mean, square=square)

    def unprotected(self, inside: Bools | None = None) -> Evidence:
        """The evidence without privacy: the same assignments, outcomes as they are."""
        slices = self.slices(self.levels, inside, self.trial.values)
        return without_privacy(slices, self.trial.grid)
