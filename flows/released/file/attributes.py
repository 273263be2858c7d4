"""Published attributes of a release: columns of ``units`` with public facts of each unit."""

from pathlib import Path
from typing import Final

import duckdb
import polars as pl

from flows.released.file.evidence import read_frame
from flows.released.file.read import open_release, read_manifest
from flows.released.file.sql import quote_name, text
from schemas.errors import ConfigError, InputError, shown
from schemas.tables import NO_VALUE

MAX_SEGMENTS: Final = 1000
"""The most values of an attribute that effects are estimated by."""


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
    known = manifest.attributes
    for name in names:
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it publishes none"
            raise ConfigError(key, f"{shown(name)} is no attribute of {path.absolute()}; {has}")


def read_attributes(path: Path, names: tuple[str, ...] | None, key: str) -> pl.DataFrame:
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


def segments_of(connection: duckdb.DuckDBPyConnection, path: Path, attribute: str) -> list[str]:
    """The values of an attribute as text, in their order; units without one are the last segment.

    Texts that are numbers are in the order of these, as text formats give all attributes as text.

    Raises InputError where there are more than :data:`MAX_SEGMENTS`.
    """
    name = quote_name(attribute)
    query = f"SELECT count(DISTINCT {name}), count(*) - count({name}) FROM main.units"  # noqa: S608 - a quoted name
    n_values, n_without = connection.execute(query).fetchall()[0]
    if n_values > MAX_SEGMENTS:
        raise InputError(
            f"{path.absolute()}: attribute {attribute!r} has {n_values:,} values, and effects are "
            f"estimated by at most {MAX_SEGMENTS:,}: group them in a table of yours with the "
            "columns unit_id and segment, and give that (--segments)"
        )
    query = f"""
    SELECT {name}::VARCHAR AS segment FROM main.units WHERE {name} IS NOT NULL
    GROUP BY 1 ORDER BY TRY_CAST(segment AS DOUBLE) NULLS LAST, min({name})"""  # noqa: S608 - a quoted name
    values = [str(value) for (value,) in connection.execute(query).fetchall()]
    return [*values, segment_of_null(values)] if n_without else values


def segment_of_null(values: list[str]) -> str:
    """What the segment of units without a value is called: ``(none)``, unless a value is.

    Then it has a pair of brackets more: ``((none))``.
    """
    name = NO_VALUE
    while name in values:
        name = f"({name})"
    return name


def segment_sql(attribute: str, none: str) -> str:
    """SQL for the segment of a row of units ``u``; ``none`` is that of units without a value."""
    return f"coalesce(u.{quote_name(attribute)}::VARCHAR, {text(none)})"
