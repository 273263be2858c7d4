"""What a release would tell if it were made again and again: for whoever plans an experiment.

A made-up population, for which the outcome of every unit in every arm is laid down, is randomised
and released many times at once, by the very functions that a release calls (the mechanism's counts,
sums and randomised response, the estimators of the product), so that a simulation cannot be kinder
than the product. :func:`simulate` does it all and says how estimates are spread, how often
intervals cover and effects are found; :class:`Trial` and :class:`Releases` are its parts.

Nobody's data is here. Assignments come from the caller's generator; the noise of privacy from the
operating system as always, so two simulations agree up to chance only. Outcomes are random in
neither: like the theory (:mod:`estimators.theory`) this speaks of a finite population.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from estimators.contrast_strata import comparable
from estimators.effects import Contrasts, EstimatorName, contrasts
from estimators.evidence import Evidence, Pools, Slices
from estimators.intervals import Interval, t_interval
from estimators.pool_statistics import (
    Weights,
    declared_weights,
    square_weight,
)
from privatizers.domain.outcome_grid import stochastic_levels, stratum_counts
from privatizers.domain.strata import Strata, lay_out
from privatizers.mechanisms.mechanism import Mechanism, StrataRelease
from privatizers.mechanisms.noisy_squares import ReleasedSquares
from privatizers.simulation.pools import (
    Cells,
    Places,
    noise_of,
    pools_of,
    slices_of,
    without_privacy,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

UNITS_AT_A_TIME = 200_000
"""Units of all releases together that :func:`simulate` holds in memory."""

# a population, and many releases of it


@dataclass(frozen=True)
class Trial:
    """A population that can be randomised and released many times over.

    Units are numbered cluster by cluster. Raises ValueError for shapes that do not fit together
    and for levels that there are not.
    """

    grid: Floats
    """The outcomes that are released, increasing, in their own unit; shape [K]."""
    sizes: Ints
    """Units by cluster and arm, control first; shape [C, A]."""
    levels: Ints
    """The level that every unit would have in each arm; shape [A, n], cluster by cluster."""
    mechanism: Mechanism
    min_stratum: int = 0
    """Clusters with a smaller arm share a pool."""
    guess: Floats | None = None
    """The declared guess that weights are made of, shape [K]; None for the uniform one."""
    support: Floats | None = None
    """What levels are positions on, shape [V], where it is not the grid: every release then rounds
    outcomes to the grid at random, keeping their means; they have to lie within it."""

    def __post_init__(self) -> None:
        """Refuse what does not fit together."""
        k = self.mechanism.parameters.n_outcomes
        n_arms, n = self.sizes.shape[-1], int(self.sizes.sum())
        uses = self.grid if self.support is None else self.support
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
            f"levels are positions from 0 to {len(uses) - 1}": (
                np.min(self.levels, initial=0) >= 0 and np.max(self.levels, initial=0) < len(uses)
            ),
            "outcomes lie outside the grid: clip them": (
                np.min(uses) >= self.grid[0] and np.max(uses) <= self.grid[-1]
            ),
            f"guess has not the shape [{k}]": self.guess is None or self.guess.shape == (k,),
        }
        for rule, holds in rules.items():
            if not holds:
                raise ValueError(rule)

    @classmethod
    def of_guess(
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
            msg = f"effects have the shape {effects.shape}, not [arms − 1] = {(n_arms - 1,)}"
            raise ValueError(msg)
        if shares.shape not in ((len(grid),), (n_clusters, len(grid))):
            msg = f"shares have the shape {shares.shape}, not [K] or [clusters, K] on the grid"
            raise ValueError(msg)
        if not np.allclose(shares.sum(axis=-1), 1.0, atol=1e-9) or np.any(shares < 0):
            msg = "shares have to be at least 0 and to add up to one, in every cluster"
            raise ValueError(msg)
        of_cluster = np.broadcast_to(shares, (n_clusters, len(grid)))
        control = grid[_drawn(of_cluster, sizes.sum(axis=1), generator)]
        moved = control + np.concatenate([[0.0], effects])[:, np.newaxis]
        support, levels = np.unique(np.clip(moved, grid[0], grid[-1]), return_inverse=True)
        found = levels.reshape(moved.shape)
        return cls(grid, sizes, found, mechanism, min_stratum, support=support)

    @property
    def values(self) -> Floats:
        """What levels are positions on."""
        return self.grid if self.support is None else self.support

    @cached_property
    def cluster(self) -> Ints:
        """Cluster of every unit, shape [n]."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes.sum(axis=1))

    def truth(self, arm: int = 1, inside: Mask | None = None) -> float:
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
    def weights(self) -> Weights:
        """By the declared guess, as a release has them; 0 where nothing is published of pools."""
        n, k = self.strata.cell_sizes.astype(np.float64), len(self.grid)
        noise = noise_of(self.mechanism, self.grid)
        if noise is None:
            return Weights(np.zeros(len(n)), np.zeros(len(n)))
        guess = np.full(k, 1 / k) if self.guess is None else self.guess
        prior = self.mechanism.expected_prior(guess)
        parameters = self.mechanism.parameters
        rate, squares = parameters.resampling_probability, parameters.squares
        found = declared_weights(self.grid, guess, prior, rate, noise, n)
        if squares is None:
            return found
        _, arm = np.nonzero(self.strata.cell_of >= 0)
        of_arms = np.bincount(arm, n).astype(np.float64)[arm]
        variance = squares.variance(self.grid.tolist())
        of_square = square_weight(self.grid, guess, prior, rate, variance, of_arms)
        return replace(found, of_square=of_square)

    def assign(self, n_releases: int, generator: Generator) -> Ints:
        """Arms, shape [releases, n]: completely randomised within each cluster."""
        n_clusters, n_arms = self.sizes.shape
        in_order = np.repeat(np.tile(np.arange(n_arms), n_clusters), self.sizes.ravel())
        order = (generator.random((n_releases, len(self.cluster))) + self.cluster).argsort(axis=1)
        arms = np.empty(order.shape, dtype=np.int64)
        np.put_along_axis(arms, order, np.broadcast_to(in_order, order.shape), axis=1)
        return arms

    def release(self, arm: Ints, levels: Ints | None = None) -> "Releases":
        """Release under every assignment at once, by the product's functions.

        ``arm`` has the shape [releases, n] (:meth:`assign`). Each has pools of its own, so no
        release meets another's; each is a group of the evidence. ``levels`` of the shape of ``arm``
        are outcomes made up anew for each, in place of the trial's.
        """
        strata, n_releases = self.strata, len(arm)
        n_cells, nth = len(strata.cell_sizes), np.arange(n_releases)[:, np.newaxis]
        own = self.levels[arm, np.arange(arm.shape[1])] if levels is None else levels
        outcomes = levels = own.ravel()
        if self.support is not None:
            levels = stochastic_levels(self.support[outcomes], self.grid)
        cell = strata.cells(np.broadcast_to(self.cluster, arm.shape), arm)
        cells = (nth * n_cells + cell).ravel()
        counts = stratum_counts(levels, cells, n_releases * n_cells, len(self.grid))
        drawn = self.mechanism.strata(counts)
        randomised = drawn.response.draw(levels, cells)
        shared = np.bincount(strata.pool_of, minlength=len(strata.pools))
        pool, cell_arm = np.nonzero(strata.cell_of >= 0)
        arms = (nth * len(strata.arms) + cell_arm).ravel()
        every = Cells(
            np.tile(strata.cell_sizes.astype(np.float64), n_releases),
            (nth * len(strata.pools) + pool).ravel(),
            np.tile(shared[pool], n_releases),
            arms,
        )
        squares = self._squares(counts, arms, n_releases * len(strata.arms))
        of_one = self.weights
        weights = Weights(*(np.tile(w, n_releases) for w in (of_one.of_mean, of_one.of_square)))
        places = Places(
            np.broadcast_to(nth, arm.shape).ravel(),
            np.broadcast_to(self.cluster, arm.shape).ravel(),
            arm.ravel(),
            cells,
        )
        pools = pools_of(self.mechanism, drawn, self.grid, every, weights, squares)
        return Releases(self, places, outcomes, randomised, pools, drawn)

    def _squares(self, counts: Ints, arm: Ints, n_arms: int) -> ReleasedSquares | None:
        """Of the arms of all releases, from the ``counts`` of their cells; shape [n_arms]."""
        squares = self.mechanism.parameters.squares
        if squares is None:
            return None
        of_arms = np.zeros((n_arms, counts.shape[1]), dtype=np.int64)
        np.add.at(of_arms, arm, counts)
        return squares.released(squares.noised(of_arms), of_arms.sum(axis=1), self.grid.tolist())


