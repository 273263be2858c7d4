"""The strata in which two arms can be compared, and how many people each of them stands for."""

from dataclasses import dataclass

import numpy as np

from estimators.strata.evidence import Slices, distinct, sum_by
from schemas.arrays import Floats, Ints

MIN_UNITS = 2
"""Units a stratum needs in both arms of a contrast: a sample variance takes two."""


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

    A pair are neighbours in the order of group, units of the treated arm, units of control and
    cluster. These are public facts, so the pairs neither show nor need any outcome.
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


def contrast_strata(slices: Slices, arm: int, control: int, *, same_shares: bool) -> ContrastStrata:
    """Find the strata in which ``arm`` can be compared with ``control``.

    A cluster with at least two units in both arms is a stratum of its own. The other clusters of a
    group are merged into one stratum where ``same_shares`` says that every cluster was randomised
    with the same arm shares (otherwise a merged contrast would be confounded). They are left out
    where that is not so, and where even merged they hold fewer than two units of an arm.
    """
    width = int(slices.cluster.max(initial=0)) + 1
    size = (int(slices.group.max(initial=0)) + 1) * width
    keys, key = distinct(slices.group * width + slices.cluster, size)
    group = keys // width
    rows = [np.flatnonzero(slices.arm == code) for code in (arm, control)]
    n = np.stack([sum_by(key[row], slices.n_units[row], len(keys)) for row in rows])
    stratum = _stratum_of(n, group, same_shares=same_shares)
    n_strata = int(stratum.max(initial=-1)) + 1
    kept = stratum >= 0
    everyone = sum_by(key, slices.n_units, len(keys))
    stratum_group = np.zeros(n_strata, dtype=np.int64)
    stratum_group[stratum[kept]] = group[kept]
    used = [row[kept[key[row]]] for row in rows]
    member, merged = _pair_up(n, stratum)
    treated, reference = (ArmSlices(row, stratum[key[row]], member[key[row]]) for row in used)
    weight = sum_by(stratum[kept], everyone[kept], n_strata)
    return ContrastStrata(stratum_group, weight, treated, reference, merged)


def _stratum_of(n: Floats, group: Ints, *, same_shares: bool) -> Ints:
    """Return the stratum of each cluster; −1 for one that is left out.

    ``n`` has the shape [2, clusters], ``group`` the shape [clusters].
    """
    alone = (n >= MIN_UNITS).all(axis=0)
    stratum = np.full(len(group), -1)
    stratum[alone] = np.arange(alone.sum())
    rest = ~alone & (n.sum(axis=0) > 0)
    if same_shares and rest.any():
        groups, merged = np.unique(group[rest], return_inverse=True)
        sizes = np.stack([sum_by(merged, units[rest], len(groups)) for units in n])
        enough = (sizes >= MIN_UNITS).all(axis=0)
        numbers = np.where(enough, alone.sum() + np.cumsum(enough) - 1, -1)
        stratum[rest] = numbers[merged]
    return stratum


def _pair_up(n: Floats, stratum: Ints) -> tuple[Ints, Merged]:
    """Number the merged clusters, −1 for others, and put them into pairs.

    ``n`` has the shape [2, clusters], ``stratum`` the shape [clusters].
    """
    rest = np.flatnonzero((stratum >= 0) & (n < MIN_UNITS).any(axis=0))
    order = rest[np.lexsort((rest, n[1, rest], n[0, rest], stratum[rest]))]
    member = np.full(len(stratum), -1)
    member[order] = np.arange(len(order))
    strata, first, size = np.unique(stratum[order], return_index=True, return_counts=True)
    n_pairs = size // 2
    nth = (np.arange(len(order)) - np.repeat(first, size)) // 2
    nth = np.minimum(nth, np.repeat(n_pairs, size) - 1)
    earlier = np.repeat(np.cumsum(n_pairs) - n_pairs, size)
    return member, Merged(earlier + nth, np.repeat(strata, n_pairs))
