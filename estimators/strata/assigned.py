"""Errors that follow what was randomised, where several units were assigned together.

Units that were assigned together, those of a household or a shop, are a *party*. What units of one
party contribute to an effect varies together, so their products belong to the variance. Noise is
drawn for every unit alone: the products tell the covariance of outcomes, for every estimator.

Sources: Liang and Zeger (1986), sums over clusters; Bell and McCaffrey (2002), the correction and
the degrees of freedom for few of them, here in closed form for means of strata; Imbens and Kolesár
(2016), degrees of freedom at the estimated correlation; Cochran (1977, §5A.12), collapsed strata;
Cameron, Gelbach and Miller (2011), clustering in two ways. That the products are added to the
variances of estimators with noise is ours; see docs/method.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from estimators.strata.evidence import distinct, sum_by
from estimators.strata.parties import Nested, Parties
from schemas.arrays import Bools, Floats, Ints, Words

_ALL = 1.0 - 1e-9
"""A party with this share of an arm's units in a stratum is the whole arm there."""

_PRIOR_MEAN, _PRIOR_VARIANCE = 2.0 / 3.0, 1.0 / 12.0
"""Of the correlation of outcomes in a party, before any are seen; the variance of 0 to 1 evenly."""

_ROUNDING = 1e-12
"""Effects of strata that differ by less than this share of the means are equal."""


@dataclass(frozen=True)
class ArmSide:
    """One arm's slices in the strata of a contrast, and what V̂ makes of them."""

    rows: Ints
    """Positions of the slices, shape [U]; likewise:"""
    stratum: Ints
    from_mean: Floats
    """The slice's debiased mean less the stratum's."""
    n_units: Floats
    """Units of the arm in every stratum, shape [S]; likewise:"""
    mean: Floats
    """v̄, the mean of its debiased outcomes."""
    spread: Floats
    """s², their sample variance."""
    kept: Floats
    """The share of s²/n that V̂ has; pairs of merged clusters take the place of the rest."""
    sampling: Floats | None = None
    """Σ b² Ŝ²/n, what outcomes without noise have of Σ k b² s²/n, in every group, shape [G].

    None for τ̂_Q, whose variance is that of the outcomes with their noise.
    """


@dataclass(frozen=True)
class Added:
    """What parties add to an arm's variance in every group, shape [G].

    NaN where an arm is one party, so that nothing tells how parties differ.
    """

    variance: Floats
    """At least 0."""
    scatter: Floats
    """What is added to half the variance of the variance."""
    stretch: Floats
    """What half the variance of V̂ itself is multiplied by: E rests on V̂ as well."""


