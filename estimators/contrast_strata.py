"""Which strata two arms can be compared in, and for how many people each of them speaks."""

from dataclasses import dataclass

import numpy as np

from estimators.evidence import Slices, sum_by
from schemas.arrays import Floats, Ints

MIN_UNITS = 2
"""Units a stratum needs in both arms of a contrast: a sample variance takes two."""


@dataclass(frozen=True)
class Rows:
    """The slices of one arm that are used, and the stratum of each; both of the shape [U]."""

    rows: Ints
    stratum: Ints
    member: Ints
    """The merged cluster that each is of (:class:`Merged`); −1 in a stratum of its own."""


@dataclass(frozen=True)
class Merged:
    """Clusters that are merged, put together by twos, an odd one with the last two.

    Neighbours in the order of group, units of the treated arm, units of control and cluster: public
    facts, so that which clusters make a pair tells and asks nothing of outcomes.
    """

    pair: Ints
    """Pair of each merged cluster, shape [M]."""
    stratum: Ints
    """Stratum of each pair, shape [P]."""


@dataclass(frozen=True)
class Strata:
    """The strata of a contrast, in every group."""

    group: Ints
    """Group of each stratum, shape [S]."""
    weight: Floats
    """Units of *all* arms in the stratum's clusters: the population it speaks for, shape [S]."""
    treated: Rows
    control: Rows
    merged: Merged


def comparable(slices: Slices, arm: int, control: int, *, same_shares: bool) -> Strata:
    """Find the strata in which ``arm`` can be compared with ``control``.

    A cluster with at least two units in both arms stands for itself. The others are merged into
    one stratum a group where ``same_shares`` says that every cluster was randomised with the same
    arm shares (a merged contrast would be confounded otherwise), and are left out where not, or
    where even merged they hold fewer than two units of an arm.
    """
    width = int(slices.cluster.max(initial=0)) + 1
    keys, key = np.unique(slices.group * width + slices.cluster, return_inverse=True)
    group = keys // width
    rows = [np.flatnonzero(slices.arm == one) for one in (arm, control)]
    n = np.stack([sum_by(key[row], slices.n_units[row], len(keys)) for row in rows])
    stratum = _strata(n, group, same_shares=same_shares)
    n_strata = int(stratum.max(initial=-1)) + 1
    kept = stratum >= 0
    everyone = sum_by(key, slices.n_units, len(keys))
    of_group = np.zeros(n_strata, dtype=np.int64)
    of_group[stratum[kept]] = group[kept]
    used = [row[kept[key[row]]] for row in rows]
    member, merged = _paired(n, stratum)
    sides = [Rows(row, stratum[key[row]], member[key[row]]) for row in used]
    weight = sum_by(stratum[kept], everyone[kept], n_strata)
    return Strata(of_group, weight, sides[0], sides[1], merged)


def _strata(n: Floats, group: Ints, *, same_shares: bool) -> Ints:
    """The stratum of each cluster, −1 where it is left out.

    ``n`` has the shape [2, clusters], ``group`` the shape [clusters].
    """
    alone = (n >= MIN_UNITS).all(axis=0)
    stratum = np.full(len(group), -1)
    stratum[alone] = np.arange(alone.sum())
    rest = ~alone & (n.sum(axis=0) > 0)
    if same_shares and rest.any():
        groups, merged = np.unique(group[rest], return_inverse=True)
        sizes = np.stack([sum_by(merged, one[rest], len(groups)) for one in n])
        enough = (sizes >= MIN_UNITS).all(axis=0)
        places = np.where(enough, alone.sum() + np.cumsum(enough) - 1, -1)
        stratum[rest] = places[merged]
    return stratum


def _paired(n: Floats, stratum: Ints) -> tuple[Ints, Merged]:
    """Number the merged clusters, −1 for others, and pair them; clusters come in order.

    ``n`` has the shape [2, clusters], ``stratum`` the shape [clusters].
    """
    rest = np.flatnonzero((stratum >= 0) & (n < MIN_UNITS).any(axis=0))
    order = rest[np.lexsort((rest, n[1, rest], n[0, rest], stratum[rest]))]
    member = np.full(len(stratum), -1)
    member[order] = np.arange(len(order))
    of_stratum, first, size = np.unique(stratum[order], return_index=True, return_counts=True)
    own, half = np.repeat(first, size), np.repeat(size // 2, size)
    nth = np.minimum((np.arange(len(order)) - own) // 2, half - 1)
    before = np.repeat(np.cumsum(size // 2) - size // 2, size)
    return member, Merged(before + nth, np.repeat(of_stratum, size // 2))
