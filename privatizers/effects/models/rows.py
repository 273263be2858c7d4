"""Rows as effect models take them: mapped to what was declared, so that any row is in bounds."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from schemas.arrays import Bools, Floats, Ints


@dataclass(frozen=True)
class EffectRows:
    """A batch of n units, in an order that follows from their ids' places alone; d features."""

    features: Floats = field(repr=False)
    """Shape [n, d]: of a number its position in [0, 1], of levels the number of its level."""
    treated: Bools = field(repr=False)
    """Shape [n]."""
    outcome: Floats = field(repr=False)
    """Shape [n], in [−1, 1]: (y − middle)/half of the declared range, clipped."""
    propensity: Floats | None = field(repr=False)
    """Shape [n], a declared column's, clipped to [c, 1 − c]; None unless there is one."""
    complete: Bools = field(repr=False)
    """Shape [n]: whether the row takes part; one that does not counts as zeros in every sum."""

    def kept(self) -> "EffectRows":
        """Return the complete rows alone, in their order."""
        return self if self.complete.all() else self.at(self.complete)

    def at(self, chosen: Bools | Ints) -> "EffectRows":
        """Return the chosen rows, by a mask of shape [n], in their order, or by positions."""
        propensity = None if self.propensity is None else self.propensity[chosen]
        features, treated = self.features[chosen], self.treated[chosen]
        return EffectRows(
            features, treated, self.outcome[chosen], propensity, self.complete[chosen]
        )


Batches = Callable[[], Iterable[EffectRows]]
"""Reads all rows, in batches, once a pass; every call gives the same rows in the same order."""