def added(
    parties: Parties, group: Ints, share: Floats, sides: Sequence[ArmSide], n_groups: int
) -> list[Added]:
    """Return what parties add to the variance of each arm of a contrast.

    E = Σ_s k_s [Σ_g A_gs² − b_s² s_s²/n_s] + Σ_g [(Σ_s A_gs)² − Σ_s A_gs²],
    A_gs = b_s Σ_{i in g, s} (v_i − v̄_s)/n_s / √(1 − h_gs),  h_gs = m_gs/n_s,

    where

    - s are the strata (``group`` has the group of each, ``share`` its b, shape [S]) and g the
      parties of the arm; in a stratum of merged clusters the A_gs are taken cluster by cluster,
    - n_s, v̄_s, s_s² and k_s are the side's ``n_units, mean, spread, kept``; m_gs are the units of
      g in s. There are two ``sides``, or one for an arm's own mean.

    The root makes V̂ + E unbiased where units vary alike and independently (CR2). Where every party
    is one unit, E is 0.

    A stratum in which an arm is one party shows nothing of how its parties differ. Such strata are
    *collapsed*, both arms together: Z = Σ_s [b_s (τ̂_s − τ̄)]²/(1 − β_s), β_s = b_s/Σ b and
    τ̄ = Σ β_s τ̂_s, takes the place of their part of the first sum, split between the arms in the
    ratio of their Σ b² s²/n. Z is unbiased for variances in the ratio of 1/b_s, and too large where
    effects differ between strata. In their A_gs, Σ β_s v̄_s takes the place of v̄_s, and the party's
    share of the arm in all of them that of h_gs. Where all of them together have one party of an
    arm, every stratum of the group is collapsed.

    ``scatter`` is Σ_g T_g² − Σ_i t_i², where T_g is the variance of Σ_s A_gs with the correlation
    within parties that E shows, and t_i that of a single unit, T_g² and t_i² divided by 1 + h
    rather than 1 − h (:func:`estimators.arm_effects.degrees`). So degrees of freedom are about
    V²/Σ T_g² − 2: for parties of one size their number less 1, and what they are without parties
    where each is one unit.

    For other estimators than τ̂_Q, whose own variances hold less noise than the products do, E is
    drawn to what is known without it. Outcomes of a party are correlated by 0 to 1, so E lies
    between 0 and E_1 = f R, f = Σ b² Ŝ²/n / Σ k b² s²/n, R what E is where units of a party are
    alike. With v the variance that noise gives E (taken at E = 0), it becomes
    w E + (1 − w) (2/3) E_1, w = (E_1²/12)/(E_1²/12 + v): where noise hides it, the correlation is
    taken to be 2/3, give or take 0.29, which is rather too much than too little. The variance w v
    that is left is in ``scatter``.

    E below 0 counts as 0: no error is less than that of units assigned one by one.
    """
    cells = [_side_cells(parties, side, len(share)) for side in sides]
    strata = _Strata(group, share, n_groups)
    lone, unknown = _find_lone(parties, strata, sides, cells)
    together = _collapse(strata, lone, sides)
    found = []
    for side, own in zip(sides, cells, strict=True):
        sums = _nested_sums(parties.nested, strata, lone, side) + _cell_sums(
            strata, lone, together, side, own
        )
        squares = _squares(parties.nested, side, own, len(share))
        found.append(_of_arm(sums, strata, lone, together, side, squares))
    return [
        Added(
            *(np.where(unknown, np.nan, part) for part in (one.variance, one.scatter, one.stretch))
        )
        for one in found
    ]


def parties_of(slice_of: Ints, assigned: Words, arm: Ints, debiased: Floats, size: int) -> Parties:
    """Return the parties of units told one by one; arrays have the shape [n].

    ``slice_of`` is the position of each unit's slice, of which there are ``size``, and ``assigned``
    tells parties apart; units of two arms are never of one party. ``debiased`` is v.
    """
    order = np.lexsort((slice_of, assigned, arm))
    where, who, which = slice_of[order], assigned[order], arm[order]
    is_new = np.ones(len(order), dtype=np.bool_)
    is_new[1:] = (who[1:] != who[:-1]) | (which[1:] != which[:-1])
    party = np.cumsum(is_new) - 1
    is_new[1:] |= where[1:] != where[:-1]
    cell, first = np.cumsum(is_new) - 1, np.flatnonzero(is_new)
    n = np.maximum(sum_by(slice_of, np.ones(len(order)), size), 1.0)
    deviation = debiased - (sum_by(slice_of, debiased, size) / n)[slice_of]
    return Parties(
        slice=where[first],
        party=party[first],
        n_units=sum_by(cell, np.ones(len(order)), len(first)),
        deviation=sum_by(cell, deviation[order], len(first)),
        nested=Nested(*np.zeros((7, size))),
    )


