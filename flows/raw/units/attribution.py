"""From outcome events to one outcome a unit: which events count, and what they add up to.

Neighbouring logs differ in one unit's outcome, that is, in any of that unit's events: how many
there are, when they were and what they are worth. What is computed here for a unit is a function
of its own events and of its first exposure's time, which is public, so a neighbouring log changes
one outcome and the guarantee is that of an outcome that was logged as such. The rows that come
out are the exposures that went in, in their order, whatever the events are, and no event can make
anything fail.

The rules, in this order, all public:

1. An event without a readable time or value, or of a unit that has no exposure, is no event.
2. An event counts once. With ids, rows of a unit with the same id are copies of one event, which
   happened at the earliest of their times (and is worth the least of the values at that time).
   Without an id, rows that agree in unit, time and value are copies of one event.
3. An event counts if t₀ ≤ t < t₀ + w, where t₀ is the first exposure of its unit and w the window.
4. The aggregate of a unit's events v₁, v₂, …: how many there are (``count``), Σv (``sum``), max v
   (``max``), or 1 if any v ≠ 0 and else 0 (``any``). Events without a value column have v = 1.
5. The aggregate is clipped to [−cap, cap], if there is a cap. The grid's clip comes afterwards.
6. A unit without an event that counts has NaN, as has a sum of ∞ and −∞: the outcome is missing.

Nothing depends on the order of rows. Sums add a unit's values by time, then value, in double
precision, so that the same events give the same bits however they are shuffled or split.
"""

from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flows.runtime.threads import rising
from schemas.arrays import Floats
from schemas.raw import EVENT, TIME, UNIT, VALUE

Aggregate = Literal["count", "sum", "max", "any"]

_PLACE = "place"
_SINCE = "since"
_EXPOSED = "exposed"
_KEY_BITS = 63
_SPARSE = 8  # a table of positions may have this many entries a row


def attributed(
    events: pl.DataFrame,
    exposures: pl.DataFrame,
    *,
    aggregate: Aggregate,
    window: int | None,
    cap: float | None = None,
) -> Floats:
    """The outcome of each of the ``exposures``, shape [n] in their order; NaN where it is missing.

    ``exposures`` has one row a unit: ``unit`` and ``time`` (Int64, µs in UTC, not null; null-free
    as :func:`~flows.raw.units.exposures.first_exposures` keeps them). ``events`` has ``unit`` of
    the same type, ``time`` (Int64, null where unreadable), ``value`` (Float64, NaN where missing or
    unreadable; without the column every event is worth 1) and, where events have ids, ``event`` (of
    any type that can be compared; a null is no id). Times lie within ±2⁶² µs. ``window`` is in µs,
    None without an end; ``cap`` is positive. The rules are those above.
    """
    n_units = exposures.height
    found = _of_exposed(events, exposures, window)
    in_window = pl.col(_SINCE) >= 0
    if EVENT in found.columns:
        known = _first_copies(found.filter(pl.col(EVENT).is_not_null())).filter(in_window)
        other = found.filter(pl.col(EVENT).is_null(), in_window).drop(EVENT)
        counting = pl.concat([known.drop(EVENT), _in_order(other, distinct=True)])
        if aggregate == "sum":
            counting = _in_order(counting)
    else:
        counting = found.filter(in_window)
        if aggregate in ("count", "sum"):
            counting = _in_order(counting, distinct=True)
    outcome = _aggregated(counting, n_units, aggregate)
    return outcome if cap is None else np.clip(outcome, -cap, cap)


def _of_exposed(events: pl.DataFrame, exposures: pl.DataFrame, window: int | None) -> pl.DataFrame:
    """Readable events of exposed units: ``place since value`` and ``event``, if there are ids.

    Those past the window are left out here, which changes no copy that counts: the earliest of an
    event's copies does. Those before the exposure stay, as their copies may lie in the window.
    """
    value = pl.col(VALUE) + 0.0 if VALUE in events.columns else pl.lit(1.0).alias(VALUE)  # no -0.0
    columns = [
        pl.col(_PLACE).cast(pl.Int64),
        (pl.col(TIME) - pl.col(_EXPOSED)).alias(_SINCE),
        value,
    ]
    more = [EVENT] if EVENT in events.columns else []
    counts = pl.col(_SINCE).is_not_null() & pl.col(VALUE).is_not_nan()
    if window is not None:
        counts &= pl.col(_SINCE) < window
    # Of integers, the streaming engine joins in half of the time; of texts, in twice of it.
    engine: Literal["streaming", "in-memory"] = (
        "streaming" if events[UNIT].dtype.is_integer() else "in-memory"
    )
    return _placed(events, exposures).select(*columns, *more).filter(counts).collect(engine=engine)


