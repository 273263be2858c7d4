"""People who are in several releases: what each contributes, and how that ties releases together.

Noise is drawn anew for every release, so the products of what one person contributes to two of them
tell the covariance of that person's outcomes alone. Ours; see docs/series.md.
"""

from dataclasses import dataclass, replace

import numpy as np

from estimators.strata.contrast_strata import ArmSlices, contrast_strata
from estimators.strata.evidence import Slices, distinct, sum_by
from estimators.strata.shares import Shares
from schemas.arrays import Floats, Ints, Words


@dataclass(frozen=True)
class Returners:
    """Units of one release in groups (segments); one row a unit in a group, shape [M] each."""

    group: Ints
    cluster: Ints
    arm: Ints
    debiased: Floats
    """v, the debiased outcome."""
    party: Ints | None = None
    """Numbers of what was assigned, from 0 up; None where each unit was by itself."""
    own_sizes: Floats | None = None
    """s of each unit's cluster (:mod:`estimators.strata.shares`), for ``combined``; None: all 0."""


@dataclass(frozen=True)
class CrossTerms:
    """What ties each period to those before it; shape [T, E] each."""

    total: Floats
    """2 Σ_{r<t} Σ_{u in both} c_ur c_ut, in the square of units times outcomes."""
    scatter: Floats
    """What it adds to half the variance of the sum of all totals."""


def contributions(members: Returners, arm: int, control: int, *, same_shares: bool) -> Floats:
    """Return c_u = n ψ_u, what each unit contributes to n τ̂ of ``arm`` in its group; shape [M].

    ψ_u = ± b_s (v_u − v̄_sa)/n_sa · √(n_sa/(n_sa − 1)), where

    - s is the unit's stratum among those in which the arms are compared
      (:func:`estimators.strata.contrast_strata.contrast_strata`), b_s = W_s/n its share of their n
      units,
    - v̄_sa and n_sa are mean and number of the units of the unit's arm in the stratum,
    - the sign is + in ``arm``, − in control; units of other arms, and those in no stratum, have 0.

    The last factor makes Σ ψ² Neyman's variance Σ b² s²/n, to which the products of two releases of
    the same people with the same outcomes are then equal.

    Where strata count by their arm's own units, with k for b (:class:`Shares`), g and m = Σ s b,

        ψ_u = ± {(v_u − v̄_sa) √[(k²/n_sa − m² (1 − g)/n_a²)/(n_sa − 1)] + (v̄_sa − Σ g v̄_sa) m/n_a},

    n_a the arm's units in these strata: Σ ψ² is Σ k² s²/n and what the strata differ by.
    """
    code, slices = to_slices(members)
    strata = contrast_strata(slices, arm, control, same_shares=same_shares)
    factor, center, apart = np.zeros((3, len(slices.n_units)))
    total = sum_by(code, members.debiased, len(slices.n_units))
    n_groups = int(members.group.max(initial=-1)) + 1
    everyone = sum_by(strata.group, strata.weight, n_groups)
    for sign, side in ((1.0, strata.treated), (-1.0, strata.control)):
        n, mean = _of_strata(side, slices.n_units, total, len(strata.weight))
        shares = Shares.of(strata, side, slices.n_units, np.where(everyone > 0, everyone, 1.0))
        of_own = np.where(shares.own > 0, (shares.moved / shares.n_units)[strata.group], 0.0)
        middle = sum_by(strata.group, shares.own * mean, n_groups)[strata.group]
        square = shares.value**2 / n - of_own**2 * (1.0 - shares.own)
        scale = sign * everyone[strata.group]
        of_strata = (scale * np.sqrt(square / (n - 1.0)), mean, scale * of_own * (mean - middle))
        factor[side.rows], center[side.rows], apart[side.rows] = (
            one[side.stratum] for one in of_strata
        )
    return factor[code] * (members.debiased - center[code]) + apart[code]


def of_ratio(
    numerator: Returners, denominator: Floats, arm: int, control: int, *, same_shares: bool
) -> Returners:
    """Return the units with ℓ = (v_N − ρ̂_a v_D)/μ̂_D,a in place of v, for :func:`contributions`.

    ρ̂_a = μ̂_N,a/μ̂_D,a are the ratios of ``arm`` and ``control`` as τ̂_Q has them
    (:func:`estimators.ratios.ratio_contrasts`), in each group. ``denominator`` is v_D, shape [M],
    ``numerator`` has v_N. 0 for units of other arms, and where μ̂_D is 0.
    """
    code, slices = to_slices(numerator)
    strata = contrast_strata(slices, arm, control, same_shares=same_shares)
    n_groups = int(numerator.group.max(initial=-1)) + 1
    share = strata.weight / sum_by(strata.group, strata.weight, n_groups)[strata.group]
    sums = [
        sum_by(code, values, len(slices.n_units)) for values in (numerator.debiased, denominator)
    ]
    factors = np.zeros((2, len(slices.n_units)))
    for side in (strata.treated, strata.control):
        above, below = (
            sum_by(
                strata.group,
                share * _of_strata(side, slices.n_units, total, len(strata.weight))[1],
                n_groups,
            )
            for total in sums
        )
        scale = np.divide(1.0, below, out=np.zeros_like(below), where=below != 0)
        group = strata.group[side.stratum]
        factors[:, side.rows] = scale[group], (-above * scale * scale)[group]
    linear = factors[0][code] * numerator.debiased + factors[1][code] * denominator
    return replace(numerator, debiased=linear)


