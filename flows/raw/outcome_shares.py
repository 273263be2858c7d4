"""How many outcomes are missing, unreadable or beyond the grid: of the raw log, for its operator.

No noise is added, so nothing protects these shares: they leave the boundary as one of four coarse
words each, to the terminal of somebody who holds the log, and into no log, state or file.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import polars as pl

from flows.config.model.sections import NamedOutcome
from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.raw.ingest import Log, read_outcome
from flows.raw.reading.columns import TEXT_LIKE
from flows.raw.reading.stores import LogFile
from flows.raw.units.rows import Rows
from schemas.arrays import Floats
from schemas.documents import Document
from schemas.raw import OUTCOME, numbered

CoarseShare = Literal["none", "under 1 %", "1–50 %", "over 50 %"]

_MISSING, _UNREADABLE = 1, 2  # of a row
_BELOW, _ABOVE = 1.0, 2.0  # of a unit


@dataclass(frozen=True)
class OutcomeShares(Document):
    """Of an outcome: of how many rows it cannot be had, and how many units' lie beyond the grid."""

    metric: str
    missing: CoarseShare
    unreadable: CoarseShare
    below: CoarseShare
    above: CoarseShare


@values_free
def with_sides(outcomes: Sequence[NamedOutcome], log: Sealed[Log]) -> Sealed[Log]:
    """The log with 1 for each outcome below the grid, 2 above, else 0, in place of outcomes."""
    sides = tuple(partial(_sides, ends=one.ends) for one in outcomes)
    return Sealed(replace(log.open(), mapped=sides))


@values_free
def outcome_shares(
    outcomes: Sequence[NamedOutcome], log: Sealed[Log], rows: Sealed[Rows]
) -> tuple[OutcomeShares, ...]:
    """Say of each outcome how many are faulty; ``rows`` are of a log :func:`with_sides`.

    Missing and unreadable ones are counted among rows of the log, or outcome events, and those
    beyond the grid among units. Raises InputError where a file cannot be read.
    """
    states, shares = _states(log.open(), outcomes), []
    for position, one in enumerate(outcomes):
        of_rows, sides = states[position], np.zeros(3)
        for column in rows.open().columns(numbered(OUTCOME, position)):
            sides += np.bincount(column.to_numpy().astype(np.int64), minlength=3)
        of_states = (coarse(of_rows[state], of_rows.sum()) for state in (_MISSING, _UNREADABLE))
        of_sides = (coarse(sides[int(side)], sides.sum()) for side in (_BELOW, _ABOVE))
        shares.append(OutcomeShares(one.name, *of_states, *of_sides))
    return tuple(shares)


def coarse(number: float, of: float) -> CoarseShare:
    """A share in words."""
    if number == 0:
        return "none"
    share = number / of
    return "under 1 %" if share < 0.01 else "1–50 %" if share <= 0.5 else "over 50 %"


def _sides(values: Floats, ends: tuple[float, float]) -> Floats:
    return np.where(values < ends[0], _BELOW, np.where(values > ends[1], _ABOVE, 0.0))


def _states(log: Log, outcomes: Sequence[NamedOutcome]) -> Floats:
    """How many rows have a readable outcome, none, and an unreadable one; shape [outcomes, 3]."""
    columns = tuple(dict.fromkeys(one.column for one in outcomes if one.column))
    counts = np.zeros((len(outcomes), 3))
    states = replace(
        log.events or log.roster,
        columns=columns,
        private=frozenset(columns),
        to_expressions=partial(_state_of_rows, outcomes),
    )
    for batch in states.batches() if columns else ():
        for position in range(len(outcomes)):
            state = batch[numbered(OUTCOME, position)].to_numpy()
            counts[position] += np.bincount(state, minlength=3)
    return counts


def _state_of_rows(
    outcomes: Sequence[NamedOutcome], frame: pl.DataFrame, path: LogFile
) -> list[pl.Expr]:
    expressions = []
    for position, one in enumerate(outcomes):
        state = pl.lit(0)
        if one.column:
            column, kind = pl.col(one.column), frame.schema[one.column]
            empty = column.is_null()
            if isinstance(kind, TEXT_LIKE):
                empty |= column.cast(pl.String).str.strip_chars() == ""
            elif kind.is_float():
                empty |= column.is_nan()
            unreadable = read_outcome(one, frame, path).is_nan()
            state = pl.when(empty).then(_MISSING).when(unreadable).then(_UNREADABLE).otherwise(0)
        expressions.append(state.cast(pl.UInt8).alias(numbered(OUTCOME, position)))
    return expressions
