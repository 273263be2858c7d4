"""Units that were assigned together, as :mod:`estimators.strata.assigned` needs them."""

from dataclasses import dataclass

import numpy as np

from schemas.arrays import Floats, Ints


@dataclass(frozen=True)
class Nested:
    """Sums over the parties that lie in one slice whole; one row a slice, shape [R] each.

    m are the party's units, h = m/n its share of the slice, and D the sum of v − v̄ over it. Where
    a party is the whole slice, h counts as 0.
    """

    n_parties: Floats
    n_units: Floats
    products: Floats
    """Σ D²/(1 − h)."""
    second: Floats
    """Σ m²."""
    second_less: Floats
    """Σ m²/(1 + h)."""
    third_less: Floats
    """Σ m³/(1 + h)."""
    fourth_less: Floats
    """Σ m⁴/(1 + h)."""


@dataclass(frozen=True)
class Parties:
    """The parties of the units in slices: some one by one, the others in sums.

    A slice whose cluster is small may be merged with others, so its parties are told one by one, as
    are those in several slices.
    """

    slice: Ints
    """Position of the slice of each *cell*, the units of one party in one slice; shape [C]."""
    party: Ints
    """Number of the cell's party, from 0 up; a party lies in one group and arm. Shape [C]."""
    n_units: Floats
    deviation: Floats
    """D = Σ (v − v̄) over the cell, v̄ the mean of the slice's debiased outcomes; shape [C]."""
    nested: Nested
    """Of the parties that are not among the cells."""

    @property
    def per_slice(self) -> Floats:
        """The parties with a unit in each slice, shape [R]."""
        nested = self.nested.n_parties
        return nested + np.bincount(self.slice, minlength=len(nested))

    def moved(self, place: Ints, size: int) -> "Parties":
        """Return the parties of other slices, ``size`` of them: slice s is now ``place[s]``.

        Where ``place`` is −1 the slice is left out. No two slices come to one place.
        """
        kept = place[self.slice] >= 0
        rows = np.flatnonzero(place >= 0)
        sums = {}
        for name in Nested.__dataclass_fields__:
            values = np.zeros(size)
            values[place[rows]] = getattr(self.nested, name)[rows]
            sums[name] = values
        return Parties(
            slice=place[self.slice[kept]],
            party=self.party[kept],
            n_units=self.n_units[kept],
            deviation=self.deviation[kept],
            nested=Nested(**sums),
        )
