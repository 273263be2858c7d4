"""The strata in which two arms can be compared, and how many people each of them stands for."""

from dataclasses import dataclass

import numpy as np

from estimators.strata.evidence import Slices, distinct, sum_by
from schemas.arrays import Bools, Floats, Ints

MIN_UNITS = 2
"""Units a stratum needs in both arms of a contrast: a sample variance takes two."""

LEAST_EXPECTED = 4
"""A cluster is small where it is expected to hold less than so much of the least arm."""


@dataclass(frozen=True)
class ArmSlices:
    """The slices of one arm that are used, and the stratum of each; shape [U] each."""

    rows: Ints
    """Positions among all slices."""
    stratum: Ints
    member: Ints
    """Number of the slice's merged cluster (:class:`Merged`); −1 for a cluster of its own."""


@dataclass(frozen=True)
class Merged:
    """Merged clusters, put into pairs; an odd one is added to the last pair.

    A pair are neighbours in the order of group, units of all arms, and cluster: by sizes alone, as
    clusters are merged. (Neighbours by what each happened to get would not show how a contrast
    varies as more or less of the large clusters falls to an arm.)
    """

    pair: Ints
    """Pair of each merged cluster, shape [M]."""
    stratum: Ints
    """Stratum of each pair, shape [P]."""


@dataclass(frozen=True)
class ContrastStrata:
    """The strata in which two arms are compared, in every group."""

    group: Ints
    """Group of each stratum, shape [S]."""
    weight: Floats
    """Units of *all* arms in the stratum's clusters: whom it stands for, shape [S]."""
    treated: ArmSlices
    control: ArmSlices
    merged: Merged
    own_sizes: Floats
    """s of :mod:`estimators.strata.shares`, the least of the stratum's clusters; shape [S]."""

    def of_clusters(self, slices: Slices, cluster: Ints) -> Ints:
        """Return the stratum of units in these clusters, where there is one group; −1 for none."""
        size = int(max(slices.cluster.max(initial=0), cluster.max(initial=0))) + 1
        stratum = np.full(size, -1)
        for side in (self.treated, self.control):
            stratum[slices.cluster[side.rows]] = side.stratum
        return stratum[cluster]


def contrast_strata(slices: Slices, arm: int, control: int, *, same_shares: bool) -> ContrastStrata:
    """Find the strata in which ``arm`` can be compared with ``control``.

    A cluster is *small* where it is expected to hold less than 4 of the arm that is least in its
    group: n_c n_a < 4 n, n_c its size, n_a that of the least arm in the group, n the group's, all
    arms counted; sizes are in units, or in parties where units were assigned together. Where
    ``same_shares`` says that every cluster was randomised with the same arm shares, the small
    clusters of a group are merged into one stratum (otherwise a merged contrast would be
    confounded). Every other cluster with two units in both arms is a stratum of its own. What is
    left, or has fewer than two units of an arm even merged, is left out. But of clusters
    that count by their arms' own units (``slices.own_sizes``) those are one stratum, together with
    the least of the others, whose weight is 0: nothing else counts them, and the statistic of a
    pool, which is of them, too, would be no statistic of those that are compared.

    So it never matters what a cluster itself happened to get. A rule that merges clusters with few
    units of an arm has large ones among the merged where these got few of the rare arm: within the
    merged stratum cluster and arm then go together, and the contrast is biased. Totals of whole
    arms do no harm: given these, each unit of the group is in an arm as likely as any other, so the
    merged contrast is unbiased.
    """
    width = int(slices.cluster.max(initial=0)) + 1
    size = (int(slices.group.max(initial=0)) + 1) * width
    keys, key = distinct(slices.group * width + slices.cluster, size)
    group = keys // width
    rows = [np.flatnonzero(slices.arm == code) for code in (arm, control)]
    n = np.stack([sum_by(key[row], slices.n_units[row], len(keys)) for row in rows])
    small = np.zeros(len(keys), dtype=np.bool_)
    small[key] = are_small(slices) & same_shares
    own = np.zeros(len(keys))
    if slices.own_sizes is not None:
        own[key] = slices.own_sizes
    stratum = _stratum_of(n, group, small)
    everyone = sum_by(key, slices.n_units, len(keys))
    if ((stratum < 0) & ~small & (own > 0)).any():
        stratum, everyone = _gather(stratum, group, everyone, small, own > 0)
    n_strata = int(stratum.max(initial=-1)) + 1
    kept = stratum >= 0
    stratum_group = np.zeros(n_strata, dtype=np.int64)
    stratum_group[stratum[kept]] = group[kept]
    used = [row[kept[key[row]]] for row in rows]
    member, merged = _pair_up(everyone, np.where(small, stratum, -1))
    treated, reference = (ArmSlices(row, stratum[key[row]], member[key[row]]) for row in used)
    weight = sum_by(stratum[kept], everyone[kept], n_strata)
    own_sizes = np.ones(n_strata)
    np.minimum.at(own_sizes, stratum[kept], own[kept])
    return ContrastStrata(stratum_group, weight, treated, reference, merged, own_sizes)


