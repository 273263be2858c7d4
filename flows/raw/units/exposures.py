"""From exposures to units: the first exposure of a unit fixes its arm, its cluster and its clock.

All of it reads public fields alone, and nothing depends on the order of rows or on how they are
spread over files. The philosophy is that of a log of units (:func:`schemas.raw.rules`): a unit
that was seen with two different arms has no arm anybody can vouch for, whether both are declared,
one is not or one is missing, and whatever else is wrong with the row that says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flows.raw.spill.unit_order import order_units
from schemas.raw import ARM, CLUSTER, FAULT, FILE, ROW, TIME, UNIT

_NO_ARM = np.uint32(0xFFFFFFFF)


@dataclass(frozen=True)
class Exposures:
    """The units of some exposures, and the exposures that are set aside for two arms."""

    kept: pl.DataFrame
    """A row a unit, sorted by it: its first exposure, with the columns of the input."""
    contaminated: pl.DataFrame
    """Every sound exposure of a unit seen with two arms (rule ``unit_in_two_arms``), as logged."""
    n_changed: int = 0
    """Units that are kept of which a later exposure states other facts than the first."""


def first_exposures(
    frame: pl.DataFrame, facts: Sequence[str] = (), *, private_clusters: bool = False
) -> Exposures:
    """Find the first sound exposure of each unit, and the units that were seen with two arms.

    ``frame`` holds all rows of its units, in any order: ``unit`` (Int64, UInt64 or String, not
    null), ``arm`` (UInt32, a code an arm; a missing arm is any code of its own, or null),
    ``cluster`` (Categorical or Enum), ``time`` (Int64, µs in UTC), ``source_file``, ``source_row``
    (together different in every row) and ``fault`` (UInt8; 0 for a sound row, which then has a
    time and a cluster). Other columns come along; of those in ``facts`` it is counted how many
    units have exposures that differ. Faulty rows are set aside by the rule they break,
    not here; they are there to judge their unit by its arms. A faulty row that agrees in its arm
    with the others of its unit does them no harm, nor does another cluster: exposures may be many.

    The first exposure is the one of least time; of several at that time, the one whose cluster's
    name comes first, then the one of the least facts, then its file, then its row (their arm is the
    same). With ``private_clusters`` facts come before the cluster, which decides none of them.
    """
    order = order_units(frame[UNIT])
    frame = order.rows(frame)
    row_unit, starts = np.cumsum(~order.repeats) - 1, np.flatnonzero(~order.repeats)
    codes = frame[ARM].fill_null(int(_NO_ARM)).to_numpy()  # a missing arm is one of its own
    mixed = np.minimum.reduceat(codes, starts) != np.maximum.reduceat(codes, starts)
    mixed = mixed[row_unit]
    sound = (frame[FAULT] == 0).to_numpy()
    contaminated = frame.filter(pl.Series(sound & mixed)).sort(FILE, ROW)
    kept = sound & ~mixed
    candidates, row_unit = frame.filter(pl.Series(kept)), row_unit[kept]
    if candidates[TIME].null_count():
        raise AssertionError(
            "sound exposures without a time: the rule time_missing was not applied"
        )
    every, unit_of_every = candidates, row_unit
    described = (*facts, CLUSTER) if private_clusters else (CLUSTER, *facts)
    for name in (TIME, *described, FILE, ROW):
        row_unit, starts = _numbered(row_unit)
        if len(starts) == candidates.height:
            break
        values = _ranks(candidates[name])
        least = values == np.minimum.reduceat(values, starts)[row_unit]
        candidates, row_unit = candidates.filter(pl.Series(least)), row_unit[least]
    n_changed = _n_changed(every, unit_of_every, candidates, facts)
    return Exposures(candidates, contaminated, n_changed)


def _n_changed(
    every: pl.DataFrame, row_unit: NDArray[np.int64], first: pl.DataFrame, facts: Sequence[str]
) -> int:
    """How many units have an exposure among ``every`` whose facts are not those of the first."""
    if first.height == every.height:
        return 0
    row_unit, starts = _numbered(row_unit)
    differs = np.zeros(every.height, np.bool_)
    for name in facts:
        differs |= every[name].ne_missing(first[name].gather(row_unit)).to_numpy()
    return int(np.count_nonzero(np.bincount(row_unit[differs], minlength=len(starts))))


def _numbered(row_unit: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The number of each row's unit, 0 for the first, and where each unit's rows begin.

    ``row_unit`` are numbers that rise, of rows some of which were taken out.
    """
    begins = np.diff(row_unit, prepend=-1) > 0
    return np.cumsum(begins) - 1, np.flatnonzero(begins)


def _ranks(column: pl.Series) -> NDArray[np.integer]:
    """Numbers in the order of the values, of clusters that of their names as text; nulls first."""
    if isinstance(column.dtype, pl.Categorical | pl.Enum):
        names = column.unique().drop_nulls().cast(pl.String).sort()
        column = column.cast(pl.Enum(names)).to_physical()
    if column.dtype.is_integer() and not column.null_count():
        return column.to_numpy()
    values = column.cast(pl.UInt8) if column.dtype == pl.Boolean else column
    return values.rank("dense").cast(pl.Int64).fill_null(0).to_numpy()
