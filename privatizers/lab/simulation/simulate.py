"""How estimates would turn out if a release were made again and again: for whoever plans one.

A made-up population, for which the outcome of every unit in every arm is laid down, is randomised
and released many times at once, by the very functions that a release calls (the mechanism's counts,
sums and randomised response, the estimators of the product), so a simulation cannot be kinder than
the product. :func:`simulate` does it all, and says how estimates are spread, how often intervals
cover the truth and how often effects are found; :mod:`privatizers.lab.simulation.trial` has its
parts.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from estimators.arm_effects import Contrasts, contrasts
from estimators.intervals import Interval, Law, interval_of
from estimators.means import EstimatorName
from estimators.strata.contrast_strata import contrast_strata
from estimators.strata.evidence import Evidence
from privatizers.lab.simulation.trial import Releases, Trial
from schemas.arrays import Bools, Floats

Batch = tuple[Contrasts, Contrasts, float]
"""Estimates of one effect by some releases, the same without privacy, and the truth."""

UNITS_AT_A_TIME = 200_000
"""Units of all releases together that :func:`simulate` holds in memory."""


@dataclass(frozen=True)
class EstimateSample:
    """Estimates of one effect by many releases; all arrays have the shape [releases].

    NaN where a release has nothing to compare. Numbers are in the unit of outcomes, or its square.
    """

    estimator: EstimatorName
    arm: int
    """Position of the treatment arm; control is 0."""
    truth: float
    """The effect on the units that estimates speak of, in the population that was made up."""
    level: float
    estimate: Floats
    variance: Floats
    """As every release states it."""
    degrees_of_freedom: Floats
    kurtosis: Floats
    unprotected: Floats
    """The estimate that the same assignment gives without privacy."""

    @property
    def mean(self) -> float:
        """Mean of the estimates."""
        return float(self.estimate.mean())

    @property
    def std_dev(self) -> float:
        """Standard deviation of the estimates: their true standard error, noise included."""
        return float(self.estimate.std(ddof=1))

    @property
    def mean_error(self) -> float:
        """Standard error of :attr:`mean`, which comes from the number of releases."""
        return self.std_dev / float(np.sqrt(len(self.estimate)))

    @property
    def interval(self) -> Interval:
        """Interval and p-value of every release."""
        law = Law(self.degrees_of_freedom, self.kurtosis)
        return interval_of(self.estimate, self.variance, law, self.level)

    @property
    def coverage(self) -> float:
        """Share of releases whose interval holds the truth; one without an interval does not."""
        interval = self.interval
        return float(np.mean((interval.lower <= self.truth) & (self.truth <= interval.upper)))

    @property
    def power(self) -> float:
        """Share of releases whose interval leaves out 0: where the truth is 0, false alarms."""
        interval = self.interval
        return float(np.mean((interval.lower > 0) | (interval.upper < 0)))


@dataclass(frozen=True)
class Simulation:
    """Estimates of every effect by many releases, with every estimator that they allow."""

    n_releases: int
    answers: tuple[EstimateSample, ...]

    def of(self, estimator: EstimatorName, arm: int = 1) -> EstimateSample:
        """Return the estimates of one effect.

        Raises:
            ValueError: The releases do not allow this estimator.
        """
        for sample in self.answers:
            if (sample.estimator, sample.arm) == (estimator, arm):
                return sample
        raise ValueError(
            f"no {estimator} of arm {arm}: nothing is published for it, or nothing comparable"
        )


def simulate(
    trial: Trial,
    n_releases: int,
    generator: Generator,
    *,
    inside: Bools | None = None,
    same_shares: bool = False,
    level: float = 0.95,
) -> Simulation:
    """Randomise and release ``trial`` anew ``n_releases`` times, and estimate from each.

    ``generator`` draws the assignments (complete within clusters), and nothing else. ``inside``,
    shape [n], is a segment to estimate in, which has no histogram; ``same_shares`` says that arm
    shares are meant to be the same in all clusters. Effects are those of
    :func:`estimators.arm_effects.effects`, interval for interval. Where clusters cannot be compared
    the truth is that of the others.

    Raises:
        ValueError: Shapes do not fit, or there are fewer than two releases.
    """
    if n_releases < 2:
        raise ValueError(f"n_releases = {n_releases}: a spread takes two")
    at_a_time = max(1, UNITS_AT_A_TIME // max(len(trial.cluster), 1))
    batches: dict[tuple[EstimatorName, int], list[Batch]] = {}
    for start in range(0, n_releases, at_a_time):
        arms = trial.assign(min(at_a_time, n_releases - start), generator)
        batch = _estimate_batch(trial.release(arms), inside, same_shares=same_shares)
        for key, estimates in batch.items():
            batches.setdefault(key, []).append(estimates)
    answers = []
    for (name, arm), parts in batches.items():
        numbers = [
            np.concatenate([getattr(private, number) for private, _, _ in parts])
            for number in ("estimate", "variance", "degrees_of_freedom", "kurtosis")
        ]
        plain, truth = np.concatenate([one.estimate for _, one, _ in parts]), parts[0][2]
        answers.append(EstimateSample(name, arm, truth, level, *[*numbers, plain]))
    return Simulation(n_releases, tuple(answers))


def _estimate_batch(
    releases: Releases, inside: Bools | None, *, same_shares: bool
) -> dict[tuple[EstimatorName, int], Batch]:
    evidence, plain = releases.evidence(inside), releases.unprotected(inside)
    names: list[EstimatorName] = ["tau_q"]
    if evidence.has_statistic:
        names += ["histogram", "combined"] if inside is None else ["combined"]
    estimates: dict[tuple[EstimatorName, int], Batch] = {}
    for name in names:
        pooled = name == "histogram"
        used = releases.of_pools(evidence, same_shares=same_shares) if pooled else evidence
        for arm in range(1, releases.trial.sizes.shape[1]):
            covered = _covered(releases, used, arm, pooled=pooled, same_shares=same_shares)
            if not covered.any():
                continue
            units = covered if inside is None else covered & inside
            private, unprotected = (
                contrasts(given, estimator, arm, 0, releases.n_releases, same_shares=same_shares)
                for given, estimator in ((used, name), (_keep(plain, releases, covered), "tau_q"))
            )
            estimates[name, arm] = private, unprotected, releases.trial.truth(arm, units)
    return estimates


def _keep(evidence: Evidence, releases: Releases, covered: Bools) -> Evidence:
    cluster = releases.trial.cluster[covered]
    kept = np.flatnonzero(np.isin(evidence.slices.cluster, cluster))
    mean, square = evidence.mean.take(kept), evidence.square.take(kept)
    return replace(evidence, slices=evidence.slices.take(kept), mean=mean, square=square)


def _covered(
    releases: Releases, evidence: Evidence, arm: int, *, pooled: bool, same_shares: bool
) -> Bools:
    """Return whether a unit's cluster can be compared in the first release, shape [n]."""
    first = evidence.slices.take(evidence.slices.group == 0)
    strata = contrast_strata(first, arm, 0, same_shares=same_shares)
    compared = first.cluster[np.concatenate([strata.treated.rows, strata.control.rows])]
    cluster = releases.trial.cluster
    return np.isin(releases.trial.strata.pool_of[cluster] if pooled else cluster, compared)
