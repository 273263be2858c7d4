"""Replicates of a release of two neighbouring data sets, drawn by the functions a release calls.

Noise and draws come from the mechanism itself, ``mechanism.strata(counts)`` and
``.response.draw(levels, strata)``, hence from the operating system's entropy: no audit can be
repeated draw by draw. Two kinds:

- *stacked*: the same stratum many times over, as the strata of one call. The replicates are
  independent if the mechanism treats strata apart, as parallel composition takes for granted.
- *called*: a call for each replicate, of three strata: the one that holds the changed unit and one
  on either side, where nothing changes. What is published of those two must tell nothing.
"""

from dataclasses import dataclass

import numpy as np

from privatizers.audit_bounds import DRAW, SIGNATURE, Floats, Integers, Sample
from privatizers.instances import Instance
from privatizers.mechanism import Mechanism, StrataRelease

_BATCH = 1 << 20  # units drawn at once: bounds memory

Neighbours = tuple[Sample, Sample]
"""Samples under D and under D′."""


@dataclass(frozen=True)
class Effort:
    """How much to draw for one audit: of what takes the time, so that a grid of any size does."""

    noised_cells: int = 300_000
    """Of stacked replicates; about 25 to 40 µs each."""
    units: int = 10_000_000
    """Of stacked replicates; about 0.1 µs each."""
    calls: int = 1_600
    """About 3 ms each."""


UNDER_A_MINUTE = Effort()
"""On one slow core: 15 to 20 seconds, on any grid."""


