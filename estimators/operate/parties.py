"""What units that were assigned together contribute to several releases: see assigned, returning.

A household or a shop, a *party*, comes back in any of its units. What it contributes has the
corrections for few parties that its own release's variance has, so that two releases of the same
parties with the same outcomes weigh as much as one. Ours; see docs/series.md.
"""

from dataclasses import dataclass

import numpy as np

from estimators.operate.people import Returners, to_slices
from estimators.strata.contrast_strata import ContrastStrata, contrast_strata
from estimators.strata.evidence import distinct, sum_by
from schemas.arrays import Bools, Floats, Ints, Words

_ALL = 1.0 - 1e-9
"""A party with this share of an arm's units in a stratum is the whole arm there."""

_ROUNDING = 1e-12
"""Effects of strata that differ by less than this share of the means are equal."""


@dataclass(frozen=True)
class PartyContributions:
    """What each unit contributes to n τ̂_Q, to be summed up by party; shape [M] each."""

    value: Floats
    collapsed: Ints
    """Number of the unit's stratum where that is collapsed, −1 elsewhere.

    There the stratum contributes as one, so all of its parties are one :func:`families`.
    """


def party_contributions(
    members: Returners, arm: int, control: int, *, same_shares: bool
) -> PartyContributions:
    """Return what units contribute, whose parties are known.

    c_u = ± W_s (v_u − v̄_sa)/n_sa / √(1 − h_gs), h_gs = m_gs/n_sa, where

    - s, W_s, v̄_sa, n_sa and the sign are those of
      :func:`estimators.operate.people.contributions`,
    - m_gs are the units of party g in the arm and stratum. Where each party is one unit, this is
      what :func:`~estimators.operate.people.contributions` gives.

    A stratum in which an arm is one party shows nothing of how parties differ: it is *collapsed*,
    as in :func:`estimators.strata.assigned.added`. Its units contribute
    z_s = W_s (τ̂_s − τ̄)/√(1 − β_s) together, β_s = W_s/Σ W over the collapsed strata of the group,
    τ̄ = Σ β_s τ̂_s. Where these have one party of an arm among them, every stratum of the group is
    collapsed, but for merged clusters; where an arm is one party even then, nothing is known, and
    all contribute 0.
    """
    strata = contrast_strata(to_slices(members)[1], arm, control, same_shares=same_shares)
    units = _Compared.of(members, strata)
    lone, unknown = _find_lone(units, strata)
    value, collapsed = np.zeros(len(members.arm)), np.full(len(members.arm), -1)
    within, is_lone = units.within(strata), lone[units.stratum]
    known = ~unknown[strata.group[units.stratum]]
    value[units.rows] = np.where(is_lone, _collapse(units, strata, lone), within) * known
    collapsed[units.rows] = np.where(is_lone & known, units.stratum, -1)
    return PartyContributions(value, collapsed)


def families(effect: Ints, party: Words, stratum: Ints) -> Words:
    """Return who comes back as one in each effect: parties that ever shared a collapsed stratum.

    A row is a party in a period, for one effect; ``stratum`` numbers the collapsed strata of all
    periods and effects, −1 for none. The result numbers families; shape [M].
    """
    from scipy.sparse import coo_array  # noqa: PLC0415 - takes a quarter of a second
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415 - likewise

    words, who = np.unique(party, return_inverse=True)
    keys, node = np.unique(effect * len(words) + who, return_inverse=True)
    linked = np.flatnonzero(stratum >= 0)
    _, first, code = np.unique(stratum[linked], return_index=True, return_inverse=True)
    links = (node[linked], node[linked[first]][code])
    graph = coo_array((np.ones(len(linked)), links), shape=(len(keys), len(keys)))
    _, family = connected_components(graph, directed=False)
    return family[node].astype(np.uint64)