def residuals(numerator: Parties, denominator: Parties, cross: Floats, ratio: Floats) -> Parties:
    """Return the parties of N − ρ D, for the variance of a ratio ρ by the delta method.

    ``numerator`` and ``denominator`` are of the same units, so their cells and sizes are the same;
    ``cross`` is Σ D_N D_D/(1 − h) over nested parties, and ``ratio`` is ρ, both of every slice.
    """
    nested = numerator.nested
    products = nested.products + ratio**2 * denominator.nested.products - 2.0 * ratio * cross
    return replace(
        numerator,
        deviation=numerator.deviation - ratio[numerator.slice] * denominator.deviation,
        nested=replace(nested, products=np.maximum(products, 0.0)),
    )


@dataclass(frozen=True)
class _Strata:
    group: Ints
    share: Floats
    n_groups: int

    def by_group(self, values: Floats) -> Floats:
        return sum_by(self.group, values, self.n_groups)


@dataclass(frozen=True)
class _Cells:
    """The cells in one arm's strata; shape [c]."""

    stratum: Ints
    party: Ints
    n_parties: int
    n_units: Floats
    total: Floats
    """Σ (v − v̄_s)."""
    part: Floats
    """h, the party's share of the arm's units in the stratum."""
    in_stratum: Floats
    """Parties among the cells of every stratum, shape [S]."""


def _side_cells(parties: Parties, side: ArmSide, n_strata: int) -> _Cells:
    size = int(max(side.rows.max(initial=-1), parties.slice.max(initial=-1))) + 1
    place = np.full(size, -1)
    place[side.rows] = np.arange(len(side.rows))
    row = place[parties.slice]
    inside = np.flatnonzero(row >= 0)
    row, n, party = row[inside], parties.n_units[inside], parties.party[inside]
    stratum = side.stratum[row]
    n_parties = int(party.max(initial=-1)) + 1
    keys, at = distinct(party * n_strata + stratum, n_parties * n_strata)
    return _Cells(
        stratum=stratum,
        party=party,
        n_parties=n_parties,
        n_units=n,
        total=parties.deviation[inside] + n * side.from_mean[row],
        part=sum_by(at, n, len(keys))[at] / side.n_units[stratum],
        in_stratum=sum_by(keys % max(n_strata, 1), np.ones(len(keys)), n_strata),
    )


def _find_lone(
    parties: Parties, strata: _Strata, sides: Sequence[ArmSide], cells: Sequence[_Cells]
) -> tuple[Bools, Bools]:
    """Return the strata to be collapsed, and the groups that have too few parties for anything."""
    size = len(strata.share)
    nested = [sum_by(side.stratum, parties.nested.n_parties[side.rows], size) for side in sides]
    may = np.all([side.kept == 1.0 for side in sides], axis=0)
    counts = [inner + own.in_stratum for inner, own in zip(nested, cells, strict=True)]
    lone = may & (np.min(counts, axis=0) < 2.0)

    def too_few(among: Bools) -> Bools:
        """Return the groups with fewer than two parties of an arm ``among`` these strata."""
        has_any = strata.by_group(among.astype(np.float64)) > 0
        found = np.zeros(strata.n_groups, dtype=np.bool_)
        for inner, own in zip(nested, cells, strict=True):
            chosen = np.flatnonzero(among[own.stratum])
            _, first = np.unique(own.party[chosen], return_index=True)
            of_cells = strata.group[own.stratum[chosen[first]]]
            n = strata.by_group(np.where(among, inner, 0.0))
            found |= n + np.bincount(of_cells, minlength=strata.n_groups) < 2.0
        return found & has_any

    unknown = too_few(np.ones(size, dtype=np.bool_))
    if not lone.any():
        return lone, unknown
    lone = lone | (may & too_few(lone)[strata.group])
    return lone, unknown | too_few(lone)


@dataclass(frozen=True)
class _Collapsed:
    """The strata of every group that are collapsed."""

    share: Floats
    """β, 0 where a stratum is not collapsed; shape [S]."""
    variance: Floats
    """Z, shape [G]."""
    scatter: Floats
    """Half its variance, divided by Z²: Σ β²/(1 + β)."""
    of_units: Floats
    """Σ b² s²/n of all sides in its place."""


