"""Published attributes as an analyst's table has covariates: numbers, and texts of few values.

Nothing here looks at an outcome, so what is done to an attribute biases no effect.
"""

from pathlib import Path
from typing import Final

import duckdb
import polars as pl

from estimators.regression import UNITS_PER_COLUMN
from flows.released.file.evidence import read_frame
from flows.released.file.read import open_release, read_manifest
from flows.released.file.sql import quote_name
from flows.released.tables.analyst_table import MAX_LEVELS, UNIT_ID
from schemas.errors import ConfigError, InputError, shown

OTHER: Final = "(other)"
"""What rare texts of an attribute count as, together."""
LEAST_UNITS: Final = 2 * UNITS_PER_COLUMN
"""A text of fewer units is rare."""

_CODE: Final = r"^\s*[+-]?0[0-9]"  # zeros before a number: a code, such as of a place
_MOST_OTHERS: Final = 0.5  # of the units


def attribute_table(
    path: Path, names: tuple[str, ...] | None, key: str
) -> tuple[pl.DataFrame, dict[str, int]]:
    """Read attributes of the release at ``path``, None for all; with the number of rare texts.

    The table has ``unit_id`` and a column for each attribute: dates as days since 1970, text
    that is a number in every row as numbers. Texts of fewer than
    :data:`LEAST_UNITS` units, and all but the most frequent, count as :data:`OTHER`. The second
    value has the number of these by attribute, where there are any.

    Raises:
        ConfigError: The release has no such attribute; it names ``key``.
        InputError: It publishes no units, or most units have a rare text.
    """
    units = _read_attributes(path, names, key)
    columns, rare = [units[UNIT_ID]], {}
    for column in units.drop(UNIT_ID).get_columns():
        values = _as_numbers(column)
        if values.dtype in (pl.String, pl.Boolean):
            values, n_rare = _pooled(values.cast(pl.String), path)
            if n_rare:
                rare[column.name] = n_rare
        columns.append(values)
    return pl.DataFrame(columns), rare


def check_attributes(
    connection: duckdb.DuckDBPyConnection, path: Path, names: tuple[str, ...], key: str
) -> None:
    """Raise where the release lacks one of the attributes that were asked for by ``key``.

    InputError where it publishes no units, ConfigError where it has no such attribute.
    """
    manifest = read_manifest(connection)
    if not manifest.has_units:
        raise InputError(
            f"{path.absolute()}: this release has no units, so it has no attributes either: "
            f"{manifest.mechanism} publishes statistics of clusters alone"
        )
    published = manifest.attributes
    for name in names:
        if name not in published:
            has = f"it has {', '.join(published)}" if published else "it publishes none"
            raise ConfigError(key, f"{shown(name)} is no attribute of {path.absolute()}; {has}")


def _read_attributes(path: Path, names: tuple[str, ...] | None, key: str) -> pl.DataFrame:
    """Read ``unit_id``, as text, and attributes of all units; None stands for all attributes.

    Raises as :func:`check_attributes`. Where all are asked for and there is none, a table of
    covariates is missing: ConfigError.
    """
    with open_release(path) as connection:
        wanted = names
        if wanted is None:
            wanted = read_manifest(connection).attributes
            if not wanted:
                raise ConfigError(
                    "covariates",
                    "missing; give a table of yours with unit_id and what may matter: "
                    f"{path.absolute()} publishes no attributes",
                )
        check_attributes(connection, path, wanted, key)
        columns = ", ".join(map(quote_name, dict.fromkeys(wanted)))
        query = f"SELECT unit_id::VARCHAR AS unit_id, {columns} FROM main.units"  # noqa: S608 - quoted names
        return read_frame(connection, query)


def _as_numbers(column: pl.Series) -> pl.Series:
    """Dates, and texts that are all numbers, as numbers; others as they are."""
    kind = column.dtype
    if kind == pl.Date:
        return column.to_physical().cast(pl.Float64)
    if kind != pl.String or column.str.contains(_CODE).any():
        return column
    numbers = column.str.strip_chars().cast(pl.Float64, strict=False)
    is_all = numbers.null_count() == column.null_count() < column.len()
    return numbers if is_all and bool(numbers.drop_nulls().is_finite().all()) else column


def _pooled(texts: pl.Series, path: Path) -> tuple[pl.Series, int]:
    """Texts with the rare ones replaced by :data:`OTHER`, and how many these are."""
    name = texts.name
    counts = texts.drop_nulls().rename("text").value_counts().sort("count", "text", descending=True)
    is_kept = (counts["count"] >= LEAST_UNITS) & (
        pl.int_range(counts.height, eager=True) < MAX_LEVELS - 1
    )
    if counts.height <= MAX_LEVELS and (counts["count"] >= LEAST_UNITS).all():
        return texts, 0
    kept, n_rare = counts.filter(is_kept), counts.height - int(is_kept.sum())
    n_known = int(counts["count"].sum())
    n_others = n_known - int(kept["count"].sum())
    if n_others > _MOST_OTHERS * n_known:
        raise InputError(
            f"{path.absolute()}: attribute {name!r} has {counts.height:,} different texts, and "
            f"{n_others:,} of {n_known:,} units have a rare one (of under {LEAST_UNITS} units, or "
            f"not among the {MAX_LEVELS - 1} most frequent): leave it out, or group its texts in a "
            "table of yours and give that (--covariates)"
        )
    other = OTHER
    while other in kept["text"]:
        other = f"({other})"
    is_rare = texts.is_not_null() & ~texts.is_in(kept["text"].implode())
    return texts.set(is_rare, other), n_rare


def rare_notes(rare: dict[str, int]) -> tuple[str, ...]:
    """Sentences about attributes whose rare texts count together."""
    return tuple(
        f"{count:,} rare values of attribute {name!r} count together as {OTHER}"
        for name, count in rare.items()
    )