def _placed(events: pl.DataFrame, exposures: pl.DataFrame) -> pl.LazyFrame:
    """The events, in any order, beside their unit's row among ``exposures`` and its time there.

    Those of other units are left out, or have null there.
    """
    wanted, units = events[UNIT], exposures[UNIT]
    if units.dtype.is_integer() and len(units):
        # Of integers, as the line above found; polars' types know no more than "some value".
        least, greatest = int(units.min()), int(units.max())  # type: ignore[arg-type]
        if greatest - least < _SPARSE * (len(units) + len(wanted)):
            table = np.full(greatest - least + 2, -1, np.int32)
            table[(units - least).to_numpy()] = np.arange(len(units), dtype=np.int32)
            inside = wanted.is_between(least, greatest).fill_null(value=False).to_numpy()
            entry = np.where(inside, (wanted - least).fill_null(0).to_numpy(), greatest - least + 1)
            rows = pl.Series(table[entry])
            rows = rows.set(rows < 0, None)
            exposed = exposures[TIME].gather(rows)
            return events.lazy().with_columns(rows.alias(_PLACE), exposed.alias(_EXPOSED))
    placed = exposures.lazy().select(UNIT, pl.col(TIME).alias(_EXPOSED)).with_row_index(_PLACE)
    return events.lazy().join(placed, on=UNIT)


def _first_copies(found: pl.DataFrame) -> pl.DataFrame:
    """One row of each (unit, id): the earliest, and of these the one of least value."""
    mixed = found[EVENT].hash(1) ^ found[_PLACE].hash(2)
    suspect = mixed.is_duplicated()  # also where two hashes collide, which does no harm
    if not suspect.any():
        return found
    several = found.filter(suspect).sort(_PLACE, EVENT, _SINCE, VALUE)
    first = (pl.col(_PLACE) != pl.col(_PLACE).shift()) | (pl.col(EVENT) != pl.col(EVENT).shift())
    return pl.concat([found.filter(~suspect), several.filter(first.fill_null(value=True))])


def _in_order(events: pl.DataFrame, *, distinct: bool = False) -> pl.DataFrame:
    """Sort by unit, time and value, with one sort of one integer and a second of its ties.

    The integer is the unit's row, followed by as many leading bits of the time as there is room.
    If ``distinct``, rows that agree in all three count once.
    """
    if events.is_empty():
        return events
    place, since, value = (events[name].to_numpy() for name in (_PLACE, _SINCE, VALUE))
    time_bits = int(since.max()).bit_length()
    shift = max(0, int(place.max()).bit_length() + time_bits - _KEY_BITS)
    key = (place << (time_bits - shift)) | (since >> shift)
    columns = {"key": key, _SINCE: since, VALUE: value}
    if not shift:
        del columns[_SINCE]  # the key holds all of it
        if value.min() == value.max():  # as where each is worth 1
            del columns[VALUE]
    if len(columns) == 1:
        rows = pl.DataFrame({"key": rising(key), VALUE: value})
    else:
        rows = pl.DataFrame(columns).sort("key")
    if not shift:
        rows = rows.with_columns((pl.col("key") & ((1 << time_bits) - 1)).alias(_SINCE))
    key = rows["key"].to_numpy()
    tied = _neighbours(key[1:] == key[:-1])
    if distinct and tied.any():  # most ties are copies, and few of these are apart
        rows = rows.filter(pl.Series(~_repeats(rows)))
        key = rows["key"].to_numpy()
        tied = _neighbours(key[1:] == key[:-1])
    slots = np.flatnonzero(tied)
    if len(slots):
        some = rows[slots]
        order = np.arange(len(key))
        order[slots] = slots[np.lexsort((some[VALUE], some[_SINCE], some["key"]))]
        rows = rows[order]
        rows = rows.filter(pl.Series(~_repeats(rows))) if distinct else rows
    places = rows["key"].to_numpy() >> (time_bits - shift)
    return rows.select(pl.Series(_PLACE, places), _SINCE, VALUE)


def _neighbours(same: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which rows are the same as the one before or after; ``same`` tells of the steps between."""
    tied = np.zeros(len(same) + 1, np.bool_)
    tied[1:] = same
    tied[:-1] |= same
    return tied


def _repeats(rows: pl.DataFrame) -> NDArray[np.bool_]:
    """Which rows, in order, agree in key, time and value with the one before."""
    repeated = np.ones(rows.height, np.bool_)
    repeated[:1] = False
    for name in (_SINCE, "key", VALUE):
        values = rows[name].to_numpy()
        repeated[1:] &= values[1:] == values[:-1]
    return repeated


def _aggregated(events: pl.DataFrame, n_units: int, aggregate: Aggregate) -> Floats:
    """The aggregate of each unit's events, NaN where there is none; for sums, events in order."""
    place, value = events[_PLACE].to_numpy(), events[VALUE].to_numpy()
    count = np.bincount(place, minlength=n_units)
    if aggregate == "count":
        outcome = count.astype(np.float64)
    elif aggregate == "sum":
        total = np.bincount(place, weights=value, minlength=n_units)
        outcome = total.astype(np.float64, copy=False)  # whole numbers where there are no events
    else:
        values = value if aggregate == "max" else (value != 0).astype(np.float64)
        outcome = np.full(n_units, -np.inf)
        np.maximum.at(outcome, place, values)
    outcome[count == 0] = np.nan
    return outcome
