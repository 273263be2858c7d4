"""Enumerations of aggregate mechanisms: a noisy statistic, and no units.

They do for these mechanisms what `enumeration` does for mechanisms that publish units.
"""

from dataclasses import dataclass

import numpy as np

from privatizers.mechanisms.aggregate_mechanism import AggregateMechanism
from privatizers.mechanisms.noisy_horvitz_thompson import difference_scale
from tests.exact.enumeration import (
    Enumeration,
    enumerate_number,
    enumerate_statistic,
    neighbours,
)
from tests.exact.neighbours import Instance

_SIZES = (2, 8)
_PAIRS = ((2, 2), (2, 8), (8, 2), (5, 3))
"""Units of the arm where one changes, and of the other arm."""


@dataclass(frozen=True)
class PairInstance(Instance):
    """Two arms of a pool; the counts are of the arm in which a unit changes."""

    other_units: int = 1
    """Units of the other arm, all with the lowest outcome."""
    treated: bool = True
    """Whether the treated arm is the one that changes."""


def enumerate_aggregates(mechanism: AggregateMechanism) -> list[Enumeration]:
    """Enumerate the published statistic for neighbours of several sizes."""
    parameters = mechanism.parameters
    if not parameters.differences:
        instances = (instance for size in _SIZES for instance in neighbours(parameters, size))
        return [enumerate_statistic(parameters, instance) for instance in instances]
    return [
        _enumerate_difference(
            mechanism, PairInstance(*_fields(instance), other_units=other, treated=treated)
        )
        for changing, other in _PAIRS
        for treated in (True, False)
        for instance in neighbours(parameters, changing)
    ]


def _fields(instance: Instance) -> tuple[tuple[int, ...], int, int]:
    return instance.counts, instance.from_cell, instance.to_cell


def _enumerate_difference(mechanism: AggregateMechanism, pair: PairInstance) -> Enumeration:
    """Enumerate D, which changes by the change of one arm's sum times the other's size over g."""
    lattice = mechanism.parameters.lattice
    if lattice is None:
        raise ValueError("differences are published in whole steps of a lattice")
    changing, other = np.array([pair.n_units]), np.array([pair.other_units])
    moved = lattice.steps[pair.to_cell] - lattice.steps[pair.from_cell]
    moved *= int(other[0] // np.gcd(changing, other)[0])
    scale = float(difference_scale(changing, other, mechanism.parameters.noise_scale)[0])
    return enumerate_number(pair, moved if pair.treated else -moved, scale)
