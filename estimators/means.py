"""The mean of every arm by itself, control included, from the same machinery as effects."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from estimators.contrast_strata import comparable
from estimators.effects import EstimatorName, arm_means, estimators_of
from estimators.evidence import Evidence, sum_by


@dataclass(frozen=True)
class Mean:
    """An arm's mean outcome as it is published."""

    metric: str
    arm: str
    estimator: EstimatorName
    mean: float
    std_error: float


def means(evidence: Evidence, arms: Sequence[str], *, same_shares: bool) -> list[Mean]:
    """Estimate the mean outcome of every one of ``arms``, by every estimator that effects have.

    θ̂ = Σ_s b_s θ̂_s, where s are the strata of :func:`estimators.contrast_strata.comparable` in
    which the arm can be compared with itself: every cluster that holds two of its units, and with
    ``same_shares`` all others as one. b_s is the stratum's share of the units in them, all arms
    counted. θ̂_s and the standard error are those of :func:`estimators.effects.contrasts`, so that
    two means differ by the effect where both arms have the same strata; but merged clusters are not
    compared by twos, as how they differ is part of what a mean is uncertain by. In the order of
    estimators, then ``arms``; an arm without a stratum has no row. ``evidence`` is of the whole.
    """
    found: list[Mean] = []
    for name in estimators_of(evidence, whole=True):
        used = evidence.by_pool(same_shares=same_shares) if name == "histogram" else evidence
        for code, arm in enumerate(arms):
            strata = comparable(used.slices, code, code, same_shares=same_shares)
            if not len(strata.weight):
                continue
            total = sum_by(strata.group, strata.weight, 1)
            one, _ = arm_means(used, name, strata, total, by_pairs=False)
            mean, variance = float(one.mean[0]), float(one.variance[0])
            found.append(Mean(evidence.metric, arm, name, mean + evidence.center, sqrt(variance)))
    return found
