"""Effects between treatment arms: each against every other, not only against control."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from operator import itemgetter

import numpy as np

from estimators.arm_effects import Contrasts, Estimate, contrasts, to_estimates
from estimators.intervals import holm
from estimators.means import EstimatorName, estimators_of
from estimators.ratios import RatioEvidence, ratio_contrasts
from estimators.strata.evidence import Evidence


def effects_between(
    evidence: Evidence,
    arms: Sequence[str],
    control: str,
    *,
    same_shares: bool,
    level: float = 0.95,
) -> list[Estimate]:
    """Estimate the effect of every treatment arm against every treatment arm before it.

    τ̂_ba = Σ_s b_s (θ̂_sb − θ̂_sa), which is the contrast of :func:`estimators.arm_effects.contrasts`
    with a in control's place, over the strata that have two units of *both*. So the control's mean,
    which τ̂_b and τ̂_a share, is not in it, and neither is its error: the difference of two effects
    against control, their errors taken for independent, would have that error twice.

    ``arms`` are the names of the codes in ``evidence``, ``control`` is one of them. The estimates
    are by the sharpest estimator there is (``combined`` where it is); a is their ``control``. In
    the order of b, then a, as in ``arms``. A pair that cannot be compared has no row, and with
    fewer than two treatments there is none. p-values after Holm allow for all the pairs.
    """
    if sum(arm != control for arm in arms) < 2:
        return []
    name = estimators_of(evidence, whole=True)[0]
    given = evidence.by_pool(same_shares=same_shares) if name == "histogram" else evidence
    contrast = partial(contrasts, given, name, n_groups=1, same_shares=same_shares)
    return _of_pairs(evidence, name, contrast, arms, control, level)


def ratios_between(
    evidence: RatioEvidence,
    arms: Sequence[str],
    control: str,
    *,
    same_shares: bool,
    level: float = 0.95,
) -> list[Estimate]:
    """Estimate how every treatment arm's ratio differs from that of each treatment before it.

    As :func:`effects_between`, by :func:`estimators.ratios.ratio_contrasts`; a pair with a
    denominator that is not told from zero has no row.
    """
    if sum(arm != control for arm in arms) < 2 or not evidence.estimators:
        return []
    name = evidence.estimators[0]
    contrast = partial(
        ratio_contrasts, evidence, name, n_groups=1, same_shares=same_shares, level=level
    )
    meant = replace(evidence.numerator, metric=evidence.metric)
    return _of_pairs(meant, name, contrast, arms, control, level)


def _of_pairs(
    evidence: Evidence,
    name: EstimatorName,
    contrast: Callable[[int, int], Contrasts],
    arms: Sequence[str],
    control: str,
    level: float,
) -> list[Estimate]:
    """The contrast of every pair of treatments, with p-values that allow for all of them."""
    places = [place for place, arm in enumerate(arms) if arm != control]
    found: list[Estimate] = []
    for first, second in sorted(combinations(places, 2), key=itemgetter(1, 0)):
        one = contrast(second, first)
        if one.n_units[0] > 0:
            compared = [arms[second]]
            found += to_estimates(evidence, [one], compared, arms[first], [None], name, level)
    p_values = np.array([one.p_value for one in found], dtype=np.float64)
    adjusted = holm(p_values, np.ones(len(found), dtype=np.bool_))
    return [
        replace(one, p_value_holm=None if one.p_value is None else float(p))
        for one, p in zip(found, adjusted, strict=True)
        if one.estimate is not None
    ]