def _drawn(shares: Floats, n_units: Ints, generator: Generator) -> Ints:
    """Levels of units, cluster by cluster, from ``shares`` of shape [C, K]."""
    n_clusters, k = shares.shape
    cluster = np.repeat(np.arange(n_clusters), n_units)
    ends = np.cumsum(shares, axis=1)[:, :-1] + np.arange(n_clusters)[:, np.newaxis]
    place = np.searchsorted(ends.ravel(), cluster + generator.random(len(cluster)), side="right")
    levels: Ints = np.clip(place - cluster * (k - 1), 0, k - 1)
    return levels


@dataclass(frozen=True)
class Releases:
    """Many releases of a trial, drawn; units of all of them in one row."""

    trial: Trial
    places: Places
    levels: Ints
    """Positions on the trial's values before privacy (and rounding), shape [releases · n]."""
    randomised: Ints
    """Positions on the grid, as released."""
    pools: Pools
    drawn: StrataRelease

    @property
    def n_releases(self) -> int:
        """How many they are."""
        return len(self.levels) // len(self.trial.cluster)

    def slices(self, levels: Ints, inside: Mask | None = None) -> Slices:
        """Of units with these ``levels`` on the grid: of all, or of those ``inside`` [n] in each.

        Raises ValueError for an ``inside`` of another shape.
        """
        return self._slices(self.trial.grid, levels, inside)

    def _slices(self, values: Floats, levels: Ints, inside: Mask | None) -> Slices:
        steps = (values - self.trial.grid.mean())[levels]
        if inside is None:
            return slices_of(steps, self.places)
        if inside.shape != self.trial.cluster.shape:
            msg = f"inside has the shape {inside.shape}, not [units] = {self.trial.cluster.shape}"
            raise ValueError(msg)
        at = np.flatnonzero(np.tile(inside, self.n_releases))
        return slices_of(steps[at], self.places.take(at))

    def evidence(self, inside: Mask | None = None, rate: float | None = None) -> Evidence:
        """What an analyst has of them; another ``rate`` is an error made on purpose."""
        everyone = self.slices(self.randomised)
        own = everyone if inside is None else self.slices(self.randomised, inside)
        true_rate = self.trial.mechanism.parameters.resampling_probability
        return Evidence.of(own, everyone, self.pools, rate or true_rate, self.trial.grid)

    def of_pools(self, evidence: Evidence, *, same_shares: bool) -> Evidence:
        """Return the evidence on whole pools, for the histogram, as a release has it.

        That is ``evidence`` on everybody with :meth:`~estimators.evidence.Evidence.by_pool` in
        every release: pools of several clusters are left out unless arm shares are the same in all.
        """
        pool_of = self.trial.strata.pool_of
        own = replace(self.places, cluster=pool_of[self.places.cluster])
        slices = replace(self, places=own).slices(self.randomised)
        every = Evidence.of(slices, evidence.slices, self.pools, evidence.rate, self.trial.grid)
        alone = self.pools.n_clusters[slices.pool] == 1
        kept = np.flatnonzero(alone | same_shares)
        mean, square = every.mean.take(kept), every.square.take(kept)
        return replace(every, slices=slices.take(kept), mean=mean, square=square)

    def unprotected(self, inside: Mask | None = None) -> Evidence:
        """Without privacy: the same assignments, outcomes as they are."""
        own = self._slices(self.trial.values, self.levels, inside)
        return without_privacy(own, self.trial.grid)

    @property
    def plain(self) -> Evidence:
        """Everybody without privacy."""
        return self.unprotected()


