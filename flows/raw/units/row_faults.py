"""What is wrong with a row, and what becomes of units that have several.

Of several rows the first counts where they agree in all that is public, or none does. Which is the
first goes by the order of the log, files by their names and the rows of each as they stand. So who
is released, and by which row, hangs on no outcome.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl

from schemas.arrays import Bools
from schemas.raw import (
    ARM,
    ASSIGNED,
    CLUSTER,
    FAULT,
    PAYER,
    PLACE,
    RULE,
    TIME,
    UNIT,
    UNIT_RULES,
    Rule,
)
from schemas.roster import Repeats

_MISSING = np.uint32(0xFFFFFFFF)  # the code of an arm that is null
_ARM_TEXT = "text of arm"
_UNDECLARED = 1 << 16  # codes of arms that are not declared begin here


def coded(batch: pl.DataFrame, arms: tuple[str, ...], rules: Sequence[Rule]) -> pl.DataFrame:
    """Arms as codes (UInt32), and :data:`FAULT`: 0, or 1 for rows that break a rule on one row.

    Where some do, the columns ``text of arm`` and ``rule`` say more.
    """
    named = [name for name in (UNIT, CLUSTER, TIME, PAYER, ASSIGNED) if name in batch.columns]
    is_declared = isinstance(batch.schema[ARM], pl.Enum)
    if is_declared and all(batch[name].null_count() == 0 for name in named):  # none breaks a rule
        return batch.with_columns(
            pl.col(ARM).to_physical().cast(pl.UInt32), pl.lit(0, pl.UInt8).alias(FAULT)
        )
    text = batch.with_columns(pl.col(ARM, CLUSTER).cast(pl.String))
    declared = pl.col(ARM).cast(pl.Enum(arms), strict=False).to_physical().cast(pl.UInt32)
    other = pl.col(ARM).hash() % (int(_MISSING) - _UNDECLARED) + _UNDECLARED
    code = pl.coalesce(
        declared,
        pl.when(pl.col(ARM).is_not_null()).then(other.cast(pl.UInt32)),
        pl.lit(_MISSING, pl.UInt32),
    )
    return text.with_columns(first_broken(rules, of_units=False).alias(RULE)).with_columns(
        code.alias(ARM),
        pl.col(ARM).alias(_ARM_TEXT),
        pl.col(CLUSTER).cast(pl.Categorical),
        pl.col(RULE).is_not_null().cast(pl.UInt8).alias(FAULT),
    )


def parted(batch: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """All rows that have a unit, faulty ones to judge it by; and the faulty ones, as text."""
    if RULE not in batch.columns:
        return batch, None
    faulty = batch.filter(pl.col(RULE).is_not_null()).with_columns(
        pl.col(_ARM_TEXT).alias(ARM), pl.col(CLUSTER).cast(pl.String)
    )
    return batch.filter(pl.col(UNIT).is_not_null()).drop(RULE, _ARM_TEXT), faulty


def first_broken(rules: Sequence[Rule], *, of_units: bool) -> pl.Expr:
    """Name of the first rule a row breaks; null where it breaks none.

    The rules are those that read all rows ``of_units``, or the others, which read one row alone.
    """
    applied = [rule for rule in rules if (rule.name in UNIT_RULES) == of_units]
    return pl.coalesce([pl.when(rule.faulty).then(pl.lit(rule.name)) for rule in applied])


def judge_repeated(
    rows: pl.DataFrame, repeats: Bools, stated: Sequence[str], *, first_counts: bool
) -> tuple[Bools, Bools, Repeats]:
    """Judge ``rows``, one or more, in the order of their units, each of which has several.

    ``repeats`` says of each row whether its unit is that of the row before, shape [n]. The rows of
    a unit are alike where all are sound and agree in the columns ``stated``, nulls among them; then
    the first is kept if the ``first_counts``. All others are set aside. A unit without a sound row
    is lost for its faults, not for standing in several.

    Returns which rows are kept and which sound ones are set aside, shape [n] each, those that are
    neither being faulty or not used; and what becomes of the units.
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
        return np.zeros_like(sound), sound, found
    place = rows.select(PLACE).to_series().to_numpy()
    is_first = place == np.minimum.reduceat(place, starts)[unit]
    found = Repeats(
        n_lost=int((has_sound & ~alike).sum()), n_unused=int((alike[unit] & ~is_first).sum())
    )
    return alike[unit] & is_first, sound & ~alike[unit], found