def _collapse(strata: _Strata, lone: Bools, sides: Sequence[ArmSide]) -> _Collapsed:
    weight = np.where(lone, strata.share, 0.0)
    total = strata.by_group(weight)[strata.group]
    beta = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
    effect = sides[0].mean - (sides[1].mean if len(sides) > 1 else 0.0)
    size = np.sum([np.abs(side.mean) for side in sides], axis=0)
    apart = effect - strata.by_group(beta * effect)[strata.group]
    apart[np.abs(apart) < _ROUNDING * size] = 0.0
    left = np.where(beta < _ALL, 1.0 - beta, 1.0)
    variance = strata.by_group((weight * apart) ** 2 / left)
    return _Collapsed(
        share=beta,
        variance=variance,
        scatter=strata.by_group(beta**2 / (2.0 - left)),
        of_units=strata.by_group(
            np.sum([np.where(lone, _unit_variance(strata, side), 0.0) for side in sides], axis=0)
        ),
    )


def _unit_variance(strata: _Strata, side: ArmSide) -> Floats:
    """Return k b² s²/n of every stratum, which V̂ has of it."""
    return side.kept * strata.share**2 * side.spread / side.n_units


@dataclass(frozen=True)
class _SliceSums:
    """Sums over an arm's parties, of every group; shape [G]."""

    products: Floats
    """Σ k A² and the products between strata."""
    room: Floats
    """Σ d, what E would be if outcomes of a party were equal but for their means."""
    square: Floats
    """Σ p², p the variance of a party's sum if units vary independently."""
    mixed: Floats
    """Σ p d, p + d the variance of a party's sum if they vary together."""
    fourth: Floats
    """Σ d²."""

    def __add__(self, other: "_SliceSums") -> "_SliceSums":
        return _SliceSums(
            *(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__)
        )


def _squares(nested: Nested, side: ArmSide, cells: _Cells, n_strata: int) -> Floats:
    """Return Σ m² over the arm's parties in every stratum."""
    of_cells = sum_by(cells.stratum, cells.n_units * cells.part, n_strata) * side.n_units
    return of_cells + sum_by(side.stratum, nested.second[side.rows], n_strata)


def _nested_sums(nested: Nested, strata: _Strata, lone: Bools, side: ArmSide) -> _SliceSums:
    """Return the sums over parties that lie in one slice; it is a stratum of its own."""
    of, rows = side.stratum, side.rows
    factor = np.where(lone, 0.0, side.kept * (strata.share / side.n_units) ** 2)
    square = (factor * side.spread)[of]
    second, third = nested.second_less[rows], nested.third_less[rows]

    def by_group(values: Floats) -> Floats:
        return sum_by(strata.group[of], values, strata.n_groups)

    return _SliceSums(
        products=by_group(factor[of] * nested.products[rows]),
        room=by_group(square * (nested.second - nested.n_units)[rows]),
        square=by_group(square**2 * second),
        mixed=by_group(square**2 * (third - second)),
        fourth=by_group(square**2 * (nested.fourth_less[rows] - 2.0 * third + second)),
    )


