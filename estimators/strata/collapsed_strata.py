"""The variance of a contrast of merged clusters, from differences between neighbours.

A cluster with a single unit in an arm has no sample variance. Merged with others it has one, but
the variance of an arm's merged units also holds the differences between clusters, to which
assignment within clusters adds nothing. So merged clusters are compared in pairs by what each adds
to the contrast: the variance of collapsed strata (Cochran 1977, §5A.12; Hansen, Hurwitz and Madow
1953).
"""

from dataclasses import dataclass

import numpy as np

from estimators.strata.contrast_strata import ArmSlices, ContrastStrata
from estimators.strata.evidence import Slices, sum_by
from schemas.arrays import Floats, Ints

LEAST_SEEN = 0.499999
"""The variance of pairs is used where they see at least this share (a half) for alike units.

Where arms hardly meet within clusters, too few differences are left: a pair of a cluster of treated
units and a cluster of controls has none. It is a little less than a half, so that rounding does not
decide where the share is exactly a half.
"""

_ROUNDING = 1e-12
"""Clusters of a pair whose z differ by less than this share of what z is made of have equal z."""


@dataclass(frozen=True)
class PairVariance:
    """V̂ of the contrast of every merged stratum, shape [S]; 0 where there is none."""

    variance: Floats
    freedom: Floats
    """Its degrees of freedom for alike units, by sizes alone; 0 where there is none."""


def pair_variance(
    strata: ContrastStrata, treated: Slices, control: Slices, means: tuple[Floats, Floats]
) -> PairVariance:
    """Return V̂ = (1/n_1 + 1/n_0)/A · Σ_p L/(L − 1) Σ_c (z_c − z̄_p)² for every merged stratum.

    z_c = n_c1 (v̄_c1 − v̄_1)/n_1 − n_c0 (v̄_c0 − v̄_0)/n_0,
    A = Σ_p Σ_a [Σ_c n_ca − L/(L − 1) Σ_c (n_ca − n̄_pa)²/n_a]/n_a²,

    where

    - z_c is what cluster c adds to the contrast: its arms' means v̄_ca are measured from the
      stratum's v̄_a; ``means`` are the v̄_ca of the slices ``treated`` and ``control``,
    - p are pairs of clusters, and L their size, 2 or 3
      (:class:`~estimators.strata.contrast_strata.Merged`),
    - A is the average of the sum for units of variance 1, alike in all clusters. For pairs of one
      size it is 1/n_1 + 1/n_0, so the first factor makes up for measuring from v̄_a.

    Degrees of freedom A²/Σ_p A_p²/(L − 1): the number of pairs, for pairs of one size. Effects that
    differ between the clusters of a pair make V̂ too large, as in Neyman's. Where they differ by no
    more than rounding V̂ is 0, not some 1e-32, whatever the order of summation: a variance of 0 has
    no interval, and a macro in a release must say the same.
    """
    n_strata, pair = len(strata.weight), strata.merged.pair
    n_pairs, stratum = len(strata.merged.stratum), strata.merged.stratum
    members = sum_by(pair, np.ones(len(pair)), n_pairs)
    z, size = np.zeros(len(pair)), np.zeros(len(pair))
    seen, expected = np.zeros(n_pairs), np.zeros(n_strata)
    for rows, slices, mean, sign in (
        (strata.treated, treated, means[0], 1.0),
        (strata.control, control, means[1], -1.0),
    ):
        part, of_part, n, total = _within_clusters(rows, slices, mean, n_strata, len(pair))
        z += sign * part
        size += of_part
        expected += 1.0 / total
        arm_size = total[stratum]
        seen += (sum_by(pair, n, n_pairs) - _spread(n, pair, members) / arm_size) / arm_size**2
    rounding = _ROUNDING * sum_by(pair, size, n_pairs)
    squares = sum_by(stratum, _spread(z, pair, members, rounding), n_strata)
    scale = sum_by(stratum, seen, n_strata)
    scatter = sum_by(stratum, seen**2 / (members - 1.0), n_strata)
    used = (scale >= LEAST_SEEN * expected) & (scatter > 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return PairVariance(
            np.where(used, squares * expected / scale, 0.0), np.where(used, scale**2 / scatter, 0.0)
        )


def _within_clusters(
    rows: ArmSlices, slices: Slices, mean: Floats, n_strata: int, n_members: int
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return an arm's part of z, the size of its terms, and its units; all [M], and units by [S].

    The part is n_c (v̄_c − v̄)/n, and the size of its terms n_c (|v̄_c| + |v̄|)/n.
    """
    n = slices.n_units
    total = sum_by(rows.stratum, n, n_strata)
    at = np.flatnonzero(rows.member >= 0)
    stratum, member = rows.stratum[at], rows.member[at]
    stratum_mean = (sum_by(rows.stratum, n * mean, n_strata) / total)[stratum]
    deviation = mean[at] - stratum_mean
    rounding = np.abs(deviation) < 1e-12 * np.abs(stratum_mean)
    deviation[rounding] = 0.0
    share = n[at] / total[stratum]
    part = sum_by(member, share * deviation, n_members)
    size = sum_by(member, share * (np.abs(mean[at]) + np.abs(stratum_mean)), n_members)
    return part, size, sum_by(member, n[at], n_members), total


def _spread(values: Floats, pair: Ints, members: Floats, rounding: Floats | None = None) -> Floats:
    """Return L/(L − 1) Σ_c (x_c − x̄)² over the members of every pair, shape [P].

    What is from x̄ by less than the pair's ``rounding``, shape [P], is at x̄.
    """
    mean = sum_by(pair, values, len(members)) / members
    deviation = values - mean[pair]
    if rounding is not None:
        deviation[np.abs(deviation) < rounding[pair]] = 0.0
    return members / (members - 1.0) * sum_by(pair, deviation**2, len(members))