def to_slices(members: Returners) -> tuple[Ints, Slices]:
    """Return the slice of each row, and the slices: they know sizes, and nothing of outcomes."""
    n_clusters = int(members.cluster.max(initial=0)) + 1
    n_arms = int(members.arm.max(initial=0)) + 1
    size = (int(members.group.max(initial=0)) + 1) * n_clusters * n_arms
    key = (members.group * n_clusters + members.cluster) * n_arms + members.arm
    keys, code = distinct(key, size)
    n = np.bincount(code, minlength=len(keys)).astype(np.float64)
    unknown = np.zeros(len(keys))
    nowhere = np.zeros(len(keys), dtype=np.int64)
    group, rest = keys // (n_clusters * n_arms), keys % (n_clusters * n_arms)
    where = (group, rest // n_arms, rest % n_arms, nowhere)
    slices = Slices(*where, n, unknown, unknown, unknown)
    if members.own_sizes is not None:
        own = np.zeros(len(keys))
        own[code] = members.own_sizes
        slices = replace(slices, own_sizes=own)
    if members.party is None:
        return code, slices
    n_parties = int(members.party.max(initial=-1)) + 1
    cells, _ = distinct(code * n_parties + members.party, len(keys) * n_parties)
    in_slices = np.bincount(cells // max(n_parties, 1), minlength=len(keys)).astype(np.float64)
    return code, replace(slices, n_parties=in_slices)


def _of_strata(
    side: ArmSlices, n_units: Floats, total: Floats, n_strata: int
) -> tuple[Floats, Floats]:
    """Return number and mean of an arm's units in every stratum, shape [S] each."""
    n = sum_by(side.stratum, n_units[side.rows], n_strata)
    return n, sum_by(side.stratum, total[side.rows], n_strata) / n


def together(
    effect: Ints, unit: Words, period: Ints, contribution: Floats
) -> tuple[Ints, Words, Ints, Floats]:
    """Add up the contributions of the rows of one ``unit``, of one period, to each effect.

    Where units were assigned together, ``unit`` is what was assigned, and stands several times.
    Rows of one unit each are returned as they are.
    """
    order = np.lexsort((unit, effect))
    same = (unit[order][1:] == unit[order][:-1]) & (effect[order][1:] == effect[order][:-1])
    if not same.any():
        return effect, unit, period, contribution
    first = np.flatnonzero(np.append(True, ~same))
    total: Floats = np.add.reduceat(contribution[order], first)
    return effect[order][first], unit[order][first], period[order][first], total


def cross_terms(
    effect: Ints, unit: Words, period: Ints, contribution: Floats, shape: tuple[int, int]
) -> CrossTerms:
    """Return, for each period t and effect, 2 Σ_{r<t} Σ_{u in both} c_ur c_ut.

    Added up to T that is Σ_u [(Σ_r c_ur)² − Σ_r c_ur²]. A row is a unit in a period, for one effect
    (``effect``, from 0 up): ``unit`` tells people apart, ``period`` is the position of the period,
    ``contribution`` c (:func:`contributions`), shape [M] each. ``shape`` is (T, E). A unit stands
    once in a period and effect. Rows of units that stand in one period alone change nothing.

    The variance of the sum of totals is estimated by Σ_u D_u², D_u being the unit's part of it;
    half of that is ``scatter``, so that it can be added to V²/(df + 2) of the periods.
    """
    order = np.lexsort((period, unit, effect))
    effect, unit, period = effect[order], unit[order], period[order]
    own = contribution[order]
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = (unit[1:] != unit[:-1]) | (effect[1:] != effect[:-1])
    products = 2.0 * own * _before(own, is_first)
    earlier = _before(products, is_first)
    target = period * shape[1] + effect
    size = shape[0] * shape[1]
    total = sum_by(target, products, size)
    squares = sum_by(target, products * (2.0 * earlier + products), size)
    return CrossTerms(total.reshape(shape), squares.reshape(shape) / 2.0)


def _before(values: Floats, is_first: Ints) -> Floats:
    """Return the sum of the values before each one in its run; ``is_first`` begins a run."""
    before = np.cumsum(values) - values
    start = np.flatnonzero(is_first)
    length = np.diff(np.append(start, len(values)))
    found: Floats = before - np.repeat(before[start], length)
    found[is_first] = 0.0
    return found