# what they say


@dataclass(frozen=True)
class Answers:
    """What many releases say of one effect; all arrays have the shape [releases].

    NaN where a release has nothing to compare. Numbers are in the unit of outcomes, or its square.
    """

    estimator: EstimatorName
    arm: int
    """Position of the treatment arm; control is 0."""
    truth: float
    """The effect on the units that estimates speak of, in the population that was made up."""
    level: float
    """Confidence level of the intervals."""
    estimate: Floats
    variance: Floats
    """As every release states it."""
    degrees_of_freedom: Floats
    unprotected: Floats
    """The estimate that the same assignment gives without privacy."""

    @property
    def mean(self) -> float:
        """Of the estimates."""
        return float(self.estimate.mean())

    @property
    def std_dev(self) -> float:
        """Of the estimates: their true standard error, over assignments and noise."""
        return float(self.estimate.std(ddof=1))

    @property
    def mean_error(self) -> float:
        """Standard error of :attr:`mean`, which comes from the number of releases."""
        return self.std_dev / float(np.sqrt(len(self.estimate)))

    @property
    def mean_squared_error(self) -> float:
        """About the truth."""
        return float(np.mean((self.estimate - self.truth) ** 2))

    @property
    def privacy_variance(self) -> float:
        """Mean squared difference that privacy makes to the estimate."""
        return float(np.mean((self.estimate - self.unprotected) ** 2))

    @property
    def stated_variance(self) -> float:
        """Mean of the variances that releases state; to be held against ``std_dev`` squared."""
        return float(self.variance.mean())

    @property
    def interval(self) -> Interval:
        """Interval and p-value of every release."""
        return t_interval(self.estimate, self.variance, self.degrees_of_freedom, self.level)

    @property
    def coverage(self) -> float:
        """Share of releases whose interval holds the truth; one without an interval does not."""
        found = self.interval
        return float(np.mean((found.lower <= self.truth) & (self.truth <= found.upper)))

    @property
    def power(self) -> float:
        """Share of releases whose interval leaves out 0: where the truth is 0, false alarms."""
        found = self.interval
        return float(np.mean((found.lower > 0) | (found.upper < 0)))