def _cell_sums(
    strata: _Strata, lone: Bools, together: _Collapsed, side: ArmSide, cells: _Cells
) -> _SliceSums:
    """Return the sums over parties that are told one by one."""
    of, party, size = cells.stratum, cells.party, cells.n_parties
    middle = strata.by_group(together.share * side.mean)[strata.group]
    is_lone = lone[of]
    total = cells.total + np.where(is_lone, cells.n_units * (side.mean - middle)[of], 0.0)
    shared = sum_by(party, together.share[of] * cells.n_units / side.n_units[of], size)
    part = np.where(is_lone, shared[party], cells.part)
    left = np.where(part < _ALL, 1.0 - part, 1.0)
    factor = (strata.share / side.n_units)[of]
    kept = np.where(is_lone, 0.0, side.kept[of])
    group = np.zeros(size, dtype=np.int64)
    group[party] = strata.group[of]

    def squared(values: Floats) -> Floats:
        """Return (Σ x)² − Σ (1 − k) x² of every party."""
        found: Floats = sum_by(party, values, size) ** 2
        return found - sum_by(party, (1.0 - kept) * values**2, size)

    def by_group(values: Floats) -> Floats:
        return sum_by(group, values, strata.n_groups)

    root = factor * cells.n_units * np.sqrt(side.spread)[of]
    single = kept * factor**2 * cells.n_units * side.spread[of]
    less = np.sqrt(2.0 - left)
    independent = sum_by(party, single / less, size)
    common = squared(root / np.sqrt(less)) - independent
    return _SliceSums(
        products=by_group(squared(factor * total / np.sqrt(left))),
        room=by_group(squared(root) - sum_by(party, single, size)),
        square=by_group(independent**2),
        mixed=by_group(independent * common),
        fourth=by_group(common**2),
    )


def _of_arm(
    sums: _SliceSums,
    strata: _Strata,
    lone: Bools,
    together: _Collapsed,
    side: ArmSide,
    squares: Floats,
) -> Added:
    """Return what the arm's parties add; ``squares`` are Σ m² of every stratum."""
    of_units = _unit_variance(strata, side)
    replaced = strata.by_group(np.where(lone, of_units, 0.0))
    own = sums.products - strata.by_group(of_units) + replaced
    both = together.of_units
    part = np.divide(replaced, both, out=np.full_like(both, 0.5), where=both > 0)
    collapsed = part * together.variance - replaced
    single = strata.by_group(of_units**2 / (side.n_units + 1.0))
    room = sums.room + strata.by_group(
        np.where(lone, of_units * (squares / side.n_units - 1.0), 0.0)
    )

    def scatter(share: Floats, extra: Floats, collapsed: Floats) -> Floats:
        """Return half the variance of E where units have this share of their variance."""
        rho = np.maximum(np.divide(extra, room, out=np.zeros_like(room), where=room > 0), 0.0)
        found = share**2 * sums.square + 2.0 * share * rho * sums.mixed + rho**2 * sums.fourth
        of_lone = (share * replaced + np.maximum(collapsed, 0.0)) ** 2 * together.scatter
        of_lone = np.divide(of_lone, part, out=np.zeros_like(part), where=part > 0)
        return np.maximum(found + of_lone - share**2 * single, 0.0)

    extra, total = own + collapsed, strata.by_group(of_units)
    nothing, everything = np.zeros_like(extra), np.ones_like(extra)
    if side.sampling is None:
        scattered = scatter(everything, extra, collapsed)
        return Added(np.maximum(extra, 0.0), scattered, everything)
    share = np.divide(side.sampling, total, out=np.ones_like(total), where=total > 0)
    share = np.clip(share, 0.0, 1.0)
    most = share * room

    def noise(extra: Floats, collapsed: Floats) -> Floats:
        """Return half the variance that noise gives E."""
        both = scatter(everything, extra, collapsed)
        return np.maximum(both - scatter(share, extra, collapsed), 0.0)

    known = most**2 * _PRIOR_VARIANCE
    hidden = known + 2.0 * noise(nothing, nothing)
    weight = np.divide(known, hidden, out=np.ones_like(hidden), where=hidden > 0)
    extra = np.maximum(weight * extra + (1.0 - weight) * _PRIOR_MEAN * most, 0.0)
    apart = weight * collapsed
    scattered = scatter(share, extra, apart) + weight * noise(extra, apart)
    by_guess = (1.0 - weight) * _PRIOR_MEAN
    stretch = 1.0 + by_guess * np.divide(room, total, out=nothing, where=total > 0)
    return Added(extra, scattered, stretch**2)
