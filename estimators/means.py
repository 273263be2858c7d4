"""The mean outcome of every arm: as it is published, and as effects are made of it.

Source of the debiased mean: Javanmard, Mirrokni and Pouget-Abadie (2025), §3.2. The rest is ours;
see docs/method.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final, Literal

import numpy as np

from estimators.strata.arm_means import ArmMean, OutcomeSide, means_of_sides
from estimators.strata.contrast_strata import ArmSlices, ContrastStrata, contrast_strata
from estimators.strata.evidence import Evidence, sum_by
from estimators.strata.shares import Shares
from schemas.arrays import Floats

EstimatorName = Literal["tau_q", "histogram", "combined"]

SHARPEST_FIRST: Final = (
    "regression_combined",
    "regression",
    "cuped",
    "combined",
    "tau_q",
    "histogram",
    "horvitz_thompson",
)
"""The order of estimators wherever they stand: in files, JSON, frames, SQL and on pages."""


@dataclass(frozen=True)
class Mean:
    """An arm's mean outcome as it is published."""

    metric: str
    arm: str
    estimator: EstimatorName
    mean: float
    std_error: float
    """NaN where the arm was assigned as one, so that nothing tells how far it may be off."""


def means(evidence: Evidence, arms: Sequence[str], *, same_shares: bool) -> list[Mean]:
    """Estimate the mean outcome of each of ``arms``, by every estimator that effects have.

    θ̂ = Σ_s b_s θ̂_s, where s are the strata of
    :func:`estimators.strata.contrast_strata.contrast_strata` between the arm and itself: every
    cluster that has two of its units, and with ``same_shares`` small ones merged into one. b_s is
    the stratum's share of the units in these strata, all arms counted. θ̂_s and the standard error
    are those of :func:`estimators.arm_effects.contrasts`, so the difference of two means is the
    effect where both arms have the same strata. But merged clusters are not compared in pairs, as
    the differences between them are part of a mean's uncertainty. In the order of estimators, then
    ``arms``; an arm without a stratum has no row. ``evidence`` is of the whole.
    """
    results: list[Mean] = []
    for name in estimators_of(evidence, whole=True):
        given = evidence.by_pool(same_shares=same_shares) if name == "histogram" else evidence
        for code, arm in enumerate(arms):
            found = given.known_means.get((name, code, same_shares))
            found = found or _mean(given, name, code, same_shares=same_shares)
            if found is not None:
                mean, variance = found
                center, error = evidence.center, sqrt(variance)
                results.append(Mean(evidence.metric, arm, name, mean + center, error))
    return results


def _mean(
    evidence: Evidence, name: EstimatorName, arm: int, *, same_shares: bool
) -> tuple[float, float] | None:
    """As :func:`of_whole`; None without a stratum."""
    strata = contrast_strata(evidence.slices, arm, arm, same_shares=same_shares)
    if not len(strata.weight):
        return None
    total = sum_by(strata.group, strata.weight, 1)
    side = outcome_side(evidence, name, strata, strata.treated, total)
    (found,) = means_of_sides(
        strata, (side,), evidence.parties, neyman=name == "tau_q", by_pairs=False
    )
    return of_whole(found)


def of_whole(found: ArmMean) -> tuple[float, float]:
    """The mean of an arm in the only group, from the grid's mean, and its variance."""
    return float(found.mean[0]), float(np.maximum(found.variance, found.noise)[0])


def estimators_of(evidence: Evidence, *, whole: bool) -> list[EstimatorName]:
    """Return the estimators that there are, for the whole or for segments."""
    names: list[EstimatorName] = ["tau_q"] if evidence.has_units else []
    names += ["histogram"] if evidence.has_statistic and whole else []
    names += ["combined"] if evidence.has_combined else []
    return sorted(names, key=SHARPEST_FIRST.index)


def arm_means(
    evidence: Evidence,
    estimator: EstimatorName,
    strata: ContrastStrata,
    total: Floats,
    *,
    by_pairs: bool,
) -> tuple[ArmMean, ArmMean]:
    """Return the treated arm's mean and the control's in every group.

    Formulas are those of :func:`estimators.arm_effects.contrasts`.

    ``total`` has the number of units in the ``strata`` of every group, shape [G]. ``by_pairs`` says
    whether merged clusters are compared in pairs.
    """
    sides = [
        outcome_side(evidence, estimator, strata, rows, total)
        for rows in (strata.treated, strata.control)
    ]
    treated, control = means_of_sides(
        strata, sides, evidence.parties, neyman=estimator == "tau_q", by_pairs=by_pairs
    )
    return treated, control


def outcome_side(
    evidence: Evidence,
    estimator: EstimatorName,
    strata: ContrastStrata,
    rows: ArmSlices,
    total: Floats,
) -> OutcomeSide:
    """Return the slices of an arm as the estimator counts them: by :class:`Shares`, and statistics.

    ``combined`` alone counts strata partly by the arm's own units; arguments as above.
    """
    shares, by_all = Shares.by_everyone(strata, total), estimator == "combined"
    if by_all:
        shares = Shares.of(strata, rows, evidence.slices.n_units, total)
    weight = pool_weights(evidence, estimator)
    return OutcomeSide(evidence, rows, strata, shares, len(total), weight, by_margins=by_all)


def pool_weights(evidence: Evidence, estimator: EstimatorName) -> Floats:
    """Return the weights of the pools' statistics in an estimator, shape [P]."""
    weight = evidence.pools.of_mean.weight
    if estimator == "combined":
        return weight
    return np.ones_like(weight) if estimator == "histogram" else np.zeros_like(weight)
