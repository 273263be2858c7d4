"""What an audit lists and samples of an aggregate mechanism: the noisy statistic, and no units.

As `enumeration` and `sampling` do it for mechanisms that publish units. Noise comes from the
mechanism itself, ``mechanism.statistics(counts, cell_of)``, hence from the operating system.
"""

from dataclasses import dataclass

import numpy as np

from privatizers.audit.enumeration import (
    Enumeration,
    enumerated_number,
    enumerated_statistic,
    neighbours,
)
from privatizers.audit.lower_bounds import DRAW, SIGNATURE, Sample
from privatizers.audit.neighbours import Instance
from privatizers.audit.sampling import Effort, Neighbours, both_ways
from privatizers.mechanisms.aggregate_mechanism import AggregateMechanism, AggregateRelease
from privatizers.mechanisms.noisy_horvitz_thompson import difference_scale
from schemas.arrays import Floats, Ints

_MOST_CELLS = 60_000_000
_MOST_ROWS = 1_800_000
_SIZES = (2, 8)
_PAIRS = ((2, 2), (2, 8), (8, 2), (5, 3))
"""Units of the arm where one changes, and of the other."""


@dataclass(frozen=True)
class PairInstance(Instance):
    """Two arms of a pool; the counts are those of the arm in which a unit changes."""

    other_units: int = 1
    """Units of the other arm, all of them with the lowest outcome."""
    treated: bool = True
    """Whether it is the treated arm that changes."""


def listed_aggregates(mechanism: AggregateMechanism) -> list[Enumeration]:
    """List what is published of neighbours of several sizes."""
    parameters = mechanism.parameters
    if not parameters.differences:
        found = (each for size in _SIZES for each in neighbours(parameters, size))
        return [enumerated_statistic(parameters, each) for each in found]
    return [
        _difference(mechanism, PairInstance(*_fields(each), other_units=other, treated=treated))
        for own, other in _PAIRS
        for treated in (True, False)
        for each in neighbours(parameters, own)
    ]


def _fields(instance: Instance) -> tuple[tuple[int, ...], int, int]:
    return instance.counts, instance.from_cell, instance.to_cell


def _difference(mechanism: AggregateMechanism, pair: PairInstance) -> Enumeration:
    """D moves by the change of one arm's sum times the size of the other, by the divisor."""
    lattice = mechanism.parameters.lattice
    if lattice is None:
        raise ValueError("differences are published in whole steps of a lattice")
    own, other = np.array([pair.n_units]), np.array([pair.other_units])
    moved = lattice.steps[pair.to_cell] - lattice.steps[pair.from_cell]
    moved *= int(other[0] // np.gcd(own, other)[0])
    scale = float(difference_scale(own, other, mechanism.parameters.noise_scale)[0])
    return enumerated_number(pair, moved if pair.treated else -moved, scale)


def aggregate_size(mechanism: AggregateMechanism, instance: Instance, effort: Effort) -> int:
    """Return how many stacked replicates of D, and as many of D′, an effort is enough for."""
    many = mechanism.parameters.lattice is None and instance.n_outcomes > 2
    cells = 2 * (instance.n_outcomes if many else 1)
    return min(max(min(effort.noised_cells, _MOST_CELLS) // cells, 10), _MOST_ROWS)


def stacked_aggregates(mechanism: AggregateMechanism, instance: Instance, size: int) -> Neighbours:
    """Draw ``size`` replicates of the pool under D, and as many under D′, a call each."""
    here, there = (
        _stacked(mechanism, instance, counts, size)
        for counts in (instance.counts, instance.neighbour)
    )
    return here, there


def joint_aggregates(mechanism: AggregateMechanism, instance: Instance, size: int) -> Neighbours:
    """Draw ``size`` replicates under D, and as many under D′, of a pool between two others."""
    here, there = (
        _joint(mechanism, instance, counts, size)
        for counts in (instance.counts, instance.neighbour)
    )
    return here, there


def called_aggregates(mechanism: AggregateMechanism, instance: Instance, size: int) -> Neighbours:
    """Draw ``size`` replicates under D, and as many under D′, of what is said of other pools."""
    here, there = (
        _called(mechanism, instance, counts, size)
        for counts in (instance.counts, instance.neighbour)
    )
    return here, there


def _pools(instance: Instance, counts: list[tuple[int, ...]]) -> tuple[Ints, Ints]:
    """Raw counts and cells of pools whose changing arm has these ``counts``."""
    own = np.array(counts, dtype=np.int64)
    if not isinstance(instance, PairInstance):
        return own, np.arange(len(own))[:, np.newaxis]
    other = np.zeros_like(own)
    other[:, 0] = instance.other_units
    arms = (other, own) if instance.treated else (own, other)
    cells = np.arange(2 * len(own)).reshape(-1, 2)
    return np.stack(arms, axis=1).reshape(-1, own.shape[1]), cells


def _stacked(
    mechanism: AggregateMechanism, instance: Instance, counts: tuple[int, ...], size: int
) -> Sample:
    release = mechanism.statistics(*_pools(instance, [counts] * size))
    columns = _about(release, instance, np.arange(size), "its pool")
    if release.noisy_counts is not None:
        given, taken = (
            release.noisy_counts[:, cell] - instance.counts[cell]
            for cell in (instance.from_cell, instance.to_cell)
        )
        columns[SIGNATURE] = (given >= 0) + 2.0 * (taken <= 0)
    return Sample({DRAW: np.zeros(size), **columns})


def _joint(
    mechanism: AggregateMechanism, instance: Instance, counts: tuple[int, ...], size: int
) -> Sample:
    """Three pools at a time in one call; sums and differences of what is noised of them."""
    still, own = instance.counts, 1 + 3 * np.arange(size)
    release = mechanism.statistics(*_pools(instance, [still, counts, still] * size))
    mine, columns = _about(release, instance, own, ""), {DRAW: np.zeros(size)}
    for place, whose in ((own - 1, "pool before"), (own + 1, "pool after")):
        columns |= _about(release, instance, place, whose)
        columns |= both_ways(mine, _about(release, instance, place, ""), whose)
    return Sample(columns)


def _called(
    mechanism: AggregateMechanism, instance: Instance, counts: tuple[int, ...], size: int
) -> Sample:
    """Three pools a call, the middle one with the changed unit; columns of the outer two."""
    still = instance.counts
    data, cells = _pools(instance, [still, counts, still])
    rows = []
    for _ in range(size):
        release = mechanism.statistics(data, cells)
        row = {DRAW: np.zeros(1)}
        for pool, whose in ((0, "pool before"), (2, "pool after")):
            row |= _about(release, instance, np.array([pool]), whose)
        rows.append(row)
    return Sample({name: np.concatenate([row[name] for row in rows]) for name in rows[0]})


def _about(
    release: AggregateRelease, instance: Instance, rows: Ints, whose: str
) -> dict[str, Floats]:
    """What is published of a pool, or of the arm of it where the unit changes."""
    columns: dict[str, Ints] = {}
    if release.noisy_counts is not None:
        for cell, which in ((instance.from_cell, "given up"), (instance.to_cell, "taken")):
            name = f"noisy count of the outcome {which}, {whose}"
            columns[name] = release.noisy_counts[rows, cell]
    if release.noisy_sums is not None:
        columns[f"noisy sum of outcomes, {whose}"] = release.noisy_sums[rows]
    if release.noisy_differences is not None:
        columns[f"noisy difference, {whose}"] = release.noisy_differences.noisy[rows]
    return {name: values.astype(np.float64) for name, values in columns.items()}