@dataclass(frozen=True)
class _Compared:
    """The units of the two arms in the strata; shape [m] each."""

    rows: Ints
    """Positions among all units."""
    stratum: Ints
    side: Ints
    """2 s for the treated arm of stratum s, 2 s + 1 for control."""
    party: Ints
    n_parties: int
    debiased: Floats
    n_units: Floats
    """n_sa of every side, shape [2 S]."""
    mean: Floats
    """v̄_sa, shape [2 S]."""

    @classmethod
    def of(cls, members: Returners, strata: ContrastStrata) -> "_Compared":
        code, slices = to_slices(members)
        party = np.arange(len(code)) if members.party is None else members.party
        side_of = np.full(len(slices.n_units), -1)
        side_of[strata.treated.rows] = 2 * strata.treated.stratum
        side_of[strata.control.rows] = 2 * strata.control.stratum + 1
        side = side_of[code]
        rows = np.flatnonzero(side >= 0)
        side, debiased, size = side[rows], members.debiased[rows], 2 * len(strata.weight)
        n = sum_by(side, np.ones(len(rows)), size)
        mean = sum_by(side, debiased, size) / n
        n_parties = int(party.max(initial=-1)) + 1
        return cls(rows, side // 2, side, party[rows], n_parties, debiased, n, mean)

    def within(self, strata: ContrastStrata) -> Floats:
        """Return c of every unit, as if no stratum were collapsed."""
        keys, cell = distinct(
            self.side * self.n_parties + self.party, len(self.n_units) * self.n_parties
        )
        n = self.n_units[self.side]
        part = sum_by(cell, np.ones(len(cell)), len(keys))[cell] / n
        left = np.where(part < _ALL, 1.0 - part, 1.0)
        sign = np.where(self.side % 2 == 0, 1.0, -1.0)
        factor = sign * strata.weight[self.stratum] / n / np.sqrt(left)
        return factor * (self.debiased - self.mean[self.side])

    def parties_in(self, place: Ints, size: int) -> Floats:
        """Return the number of different parties in every place; −1 is none of them."""
        rows = np.flatnonzero(place >= 0)
        keys, _ = distinct(place[rows] * self.n_parties + self.party[rows], size * self.n_parties)
        return np.bincount(keys // max(self.n_parties, 1), minlength=size).astype(np.float64)


def _find_lone(units: _Compared, strata: ContrastStrata) -> tuple[Bools, Bools]:
    """Return the strata to be collapsed, and the groups that have too few parties for anything."""
    size = len(strata.weight)
    n_groups = int(strata.group.max(initial=-1)) + 1
    group = strata.group[units.stratum] * 2 + units.side % 2
    may = np.ones(size, dtype=np.bool_)
    may[strata.merged.stratum] = False
    lone = may & (units.parties_in(units.side, 2 * size).reshape(-1, 2).min(axis=1) < 2.0)

    def too_few(among: Bools) -> Bools:
        place = np.where(among[units.stratum], group, -1)
        fewest = units.parties_in(place, 2 * n_groups).reshape(-1, 2).min(axis=1)
        found: Bools = (fewest < 2.0) & (
            sum_by(strata.group, among.astype(np.float64), n_groups) > 0
        )
        return found

    unknown = too_few(np.ones(size, dtype=np.bool_))
    if not lone.any():
        return lone, unknown
    lone = lone | (may & too_few(lone)[strata.group])
    return lone, unknown | too_few(lone)


def _collapse(units: _Compared, strata: ContrastStrata, lone: Bools) -> Floats:
    """Return each unit's part of z_s, 0 where its stratum is not collapsed."""
    weight = np.where(lone, strata.weight, 0.0)
    n_groups = int(strata.group.max(initial=-1)) + 1
    total = sum_by(strata.group, weight, n_groups)[strata.group]
    beta = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
    treated, control = units.mean.reshape(-1, 2).T
    effect, size = treated - control, np.abs(treated) + np.abs(control)
    apart = effect - sum_by(strata.group, beta * effect, n_groups)[strata.group]
    apart[np.abs(apart) < _ROUNDING * size] = 0.0
    left = np.where(beta < _ALL, 1.0 - beta, 1.0)
    everyone = units.n_units.reshape(-1, 2).sum(axis=1)
    found: Floats = (weight * apart / np.sqrt(left) / everyone)[units.stratum]
    return found
