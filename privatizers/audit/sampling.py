"""Replicates of a release of two neighbouring data sets, drawn by the functions a release calls.

Noise and draws come from the mechanism itself, ``mechanism.strata(counts)`` and
``.response.draw(levels, strata)``, hence from the operating system's entropy: no audit can be
repeated draw by draw. Three kinds here, and the *marked* of `marked_replicates`:

- *stacked*: the same stratum many times over, as the strata of one call. The replicates are
  independent if the mechanism treats every stratum by itself, as parallel composition assumes.
- *joint*: three strata at a time, also in one call: the one that holds the changed unit and one on
  either side, where nothing changes. Sums and differences of their noise are looked at.
- *called*: a call for each replicate, with three strata: the one that holds the changed unit and
  one on either side, where nothing changes. The statistics of those two must tell nothing.

Tables of Cluster-Optimal-DP may be made of the counts of all strata of an arm. Of the first two
kinds each replicate is an arm by itself, so that they are independent; of the third all three
strata are one arm.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from privatizers.audit.lower_bounds import DRAW, SIGNATURE, Sample
from privatizers.audit.neighbours import Instance
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP, OptimalRelease
from privatizers.mechanisms.mechanism import Mechanism, StrataRelease
from schemas.arrays import Floats, Ints

_BATCH = 1 << 20  # units drawn at once: bounds memory
_MOST_KEPT = 4_000_000  # noised cells
_MOST_ROWS = 1_000_000  # replicates of which whole columns are kept

Neighbours = tuple[Sample, Sample]
"""Samples under D and under D′."""
UnitMechanism = Mechanism | ClusterOptimalDP
"""A mechanism that publishes units."""
UnitRelease = StrataRelease | OptimalRelease


@dataclass(frozen=True)
class Effort:
    """How much to draw for one audit, in the units that take the time on a grid of any size."""

    noised_cells: int = 320_000_000
    """At most, of marked replicates; a few millions of the others. About 0.3 µs each."""
    units: int = 32_000_000
    """At most, of marked replicates and of stacked ones. About 0.1 µs each."""
    calls: int = 1_600
    """About 1 ms each."""

    def divided(self, number: int) -> "Effort":
        """Return the effort for each of so many outcomes."""
        return Effort(
            self.noised_cells // number, self.units // number, max(self.calls // number, 100)
        )

    @property
    def less(self) -> "Effort":
        """The effort for stacked and joint replicates, of which whole columns are kept."""
        return replace(self, noised_cells=min(self.noised_cells, _MOST_KEPT))


UNDER_TWO_MINUTES = Effort()
"""On one slow core, on any grid."""


def noised_cells(mechanism: UnitMechanism) -> int:
    """Return how many numbers of a stratum get noise, at least 1: this takes the time."""
    parameters = mechanism.parameters
    n_counts = sum(one is not None for one in (parameters.counts, parameters.arm_counts))
    cells = parameters.n_outcomes if parameters.n_outcomes > 2 else 1
    return max(n_counts * cells + (parameters.sums is not None), 1)


def stacked_size(mechanism: UnitMechanism, instance: Instance, effort: Effort) -> int:
    """Return the number of stacked replicates of D, and of D′, that an effort allows."""
    by_units = effort.units // (2 * instance.n_units)
    if mechanism.parameters.noise_scale is None and mechanism.parameters.arm_counts is None:
        return max(min(by_units, _MOST_ROWS), 10)
    by_noise = effort.noised_cells // (2 * noised_cells(mechanism))
    return max(min(by_units, by_noise, _MOST_ROWS), 10)


def sample_stacked(mechanism: UnitMechanism, instance: Instance, size: int) -> Neighbours:
    """Draw ``size`` replicates of the stratum under D, and as many under D′, a call each."""
    here = _stacked(mechanism, instance, instance.counts, instance.from_cell, size)
    return here, _stacked(mechanism, instance, instance.neighbour, instance.to_cell, size)


def joint_size(mechanism: UnitMechanism, effort: Effort) -> int:
    """Return the number of joint replicates of D, and of D′, that an effort allows."""
    return max(min(effort.noised_cells // (6 * noised_cells(mechanism)), _MOST_ROWS // 3), 10)


def sample_joint(mechanism: UnitMechanism, instance: Instance, size: int) -> Neighbours:
    """Draw ``size`` replicates under D, and as many under D′, of a stratum between two others."""
    here = _joint(mechanism, instance, instance.counts, instance.from_cell, size)
    return here, _joint(mechanism, instance, instance.neighbour, instance.to_cell, size)


def sample_called(mechanism: UnitMechanism, instance: Instance, size: int) -> Neighbours:
    """Draw ``size`` replicates under D, and as many under D′, of the statistics of other strata."""
    here = _called(mechanism, instance, instance.counts, instance.from_cell, size)
    return here, _called(mechanism, instance, instance.neighbour, instance.to_cell, size)


def _stacked(
    mechanism: UnitMechanism, instance: Instance, counts: tuple[int, ...], level: int, size: int
) -> Sample:
    release = draw_strata(mechanism, np.tile(np.array(counts, dtype=np.int64), (size, 1)))
    draw, others = _draw_units(release, instance, counts, level, size)
    columns = _public_columns(release, instance, np.arange(size), "its stratum")
    category = signature(mechanism, instance, release, draw)
    return Sample({DRAW: draw, **columns, **others, SIGNATURE: category})


def _draw_units(
    release: UnitRelease, instance: Instance, counts: tuple[int, ...], level: int, size: int
) -> tuple[Floats, dict[str, Floats]]:
    """Draw all units; return the changed unit's draw, and how often others drew its outcomes."""
    others = np.repeat(np.arange(len(counts)), counts)
    others = np.delete(others, np.argmax(others == level))
    levels = np.concatenate([[level], others])
    draw, given, taken = np.empty(size), np.empty(size), np.empty(size)
    step = max(1, _BATCH // len(levels))
    for start in range(0, size, step):
        rows = np.arange(start, min(start + step, size))
        drawn = release.response.draw(
            np.tile(levels, len(rows)), np.repeat(rows, len(levels))
        ).reshape(len(rows), len(levels))
        kinds = kind_of(drawn, np.repeat(rows, len(levels)).reshape(drawn.shape), instance, release)
        draw[rows] = kinds[:, 0]
        given[rows] = (kinds[:, 1:] == 0).sum(axis=1)
        taken[rows] = (kinds[:, 1:] == 1).sum(axis=1)
    return draw, {
        "others' draws of the outcome given up": given,
        "others' draws of the outcome taken": taken,
    }


def draw_strata(mechanism: UnitMechanism, counts: Ints, together: int = 1) -> UnitRelease:
    """Draw the strata of a call; so many ``together``, in a row, are of one arm."""
    if isinstance(mechanism, ClusterOptimalDP):
        return mechanism.strata(counts, np.arange(len(counts)) // together)
    return mechanism.strata(counts)


def kind_of(drawn: Ints, strata: Ints, instance: Instance, release: UnitRelease) -> Floats:
    """Return 0 for the outcome given up, 1 for the one taken, 2 for another; any shape.

    Outputs of a table are of the outcome that is likelier to have them, of neither where both are
    as likely.
    """
    if isinstance(release, StrataRelease):
        given, taken = drawn == instance.from_cell, drawn == instance.to_cell
    else:
        units, table = release.response.units, release.response.table_of[strata]
        here, there = (units[table, cell, drawn] for cell in (instance.from_cell, instance.to_cell))
        given, taken = here > there, here < there
    return np.where(given, 0.0, np.where(taken, 1.0, 2.0))


def _public_columns(
    release: UnitRelease, instance: Instance, rows: Ints, whose: str
) -> dict[str, Floats]:
    """Return the noisy counts and priors of the two changing outcomes, and noisy sums.

    In place of a prior a table has its noise, by which tables differ.
    """
    columns: dict[str, Floats] = {}
    for cell, which in ((instance.from_cell, "given up"), (instance.to_cell, "taken")):
        if isinstance(release, StrataRelease):
            columns[f"prior of the outcome {which}, {whose}"] = release.response.prior[rows, cell]
        else:
            noises = np.array([table.noise[cell] for table in release.response.tables_used])
            name = f"noise of the table for the outcome {which}, {whose}"
            columns[name] = noises[release.response.table_of[rows]]
        if release.noisy_counts is not None:
            noisy = release.noisy_counts[rows, cell].astype(np.float64)
            columns[f"noisy count of the outcome {which}, {whose}"] = noisy
        arms = _arms_of(release, rows)
        if arms is not None:
            noisy = arms[:, cell].astype(np.float64)
            columns[f"noisy count of the outcome {which}, the arm of {whose}"] = noisy
    if release.noisy_sums is not None:
        columns[f"noisy sum of outcomes, {whose}"] = release.noisy_sums[rows].astype(np.float64)
    return columns


def _arms_of(release: UnitRelease, rows: Ints) -> Ints | None:
    """Return the noisy counts of the arms that strata are of, [n, K]; None where none are public.

    Strata of an arm come in a row, as many in each.
    """
    if isinstance(release, StrataRelease) or release.noisy_arms is None:
        return None
    return release.noisy_arms[rows * len(release.noisy_arms) // len(release.response.table_of)]


def signature(
    mechanism: UnitMechanism, instance: Instance, release: UnitRelease, draw: Floats
) -> Floats:
    """Return categories of the changed unit's draw, the priors at γ, and the noisy counts' sides.

    Tables have no γ.
    A noisy count is on D's side where it is at least D's count of the outcome given up, or at most
    D's count of the outcome taken; a noisy sum where it is D's sum or further from the neighbour's.
    Each stratum is an arm of its own.
    Together these facts give the greatest ratios of probabilities.
    """
    gamma = mechanism.parameters.truncation_threshold
    moved = (instance.from_cell, instance.to_cell)
    bits = []
    if isinstance(release, StrataRelease) and gamma is not None:
        bits += [release.response.prior[:, cell] <= gamma for cell in moved]
    for noisy in (release.noisy_counts, _arms_of(release, np.arange(len(draw)))):
        if noisy is not None:
            given, taken = (noisy[:, cell] - instance.counts[cell] for cell in moved)
            bits += [given >= 0, taken <= 0]
    lattice = mechanism.parameters.lattice
    if release.noisy_sums is not None and lattice is not None:
        total = int(np.dot(lattice.steps, instance.counts))
        upward = lattice.steps[instance.to_cell] > lattice.steps[instance.from_cell]
        bits.append(release.noisy_sums <= total if upward else release.noisy_sums >= total)
    values = 3.0 * 2.0 ** np.arange(len(bits))
    category: Floats = draw + values @ np.stack(bits) if bits else draw
    return category


def unchanged_counts(instance: Instance) -> Ints:
    """Return the counts of a stratum in which nothing changes, shape [K]."""
    k = instance.n_outcomes
    return np.diff(np.arange(k + 1) * max(k, instance.n_units) // k)


def _joint(
    mechanism: UnitMechanism, instance: Instance, counts: tuple[int, ...], level: int, size: int
) -> Sample:
    still = unchanged_counts(instance)
    release = draw_strata(
        mechanism, np.tile(np.stack([still, np.array(counts), still]), (size, 1)), together=3
    )
    middle = 1 + 3 * np.arange(size)
    drawn = release.response.draw(np.full(size, level), middle)
    columns = {DRAW: kind_of(drawn, middle, instance, release)}
    return Sample(
        columns | joint_columns(partial(_public_columns, release, instance), middle, "stratum")
    )


def joint_columns(
    public: Callable[[Ints, str], dict[str, Floats]], middle: Ints, what: str
) -> dict[str, Floats]:
    """Return the columns of the rows before and after those in the ``middle``, where all changes.

    And sums and differences of theirs with those of the middle. ``public`` gives columns of rows,
    named by whose they are; a row is a ``what``.
    """
    columns: dict[str, Floats] = {}
    changed = public(middle, "")
    for rows, whose in ((middle - 1, f"{what} before"), (middle + 1, f"{what} after")):
        columns |= public(rows, whose)
        columns |= _sums_and_differences(changed, public(rows, ""), whose)
    return columns


def _sums_and_differences(
    changed: dict[str, Floats], other: dict[str, Floats], whose: str
) -> dict[str, Floats]:
    """Return sums and differences of the noisy columns of two strata, by name."""
    columns = {}
    for name, values in changed.items():
        if name.startswith("noisy"):
            columns[f"{name}its stratum, less that of the {whose}"] = values - other[name]
            columns[f"{name}its stratum, with that of the {whose}"] = values + other[name]
    return columns


def _called(
    mechanism: UnitMechanism, instance: Instance, counts: tuple[int, ...], level: int, size: int
) -> Sample:
    """Draw three strata a call, the middle one with the changed unit; columns of the outer two."""
    k, still = instance.n_outcomes, unchanged_counts(instance)
    data = np.stack([still, np.array(counts), still])
    levels = np.concatenate([[level], *([np.repeat(np.arange(k), still)] * 2)])
    strata = np.repeat([1, 0, 2], [1, still.sum(), still.sum()])
    rows = [_sample_call(mechanism, instance, data, levels, strata) for _ in range(size)]
    return Sample({name: np.array([row[name] for row in rows]) for name in rows[0]})


def _sample_call(
    mechanism: UnitMechanism, instance: Instance, data: Ints, levels: Ints, strata: Ints
) -> dict[str, float]:
    release = draw_strata(mechanism, data, together=3)
    drawn = release.response.draw(levels, strata)
    kinds = kind_of(drawn, strata, instance, release)
    row = {DRAW: float(kinds[0])}
    for stratum, whose in ((0, "stratum before"), (2, "stratum after")):
        columns = _public_columns(release, instance, np.array([stratum]), whose)
        row |= {name: float(values[0]) for name, values in columns.items()}
        here = kinds[strata == stratum]
        row[f"draws of the outcome given up, {whose}"] = float((here == 0).sum())
        row[f"draws of the outcome taken, {whose}"] = float((here == 1).sum())
    return row