@dataclass(frozen=True)
class Simulation:
    """What many releases say of every effect, by every estimator that they allow."""

    n_releases: int
    answers: tuple[Answers, ...]
    """In the order of estimators, then arms."""

    def of(self, estimator: EstimatorName, arm: int = 1) -> Answers:
        """Return one of the answers; raises ValueError where there is none."""
        for one in self.answers:
            if (one.estimator, one.arm) == (estimator, arm):
                return one
        msg = f"no {estimator} of arm {arm}: nothing is published for it, or nothing comparable"
        raise ValueError(msg)


def simulate(
    trial: Trial,
    n_releases: int,
    generator: Generator,
    *,
    inside: Mask | None = None,
    same_shares: bool = False,
    level: float = 0.95,
) -> Simulation:
    """Randomise and release ``trial`` anew ``n_releases`` times, and estimate from each.

    ``generator`` draws the assignments (complete within clusters), and nothing else. ``inside``,
    shape [n], is a segment to estimate in, which has no histogram; ``same_shares`` says that arm
    shares are meant to be the same in all clusters. Effects are those of
    :func:`estimators.effects.effects`, interval for interval. Where clusters cannot be compared the
    truth is that of the others. Raises ValueError for shapes that do not fit and fewer than two
    releases.
    """
    if n_releases < 2:
        msg = f"n_releases = {n_releases}: a spread takes two"
        raise ValueError(msg)
    at_a_time = max(1, UNITS_AT_A_TIME // max(len(trial.cluster), 1))
    parts: dict[tuple[EstimatorName, int], list[_Part]] = {}
    for start in range(0, n_releases, at_a_time):
        arms = trial.assign(min(at_a_time, n_releases - start), generator)
        found = _answered(trial.release(arms), inside, same_shares=same_shares)
        for key, part in found.items():
            parts.setdefault(key, []).append(part)
    answers = tuple(_joined(key, ones, level) for key, ones in parts.items())
    return Simulation(n_releases, answers)


@dataclass(frozen=True)
class _Part:
    """Answers of some releases."""

    private: Contrasts
    plain: Contrasts
    truth: float


def _joined(key: tuple[EstimatorName, int], parts: list[_Part], level: float) -> Answers:
    estimator, arm = key
    estimate, variance, degrees = (
        np.concatenate([getattr(one.private, name) for one in parts])
        for name in ("estimate", "variance", "degrees_of_freedom")
    )
    plain = np.concatenate([one.plain.estimate for one in parts])
    return Answers(
        estimator, arm, parts[0].truth, level, estimate, variance, degrees, unprotected=plain
    )


def _answered(
    releases: Releases, inside: Mask | None, *, same_shares: bool
) -> dict[tuple[EstimatorName, int], _Part]:
    evidence, plain = releases.evidence(inside), releases.unprotected(inside)
    names: list[EstimatorName] = ["tau_q"]
    if evidence.has_statistic:
        names += ["histogram", "combined"] if inside is None else ["combined"]
    found: dict[tuple[EstimatorName, int], _Part] = {}
    for name in names:
        pooled = name == "histogram"
        used = releases.of_pools(evidence, same_shares=same_shares) if pooled else evidence
        for arm in range(1, releases.trial.sizes.shape[1]):
            covered = _covered(releases, used, arm, pooled=pooled, same_shares=same_shares)
            if not covered.any():
                continue
            speaks_of = covered if inside is None else covered & inside
            own, other = (
                contrasts(one, by, arm, 0, releases.n_releases, same_shares=same_shares)
                for one, by in ((used, name), (_of(plain, releases, covered), "tau_q"))
            )
            found[name, arm] = _Part(own, other, releases.trial.truth(arm, speaks_of))
    return found


def _of(evidence: Evidence, releases: Releases, covered: Mask) -> Evidence:
    """Of the clusters with covered units alone."""
    cluster = releases.trial.cluster[covered]
    kept = np.flatnonzero(np.isin(evidence.slices.cluster, cluster))
    mean, square = evidence.mean.take(kept), evidence.square.take(kept)
    return replace(evidence, slices=evidence.slices.take(kept), mean=mean, square=square)


def _covered(
    releases: Releases, evidence: Evidence, arm: int, *, pooled: bool, same_shares: bool
) -> Mask:
    """Units of the clusters that can be compared in the first release, shape [n]."""
    first = evidence.slices.take(evidence.slices.group == 0)
    strata = comparable(first, arm, 0, same_shares=same_shares)
    found = first.cluster[np.concatenate([strata.treated.rows, strata.control.rows])]
    cluster = releases.trial.cluster
    return np.isin(releases.trial.strata.pool_of[cluster] if pooled else cluster, found)
