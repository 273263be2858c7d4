"""Effects between treatment arms: each against every other, not only against control."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from operator import itemgetter

import numpy as np

from estimators.effects import Estimate, contrasts, to_estimates
from estimators.evidence import Evidence
from estimators.intervals import holm
from estimators.means import estimators_of


def effects_between(
    evidence: Evidence,
    arms: Sequence[str],
    control: str,
    *,
    same_shares: bool,
    level: float = 0.95,
) -> list[Estimate]:
    """Estimate the effect of every treatment arm against every treatment arm before it.

    τ̂_ba = Σ_s b_s (θ̂_sb − θ̂_sa), which is the contrast of :func:`estimators.effects.contrasts`
    with a in control's place, over the strata that have two units of *both*. So the control's mean,
    which τ̂_b and τ̂_a share, is not in it, and neither is its error: the difference of two effects
    against control, their errors taken for independent, would have that error twice.

    ``arms`` are the names of the codes in ``evidence``, ``control`` is one of them. The estimates
    are by the sharpest estimator there is (``combined`` where it is); a is their ``control``. In
    the order of b, then a, as in ``arms``. A pair that cannot be compared has no row, and with
    fewer than two treatments there is none. p-values after Holm allow for all the pairs.
    """
    places = [place for place, arm in enumerate(arms) if arm != control]
    pairs = sorted(combinations(places, 2), key=itemgetter(1, 0))
    if not pairs:
        return []
    name = estimators_of(evidence, whole=True)[-1]
    given = evidence.by_pool(same_shares=same_shares) if name == "histogram" else evidence
    found: list[Estimate] = []
    for first, second in pairs:
        one = contrasts(given, name, second, first, 1, same_shares=same_shares)
        if one.n_units[0] > 0:
            compared = [arms[second]]
            found += to_estimates(evidence, [one], compared, arms[first], [None], name, level)
    p_values = [np.nan if one.p_value is None else one.p_value for one in found]
    adjusted = holm(np.array(p_values))
    return [
        replace(one, p_value_holm=None if one.p_value is None else float(p))
        for one, p in zip(found, adjusted, strict=True)
    ]
