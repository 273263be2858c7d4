"""Several rows of a unit: the first counts where they agree in all that is public, or none does.

Which is the first goes by the order of the log, files by their names and the rows of each as they
stand. So who is released, and by which row, hangs on no outcome.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from schemas.arrays import Bools
from schemas.raw import FAULT, PLACE
from schemas.roster import Repeats


@dataclass(frozen=True)
class RepeatedRows:
    """What becomes of the rows of units that have several, each of the shape [n]."""

    kept: Bools
    aside: Bools
    """Sound rows that are set aside; those neither kept nor here are faulty, or not used."""
    repeats: Repeats


def judge_repeated(
    rows: pl.DataFrame, repeats: Bools, stated: Sequence[str], *, first_counts: bool
) -> RepeatedRows:
    """Judge ``rows``, one or more, in the order of their units, each of which has several.

    ``repeats`` says of each row whether its unit is that of the row before, shape [n]. The rows of
    a unit are alike where all are sound and agree in the columns ``stated``, nulls among them; then
    the first is kept if the ``first_counts``. All others are set aside. A unit without a sound row
    is lost for its faults, not for standing in several.
    """
    starts, unit = np.flatnonzero(~repeats), np.cumsum(~repeats) - 1
    sound = rows[FAULT].to_numpy() == 0
    differs = ~sound
    for name in stated:
        column = rows[name].to_physical()
        differs |= repeats & column.ne_missing(column.shift()).to_numpy()
    alike = ~np.logical_or.reduceat(differs, starts)
    has_sound = np.logical_or.reduceat(sound, starts)
    if not first_counts:
        found = Repeats(n_lost=int(has_sound.sum()), n_alike=int(alike.sum()))
        return RepeatedRows(np.zeros_like(sound), sound, found)
    place = rows.select(PLACE).to_series().to_numpy()
    is_first = place == np.minimum.reduceat(place, starts)[unit]
    found = Repeats(
        n_lost=int((has_sound & ~alike).sum()), n_unused=int((alike[unit] & ~is_first).sum())
    )
    return RepeatedRows(alike[unit] & is_first, sound & ~alike[unit], found)