def stacked_size(mechanism: Mechanism, instance: Instance, effort: Effort) -> int:
    """Return how many stacked replicates of D, and as many of D′, an effort is enough for."""
    by_units = effort.units // (2 * instance.n_units)
    if mechanism.parameters.noise_scale is None:
        return by_units
    one_noise = instance.n_outcomes == 2 or mechanism.parameters.lattice is not None
    noised = 1 if one_noise else instance.n_outcomes
    return min(by_units, effort.noised_cells // (2 * noised))


def stacked(mechanism: Mechanism, instance: Instance, size: int) -> Neighbours:
    """Draw ``size`` replicates of the stratum under D, and as many under D′, a call each."""
    here = _stacked(mechanism, instance, instance.counts, instance.from_cell, size)
    there = _stacked(mechanism, instance, instance.neighbour, instance.to_cell, size)
    return here, there


def called(mechanism: Mechanism, instance: Instance, size: int) -> Neighbours:
    """Draw ``size`` replicates under D, and as many under D′, of what is said of other strata."""
    here = _called(mechanism, instance, instance.counts, instance.from_cell, size)
    there = _called(mechanism, instance, instance.neighbour, instance.to_cell, size)
    return here, there


def _stacked(
    mechanism: Mechanism, instance: Instance, counts: tuple[int, ...], level: int, size: int
) -> Sample:
    release = mechanism.strata(np.tile(np.array(counts, dtype=np.int64), (size, 1)))
    own, draws = _drawn(release, instance, counts, level, size)
    columns = {DRAW: own, **_about(release, instance, np.arange(size), "its stratum"), **draws}
    return Sample({**columns, SIGNATURE: _signature(mechanism, instance, release, own)})


def _drawn(
    release: StrataRelease, instance: Instance, counts: tuple[int, ...], level: int, size: int
) -> tuple[Floats, dict[str, Floats]]:
    """The changed unit's draw in every replicate, and how often the others drew its outcomes."""
    others = np.repeat(np.arange(len(counts)), counts)
    others = np.delete(others, np.argmax(others == level))
    levels = np.concatenate([[level], others])
    own, given, taken = np.empty(size), np.empty(size), np.empty(size)
    step = max(1, _BATCH // len(levels))
    for start in range(0, size, step):
        rows = np.arange(start, min(start + step, size))
        drawn = release.response.draw(
            np.tile(levels, len(rows)), np.repeat(rows, len(levels))
        ).reshape(len(rows), len(levels))
        own[rows] = _kind(drawn[:, 0], instance)
        given[rows] = (drawn[:, 1:] == instance.from_cell).sum(axis=1)
        taken[rows] = (drawn[:, 1:] == instance.to_cell).sum(axis=1)
    return own, {
        "others' draws of the outcome given up": given,
        "others' draws of the outcome taken": taken,
    }


def _kind(drawn: Integers, instance: Instance) -> Floats:
    """0 for the outcome given up, 1 for the one taken, 2 for another."""
    return np.where(drawn == instance.from_cell, 0.0, np.where(drawn == instance.to_cell, 1.0, 2.0))


def _about(
    release: StrataRelease, instance: Instance, rows: Integers, whose: str
) -> dict[str, Floats]:
    """What is published of a stratum: noisy counts and prior of the two outcomes concerned."""
    columns: dict[str, Floats] = {}
    for cell, which in ((instance.from_cell, "given up"), (instance.to_cell, "taken")):
        columns[f"prior of the outcome {which}, {whose}"] = release.response.prior[rows, cell]
        if release.noisy_counts is not None:
            noisy = release.noisy_counts[rows, cell].astype(np.float64)
            columns[f"noisy count of the outcome {which}, {whose}"] = noisy
    if release.noisy_sums is not None:
        columns[f"noisy sum of outcomes, {whose}"] = release.noisy_sums[rows].astype(np.float64)
    return columns


def _signature(
    mechanism: Mechanism, instance: Instance, release: StrataRelease, own: Floats
) -> Floats:
    """Categories of the changed unit's draw, the priors at γ, and the noisy counts' sides.

    A noisy count is on D's side where it is no less than D's count of the outcome given up, and
    no more than D's count of the outcome taken, a noisy sum where it is D's or further from the
    neighbour's: what gives the greatest ratios, all at once.
    """
    gamma = mechanism.parameters.truncation_threshold
    moved = (instance.from_cell, instance.to_cell)
    bits = [release.response.prior[:, cell] <= gamma for cell in moved]
    if release.noisy_counts is not None:
        given, taken = (release.noisy_counts[:, cell] - instance.counts[cell] for cell in moved)
        bits += [given >= 0, taken <= 0]
    lattice = mechanism.parameters.lattice
    if release.noisy_sums is not None and lattice is not None:
        total = int(np.dot(lattice.steps, instance.counts))
        upward = lattice.steps[instance.to_cell] > lattice.steps[instance.from_cell]
        bits.append(release.noisy_sums <= total if upward else release.noisy_sums >= total)
    places = 3.0 * 2.0 ** np.arange(len(bits))
    signature: Floats = own + places @ np.stack(bits)
    return signature


def _called(
    mechanism: Mechanism, instance: Instance, counts: tuple[int, ...], level: int, size: int
) -> Sample:
    """Three strata a call, the middle one with the changed unit; all columns of the outer two."""
    k = instance.n_outcomes
    still = np.diff(np.arange(k + 1) * max(k, instance.n_units) // k)
    data = np.stack([still, np.array(counts), still])
    levels = np.concatenate([[level], *([np.repeat(np.arange(k), still)] * 2)])
    strata = np.repeat([1, 0, 2], [1, still.sum(), still.sum()])
    rows = [_one_call(mechanism, instance, data, levels, strata) for _ in range(size)]
    return Sample({name: np.array([row[name] for row in rows]) for name in rows[0]})


def _one_call(
    mechanism: Mechanism, instance: Instance, data: Integers, levels: Integers, strata: Integers
) -> dict[str, float]:
    release = mechanism.strata(data)
    drawn = release.response.draw(levels, strata)
    row = {DRAW: float(_kind(drawn[:1], instance)[0])}
    for stratum, whose in ((0, "stratum before"), (2, "stratum after")):
        about = _about(release, instance, np.array([stratum]), whose)
        row |= {name: float(values[0]) for name, values in about.items()}
        here = drawn[strata == stratum]
        row[f"draws of the outcome given up, {whose}"] = float((here == instance.from_cell).sum())
        row[f"draws of the outcome taken, {whose}"] = float((here == instance.to_cell).sum())
    return row