def are_small(slices: Slices) -> Bools:
    """Return whether the cluster of each slice is small, see :func:`contrast_strata`; shape [R]."""
    n_groups = int(slices.group.max(initial=-1)) + 1
    n_arms, n_clusters = (int(one.max(initial=0)) + 1 for one in (slices.arm, slices.cluster))
    place = slices.group * n_arms + slices.arm
    of_arms = sum_by(place, slices.size, n_groups * n_arms).reshape(n_groups, n_arms)
    least = np.where(of_arms > 0, of_arms, np.inf).min(axis=1)
    cluster = slices.group * n_clusters + slices.cluster
    size = sum_by(cluster, slices.size, n_groups * n_clusters)
    most = LEAST_EXPECTED * of_arms.sum(axis=1)
    small: Bools = size[cluster] * least[slices.group] < most[slices.group]
    return small


def _stratum_of(n: Floats, group: Ints, small: Bools) -> Ints:
    """Return the stratum of each cluster; −1 for one that is left out.

    ``n`` has the shape [2, clusters], ``group`` and ``small`` the shape [clusters].
    """
    alone = (n >= MIN_UNITS).all(axis=0) & ~small
    stratum = np.full(len(group), -1)
    stratum[alone] = np.arange(alone.sum())
    groups, merged = np.unique(group[small], return_inverse=True)
    sizes = np.stack([sum_by(merged, units[small], len(groups)) for units in n])
    enough = (sizes >= MIN_UNITS).all(axis=0)
    numbers = np.where(enough, alone.sum() + np.cumsum(enough) - 1, -1)
    stratum[small] = numbers[merged]
    return stratum


def _gather(
    stratum: Ints, group: Ints, everyone: Floats, small: Bools, by_own: Bools
) -> tuple[Ints, Floats]:
    """Return stratum and weight of clusters with those that are left and count ``by_own`` sizes.

    They go with the least of their group that is a stratum of its own, which has both arms, unless
    no other stratum of the group counts so. All arguments are of clusters.
    """
    lone, left = by_own & ~small & (stratum >= 0), by_own & ~small & (stratum < 0)
    size = int(group.max()) + 1
    merged = sum_by(group, (by_own & small & (stratum >= 0)).astype(np.float64), size) > 0
    several = sum_by(group, lone.astype(np.float64), size) + merged >= 2.0
    rows = np.flatnonzero(lone & several[group] & np.isin(group, group[left]))
    rows = rows[np.lexsort((rows, everyone[rows], group[rows]))]
    groups, first = np.unique(group[rows], return_index=True)
    gathered = left & np.isin(group, groups)
    gathered[rows[first]] = True
    found = np.where(gathered, stratum.max() + 1 + np.searchsorted(groups, group), stratum)
    kept = found >= 0
    found[kept] = np.unique(found[kept], return_inverse=True)[1]
    return found, np.where(gathered, 0.0, everyone)


def _pair_up(size: Floats, stratum: Ints) -> tuple[Ints, Merged]:
    """Number the merged clusters, −1 for others, and put them into pairs.

    ``stratum`` is −1 for clusters that are not merged; both have the shape [clusters]. One that is
    the only small one of its group is a stratum of its own.
    """
    merged = np.flatnonzero(stratum >= 0)
    merged = merged[np.bincount(stratum[merged])[stratum[merged]] > 1]
    order = merged[np.lexsort((merged, size[merged], stratum[merged]))]
    member = np.full(len(stratum), -1)
    member[order] = np.arange(len(order))
    strata, first, members = np.unique(stratum[order], return_index=True, return_counts=True)
    n_pairs = members // 2
    nth = (np.arange(len(order)) - np.repeat(first, members)) // 2
    nth = np.minimum(nth, np.repeat(n_pairs, members) - 1)
    earlier = np.repeat(np.cumsum(n_pairs) - n_pairs, members)
    return member, Merged(earlier + nth, np.repeat(strata, n_pairs))
