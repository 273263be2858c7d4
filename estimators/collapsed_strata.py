"""The variance of a contrast of merged clusters, from differences between neighbours.

A cluster with a single unit in an arm has no variance of its own. Merged with others it has, but
that of the units of an arm holds how clusters differ as well, which assignment within clusters
takes no part in. What merged clusters add to the contrast, compared by twos, does not: the variance
of collapsed strata (Cochran 1977, §5A.12; Hansen, Hurwitz and Madow 1953).
"""

from dataclasses import dataclass

import numpy as np

from estimators.contrast_strata import Rows, Strata
from estimators.evidence import Slices, sum_by
from schemas.arrays import Floats, Ints

LEAST_SEEN = 0.499999
"""Of the variance of alike units, what pairs have to see for theirs to be used: a half.

Where arms hardly meet within clusters, too few differences are left: one pair of a cluster of
treated units and one of controls has none. A little less, so that rounding settles no exact half.
"""


@dataclass(frozen=True)
class Collapsed:
    """V̂ of the contrast of every merged stratum, shape [S]; 0 where there is none."""

    variance: Floats
    freedom: Floats
    """Its degrees of freedom for alike units, by sizes alone; 0 where there is none."""


def collapsed(
    strata: Strata, treated: Slices, control: Slices, means: tuple[Floats, Floats]
) -> Collapsed:
    """Return V̂ = (1/n_1 + 1/n_0)/A · Σ_p L/(L − 1) Σ_c (z_c − z̄_p)² for every merged stratum.

    z_c = n_c1 (v̄_c1 − v̄_1)/n_1 − n_c0 (v̄_c0 − v̄_0)/n_0,
    A = Σ_p Σ_a [Σ_c n_ca − L/(L − 1) Σ_c (n_ca − n̄_pa)²/n_a]/n_a²,

    where

    - z_c is what cluster c adds to the contrast, its arms' mean v̄_ca measured from the stratum's
      v̄_a; ``means`` are the v̄_ca of ``treated`` and ``control``, which are the slices used,
    - p are pairs of clusters, and L their size (:class:`~estimators.contrast_strata.Merged`): 2, or
      3,
    - A is what the sum would be on average for units of variance 1, alike in all clusters: it is
      1/n_1 + 1/n_0 for pairs of one size, so the first factor undoes what measuring from v̄_a takes.

    Degrees of freedom A²/Σ_p A_p²/(L − 1): the number of pairs, for pairs of one size. Effects that
    differ between the clusters of a pair make V̂ too large, as in Neyman's.
    """
    size, pair = len(strata.weight), strata.merged.pair
    n_pairs, of_pair = len(strata.merged.stratum), strata.merged.stratum
    members = sum_by(pair, np.ones(len(pair)), n_pairs)
    z, seen, worth = np.zeros(len(pair)), np.zeros(n_pairs), np.zeros(size)
    for rows, slices, mean, sign in (
        (strata.treated, treated, means[0], 1.0),
        (strata.control, control, means[1], -1.0),
    ):
        own, n, total = _within(rows, slices, mean, size, len(pair))
        z += sign * own
        worth += 1.0 / total
        of_arm = total[of_pair]
        apart = _spread(n, pair, members)
        seen += (sum_by(pair, n, n_pairs) - apart / of_arm) / of_arm**2
    found = sum_by(of_pair, _spread(z, pair, members), size)
    known = sum_by(of_pair, seen, size)
    doubt = sum_by(of_pair, seen**2 / (members - 1.0), size)
    used = (known >= LEAST_SEEN * worth) & (doubt > 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return Collapsed(
            np.where(used, found * worth / known, 0.0), np.where(used, known**2 / doubt, 0.0)
        )


def _within(
    rows: Rows, slices: Slices, mean: Floats, size: int, n_members: int
) -> tuple[Floats, Floats, Floats]:
    """An arm's part of z and its units in every merged cluster, [M], and in every stratum, [S]."""
    n = slices.n_units
    total = sum_by(rows.stratum, n, size)
    middle = sum_by(rows.stratum, n * mean, size) / total
    at = np.flatnonzero(rows.member >= 0)
    of, member = rows.stratum[at], rows.member[at]
    apart = mean[at] - middle[of]
    apart[np.abs(apart) < 1e-12 * np.abs(middle[of])] = 0.0  # equal means, but for rounding
    own = sum_by(member, n[at] * apart / total[of], n_members)
    return own, sum_by(member, n[at], n_members), total


def _spread(values: Floats, pair: Ints, members: Floats) -> Floats:
    """L/(L − 1) Σ_c (x_c − x̄)² over the members of every pair, shape [P]."""
    mean = sum_by(pair, values, len(members)) / members
    return members / (members - 1.0) * sum_by(pair, (values - mean[pair]) ** 2, len(members))
