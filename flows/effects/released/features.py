"""The columns of an analyst's table as features of effects: bounds, levels, subgroups.

Nothing here looks at an outcome: what is declared follows from the table, and from which of its
units are in the release.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from flows.released.tables.analyst_table import UNIT_ID, AnalystTable, column_codes, level_codes
from schemas.arrays import Floats
from schemas.effects.model import Feature, LevelFeature, NumberFeature, Subgroups
from schemas.errors import InputError

MAX_TERMS: Final = 100
"""The most terms of a curve of all features together: two of a number, values less one of a text.
"""
_FEW_CELLS: Final = 0.16
"""Part of its range: a number of which most lies within has a curve of next to nothing."""


class Column(NamedTuple):
    """A column of the table that varies, as a feature of an effect model."""

    feature: Feature
    code: str
    """Its name beside the release."""
    groups: Subgroups


def columns_of(table: AnalystTable, known: pl.DataFrame) -> tuple[Column, ...]:
    """Declare the columns of a table that vary among its units ``known`` in the release, too.

    Raises InputError where there is none, or where they make too many terms.
    """
    codes = dict(column_codes(table))
    found = (_feature(known[code], name, table.file) for name, code in codes.items())
    features = [feature for feature in found if feature is not None]
    if not features:
        raise InputError(f"{table.file}: no column varies among the units of the release")
    n_terms = sum(len(one.levels) - 1 if isinstance(one, LevelFeature) else 2 for one in features)
    if n_terms > MAX_TERMS:
        raise InputError(
            f"{table.file}: its columns make {n_terms} terms of a curve (two of a number, its "
            f"values less one of a text), more than {MAX_TERMS}; leave some out"
        )
    return tuple(
        Column(one, codes[one.name], _partition(one, known[codes[one.name]])) for one in features
    )


def _feature(values: pl.Series, name: str, file: Path) -> Feature | None:
    if values.dtype == pl.String:
        levels, _ = level_codes(values, name, file)
        return LevelFeature(name, tuple(levels)) if len(levels) > 1 else None
    numbers = values.drop_nulls().to_numpy()
    low, high = (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 0.0)
    # a range that is next to nothing beside its place has no positions in doubles
    if not high - low > 1e-12 * max(abs(low), abs(high)):
        return None
    return NumberFeature(name, low, high)


def _partition(feature: Feature, values: pl.Series) -> Subgroups:
    """Part the units by a text's values, or by a number's quarters: fewer where these coincide."""
    if isinstance(feature, LevelFeature):
        return Subgroups(feature.name, feature.name)
    numbers = values.drop_nulls().to_numpy()
    least = np.finfo(np.float64).tiny  # numbers may lie closer than any that has all its digits
    step = 10.0 ** np.floor(np.log10(max((feature.high - feature.low) / 100.0, least)))
    quarters = np.quantile(numbers, [0.25, 0.5, 0.75])
    rounded = np.round(quarters / step) * step
    edges = _parting(rounded, numbers)
    if not edges:
        edges = _parting(quarters, numbers)
    if not edges:  # most of it is the least value
        edges = (float(numbers[numbers > feature.low].min()),)
    groups = Subgroups(feature.name, feature.name, edges)
    names = [f"{edge:g}" for edge in edges]
    return groups if len(set(names)) == len(names) else replace(groups, edges=edges[:1])


def _parting(edges: Floats, numbers: Floats) -> tuple[float, ...]:
    """Those of rising ``edges`` that leave some of the ``numbers`` on either side of each."""
    found: list[float] = []
    for edge in np.unique(edges).tolist():
        below = found[-1] if found else -np.inf
        if ((numbers >= below) & (numbers < edge)).any() and (numbers >= edge).any():
            found.append(edge)
    return tuple(found)


def positions(feature: Feature, values: pl.Series, file: Path) -> Floats:
    """Return a feature as an effect model takes it, shape [n]; NaN where there is no value."""
    if isinstance(feature, LevelFeature):
        _, codes = level_codes(values, feature.name, file)
        return np.where(codes < 0, np.nan, codes.astype(np.float64))
    return feature.positions(values.cast(pl.Float64).fill_null(float("nan")).to_numpy())


def members(rows: pl.DataFrame, column: Column) -> pl.DataFrame:
    """Return ``unit_id`` and ``at``, the number of its subgroup, of all units that are in one.

    ``rows`` have the ``unit_id`` and the feature, as text or numbers, in the column's ``code``.
    """
    value, feature = rows[column.code], column.feature
    if isinstance(feature, LevelFeature):  # other texts are of nobody in the release
        at = value.cast(pl.Enum(feature.levels), strict=False).to_physical().cast(pl.Int64)
    else:
        known = value.fill_null(float("nan")).to_numpy()
        found = np.searchsorted(column.groups.edges or (), known, side="right")
        at = pl.Series(found, dtype=pl.Int64).set(value.is_null(), None)
    return rows.select(UNIT_ID, at.alias("at")).drop_nulls("at")


def is_narrow(feature: NumberFeature, values: pl.Series) -> bool:
    """Whether nine tenths of a number lie within :data:`_FEW_CELLS` of its range, but not on one.

    A number of two values does not count: there a straight line says all.
    """
    positions = np.sort(feature.positions(values.drop_nulls().to_numpy()))
    n = len(positions)
    width = positions[min(int(0.95 * n), n - 1)] - positions[int(0.05 * n)]
    return bool(0.0 < width < _FEW_CELLS)
