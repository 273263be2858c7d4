"""What is wrong with a row, as far as the rules tell that read one row alone."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from schemas.raw import (
    ARM,
    ASSIGNED,
    CLUSTER,
    FAULT,
    PAYER,
    RULE,
    TIME,
    UNIT,
    UNIT_RULES,
    Rule,
)

_MISSING = np.uint32(0xFFFFFFFF)  # the code of an arm that is null
_ARM_TEXT = "text of arm"
_UNDECLARED = 1 << 16  # codes of arms that are not declared begin here


def coded(batch: pl.DataFrame, arms: tuple[str, ...], rules: Sequence[Rule]) -> pl.DataFrame:
    """Arms as codes (UInt32), and :data:`FAULT`: 0, or 1 for rows that break a rule on one row.

    Where some do, the columns ``text of arm`` and ``rule`` say more.
    """
    if _is_sound(batch):
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


def _is_sound(batch: pl.DataFrame) -> bool:
    """Whether no row of a batch breaks a rule by itself, told without looking at each."""
    named = [name for name in (UNIT, CLUSTER, TIME, PAYER, ASSIGNED) if name in batch.columns]
    is_declared = isinstance(batch.schema[ARM], pl.Enum)
    return is_declared and all(batch[name].null_count() == 0 for name in named)


def first_broken(rules: Sequence[Rule], *, of_units: bool) -> pl.Expr:
    """Name of the first rule a row breaks; null where it breaks none.

    The rules are those that read all rows ``of_units``, or the others, which read one row alone.
    """
    applied = [rule for rule in rules if (rule.name in UNIT_RULES) == of_units]
    return pl.coalesce([pl.when(rule.faulty).then(pl.lit(rule.name)) for rule in applied])
