"""Enumerations and samples of aggregate mechanisms: a noisy statistic, and no units.

They do for these mechanisms what `enumeration` and `sampling` do for mechanisms that publish units.
Noise comes from the mechanism itself, ``mechanism.statistics(counts, cell_of)``, hence from the
operating system.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from privatizers.audit.enumeration import (
    Enumeration,
    enumerate_number,
    enumerate_statistic,
    neighbours,
)
from privatizers.audit.lower_bounds import DRAW, SIGNATURE, Sample
from privatizers.audit.neighbours import Instance
from privatizers.audit.sampling import Effort, Neighbours, joint_columns
from privatizers.mechanisms.aggregate_mechanism import AggregateMechanism, AggregateRelease
from privatizers.mechanisms.noisy_horvitz_thompson import difference_scale
from schemas.arrays import Floats, Ints

_MOST_CELLS = 60_000_000
_MOST_ROWS = 1_800_000
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


def aggregate_size(mechanism: AggregateMechanism, instance: Instance, effort: Effort) -> int:
    """Return the number of stacked replicates of D, and of D′, that an effort allows."""
    many = mechanism.parameters.lattice is None and instance.n_outcomes > 2
    cells = 2 * (instance.n_outcomes if many else 1)
    return min(max(min(effort.noised_cells, _MOST_CELLS) // cells, 10), _MOST_ROWS)


def sample_stacked_aggregates(
    mechanism: AggregateMechanism, instance: Instance, size: int
) -> Neighbours:
    """Draw ``size`` replicates of the pool under D, and as many under D′, a call each."""
    here = _stacked(mechanism, instance, instance.counts, size)
    return here, _stacked(mechanism, instance, instance.neighbour, size)


def sample_joint_aggregates(
    mechanism: AggregateMechanism, instance: Instance, size: int
) -> Neighbours:
    """Draw ``size`` replicates under D, and as many under D′, of a pool between two others."""
    here = _joint(mechanism, instance, instance.counts, size)
    return here, _joint(mechanism, instance, instance.neighbour, size)


def sample_called_aggregates(
    mechanism: AggregateMechanism, instance: Instance, size: int
) -> Neighbours:
    """Draw ``size`` replicates under D, and as many under D′, of the statistics of other pools."""
    here = _called(mechanism, instance, instance.counts, size)
    return here, _called(mechanism, instance, instance.neighbour, size)


def _pool_counts(instance: Instance, counts: list[tuple[int, ...]]) -> tuple[Ints, Ints]:
    """Return raw counts and cells of pools whose changing arm has these ``counts``."""
    changing = np.array(counts, dtype=np.int64)
    if not isinstance(instance, PairInstance):
        return changing, np.arange(len(changing))[:, np.newaxis]
    other = np.zeros_like(changing)
    other[:, 0] = instance.other_units
    arms = (other, changing) if instance.treated else (changing, other)
    cells = np.arange(2 * len(changing)).reshape(-1, 2)
    return np.stack(arms, axis=1).reshape(-1, changing.shape[1]), cells


def _stacked(
    mechanism: AggregateMechanism, instance: Instance, counts: tuple[int, ...], size: int
) -> Sample:
    release = mechanism.statistics(*_pool_counts(instance, [counts] * size))
    columns = _public_columns(release, instance, np.arange(size), "its pool")
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
    """Draw three pools at a time in one call; also return sums and differences of statistics."""
    still, middle = instance.counts, 1 + 3 * np.arange(size)
    release = mechanism.statistics(*_pool_counts(instance, [still, counts, still] * size))
    columns = joint_columns(partial(_public_columns, release, instance), middle, "pool")
    return Sample({DRAW: np.zeros(size)} | columns)


def _called(
    mechanism: AggregateMechanism, instance: Instance, counts: tuple[int, ...], size: int
) -> Sample:
    """Draw three pools a call, the middle one with the changed unit; columns of the outer two."""
    still = instance.counts
    data, cells = _pool_counts(instance, [still, counts, still])
    rows = []
    for _ in range(size):
        release = mechanism.statistics(data, cells)
        row = {DRAW: np.zeros(1)}
        for pool, whose in ((0, "pool before"), (2, "pool after")):
            row |= _public_columns(release, instance, np.array([pool]), whose)
        rows.append(row)
    return Sample({name: np.concatenate([row[name] for row in rows]) for name in rows[0]})


def _public_columns(
    release: AggregateRelease, instance: Instance, rows: Ints, whose: str
) -> dict[str, Floats]:
    """Return what is published of pools, or of their arms where the unit changes."""
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
